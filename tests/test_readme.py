"""Every python block of the README runs, in order, in one namespace; every command exists."""

import re
from pathlib import Path

import pytest
import torch

from lazyrich.cli import _parser

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^lazyrich (\w+)", README, re.MULTILINE)


def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict = {"torch": torch}
    assert len(BLOCKS) >= 3
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), space)
    assert (tmp_path / "report.html").exists()


def test_the_commands_exist() -> None:
    verbs = _parser().format_help()
    assert COMMANDS
    for verb in COMMANDS:
        assert re.search(rf"^    {verb}\s", verbs, re.MULTILINE), verb

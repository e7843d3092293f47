"""Python blocks of the README and of pages on measures run, in order; every command exists."""

import re
from pathlib import Path

import pytest
import torch

from lazyrich.cli import _parser

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
MEASURES = Path(__file__).parents[1] / "docs" / "measures"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = BLOCK.findall(README)
COMMANDS = re.findall(r"^lazyrich (\w+)", README, re.MULTILINE)


def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict = {"torch": torch}
    assert len(BLOCKS) >= 3
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), space)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("page", sorted(MEASURES.glob("*.md")), ids=lambda page: page.stem)
def test_the_blocks_of_each_page_on_a_measure_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, page.name, "exec"), space)
    assert space, "a page on a measure shows how to call it"


def test_the_commands_exist() -> None:
    verbs = _parser().format_help()
    assert COMMANDS
    for verb in COMMANDS:
        assert re.search(rf"^    {verb}\s", verbs, re.MULTILINE), verb

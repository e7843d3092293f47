"""Two new files and no edit: the measure is in the catalogue, the command line and the contract."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lazyrich

MEASURE = '''"""The largest share of the variance along one direction."""

from lazyrich.measures import published
from lazyrich.statistics import Moments
from lazyrich.measures.effective_dimension import varying


@published(
    "a source that somebody could look up, 2026",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "order"},
)
def leading_share(x: Moments) -> float:
    r"""Share of the variance along the leading direction.

    $\\\\lambda_1 / \\\\sum_i \\\\lambda_i$
    """
    values = varying(x).eigenvalues
    return float(values[0] / values.sum())
'''.replace("\\\\", "\\")
ORACLE = """import numpy as np


def leading_share(x, labels, outputs):
    values = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    return values[0] / values.sum()
"""


@pytest.mark.slow
def test_two_files_are_all_it_takes(tmp_path: Path) -> None:
    package = Path(lazyrich.__file__).parent
    shutil.copytree(package, tmp_path / "src" / "lazyrich")
    tests = Path(__file__).parent
    shutil.copytree(tests / "oracles", tmp_path / "tests" / "oracles")
    for name in ("conftest.py", "test_measures.py"):
        shutil.copy(tests / name, tmp_path / "tests")
    shutil.copy(tests.parent / "pyproject.toml", tmp_path)
    (tmp_path / "src" / "lazyrich" / "measures" / "leading_share.py").write_text(MEASURE)
    (tmp_path / "tests" / "oracles" / "leading_share.py").write_text(ORACLE)

    def run(*command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
            capture_output=True,
            text=True,
            check=False,
        )

    assert "leading_share" in run("lazyrich", "measures").stdout
    contract = run("pytest", "tests/test_measures.py", "-k", "leading_share", "-q")
    assert contract.returncode == 0, contract.stdout
    assert "passed" in contract.stdout
    wrong = ORACLE.replace("values[0]", "values[1]")
    (tmp_path / "tests" / "oracles" / "leading_share.py").write_text(wrong)
    assert run("pytest", "tests/test_measures.py", "-k", "leading_share", "-q").returncode == 1

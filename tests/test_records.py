"""Records survive the disk, crashes and NaN, and are a table."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from lazyrich import Record, Records
from lazyrich._records import Definition
from lazyrich.errors import UnknownName, UnreadableFile

NC1 = Definition("nc1", "summary", "x", "source", "low", (0.0, math.inf))


def row(value: float = 1.5, **changes: object) -> Record:
    fields = {"run": "a", "step": 0, "layer": "fc", "view": "mean", "measure": "nc1"}
    return Record(**{**fields, "index": None, "estimator": "plug-in", "value": value, **changes})


TABLE = Records(
    [
        row(),
        row(2.5, layer="fc2", low=2.0, high=3.0),
        row(math.nan, status="undefined", note="one class"),
        row(math.inf, step=3),
        row(0.5, measure="spectrum", index=1),
    ],
    [NC1],
)


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    TABLE.save(path)
    assert Records.load(path) == TABLE
    assert Records.load(path).definitions == {"nc1": NC1}
    TABLE.save(str(path))
    assert Records.load(path) == TABLE + TABLE
    assert Records.load(path, path) == TABLE + TABLE + TABLE + TABLE


def test_every_line_is_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    TABLE.save(path)
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_tolerated_and_cut_off_when_writing_goes_on(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "r.jsonl"
    TABLE.save(path)
    path.write_bytes(path.read_bytes()[:-cut])
    whole = cut == 1  # all but the newline
    assert Records.load(path) == (TABLE if whole else TABLE[:-1])
    TABLE[-1:].save(path)
    assert Records.load(path) == (TABLE + TABLE[-1:] if whole else TABLE)


def test_damage_elsewhere_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    TABLE.save(path)
    path.write_text(path.read_text().replace('"layer"', '"lair"', 1))
    with pytest.raises(UnreadableFile, match=r"r.jsonl, line 2 is not a record"):
        Records.load(path)
    path.write_text("one line of something else")
    with pytest.raises(UnreadableFile, match="line 1 is not a record"):
        Records.load(path)
    with pytest.raises(UnreadableFile, match="cannot read records from .*nowhere"):
        Records.load(tmp_path / "nowhere")


def test_where_tag_and_unique() -> None:
    assert TABLE.where(layer="fc2").values() == [2.5]
    assert len(TABLE.where(layer=["fc", "fc2"], step=0)) == 4
    assert TABLE.where(measure="nc1").definitions == {"nc1": NC1}
    assert TABLE.tag(run="b", step=9).unique("run") == ["b"]
    assert TABLE.tag(run="b").unique("step") == [0, 3]
    assert TABLE.matching("layer", ["*2"]).values() == [2.5]
    for wrong in (lambda: TABLE.where(lair="fc"), lambda: TABLE.unique("lair")):
        with pytest.raises(UnknownName, match="no column matches 'lair'. Nearest: layer"):
            wrong()
    with pytest.raises(UnknownName, match=r"no layer matches 'gc\*'"):
        TABLE.matching("layer", ["gc*"])


def test_printing_shows_values_with_intervals_and_counts_what_is_hidden() -> None:
    text = repr(TABLE)
    assert "[2, 3]" in text and "one class" in text
    assert "1 points of curves" in text and "0.5" not in text
    assert "step" in text and "run" not in text.splitlines()[0]
    assert repr(Records([row()] * 100)).count("\n") == 61
    assert "40 more rows" in repr(Records([row()] * 100))
    html = Records([row(note="<script>")])._repr_html_()
    assert "&lt;script&gt;" in html and "<script>" not in html
    assert repr(Records())


def test_pandas_and_parquet(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    assert list(frame["layer"]) == [r.layer for r in TABLE]
    assert frame["value"].dtype == float
    TABLE.to_parquet(tmp_path / "r.parquet")
    assert pandas.read_parquet(tmp_path / "r.parquet").shape == frame.shape


@pytest.mark.parametrize("content", [b"PK\x03\x04aaa\nTAIL", b"notes", b'{"a": 1}', b"[1, 2]"])
def test_saving_leaves_files_of_others_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match="mine holds something else than records"):
        TABLE.save(path)
    assert path.read_bytes() == content
    with pytest.raises(UnreadableFile, match="no regular file"):
        TABLE.save(tmp_path)
    with pytest.raises(UnreadableFile, match="No such file or directory"):
        TABLE.save(tmp_path / "no" / "such.jsonl")


@pytest.mark.parametrize("wrong", [{"layer": 5}, {"step": "x"}, {"run": ["a"]}, {"low": [1]}])
def test_rows_of_wrong_types_are_refused(tmp_path: Path, wrong: dict) -> None:
    path = tmp_path / "r.jsonl"
    TABLE.save(path)
    lines = path.read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | wrong)
    path.write_text("\n".join([*lines, ""]))
    with pytest.raises(UnreadableFile, match="line 2 is not a record"):
        Records.load(path)


LIGHT = {
    "import lazyrich": ("torch", "numpy", "scipy", "pandas", "sklearn"),
    "from lazyrich import Records, report": ("torch", "numpy", "scipy", "pandas", "sklearn"),
    "import lazyrich.cli": ("torch", "numpy", "scipy", "pandas", "sklearn"),
    "from lazyrich import measure, Capture": ("pandas", "sklearn", "transformers", "lightning"),
}


@pytest.mark.parametrize("statement", LIGHT)
def test_imports_stay_light(statement: str) -> None:
    code = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not set(LIGHT[statement]) & set(loaded.stdout.split())


def test_import_takes_under_a_fifth_of_a_second() -> None:
    code = "from time import process_time as t; s = t(); import lazyrich; print(t() - s)"
    runs = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(3)
    )
    assert min(float(r.stdout) for r in runs) < 0.2


def test_the_public_names_are_the_same_for_readers_and_for_type_checkers() -> None:
    import re

    import lazyrich

    source = Path(lazyrich.__file__).read_text()
    checked = set(re.findall(r"(\w+) as \1", source))
    assert checked - {"__version__"} == set(lazyrich.__all__) == set(dir(lazyrich))
    assert len(lazyrich.__all__) <= 25
    for name in lazyrich.__all__:
        assert getattr(lazyrich, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(lazyrich, "nothing")  # noqa: B009

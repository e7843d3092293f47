"""The report: what each chart shows, what the page says, and that a browser draws all of it."""

import hashlib
import json
import math
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lazyrich._records import Definition, Record, Records
from lazyrich._report import report
from lazyrich._report.charts import chart
from lazyrich._report.decompositions import CURVES as decomposition_curves, decompositions
from lazyrich._report.encodings import PALETTE
from lazyrich._report.geometry import geometry
from lazyrich._report.images import DRAWN, images
from lazyrich._report.panels import data, panels
from lazyrich._report.tables import caveats, comparison, numbers, sources
from lazyrich.errors import LazyrichError
from lazyrich.trajectories import attribute

INFINITY = math.inf
ABOUT = {
    "collapse": (r"\operatorname{tr} W B^+", "doi:10.1073/pnas.2015509117", "low", (0, INFINITY)),
    "alignment": (r"\langle K, y y^T \rangle", "Some, arXiv:2410.04264", "high", (0, 1)),
    "dimension": (r"(\sum \lambda)^2 / \sum \lambda^2", "Gao 2017", "neither", (1, INFINITY)),
    "spectrum": (r"\lambda_k", "Stringer 2019", "neither", (0, INFINITY)),
}
DEFINITIONS = [Definition(name, f"What {name} is.", *about) for name, about in ABOUT.items()]
SCALARS = ("collapse", "alignment", "dimension")
HOSTILE = "<img src=x onerror=\"document.title='broken in'\">\n</script>"
BLANK = re.compile(r"\s+")


def one(value: float = 0.5, **columns: Any) -> Record:
    """A record; its interval reaches a tenth to both sides."""
    plain = {"run": "a", "step": 0, "layer": "features", "view": "mean", "measure": "collapse"}
    plain |= {"index": None, "estimator": "plug-in", "n": 1000, "d": 64, "dtype": "float32"}
    return Record(**(plain | {"low": 0.9 * value, "high": 1.1 * value} | columns), value=value)


def records(
    runs: int = 1, steps: tuple[int, ...] = (0,), layers: int = 4, curves: bool = True
) -> Records:
    """What a measurement of all layers gives; the last layer is named `features`."""
    draw = random.Random(0)
    names = [f"block{i}.conv" for i in range(1, layers)] + ["features"]
    places = [(f"run {r}", s, d) for r in range(runs) for s in steps for d in range(layers)]
    rows = [
        one(math.exp(-d) + 0.1 * draw.random(), run=run, step=step, layer=names[d], measure=measure)
        for run, step, d in places
        for measure in SCALARS
    ]
    rows += [
        one(k**-1.5, run=f"run {run}", step=steps[-1], layer=layer, measure="spectrum", index=k)
        for run in range(runs)
        for layer in names * curves
        for k in range(1, 65)
    ]
    return Records(rows, DEFINITIONS)


def failures() -> Records:
    """Undefined, failed and infinite values, and names that a careless page would run as code."""
    rows = [replace(r, run=HOSTILE) for r in records(layers=6)]
    rows[0] = replace(
        rows[0], value=math.nan, low=None, high=None, status="undefined", note="one class"
    )
    rows[1] = replace(rows[1], value=math.nan, low=None, high=None, status="failed", note=HOSTILE)
    rows[2] = replace(rows[2], value=INFINITY, low=-INFINITY, high=math.nan)
    rows[3:6] = [replace(r, layer=HOSTILE) for r in rows[3:6]]
    return Records(
        rows, [*DEFINITIONS[1:], replace(DEFINITIONS[0], summary=HOSTILE, source=HOSTILE)]
    )


def degenerate() -> Records:
    """One number alone, equal numbers, zeros, a curve of one point, intervals across zero."""
    rows = [one(0.0, measure="zero"), one(-2.0, measure="negative", low=-3.0, high=1.0)]
    rows += [one(1.0, measure="equal", layer=layer) for layer in "abc"]
    rows += [one(10.0**-i, measure="decades", layer=f"l{i}", low=-1.0, high=1.0) for i in range(5)]
    rows += [one(3.0, measure="point", index=1), one(0.1, measure="null", null=0.05)]
    rows += [
        one(1e300, measure="huge"),
        one(1e-300, measure="tiny"),
        one(0.0, measure="flat", index=1),
    ]
    rows += [one(float(i), measure="signed", index=i, layer="a") for i in (-1, 1, 2)]
    return Records(rows)


def pairs(
    rows: tuple[str, ...], columns: tuple[str, ...] = (), runs: int = 1, measure: str = "cka"
) -> Records:
    """Every row beside every column, or every pair of rows once."""
    found = [(a, b) for a in rows for b in columns]
    found = found or [(a, b) for i, a in enumerate(rows) for b in rows[i:]]
    table = [
        one(
            round(1 / (1 + i % 5), 2), run=f"run {r}", layer=f"{a} ~ {b}", measure=measure, null=0.0
        )
        for r in range(runs)
        for i, (a, b) in enumerate(found)
    ]
    return Records(table, [Definition("cka", "How alike.", "K", "Song 2012", "neither", (-1, 1))])


def mixed_pairs() -> Records:
    """Two models with awkward names, a value missing, one below zero, and a layer never read."""
    found = pairs(tuple(f"block.{i}.conv's" for i in range(20)), ("V1", 'I"T', "outputs"))
    rows = [replace(r, null=0.1) for r in found]
    rows[1] = replace(rows[1], value=math.nan, low=None, high=None, status="undefined", note="?")
    rows[2] = replace(rows[2], value=-0.2)
    rows.append(one(math.nan, layer="spare ~", measure="cka", status="failed", note="never ran"))
    return Records(rows) + records(layers=3)


def manifolds(
    runs: int = 1, steps: tuple[int, ...] = (0, 10, 100), layers: int = 3, top: float = 20.0
) -> Records:
    """Radius and dimension that fall over steps and layers, with capacity beside them."""
    rows = []
    for run, step, layer in product(range(runs), steps, range(layers)):
        share = (1 + layer) * (1 + math.log1p(step)) / (1 + run)
        values = {"manifold_radius": 1.5 / share**0.3, "manifold_dimension": top / share}
        radius, dimension = values.values()
        values["capacity"] = 0.8 * (1 + radius**-2) / dimension
        place = {"run": f"run {run}", "step": step, "layer": f"layer{layer}"}
        rows += [one(v, measure=m, standard_error=v / 50, **place) for m, v in values.items()]
    return Records(rows)


def only(table: Records) -> Any:
    """The panel of records that share one."""
    (panel,) = panels(table)
    return panel


def marks(spec: dict[str, Any]) -> list[str]:
    """The types of all marks, layers in layers included."""
    inner = [m for layer in spec.get("layer", []) for m in marks(layer)]
    return ([spec["mark"]["type"]] if "mark" in spec else []) + inner


class Page(HTMLParser):
    """Tags, addresses and text of a page, as a browser reads them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "action", "data")]

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["script"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return BLANK.sub(" ", " ".join(self.texts))

    @property
    def content(self) -> dict[str, Any]:
        (found,) = re.findall(r'id="content">(.*?)</script>', self.source, re.DOTALL)
        return json.loads(found, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.fixture
def page(tmp_path: Path) -> Any:
    return lambda table: Page(report(table, tmp_path / "report.html"))


# Charts


def test_a_profile_keeps_execution_order_and_has_error_bars() -> None:
    panel = panels(records(layers=40))[0]
    spec = chart(panel)
    assert spec["encoding"]["x"]["scale"]["domain"] == (
        *[f"block{i}.conv" for i in range(1, 40)],
        "features",
    )
    assert marks(spec) == ["rule", "line", "point"]


def test_of_many_layers_the_last_and_at_most_thirty_are_labeled() -> None:
    x = chart(panels(records(layers=130))[0])["encoding"]["x"]
    assert len(x["axis"]["values"]) <= 30 and x["axis"]["values"][0] == "features"
    assert x["axis"]["labelAngle"] != 0 and len(x["scale"]["domain"]) == 130


def test_runs_stand_side_by_side_where_there_is_one_layer() -> None:
    x = chart(panels(records(runs=3, layers=1))[0])["encoding"]["x"]
    assert x["field"] == "run" and len(x["scale"]["domain"]) == 3


def test_several_steps_make_a_trajectory_with_a_line_for_each_layer() -> None:
    spec = chart(panels(records(steps=(0, 5, 10)))[0])
    assert (
        spec["encoding"]["x"]["field"] == "step" and spec["encoding"]["color"]["field"] == "layer"
    )
    assert marks(spec) == ["area", "line", "point"] and "params" not in spec


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ((0, 1, 3, 10, 30, 100, 300), "symlog"),
        ((1, 4, 16, 64, 256), "symlog"),
        (tuple(range(0, 1001, 50)), None),
        ((0, 1, 10, 100), None),
        ((0, 7), None),
    ],
)
def test_the_step_axis_is_logarithmic_for_steps_spaced_that_way(steps: Any, kind: Any) -> None:
    scale = chart(panels(records(steps=steps))[0])["encoding"]["x"]["scale"]
    assert scale.get("type") == kind


@pytest.mark.parametrize(("keep", "shown"), [("", "features"), ("block", "block3.conv")])
def test_runs_are_compared_at_a_layer_that_is_chosen(keep: str, shown: str) -> None:
    table = Records(r for r in records(runs=2, steps=(0, 9)) if r.layer.startswith(keep))
    spec = chart(panels(table)[0])
    (choice,) = spec["params"]
    assert choice["value"] == shown and choice["bind"]["input"] == "select"
    assert {"filter": "datum.layer === chosen"} in spec["transform"]
    assert spec["encoding"]["color"]["field"] == "run"


def test_many_layers_get_a_ramp_and_the_chosen_one_is_black() -> None:
    spec = chart(panels(records(steps=(0, 9), layers=20))[0])
    assert (
        spec["encoding"]["color"]["field"] == "position"
        and spec["params"][0]["value"] == "features"
    )
    assert spec["layer"][-1]["encoding"]["color"] == {"value": "black"}
    assert marks(spec) == ["line", "point", "area", "line", "point"]


def test_few_runs_differ_in_shape_as_well_as_in_color() -> None:
    few, many = (chart(panels(records(runs=n))[0]) for n in (len(PALETTE), len(PALETTE) + 1))
    (points,) = [layer for layer in few["layer"] if layer["mark"]["type"] == "point"]
    assert len(set(points["encoding"]["shape"]["scale"]["range"])) == len(PALETTE)
    assert few["encoding"]["color"]["scale"]["range"] == PALETTE
    assert many["encoding"]["color"]["scale"]["scheme"]["name"] == "viridis"


def test_a_curve_is_drawn_on_two_logarithmic_axes() -> None:
    spec = chart(panels(records())[-1])
    y = spec["layer"][-1]["encoding"]["y"]
    assert spec["encoding"]["x"]["field"] == "index"
    assert spec["encoding"]["x"]["scale"]["type"] == y["scale"]["type"] == "log"


def test_an_interval_below_zero_is_cut_at_the_floor_of_a_logarithmic_axis() -> None:
    table = Records(one(10.0**-i, layer=str(i), low=-1.0, high=1.0) for i in range(4))
    scale = chart(only(table))["layer"][0]["encoding"]["y"]["scale"]
    assert scale["clamp"] and scale["domainMin"] == pytest.approx(1e-4)


def test_the_richer_direction_stands_on_the_axis() -> None:
    panel = panels(records())[0]
    titles = [
        chart(panel, r)["layer"][-1]["encoding"]["y"]["title"] for r in ("low", "high", "neither")
    ]
    assert titles == ["collapse (↓ richer)", "collapse (↑ richer)", "collapse"]


def test_the_null_level_is_drawn_where_it_is_known() -> None:
    plain, leveled = only(Records([one()])), only(Records([one(null=0.1)]))
    assert marks(chart(plain)) == ["rule", "line", "point"]
    assert marks(chart(leveled)) == ["rule", "line", "line", "point"]


def test_a_missing_value_leaves_a_gap_with_a_cross() -> None:
    panel = only(
        Records([one(), one(math.nan, layer="b", low=None, high=None, status="undefined")])
    )
    assert marks(chart(panel))[-1] == "text"
    assert [row[5] for row in data([panel])["rows"]] == [0.5, None]


# What shares a chart


def test_two_estimators_or_views_of_one_value_never_share_a_chart() -> None:
    table = Records([one(), one(estimator="debiased"), one(view="flatten")])
    variants = [p.variant for p in panels(table)]
    assert variants == [
        "view mean, estimator plug-in",
        "view mean, estimator debiased",
        "view flatten, estimator plug-in",
    ]


def test_layers_with_views_of_their_own_share_a_chart() -> None:
    assert only(Records([one(layer="conv"), one(layer="head", view="flatten")])).variant == ""


def test_a_value_measured_again_is_drawn_once_the_later_one() -> None:
    panel = only(Records([one(0.1), one(0.2, layer="b"), one(0.3)]))
    assert [r.value for r in panel.rows] == [0.3, 0.2]


def test_what_has_no_finite_value_has_no_chart() -> None:
    assert panels(Records([one(math.nan, status="failed", note="no classes")])) == []


def test_a_curve_is_thinned_at_its_last_step_without_its_round_off() -> None:
    points = [one(k**-1.0, index=k, step=step) for step in (0, 7) for k in range(1, 3001)]
    ranks = [r.index for r in only(Records([*points, one(1e-17, index=3001, step=7)])).rows]
    assert ranks[:3] == [1, 2, 3] and ranks[-1] == 3000 and len(ranks) <= 80
    assert {r.step for r in only(Records(points)).rows} == {7}


def test_every_row_of_the_data_belongs_to_one_chart_and_names_stand_once() -> None:
    found = panels(records(runs=2, steps=(0, 1)))
    table = data(found)
    assert len(table["rows"]) == sum(len(p.rows) for p in found)
    assert table["names"]["run"] == ["run 0", "run 1"] and len(table["names"]["layer"]) == 4


# Tables


def compared(*rows: Record) -> str:
    return comparison(panels(Records(rows)), Records(rows, DEFINITIONS).definitions)


def test_the_richer_run_is_bold_by_the_direction_of_the_measure() -> None:
    low = compared(one(0.1, run="a"), one(0.9, run="b"))
    high = compared(one(0.1, run="a", measure="alignment"), one(0.9, run="b", measure="alignment"))
    assert "<strong>0.1</strong>" in low and low.count("<strong>") == 1
    assert "<strong>0.9</strong>" in high and high.count("<strong>") == 1


def test_the_penultimate_layer_stands_for_a_run_before_outputs_and_features() -> None:
    table = [one(layer=name) for name in ("features", "penultimate", "outputs")]
    assert only(Records(table)).main_layer == "penultimate"
    assert only(Records(table[::2])).main_layer == "features"


def test_a_compared_value_with_a_caveat_leads_to_it() -> None:
    text = compared(one(0.1, run="a", status="caution", note="n is small"), one(0.9, run="b"))
    assert text.count('href="#notes-and-failures"') == 1


def test_runs_are_compared_at_the_features_and_the_last_step() -> None:
    early, other = one(0.01, run="b", step=0), one(0.02, run="b", step=9, layer="head")
    text = compared(one(0.5, run="a", step=4), early, one(0.7, run="b", step=9), other)
    assert (
        "<strong>0.5</strong>" in text
        and "0.7" in text
        and "0.01" not in text
        and "0.02" not in text
    )


def test_overlapping_intervals_are_told() -> None:
    assert "overlap" in compared(one(0.5, run="a"), one(0.52, run="b"))
    assert "overlap" not in compared(one(0.5, run="a"), one(0.9, run="b"))


def test_neither_equal_nor_undefined_nor_missing_values_win() -> None:
    assert "undecided" in compared(one(run="a"), one(run="b"))
    assert "undecided" in compared(one(run="a"), one(math.nan, run="b", status="failed"))
    third = compared(one(0.1, run="a"), one(0.9, run="b"), one(0.5, run="c", measure="alignment"),
                     one(0.6, run="a", measure="alignment"))  # fmt: skip
    assert third.count("not measured") == 2 and third.count("<strong>") == 2


def test_there_is_no_comparison_of_one_run_nor_without_a_direction() -> None:
    assert compared(one()) == ""
    assert compared(one(run="a", measure="dimension"), one(run="b", measure="dimension")) == ""


def test_the_table_of_numbers_has_all_that_judges_a_number() -> None:
    row = one(0.123456789, low=None, high=None, standard_error=0.01, null=0.2, note="few samples")
    text = numbers(Records([row, replace(row, layer="b", null=None)]))
    for cell in (
        "0.123457",
        "s.e. 0.01",
        "plug-in",
        "1000",
        "64",
        "float32",
        "ok",
        "few samples",
        "0.2",
    ):
        assert f">{cell}<" in text
    assert "the same in every row: run a, step 0, view mean, seed 0." in text


def test_a_very_long_table_keeps_the_last_step_and_says_so() -> None:
    text = numbers(records(steps=tuple(range(10)), layers=100, curves=False))
    assert text.count("<tr>") == 301 and "300 rows of 3,000, from the last steps" in text


def test_sources_are_linked_and_a_missing_definition_is_told() -> None:
    text = sources(Records([one(), one(measure="alignment"), one(measure="new")], DEFINITIONS))
    assert 'href="https://doi.org/10.1073/pnas.2015509117"' in text
    assert 'href="https://arxiv.org/abs/2410.04264"' in text
    assert "[0, ∞)" in text and "No definition came with the records." in text


def test_caveats_are_grouped_by_reason_and_name_every_place() -> None:
    rows = [one(layer=f"layer{i}", status="caution", note="n is small") for i in range(9)] + [
        one(INFINITY)
    ]
    text = caveats(Records(rows))
    assert text.count("<tr>") == 3 and "value inf" in text
    assert all(f"layer{i} (a, step 0)" in text for i in range(9))


# The page


def test_the_page_shows_every_section_that_has_content(page: Any) -> None:
    found = page(records(runs=2, steps=(0, 1, 10)))
    for text in (
        "Overview",
        "Which run is richer",
        "Measures",
        "Curves",
        "All records",
        "Definitions and sources",
        r"\operatorname{tr} W B^+",
    ):
        assert text in found.text
    assert "Notes and failures" not in found.text
    assert {"h1", "h2", "nav", "main", "figure", "caption"} <= set(found.tags)


def test_links_within_the_page_lead_somewhere(page: Any) -> None:
    found = page(failures())
    anchors = {a for a in found.addresses if a.startswith("#")}
    assert "#notes-and-failures" in anchors
    assert all(f'id="{a[1:]}"' in found.source for a in anchors)


def test_the_page_asks_for_nothing_from_outside(page: Any) -> None:
    found = page(records(runs=2))
    outside = [a for a in found.addresses if not a.startswith("#")]
    assert outside and all(
        a.startswith(("https://doi.org/", "https://arxiv.org/")) for a in outside
    )
    assert "link" not in found.tags and "iframe" not in found.tags
    assert "default-src 'none'" in found.source and "sourceMappingURL" not in found.source


def test_no_name_becomes_code(page: Any) -> None:
    found, plain = page(failures()), page(records(layers=6))
    assert "img" not in found.tags and found.tags.count("script") == plain.tags.count("script") == 5
    assert found.content["names"]["run"] == [HOSTILE] and HOSTILE in found.content["names"]["layer"]
    assert "<img src=x" in found.text


def test_not_a_number_is_null_in_the_data(page: Any) -> None:
    assert sum(None in row[5:6] for row in page(failures()).content["rows"]) == 3


def test_nine_hundred_records_stay_below_the_size_of_a_mail(tmp_path: Path) -> None:
    table = Records(
        [r for r in records(runs=2, steps=(0, 1, 10, 100), layers=38) if r.index is None][:900],
        DEFINITIONS,
    )
    assert len(table) == 900
    assert report(table, tmp_path / "report.html").stat().st_size < 1_200_000


def test_the_same_records_give_the_same_page(tmp_path: Path) -> None:
    first, second = (report(records(), tmp_path / n).read_bytes() for n in ("a.html", "b.html"))
    assert first == second


def test_the_title_is_escaped_and_shown(tmp_path: Path) -> None:
    path = report(records(), str(tmp_path / "report.html"), title="<b>&")
    assert path.read_text(encoding="utf-8").count("&lt;b&gt;&amp;") == 2


def test_the_headline_does_not_count_pairs_of_layers(page: Any) -> None:
    found = page(Records([one(), one(layer="conv1 -> features", measure="alignment")]))
    assert re.search(r"layers 1 ", found.text)


def test_records_that_all_failed_still_give_a_page(page: Any) -> None:
    found = page(Records([one(math.nan, status="failed", note="no classes")]))
    assert "no classes" in found.text and found.content["specs"] == []


def test_curves_alone_give_a_page(page: Any) -> None:
    assert "All records" not in page(records().where(measure="spectrum")).text


# Files


def test_without_records_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LazyrichError, match=r"at least one record.*Measure first"):
        report(Records(), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    path = report(records(), tmp_path / "new" / "folder" / "report.html")
    assert path.is_file() and [p.name for p in path.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize("name", ["file/report.html", "folder", ""])
def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(LazyrichError, match=r"cannot write the report .*Give the path"):
        report(records(), tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_an_old_page_survives_a_failed_write(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(LazyrichError, match="No space left"):
        report(records(), path)
    assert path.read_text(encoding="utf-8") == "old" and list(tmp_path.iterdir()) == [path]


def test_the_vendored_libraries_are_the_published_builds() -> None:
    folder = files("lazyrich._report") / "vega"
    lines = (folder / "HASHES").read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    found = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}
    assert found.keys() - listed.keys() == {"HASHES"}
    assert listed == {name: found[name] for name in listed}


def test_writing_a_report_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, lazyrich._report; sys.exit(str({'torch', 'numpy'} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.stderr.strip() == "set()"


# Pairs of layers


def axes(spec: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names of rows and of columns, as they stand on the axes of a heat map."""
    place = spec["layer"][0]["encoding"]
    assert (place["y"]["field"], place["x"]["field"]) == ("first", "second")
    return place["y"]["scale"]["domain"], place["x"]["scale"]["domain"]


def test_pairs_are_a_heat_map_with_rows_and_columns_in_order_of_appearance() -> None:
    spec = chart(only(pairs(("fc10", "fc9", "out"), ("V4", "V1"))))
    assert axes(spec) == (["fc10", "fc9", "out"], ["V4", "V1"])
    assert marks(spec) == ["rect", "text", "text"]
    color = spec["layer"][0]["encoding"]["color"]
    assert color["scale"] == {"scheme": "viridis", "domain": [0, 1], "clamp": True}
    assert {t["field"] for t in spec["encoding"]["tooltip"]} >= {"layer", "value", "low", "null"}


def test_pairs_that_came_once_stand_on_both_sides_of_the_diagonal() -> None:
    spec = chart(only(pairs(("a", "b", "c"))))
    assert axes(spec) == (["a", "b", "c"],) * 2
    assert [m for m in marks(spec) if m == "rect"] == ["rect"] * 2
    turned = spec["layer"][3]["encoding"]
    assert (turned["x"]["field"], turned["y"]["field"]) == ("first", "second")
    both = chart(only(pairs(("a", "b"), ("a", "b"))))
    assert marks(both).count("rect") == 1


def test_wide_heat_maps_have_no_numbers_in_their_cells() -> None:
    spec = chart(only(pairs(("a",), tuple(f"l{i}" for i in range(13)))))
    assert marks(spec) == ["rect", "text"]


def test_one_run_of_several_is_chosen_for_the_heat_map() -> None:
    spec = chart(only(pairs(("a",), ("b",), runs=2)))
    assert spec["params"][0]["bind"]["options"] == ("run 0", "run 1")


def test_pairs_over_steps_are_lines() -> None:
    steps = [replace(r, step=s) for s in (0, 1, 2) for r in pairs(("a",), ("b",))]
    assert "line" in marks(chart(only(Records(steps))))


def test_a_heat_map_states_its_null_level_and_what_is_beyond_the_colors(tmp_path: Path) -> None:
    text = report(mixed_pairs(), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Unrelated data would give 0.1." in text
    assert "Colors end at 0 and 1" in text
    assert "never ran" in text
    plain = report(pairs(("a",), ("b",)), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Unrelated data would give 0." in plain and "Colors end" not in plain


# Capacity and geometry


def test_a_plane_is_drawn_only_where_radius_and_dimension_were_measured() -> None:
    table = manifolds()
    (found,) = geometry(panels(table))
    assert found.number == len(panels(table)) and found.title == "radius and dimension"
    assert geometry(panels(table.where(measure=["manifold_radius", "capacity"]))) == []
    apart = table.where(measure="manifold_radius", layer="layer0") + table.where(
        measure="manifold_dimension", layer="layer1"
    )
    assert geometry(panels(apart)) == []
    assert geometry(panels(records())) == []


@pytest.mark.parametrize("top", [20.0, 3.0, 2000.0])
def test_contours_are_lines_of_equal_capacity_within_the_plane(top: float) -> None:
    (found,) = geometry(panels(manifolds(top=top)))
    lines, numbers, _, _, *path = found.spec["layer"]
    points = lines["data"]["values"]
    for p in points:
        assert (1 + p["radius"] ** -2) / p["dimension"] == pytest.approx(p["level"], rel=1e-12)
    levels = {p["level"] for p in points}
    assert 2 <= len(levels) <= 7 and {p["level"] for p in numbers["data"]["values"]} == levels
    for field, axis in (("dimension", "x"), ("radius", "y")):
        low, high = path[0]["encoding"][axis]["scale"]["domain"]
        assert all(low * (1 - 1e-9) <= p[field] <= high * (1 + 1e-9) for p in points)


def test_the_path_follows_steps_or_else_layers_and_marks_its_ends() -> None:
    (over_steps,) = geometry(panels(manifolds()))
    path = ["line", "point", "point", "point"]
    assert marks(over_steps.spec) == ["line", "text", "rule", "rule", *path]
    line, _, end, start = over_steps.spec["layer"][4:]
    assert line["encoding"]["order"]["field"] == "step"
    assert line["encoding"]["color"]["field"] == "layer"
    assert start["transform"] == [{"filter": "datum.step === datum.min"}]
    assert end["transform"] == [{"filter": "datum.step === datum.max"}]
    (over_layers,) = geometry(panels(manifolds(runs=2, steps=(0,))))
    line = over_layers.spec["layer"][4]
    assert line["encoding"]["order"]["field"] == "position"
    assert line["encoding"]["color"]["field"] == "run"
    assert "first layer" in over_layers.told and "first step" in over_steps.told


def test_the_plane_shows_intervals_where_there_are_any() -> None:
    (found,) = geometry(panels(manifolds()))
    up, across = found.spec["layer"][2:4]
    assert up["encoding"]["y2"] == {"field": "radius_high"} and "intervals" in found.told
    assert across["encoding"]["x2"] == {"field": "dimension_high"}
    (bare,) = geometry(panels(Records(replace(r, low=None, high=None) for r in manifolds())))
    assert "rule" not in marks(bare.spec) and "intervals" not in bare.told


def test_runs_on_the_plane_are_compared_at_a_layer_that_is_chosen() -> None:
    (found,) = geometry(panels(manifolds(runs=2)))
    assert found.spec["params"][0]["value"] == "layer2"
    assert {"filter": "datum.layer === chosen"} in found.spec["transform"]


def test_an_attribution_has_a_bar_for_the_change_and_each_of_its_parts(page: Any) -> None:
    table = manifolds() + attribute(manifolds(), before=0, after=100)
    _, bars = geometry(panels(table))
    shown = {p.number: p.measure for p in panels(table)}
    numbers = bars.spec["transform"][0]["filter"]["oneOf"]
    assert [shown[n].rpartition("_")[2] for n in numbers] == [
        "change",
        "radius",
        "dimension",
        "utility",
    ]
    assert marks(bars.spec) == ["bar", "rule"] and "step 0 to 100" in bars.facts["Estimator"]
    found = page(table)
    assert "Capacity and geometry" in found.text and "about 10 % more" in found.text
    assert f'id="chart-{bars.number}"' in found.source


# Features one by one


def decomposed(
    runs: int = 1, layers: int = 1, of: tuple[str, ...] = tuple(decomposition_curves)
) -> Records:
    return Records(
        one(
            1 / k if measure == "relative_eigenvalue" else k / 12,
            run=f"run{run}",
            layer=f"layer{layer}",
            measure=measure,
            index=k,
        )
        for run in range(runs)
        for layer in range(layers)
        for measure in of
        for k in range(1, 13)
    )


def test_a_decomposition_joins_the_curves_that_were_measured(page: Any) -> None:
    found = panels(decomposed(runs=2, layers=3))
    (one,) = decompositions(found, len(found))
    assert one.number == len(found) and one.title == "feature decomposition"
    assert one.spec["transform"][0]["filter"]["oneOf"] == [p.number for p in found]
    assert one.spec["encoding"]["strokeDash"]["scale"]["domain"] == ["run0", "run1"]
    assert [p["value"] for p in one.spec["params"]] == ["layer2"]
    two = panels(decomposed(of=("relative_eigenvalue", "cumulative_quality")))
    (without,) = decompositions(two, len(two))
    assert without.spec["encoding"]["color"]["scale"]["domain"] == [
        "strength",
        "quality, cumulative",
    ]
    assert "strokeDash" not in without.spec["encoding"] and without.spec["params"] == []
    assert decompositions(panels(decomposed(of=("relative_eigenvalue",))), 1) == []
    assert "Features one by one" in page(decomposed()).text


def looks(shape: tuple[int, ...] = (1, 4, 6), runs: int = 1, layers: int = 1) -> Records:
    d = math.prod(shape)
    return Records(
        one(
            (-1) ** (k % 2) * k / d if "direction" in measure else k / d,
            run=f"run{run}",
            layer=f"layer{layer}",
            measure=measure,
            view=f"free positions, inputs {' x '.join(map(str, shape))}",
            index=k,
            d=d,
        )
        for run in range(runs)
        for layer in range(layers)
        for measure in DRAWN
        for k in range(1, d + 1)
    )


def test_measures_of_pixels_are_drawn_where_the_pixels_are(page: Any) -> None:
    (found,) = images(looks(), 7)
    assert found.number == 7 and len(found.spec["concat"]) == len(DRAWN)
    diagonal, direction = found.spec["concat"][0], found.spec["concat"][-1]
    assert diagonal["data"]["sequence"]["stop"] == 24
    assert diagonal["encoding"]["color"]["scale"]["domain"] == [0, 1]
    assert direction["encoding"]["color"]["scale"]["domain"] == [-1, 1]
    assert f"datum.place / {6})" in diagonal["transform"][0]["calculate"]
    assert "Inputs that matter" in page(looks()).text
    assert len(images(looks(runs=2, layers=2), 0)) == 4


def test_color_channels_are_summed() -> None:
    (found,) = images(looks((3, 2, 2)), 0)
    values = found.spec["concat"][0]["transform"][-1]["calculate"]
    assert values.startswith("[1.25, 1.5, 1.75, 2.0]")


def test_what_is_no_image_of_the_inputs_is_not_drawn_as_one() -> None:
    records = looks()
    assert images(Records(replace(r, d=25) for r in records), 0) == []
    assert images(Records(replace(r, view="free positions") for r in records), 0) == []


def test_more_runs_than_dashes_are_chosen_from() -> None:
    found = panels(decomposed(runs=6))
    (one,) = decompositions(found, len(found))
    assert [p["name"] for p in one.spec["params"]] == ["chosen_run"]
    assert "strokeDash" not in one.spec["encoding"]


# The browser

CHROMIUM = shutil.which("chromium")
in_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium in PATH")
CASES = {
    "one run, 40 layers, spectra": lambda: records(layers=40),
    "two runs, 15 steps": lambda: records(runs=2, steps=(0, *(2**i for i in range(14)))),
    "one run, many layers over steps": lambda: records(steps=(0, 10, 20), layers=12),
    "more runs than colors": lambda: records(runs=9, layers=2),
    "pairs of one model": lambda: pairs(("conv1", "conv2", "fc", "outputs")),
    "pairs of two models": mixed_pairs,
    "pairs in three runs": lambda: pairs(("a", "b"), ("c", "d", "e"), runs=3),
    "failures": failures,
    "degenerate": degenerate,
    "radius and dimension over steps": lambda: manifolds(runs=2),
    "radius and dimension of many layers": lambda: manifolds(layers=12, top=2000.0),
    "radius and dimension over layers": lambda: manifolds(runs=2, steps=(0,)),
    "radius and dimension of one point": lambda: manifolds(steps=(0,), layers=1),
    "radius and dimension with zeros and gaps": lambda: Records(
        replace(r, value=v, low=None, high=None)
        for r, v in zip(manifolds(), [0.0, 1.0, math.nan, *range(9, 1000)], strict=False)
    ),
    "what changed capacity": lambda: (
        manifolds(runs=2) + attribute(manifolds(runs=2), before=0, after=100)
    ),
    "features one by one": lambda: decomposed(runs=2, layers=2),
    "features of many runs": lambda: decomposed(runs=6),
    "what networks look at": lambda: looks((3, 8, 8), runs=2),
    "what changed capacity between layers": lambda: attribute(
        manifolds(), before="layer0", after="layer2", along="layer"
    ),
}


def browse(path: Path, *options: str) -> str:
    """What headless Chromium prints after it has opened the page."""
    flags = (
        "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
        "disable-component-update disable-sync virtual-time-budget=5000"
    )
    profile = f"--user-data-dir={path.parent / 'profile'}"
    command = [str(CHROMIUM), *(f"--{flag}" for flag in flags.split()), profile, *options]
    run = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120)
    return run.stdout


@in_chromium
@pytest.mark.chromium
@pytest.mark.parametrize("case", CASES)
def test_a_browser_draws_every_chart_without_an_error(tmp_path: Path, case: str) -> None:
    page = browse(report(CASES[case](), tmp_path / "report.html"), "--dump-dom")
    (root,) = re.findall(r"<html lang=[^>]*>", page)
    said = dict(re.findall(r'data-(\w+)="([^"]*)"', root))
    assert "errors" not in said
    found = panels(CASES[case]())
    joined = len(geometry(found)) + len(decompositions(found, 0)) + len(images(CASES[case](), 0))
    assert said["drawn"] == said["charts"] == str(len(found) + joined)
    assert "<title>lazyrich report</title>" in page


@in_chromium
@pytest.mark.chromium
def test_a_screenshot_shows_more_than_an_empty_page(tmp_path: Path) -> None:
    browse(report(records(), tmp_path / "report.html"), f"--screenshot={tmp_path / 'page.png'}")
    assert (tmp_path / "page.png").stat().st_size > 20_000

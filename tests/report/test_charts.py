"""Charts: valid XML, complete in themselves, the same every time, with every number in words."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos.errors import UsageError
from lumos.report.charts import (
    COLOURS,
    INK,
    MAX_BRANCHES,
    MAX_CLASSES,
    RIGHT,
    WIDTH,
    WRONG,
    bars,
    cdf,
    confusion,
    dots,
    format_tick,
    is_wide,
    lines,
    moderate,
    shares,
    short_count,
    tree,
)

NS = "{http://www.w3.org/2000/svg}"
EVIL = "_</title><script>alert(1)</script>\"'<!-- $x^2$ &amp; \\alpha \x07 ]]>"
VALUES: list[list[float | None]] = [[10.0, 40.0, None], [25.0, 0.0, 33.25]]
SPREAD: list[list[float | None]] = [[1.0, 2.0, None], [0.5, None, 3.0]]
PAPER: list[list[float | None]] = [[12.0, None, 50.0], [None, None, 30.0]]
CHARTS: dict[str, Callable[[str], str]] = {
    "bars": lambda w: bars(
        [w, f"{w}2"], [w, "b", "c"], VALUES, SPREAD, PAPER, "%", w, mark_name=w
    ),
    "dots": lambda w: dots([w], [w, "b"], [[1.0, 2.0]], singles=[[(0.5, 1.5), ()]], title=w),
    "lines": lambda w: lines(
        [0, 1, 2],
        {w: ([1.0, None, 3.0], [0.5, None, 1.0]), "b": ([None, 2.0, 1.0], None)},
        {w: [None, 1.0, 2.0], "c": [3.0, None, None]},
        title=w, x_title=w, y_title=w, mark_name=f"{w}3", reference_lines={f"{w}2": 1.0},
        levels={w: 2.0, f"{w}2": 2.01}, notes=[w], least=0.5,
    ),
    "cdf": lambda w: cdf({w: [1, 1, 3, 7], "empty": []}, title=w, x_title=w, marks={f"{w}2": 3}),
    "confusion": lambda w: confusion([w, "b"], [[8, 2], [1, 5]], w),
    "tree": lambda w: tree(5, w, w),
    "star": lambda w: tree(MAX_BRANCHES + 30, w, w, virtual_nodes=False),
}  # fmt: skip


def texts(svg: str) -> list[str]:
    return [item.text or "" for item in ET.fromstring(svg).iter(f"{NS}text")]  # noqa: S314


def description(svg: str) -> str:
    return ET.fromstring(svg).findtext(f"{NS}desc", "")  # noqa: S314


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize("words", [EVIL, "名" * 300])
def test_every_chart_is_complete_in_itself(kind: str, words: str) -> None:
    """Nothing is loaded or run, ids are found, names are text, colours are the page's."""
    svg = CHARTS[kind](words)
    root = ET.fromstring(svg)  # noqa: S314
    used, ids = [], []
    for item in root.iter():
        assert item.tag.removeprefix(NS) in {
            "svg", "title", "desc", "defs", "g", "path", "use", "text", "clipPath", "rect",
        }  # fmt: skip
        for name, value in item.attrib.items():
            assert not name.startswith("on")
            assert not re.search(r"https?:|data:|@import", value)
            used += re.findall(r"url\(#(.+?)\)", value)
            if name == "href":
                assert value.startswith("#")
                used.append(value[1:])
            ids += [value] * (name == "id")
            for colour in re.findall("#[0-9a-f]{6}", value if name == "style" else ""):
                assert f", {colour})" in value or colour in (RIGHT, WRONG), value
    assert set(used) == set(ids)
    assert len(ids) == len(set(ids))
    assert f"fill: var(--ink, {INK})" in root.attrib["style"]
    assert root.attrib["role"] == "img"
    assert float(root.attrib["viewBox"].split()[2]) == WIDTH
    assert description(svg)
    shown = " ".join(words.replace("\x07", " ").split())
    title = root.findtext(f"{NS}title", "")
    assert title == ("The tree of a sample device" if kind in ("tree", "star") else shown)
    assert any(shown[:10] in text for text in texts(svg))


def test_the_same_numbers_give_the_same_bytes() -> None:
    """Also in another process, whatever its matplotlib is set to."""
    code = (
        "import matplotlib as mpl; mpl.rcParams['font.size'] = 30\n"
        "from tests.report.test_charts import CHARTS\n"
        "import sys; sys.stdout.buffer.write(''.join(c('name') for c in CHARTS.values()).encode())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    drawn = "".join(chart("name") for chart in CHARTS.values())
    assert other.decode() == drawn
    ids = re.findall(r' id="(.+?)"', drawn)
    assert len(ids) == len(set(ids))  # charts of one page share none


def test_rows_have_every_number_in_words() -> None:
    for draw in (bars, dots):
        svg = draw(["one", "two"], ["a", "b", "c"], VALUES, SPREAD, PAPER, unit="%", title="Score")
        labels = ["10.00 ± 1.00 % (the paper 12.00)", "40.00 ± 2.00 %", "none (the paper 50.00)",
                  "25.00 ± 0.50 %", "0.00 %", "33.25 ± 3.00 % (the paper 30.00)"]  # fmt: skip
        assert [text for text in texts(svg) if text in labels] == labels
        assert "two, c: 33.25 ± 3.00 % (the paper 30.00)." in description(svg)
        assert {"one", "two", "the paper"} <= set(texts(svg))


@pytest.mark.parametrize("wrong", [[[1.0]], [[1.0, 2.0, 3.0]], [[1.0] * 3, [1.0] * 2]])
def test_tables_of_another_shape_are_refused(wrong: list[list[float | None]]) -> None:
    with pytest.raises(UsageError, match="values must be 2 groups of 3 series"):
        bars(["one", "two"], ["a", "b", "c"], wrong)
    with pytest.raises(UsageError, match="marks must be 2 groups of 3 series"):
        bars(["one", "two"], ["a", "b", "c"], VALUES, marks=wrong)


def path_of(svg: str, colour: str) -> list[list[float]]:
    """Points of the longest line of a colour, as drawn."""
    found = [
        re.findall(r"[ML] (\S+) (\S+)", item.attrib["d"])
        for item in ET.fromstring(svg).iter(f"{NS}path")  # noqa: S314
        if "fill: none" in item.get("style", "") and colour in item.get("style", "")
    ]
    return [[float(x), float(y)] for x, y in max(found, key=len)]


def test_lines_go_through_their_points() -> None:
    y = [1.0, 3.0, 2.0, 5.0, 4.5]
    places = np.array(path_of(lines(range(5), {"a": (list(y), None)}), COLOURS[0]))
    assert np.corrcoef(places[:, 0], np.arange(5))[0, 1] == pytest.approx(1)
    assert np.corrcoef(places[:, 1], y)[0, 1] == pytest.approx(-1, abs=1e-4)
    gap = lines([0.5, 1, float("inf")], {"a": ([1.0, None, 3.0], None)}, unit="%", at_points=True)
    assert "a: 1 % at 0.5, 3 % at ∞." in description(gap)
    assert {"0.5", "1", "∞"} <= set(texts(gap))
    with pytest.raises(UsageError, match="'a' has 1 values for 2 places"):
        lines([0, 1], {"a": ([1.0], None)})


def test_names_of_levels_keep_apart() -> None:
    levels = {"low": 2.0, "near": 2.1, "nearer": 2.2, "high": 9.0}
    svg = lines([1, 2], {"a": ([0.0, 10.0], None)}, levels=levels)
    places = {
        item.text: float(item.attrib["y"])
        for item in ET.fromstring(svg).iter(f"{NS}text")  # noqa: S314
        if item.text in levels
    }
    assert sorted(places, key=places.__getitem__) == ["high", "nearer", "near", "low"]
    assert min(np.diff(sorted(places.values()))) > 14


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200))
def test_shares_are_counts(values: list[int]) -> None:
    steps, share = shares(np.array(values, float))
    assert steps.tolist() == sorted(set(values))
    for step, per_cent in zip(steps, share, strict=True):
        assert per_cent == pytest.approx(100 * sum(v <= step for v in values) / len(values))


def test_a_long_tail_is_thinned_but_ends_where_it_ends() -> None:
    values = np.arange(10_000.0)
    steps, share = shares(values)
    assert len(steps) == 400
    assert (steps[0], steps[-1], share[-1]) == (0, 9999, 100)
    np.testing.assert_allclose(share, 100 * (steps + 1) / 10_000)
    svg = cdf({"a": values, "none": []})
    assert description(svg) == "a: half of 10,000 have at most 4,999, the largest is 9,999."
    places = np.array(path_of(svg, COLOURS[0]))
    assert (np.diff(places[:, 0]) >= 0).all()
    assert (np.diff(places[:, 1]) <= 0).all()


def test_counts_and_shares_stand_in_their_cells() -> None:
    svg = confusion(["cat", "dog", "owl"], [[8, 2, 0], [1, 5, 4], [0, 0, 0]], "Who")
    cells = ["8", "80 %", "2", "20 %", "1", "10 %", "5", "50 %", "4", "40 %"]
    assert [text for text in texts(svg) if text[0].isdigit()] == cells
    assert description(svg) == (
        "cat: 8 of 10 are right, 2 are taken for dog. "
        "dog: 5 of 10 are right, 4 are taken for owl. owl: no devices."
    )
    styles = [item.get("style", "") for item in ET.fromstring(svg).iter(f"{NS}path")]  # noqa: S314
    opacity = [float(found[1]) for s in styles if (found := re.search(r"opacity: (\S+)", s))]
    assert len(opacity) == 9
    assert np.argsort(opacity)[-4:].tolist() == [1, 5, 4, 0]
    assert max(opacity) <= 0.7


@pytest.mark.parametrize("classes", [1, 7, MAX_CLASSES])
def test_a_matrix_of_long_names_has_numbers(classes: int) -> None:
    names = [f"a class with a long name {number}" for number in range(classes)]
    svg = confusion(names, [[123_456] * classes] * classes)
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', svg)[0])
    assert (width > WIDTH) == ("min-width" in svg) == is_wide(names)
    wanted = [str(n + 1) for n in range(classes)] if classes > 1 else []
    assert [text for text in map(str.strip, texts(svg)) if text.isdigit()] == wanted
    assert texts(svg).count("123k") == classes**2


def test_matrices_that_cannot_be_drawn() -> None:
    with pytest.raises(UsageError, match="2 rows of 2 numbers"):
        confusion(["a", "b"], [[1, 2]])
    with pytest.raises(UsageError, match=f"1 to {MAX_CLASSES} classes"):
        confusion([str(n) for n in range(21)], [[0] * 21] * 21)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0"), (9_999, "9,999"), (10_000, "10k"), (123_456, "123k"), (12_000_000, "12M")],
)
def test_short_counts(count: int, words: str) -> None:
    assert short_count(count) == words
    assert len(words) <= 5


@given(st.floats(-1e8, 1e8))
@settings(max_examples=50)
def test_ticks_are_their_numbers(number: float) -> None:
    text = format_tick(number)
    assert float(text.replace(",", "").replace("−", "-")) == pytest.approx(number, abs=5.1e-5)


@pytest.mark.parametrize("virtual", [True, False])
def test_trees_in_words(virtual: bool) -> None:
    svg = tree(MAX_BRANCHES + 30, "own", "other", virtual_nodes=virtual)
    assert "30 more" in texts(svg)
    assert f"{MAX_BRANCHES + 30} " in description(svg)
    assert ("nobody: a root, and a parent for each branch" in texts(svg)) == virtual
    assert "the device alone: nobody is in its tree" in texts(tree(0, "own", "other"))


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ([0, 0], (0, 2)),
        ([1, 2, 3, 3, 0], (2, 1)),  # the median is 2.5; of two as near, the smaller
        ([3, 3, 3, 9], (3, 3)),
        ([40, 50, 60], (40, 1)),
        ([1, 4, 6, 90, 91, 92], (4, 1)),  # the median is 48, but 5 is what can be drawn
    ],
)
def test_a_moderate_tree(workload: list[int], expected: tuple[int, int]) -> None:
    assert moderate(np.array(workload)) == expected


def test_matplotlib_is_imported_by_the_first_chart() -> None:
    code = "import lumos, lumos.cli.main, lumos.report, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

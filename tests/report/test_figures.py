"""Figures: what is drawn where, computed back from the SVG."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.errors import UsageError
from lumos.report import bars, cdf, dots, lines
from lumos.report.distribution import shares
from lumos.report.scale import Scale, around, shown
from lumos.report.svg import COLOURS, WIDTH
from lumos.report.tree_drawing import MOST, tree

NS = "{http://www.w3.org/2000/svg}"


def elements(svg: str, tag: str) -> list[dict[str, str]]:
    return [item.attrib for item in ET.fromstring(svg).iter(NS + tag)]  # noqa: S314


def texts(svg: str) -> list[str]:
    return [item.text or "" for item in ET.fromstring(svg).iter(NS + "text")]  # noqa: S314


def diamonds(svg: str) -> list[tuple[float, float]]:
    """Centres of the diamonds: closed paths of five points on white."""
    found = []
    for path in elements(svg, "path"):
        if path["fill"] == "#ffffff":
            corners = points(path["d"])
            found.append((corners[1][0], corners[0][1]))
    return found


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](\S+?) (-?[\d.]+)", path)]


def axis(svg: str, unit: str = "") -> tuple[float, float]:
    """Slope and place of 0 of the flat axis of bars, from its ticks."""
    ticks = {}
    for item in ET.fromstring(svg).iter(NS + "text"):  # noqa: S314
        if item.get("text-anchor") == "middle":
            number = (item.text or "").removesuffix(f" {unit}").replace("−", "-").replace(",", "")
            ticks[float(number)] = float(item.attrib["x"])
    slope, start = np.polyfit(list(ticks), list(ticks.values()), 1)
    return float(slope), float(start)


GROUPS, SERIES = ["one", "two"], ["a", "b", "c"]
VALUES: list[list[float | None]] = [[10.0, 40.0, None], [25.0, 0.0, 33.25]]
SPREAD: list[list[float | None]] = [[1.0, 2.0, None], [0.5, None, 3.0]]
PAPER: list[list[float | None]] = [[12.0, None, 50.0], [None, None, 30.0]]


def test_bars_are_as_long_as_their_values() -> None:
    svg = bars(GROUPS, SERIES, VALUES, SPREAD, PAPER, unit="%", title="Score")
    slope, zero = axis(svg, "%")
    boxes = [box for box in elements(svg, "rect") if float(box["height"]) == 16]
    drawn = [(float(box["x"]), float(box["width"]), box["fill"]) for box in boxes]
    values = [(v, i) for row in VALUES for i, v in enumerate(row) if v is not None]
    assert len(drawn) == len(values)
    for (x, width, fill), (value, place) in zip(drawn, values, strict=True):
        assert x == pytest.approx(zero, abs=0.2)
        assert width == pytest.approx(max(slope * value, 0.5), abs=0.3)
        assert fill == COLOURS[place]
    said = texts(svg)
    assert "10.00 ± 1.00 % (paper 12.00)" in said
    assert "none (paper 50.00)" in said
    assert "0.00 %" in said
    marks = [mark for row in PAPER for mark in row if mark is not None]
    places = [x for x, y in diamonds(svg)][1:]  # the first is the legend's
    assert places == pytest.approx([zero + slope * mark for mark in marks], abs=0.3)
    whiskers = [
        line for line in elements(svg, "line")
        if line["y1"] == line["y2"] and line["stroke"] == "#1a1a1a"
    ]  # fmt: skip
    assert len(whiskers) == 4
    long = [float(line["x2"]) - float(line["x1"]) for line in whiskers]
    assert long == pytest.approx([slope * 2 * half for half in (1.0, 2.0, 0.5, 3.0)], abs=0.3)


def test_dots_stand_at_their_values() -> None:
    svg = dots(["x"], SERIES, [[86.5, 90.1, 88.0]], unit="%", title="Score")
    slope, zero = axis(svg, "%")
    (disc,) = elements(svg, "circle")
    assert float(disc["cx"]) == pytest.approx(zero + slope * 86.5, abs=0.3)
    (box,) = elements(svg, "rect")
    assert float(box["x"]) + float(box["width"]) / 2 == pytest.approx(zero + slope * 90.1, abs=0.3)
    (triangle,) = elements(svg, "path")
    across = [x for x, _ in points(triangle["d"])]
    assert (min(across) + max(across)) / 2 == pytest.approx(zero + slope * 88.0, abs=0.3)
    assert slope * 0 + zero < 0  # the axis begins far above 0


@pytest.mark.parametrize("wrong", [[[1.0]], [[1.0, 2.0, 3.0]], [[1.0] * 3, [1.0] * 2]])
def test_tables_of_another_shape_are_refused(wrong: list[list[float | None]]) -> None:
    with pytest.raises(UsageError, match="values must be 2 groups of 3 series"):
        bars(GROUPS, SERIES, wrong)
    with pytest.raises(UsageError, match="marks must be 2 groups of 3 series"):
        bars(GROUPS, SERIES, VALUES, marks=wrong)


def test_lines_go_through_their_points_and_leave_gaps() -> None:
    y: list[float | None] = [1.0, 3.0, None, 2.0, 5.0]
    svg = lines([0, 1, 2, 3, 4], {"a": (y, None)}, title="Course", x_title="x")
    first, second = (points(path["d"]) for path in elements(svg, "path"))
    assert (len(first), len(second)) == (2, 2)
    every = [*first, *second]
    known = [(0, 1.0), (1, 3.0), (3, 2.0), (4, 5.0)]
    slope_x = np.polyfit([x for x, _ in known], [x for x, _ in every], 1)
    slope_y, residual = np.polyfit([v for _, v in known], [v for _, v in every], 1, full=True)[:2]
    assert slope_x[0] > 0 > slope_y[0]
    assert residual[0] < 0.1


def test_the_band_is_the_spread() -> None:
    svg = lines([1, 2, 4], {"a": ([1.0, 2.0, 3.0], [0.5, None, 1.0])}, at_points=True)
    band, line = (points(path["d"]) for path in elements(svg, "path"))
    upper, lower = band[:3], band[:2:-1]
    unit = (line[0][1] - line[1][1]) / 1.0  # pixels of one
    heights = [(low[1] - high[1]) / unit for low, high in zip(lower, upper, strict=True)]
    assert heights == pytest.approx([1.0, 0.0, 2.0], abs=0.02)
    assert [a[0] for a in upper] == [a[0] for a in line] == [a[0] for a in lower]
    gaps = [b[0] - a[0] for a, b in pairwise(line)]
    assert gaps[0] == pytest.approx(gaps[1], abs=0.2)  # settings are evenly spaced
    assert texts(svg)[-3:] == ["1", "2", "4"]


def test_marks_and_rules_of_lines() -> None:
    svg = lines(
        [0, 10], {"a": ([0.0, 10.0], None)}, {"a": [5.0, None], "other": [None, 10.0]},
        rules={"here": 5.0},
    )  # fmt: skip
    (line,) = [points(p["d"]) for p in elements(svg, "path") if p["fill"] == "none"]
    _, first, second = diamonds(svg)
    assert first == (pytest.approx(line[0][0]), pytest.approx((line[0][1] + line[1][1]) / 2))
    assert second == (pytest.approx(line[1][0]), pytest.approx(line[1][1]))
    rule = next(item for item in elements(svg, "line") if item.get("stroke-dasharray") == "4 3")
    assert float(rule["x1"]) == pytest.approx((line[0][0] + line[1][0]) / 2, abs=0.1)
    with pytest.raises(UsageError, match="'a' has 1 values for 2 places"):
        lines([0, 1], {"a": ([1.0], None)})


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


def test_cdf_steps_up_at_its_values() -> None:
    svg = cdf({"a": [1, 1, 3, 7], "none": []}, title="W", marks={"best: 3": 3})
    (path,) = elements(svg, "path")
    level = [float(y) for y in re.findall(r"V(-?[\d.]+)", path["d"])]
    bottom = float(re.findall(r"M\S+ (\S+?)H", path["d"])[0])
    top = level[-1]
    assert [(bottom - y) / (bottom - top) for y in level] == pytest.approx(
        [0.5, 0.75, 1.0], abs=0.01
    )
    rule = next(item for item in elements(svg, "line") if item.get("stroke-dasharray") == "4 3")
    assert float(rule["x1"]) == pytest.approx(
        float(re.findall(r"H([\d.]+)", path["d"])[1]), abs=0.1
    )
    assert "none" not in texts(svg)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.booleans())
def test_scales_hold_their_values(values: list[float], from_zero: bool) -> None:
    scale = around(values, 10, 500, from_zero=from_zero)
    dust = 1e-6 * (scale.high - scale.low)
    assert scale.low <= min(values) + dust
    assert scale.high >= max(values) - dust
    assert (scale(scale.low), scale(scale.high)) == (10, 500)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(scale.low - dust <= tick <= scale.high + dust for tick in ticks)
    if from_zero:
        assert scale.low <= 0 <= scale.high


def test_bent_scales_space_out_small_values() -> None:
    scale = Scale(0, 1000, 0, 500, bent=True)
    assert scale(0) == 0
    assert scale(1000) == pytest.approx(500)
    assert scale(9) == pytest.approx(500 * np.log(10) / np.log(1001))
    ticks = scale.ticks()
    assert ticks[0] == 0
    assert all(scale(b) - scale(a) > 500 / 11 for a, b in pairwise(ticks))


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0"), (-0.0, "0"), (2.5, "2.5"), (-1, "−1"), (12345, "12,345"), (0.0001, "0.0001")],
)
def test_ticks_as_people_write_them(number: float, words: str) -> None:
    assert shown(number) == words


@pytest.mark.parametrize("branches", [1, 5, MOST, MOST + 30])
@pytest.mark.parametrize("virtual", [True, False])
def test_a_tree_has_its_nodes_and_edges(branches: int, virtual: bool) -> None:
    svg = tree(branches, "own", "other", virtual_nodes=virtual)
    drawn = min(branches, MOST)
    in_legend = 1
    assert len(elements(svg, "rect")) == drawn + in_legend  # a leaf of each neighbour
    discs = [disc["fill"] for disc in elements(svg, "circle")]
    assert discs.count(COLOURS[0]) == (drawn if virtual else 1) + in_legend  # leaves of the device
    assert discs.count("#ffffff") == (drawn + 1 + in_legend if virtual else 0)  # parents and root
    more = branches > drawn
    assert len(elements(svg, "line")) == (3 * drawn if virtual else drawn) + more
    assert (f"{branches - drawn} more" in texts(svg)) == more
    assert str(branches) in ET.fromstring(svg).findtext(NS + "desc", "")  # noqa: S314


def test_a_device_alone() -> None:
    svg = tree(0, "own", "other")
    assert elements(svg, "rect") == elements(svg, "line") == []
    assert "the device alone: nobody is in its tree" in texts(svg)


@given(
    st.lists(st.text("abc xyz", min_size=1, max_size=30), min_size=1, max_size=4, unique=True),
    st.floats(-100, 100),
)
def test_every_number_is_inside_the_drawing(names: Sequence[str], value: float) -> None:
    row: list[float | None] = [value] * len(names)
    for svg in (bars(["g"], names, [row]), dots(["g"], names, [row])):
        _, _, width, height = map(float, ET.fromstring(svg).attrib["viewBox"].split())  # noqa: S314
        assert width == WIDTH
        for text in elements(svg, "text"):
            assert 0 <= float(text["x"]) <= width
            assert 0 <= float(text["y"]) <= height
        for box in elements(svg, "rect"):
            assert 0 <= float(box["x"]) <= float(box["x"]) + float(box["width"]) <= width

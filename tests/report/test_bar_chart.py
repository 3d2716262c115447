"""Bars and dots: what is drawn where, computed back from the SVG."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.svg_reading import axis, diamonds, elements, points, texts

from lumos.errors import UsageError
from lumos.report import bars, dots
from lumos.report.svg import COLOURS, WIDTH

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
    labels = texts(svg)
    assert "10.00 ± 1.00 % (the paper 12.00)" in labels
    assert "none (the paper 50.00)" in labels
    assert "0.00 %" in labels
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

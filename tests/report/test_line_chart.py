"""Lines: what is drawn where, computed back from the SVG."""

from itertools import pairwise

import numpy as np
import pytest
from tests.report.svg_reading import diamonds, elements, points, texts

from lumos.errors import UsageError
from lumos.report import lines


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


def test_marks_and_reference_lines() -> None:
    svg = lines(
        [0, 10], {"a": ([0.0, 10.0], None)}, {"a": [5.0, None], "other": [None, 10.0]},
        reference_lines={"here": 5.0},
    )  # fmt: skip
    (line,) = [points(p["d"]) for p in elements(svg, "path") if p["fill"] == "none"]
    _, first, second = diamonds(svg)
    assert first == pytest.approx((line[0][0], (line[0][1] + line[1][1]) / 2))
    assert second == pytest.approx(line[1])
    dashed = next(item for item in elements(svg, "line") if item.get("stroke-dasharray") == "4 3")
    assert float(dashed["x1"]) == pytest.approx((line[0][0] + line[1][0]) / 2, abs=0.1)
    with pytest.raises(UsageError, match="'a' has 1 values for 2 places"):
        lines([0, 1], {"a": ([1.0], None)})


def test_levels_are_horizontal_and_their_names_keep_apart() -> None:
    levels = {"low": 2.0, "near": 2.1, "nearer": 2.2, "high": 9.0}
    svg = lines([1, float("inf")], {"a": ([0.0, 10.0], None)}, levels=levels, at_points=True)
    (line,) = (points(path["d"]) for path in elements(svg, "path"))
    unit = (line[0][1] - line[1][1]) / 10
    dashed = [item for item in elements(svg, "line") if item.get("stroke-dasharray") == "4 3"]
    heights = sorted((line[0][1] - float(item["y1"])) / unit for item in dashed)
    assert heights == pytest.approx(sorted(levels.values()), abs=0.01)
    assert all(item["y1"] == item["y2"] for item in dashed)
    ends = {float(item["x2"]) for item in dashed}
    assert len(ends) == 1
    assert line[-1][0] < ends.pop()
    named = [item for item in elements(svg, "text") if float(item["x"]) > line[-1][0] + 20]
    places = [float(item["y"]) for item in named]
    assert len(places) == 4
    assert places == sorted(places)  # the highest level first
    assert min(b - a for a, b in pairwise(places)) >= 15.9
    assert "∞" in texts(svg)


def test_lines_are_cut_off_below_the_axis() -> None:
    svg = lines([1, 2, 3], {"a": ([0.0, 20.0, 30.0], None)}, at_points=True, least=10.0)
    (line,) = (points(path["d"]) for path in elements(svg, "path"))
    (first, second, third) = line
    bottom = max(float(item["y1"]) for item in elements(svg, "line") if item["y1"] == item["y2"])
    assert first[1] == pytest.approx(bottom, abs=0.1)
    # half of the way from 0 to 20 is above 10
    step = third[0] - second[0]
    assert second[0] - first[0] == pytest.approx(step / 2, abs=0.2)
    assert len(elements(svg, "rect") + elements(svg, "circle")) == 3  # the legend's and two points


def test_notes_stand_below_everything() -> None:
    plain, noted = (
        lines([1, 2], {"a": ([0.0, 1.0], None)}, notes=notes) for notes in ((), ("one", "two"))
    )
    assert texts(noted) == [*texts(plain), "one", "two"]

"""The cumulative distribution: shares, and steps computed back from the SVG."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.svg_reading import elements, texts

from lumos.report import cdf
from lumos.report.distribution import shares


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
    dashed = next(item for item in elements(svg, "line") if item.get("stroke-dasharray") == "4 3")
    assert float(dashed["x1"]) == pytest.approx(
        float(re.findall(r"H([\d.]+)", path["d"])[1]), abs=0.1
    )
    assert "none" not in texts(svg)

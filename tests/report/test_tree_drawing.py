"""The drawing of a tree: its nodes and edges, and of which size it is."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from tests.report.svg_reading import NS, elements, texts

from lumos.report.svg import COLOURS
from lumos.report.tree_drawing import MAX_BRANCHES, moderate, tree


@pytest.mark.parametrize("branches", [1, 5, MAX_BRANCHES, MAX_BRANCHES + 30])
@pytest.mark.parametrize("virtual", [True, False])
def test_a_tree_has_its_nodes_and_edges(branches: int, virtual: bool) -> None:
    svg = tree(branches, "own", "other", virtual_nodes=virtual)
    drawn = min(branches, MAX_BRANCHES)
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

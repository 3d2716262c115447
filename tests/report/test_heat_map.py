"""The heat map of a confusion matrix, read back from its SVG."""

import re

import pytest
from tests.report.svg_reading import elements, texts

from lumos.errors import UsageError
from lumos.report.heat_map import MOST, RIGHT, WRONG, confusion, is_wide, short_count

NAMES = ["cat", "dog", "owl"]
COUNTS = [[8, 2, 0], [1, 5, 4], [0, 0, 0]]


def test_counts_and_shares_stand_in_their_cells() -> None:
    svg = confusion(NAMES, COUNTS, "Who")
    drawn = texts(svg)
    cells = drawn[drawn.index("owl") + 1 :]  # after the headings of the columns
    assert cells == ["cat", "8", "80 %", "2", "20 %", "dog", "1", "10 %", "5", "50 %", "4", "40 %",
                     "owl"]  # fmt: skip
    assert "cat: 8 of 10 are right, 2 are taken for dog." in svg
    assert "dog: 5 of 10 are right, 4 are taken for owl." in svg
    assert "owl: no devices." in svg


def test_shades_follow_the_share_in_the_row() -> None:
    boxes = elements(confusion(NAMES, COUNTS), "rect")
    assert [box["fill"] for box in boxes] == [
        RIGHT if row == column else WRONG for row in range(3) for column in range(3)
    ]
    opacity = [float(box["fill-opacity"]) for box in boxes]
    shares = [0.8, 0.2, 0, 0.1, 0.5, 0.4, 0, 0, 0]
    for one, share in enumerate(shares):
        assert (opacity[one] < 0.05) == (share == 0)
        for other in range(9):
            assert (opacity[one] > opacity[other]) == (share > shares[other])
    assert max(opacity) <= 0.7


@pytest.mark.parametrize("classes", [1, 2, 7, 20])
def test_cells_do_not_meet(classes: int) -> None:
    names = [f"a class with a long name {number}" for number in range(classes)]
    svg = confusion(names, [[123_456] * classes] * classes)
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', svg)[0])
    boxes = elements(svg, "rect")
    assert len(boxes) == classes**2
    assert all(float(box["x"]) + float(box["width"]) <= width for box in boxes)
    assert len({(box["x"], box["y"]) for box in boxes}) == classes**2
    assert (width > 520) == is_wide(names)
    assert ("min-width" in svg) == is_wide(names)
    assert [str(n + 1) for n in range(classes)] == [t for t in texts(svg) if t.isdigit()]


def test_names_are_escaped() -> None:
    svg = confusion(["<b>", "&"], [[1, 0], [0, 1]], "<i>")
    assert "<b>" not in svg
    assert "<i>" not in svg
    assert "<b>" in texts(svg)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0"), (9_999, "9,999"), (10_000, "10k"), (123_456, "123k"), (12_000_000, "12M")],
)
def test_short_counts(count: int, words: str) -> None:
    assert short_count(count) == words
    assert len(words) <= 5


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(UsageError, match="2 rows of 2 numbers"):
        confusion(["a", "b"], [[1, 2]])
    with pytest.raises(UsageError, match=f"1 to {MOST} classes"):
        confusion([str(n) for n in range(21)], [[0] * 21] * 21)

"""Tables of single classes, from plain numbers."""

import numpy as np

from lumos.report import Figure, Table, confusion_block, per_class_table
from lumos.report.class_blocks import largest_confusions


def rows(count: int, f1: float = 0.5) -> list[dict[str, object]]:
    return [
        {"class": f"c{n}", "devices": n, "precision": 0.25, "recall": 0.75, "f1": f1}
        for n in range(count)
    ]


def test_classes_beside_each_other() -> None:
    beside = {"own": rows(3, 0.1), "control": rows(3, 0.2)}
    table = per_class_table(rows(3), beside, "By class")
    assert list(table.columns) == [
        "class", "devices", "precision", "recall", "F1",
        "own: precision", "own: recall", "own: F1", "control: F1",
    ]  # fmt: skip
    assert table.cells[2] == ["c2", "2", "25.0", "75.0", "50.0", "25.0", "75.0", "10.0", "20.0"]
    assert table.caption == "By class"


def test_of_many_classes_the_largest() -> None:
    table = per_class_table(rows(100), {}, "By class")
    assert [row[0] for row in table.cells] == [f"c{n}" for n in range(99, 79, -1)]
    assert table.caption == "By class (the 20 largest of 100)"


def test_a_matrix_of_many_classes_is_a_table_of_the_largest_confusions() -> None:
    assert isinstance(confusion_block(["a"] * 20, [[1] * 20] * 20, "t"), Figure)
    counts = np.diag(np.full(100, 7))
    counts[3, 5], counts[9, 1], counts[0, 99] = 50, 3, 13
    block = confusion_block([f"c{n}" for n in range(100)], counts.tolist(), "Who")
    assert isinstance(block, Table)
    assert block.cells == [
        ["c3", "c5", "50", "88 %"], ["c0", "c99", "13", "65 %"], ["c9", "c1", "3", "30 %"],
    ]  # fmt: skip
    assert "100 classes (700 are right)" in block.caption


def test_largest_confusions_by_brute_force() -> None:
    counts = np.random.default_rng(1).integers(0, 9, (6, 6))
    found = largest_confusions(counts.tolist())
    assert [count for count, _, _ in found] == sorted(
        (int(counts[a, b]) for a in range(6) for b in range(6) if a != b and counts[a, b]),
        reverse=True,
    )
    assert all(counts[true, taken] == count for count, true, taken in found)

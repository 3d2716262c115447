"""Single classes and seeds: blocks from plain numbers, and the section of a run."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.page_reading import Node, read, tables

import lumos
from lumos.report import Figure, Table, confusion_block, per_class_table, seeds_figure
from lumos.report.page import largest_confusions
from lumos.report.run_page import page_of
from lumos.runs.run import Run


def by_class(counts: np.ndarray[Any, Any], names: list[str]) -> dict[str, Any]:
    """What a run measures of single classes: precision, recall and F1 from a confusion matrix."""
    rows = []
    for place, name in enumerate(names):
        hits = counts[place, place]
        taken, present = counts[:, place].sum(), counts[place].sum()
        scores = {"precision": hits / max(1, taken), "recall": hits / max(1, present)}
        scores["f1"] = 2 * hits / max(1, taken + present)
        rows.append({"class": name, "devices": int(present), **scores})
    return {"test_per_class": rows, "test_confusion": counts.tolist()}


def measured(run: Run, seed: int = 0, classes: int = 6) -> Run:
    """The run with scores of single classes in every variant."""
    generator = np.random.default_rng(seed)
    names = [f"class {n}" for n in range(classes)]
    scores: Any = {}
    for variant in run.scores:
        counts = generator.integers(0, 5, (classes, classes)) + 20 * np.eye(classes, dtype=int)
        scores[variant] = {**run.scores[variant], **by_class(counts, names)}
    about = type(run.about)(
        **{name: getattr(run.about, name) for name in run.about.__struct_fields__}
        | {"classes": names}
    )
    return dataclasses.replace(run, scores=scores, about=about)


def page(run: Run) -> Node:
    return read(page_of(run).html())


def test_every_variant_is_shown(runs: dict[str, Path]) -> None:
    run = measured(lumos.load_run(runs["paper"]))
    assert set(run.scores) == {"run", "own", "control"}
    shown = page(run)
    columns, rows = tables(shown)["Test devices by class, in per cent"]
    scores: Any = run.scores
    for row, main, own, control in zip(
        rows,
        *(scores[variant]["test_per_class"] for variant in ("run", "own", "control")),
        strict=True,
    ):
        numbers = [main["precision"], main["recall"], main["f1"], own["precision"], own["recall"],
                   own["f1"], control["f1"]]  # fmt: skip
        assert row == [main["class"], str(main["devices"]), *(f"{100 * n:.1f}" for n in numbers)]
    assert columns[-1] == "control: F1"
    titles = [svg.all("title")[0].text() for svg in shown.all("svg")]
    for variant in ("This run", "Local model", "Control"):
        assert f"{variant}: who is taken for whom" in titles
    hardest = min(scores["run"]["test_per_class"], key=lambda row: row["f1"])
    assert (
        f"The hardest class is {hardest['class']} (F1 {100 * hardest['f1']:.1f} %" in shown.text()
    )


def test_many_classes(runs: dict[str, Path]) -> None:
    shown = page(measured(lumos.load_run(runs["paper"]), classes=15))
    titles = [svg.all("title")[0].text() for svg in shown.all("svg")]
    assert [title for title in titles if "taken for" in title] == [
        "This run: who is taken for whom"
    ]
    assert "are in run.own and run.control" in shown.text().replace("run.own ", "run.own ")
    shown = page(measured(lumos.load_run(runs["paper"]), classes=100))
    captions = " ".join(tables(shown))
    assert "the largest confusions among 100 classes" in captions
    assert "the 20 largest of 100" in captions


@pytest.mark.parametrize("kind", ["paper", "link", "strict link"])
def test_runs_without_such_scores_have_no_such_section(runs: dict[str, Path], kind: str) -> None:
    run = lumos.load_run(runs[kind])
    scores: Any = {
        variant: {name: value for name, value in of.items() if isinstance(value, float)}
        for variant, of in run.scores.items()
    }
    assert "Single classes" not in page(dataclasses.replace(run, scores=scores)).text()


def test_hits_and_average_precision_of_links(runs: dict[str, Path]) -> None:
    run = lumos.load_run(runs["strict link"])
    ranking = {"test_average_precision": 0.625, "test_hits_at_10": 0.125, "test_hits_at_50": 0.375}
    scores: Any = {variant: {**of, **ranking} for variant, of in run.scores.items()}
    shown = page(dataclasses.replace(run, scores=scores))
    (svg,) = [s for s in shown.all("svg") if "surest pairs" in s.all("title")[0].text()]
    words = svg.all("desc")[0].text()
    for name, value in (("average precision", 0.625), ("hits@10", 0.125), ("hits@50", 0.375)):
        assert words.count(f"{value:.3f}.") == 3, name  # the run, the degree alone, the control
        assert f"{name}, this run: {value:.3f}." in words


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


def test_means_and_every_seed() -> None:
    scores = {"strict": [91.0, 92.5, 90.1], "own": [73.0], "nobody": []}
    figure = seeds_figure(scores, "Accuracy", unit="%", digits=1)
    mean, spread = np.mean(scores["strict"]), np.std(scores["strict"], ddof=1)
    for words in (f"{mean:.1f} ± {spread:.1f} %", "73.0 %", "none"):
        assert f">{words}</text>" in figure.svg
    assert "Means of 3 seeds; a stroke is one seed." in figure.caption
    alone = seeds_figure({"strict": [91.0]}, "Accuracy")
    assert alone.caption.startswith("One seed.")
    assert "±" not in alone.svg

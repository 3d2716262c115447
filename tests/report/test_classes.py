"""The section on single classes, from the scores of a run."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.page_reading import Node, read, tables

import lumos
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
    """The run with scores of single classes in every arm."""
    generator = np.random.default_rng(seed)
    names = [f"class {n}" for n in range(classes)]
    scores: Any = {}
    for arm in run.scores:
        counts = generator.integers(0, 5, (classes, classes)) + 20 * np.eye(classes, dtype=int)
        scores[arm] = {**run.scores[arm], **by_class(counts, names)}
    about = type(run.about)(
        **{name: getattr(run.about, name) for name in run.about.__struct_fields__}
        | {"classes": names}
    )
    return dataclasses.replace(run, scores=scores, about=about)


def page(run: Run) -> Node:
    return read(page_of(run).html())


def test_every_arm_is_shown(runs: dict[str, Path]) -> None:
    run = measured(lumos.load_run(runs["paper"]))
    assert set(run.scores) == {"run", "own", "control"}
    shown = page(run)
    columns, rows = tables(shown)["Test devices by class, in per cent"]
    scores: Any = run.scores
    for row, main, own, control in zip(
        rows, *(scores[arm]["test_per_class"] for arm in ("run", "own", "control")), strict=True
    ):
        numbers = [main["precision"], main["recall"], main["f1"], own["precision"], own["recall"],
                   own["f1"], control["f1"]]  # fmt: skip
        assert row == [main["class"], str(main["devices"]), *(f"{100 * n:.1f}" for n in numbers)]
    assert columns[-1] == "control: F1"
    titles = [svg.all("title")[0].text() for svg in shown.all("svg")]
    for arm in ("This run", "Own features only", "Control"):
        assert f"{arm}: who is taken for whom" in titles
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
        arm: {name: value for name, value in of.items() if isinstance(value, float)}
        for arm, of in run.scores.items()
    }
    assert "Single classes" not in page(dataclasses.replace(run, scores=scores)).text()


def test_hits_and_average_precision_of_links(runs: dict[str, Path]) -> None:
    run = lumos.load_run(runs["strict link"])
    ranking = {"test_average_precision": 0.625, "test_hits_at_10": 0.125, "test_hits_at_50": 0.375}
    scores: Any = {arm: {**of, **ranking} for arm, of in run.scores.items()}
    shown = page(dataclasses.replace(run, scores=scores))
    (svg,) = [s for s in shown.all("svg") if "surest pairs" in s.all("title")[0].text()]
    words = svg.all("desc")[0].text()
    for name, value in (("average precision", 0.625), ("hits@10", 0.125), ("hits@50", 0.375)):
        assert words.count(f"{value:.3f}.") == 3, name  # the run, the degree alone, the control
        assert f"{name}, this run: {value:.3f}." in words

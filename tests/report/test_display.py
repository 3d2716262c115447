"""What Python and notebooks show of results: short, escaped, without private values."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from tests.report.chromium import Browser
from tests.report.page_reading import Node, read

import lumos
from lumos.audit.table import AuditReport, AuditRow, Exactly
from lumos.display import DISPLAYS
from lumos.graph.arrays import IdTexts
from lumos.runs.text import guarantee_text
from lumos.training.guarantees import cells_of, guarantees_something
from lumos.training.trainer import LinkPredictions

EVIL = '<script>alert("x")</script>&amp;'


def shown(result: Any) -> Node:
    """What a notebook shows, read strictly: no script, nothing to load."""
    html = result._repr_html_()
    tree = read(html)
    assert tree.all("script") == []
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", html)
    assert len(tree.all("style")) == 1
    return tree


def cells(tree: Node) -> list[list[str]]:
    """Rows of the first table, its headings first."""
    rows = tree.all("table")[0].all("tr")
    return [[cell.text() for cell in row.children if isinstance(cell, Node)] for row in rows]


@pytest.fixture
def audit() -> AuditReport:
    row = AuditRow(
        attack="one", adversary=EVIL, about="labels", measure="accuracy", estimate=Exactly(0.25),
        chance=0.2, bound=0.5,
    )  # fmt: skip
    return AuditReport(
        graph="", devices=60, profile="strict", settings={}, seed=3,
        rows=[row, changed_row(row, bound=0.2), changed_row(row, bound=None)],
        seconds={}, lumos="0",
    )  # fmt: skip


def changed_row(row: AuditRow, **changes: Any) -> AuditRow:
    return AuditRow(**{name: getattr(row, name) for name in row.__struct_fields__} | changes)


def test_a_run_prints_on_one_screen(run: Path) -> None:
    """Scores of every variant, the guarantee, warnings, the folder; no line beyond 100, no more
    than 20 lines and two for each warning."""
    loaded = lumos.load_run(run)
    text = repr(loaded)
    result = json.loads((run / "result.json").read_text("utf-8"))
    what = "auc" if result["task"] == "link" else "accuracy"
    lines = text.splitlines()
    assert lines[0].startswith(f"Run: {result['task']} on demo:60 (60 devices, ")
    assert len(lines) <= 20 + 2 * len(loaded.warnings)
    assert [line for line in lines if line.startswith("  Warning: ")] == [
        line for line in lines if any(line[11:].startswith(text[:40]) for text in loaded.warnings)
    ]
    assert text.count("  Warning: ") == len(loaded.warnings)
    assert max(map(len, lines[:-1])) <= 100  # the last names a folder
    for prefix in ("", "own_", "control_"):
        if (score := result.get(f"{prefix}test_{what}")) is not None:
            assert (f"{score:.4f}" if what == "auc" else f"{100 * score:.1f}") in text
    assert str(run) in text
    assert ("  Label: " in text) == guarantees_something(loaded.guarantees)
    tree = shown(loaded)
    degree = (result["profile"], what) == ("strict", "auc")
    own = "the asker's own degree alone" if degree else "local model"
    begins = {"run": "this run", "own": own, "control": "control: "}
    rows = [row[0] for row in cells(tree)[1:]]
    assert all(
        row.startswith(begins[variant]) for row, variant in zip(rows, loaded.scores, strict=True)
    )
    assert ("No control was run" in tree.text()) == (loaded.control is None)
    assert tree.text().count("Warning:") == len(loaded.warnings)


def test_the_guarantee_is_that_of_the_screen(runs: dict[str, Path]) -> None:
    """The largest figure of any column, and what nothing is guaranteed about."""
    for kind, run in runs.items():
        loaded = lumos.load_run(run)
        text = " ".join(repr(loaded).split())
        assert " ".join(guarantee_text(loaded).split()) in text
        assert ("Nothing is guaranteed" in text) != guarantees_something(loaded.guarantees), kind
        assert "This was a simulation" in text
    strict = lumos.load_run(runs["strict"])
    for about in ("edge added or removed", "edge replaced at one end"):
        cells = cells_of(next(row for row in strict.guarantees if row["about"] == about)).values()
        largest = max(float(n) for cell in cells for n in re.findall(r"[(=] ?([\d.]+),", cell))
        assert f"({largest:g}, 1e-05) ({about})" in " ".join(repr(strict).split())


def test_a_run_with_a_hostile_name(runs: dict[str, Path]) -> None:
    run = lumos.load_run(runs["paper"])
    about = type(run.about)(
        **{name: getattr(run.about, name) for name in run.about.__struct_fields__}
        | {"graph": EVIL, "notes": [EVIL]}
    )
    tree = shown(dataclasses.replace(run, about=about))
    assert EVIL in tree.text()


def test_no_private_value_is_shown(runs: dict[str, Path]) -> None:
    """Other predictions, embeddings, labels and ids: the same text but for the scores."""
    run = lumos.train("demo:60", seed=3, encoder_epochs=3, epochs=66)
    assert run.model.logits is not None
    other = dataclasses.replace(
        run,
        model=dataclasses.replace(run.model, logits=-run.model.logits, embeddings=None),
        ids=IdTexts([f"secret-{place}" for place in range(60)]),
        data=dataclasses.replace(run.data, graph=None),
    )
    assert repr(other) == repr(run)
    assert other._repr_html_() == run._repr_html_()


def test_balanced_trees() -> None:
    trees = lumos.balance("demo:60", lumos.TreeSettings(balancer="greedy", compare="ideal"))
    text = repr(trees)
    assert len(text.splitlines()) == 1
    assert f"largest workload {trees.max_workload:,}" in text
    assert f"{trees.ledger.comparisons:,} comparisons (ideal)" in text
    assert len(repr(trees.ledger).splitlines()) == 1
    table = trees.frame()
    assert list(table.columns) == ["device", "degree", "workload"]
    assert table["workload"].tolist() == trees.workload.tolist()
    topics = trees.ledger.frame()
    assert topics["messages"].sum() == trees.ledger.messages


def test_baselines() -> None:
    measured = lumos.baseline("demo:60", system="own", epochs=2)
    assert f"test_accuracy {measured.metrics['test_accuracy']:.4f}" in repr(measured)
    assert len(repr(measured).splitlines()) == 1


def test_audits(audit: AuditReport) -> None:
    assert "3 rows, 2 with a bound, 2 of them with power, 1 exceed it" in repr(audit)
    rows = cells(shown(audit))
    assert [row[-1] for row in rows[1:]] == ["within", "EXCEEDED", "no bound claimed"]
    assert rows[1][0] == EVIL
    table = audit.frame()
    assert table["verdict"].tolist() == ["within", "EXCEEDED", "no bound claimed"]
    assert table["value"].tolist() == [0.25] * 3


def test_predictions_about_pairs() -> None:
    links = LinkPredictions(
        scores=np.log([1 / 7, 1 / 3]), answered=np.array([True, False]), ledger=None
    )
    np.testing.assert_allclose(links.probability, [0.125, 0.25])
    assert "0.125" not in repr(links)  # one pair's
    assert "0.25" not in repr(links)
    assert "2 pairs, 1 answered" in repr(links)


def test_every_display_is_named_by_a_result() -> None:
    """No kind without a function, and no function that nobody shows."""
    for kind in DISPLAYS:
        assert callable(DISPLAYS[kind])


def test_frames_of_a_run(runs: dict[str, Path]) -> None:
    run = lumos.load_run(runs["strict"])
    scores = run.frame("scores")
    test = scores[(scores["score"] == "test_accuracy")].set_index("variant")["value"]
    assert test.to_dict() == {variant: of["test_accuracy"] for variant, of in run.scores.items()}
    history = run.frame("history")
    assert list(history.columns) == ["variant", "epoch", "loss", "score", "seconds"]
    assert len(history) == sum(map(len, run.histories.values()))
    assert history["loss"].dtype == float
    predictions = run.frame("predictions")
    assert predictions["device"].tolist() == list(run.ids)
    assert predictions["predicted"].tolist() == run.predict().tolist()
    chances = predictions[[f"p({name})" for name in run.class_names]].to_numpy()
    np.testing.assert_array_equal(chances, run.predict_proba())
    table = run.frame("guarantees")
    told_apart = table.pop("told_apart").to_numpy(float)
    expected = [row["told_apart"] for row in run.guarantees]
    np.testing.assert_array_equal(told_apart, np.array(expected, float))
    rest = [{k: v for k, v in row.items() if k != "told_apart"} for row in run.guarantees]
    assert table.to_dict("records") == rest
    assert lumos.load_run(runs["paper"]).frame("guarantees")["told_apart"].isna().all()
    with pytest.raises(lumos.UsageError, match="predicts links"):
        lumos.load_run(runs["link"]).frame("predictions")
    with pytest.raises(lumos.UsageError, match="no frame of 'loss'"):
        run.frame("loss")


def notebook(*sources: str) -> list[dict[str, Any]]:
    """The outputs of the last cell of a notebook that is executed without a screen."""
    written = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in sources]
    )
    NotebookClient(written, timeout=300, kernel_name="python3").execute()
    outputs: list[dict[str, Any]] = written.cells[-1].outputs
    return outputs


def test_in_a_notebook(chromium: Browser, tmp_path: Path) -> None:
    """A run is shown as a table and a curve, which can be read on a light and on a dark theme."""
    outputs = notebook(
        "import lumos",
        "run = lumos.train('demo:60', profile='paper', balancer='none', epochs=4, control=True)",
        "run",
    )
    data = outputs[-1]["data"]
    assert data["text/plain"].startswith("Run: classify on demo:60")
    fragment = data["text/html"]
    for ink, paper in (("#222", "#fff"), ("#ddd", "#111")):
        page = tmp_path / "cell.html"
        page.write_text(
            f"<!DOCTYPE html><meta charset=utf-8><title>cell</title>"
            f'<body style="margin: 0; color: {ink}; background: {paper}">{fragment}</body>'
        )
        with chromium.tab(700) as tab:
            tab.open(page)
            assert tab.complaints == []
            assert tab.requests == [page.as_uri()]
            fills = tab.measure(
                "[...new Set([...document.querySelectorAll('svg text')]"
                ".map((e) => getComputedStyle(e).fill))]"
            )
            inks = tab.measure("getComputedStyle(document.body).color")
            assert fills == [inks]
            assert tab.measure("document.documentElement.scrollWidth") == 700

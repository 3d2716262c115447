"""A run that was cut before it finished stands beside no finished one, in nothing that is shown."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumos.experiments import reported, row_tables
from lumos.experiments.cache import ResultCache
from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.evaluation_page import headlines
from lumos.experiments.figures import FIGURES
from lumos.experiments.figures.evaluation import PaperEvaluation
from lumos.experiments.figures.names import EVALUATED_PROFILES, SYSTEM_NAMES, TRUE_LABELS
from lumos.experiments.figures.plots import Plots
from lumos.experiments.figures.row import Row
from lumos.experiments.ledger_section import ledger_section
from lumos.experiments.plan import RunPlan
from lumos.experiments.request import Request
from lumos.experiments.settings import load_settings
from lumos.report import Page
from lumos.training.profile import STRICT

TRAINED = ("classification", "link-prediction", "epsilon", "ablation")
FINISHED = {SYSTEM_NAMES[STRICT], SYSTEM_NAMES[TRUE_LABELS]}
"""Systems whose epochs nobody can choose."""
DIFFERENCES = ("against", "over")

Evaluations = Callable[..., PaperEvaluation]


def answer(cell: Cell) -> dict[str, Any]:
    """Every run has a score, a control and a ledger; no two systems have the same score."""
    score = 0.5 + len(cell["system"] or cell["profile"]) / 100
    scores = {"test_accuracy": score, "test_auc": score}
    controls = {f"control_{name}": 0.4 for name in scores}
    ledger = {"leaf": ["open", 7, 70], "symbol": ["release", 5, 50]}
    return {**scores, **controls, "ledger": ledger}


@pytest.fixture
def evaluation(make_evaluation: Evaluations) -> PaperEvaluation:
    """Five epochs of everything whose epochs can be chosen."""
    return dataclasses.replace(
        make_evaluation(answer), settings=load_settings("full").changed(epochs=5)
    )


def rows_of(evaluation: PaperEvaluation) -> dict[str, list[Row]]:
    return {figure: FIGURES[figure].rows(evaluation) for figure in TRAINED}


def test_no_difference_is_drawn_from_a_cut_run(evaluation: PaperEvaluation) -> None:
    for row in (row for rows in rows_of(evaluation).values() for row in rows):
        if row.measure.startswith(DIFFERENCES) and row.ours is not None:
            # Between two runs of the strict profile, which finished both.
            assert (row.measure, row.system in FINISHED) == (reported.RELATIVE_TO_HALF, True)
        elif row.measure.startswith(DIFFERENCES):
            assert row.control is None
            assert not row.why
            assert row.notes == ("no difference is drawn from a run that was cut at 5 epochs",)
        elif row.ours is not None:
            assert row.cut == (0 if row.system in FINISHED else 5)
            assert (row.over_control is None) == bool(row.cut)
            assert any("cut at 5 epochs" in note for note in row.notes) == bool(row.cut)
            assert row.as_json()["cut"] == row.cut


def test_finished_runs_are_compared_as_before(make_evaluation: Evaluations) -> None:
    rows = [row for of in rows_of(make_evaluation(answer)).values() for row in of]
    assert not any(row.cut for row in rows)
    assert all(row.ours is not None for row in rows if row.measure.startswith(DIFFERENCES))


def test_tables_keep_cut_runs_apart(evaluation: PaperEvaluation) -> None:
    for rows in rows_of(evaluation).values():
        for name, some in row_tables.tables(rows).items():
            assert len({row.cut for row in some}) == 1
            assert ("runs cut at 5 epochs" in name) == bool(some[0].cut)
            for row in some:
                assert row_tables.ours(row).endswith("cut at 5 epochs") == bool(row.cut)
        assert sum(map(len, row_tables.tables(rows).values())) == len(rows)


def test_plots_and_sentences_have_finished_runs_only(evaluation: PaperEvaluation) -> None:
    rows = rows_of(evaluation)
    cut = {row.system for of in rows.values() for row in of if row.cut}
    drawn: Plots = {}
    for figure, of in rows.items():
        drawn |= FIGURES[figure].plots(evaluation, of)
    assert {name.split("-")[0] for name in drawn} == {"classification", "link", "epsilon"}
    shown = [plot.svg for plot in drawn.values()] + headlines(rows)
    assert any(SYSTEM_NAMES[STRICT] in text for text in shown)
    for text in shown:
        assert not any(name in text for name in cut)
    everything = headlines(rows_of(dataclasses.replace(evaluation, settings=load_settings("full"))))
    assert all(any(name in text for text in everything) for name in ("LPGNN", "Lumos paper"))


def test_ledgers_are_of_finished_runs(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    request = Request(
        figures=("classification",),
        datasets=(make_dataset(),),
        profiles=EVALUATED_PROFILES,
        settings=load_settings("full"),
        data_dir=None,
        command="",
    )
    for settings, whose in (
        (request.settings, ["paper", "strict"]),
        (request.settings.changed(epochs=5), ["strict"]),
    ):
        plan = RunPlan.of(
            dataclasses.replace(request, settings=settings), ResultCache(tmp_path / "out")
        )
        for planned in plan.jobs:
            plan.cache.put(planned.job.key, planned.job.cell, answer(planned.job.cell))
        plan = RunPlan.of(plan.request, plan.cache)
        html = Page(title="", subtitle="", summary=[], sections=[ledger_section(plan)]).html()
        for profile in EVALUATED_PROFILES:
            assert (f"the ledger of the {profile} profile" in html) == (profile in whose)

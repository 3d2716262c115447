"""The quick form: whole runs of the full form, as many as fit into the time."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from lumos.experiments import row_tables
from lumos.experiments.cache import ResultCache, keep, record_of
from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures import FIGURES, cells_of
from lumos.experiments.figures.names import EVALUATED_PROFILES
from lumos.experiments.plan import RunPlan
from lumos.experiments.request import Request
from lumos.experiments.settings import load_settings
from lumos.experiments.time_limit import FIGURE_ORDER, by_priority, left_out

Datasets = Callable[..., Dataset]


@pytest.fixture
def request_(make_dataset: Datasets) -> Request:
    return Request(
        figures=tuple(FIGURES),
        datasets=(make_dataset(),),
        profiles=EVALUATED_PROFILES,
        settings=load_settings("quick"),
        data_dir=None,
        command="",
    )


def test_every_quick_run_is_a_run_of_the_full_form(make_dataset: Datasets) -> None:
    """None is cut: what is compared has the same epochs, and the full form need not repeat it."""
    quick, full = (
        cells_of([*FIGURES], make_dataset(), load_settings(form), EVALUATED_PROFILES)
        for form in ("quick", "full")
    )
    assert set(quick) < set(full)
    assert {cell.seed for cell in quick} == {0}
    assert {cell for cell in full if cell.seed == 0} == set(quick)


def test_priority(make_dataset: Datasets) -> None:
    assert set(FIGURE_ORDER) == set(FIGURES)
    settings = load_settings("quick").changed(seeds=2)
    datasets = [make_dataset(), make_dataset("lastfm")]
    ordered = [c for c, _ in by_priority([*FIGURES], datasets, settings, EVALUATED_PROFILES)]
    every = [c for one in datasets for c in cells_of([*FIGURES], one, settings, EVALUATED_PROFILES)]
    assert len(ordered) == len(every)
    assert set(ordered) == set(every)
    ranks = [(cell.seed, cell["backbone"] == "gat") for cell in ordered]
    assert ranks == sorted(ranks)
    assert {cell.kind for cell in ordered[:8]} == {"trees"}
    assert {cell.graph for cell in ordered[:8]} == {"facebook", "lastfm"}


def test_what_does_not_fit_is_left_out_and_the_next_is_tried() -> None:
    cells = [Cell.of("train", "g", seed) for seed in range(6)]
    seconds = [50.0, 70.0, 40.0, 20.0, 10.0, 1.0]
    settings = dataclasses.replace(load_settings("quick"), minutes=1, cores=2)
    # 60 seconds each, 120 together: 70 is too long, after 50 + 40 + 20 + 10 there is nothing left.
    excess = left_out(zip(cells, seconds, strict=True), settings)
    assert excess == {cells[1]: 70.0, cells[5]: 1.0}
    assert left_out([(cells[0], 60.0), (cells[1], 60.0)], settings) == {}
    assert left_out(zip(cells, [1e9] * 6, strict=True), load_settings("full")) == {}
    assert load_settings("full").seconds_in_all == math.inf


def test_runs_fit_into_the_time(request_: Request, tmp_path: Path) -> None:
    """On Facebook: GCN of our profiles and the systems beside them, and not everything."""
    plan = RunPlan.of(request_, ResultCache(tmp_path))
    assert sum(job.seconds for job in plan.jobs) <= 1200
    assert max(job.seconds for job in plan.jobs) <= 600
    assert {job.job.cell for job in plan.jobs}.isdisjoint(plan.left_out)
    assert len(plan.jobs) + len(plan.left_out) == len(plan.keys)
    trained = [job.job.cell for job in plan.jobs]
    for system in ("paper", "strict", "centralized", "lpgnn", "naive", "own"):
        of = [c for c in trained if system in (c["system"], c["profile"])]
        assert any(c["task"] == "classify" for c in of)
    assert not any(cell["profile"] == "paper" and cell["backbone"] == "gat" for cell in trained)
    for figure, rows in plan.rows().items():
        for row in rows:
            assert row.ours is None
            assert row.left_out or "not run" in row.notes or figure == "ablation"
        shown = [row for some in row_tables.tables(rows).values() for row in some]
        assert [row for row in rows if not row.left_out] == shown
        hidden = len(rows) - len(shown)
        assert row_tables.left_out(rows) == [] or f"{hidden} rows" in row_tables.left_out(rows)[0]


def test_the_choice_does_not_depend_on_what_was_computed_before(
    request_: Request, tmp_path: Path
) -> None:
    cache = ResultCache(tmp_path / "out")
    first = RunPlan.of(request_, cache)
    some = [planned.job for planned in first.jobs[::2]]
    for job in some:
        cache.put(job.key, job.cell, {"test_accuracy": 0.5})
    second = RunPlan.of(request_, cache)
    assert second.left_out == first.left_out
    assert len(second.jobs) == len(first.jobs) - len(some)


def test_kept_results_cost_no_time(request_: Request, tmp_path: Path) -> None:
    first = RunPlan.of(request_, ResultCache(tmp_path / "out"))
    jobs = [planned.job for planned in first.jobs if planned.job.cell.kind == "baseline"]
    kept = tmp_path / "kept.json"
    keep(kept, (record_of(job.key, job.cell, {"test_accuracy": 0.5}) for job in jobs))
    second = RunPlan.of(request_, ResultCache(tmp_path / "out", [kept]))
    assert sum(second.left_out.values()) < sum(first.left_out.values())


def test_a_finished_run_is_shown_also_where_it_would_not_fit(
    request_: Request, tmp_path: Path
) -> None:
    cache = ResultCache(tmp_path)
    first = RunPlan.of(request_, cache)
    long = max(first.left_out, key=lambda cell: first.left_out[cell])
    cache.put(first.keys[long], long, {"test_accuracy": 0.5})
    second = RunPlan.of(request_, cache)
    assert second.lookup(long).result == {"test_accuracy": 0.5}
    assert second.left_out.keys() == first.left_out.keys() - {long}

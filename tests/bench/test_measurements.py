"""Measurements at tiny sizes: rows are complete, and their counts exact. No time is tested."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from lumos import Graph, load
from lumos.bench import MEASUREMENTS, balancer_search, compare, growth, layers, ranks, sums
from lumos.bench.machine import MachineWatch
from lumos.bench.rows import BenchRow, BenchSize
from lumos.bench.subprocesses import CommandFailed, train_alone
from lumos.bench.timing import alternated
from lumos.crypto.group import GROUPS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.nn as pyg


def complete(rows: list[BenchRow]) -> bool:
    return all(row.ratio is not None and row.ratio > 0 and row.unit for row in rows)


@pytest.fixture
def demo() -> Graph:
    return load("demo:60")


def test_every_name_is_a_measurement() -> None:
    assert all(callable(MEASUREMENTS[name]) for name in MEASUREMENTS)


def test_sides_take_turns_and_the_first_turn_does_not_count() -> None:
    calls: list[str] = []
    timed = alternated(lambda: calls.append("ours"), lambda: calls.append("peer"), 2)
    assert calls == ["ours", "peer"] * 3
    assert timed.low <= timed.ratio <= timed.high


def test_layers_have_a_row_for_each_backbone() -> None:
    rows = layers.rows("demo:60", pyg, turns=1, size=BenchSize())
    assert [row.name.split(",")[0] for row in rows] == ["epoch of gcn", "epoch of gat"]
    assert complete(rows)


def test_layers_without_pyg_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    rows = layers.measure(BenchSize())
    assert {row.note for row in rows} == {"torch_geometric is not installed"}
    assert all(row.ratio is None for row in rows)


def test_the_optimal_balancer_reaches_the_optimum(demo: Graph) -> None:
    rows = balancer_search.reached_rows(demo, 5, seed=0)
    assert rows[-1].ratio == 1
    assert all(row.ratio is not None and row.ratio <= 1 for row in rows)


def test_the_printed_search_asks_more(demo: Graph) -> None:
    comparisons, seconds = balancer_search.search_rows(demo, 5, 1)
    assert comparisons.ratio is not None
    assert comparisons.ratio > 1
    assert complete([comparisons, seconds])


def test_bytes_of_a_comparison_stand_beside_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    def cheap(call: Callable[[], object], count: int = 1) -> float:
        call()
        return 1e-6

    monkeypatch.setattr(compare, "price", cheap)
    assert compare.cryptflow2_bits(8) == 708
    _, rows = compare.rows(8, 0.01)
    listed = [(row["per_pair"], row["group"]) for row in rows]
    assert listed == [(size, group) for size in compare.SIZES for group in GROUPS]
    assert all(row["cryptflow2_bytes"] == 708 / 8 for row in rows)


def test_secure_and_ideal_sums_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "mask_price", lambda width, word: 1e-6)
    found = sums.measured(60, 8, 1)
    assert found["devices"] == 60
    assert found["bytes_per_device"] > 0


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(CommandFailed, match="nowhere"):
        train_alone("nowhere", 0)


def test_ranks_and_scale_read_what_runs_print(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(graph: str, seed: int, *options: str) -> dict[str, Any]:
        devices = int(graph.split(":")[1])
        several = int(options[1]) if options[0] == "--ranks" else 1
        return {"clock": devices / several, "cpu": float(devices), "peak_rss_mb": 1.0}

    monkeypatch.setattr(ranks, "train_alone", run)
    monkeypatch.setattr(growth, "train_alone", run)
    assert [row.ratio for row in ranks.measure(BenchSize())] == [2, 4]
    assert [row.ratio for row in growth.measure(BenchSize(full=True))] == [1, 1, 1]


def test_ranks_that_are_refused_give_one_row_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> dict[str, Any]:
        raise CommandFailed("no ranks here")

    monkeypatch.setattr(ranks, "train_alone", refused)
    [row] = ranks.measure(BenchSize())
    assert (row.ratio, row.note) == (None, "no ranks here")


def test_the_machine_is_described() -> None:
    machine = MachineWatch().read()
    assert machine.copy_gb_per_second > 0
    assert f"{machine.cores} cores" in machine.sentence()

"""The real graphs: the optimum, its proof, and what Algorithms 1 to 3 reach."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.trees.watching import same_ledgers

from lumos.graph import Graph, load
from lumos.graph.catalog import CATALOG
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import TreeSettings
from lumos.trees.optimum import least_largest_workload

SIBLING = Path(__file__).parents[3] / "shared" / "data"
DATA = Path(os.environ.get("LUMOS_DATA") or SIBLING)

pytestmark = pytest.mark.real


@cache
def _load(name: str) -> Graph:
    return load(name, data_dir=DATA, features=False)


def real(name: str) -> Graph:
    if not (DATA / CATALOG[name].folders[0]).is_dir():
        pytest.skip(f"{name} is not here; set LUMOS_DATA to the folder that holds it")
    return _load(name)


def run(graph: Graph, balancer: str, iterations: int = 0, shards: int = 1) -> Balanced:
    chosen = TreeSettings(balancer=balancer, iterations=iterations, compare="ideal")
    return balance(graph, chosen, seed=1, shards=shards)


@pytest.mark.parametrize(("name", "least"), [("facebook", 37), ("lastfm", 15), ("twitch-ENGB", 0)])
def test_optimal(name: str, least: int) -> None:
    graph = real(name)
    balanced = run(graph, "optimal")
    assert balanced.max_workload == (least or least_largest_workload(graph))
    proof = balanced.certificate()
    inside = np.isin(graph.edge_list(), proof).all(axis=1)
    assert inside.sum() > (balanced.max_workload - 1) * len(proof)
    assert balanced.keep.sum() == graph.edges


@pytest.mark.parametrize(("name", "least"), [("facebook", 37), ("lastfm", 15)])
def test_maximum_flow(name: str, least: int) -> None:
    assert least_largest_workload(real(name)) == least


@pytest.mark.parametrize(
    ("name", "iterations", "start", "reached"),
    [("lastfm", 300, 49, range(20, 25)), ("facebook", 1000, 96, range(55, 64))],
)
def test_mcmc(name: str, iterations: int, start: int, reached: range) -> None:
    balanced = run(real(name), "mcmc", iterations)
    assert balanced.history[0] == (0, start)
    assert balanced.max_workload in reached
    assert balanced.history[-1][1] == balanced.max_workload


@pytest.mark.parametrize(("name", "saved"), [("facebook", 0.3442), ("lastfm", 0.3615)])
def test_greedy_saves_messages(name: str, saved: float) -> None:
    graph = real(name)
    kept = run(graph, "greedy").workload.sum()
    assert 1 - kept / (2 * graph.edges) == pytest.approx(saved, abs=1e-4)


@pytest.mark.parametrize("balancer", ["greedy", pytest.param("optimal", marks=pytest.mark.long)])
def test_same_in_any_number_of_shards(balancer: str) -> None:
    graph = real("facebook")
    one = run(graph, balancer)
    for shards in (2, 7):
        many = run(graph, balancer, shards=shards)
        assert np.array_equal(one.keep, many.keep)
        same_ledgers(one.ledger, many.ledger)

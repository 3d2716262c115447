"""Blink and LPGNN on its edges: reports, prior and posterior against closed forms and Bayes."""

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from scipy.stats import kstest, laplace

from lumos.baselines import BaselineSettings, baseline, blink
from lumos.baselines.blink import (
    likeliest,
    likely,
    log_odds,
    noisy_degrees,
    prior,
    reconstructed,
    shares,
)
from lumos.baselines.network import Arcs, Gcn, Sage
from lumos.baselines.systems import ServerProblem
from lumos.device.randomness import PublicRandomness
from lumos.graph import Graph, load

torch.set_num_threads(1)

EDGES = np.array([[0, 1], [0, 4], [1, 2], [3, 4]])


def ones_of(edges: np.ndarray, devices: int, epsilon: float, seed: int) -> np.ndarray:
    """[devices, devices] how many ends reported an edge, read from log-odds with a flat prior."""
    ones = np.full((devices, devices), -1)
    rows = log_odds(edges, np.zeros(devices), epsilon, np.random.default_rng(seed))
    for u, odds in rows:
        ones[u, u + 1 :] = np.rint(odds / (2 * epsilon) + 1)
    return ones


@pytest.mark.parametrize("epsilon", [0.4, 1.5])
def test_reports_are_randomized_response_of_both_ends(epsilon: float) -> None:
    """Frequencies of 0, 1 and 2 reported ones, of edges and of other pairs, on five devices."""
    runs, truth = 3_000, math.exp(epsilon) / (1 + math.exp(epsilon))
    seen = np.stack([ones_of(EDGES, 5, epsilon, seed) for seed in range(runs)])
    edges = set(map(tuple, EDGES.tolist()))
    for u, v in combinations(range(5), 2):
        one = truth if (u, v) in edges else 1 - truth
        for ones, chance in enumerate([(1 - one) ** 2, 2 * one * (1 - one), one**2]):
            error = math.sqrt(chance * (1 - chance) / runs)
            assert abs((seen[:, u, v] == ones).mean() - chance) < 5 * error
    assert (seen[:, 3, 0] == -1).all()  # pairs u < v alone


def test_degrees_get_laplace_noise() -> None:
    degrees = np.full(20_000, 300)
    noisy = noisy_degrees(degrees, 0.4, np.random.default_rng(0))
    # Rounding moves a number by less than 1/2: spread it out again before the comparison.
    spread = noisy + np.random.default_rng(1).uniform(-0.5, 0.5, len(noisy)) - 300
    assert kstest(spread, laplace(scale=1 / 0.4).cdf).pvalue > 1e-4
    few = noisy_degrees(np.array([0, 1, 5, 5, 5, 5]), 0.1, np.random.default_rng(3))
    assert few.min() >= 1
    assert few.max() <= 4


def test_the_prior_has_the_noisy_degrees() -> None:
    """The MLE of an exponential family: its expected degrees are those that were observed."""
    degrees = np.random.default_rng(0).integers(1, 30, 120).astype(float)
    beta = prior(degrees)
    chances = expit(beta[:, None] + beta)
    np.fill_diagonal(chances, 0)
    assert_allclose(chances.sum(axis=1), degrees, rtol=1e-6)


def test_the_posterior_is_bayes_over_all_graphs() -> None:
    """All 1,024 graphs of five devices, weighted by prior and likelihood of 20 reported bits."""
    epsilon, beta = 1.2, np.array([-0.3, 0.5, -1.0, 0.2, -0.7])
    found: dict[tuple[int, int], float] = {}
    for u, odds in log_odds(EDGES, beta, epsilon, np.random.default_rng(6)):
        found |= {(u, u + 1 + place): value for place, value in enumerate(odds)}
    ones = ones_of(EDGES, 5, epsilon, 6)
    assert {0, 1, 2} <= set(ones[np.triu_indices(5, 1)].tolist())
    pairs = list(combinations(range(5), 2))
    flip = 1 / (1 + math.exp(epsilon))
    total, present = 0.0, dict.fromkeys(pairs, 0.0)
    for graph in product((0, 1), repeat=len(pairs)):
        weight = 1.0
        for (u, v), edge in zip(pairs, graph, strict=True):
            chance = expit(beta[u] + beta[v])
            weight *= chance if edge else 1 - chance
            agreeing = ones[u, v] if edge else 2 - ones[u, v]
            weight *= (1 - flip) ** agreeing * flip ** (2 - agreeing)
        total += weight
        for pair, edge in zip(pairs, graph, strict=True):
            present[pair] += weight * edge
    for pair in pairs:
        assert expit(found[pair]) == pytest.approx(present[pair] / total, rel=1e-9)


@pytest.mark.parametrize("buffer", [1, 500, 1 << 20])
def test_row_by_row_is_the_dense_matrix(monkeypatch: pytest.MonkeyPatch, buffer: int) -> None:
    """Hard and hybrid, from one matrix of all probabilities."""
    monkeypatch.setattr(blink, "BUFFER", buffer)
    graph = load("demo:60")
    edges, devices, epsilon = graph.edge_list(), 60, 1.5
    beta = np.random.default_rng(0).normal(-1.5, 0.8, devices)  # no ties
    ones = ones_of(edges, devices, epsilon, 2)
    odds = beta[:, None] + beta + 2 * epsilon * (ones - 1)
    odds[np.tril_indices(devices)] = -np.inf
    hard = likely(log_odds(edges, beta, epsilon, np.random.default_rng(2)))
    assert_array_equal(hard, np.argwhere(odds > 0))
    count = int(expit(odds).sum())
    pairs, chances = likeliest(log_odds(edges, beta, epsilon, np.random.default_rng(2)), count)
    threshold = np.sort(odds.ravel())[-count]
    assert_array_equal(pairs, np.argwhere(odds >= threshold))
    assert_allclose(chances, expit(odds[pairs[:, 0], pairs[:, 1]]))
    assert len(hard) != count


def problem_of(graph: Graph) -> ServerProblem:
    roles = np.zeros(graph.devices, np.int64)
    return ServerProblem(graph=graph, roles=roles, split=None, public=PublicRandomness(0))


def test_both_ends_share_the_epsilon_of_an_edge() -> None:
    lists, degree = shares(16.0)
    assert 2 * (lists + degree) == pytest.approx(16.0)
    assert degree == pytest.approx(0.1 * 8)


@pytest.mark.parametrize("variant", ["hard", "hybrid"])
def test_more_epsilon_rebuilds_more_edges(variant: str) -> None:
    graph = load("demo:200")
    known = {tuple(pair) for pair in graph.edge_list().tolist()}
    recovered = []
    for epsilon in (2.0, 8.0, 30.0):
        settings = BaselineSettings(system="blink", edge_epsilon=epsilon)
        _, pairs, notes = reconstructed(problem_of(graph), settings, variant)
        found = {tuple(pair) for pair in pairs.tolist()}
        assert len(found) == len(pairs)
        recovered.append(len(found & known) / len(known))
        precision = 100 * len(found & known) / max(1, len(found))
        assert f"contains {100 * recovered[-1]:.1f} % of" in notes[-1]
        assert f"{precision:.1f} % of its pairs" in notes[-1]
    assert recovered[0] < recovered[1] < recovered[2]
    assert recovered[2] > 0.99


@pytest.mark.parametrize("layer", [Gcn, Sage])
def test_weights_of_edges_are_those_of_a_dense_matrix(layer: type[Gcn | Sage]) -> None:
    """On rows, KProp and layers, with a weighted degree above 1 for every device."""
    weights = np.array([0.9, 0.6, 0.7, 0.8], np.float32)
    pairs = np.array([[0, 1], [1, 2], [2, 3], [0, 3]])
    arcs = Arcs.of(pairs, 4, weights=weights)
    dense = np.zeros((4, 4), np.float32)
    dense[pairs[:, 0], pairs[:, 1]] = dense[pairs[:, 1], pairs[:, 0]] = weights
    rows = torch.randn(4, 3, generator=torch.manual_seed(0))
    degree = dense.sum(axis=1)
    assert_allclose(arcs.sum(rows).numpy(), dense @ rows.numpy(), rtol=1e-5)
    step = dense / np.sqrt(degree[:, None] * degree)
    assert_allclose(arcs.smooth(rows).numpy(), step @ rows.numpy(), rtol=1e-5)
    made = layer(3, 2)
    out = made(rows, arcs).detach().numpy()
    with_self = dense + np.eye(4, dtype=np.float32)
    root = 1 / np.sqrt(degree + 1)
    values = rows.numpy() @ made.weight.detach().numpy()
    expected = root[:, None] * (with_self @ (root[:, None] * values))
    if isinstance(made, Sage):
        own = rows.numpy() @ made.root.detach().numpy()
        expected = dense @ values / degree[:, None] + own
    assert_allclose(out, expected, rtol=1e-4, atol=1e-6)


def test_without_noise_on_edges_it_is_lpgnn() -> None:
    same: dict[str, Any] = {"epochs": 8, "seed": 3}
    lpgnn = baseline("demo:120", system="lpgnn", **same)
    other = baseline("demo:120", system="lpgnn-blink", edge_epsilon=math.inf, **same)
    assert_array_equal(lpgnn.outputs, other.outputs)
    assert lpgnn.history == other.history
    assert lpgnn.notes == other.notes


def test_without_noise_blink_is_centralized() -> None:
    central = baseline("demo:120", system="centralized", epochs=8)
    other = baseline("demo:120", system="blink", edge_epsilon=math.inf, epochs=8)
    assert_array_equal(central.outputs, other.outputs)


def test_validation_chooses_the_variant_and_notes_are_its_own() -> None:
    same: dict[str, Any] = {"system": "blink", "edge_epsilon": 8.0, "epochs": 20}
    auto = baseline("demo:200", **same)
    tries = [baseline("demo:200", variant=name, **same) for name in ("hard", "hybrid")]
    scores = [max(record["score"] for record in found.history) for found in tries]
    better = tries[int(np.argmax(scores))]
    assert_array_equal(auto.outputs, better.outputs)
    assert auto.notes[:-1] == better.notes
    assert auto.notes[-1].endswith(f"chose {better.settings.variant}.")


@pytest.mark.parametrize("system", ["blink", "lpgnn-blink"])
def test_every_system_states_the_epsilon_of_an_edge(system: str) -> None:
    found = baseline("demo:60", system=system, edge_epsilon=10.0, epochs=2)
    assert "one undirected edge: ε = 10" in found.summary()["protects"]
    text = " ".join(found.notes)
    assert "neighbour list with ε = 4.5" in text
    assert "degree with ε = 0.5" in text

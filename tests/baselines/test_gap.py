"""GAP: its noise against the closed form, its hops against plain sums."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from lumos.baselines import baseline
from lumos.baselines.centralized import noise_scale, noisy_hops
from lumos.baselines.network import Arcs
from lumos.device.randomness import PublicRandomness
from lumos.graph import load

torch.set_num_threads(1)

PAIRS = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [1.0, 8.0, 20.9])
def test_the_noise_spends_delta_and_no_more(epsilon: float, hops: int) -> None:
    """δ(ε) of one Gaussian mechanism at distance √(2K): an edge moves two rows in every hop."""
    sigma = noise_scale(epsilon, 1e-5, hops)
    mu = math.sqrt(2 * hops) / sigma
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-4)
    assert noise_scale(math.inf, 1e-5, hops) == 0


def test_an_edge_moves_a_hop_by_at_most_root_two() -> None:
    """Every edge of small graphs removed in turn; two equal rows reach the bound."""
    generator = np.random.default_rng(0)
    rows = torch.nn.functional.normalize(torch.from_numpy(generator.standard_normal((4, 3))))
    rows[1] = rows[0]
    rows = rows.float()
    whole = Arcs.of(PAIRS, 4).sum(rows)
    moved = [
        float((whole - Arcs.of(np.delete(PAIRS, edge, axis=0), 4).sum(rows)).norm())
        for edge in range(len(PAIRS))
    ]
    assert_allclose(moved, math.sqrt(2), rtol=1e-5)


def test_without_noise_hops_are_plain_sums() -> None:
    rows = torch.randn(4, 3, generator=torch.manual_seed(1))
    found = noisy_hops(rows, Arcs.of(PAIRS, 4), 2, 0.0, PublicRandomness(0))
    dense = np.zeros((4, 4))
    dense[PAIRS[:, 0], PAIRS[:, 1]] = dense[PAIRS[:, 1], PAIRS[:, 0]] = 1
    expected = rows.numpy() / np.linalg.norm(rows, axis=1, keepdims=True)
    for hop in found:
        assert_allclose(hop.numpy(), expected, rtol=1e-4, atol=1e-6)
        expected = dense @ expected
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)


def test_noise_is_fresh_in_every_hop_and_of_the_right_size() -> None:
    """Without edges a hop is noise alone, divided by its norm: a direction."""
    rows, sigma = torch.ones(20_000, 4), 0.7
    empty = Arcs.of(PAIRS[:0], 20_000)
    _, one, two = noisy_hops(rows, empty, 2, sigma, PublicRandomness(5))
    assert_allclose(one.norm(dim=1).numpy(), 1, rtol=1e-5)
    assert abs(float((one * two).sum(dim=1).mean())) < 5 / math.sqrt(4 * 20_000)
    star = Arcs.of(np.array([[0, v] for v in range(1, 20_000)]), 20_000)
    _, hop = noisy_hops(torch.ones(20_000, 1), star, 1, sigma, PublicRandomness(5))
    # A leaf has 1 + σ N: it comes out positive with probability Φ(1/σ).
    share, chance = float((hop[1:] > 0).float().mean()), norm.cdf(1 / sigma)
    assert abs(share - chance) < 5 * math.sqrt(chance * (1 - chance) / 20_000)


def test_much_noise_hides_the_edges() -> None:
    """Noise of σ = 10⁶ hides every edge; without noise, hops with and without edges differ."""
    rows = torch.randn(60, 5, generator=torch.manual_seed(2))
    arcs, none = Arcs.of(load("demo:60").edge_list(), 60), Arcs.of(PAIRS[:0], 60)
    loud = [noisy_hops(rows, each, 2, 1e6, PublicRandomness(1))[2] for each in (arcs, none)]
    assert_allclose(loud[0].numpy(), loud[1].numpy(), atol=1e-3)
    clear = [noisy_hops(rows, each, 2, 0.0, PublicRandomness(1))[2] for each in (arcs, none)]
    assert not np.allclose(clear[0].numpy(), clear[1].numpy(), atol=1e-3)


def test_the_graph_helps_and_the_account_is_stated() -> None:
    own = baseline("demo:600", system="own", epochs=60)
    gap = baseline("demo:600", system="gap", epochs=60, edge_epsilon=math.inf)
    assert gap.metrics["test_accuracy"] > own.metrics["test_accuracy"]
    noisy = baseline("demo:60", system="gap", edge_epsilon=9.0, delta=1e-4, epochs=2)
    assert "one undirected edge: (9, 0.0001)" in noisy.summary()["protects"]
    assert f"{noise_scale(9.0, 1e-4, 2):.4g}" in " ".join(noisy.notes)
    assert_array_equal(
        noisy.outputs,
        baseline("demo:60", system="gap", edge_epsilon=9.0, delta=1e-4, epochs=2).outputs,
    )

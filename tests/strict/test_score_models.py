"""What each device puts into the sums of `link`: autograd's gradient, clipped, and nothing else."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor
from torch.nn.functional import softplus

from lumos.model.settings import ModelSettings
from lumos.strict import score_models as scorer
from lumos.strict.own_classifier import LOSS_LIMIT, LOSS_SCALE
from lumos.strict.pair_scorer import PairScorer
from lumos.strict.score_models import ScoredPairs, TreeScore, logistic_slope

HOSTED, SYMBOLS, HOPS, KINDS = 14, 3, 2, 2
SILENT = (0, 5, 13)
"""Devices without any pair: at the beginning, in the middle, at the end."""
INF = float("inf")


def coins(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def pairs_of(seed: int = 0, pairs: int = 50, kinds: int = KINDS) -> tuple[ScoredPairs, np.ndarray]:
    """Pairs of all kinds, and which are edges."""
    rng = coins(seed)
    askers = np.setdiff1d(np.arange(HOSTED), SILENT)
    rows = np.sort(np.concatenate([askers, rng.choice(askers, pairs - len(askers))]))
    frequencies, theirs = rng.dirichlet(np.ones(SYMBOLS), (2, pairs))
    frequencies[rng.random(pairs) < 0.2] = 0  # an asker that has no other neighbour
    made = ScoredPairs(
        rows=rows,
        similarity=rng.normal(size=(pairs, kinds * (HOPS + 1) ** 2)),
        own=rng.integers(0, SYMBOLS, HOSTED)[rows],
        frequencies=frequencies,
        theirs=rng.integers(0, SYMBOLS, pairs),
        their_frequencies=theirs,
        prior=rng.normal(size=pairs),
    )
    return made, rng.random(pairs) < 0.5


def loss_of(scores: Tensor, edge: np.ndarray, mine: np.ndarray) -> Tensor:
    """-log σ(score) of edges and -log σ(-score) of strangers: the mean over a device's pairs."""
    sign = torch.tensor(np.where(edge, 1.0, -1.0))
    return softplus(-sign * scores)[torch.tensor(mine)].mean()


def scaled_loss(loss: Tensor) -> float:
    return LOSS_SCALE * min(float(loss.detach()), LOSS_LIMIT)


def check_rows(update: Any, clips: tuple[float, ...] = (INF, 0.5, 0.05)) -> None:
    """Rows add up; none is longer than the clip; directions stay; who has no pair adds nothing."""
    free = update(INF, True)
    before = np.linalg.norm(free, axis=1)
    assert not free[list(SILENT)].any()
    assert (np.delete(before, SILENT) > 0.01).all()
    for clip in clips:
        rows, total = update(clip, True), update(clip, False)
        assert_allclose(rows.sum(axis=0), total, rtol=1e-9, atol=1e-12)
        assert (np.linalg.norm(rows, axis=1) <= clip * (1 + 1e-12)).all()
        factor = np.minimum(1, clip / np.maximum(before, 1e-300))
        assert_allclose(rows, free * factor[:, None], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kinds", [1, 2])
def test_regressions_have_the_gradients_of_autograd(kinds: int) -> None:
    linear = PairScorer.linear(HOPS, kinds)
    pairs, edge = pairs_of(kinds=kinds)
    weights = coins(1).normal(size=linear.weights)
    rows = linear.update(weights, pairs, edge, HOSTED, INF, each=True)
    every = (HOPS + 1) ** 2
    columns = [slice(0, 1), *[slice(every, 2 * every)] * (kinds > 1), slice(0, kinds * every)]
    vector = torch.tensor(weights, requires_grad=True)
    for device in np.setdiff1d(np.arange(HOSTED), SILENT):
        start, losses = 0, []
        for block in columns:
            x = torch.tensor(pairs.similarity[:, block])
            end = start + x.shape[1]
            scores = x @ vector[start:end] + vector[end]
            losses.append(loss_of(scores, edge, pairs.rows == device))
            start = end + 1
        assert start == linear.weights
        (gradient,) = torch.autograd.grad(
            torch.stack(losses).sum(), vector
        )  # blocks share no weight
        assert_allclose(rows[device, :-1], gradient.numpy(), rtol=1e-9, atol=1e-12)
        assert rows[device, -1] == pytest.approx(scaled_loss(losses[-1]))


def test_rows_of_regressions() -> None:
    linear = PairScorer.linear(HOPS, KINDS)
    pairs, edge = pairs_of()
    weights = coins(1).normal(size=linear.weights)
    check_rows(lambda clip, each: linear.update(weights, pairs, edge, HOSTED, clip, each=each))


def tree_of(backbone: str) -> TreeScore:
    """A tree network with weights that are not those of the start: m is 0 there."""
    tree = TreeScore(ModelSettings(backbone=backbone), SYMBOLS, coins(0))
    start = tree.vector()
    tree.load(start + 0.3 * coins(2).normal(size=len(start)))
    return tree


def scores_of(table: Tensor, scales: Tensor, pairs: ScoredPairs, base: np.ndarray) -> Tensor:
    """base + Σ m · h · ĥ, pair by pair."""
    gradients = []
    for number in range(len(pairs.rows)):
        mine = torch.tensor(pairs.frequencies[number]) @ table[pairs.own[number]]
        theirs = torch.tensor(pairs.their_frequencies[number]) @ table[pairs.theirs[number]]
        gradients.append(base[number] + (scales * mine * theirs).sum())
    return torch.stack(gradients)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_trees_have_the_gradients_of_autograd(backbone: str) -> None:
    tree, (pairs, edge) = tree_of(backbone), pairs_of()
    base = coins(3).normal(size=len(edge))
    rows = tree.update(pairs, base, edge, HOSTED, INF, each=True)
    network = tree._leaves._network
    leaves = tree._leaves._leaves().reshape(tree._leaves.shape)
    table = leaves.detach().to(torch.float64).requires_grad_()
    scales = torch.tensor(tree._scales, requires_grad=True)
    scores = scores_of(table, scales, pairs, base)
    assert_allclose(tree.scores(pairs) + base, scores.detach().numpy(), rtol=1e-9)
    for device in np.setdiff1d(np.arange(HOSTED), SILENT):
        loss = loss_of(scores, edge, pairs.rows == device)
        to_table, to_scales = torch.autograd.grad(loss, (table, scales), retain_graph=True)
        expected = torch.cat([to_table.flatten(), to_scales]).numpy()
        assert_allclose(rows[device, :-1], expected, rtol=1e-9, atol=1e-12)
        assert rows[device, -1] == pytest.approx(scaled_loss(loss))
        # And from there to the weights of the network.
        parameters = list(network.parameters())
        whole = loss_of(
            scores_of(leaves.to(torch.float64), scales, pairs, base), edge, pairs.rows == device
        )
        gradients = torch.autograd.grad(
            whole, [*parameters, scales], retain_graph=True, materialize_grads=True,
            allow_unused=True,
        )  # fmt: skip
        flat = torch.cat([part.flatten().to(torch.float64) for part in gradients]).numpy()
        assert_allclose(tree.gradient(rows[device]), flat, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
@pytest.mark.parametrize("chunk", [3, 2048])
def test_rows_of_trees(backbone: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The norm of the table's gradient is made without the table: the dense rows check it."""
    monkeypatch.setattr(scorer, "CHUNK", chunk)
    tree, (pairs, edge) = tree_of(backbone), pairs_of()
    base = coins(3).normal(size=len(edge))
    check_rows(lambda clip, each: tree.update(pairs, base, edge, HOSTED, clip, each=each))


def test_the_norm_of_a_table_without_the_table() -> None:
    """Also where own symbol and teller's are the same, so that both sides meet in one row."""
    for seed in range(5):
        rng = coins(seed)
        rows = np.sort(rng.integers(0, 6, 20))
        sides = [
            (rng.integers(0, 2, 20), rng.dirichlet(np.ones(2), 20), rng.normal(size=(20, 4)))
            for _ in range(2)
        ]
        tables = np.zeros((6, 2, 2, 4))
        for symbol, frequencies, slope in sides:
            for pair, row in enumerate(rows):
                tables[row, symbol[pair]] += np.outer(frequencies[pair], slope[pair])
        assert_allclose(scorer._squares(rows, 6, sides), (tables**2).sum(axis=(1, 2, 3)))


def test_no_pair_at_all() -> None:
    pairs, edge = pairs_of()
    none = ScoredPairs._make(column[:0] for column in pairs)
    linear, tree = PairScorer.linear(HOPS, KINDS), tree_of("gcn")
    for each in (True, False):
        weights = np.ones(linear.weights)
        assert not linear.update(weights, none, edge[:0], HOSTED, 0.3, each=each).any()
        assert not tree.update(none, np.empty(0), edge[:0], HOSTED, 0.3, each=each).any()
    assert tree.update(none, np.empty(0), edge[:0], HOSTED, 0.3, each=False).shape == (tree.width,)


def test_huge_scores_keep_slopes_finite() -> None:
    scores = np.array([-1e4, -50.0, 0.0, 50.0, 1e4])
    for edge in (True, False):
        slope, loss = logistic_slope(scores, np.full(5, edge))
        assert np.isfinite([slope, loss]).all()
        assert (np.abs(slope) <= 1).all()
        at_zero = loss[2], slope[2]
        assert_allclose(at_zero, (np.log(2), -0.5 if edge else 0.5))

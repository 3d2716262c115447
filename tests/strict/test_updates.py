"""What each device puts into a sum: autograd's gradient, clipped; nothing from other devices."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from tests.paper.whole import Whole, node_features
from torch import Tensor
from torch.nn.functional import cross_entropy

from lumos import Forest
from lumos.encode.bounds import unit_rows
from lumos.graph import Graph
from lumos.model.settings import ModelSettings
from lumos.paper.network_and_head import FullModel
from lumos.strict.classify_trainer import choose
from lumos.strict.feature_rows import FeatureRows
from lumos.strict.neighbour_evidence import DAMPING, ReceivedSymbols, Trust, matrix_update, ratios
from lumos.strict.own_classifier import LOSS_LIMIT, LOSS_SCALE, Encoder
from lumos.strict.residual_head import HIDDEN, ResidualHead, ResidualInput

CLASSES, DEVICES, WIDTH = 4, 25, 11
INF = float("inf")
KINDS = ("sparse", "dense")


def coins(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def people(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and who trains; others have labels too, or none."""
    rng = coins(seed)
    train = rng.random(DEVICES) < 0.6
    labels = rng.integers(0, CLASSES, DEVICES)
    return np.where(train | (rng.random(DEVICES) < 0.5), labels, -1), train


def features(kind: str) -> Any:
    rows = coins(1).random((DEVICES, WIDTH)) * (coins(2).random((DEVICES, WIDTH)) < 0.4)
    rows[3] = 0
    return csr_array(rows.astype(np.float32)) if kind == "sparse" else rows.astype(np.float32)


def scaled_loss(loss: Tensor) -> float:
    """The loss as it travels."""
    return LOSS_SCALE * min(float(loss.detach()), LOSS_LIMIT)


def check_rows(update: Any, train: np.ndarray, clips: tuple[float, ...] = (INF, 0.5, 0.05)) -> None:
    """Rows add up; none is longer than the clip; others' rows are zero; directions stay."""
    free = update(INF, True)
    for clip in clips:
        rows, total = update(clip, True), update(clip, False)
        assert_allclose(rows.sum(axis=0), total, rtol=1e-6, atol=1e-9)
        norms = np.linalg.norm(rows, axis=1)
        assert (norms <= clip * (1 + 1e-6)).all()
        assert not rows[~train].any()
        assert (norms[train] > 0).all()
        before = np.linalg.norm(free, axis=1)
        long = train & (before > clip * (1 + 1e-6))
        assert_allclose(norms[long], clip, rtol=1e-6)
        assert_allclose(rows[train & ~long], free[train & ~long])
        assert_allclose(
            rows[long] * before[long, None], free[long] * norms[long, None], rtol=1e-6, atol=1e-12
        )


# The own encoder.


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_gradients_are_autograds(kind: str) -> None:
    labels, train = people()
    encoder = Encoder(FeatureRows(features(kind), train), labels, CLASSES)
    weights = 3 * coins(3).normal(size=encoder.weights)
    rows = encoder.update(weights, INF, each=True)
    x = features("dense").astype(np.float64)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    table = torch.tensor(weights.reshape(-1, CLASSES), requires_grad=True)
    logits = torch.tensor(x) @ table[:-1] + table[-1]
    assert_allclose(encoder.logits(weights), logits.detach().numpy(), rtol=1e-5, atol=1e-6)
    for device in np.flatnonzero(train):
        loss = cross_entropy(logits[device], torch.tensor(labels[device]))
        (gradient,) = torch.autograd.grad(loss, table, retain_graph=True)
        assert_allclose(rows[device, :-1], gradient.numpy().ravel(), rtol=1e-4, atol=1e-6)
        assert rows[device, -1] == pytest.approx(scaled_loss(loss), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["all", "keep", "project"])
def test_encoder_rows(kind: str, how: str) -> None:
    from lumos.device.coins import PublicCoins

    labels, train = people()
    rows = FeatureRows(features(kind), train)
    if how == "keep":
        rows.keep(np.array([0, 2, 3, 7]))
    if how == "project":
        rows.project(6, PublicCoins(0))
    encoder = Encoder(rows, labels, CLASSES)
    weights = 3 * coins(3).normal(size=encoder.weights)
    check_rows(lambda clip, each: encoder.update(weights, clip, each=each), train)


def test_sparse_and_dense_encoders_agree() -> None:
    labels, train = people()
    both = [Encoder(FeatureRows(features(kind), train), labels, CLASSES) for kind in KINDS]
    weights = coins(3).normal(size=both[0].weights)
    one, other = (encoder.update(weights, 0.3, each=True) for encoder in both)
    assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_holders_are_counted() -> None:
    _, train = people()
    for kind in KINDS:
        rows = FeatureRows(features(kind), train)
        holders = rows.holders()
        assert not holders[~train].any()
        assert np.array_equal(holders[train], features("dense")[train] != 0)
        assert np.array_equal(holders.sum(axis=0), rows.holder_counts())


def test_rows_have_norm_one_or_are_zero() -> None:
    for kind in KINDS:
        rows = unit_rows(features(kind))
        rows = rows.toarray() if kind == "sparse" else rows
        norms = np.linalg.norm(rows, axis=1)
        assert norms[3] == 0
        assert_allclose(np.delete(norms, 3), 1, rtol=1e-6)


def test_a_huge_loss_travels_cut_off() -> None:
    labels, train = np.array([0, 1]), np.array([True, True])
    encoder = Encoder(FeatureRows(np.eye(2, dtype=np.float32), train), labels, 2)
    weights = np.array([-900.0, 900.0, 900.0, -900.0, 0, 0])
    rows = encoder.update(weights, INF, each=True)
    assert np.isfinite(rows).all()
    assert_allclose(rows[:, -1], LOSS_SCALE * LOSS_LIMIT)


# Evidence.


def neighbourhoods(hops: int = 1, *, many: bool = False) -> list[ReceivedSymbols]:
    """What was received, hop by hop; device 0 has no neighbour. many: bits of unary encoding."""
    rng = coins(5)
    degree = rng.integers(0, 6, DEVICES)
    degree[0] = 0
    owner = np.repeat(np.arange(DEVICES), degree)
    found = []
    for _ in range(hops):
        symbols = np.eye(CLASSES)[rng.integers(0, CLASSES, len(owner))]
        if many:
            symbols = (rng.random((len(owner), CLASSES)) < 0.4).astype(np.float64)
        found.append(ReceivedSymbols(symbols, owner, DEVICES))
    return found


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("many", [False, True])
def test_the_matrix_is_a_sum_of_rows_of_norm_at_most_one(hops: int, many: bool) -> None:
    labels, train = people()
    frequencies = np.stack(
        [received.frequencies() for received in neighbourhoods(hops, many=many)], axis=1
    )
    rows = matrix_update(frequencies, labels, train, CLASSES, each=True)
    assert_allclose(
        rows.sum(axis=0), matrix_update(frequencies, labels, train, CLASSES, each=False)
    )
    assert (np.linalg.norm(rows, axis=1) <= 1 + 1e-12).all()
    assert not rows[~train].any()
    # By brute force: the frequencies, in the row of the own class.
    for device in np.flatnonzero(train):
        table = rows[device].reshape(CLASSES, hops, CLASSES)
        assert_allclose(table[labels[device]] * math.sqrt(hops), frequencies[device])
        assert not np.delete(table, labels[device], axis=0).any()


def test_the_longest_row_of_the_matrix() -> None:
    """Every neighbour says the same: norm 1, and not more, also over hops."""
    same = np.zeros((1, 4, CLASSES))
    same[:, :, 2] = 1
    row = matrix_update(same, np.array([1]), np.array([True]), CLASSES, each=True)
    assert np.linalg.norm(row) == pytest.approx(1)


def test_ratios_are_log_likelihood_ratios() -> None:
    rng = coins(9)
    for hops in (1, 2):
        counts = rng.uniform(5, 50, (hops, CLASSES, CLASSES))  # hop, class, symbol
        total = (counts / math.sqrt(hops)).swapaxes(0, 1).ravel()
        log = ratios(total, CLASSES, CLASSES)
        for hop, (own, symbol) in product(range(hops), product(range(CLASSES), repeat=2)):
            given_class = counts[hop, own, symbol] / counts[hop, own].sum()
            overall = counts[hop, :, symbol].sum() / counts[hop].sum()
            assert log[hop, own, symbol] == pytest.approx(math.log(given_class / overall))
    assert np.isfinite(ratios(rng.normal(0, 100, CLASSES**2), CLASSES, CLASSES)).all()


def trust_of(hops: int) -> tuple[Trust, np.ndarray, list[ReceivedSymbols], np.ndarray]:
    rng = coins(6)
    own, received = rng.normal(size=(DEVICES, CLASSES)), neighbourhoods(hops)
    log = rng.normal(size=(hops, CLASSES, CLASSES))
    return Trust(own, received, log), own, received, log


@pytest.mark.parametrize("hops", [1, 2])
def test_trust_gradients_are_autograds(hops: int) -> None:
    labels, train = people()
    trust, own, received, log = trust_of(hops)
    weights = trust.start() + coins(7).normal(size=trust.weights)
    rows = trust.update(weights, labels, train, INF, each=True)
    w = torch.tensor(weights, requires_grad=True)
    for device in np.flatnonzero(train):
        logits, place = w[0] * torch.tensor(own[device]), 1
        for hop in range(hops):
            degree = max(received[hop].degree[device], 1.0)
            likelihood = torch.tensor(
                [sum(received[hop].counts[device] * log[hop, c]) for c in range(CLASSES)]
            )
            for power in DAMPING:
                logits = logits + w[place] * likelihood * degree**-power
                place += 1
        logits = logits + w[place:]
        assert_allclose(trust.logits(weights)[device], logits.detach().numpy(), rtol=1e-10)
        loss = cross_entropy(logits, torch.tensor(labels[device]))
        (gradient,) = torch.autograd.grad(loss, w)
        assert_allclose(rows[device, :-1], gradient.numpy(), rtol=1e-9, atol=1e-12)
        assert rows[device, -1] == pytest.approx(scaled_loss(loss))


@pytest.mark.parametrize("hops", [1, 2])
def test_trust_rows(hops: int) -> None:
    labels, train = people()
    trust = trust_of(hops)[0]
    weights = trust.start()
    check_rows(lambda clip, each: trust.update(weights, labels, train, clip, each=each), train)


# The tree network and its head.


class Trees:
    """Devices with one-hot symbols, and the whole network in doubles on their real trees."""

    def __init__(self, backbone: str, *, activate_last: bool = True) -> None:
        self.settings = ModelSettings(
            backbone=backbone, hidden=5, output=6, heads=2, activate_last=activate_last
        )
        self.residual = ResidualHead(self.settings, CLASSES, CLASSES, coins(1))
        start = self.residual.vector()
        self.vector = start + 0.3 * coins(2).normal(size=len(start))
        self.residual.load(self.vector)
        rng = coins(3)
        pairs = rng.integers(1, DEVICES, (40, 2))  # device 0 has no neighbour
        self.graph = Graph.from_edges(pairs, devices=DEVICES)
        graph = self.graph
        self.symbols = rng.integers(0, CLASSES, DEVICES)
        self.predicted = rng.integers(0, CLASSES, DEVICES)
        self.base = rng.normal(size=(DEVICES, CLASSES))
        owner = np.repeat(np.arange(DEVICES), np.diff(graph.offsets))
        received = ReceivedSymbols(np.eye(CLASSES)[self.symbols[graph.neighbours]], owner, DEVICES)
        self.inputs = ResidualInput(
            self.base, self.predicted, received.frequencies(), received.degree
        )
        self.forest = Forest.grow(
            np.arange(DEVICES),
            graph.offsets,
            graph.neighbours,
            np.ones(len(graph.neighbours), np.bool_),
            virtual_nodes=True,
        )

    def logits(self) -> tuple[Tensor, list[Tensor]]:
        """Logits and the weights they depend on: everything by autograd, no table anywhere."""
        model = FullModel(self.settings, CLASSES, CLASSES)
        count = sum(parameter.numel() for parameter in model.network.parameters())
        flat = torch.from_numpy(self.vector[:count].astype(np.float32))
        torch.nn.utils.vector_to_parameters(flat, model.network.parameters())
        whole, forest = Whole(model, self.forest), self.forest
        eye = torch.eye(CLASSES, dtype=torch.float64)
        nodes = whole.leaves(
            node_features(forest, eye[self.predicted], eye[self.symbols[forest.neighbour]])
        )
        pooled = torch.zeros(DEVICES, nodes.shape[1], dtype=torch.float64)
        degree = torch.tensor(self.inputs.degree)[:, None]
        owner = torch.from_numpy(forest.owner)
        pooled = pooled.index_add(0, owner, nodes[: forest.branches]) / degree.clamp(min=1)
        base = torch.from_numpy(self.base)
        inputs = torch.cat(
            [
                torch.softmax(base, dim=1),
                pooled * degree / (degree + 3),
                pooled * degree / torch.sqrt(degree + 1) / 3,
                torch.log1p(degree) / 5,
            ],
            dim=1,
        )
        shapes = [(inputs.shape[1], HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
        parts = torch.split(torch.from_numpy(self.vector[count:]), [math.prod(s) for s in shapes])
        head = [
            part.clone().reshape(shape).requires_grad_()
            for part, shape in zip(parts, shapes, strict=True)
        ]
        hidden = torch.relu(inputs @ head[0] + head[1])
        network = [value for name, value in whole.weights.items() if name.startswith("network.")]
        return base + hidden @ head[2] + head[3], [*network, *head]


@pytest.fixture(params=["gcn", "gat"])
def trees(request: pytest.FixtureRequest) -> Trees:
    return Trees(request.param)


def test_tables_at_home_are_trees(trees: Trees) -> None:
    logits, _ = trees.logits()
    assert_allclose(
        trees.residual.logits(trees.inputs), logits.detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_tree_gradients_are_autograds_device_by_device(trees: Trees) -> None:
    labels, train = people()
    logits, weights = trees.logits()
    rows = trees.residual.update(trees.inputs, labels, train, INF, each=True)
    assert rows.shape == (DEVICES, trees.residual.width)
    for device in np.flatnonzero(train):
        loss = cross_entropy(logits[device], torch.tensor(labels[device]))
        gradients = torch.autograd.grad(loss, weights, retain_graph=True, materialize_grads=True)
        expected = torch.cat([gradient.flatten() for gradient in gradients]).numpy()
        mine = trees.residual.gradient(rows[device])
        assert_allclose(mine, expected, rtol=2e-3, atol=2e-6)
        assert rows[device, -1] == pytest.approx(scaled_loss(loss), rel=1e-4)


def test_the_gradient_of_a_sum_is_the_sum_of_gradients(trees: Trees) -> None:
    labels, train = people()
    logits, weights = trees.logits()
    some = torch.from_numpy(np.flatnonzero(train))
    loss = cross_entropy(logits[some], torch.from_numpy(labels)[some], reduction="sum")
    gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
    expected = torch.cat([gradient.flatten() for gradient in gradients]).numpy()
    total = trees.residual.update(trees.inputs, labels, train, INF, each=False)
    assert_allclose(trees.residual.gradient(total), expected, rtol=2e-3, atol=1e-5)


def test_tree_rows(trees: Trees) -> None:
    labels, train = people()
    residual, inputs = trees.residual, trees.inputs
    check_rows(lambda clip, each: residual.update(inputs, labels, train, clip, each=each), train)


def test_without_relu_at_the_end() -> None:
    made = Trees("gcn", activate_last=False)
    assert_allclose(
        made.residual.logits(made.inputs),
        made.logits()[0].detach().numpy(),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_residual_head_starts_at_zero() -> None:
    made = Trees("gcn")
    fresh = ResidualHead(made.settings, CLASSES, CLASSES, coins(1))
    assert np.array_equal(fresh.logits(made.inputs), made.base)
    vector = fresh.vector()
    fresh.load(vector)
    assert np.array_equal(fresh.vector(), vector)


# The choice.

votes = st.integers(0, 60)


@given(st.tuples(votes, votes, votes), st.tuples(votes, votes), st.integers(0, 2**32))
def test_nothing_is_chosen_that_is_not_better_by_a_standard_error(
    right: tuple[int, ...], changed: tuple[int, ...], seed: int
) -> None:
    noise = np.random.default_rng(seed).normal(0, 1, 5) * (seed % 2)
    counts, differ = np.array(right) + noise[:3], np.array(changed) + noise[3:]
    chosen = choose(counts, differ)
    if chosen:
        assert counts[chosen] - counts[0] > math.sqrt(max(1.0, differ[chosen - 1]))
        assert counts[chosen] == counts.max()


def test_a_clear_winner_is_chosen() -> None:
    assert choose(np.array([50.0, 60, 55]), np.array([20.0, 20])) == 1
    assert choose(np.array([50.0, 55, 60]), np.array([20.0, 20])) == 2
    assert choose(np.array([50.0, 54, 54]), np.array([20.0, 20])) == 0
    assert choose(np.array([50.0, 40, 30]), np.array([0.0, 0])) == 0
    assert choose(np.array([50.0, 51, 50]), np.array([1.0, 0])) == 0  # one vote is no evidence
    assert choose(np.array([50.0, 53, 50]), np.array([-7.0, -7])) == 1  # noise below zero

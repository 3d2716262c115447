"""The residual head: leaf tables are trees, and gradients autograd's, device by device."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.paper.whole import Whole, node_features
from tests.strict.classifying import labels_of, rounding, schedule_of, square, squares
from torch import Tensor

from lumos import Forest
from lumos.graph import Graph
from lumos.model import ModelSettings
from lumos.paper.trainer import FullModel
from lumos.strict.classify.encoder import LOSS_LIMIT, LOSS_SCALE
from lumos.strict.classify.evidence import MessageCounts
from lumos.strict.classify.head import HIDDEN, ResidualHead, ResidualInput
from lumos.strict.classify.labels import NO_LABEL
from lumos.strict.classify.stages import TREES

CLASSES, DEVICES = 4, 25
INF = math.inf


def randomness(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def people() -> tuple[np.ndarray, np.ndarray]:
    """Randomized labels, and who validates; others have a label too, or none."""
    rng = randomness(0)
    judges = rng.random(DEVICES) < 0.6
    values = rng.integers(0, CLASSES, DEVICES)
    return np.where(judges | (rng.random(DEVICES) < 0.5), values, NO_LABEL), np.flatnonzero(judges)


class Trees:
    """Devices with one-hot randomized labels, and the network in doubles on their real trees."""

    def __init__(self, backbone: str, *, activate_last: bool = True) -> None:
        self.settings = ModelSettings(
            backbone=backbone, hidden=5, output=6, heads=2, activate_last=activate_last
        )
        self.residual = ResidualHead(self.settings, CLASSES, CLASSES, randomness(1))
        start = self.residual.vector()
        self.vector = start + 0.3 * randomness(2).normal(size=len(start))
        self.residual.load(self.vector)
        rng = randomness(3)
        pairs = rng.integers(1, DEVICES, (40, 2))  # device 0 has no neighbour
        self.graph = Graph.from_edges(pairs, devices=DEVICES)
        graph = self.graph
        self.randomized_labels = rng.integers(0, CLASSES, DEVICES)
        self.predicted = rng.integers(0, CLASSES, DEVICES)
        self.base = rng.normal(size=(DEVICES, CLASSES))
        owner = np.repeat(np.arange(DEVICES), np.diff(graph.offsets))
        kinds = MessageCounts(
            np.eye(CLASSES)[self.randomized_labels[graph.neighbours]], owner, DEVICES
        )
        frequencies = kinds.counts / np.maximum(kinds.received, 1)[:, None]
        self.inputs = ResidualInput(self.base, self.predicted, frequencies, kinds.received)
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
            node_features(
                forest, eye[self.predicted], eye[self.randomized_labels[forest.neighbour]]
            )
        )
        pooled = torch.zeros(DEVICES, nodes.shape[1], dtype=torch.float64)
        degree = torch.tensor(self.inputs.received)[:, None]
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


@pytest.mark.parametrize("epsilon", [2.0, 6.0])
def test_tree_gradients_are_autograds_device_by_device(trees: Trees, epsilon: float) -> None:
    schedule = schedule_of(label_epsilon=epsilon)
    values, judges = people()
    logits, weights = trees.logits()
    rows = trees.residual.update(trees.inputs, labels_of(schedule, values), judges, INF)
    assert rows.shape == (len(judges), trees.residual.width)
    table = torch.from_numpy(schedule.label_form.table(epsilon))
    total: Any = 0.0
    for device, row in zip(judges, rows, strict=True):
        loss = -torch.log(torch.softmax(logits[device], dim=0) @ table[:, values[device]])
        total = total + loss
        expected = flat_gradient(loss, weights)
        mine = trees.residual.gradient(row)
        assert_allclose(mine, expected, rtol=2e-3, atol=2e-6)
        scaled = LOSS_SCALE * min(float(loss.detach()), LOSS_LIMIT)
        assert row[-1] == pytest.approx(scaled, rel=1e-4)
    # The gradient of a sum is the sum of gradients.
    assert_allclose(
        trees.residual.gradient(rows.sum(axis=0)),
        flat_gradient(total, weights),
        rtol=2e-3,
        atol=1e-5,
    )


def flat_gradient(loss: Tensor, weights: list[Tensor]) -> np.ndarray:
    gradients = torch.autograd.grad(loss, weights, retain_graph=True, materialize_grads=True)
    flat: np.ndarray = torch.cat([gradient.flatten() for gradient in gradients]).numpy()
    return flat


@pytest.mark.parametrize("clip", [0.5, 0.05])
def test_updates_are_clipped(trees: Trees, clip: float) -> None:
    schedule = schedule_of()
    values, judges = people()
    labels = labels_of(schedule, values)
    free = trees.residual.update(trees.inputs, labels, judges, INF)
    rows = trees.residual.update(trees.inputs, labels, judges, clip)
    lengths = np.linalg.norm(free, axis=1)
    factors = np.minimum(1, clip / lengths)
    assert (factors < 1).any()
    assert_allclose(rows, free * factors[:, None], rtol=1e-9)
    limit = schedule[TREES].limit(trees.residual.width)
    clipped = trees.residual.update(trees.inputs, labels, judges, limit)
    assert max(squares(schedule, clipped)) <= square(schedule[TREES].sensitivity.norm)


def test_any_division_into_shards_gives_the_same_bits(trees: Trees) -> None:
    schedule = schedule_of()
    values, judges = people()
    whole = trees.residual.update(trees.inputs, labels_of(schedule, values), judges, 0.2)
    logits = trees.residual.logits(trees.inputs)
    for parts in (7, DEVICES):
        sums = []
        for some in np.array_split(np.arange(DEVICES), parts):
            inputs, labels = trees.inputs.of(some), labels_of(schedule, values[some])
            here = np.flatnonzero(np.isin(some, judges))
            vectors = trees.residual.update(inputs, labels, here, 0.2)
            assert_array_equal(vectors, whole[np.isin(judges, some)])
            assert_array_equal(trees.residual.logits(inputs), logits[some])
            sums.append(rounding(schedule)(vectors).sum(axis=0))
        assert_array_equal(np.sum(sums, axis=0), rounding(schedule)(whole).sum(axis=0))


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
    fresh = ResidualHead(made.settings, CLASSES, CLASSES, randomness(1))
    assert np.array_equal(fresh.logits(made.inputs), made.base)
    vector = fresh.vector()
    fresh.load(vector)
    assert np.array_equal(fresh.vector(), vector)

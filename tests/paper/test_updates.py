"""Updates: vectors of single devices, fused sums, masked sums."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.narrow import sparse
from tests.own_parts import MyConv, MyModel, pyg
from tests.runs.running import heard, losses, run
from torch.nn.functional import cross_entropy

from lumos import Graph
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import Shard
from lumos.exchange import TRANSPORTS, Endpoint, Program
from lumos.exchange.transports.loopback import Loopback
from lumos.model.tree_tensors import Trees
from lumos.paper.trainer import FullModel, Weights
from lumos.secagg import (
    AGGREGATORS,
    COORDINATORS,
    FixedPoint,
    IdealAggregator,
    IdealCoordinator,
    SecureAggregator,
)
from lumos.secagg.ideal import IDEAL_TOPICS
from lumos.training.config import Config
from lumos.training.split import Role
from lumos.training.trainer import EpochRecord
from lumos.trees.forest import Forest

SECURE: dict[str, Any] = {"aggregate": "secure", "epochs": 2, "dropout": 0.1, "epsilon": 50.0}


@dataclass
class Sums:
    """Of every epoch: the devices' vectors, their sum, as it is read, the weights after it."""

    vectors: list[dict[int, np.ndarray]] = field(default_factory=list)
    totals: list[np.ndarray] = field(default_factory=list)
    read: list[np.ndarray] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)


@contextmanager
def summing() -> Iterator[Sums]:
    seen, learn, secure = Sums(), Weights.learn, SecureAggregator.sum

    def learnt(self: Weights, total: np.ndarray, epoch: int, *, select: bool) -> EpochRecord:
        read = np.concatenate(deepcopy(self.layout).read(total))
        record = learn(self, total, epoch, select=select)
        if epoch > len(seen.totals):  # of the first shard; all get the same
            seen.totals.append(total.copy())
            seen.read.append(read)
            seen.weights.append(self.optimizer.weights.copy())
        else:
            assert np.array_equal(total, seen.totals[epoch - 1])
            assert np.array_equal(self.optimizer.weights, seen.weights[epoch - 1])
        return record

    def summed(self: SecureAggregator, vectors: np.ndarray, leaves: Any = None) -> Program[Any]:
        if len(seen.vectors) == len(seen.totals):
            seen.vectors.append({})
        mine = zip(self._shard.devices.tolist(), vectors.copy(), strict=True)
        seen.vectors[-1].update(mine)
        return secure(self, vectors, leaves)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Weights, "learn", learnt)
        patch.setattr(SecureAggregator, "sum", summed)
        yield seen


class InTheClear:
    """`IdealAggregator.sum` of the vectors of single devices, in the secure one's place."""

    def __init__(self, shard: Shard, endpoint: Endpoint, settings: Any) -> None:
        self._ideal = IdealAggregator(shard, endpoint, settings)
        self.setup = self._ideal.setup

    def sum_updates(self, update: Any, *_: Any) -> Program[Any]:
        return self._ideal.sum(update(True))


class Permissive(Loopback):
    """Permits the ideal sum, whatever the run asks for."""

    def __init__(self, shards: Any, doors: Any, ideal: Any) -> None:
        super().__init__(shards, doors, {*ideal, *IDEAL_TOPICS})


def fixed_sum(vectors: np.ndarray, **settings: Any) -> np.ndarray:
    """The oracle: whole numbers in Python, added up one by one."""
    updates = Config.of(profile="paper", **settings).updates
    bits = FixedPoint.of(updates, len(vectors)).fraction_bits
    scaled = np.rint(vectors * 2.0**bits).astype(np.int64).astype(object)
    totals = [sum(column.tolist()) for column in scaled.T]
    return np.array(totals, np.float64) * 2.0**-bits


KINDS: list[dict[str, Any]] = [
    {"backbone": "gcn"},
    {"backbone": "gat", "pool": "attention"},
    {"backbone": "sage", "virtual_nodes": False},
    {"task": "link", "pool": "max"},
]
OWN: list[dict[str, Any]] = [
    {"backbone": MyConv, "projection": 8},
    {"backbone": lambda i, o: pyg.GINConv(torch.nn.Linear(i, o), train_eps=True)},
    {"model": MyModel},
]


@pytest.mark.parametrize(
    "kind",
    [*KINDS, *OWN],
    ids=["gcn", "gat", "sage", "link", "own layer", "own factory", "own model"],
)
def test_vectors_of_single_devices_add_up_to_the_fused_sum(
    kind: dict[str, Any], sixty: Graph
) -> None:
    """Within 1e-5 of the largest number and 60 roundings to 2^-22: shares of ±4."""
    settings = {**SECURE, "epochs": 1, **kind}
    if "model" in kind:  # which has its own dropout
        del settings["dropout"]
    with summing() as each:
        run(sixty, **settings)
    with summing() as fused:
        run(sixty, **{**settings, "aggregate": "ideal"})
    scale = np.abs(fused.read[0]).max()
    assert_allclose(each.read[0], fused.read[0], rtol=0, atol=1e-5 * scale + 60 * 2.0**-23)
    assert len(each.vectors[0]) == 60
    assert not fused.vectors


@pytest.mark.parametrize("kind", [*KINDS, OWN[0]], ids=["gcn", "gat", "sage", "link", "own layer"])
@pytest.mark.parametrize("aggregate", ["secure", "ideal"])
def test_local_steps_of_no_length_are_one_step(
    kind: dict[str, Any], aggregate: str, sixty: Graph
) -> None:
    """Gradients of a device's later steps are computed by themselves, and must be the first's."""
    settings = {**SECURE, **kind, "epochs": 1, "aggregate": aggregate, "learning_rate": 1e-12}
    with summing() as one:
        run(sixty, **settings)
    with summing() as three:
        run(sixty, **settings, local_steps=3)
    scale = np.abs(one.read[0]).max()
    assert_allclose(three.read[0], one.read[0], rtol=0, atol=1e-5 * scale)


def test_local_steps_go_down_the_losses_of_single_devices(sixty: Graph) -> None:
    """Devices without edges, and autograd through the whole model, one device after the other."""
    roles, labels = np.arange(60) % 3, np.asarray(sixty.labels)
    graph = Graph.from_edges(
        np.empty((0, 2), np.int64),
        features=sixty.features,
        labels=labels,
        roles=roles,
        name="lone",
    )
    settings: dict[str, Any] = {"epochs": 1, "learning_rate": 0.5, "dropout": 0.0, "seed": 3}
    with summing() as seen:
        trained = run(graph, aggregate="ideal", local_steps=3, **settings)
    model = FullModel(trained.config.model, 600, graph.class_count)
    model.initialise(PublicRandomness(3).generator("weights"))
    start, own = model.vector(), np.asarray(sparse(graph.features).toarray(), np.float32)
    none = np.zeros(1, np.int64)
    tree = Trees.of(Forest(devices=none[:1], owner=none[:0], neighbour=none[:0]))
    expected = np.zeros(len(start))
    for device in np.flatnonzero(roles == Role.TRAIN):
        weights = start
        for _ in range(3):
            model.load(weights)
            leaf = model.network(tree, torch.from_numpy(own[[device]]), torch.empty(0, 600)).own
            assert model.head is not None
            loss = cross_entropy(model.head(leaf), torch.tensor([labels[device]]))
            slope = torch.autograd.grad(loss, list(model.parameters()))
            gradient = torch.cat([part.flatten() for part in slope]).numpy().astype(np.float64)
            expected += gradient / 3
            weights = weights - 0.5 * gradient
    found = seen.read[0][:-4]
    assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", [*KINDS[::3], OWN[0]], ids=["classify", "link", "own layer"])
def test_masked_sums_are_the_fixed_point_sums_bit_by_bit(
    kind: dict[str, Any], sixty: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with summing() as secure:
        masked = run(sixty, **SECURE, **kind)
    for vectors, total in zip(secure.vectors, secure.totals, strict=True):
        assert np.array_equal(total, fixed_sum(np.stack([*vectors.values()]), **kind))
    monkeypatch.setitem(TRANSPORTS._loaded, "loopback", Permissive)
    monkeypatch.setitem(AGGREGATORS, "secure", InTheClear)
    monkeypatch.setitem(COORDINATORS, "secure", IdealCoordinator)
    with summing() as clear:
        plain = run(sixty, **SECURE, **kind)
    for one, other in zip(secure.weights, clear.weights, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(masked.embeddings, plain.embeddings)
    assert losses(masked) == losses(plain)


def test_masked_runs_are_close_to_fused_ones(sixty: Graph) -> None:
    """Weights within 1e-4 after 4 steps of 0.01: Adam magnifies gradients near 0."""
    with summing() as secure:
        masked = run(sixty, **{**SECURE, "epochs": 4})
    with summing() as ideal:
        fused = run(sixty, **{**SECURE, "epochs": 4, "aggregate": "ideal"})
    assert_allclose(losses(masked), losses(fused), rtol=1e-5)
    near = np.abs(secure.weights[-1] - ideal.weights[-1])
    assert np.quantile(near, 0.99) < 1e-4
    assert near.max() <= 4 * 2 * 0.01  # no further than steps in opposite directions


def test_two_runs_with_one_seed_send_different_masked_vectors_with_equal_sums(
    sixty: Graph,
) -> None:
    with summing() as first:
        one, left = heard(sixty, **SECURE)
    with summing() as second:
        two, right = heard(sixty, **SECURE)
    assert all(map(np.array_equal, first.totals, second.totals))
    assert all(map(np.array_equal, first.weights, second.weights))
    assert np.array_equal(one.embeddings, two.embeddings)
    masked = [wire.all_of("aggregate/masked") for wire in (left, right)]
    assert len(masked[0]) == len(masked[1]) == 2 * 60
    for mine, other in zip(*masked, strict=True):
        assert mine.sender == other.sender
        assert mine.body != other.body
        words = len(mine.body) // 4 * 4  # numbers have 4 bytes, of which few coincide by chance
        numbers = [np.frombuffer(m.body[:words], np.uint8).reshape(-1, 4) for m in (mine, other)]
        assert (numbers[0] == numbers[1]).all(axis=1).sum() <= 2


@pytest.mark.usefixtures("must_end")
def test_sixty_devices_on_their_own_mask_their_updates(sixty: Graph) -> None:
    with summing() as alone:
        many = run(sixty, shards=60, **SECURE)
    with summing() as together:
        one = run(sixty, **SECURE)
    for vectors, total in zip(alone.vectors, alone.totals, strict=True):
        assert np.array_equal(total, fixed_sum(np.stack([*vectors.values()])))
    assert_allclose(losses(many), losses(one), rtol=1e-5)
    scale = np.abs(together.read[0]).max()
    assert_allclose(alone.read[0], together.read[0], rtol=0, atol=1e-5 * scale)


def test_a_secure_run_says_that_nobody_saw_an_update(sixty: Graph) -> None:
    result, wire = heard(sixty, **SECURE)
    assert "by masked sums" in result.model.exposed
    assert "aggregate/clear-sum/ideal" not in wire.topics()
    assert not any(line.ideal for line in result.ledger.topics.values())
    ideal = run(sixty, **{**SECURE, "aggregate": "ideal"})
    assert "in the clear by the simulation" in ideal.model.exposed
    assert ideal.ledger.topics["aggregate/masked/ideal"].ideal
    assert (
        result.ledger.topics["aggregate/masked"].bytes
        == ideal.ledger.topics["aggregate/masked/ideal"].bytes
    )

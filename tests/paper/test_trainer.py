"""Gradients through POOL and the exchange against autograd of the model in one piece."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from tests.narrow import sparse
from tests.paper.whole import Whole
from tests.runs.running import Message, Wire, listening
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from lumos import Forest, Graph, TreeSettings, balance
from lumos.device.randomness import PublicRandomness
from lumos.exchange import Program
from lumos.ldp import Messages, read, recover
from lumos.model import Pooling
from lumos.paper.profile import settings_of
from lumos.paper.trainer import FullModel
from lumos.runs.loop import fit
from lumos.secagg import IdealAggregator
from lumos.training.config import Config
from lumos.training.problem import Problem
from lumos.training.split import Role, split_vertices

SEED = 3
NO_PAIRS = np.empty((0, 2), np.int64)
CLEAR = {
    "profile": "paper",
    "epsilon": float("inf"),
    "dropout": 0.0,
    "epochs": 2,
    "learning_rate": 0.3,
}


@dataclass
class HandedIn:
    """The trainers' vectors in the sum of every epoch, and their weights."""

    weights: list[np.ndarray] = field(default_factory=list)
    vectors: list[np.ndarray] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[HandedIn]:
    seen, load, sum_fused = HandedIn(), FullModel.load, IdealAggregator.sum_fused

    def loaded(self: FullModel, vector: np.ndarray) -> None:
        seen.weights.append(vector.copy())
        load(self, vector)

    def handed(self: IdealAggregator, partial: np.ndarray) -> Program[Any]:
        seen.vectors.append(partial.copy())
        return sum_fused(self, partial)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FullModel, "load", loaded)
        patch.setattr(IdealAggregator, "sum_fused", handed)
        yield seen


def problem_of(graph: Graph, config: Config) -> Problem:
    link = config.train.task == "link"
    labels = np.asarray(graph.labels)
    return Problem.of(
        graph=graph,
        keep=balance(graph, TreeSettings(balancer="greedy", compare="ideal"), seed=SEED).keep,
        roles=np.full(graph.devices, Role.NOBODY)
        if link
        else split_vertices(labels, PublicRandomness(SEED)),
        held_back=NO_PAIRS,
        classes=0 if link else graph.class_count,
        seed=SEED,
        shards=1,
    )


def classify_loss(whole: Whole, embeddings: Tensor, problem: Problem) -> Tensor:
    (part,) = problem.parts
    train = part.roles == Role.TRAIN
    labels = torch.from_numpy(part.labels[train])
    return cross_entropy(whole.logits(embeddings)[train], labels, reduction="sum")


def link_loss(embeddings: Tensor, asked: list[Message], forest: Forest) -> Tensor:
    """Who is asked is in the messages; who is a neighbour is in the graph."""
    kept = set(zip(forest.owner.tolist(), forest.neighbour.tolist(), strict=True))
    loss = embeddings.new_zeros(())
    for asker, peer, *_ in asked:
        score = embeddings[asker] @ embeddings[peer]
        loss = loss - logsigmoid(score if (asker, peer) in kept else -score)
    return loss


def check(graph: Graph, leaf: Any = None, **settings: Any) -> None:
    """Every epoch's handed-in vector is autograd's gradient, loss and count."""
    config = Config.of(**{**CLEAR, **settings})
    problem = problem_of(graph, config)
    with listening() as wire, watching() as seen:
        fit(problem, config, variant="run")
    forest = Forest.grow(
        np.arange(graph.devices),
        graph.offsets,
        graph.neighbours,
        problem.keep[0],
        virtual_nodes=settings_of(config).virtual_nodes,
    )
    own = torch.from_numpy(np.asarray(sparse(graph.features).toarray(), np.float64))
    on_leaf = (
        own[torch.from_numpy(forest.neighbour)] if leaf is None else leaf(wire, forest, config)
    )
    asked = wire.of("train/ask")
    assert len(seen.vectors) == config.train.epochs
    for epoch, vector in enumerate(seen.vectors):
        model = FullModel(config.model, graph.feature_count, problem.classes)
        model.load(seen.weights[epoch])
        whole = Whole(model, forest)
        embeddings = whole.embeddings(own, on_leaf)
        if config.train.task == "classify":
            loss, count = classify_loss(whole, embeddings, problem), problem.training
        else:
            loss, count = link_loss(embeddings, asked[epoch], forest), len(asked[epoch])
        expected = whole.gradient(loss).numpy()
        scale = np.abs(expected).max()
        assert scale > 0.1
        assert_allclose(vector[: len(expected)] / scale, expected / scale, rtol=0, atol=1e-5)
        assert_allclose(vector[-4:-2], [loss.item(), count], rtol=1e-5)


TASK_OF = dict(zip(get_args(Pooling), ("classify", "link") * 2, strict=True))


@pytest.mark.parametrize(
    ("pool", "backbone", "task"),
    [
        # The task comes after the pooling: each pooling is tried with one, each task with both.
        pytest.param(pool, backbone, task, marks=() if task == TASK_OF[pool] else pytest.mark.long)
        for pool in get_args(Pooling)
        for backbone in ("gcn", "gat")
        for task in ("classify", "link")
    ],
)
def test_gradients_are_those_of_the_model_in_one_piece(
    pool: Pooling, backbone: str, task: str, sixty: Graph
) -> None:
    check(sixty, pool=pool, backbone=backbone, task=task)


@pytest.mark.parametrize("task", ["classify", "link"])
@pytest.mark.parametrize("layers", [1, 3])
def test_whatever_the_depth(layers: int, task: str, sixty: Graph) -> None:
    check(sixty, layers=layers, task=task)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_on_stars_too(backbone: str, sixty: Graph) -> None:
    check(sixty, virtual_nodes=False, backbone=backbone)


def on_leaves(wire: Wire, forest: Forest, config: Config) -> Tensor:
    """[branches, d] x'' from the messages, the letter of the paper."""
    received = {(one.receiver, one.sender): one.body for one in wire.all_of("train/features")}
    bodies = [
        received[branch]
        for branch in zip(forest.owner.tolist(), forest.neighbour.tolist(), strict=True)
    ]
    messages = Messages(
        offsets=np.cumsum([0, *map(len, bodies)]),
        data=np.frombuffer(b"".join(bodies), np.uint8),
    )
    recovered = recover(read(messages, 600, noisy=True), settings_of(config))
    return torch.from_numpy(recovered.dense().astype(np.float64))


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_with_noise_too(backbone: str, sixty: Graph) -> None:
    check(sixty, on_leaves, epsilon=200.0, recovery="literal", backbone=backbone)

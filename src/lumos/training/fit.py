"""One model trained on one set of trees: shards, carrier, checkpoints. The observer looks on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard, cut
from lumos.errors import InputError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger import LedgerReport
from lumos.exchange.loopback import Loopback
from lumos.graph import Graph
from lumos.training.folder import Arrays, RunFolder
from lumos.training.home import Home, homes
from lumos.training.model import Model
from lumos.training.settings import PROFILES, Config
from lumos.training.worker import Epoch, Worker, coordinate_epochs, coordinator_of

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """What a federation is to learn: everything but how."""

    graph: Graph
    """The graph that the federation is cut from; of training edges only, for link."""
    keep: Flags = field(repr=False)
    """[2 · edges] who carries which edge."""
    roles: Ints = field(repr=False)
    """[devices] for classify."""
    held_back: Ints = field(repr=False)
    """[pairs, 2] validation edges, for link."""
    classes: int
    """0 for link."""
    seed: int
    shards: int

    alone: bool = False
    """Whether trees have no neighbours at all: own features only."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """A trained model, as the observer sees it."""

    model: Model = field(repr=False)
    """With the selected weights."""
    best_epoch: int
    """The epoch whose weights were selected."""
    embeddings: Floats = field(repr=False)
    """[devices, width]"""
    history: list[dict[str, Any]] = field(repr=False)
    """One record per epoch: epoch, loss, score, seconds."""
    ledger: LedgerReport = field(repr=False)
    """Everything that passed."""
    per_epoch: dict[str, float]
    """Messages, bytes and rounds of one epoch: mean and largest over devices."""
    seconds: float
    """Of all epochs, over all sessions of an interrupted run."""
    setup_seconds: float


Told = Callable[[dict[str, Any]], None]


def fit(
    problem: Problem,
    config: Config,
    *,
    control: bool = False,
    folder: RunFolder | None = None,
    resume: bool = False,
    told: Told | None = None,
) -> Fitted:
    """Train, from the beginning or from the last checkpoint in `folder`.

    Args:
        problem: graph, trees, split.
        config: settings.
        control: releases that say nothing.
        folder: where metrics and checkpoints go.
        resume: go on from the checkpoint, if there is one.
        told: hears of each epoch.
    """
    return _Fit(problem, config, control, folder, resume, told).run()


class _Fit:
    def __init__(
        self,
        problem: Problem,
        config: Config,
        control: bool,
        folder: RunFolder | None,
        resume: bool,
        told: Told | None,
    ) -> None:
        self.config = config
        self.problem = problem
        self.folder = folder
        self.told = told
        graph = problem.graph
        shards = cut(graph, problem.shards, problem.seed, config.trees.coins)
        self.carrier = Loopback(shards, PROFILES[config.train.profile].doors)
        owned = _homes(problem, shards)
        self.workers = {
            id(shard): Worker(shard, endpoint, home, config, problem.classes, control=control)
            for shard, endpoint, home in zip(shards, self.carrier.endpoints, owned, strict=True)
        }
        self.first = self.workers[id(shards[0])]
        self.shards = shards
        public = PublicCoins(problem.seed)
        self.coordinator = coordinator_of(config, graph.devices, public, self.carrier.coordinator)
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.saved = folder.checkpoint() if folder is not None and resume else None
        if folder is not None and self.saved is None:
            folder.keep_metrics(0)

    def run(self) -> Fitted:
        start = time.perf_counter()
        self._together(Worker.setup)
        setup_seconds = time.perf_counter() - start
        before = self.carrier.ledger()
        if self.saved is not None:
            self._restore(self.saved)
        epochs, each = self.config.train.epochs, self.config.train.checkpoint_every
        while len(self.history) < epochs:
            done = len(self.history)
            last = min(epochs, done + each)
            self._segment(done, last)
            if self.folder is not None:
                self.folder.save_checkpoint(self._state())
        after = self.carrier.ledger()
        found = self._together(Worker.embeddings)
        embeddings = np.empty((self.problem.graph.devices, self.config.model.output), np.float32)
        for shard, some in zip(self.shards, found, strict=True):
            embeddings[shard.devices] = some.numpy()
        return Fitted(
            model=self.first.model,
            best_epoch=self.first.weights.best_epoch,
            embeddings=embeddings,
            history=self.history,
            ledger=self.carrier.ledger(),
            per_epoch=_per_epoch(before, after, epochs),
            seconds=self.seconds,
            setup_seconds=setup_seconds,
        )

    def _together(self, part: Callable[[Worker], Program[Any]]) -> list[Any]:
        """A part in which the coordinator has none."""
        results, _ = self.carrier.run(
            lambda shard, _: part(self.workers[id(shard)]), lambda _: _no_part()
        )
        return results

    def _segment(self, first: int, last: int) -> None:
        clock = time.perf_counter()

        def told(epoch: Epoch) -> None:
            nonlocal clock
            now = time.perf_counter()
            record = {**epoch._asdict(), "seconds": round(now - clock, 4)}
            self.seconds += now - clock
            clock = now
            self.history.append(record)
            if self.folder is not None:
                self.folder.add_metrics(record)
            if self.told is not None:
                self.told(record)

        def devices(shard: Shard, _: Endpoint) -> Program[None]:
            worker = self.workers[id(shard)]
            return worker.epochs(first, last, told if worker is self.first else None)

        self.carrier.run(
            devices,
            lambda _: coordinate_epochs(self.coordinator, self.first.model.weights, last - first),
        )

    def _state(self) -> Arrays:
        """Everything that the next epochs depend on, and the ledgers."""
        weights = self.first.weights
        adam = weights.adam
        state: Arrays = {
            "epoch": np.array(len(self.history)),
            "seconds": np.array(self.seconds),
            "weights": adam.weights,
            "mean": adam.mean,
            "square": adam.square,
            "best": weights.best,
            "best_score": np.array(weights.best_score),
            "best_epoch": np.array(weights.best_epoch),
        }
        for number, endpoint in enumerate([*self.carrier.endpoints, self.carrier.coordinator]):
            for key, counts in endpoint.ledger.state().items():
                state[f"ledger/{number}/{key}"] = counts
        return state

    def _restore(self, state: Arrays) -> None:
        expected = self._state()
        if not state.keys() >= {key for key in expected if not key.startswith("ledger/")}:
            raise InputError("checkpoint.npz: something is missing in it; start anew")
        if state["weights"].shape != expected["weights"].shape:
            raise InputError("checkpoint.npz: it is of another model; start anew")
        epoch = int(state["epoch"])
        if self.folder is not None:
            self.history = self.folder.keep_metrics(epoch)
        self.seconds = float(state["seconds"])
        for worker in self.workers.values():
            weights = worker.weights
            weights.adam.weights = state["weights"]
            weights.adam.mean, weights.adam.square = state["mean"], state["square"]
            weights.adam.steps = epoch
            weights.best = state["best"]
            weights.best_score = float(state["best_score"])
            weights.best_epoch = int(state["best_epoch"])
        for number, endpoint in enumerate([*self.carrier.endpoints, self.carrier.coordinator]):
            prefix = f"ledger/{number}/"
            endpoint.ledger.restore(
                {
                    key.removeprefix(prefix): counts
                    for key, counts in state.items()
                    if key.startswith(prefix)
                }
            )


def _per_epoch(before: LedgerReport, after: LedgerReport, epochs: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("messages_sent", "messages_received", "bytes_sent", "bytes_received"):
        of_devices = (getattr(after, name) - getattr(before, name)) / epochs
        found[f"{name}_mean"] = round(float(of_devices.mean()), 3)
        found[f"{name}_largest"] = round(float(of_devices.max()), 3)
    found["rounds"] = (after.rounds - before.rounds) / epochs
    return found


def _homes(problem: Problem, shards: list[Shard]) -> list[Home]:
    return homes(
        problem.graph,
        shards,
        problem.keep,
        problem.roles,
        problem.held_back,
        alone=problem.alone,
    )


def _no_part() -> Program[None]:
    yield from ()


def embeddings_of(
    problem: Problem, config: Config, vector: Any, *, step: int
) -> tuple[Floats, LedgerReport]:
    """Embeddings of all devices by given weights: a fresh release, then one forward pass.

    Args:
        vector: [weights].
        step: number of the release: each pays ε again.
    """
    shards = cut(problem.graph, problem.shards, problem.seed, config.trees.coins)
    carrier = Loopback(shards, PROFILES[config.train.profile].doors)
    owned = _homes(problem, shards)
    given = {id(shard): home for shard, home in zip(shards, owned, strict=True)}

    def devices(shard: Shard, endpoint: Endpoint) -> Program[torch.Tensor]:
        worker = Worker(shard, endpoint, given[id(shard)], config, problem.classes, step=step)
        worker.weights.best = vector
        yield from worker.receive_features()
        return (yield from worker.embeddings())

    found, _ = carrier.run(devices, lambda _: _no_part())
    embeddings = np.empty((problem.graph.devices, config.model.output), np.float32)
    for shard, some in zip(shards, found, strict=True):
        embeddings[shard.devices] = some.numpy()
    return embeddings, carrier.ledger()

"""One model trained over one federation: shards, carrier, checkpoints. The observer looks on."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import torch

from lumos.device.coins import PublicCoins
from lumos.device.shard import cut
from lumos.errors import InputError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger import LedgerReport
from lumos.exchange.loopback import Loopback
from lumos.graph import Graph
from lumos.paper.trainer import PaperCoordinator, PaperTrainer
from lumos.runs.folder import RunFolder, fingerprint
from lumos.strict.settings import of_coins
from lumos.training.epoch import EpochRecord
from lumos.training.private_data import PrivateData, split_private_data
from lumos.training.settings import PROFILES, UPDATES, Config
from lumos.training.split import Role
from lumos.typing import Arrays, Flags, Floats, Ints


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
    owner: str = ""
    """Fingerprint of the whole graph, whose devices keep a book; that of `graph`, if empty."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """A trained model, as the observer sees it."""

    results: Any = field(repr=False)
    """What the worker of each shard returned, in the order of the devices: an array, or a tuple."""
    arrays: Arrays = field(repr=False)
    """The trained weights by name."""
    worker: Any = field(repr=False)
    """The worker of the first shard."""
    history: list[dict[str, Any]] = field(repr=False)
    """One record per epoch: epoch, loss, score, seconds."""
    ledger: LedgerReport = field(repr=False)
    """Everything that passed."""
    per_epoch: dict[str, float]
    """Messages, bytes and rounds of one epoch: mean and largest over devices."""
    seconds: float
    """Of all epochs, over all sessions of an interrupted run."""


class Trainer(Protocol):
    """The program of a shard, in parts between which a run can be interrupted."""

    def setup(self) -> Program[None]:
        """Before the first epoch."""
        ...

    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`, instead of `epoch` epochs."""
        ...

    def epochs(
        self, first: int, last: int, told: Callable[[EpochRecord], None] | None = None
    ) -> Program[None]:
        """Epochs `first` + 1 … `last`."""
        ...

    def finish(self) -> Program[Any]:
        """After the last epoch: arrays over the hosted devices."""
        ...

    def state(self) -> Arrays:
        """Everything that the next epochs depend on; the same at every shard."""
        ...

    def restore(self, state: Arrays) -> None:
        """Go on from a state."""
        ...

    def arrays(self) -> Arrays:
        """The trained weights by name."""
        ...


class Helper(Protocol):
    """The coordinator's program, in the same parts."""

    def setup(self) -> Program[None]:
        """Before the first epoch."""
        ...

    def epochs(self, first: int, last: int) -> Program[None]:
        """Epochs `first` + 1 … `last`."""
        ...

    def finish(self) -> Program[None]:
        """After the last epoch."""
        ...


Told = Callable[[dict[str, Any]], None]


class Federation:
    """Shards, their trainers, the coordinator and the carrier of one run.

    Args:
        problem: graph, trees, split.
        config: settings.
        control: releases that say nothing.
        step: number of the release, where it is a further one.
    """

    def __init__(
        self, problem: Problem, config: Config, *, control: bool = False, step: int = 0
    ) -> None:
        self.problem = problem
        self.config = config
        graph = problem.graph
        self._arm = _arm(problem, config, control)
        self.shards = cut(graph, problem.shards, problem.seed, config.train.coins, self._arm)
        self.carrier = Loopback(self.shards, PROFILES[config.train.profile].doors)
        owned = split_private_data(
            graph,
            self.shards,
            problem.keep,
            problem.roles,
            problem.held_back,
            alone=problem.alone,
        )
        public = PublicCoins(problem.seed)
        make = self._strict if config.train.profile == "strict" else self._paper
        trainers, self.helper = make(owned, public, control, step)
        self._of = {id(s): trainer for s, trainer in zip(self.shards, trainers, strict=True)}
        self.trainers = trainers

    def _paper(
        self, owned: list[PrivateData], public: PublicCoins, control: bool, step: int
    ) -> tuple[list[Any], Helper]:
        config, classes = self.config, self.problem.classes
        workers = [
            PaperTrainer(shard, endpoint, home, config, classes, control=control, step=step)
            for shard, endpoint, home in zip(
                self.shards, self.carrier.endpoints, owned, strict=True
            )
        ]
        weights = workers[0].model.weights
        total = self.problem.graph.devices
        return workers, PaperCoordinator(config, total, public, self.carrier.coordinator, weights)

    def _strict(
        self, owned: list[PrivateData], public: PublicCoins, control: bool, step: int
    ) -> tuple[list[Any], Helper]:
        from lumos.strict import classify, link
        from lumos.strict.release_book import ReleaseBook
        from lumos.strict.schedule import Schedule
        from lumos.strict.trainer import StrictCoordinator

        graph, classes = self.problem.graph, self.problem.classes
        labels = self.config.train.task == "classify"
        trainers = int((self.problem.roles == Role.TRAIN).sum()) if labels else graph.devices
        plan = Schedule(self.config, graph.devices, trainers)
        strict = self.config.strict
        book = None
        if strict.book is not None:
            owner = self.problem.owner or fingerprint(graph)
            # Whoever has fresh coins is another run, whatever its settings.
            fresh = os.urandom(8).hex() if self.config.train.coins == "system" else ""
            run = f"{self.problem.seed}{self._arm}{fresh}"
            book = ReleaseBook(strict.book, owner, graph.devices, strict.lifetime_epsilon, run)
        workers = [
            classify.StrictClassifier(
                shard, endpoint, home, plan, classes, book=book, control=control
            )
            if labels
            else link.StrictLinker(shard, endpoint, home, plan, book=book, control=control)
            for shard, endpoint, home in zip(
                self.shards, self.carrier.endpoints, owned, strict=True
            )
        ]
        coordinator = StrictCoordinator(
            plan,
            public,
            self.carrier.coordinator,
            graph.feature_count,
            lambda used: (
                classify.widths(plan, public, classes, used)
                if labels
                else link.widths(plan, public, used)
            ),
            self._arm,
        )
        return workers, coordinator

    def together(
        self,
        devices: Callable[[Any], Program[Any]],
        coordinator: Callable[[Helper], Program[None]] | None = None,
    ) -> list[Any]:
        """Run one part of the programs."""
        results, _ = self.carrier.run(
            lambda shard, _: devices(self._of[id(shard)]),
            lambda _: _no_part() if coordinator is None else coordinator(self.helper),
        )
        return results

    def gathered(self, found: list[Any]) -> Any:
        """What the shards found, in the order of the devices."""
        if hasattr(found[0], "gathered"):
            devices = np.concatenate([shard.devices for shard in self.shards])
            return found[0].gathered(found, np.argsort(devices))
        if isinstance(found[0], tuple):
            return type(found[0])(*(self._joined(list(part)) for part in zip(*found, strict=True)))
        return self._joined(found)

    def _joined(self, parts: list[Any]) -> Floats:
        rows = [part.numpy() if isinstance(part, torch.Tensor) else part for part in parts]
        whole = np.empty((self.problem.graph.devices, rows[0].shape[1]), rows[0].dtype)
        for shard, some in zip(self.shards, rows, strict=True):
            whole[shard.devices] = some
        return whole


def _arm(problem: Problem, config: Config, control: bool) -> str:
    """Whose coins a simulation tosses.

    Two releases, or two sums with noise, from the same coins tell more than both promise. So the
    control has coins of its own, and so has every strict run that differs in anything: a run with
    one seed repeats itself exactly, and shares no coin with another.
    """
    own = "/control" if control else ""
    if config.train.profile == "strict":
        settings = of_coins(config.flat())
        parts = [fingerprint(problem.graph), repr(sorted(settings.items()))]
        if config.updates != UPDATES:
            parts.append(repr(config.updates))
        labels = problem.graph.labels
        unused = 0 if labels is None else problem.classes - 1 - int(labels.max(initial=-1))
        if unused:
            parts.append(f"{unused} classes that no device has")
        own += "/" + blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()
    return own


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
    return _Fit(Federation(problem, config, control=control), folder, told).run(resume)


class _Fit:
    def __init__(self, federation: Federation, folder: RunFolder | None, told: Told | None) -> None:
        self.federation = federation
        self.folder = folder
        self.told = told
        self.first: Trainer = federation.trainers[0]
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0

    def run(self, resume: bool) -> Fitted:
        federation, train = self.federation, self.federation.config.train
        saved = self.folder.checkpoint() if self.folder is not None and resume else None
        if self.folder is not None and saved is None:
            self.folder.keep_metrics(0)
        federation.together(lambda trainer: trainer.setup(), lambda helper: helper.setup())
        before = federation.carrier.ledger()
        if saved is not None:
            self._restore(saved)
        while (done := len(self.history)) < (last := self._last()):
            self._segment(done, min(last, done + train.checkpoint_every))
            if self.folder is not None:
                self.folder.save_checkpoint(self._state())
        after = federation.carrier.ledger()
        found = federation.together(
            lambda trainer: trainer.finish(), lambda helper: helper.finish()
        )
        return Fitted(
            results=federation.gathered(found),
            arrays=self.first.arrays(),
            worker=self.first,
            history=self.history,
            ledger=federation.carrier.ledger(),
            per_epoch=_per_epoch(before, after, len(self.history)),
            seconds=self.seconds,
        )

    def _last(self) -> int:
        """The last epoch, as far as is known: it moves on with every better score."""
        train = self.federation.config.train
        if not train.patience:
            return train.epochs
        return min(train.epochs, int(self.first.state()["best_epoch"]) + train.patience)

    def _segment(self, first: int, last: int) -> None:
        clock = time.perf_counter()

        def told(epoch: EpochRecord) -> None:
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

        self.federation.together(
            lambda trainer: trainer.epochs(first, last, told if trainer is self.first else None),
            lambda helper: helper.epochs(first, last),
        )

    def _endpoints(self) -> list[Endpoint]:
        carrier = self.federation.carrier
        return [*carrier.endpoints, carrier.coordinator]

    def _state(self) -> Arrays:
        """Everything that the next epochs depend on, and the ledgers."""
        state = {f"trainer/{key}": array for key, array in self.first.state().items()}
        state |= {"epoch": np.array(len(self.history)), "seconds": np.array(self.seconds)}
        for number, endpoint in enumerate(self._endpoints()):
            for key, counts in endpoint.ledger.state().items():
                state[f"ledger/{number}/{key}"] = counts
        return state

    def _restore(self, state: Arrays) -> None:
        expected = self._state()
        if not state.keys() >= {key for key in expected if not key.startswith("ledger/")}:
            raise InputError("checkpoint.npz: something is missing in it; start anew")
        mine = _part(state, "trainer/")
        epoch = int(state["epoch"])
        for key, array in self.first.state().items():
            if array.size and mine[key].shape != array.shape:
                raise InputError("checkpoint.npz: it is of another model; start anew")
        if self.folder is not None:
            self.history = self.folder.keep_metrics(epoch)
        self.seconds = float(state["seconds"])
        for trainer in self.federation.trainers:
            trainer.restore(mine)
        self.federation.together(lambda trainer: trainer.rejoin(epoch))
        for number, endpoint in enumerate(self._endpoints()):
            endpoint.ledger.restore(_part(state, f"ledger/{number}/"))


def _part(state: Arrays, prefix: str) -> Arrays:
    return {
        key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)
    }


def _per_epoch(before: LedgerReport, after: LedgerReport, epochs: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("messages_sent", "messages_received", "bytes_sent", "bytes_received"):
        of_devices = (getattr(after, name) - getattr(before, name)) / epochs
        found[f"{name}_mean"] = round(float(of_devices.mean()), 3)
        found[f"{name}_largest"] = round(float(of_devices.max()), 3)
    found["rounds"] = (after.rounds - before.rounds) / epochs
    return found


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
    federation = Federation(problem, config, step=step)
    for worker in federation.trainers:
        worker.weights.best = vector
    federation.together(lambda worker: worker.receive_features())
    found = federation.together(lambda worker: worker.finish())
    embeddings: Floats = federation.gathered(found)
    return embeddings, federation.carrier.ledger()

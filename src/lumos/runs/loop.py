"""A federation: shards, their trainers, the coordinator and the transport of one run."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from lumos.device.shard import shard_of
from lumos.errors import InputError, ProtocolError, UsageError
from lumos.exchange.endpoint import Program, idle_program
from lumos.exchange.ledger import ROUND, Ledger
from lumos.exchange.observer import LedgerReport, Observer
from lumos.exchange.transports import TRANSPORTS
from lumos.graph.arrays import IdTexts, spans
from lumos.machine import cpu_seconds, peak_rss_mb
from lumos.ranks.world import note_phase
from lumos.runs.folder import RunFolder, keeps_device_values
from lumos.runs.schema import RankCost, TreeSummary
from lumos.secagg.ideal import IDEAL_TOPICS as IDEAL_SUMS
from lumos.storage import part_of
from lumos.training.config import Config
from lumos.training.problem import Problem
from lumos.training.split import EdgeSplit
from lumos.training.trainer import (
    CONTROL,
    MAIN,
    OWN,
    CoordinatorProgram,
    EpochCallback,
    EpochEvent,
    EpochRecord,
    Outcome,
    Result,
    Trainer,
)
from lumos.trees.balance import Balanced, BalancedParts, balance_parts, in_slots
from lumos.twoparty.score import IDEAL_TOPICS as IDEAL_SCORES
from lumos.typing import Arrays, Flags, Floats, Ints, Progress

Answer = TypeVar("Answer")

IDEAL_TOPICS = IDEAL_SUMS | IDEAL_SCORES
"""Topics that a transport permits where a simulation computes in the clear."""


class Federation(Generic[Result]):
    """The participants of one run that this process hosts: all of them, or a rank's own.

    Args:
        problem: graph, trees, split.
        config: settings.
        control: releases carry no information.
        step: number of the release, where it is a further one.
        transport: what moves the messages, a name of `TRANSPORTS`.
        randomness: names the randomness of simulated devices; by default as the profile does, so
            that no two runs share any.
    """

    def __init__(
        self,
        problem: Problem,
        config: Config,
        *,
        control: bool = False,
        step: int = 0,
        transport: str = "loopback",
        randomness: str | None = None,
    ) -> None:
        profile = config.profile
        self.problem = problem
        self.config = config
        randomness = (
            profile.randomness(problem, config, control=control)
            if randomness is None
            else randomness
        )
        self.shards = [
            shard_of(part, problem.seed, config.train.randomness, randomness)
            for part in problem.parts
        ]
        ideal = IDEAL_TOPICS if config.train.aggregate == "ideal" else frozenset()
        self.transport = TRANSPORTS[transport](self.shards, profile.doors, ideal)
        self.observer = self.transport.observer
        self.trainers: list[Trainer[Result]]
        self.trainers, self.coordinator = profile.programs(
            problem,
            config,
            self.shards,
            self.transport.endpoints,
            self.transport.coordinator,
            randomness=randomness,
            control=control,
            step=step,
        )
        self._trainer_of = {
            id(shard): trainer for shard, trainer in zip(self.shards, self.trainers, strict=True)
        }

    @property
    def first_trainer(self) -> Trainer[Result]:
        """The trainer of the first shard: weights are public, so it stands for all."""
        return self.trainers[0]

    def run(
        self,
        devices: Callable[[Trainer[Result]], Program[Answer]],
        coordinator: Callable[[CoordinatorProgram], Program[None]] | None = None,
    ) -> list[Answer]:
        """Run one part of the programs; what each shard returned."""
        answers, _ = self.transport.run(
            lambda shard, _: devices(self._trainer_of[id(shard)]),
            lambda _: idle_program() if coordinator is None else coordinator(self.coordinator),
        )
        return answers

    def finish(self) -> Outcome | None:
        """Run the last part; what the observer makes of it, None elsewhere than at rank 0."""
        results = self.run(lambda trainer: trainer.finish(), lambda program: program.finish())
        ledger = self.ledger()
        rows = self.rows("results", [result.state_dict() for result in results])
        if rows is None:
            return None
        return self.first_trainer.outcome(results[0].load_state_dict(rows), ledger)

    def predict_new_devices(self) -> Floats:
        """[devices, classes] logits by weights that were loaded before."""
        parts = self.run(lambda trainer: trainer.predict_new_devices())
        rows = self.rows("logits", [{"logits": logits} for logits in parts])
        if rows is None:
            raise UsageError("new devices are predicted in one process; leave out `ranks`")
        return rows["logits"]

    def rows(self, name: str, parts: Sequence[Arrays]) -> Arrays | None:
        """[devices, …] rows of all shards in the order of the ids; None elsewhere than at rank 0.

        Args:
            name: what is gathered.
            parts: for each shard of this process [hosted, …], by name.
        """
        placed = [
            {**part, "devices": shard.devices}
            for part, shard in zip(parts, self.shards, strict=True)
        ]
        gathered = self.observer.gather(name, placed)
        return in_order(gathered) if self.observer.first else None

    def ledger(self) -> LedgerReport:
        """Everything that passed so far; elsewhere than at rank 0, what this shard did."""
        return self.transport.ledger()

    def ledger_state(self) -> Arrays:
        """Flows and rounds of all devices, and of the coordinator, for a checkpoint."""
        states = [endpoint.ledger.state_dict() for endpoint in self.transport.endpoints]
        rounds = {f"ledger/{ROUND}": state.pop(ROUND) for state in states}
        gathered = self.observer.gather(
            "ledgers",
            [
                {**state, "devices": shard.devices}
                for state, shard in zip(states, self.shards, strict=True)
            ],
        )
        if not self.observer.first:
            return {}
        names = sorted({name for part in gathered for name in part} - {"devices"})
        whole: Arrays = {}
        for name in names:
            counts = np.zeros(self.problem.facts.devices, np.int64)
            for part in gathered:
                if name in part:
                    counts[part["devices"]] = part[name]
            whole[f"ledger/{name}"] = counts
        own = self.transport.coordinator.ledger.state_dict()
        return whole | rounds | {f"coordinator/{name}": counts for name, counts in own.items()}

    def scattered(self, state: Arrays | None) -> list[Arrays] | None:
        """A checkpoint that rank 0 read, for each shard of this process: rows of its devices.

        Raises:
            InputError: its ledgers are of another graph.
        """
        total = self.problem.facts.devices
        hosted = self.observer.gather("hosted", [{"ids": shard.devices} for shard in self.shards])
        parts = None
        if state is not None:
            of_devices = {name for name in state if name.startswith("ledger/")}
            of_devices.discard(f"ledger/{ROUND}")
            known = list(state.items())
            if any(state[name].shape != (total,) for name in of_devices):
                raise InputError("checkpoint.npz is of another ledger; restart without `resume`")
            parts = [
                {name: rows[part["ids"]] if name in of_devices else rows for name, rows in known}
                for part in hosted
            ]
        return self.observer.scatter("checkpoint", parts)

    def fits(self, states: Sequence[Arrays]) -> bool:
        """Return True if ledgers of a checkpoint, as `scattered` gave it, match this run."""
        return all(ledger.fits(part) for ledger, part in self._ledgers(states))

    def restore_ledgers(self, states: Sequence[Arrays]) -> None:
        """Continue from the ledgers of a checkpoint, however many shards there were then."""
        for ledger, part in self._ledgers(states):
            ledger.load_state_dict(part)

    def _ledgers(self, states: Sequence[Arrays]) -> Iterator[tuple[Ledger, Arrays]]:
        """The ledgers of this process, and the part of a checkpoint that is theirs."""
        for endpoint, state in zip(self.transport.endpoints, states, strict=True):
            yield endpoint.ledger, part_of(state, "ledger/")
        if self.observer.first:
            yield self.transport.coordinator.ledger, part_of(states[0], "coordinator/")

    def digest_differs(self) -> bool:
        """Return True if shards differ in the public state of their trainers, which must be the
        same."""
        digests = {_digest(trainer.state_dict()) for trainer in self.trainers}
        if len(digests) > 1:
            return True
        return self.observer.differs("digest", digests.pop())


def in_order(parts: Sequence[Arrays]) -> Arrays:
    """[devices, …] rows of all parts in the order of the ids; each part has `devices` too."""
    order = np.argsort(np.concatenate([part["devices"] for part in parts]))
    names = [name for name in parts[0] if name != "devices"]
    if len(parts) == 1 and (order[1:] > order[:-1]).all():
        return {name: parts[0][name] for name in names}
    return {name: np.concatenate([part[name] for part in parts])[order] for name in names}


def _digest(arrays: Arrays) -> bytes:
    digest = blake2b(digest_size=32)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


# The training loop: one federation over epochs with checkpoints, and all variants of a run.


def fit(
    problem: Problem,
    config: Config,
    *,
    variant: str,
    control: bool = False,
    transport: str = "loopback",
    folder: RunFolder | None = None,
    resume: bool = False,
    on_epoch: EpochCallback | None = None,
) -> Outcome | None:
    """Train one variant, from the beginning or from the last checkpoint in `folder`.

    Args:
        problem: graph, trees, split.
        config: settings.
        variant: its name in events: `run`, `own` or `control`.
        control: releases carry no information.
        transport: what moves the messages, a name of `TRANSPORTS`.
        folder: where metrics and checkpoints go.
        resume: go on from the checkpoint, if there is one.
        on_epoch: called after every epoch.

    Returns:
        The variant; None elsewhere than at rank 0, where the observer is.
    """
    federation: Federation[Any] = Federation(problem, config, control=control, transport=transport)
    return _Loop(federation, variant, folder, on_epoch).run(resume)


class _Loop:
    def __init__(
        self,
        federation: Federation[Any],
        variant: str,
        folder: RunFolder | None,
        on_epoch: EpochCallback | None,
    ) -> None:
        self.federation = federation
        self.variant = variant
        self.folder = folder
        self.on_epoch = on_epoch
        self.history: list[EpochEvent] = []
        self.done = 0
        """Epochs that are over."""
        self.seconds = 0.0

    def run(self, resume: bool) -> Outcome | None:
        federation, every = self.federation, self.federation.config.train.checkpoint_every
        written = self.folder.checkpoint() if self.folder is not None and resume else None
        saved = federation.scattered(written)
        if self.folder is not None and saved is None:
            self.folder.truncate_metrics(0)
        self._phase("setup")
        federation.run(lambda trainer: trainer.setup(), lambda coordinator: coordinator.setup())
        before = _Passed.of(federation.ledger())
        if saved is not None:
            self._restore(saved)
        while self.done < (last := federation.first_trainer.last_epoch()):
            self._segment(self.done, min(last, self.done + every))
            self._checkpoint()
        after = _Passed.of(federation.ledger())
        self._phase("the last sums")
        outcome = federation.finish()
        if outcome is None:
            return None
        return replace(
            outcome,
            weights=federation.first_trainer.state_dict("model"),
            history=self.history,
            per_epoch=_per_epoch(before, after, len(self.history)),
            seconds=self.seconds,
        )

    def _phase(self, name: str) -> None:
        """Note what this rank is doing, for whoever watches."""
        note_phase(name if self.variant == MAIN else f"{name} of {self.variant}")

    def _checkpoint(self) -> None:
        """Compare what must be the same everywhere, and write where the run stands."""
        federation = self.federation
        self._phase(f"the checkpoint of epoch {self.done}")
        if federation.digest_differs():
            raise ProtocolError(
                f"shards differ in their state after epoch {self.done}: they did not "
                "compute the same; report it with versions and settings"
            )
        # Without its secrets, which are never written, a run cannot go on from anywhere.
        if self._keeps_checkpoints():
            state = self._own_state() | federation.ledger_state()
            if self.folder is not None:
                self.folder.save_checkpoint(state)

    def _keeps_checkpoints(self) -> bool:
        """True if rank 0 writes checkpoints: all ranks have to know, to send it their ledgers."""
        simulated = self.federation.config.train.randomness == "seeded"
        asked = np.array([int(self.folder is not None and simulated)])
        return bool(self.federation.observer.add("checkpoints", asked)[0])

    def _segment(self, first: int, last: int) -> None:
        clock = time.perf_counter()

        def record(epoch: EpochRecord) -> None:
            nonlocal clock
            now = time.perf_counter()
            event = EpochEvent(
                variant=self.variant, **epoch._asdict(), seconds=round(now - clock, 4)
            )
            self.seconds += now - clock
            clock = now
            self.history.append(event)
            self._phase(f"epoch {event.epoch + 1}")
            if self.folder is not None:
                self.folder.add_metrics(event)
            if self.on_epoch is not None:
                self.on_epoch(event)

        first_trainer = self.federation.first_trainer
        self._phase(f"epoch {first + 1}")
        self.federation.run(
            lambda trainer: trainer.epochs(
                first, last, record if trainer is first_trainer else None
            ),
            lambda coordinator: coordinator.epochs(first, last),
        )
        self.done = last

    def _own_state(self) -> Arrays:
        """Return everything that the next epochs depend on, apart from the ledgers."""
        state = {
            f"trainer/{key}": array
            for key, array in self.federation.first_trainer.state_dict().items()
        }
        return state | {"epoch": np.array(self.done), "seconds": np.array(self.seconds)}

    def _restore(self, states: list[Arrays]) -> None:
        state = states[0]
        self._check(states)
        of_trainer = part_of(state, "trainer/")
        epoch = int(state["epoch"])
        self.seconds = float(state["seconds"])
        for trainer in self.federation.trainers:
            trainer.load_state_dict(of_trainer)
        self._phase(f"the messages before epoch {epoch + 1}")
        self.federation.run(lambda trainer: trainer.rejoin(epoch))
        self.federation.restore_ledgers(states)
        self.done = epoch
        if self.folder is not None:  # last: a checkpoint that is refused leaves all files alone
            self.history = self.folder.truncate_metrics(epoch, self.variant)

    def _check(self, states: list[Arrays]) -> None:
        """Refuse a checkpoint that this run cannot have written, before anything is changed.

        Raises:
            InputError: something is missing, or is of another shape or kind.
        """
        state = states[0]
        for key, array in self._own_state().items():
            if key not in state:
                raise InputError("checkpoint.npz is incomplete; restart without `resume`")
            # An empty array is filled in the course of the run: its shape is not known yet.
            if array.dtype != state[key].dtype or (array.size and array.shape != state[key].shape):
                raise InputError("checkpoint.npz is of another model; restart without `resume`")
        last = self.federation.config.train.epochs
        if not (0 <= state["epoch"] <= last and 0 <= state["seconds"] < math.inf):
            raise InputError("checkpoint.npz is of another model; restart without `resume`")
        if not self.federation.fits(states):
            raise InputError("checkpoint.npz is of another ledger; restart without `resume`")


class _Passed(NamedTuple):
    """Per-device counts of a ledger: a whole report would be several times as large."""

    flows: dict[str, Ints]
    rounds: int

    @staticmethod
    def of(ledger: LedgerReport) -> "_Passed":
        names = ("messages_sent", "messages_received", "bytes_sent", "bytes_received")
        return _Passed({name: getattr(ledger, name) for name in names}, ledger.rounds)


def _per_epoch(before: _Passed, after: _Passed, epochs: int) -> dict[str, float]:
    flows: dict[str, float] = {}
    for name, passed in after.flows.items():
        of_devices = (passed - before.flows[name]) / epochs
        flows[f"{name}_mean"] = round(float(of_devices.mean()), 3)
        flows[f"{name}_largest"] = round(float(of_devices.max()), 3)
    flows["rounds"] = (after.rounds - before.rounds) / epochs
    return flows


@dataclass(frozen=True, eq=False)
class RunJob:
    """One run in one process, from the trees on."""

    problem: Problem
    """Without `keep`: nobody carries an edge yet."""
    config: Config
    observer: Observer
    transport: str
    folder: RunFolder | None
    """At rank 0."""
    progress: Progress | None
    on_epoch: EpochCallback | None

    def trees(self, given: Balanced | None) -> tuple[TreeSummary | None, tuple[Flags, ...]]:
        """The trees that were given, that an interrupted run has, or new ones; and of each part."""
        problem, folder = self.problem, self.folder
        if given is not None:
            summary = TreeSummary.of(given)
            self._keep_trees(summary)
            return summary, problem.kept(given.graph, given.keep).keep
        saved = None if folder is None else folder.trees()
        per_device = keeps_device_values(self.config)
        hosted = self.observer.gather("hosted", [{"ids": part.devices} for part in problem.parts])
        known = None
        if saved is not None and per_device:
            known = self._known(saved, [part["ids"] for part in hosted])
        kept = self.observer.scatter("trees", known)
        if kept is not None:
            return saved, tuple(part["keep"] for part in kept)
        note_phase("trees")
        done = balance_parts(
            problem.parts,
            self.config.trees,
            seed=problem.seed,
            randomness=self.config.train.randomness,
            transport=self.transport,
            progress=self.progress,
        )
        summary_or_none = self._summary(done)
        if saved is None and summary_or_none is not None:
            self._keep_trees(summary_or_none)
        return summary_or_none, tuple(done.kept)

    def _known(self, saved: TreeSummary, hosted: Sequence[Ints]) -> list[Arrays]:
        """The trees of an interrupted run, for each shard of the federation.

        Raises:
            InputError: they are of another graph.
        """
        facts = self.problem.facts
        if len(saved.keep) != 2 * facts.simulated.edges or len(saved.degree) != facts.devices:
            path = "trees.npz" if self.folder is None else self.folder.path / "trees.npz"
            raise InputError(f"{path}: is of another graph; restart without `resume`")
        offsets = np.concatenate([[0], np.cumsum(saved.degree)])
        return [{"keep": saved.keep[spans(offsets[ids], saved.degree[ids])]} for ids in hosted]

    def _keep_trees(self, summary: TreeSummary) -> None:
        if self.folder is not None:
            self.folder.save_trees(summary, per_device=keeps_device_values(self.config))

    def _summary(self, done: BalancedParts) -> TreeSummary | None:
        """The observer's view of new trees; None elsewhere than at rank 0."""
        problem = self.problem
        parts: list[Arrays] = [
            {"devices": part.devices, "degree": np.diff(part.offsets), "keep": keep}
            for part, keep in zip(problem.parts, done.kept, strict=True)
        ]
        gathered = self.observer.gather("trees", parts)
        if not self.observer.first:
            return None
        settings, held_out = self.config.trees, problem.held_out
        degree = in_order(
            [{name: part[name] for name in ("devices", "degree")} for part in gathered]
        )
        offsets = np.concatenate([[0], np.cumsum(degree["degree"])])
        hosted = [part["devices"] for part in gathered]
        keep = in_slots(offsets, hosted, [part["keep"] for part in gathered])
        workload = np.diff(np.concatenate([[0], np.cumsum(keep)])[offsets])
        return TreeSummary(
            balancer=settings.balancer,
            compare=settings.compare if done.ledger.comparisons else "none",
            keep=keep,
            workload=workload,
            degree=degree["degree"],
            max_workload=int(workload.max(initial=0)),
            ledger=done.ledger,
            history=done.history,
            seconds=done.seconds,
            graph=held_out.training if isinstance(held_out, EdgeSplit) else problem.graph,
        )

    def fit_variants(self, keep: tuple[Flags, ...], *, resume: bool) -> dict[str, Outcome]:
        """Train every variant, the run itself last; return none elsewhere than at rank 0.

        Args:
            keep: as `Problem.keep` has it.
        """
        config = self.config
        variants = [OWN] * (config.train.floor and not config.profile.own_included)
        variants += [CONTROL] * config.train.control + [MAIN]
        epochs = config.train.epochs
        fitted = {}
        for number, variant in enumerate(variants):

            def report(event: EpochEvent, before: int = number) -> None:
                if self.progress is not None:
                    self.progress(
                        before * epochs + event.epoch, len(variants) * epochs, _note(event)
                    )
                if self.on_epoch is not None and self.observer.first:
                    self.on_epoch(event)

            trained = fit(
                replace(self.problem, keep=keep, alone=variant == OWN),
                config,
                variant=variant,
                control=variant == CONTROL,
                transport=self.transport,
                folder=None if self.folder is None else self.folder.variant(variant),
                resume=resume,
                on_epoch=report,
            )
            if trained is not None:
                fitted[variant] = trained
        return fitted

    def gathered(self) -> tuple[IdTexts, Arrays | None]:
        """Ids of all devices; [devices] labels and roles, by which the observer scores."""
        note_phase("the result")
        places = zip(self.problem.parts, self.problem.ids(), strict=True)
        parts: list[Arrays] = [
            {
                "devices": part.devices,
                "ids": np.asarray(ids),
                "labels": part.labels,
                "roles": part.roles,
            }
            for part, ids in places
        ]
        gathered = self.observer.gather("devices", parts)
        if not self.observer.first:
            return IdTexts(()), None
        rows = in_order(gathered)
        return IdTexts(rows.pop("ids")), rows


def costs_of(observer: Observer, before: float) -> list[RankCost]:
    """Return the cost of each process in the order of the ranks; empty elsewhere than at rank 0."""
    mine: Arrays = {"cost": np.array([cpu_seconds() - before, peak_rss_mb()])}
    gathered = [part["cost"].tolist() for part in observer.gather("cost", [mine])]
    return [RankCost(round(cpu, 3), round(rss, 1)) for cpu, rss in gathered]


def _note(event: EpochEvent) -> str:
    score = "" if event.score is None else f" · validation {event.score:.4f}"
    loss = "" if event.loss is None else f" · loss {event.loss:.4f}"
    return f"{event.variant} epoch {event.epoch}{loss}{score}"

"""The training loop: one federation over epochs with checkpoints, and all variants of a run."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lumos.errors import InputError, ProtocolError
from lumos.exchange.ledger_report import LedgerReport
from lumos.exchange.observer import Observer
from lumos.graph.arrays import IdTexts, spans
from lumos.machine import cpu_seconds, peak_rss_mb
from lumos.ranks.world import note_phase
from lumos.runs.federation import Federation, in_order
from lumos.runs.folder import RunFolder, keeps_device_values
from lumos.runs.schema import RankCost, TreeSummary
from lumos.storage import part_of
from lumos.training.config import Config
from lumos.training.problem import Problem
from lumos.training.split import EdgeSplit
from lumos.training.trainer import (
    CONTROL,
    MAIN,
    OWN,
    EpochCallback,
    EpochEvent,
    EpochRecord,
    Outcome,
)
from lumos.trees.balance import Balanced, BalancedParts, balance_parts, in_slots
from lumos.typing import Arrays, Flags, Ints, Progress


def fit(
    problem: Problem,
    config: Config,
    *,
    arm: str,
    control: bool = False,
    carrier: str = "loopback",
    folder: RunFolder | None = None,
    resume: bool = False,
    on_epoch: EpochCallback | None = None,
) -> Outcome | None:
    """Train one arm, from the beginning or from the last checkpoint in `folder`.

    Args:
        problem: graph, trees, split.
        config: settings.
        arm: its name in events: `run`, `own` or `control`.
        control: releases carry no information.
        carrier: what moves the messages, a name of `CARRIERS`.
        folder: where metrics and checkpoints go.
        resume: go on from the checkpoint, if there is one.
        on_epoch: called after every epoch.

    Returns:
        The arm; None elsewhere than at rank 0, where the observer is.
    """
    federation: Federation[Any] = Federation(problem, config, control=control, carrier=carrier)
    return _Loop(federation, arm, folder, on_epoch).run(resume)


class _Loop:
    def __init__(
        self,
        federation: Federation[Any],
        arm: str,
        folder: RunFolder | None,
        on_epoch: EpochCallback | None,
    ) -> None:
        self.federation = federation
        self.arm = arm
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
            weights=federation.first_trainer.model_state_dict(),
            history=self.history,
            per_epoch=_per_epoch(before, after, len(self.history)),
            seconds=self.seconds,
        )

    def _phase(self, name: str) -> None:
        """Note what this rank is doing, for whoever watches."""
        note_phase(name if self.arm == MAIN else f"{name} of {self.arm}")

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
            state = self._state()
            if self.folder is not None:
                self.folder.save_checkpoint(state)

    def _keeps_checkpoints(self) -> bool:
        """Whether rank 0 writes checkpoints: all ranks have to know, to send it their ledgers."""
        simulated = self.federation.config.train.coins == "simulated"
        asked = np.array([int(self.folder is not None and simulated)])
        return bool(self.federation.observer.add("checkpoints", asked)[0])

    def _segment(self, first: int, last: int) -> None:
        clock = time.perf_counter()

        def record(epoch: EpochRecord) -> None:
            nonlocal clock
            now = time.perf_counter()
            event = EpochEvent(arm=self.arm, **epoch._asdict(), seconds=round(now - clock, 4))
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

    def _state(self) -> Arrays:
        """Everything that the next epochs depend on, and the ledgers."""
        return self._own_state() | self.federation.ledger_state()

    def _own_state(self) -> Arrays:
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
            self.history = self.folder.truncate_metrics(epoch, self.arm)

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
    """What a ledger has of every device: a whole report would be several times as large."""

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
    carrier: str
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
            coins=self.config.train.coins,
            carrier=self.carrier,
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

    def fit_arms(self, keep: tuple[Flags, ...], *, resume: bool) -> dict[str, Outcome]:
        """Train every arm, the run itself last; return none elsewhere than at rank 0.

        Args:
            keep: as `Problem.keep` has it.
        """
        config = self.config
        arms = [OWN] * (config.train.floor and not config.profile.own_included)
        arms += [CONTROL] * config.train.control + [MAIN]
        epochs = config.train.epochs
        fitted = {}
        for number, arm in enumerate(arms):

            def report(event: EpochEvent, before: int = number) -> None:
                if self.progress is not None:
                    self.progress(before * epochs + event.epoch, len(arms) * epochs, _note(event))
                if self.on_epoch is not None and self.observer.first:
                    self.on_epoch(event)

            trained = fit(
                replace(self.problem, keep=keep, alone=arm == OWN),
                config,
                arm=arm,
                control=arm == CONTROL,
                carrier=self.carrier,
                folder=None if self.folder is None else self.folder.arm(arm),
                resume=resume,
                on_epoch=report,
            )
            if trained is not None:
                fitted[arm] = trained
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
    """What each process took, in the order of the ranks; none elsewhere than at rank 0."""
    mine: Arrays = {"cost": np.array([cpu_seconds() - before, peak_rss_mb()])}
    gathered = [part["cost"].tolist() for part in observer.gather("cost", [mine])]
    return [RankCost(round(cpu, 3), round(rss, 1)) for cpu, rss in gathered]


def _note(event: EpochEvent) -> str:
    score = "" if event.score is None else f" · validation {event.score:.4f}"
    loss = "" if event.loss is None else f" · loss {event.loss:.4f}"
    return f"{event.arm} epoch {event.epoch}{loss}{score}"

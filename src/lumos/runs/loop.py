"""The training loop of one federation: epochs, metrics, checkpoints, resuming."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.exchange.ledger_report import LedgerReport
from lumos.runs.events import EpochEvent, OnEpoch
from lumos.runs.federation import Federation
from lumos.runs.folder import RunFolder
from lumos.training.config import Config
from lumos.training.outcome import Outcome
from lumos.training.profile import Problem
from lumos.training.trainer import EpochRecord
from lumos.typing import Arrays


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedArm:
    """One trained arm, as the observer sees it."""

    outcome: Outcome = field(repr=False)
    weights: Arrays = field(repr=False)
    """The trained weights by name."""
    history: list[EpochEvent] = field(repr=False)
    ledger: LedgerReport = field(repr=False)
    """Everything that passed."""
    per_epoch: dict[str, float]
    """Of one epoch: messages and bytes of a device (mean, largest), and rounds."""
    seconds: float
    """Of all epochs, over all sessions of an interrupted run."""


def fit(
    problem: Problem,
    config: Config,
    *,
    arm: str,
    control: bool = False,
    carrier: str = "loopback",
    folder: RunFolder | None = None,
    resume: bool = False,
    on_epoch: OnEpoch | None = None,
) -> TrainedArm:
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
    """
    federation: Federation[Any] = Federation(problem, config, control=control, carrier=carrier)
    return _Loop(federation, arm, folder, on_epoch).run(resume)


class _Loop:
    def __init__(
        self,
        federation: Federation[Any],
        arm: str,
        folder: RunFolder | None,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.federation = federation
        self.arm = arm
        self.folder = folder
        self.on_epoch = on_epoch
        self.history: list[EpochEvent] = []
        self.seconds = 0.0

    def run(self, resume: bool) -> TrainedArm:
        federation, every = self.federation, self.federation.config.train.checkpoint_every
        saved = self.folder.checkpoint() if self.folder is not None and resume else None
        if self.folder is not None and saved is None:
            self.folder.truncate_metrics(0)
        federation.run(lambda trainer: trainer.setup(), lambda coordinator: coordinator.setup())
        before = federation.ledger()
        if saved is not None:
            self._restore(saved)
        while (done := len(self.history)) < (last := federation.first_trainer.last_epoch()):
            self._segment(done, min(last, done + every))
            # Without its secrets, which are never written, a run cannot go on from anywhere.
            if self.folder is not None and federation.config.train.coins == "simulated":
                self.folder.save_checkpoint(self._state())
        after = federation.ledger()
        outcome = federation.finish()
        return TrainedArm(
            outcome=outcome,
            weights=federation.first_trainer.arrays(),
            history=self.history,
            ledger=federation.ledger(),
            per_epoch=_per_epoch(before, after, len(self.history)),
            seconds=self.seconds,
        )

    def _segment(self, first: int, last: int) -> None:
        clock = time.perf_counter()

        def record(epoch: EpochRecord) -> None:
            nonlocal clock
            now = time.perf_counter()
            event = EpochEvent(arm=self.arm, **epoch._asdict(), seconds=round(now - clock, 4))
            self.seconds += now - clock
            clock = now
            self.history.append(event)
            if self.folder is not None:
                self.folder.add_metrics(event)
            if self.on_epoch is not None:
                self.on_epoch(event)

        first_trainer = self.federation.first_trainer
        self.federation.run(
            lambda trainer: trainer.epochs(
                first, last, record if trainer is first_trainer else None
            ),
            lambda coordinator: coordinator.epochs(first, last),
        )

    def _state(self) -> Arrays:
        """Everything that the next epochs depend on, and the ledgers."""
        state = {
            f"trainer/{key}": array for key, array in self.federation.first_trainer.state().items()
        }
        state |= {"epoch": np.array(len(self.history)), "seconds": np.array(self.seconds)}
        for number, endpoint in enumerate(self.federation.endpoints()):
            for key, counts in endpoint.ledger.state().items():
                state[f"ledger/{number}/{key}"] = counts
        return state

    def _restore(self, state: Arrays) -> None:
        self._check(state)
        of_trainer = _part(state, "trainer/")
        epoch = int(state["epoch"])
        self.seconds = float(state["seconds"])
        for trainer in self.federation.trainers:
            trainer.restore(of_trainer)
        self.federation.run(lambda trainer: trainer.rejoin(epoch))
        for number, endpoint in enumerate(self.federation.endpoints()):
            endpoint.ledger.restore(_part(state, f"ledger/{number}/"))
        if self.folder is not None:  # last: a checkpoint that is refused leaves all files alone
            self.history = self.folder.truncate_metrics(epoch, self.arm)

    def _check(self, state: Arrays) -> None:
        """Refuse a checkpoint that this run cannot have written, before anything is changed.

        Raises:
            InputError: something is missing, or is of another shape or kind.
        """
        own = {key: array for key, array in self._state().items() if not key.startswith("ledger/")}
        for key, array in own.items():
            if key not in state:
                raise InputError("checkpoint.npz is incomplete; restart without `resume`")
            # An empty array is filled in the course of the run: its shape is not known yet.
            if array.dtype != state[key].dtype or (array.size and array.shape != state[key].shape):
                raise InputError("checkpoint.npz is of another model; restart without `resume`")
        last = self.federation.config.train.epochs
        if not (0 <= state["epoch"] <= last and 0 <= state["seconds"] < math.inf):
            raise InputError("checkpoint.npz is of another model; restart without `resume`")
        for number, endpoint in enumerate(self.federation.endpoints()):
            if not endpoint.ledger.fits(_part(state, f"ledger/{number}/")):
                raise InputError("checkpoint.npz is of another ledger; restart without `resume`")


def _part(state: Arrays, prefix: str) -> Arrays:
    return {
        key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)
    }


def _per_epoch(before: LedgerReport, after: LedgerReport, epochs: int) -> dict[str, float]:
    flows: dict[str, float] = {}
    for name in ("messages_sent", "messages_received", "bytes_sent", "bytes_received"):
        of_devices = (getattr(after, name) - getattr(before, name)) / epochs
        flows[f"{name}_mean"] = round(float(of_devices.mean()), 3)
        flows[f"{name}_largest"] = round(float(of_devices.max()), 3)
    flows["rounds"] = (after.rounds - before.rounds) / epochs
    return flows

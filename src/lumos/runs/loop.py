"""The training loop of one federation: epochs, metrics, checkpoints, resuming."""

import math
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lumos.errors import InputError, ProtocolError
from lumos.exchange.ledger_report import LedgerReport
from lumos.ranks.world import note_phase
from lumos.runs.events import EpochEvent, OnEpoch
from lumos.runs.federation import Federation
from lumos.runs.folder import RunFolder
from lumos.storage import part_of
from lumos.training.config import Config
from lumos.training.outcome import MAIN, Outcome
from lumos.training.profile import Problem
from lumos.training.trainer import EpochRecord
from lumos.typing import Arrays, Ints


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
) -> TrainedArm | None:
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
        on_epoch: OnEpoch | None,
    ) -> None:
        self.federation = federation
        self.arm = arm
        self.folder = folder
        self.on_epoch = on_epoch
        self.history: list[EpochEvent] = []
        self.done = 0
        """Epochs that are over."""
        self.seconds = 0.0

    def run(self, resume: bool) -> TrainedArm | None:
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
        ledger = federation.ledger()
        if outcome is None:
            return None
        return TrainedArm(
            outcome=outcome,
            weights=federation.first_trainer.arrays(),
            history=self.history,
            ledger=ledger,
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
            f"trainer/{key}": array for key, array in self.federation.first_trainer.state().items()
        }
        return state | {"epoch": np.array(self.done), "seconds": np.array(self.seconds)}

    def _restore(self, states: list[Arrays]) -> None:
        state = states[0]
        self._check(states)
        of_trainer = part_of(state, "trainer/")
        epoch = int(state["epoch"])
        self.seconds = float(state["seconds"])
        for trainer in self.federation.trainers:
            trainer.restore(of_trainer)
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

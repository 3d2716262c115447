"""The process of one device: from its folder to its result, and to its answers after it.

With a plan whose devices stay, a device that is ended or killed after the training comes back when
it is started again, and answers with the budget that it had left (`answering_files`).
"""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lumos.crypto import entropy
from lumos.deploy.answering_files import AnsweringFiles
from lumos.deploy.answering_party import AnsweringParty
from lumos.deploy.control_socket import answering
from lumos.deploy.device_party import DeviceParty
from lumos.deploy.nats_link import Faults, NatsLink
from lumos.deploy.party_folder import LOCK, WIRE, PartyFolder
from lumos.deploy.party_process import StopRequest, drive, stopped_by_signals
from lumos.deploy.state import (
    ATTEMPTS,
    OPENINGS,
    PEERS,
    RESULT,
    ROUNDS,
    SNAPSHOT,
    SUM_NUMBER,
    DeviceFolder,
)
from lumos.deploy.training_job import ANSWERS_WITH, TREES, TrainingJob
from lumos.deploy.wire_count import NAME as WIRE_COUNT
from lumos.deploy.wire_count import WireCount
from lumos.device.device_keys import DeviceKeys
from lumos.errors import RunFailed, UsageError
from lumos.graph.parts import PartsFolder
from lumos.storage import part_of, read_json, write_json
from lumos.threads import threads_for
from lumos.training.weights_digest import weights_digest
from lumos.typing import Arrays

BOOT_BYTES = 16
FAREWELLS = 3
"""How often a device says that it has heard of the end: packets can be lost."""


class _ResultFirst(DeviceFolder):
    """A device's folder in which the result is complete before the run counts as over.

    Args:
        folder: of the device.
        last: the last phase.
        finish: called with the snapshot after it.
    """

    last: int
    finish: Callable[[Arrays], None]

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot; after the last phase, write the result before."""
        if int(snapshot["phase"]) > self.last:
            self.finish(snapshot)
        super().save(snapshot)


class DeviceProcess:
    """One device, with what is on its disk.

    Args:
        folder: of the device.
        log: called with a line, without anything private.
        broker: address in place of the plan's.
        faults: of a test.
    """

    def __init__(
        self,
        folder: PartyFolder,
        log: Callable[[str], None],
        *,
        broker: str | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._folder, self._log = folder, log
        self._broker, self._faults = broker or folder.plan.broker, faults
        self._store = _ResultFirst(folder.path)
        self._answering = AnsweringFiles(folder.path, folder.plan.run, folder.party)
        self._count = WireCount()
        self._farewells = 0

    def run(self) -> bool:
        """Take part until the run has ended; False where a signal ended this process before.

        Raises:
            RunFailed: the run has failed, or goes on without this device.
            KeyboardInterrupt: Ctrl-C ended this process before.
            InputError: a file is missing, damaged, or of another run.
        """
        with self._folder.locked():
            result = self._folder.ended_result()
            if result is not None:
                self._forget_run()  # it may have been killed before it had
                if self._folder.plan.stay and (self._answering.exist or result["prediction"]):
                    asyncio.run(self._answer_again())
                else:
                    self._log("the run is over, and its result is here")
                return True
            ended = asyncio.run(self._take_part())
            if ended is None:
                return False
            if ended:
                self._store.forget_secret()
                raise RunFailed(ended)
            if not self._farewells:
                self._tidy()
            if not self._folder.plan.stay:
                (self._folder.path / LOCK).unlink(missing_ok=True)
            return True

    async def _take_part(self) -> str | None:
        """What the coordinator said of the end; None where a signal came before."""
        folder = self._folder
        job = self._job(self._store.keys(folder.plan.tag))
        self._count = WireCount(folder.path)
        self._store.last = job.last
        self._store.finish = lambda snapshot: self._write_result(job, snapshot)
        party = DeviceParty(
            folder.party,
            job,
            self._store,
            entropy.draw(BOOT_BYTES),
            folder.plan.beat,
            folder.plan.deadline,
            time.monotonic(),
            self._log,
            self._answering.pairs if folder.plan.stay else None,
        )
        link = self._link()
        with threads_for(1, len(job.shard.neighbours)), stopped_by_signals(link.wake) as stop:
            async with link, answering(folder.path, party, self.prediction, link.wake):
                await drive(party, link, lambda _now: self._is_over(party, stop))
                if party.ended is None:
                    if stop.signal == signal.SIGINT:
                        raise KeyboardInterrupt("the same command goes on")
                    return None
                for _ in range(FAREWELLS):
                    party.say_farewell()
                    for receiver, frames in party.due(time.monotonic()):
                        await link.send(receiver, frames)
                    await asyncio.sleep(0.01)
        return party.ended

    async def _answer_again(self) -> None:
        """Answer until a signal ends this process."""
        folder = self._folder
        job = self._job(None)
        if self._answering.exist:
            job.restore_answers(self._answering.load())
        party = AnsweringParty(
            folder.party,
            job,
            self._answering.pairs,
            entropy.draw(BOOT_BYTES),
            folder.plan.deadline,
            self._log,
        )
        link = self._link()
        with threads_for(1, len(job.shard.neighbours)), stopped_by_signals(link.wake) as stop:
            async with link, answering(folder.path, party, self.prediction, link.wake):
                self._log("the training is over; the device is back, and answers its owner")
                await drive(party, link, lambda _now: bool(stop))

    def _link(self) -> NatsLink:
        folder = self._folder
        return NatsLink(
            folder.identity, folder.directory, folder.plan.tag, self._broker, self._log,
            self._count, self._faults,
        )  # fmt: skip

    def _is_over(self, party: DeviceParty, stop: StopRequest) -> bool:
        """Whether the process ends; a device that stays says good-bye to the coordinator alone."""
        if stop or party.ended is None:
            return bool(stop)
        if party.ended or not self._folder.plan.stay:
            return True
        if self._farewells == 0:
            self._tidy()
            self._log("the training is over; the device stays, and answers its owner")
        if self._farewells < FAREWELLS:
            self._farewells += 1
            party.say_farewell()
        return False

    def prediction(self) -> dict[str, Any]:
        """What the device believes of itself, as its result has it."""
        return prediction_in(self._folder)

    def _job(self, keys: DeviceKeys | None) -> TrainingJob:
        """The device's job; without its secret, of a device that only answers."""
        folder, plan = self._folder, self._folder.plan
        part = PartsFolder.open(folder.path).part([folder.party], plan.config.train.task)
        opened = None if keys is None else self._store.opened()
        return TrainingJob(folder.manifest, plan.config, part, keys, opened, stays=plan.stay)

    def _write_result(self, job: TrainingJob, snapshot: Arrays) -> None:
        """Public weights, and what is the device's own: its prediction and its ledger."""
        weights: Arrays = {} if job.last == TREES else job.trainer.arrays()
        result: dict[str, Any] = {
            "run": self._folder.plan.run,
            "device": self._folder.party,
            "coins": self._folder.plan.config.train.coins,
            "sums": int(snapshot.get(SUM_NUMBER, 0)),
            "weights_sha256": weights_digest(weights) if weights else None,
            "prediction": _probabilities(job.result),
            "edges_carried": job.shard.neighbours[snapshot["keep"]].tolist(),
            "ledger": job.ledgers.totals(),
        }
        if part_of(snapshot, ANSWERS_WITH):
            self._answering.begin(snapshot)
        self._store.write_result(weights, result)

    def _tidy(self) -> None:
        """Add what passed on the wire to the result: from then on the run is over."""
        path = self._folder.path / RESULT
        whole = {**read_json(path), WIRE: self._count.totals()}
        write_json(path, whole, private=True, durable=True)
        self._forget_run()

    def _forget_run(self) -> None:
        """Delete what the run needed on the way, its secret first."""
        self._store.forget_secret()
        for name in (SNAPSHOT, OPENINGS, ROUNDS, ATTEMPTS, PEERS, WIRE_COUNT):
            (self._folder.path / name).unlink(missing_ok=True)


def _probabilities(result: Any) -> list[float] | None:
    """Of each class, for the device itself; None where no classes are predicted."""
    logits = getattr(result, "logits", None)
    if logits is None or not logits.size:
        return None
    powers = np.exp(np.float64(logits[0]) - logits[0].max())
    return (powers / powers.sum()).tolist()  # type: ignore[no-any-return]


def prediction_in(folder: PartyFolder) -> dict[str, Any]:
    """What a device believes of itself: `device`, `label`, `probability`.

    Raises:
        UsageError: the training is not over, or was not of classes.
    """
    result = folder.ended_result()
    if result is None:
        raise UsageError("the training is not over")
    chances = result["prediction"]
    if chances is None:
        raise UsageError("the run has no classes; ask about a pair: --with NUMBER")
    best = int(np.argmax(chances))
    label = folder.manifest.graph.classes[best]
    return {"device": folder.party, "label": label, "probability": chances[best]}

"""The process of the coordinator: from its folder to the result of the run."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lumos.aggregate.parameters import mask_parameters
from lumos.crypto import entropy
from lumos.deploy.coordinator_party import CoordinatorParty
from lumos.deploy.device_process import BOOT_BYTES
from lumos.deploy.epoch_losses import NAME as LOSSES
from lumos.deploy.frames import Alive, Frame
from lumos.deploy.nats_link import Faults, NatsLink
from lumos.deploy.page_status import WireBytes
from lumos.deploy.party_folder import LOCK, WIRE, PartyFolder
from lumos.deploy.party_process import StopRequest, drive, stopped_by_signals
from lumos.deploy.run_history import RunHistory
from lumos.deploy.run_status import STATUS, RunStatus
from lumos.deploy.state import (
    ATTEMPTS,
    LEFT_OUT,
    RESULT,
    ROUNDS,
    SNAPSHOT,
    SUM_NUMBER,
    WEIGHTS,
    CoordinatorFolder,
)
from lumos.deploy.status_page import StatusFeed, StatusPage
from lumos.deploy.training_job import TREES, TrainingJob
from lumos.deploy.wire_count import NAME as WIRE_COUNT
from lumos.deploy.wire_count import WireCount
from lumos.errors import RunFailed
from lumos.storage import read_json, write_arrays, write_json, write_text
from lumos.threads import threads_for
from lumos.training.weights_digest import weights_digest
from lumos.typing import Arrays

SILENT_BEATS = 5
"""After a failure, devices that were not heard for so many beats are gone."""
STATUS_SECONDS = 0.5
HISTORY = "history.json"
_COURSE = "course/"


class _CourseFolder(CoordinatorFolder):
    """The coordinator's folder, with the course of the run in the snapshot.

    After the last phase, `finish` writes the result before the run counts as over.
    """

    last: int
    finish: Callable[[Arrays], None]
    course: Callable[[], Arrays]
    sums = 0
    """Masked sums before the last snapshot."""

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot."""
        self.sums = int(snapshot.get(SUM_NUMBER, 0))
        if int(snapshot["phase"]) > self.last:
            self.finish(snapshot)
        course = {_COURSE + name: array for name, array in self.course().items()}
        super().save({**snapshot, **course})


class CoordinatorProcess:
    """The coordinator, with what is on its disk.

    Args:
        folder: of the coordinator.
        log: called with a line, without anything private.
        broker: address in place of the plan's.
        faults: of a test.
        status: port of the status page, on loopback; 0 for a free one, None for no page.
    """

    _feed: StatusFeed | None

    def __init__(
        self,
        folder: PartyFolder,
        log: Callable[[str], None],
        *,
        broker: str | None = None,
        faults: Faults | None = None,
        status: int | None = None,
    ) -> None:
        self._folder, self._log = folder, log
        self._status_port, self._feed = status, None
        self._history = RunHistory(folder.plan.tag, folder.path / HISTORY)
        self._broker, self._faults = broker or folder.plan.broker, faults
        self._store = _CourseFolder(folder.path)
        self._count = WireCount(folder.path)
        self._gone: set[int] = set()
        self._heard = 0.0
        self._began = time.monotonic()
        self._next_status = 0.0
        self._status_file = folder.path / STATUS

    def run(self) -> dict[str, Any] | None:
        """Coordinate until the run has ended; None where a signal ended this process before.

        Returns:
            The result.

        Raises:
            RunFailed: the run has failed.
            KeyboardInterrupt: Ctrl-C ended this process before.
            InputError: a file is missing, damaged, or of another run.
        """
        with self._folder.locked():
            result = self._folder.ended_result()
            if result is not None:
                self._log("the run is over, and its result is here")
                return result
            with self._page():
                ended = asyncio.run(self._coordinate())
            if ended is None:
                return None
            if ended:
                raise RunFailed(ended)
            return self._tidy()

    @contextmanager
    def _page(self) -> Iterator[None]:
        """Inside, the status page is there, if it is asked for."""
        if self._status_port is None:
            yield
            return
        plan = self._folder.plan
        with StatusPage(self._status_port) as page:
            self._feed = StatusFeed(page, plan.config, self._history, beat=plan.beat)
            self._log(f"status page: {page.address}")
            yield

    async def _coordinate(self) -> str | None:
        folder, config = self._folder, self._folder.plan.config
        job = TrainingJob(folder.manifest, config, None, None, on_epoch=self._history.on_epoch)
        self._store.last, self._store.course = job.last, self._course
        self._resume_course(self._store.load())
        party = CoordinatorParty(
            job,
            self._store,
            entropy.draw(BOOT_BYTES),
            mask_parameters(config.updates, folder.total).minimum,
            folder.plan.deadline,
            time.monotonic(),
            self._log,
        )
        self._store.finish = lambda snapshot: self._write_result(party, snapshot)
        link = NatsLink(
            folder.identity, folder.directory, folder.plan.tag, self._broker, self._log,
            self._count, self._faults,
        )  # fmt: skip
        with threads_for(folder.total, 0), stopped_by_signals(link.wake) as stop:
            async with link:
                await drive(
                    party,
                    link,
                    lambda now: self._is_over(party, stop, now),
                    lambda sender, frames: self._observe(job, sender, frames),
                )
                self._write_status(party)
                self._show(party, time.monotonic())
        if party.ended is None:
            if stop.signal == signal.SIGINT:
                raise KeyboardInterrupt("the same command goes on")
            return None
        return party.ended

    def _is_over(self, party: CoordinatorParty, stop: StopRequest, now: float) -> bool:
        """Whether every device that is there has heard of the end; and tell people how it goes."""
        self._show(party, now)
        if now >= self._next_status:
            self._next_status = now + STATUS_SECONDS
            self._write_status(party)
        if stop:
            return True
        if not party.finished:
            self._heard = now
            return False
        plan = self._folder.plan
        patience = SILENT_BEATS * plan.beat if party.ended else plan.deadline
        silent = now - self._heard > patience
        return silent or self._gone >= set(party.present())

    def _show(self, party: CoordinatorParty, now: float) -> None:
        """Let the status page know."""
        if self._feed is not None:
            wire = self._count.totals()
            self._feed.update(party, now, WireBytes(wire["bytes_sent"], wire["bytes_received"]))

    def _observe(self, job: TrainingJob, sender: int, frames: list[Frame]) -> None:
        """Notice who has heard of the end."""
        for frame in frames:
            if isinstance(frame, Alive) and frame.phase >= job.left:
                self._gone.add(sender)
            elif isinstance(frame, Alive):
                self._heard = time.monotonic()

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _course(self) -> Arrays:
        """What the result says of the whole run, also of the time before a restart."""
        self._history.all_losses.sync()  # those of before the snapshot are not computed again
        return {"seconds": np.array(self._seconds)}

    def _resume_course(self, snapshot: Arrays | None) -> None:
        if snapshot is None:
            return
        self._store.sums = int(snapshot.get(SUM_NUMBER, 0))
        self._began -= float(snapshot[_COURSE + "seconds"])

    def _write_status(self, party: CoordinatorParty) -> None:
        status = RunStatus.of(
            party,
            sums=self._store.sums,
            seconds=self._seconds,
            loss=self._history.all_losses.last,
            wire=self._count.totals(),
        )
        write_text(self._status_file, status.text(), private=True)

    def _write_result(self, party: CoordinatorParty, snapshot: Arrays) -> None:
        job, path = party.job, self._folder.path
        weights: Arrays = {} if job.last == TREES else job.trainer.arrays()
        sums = int(snapshot.get(SUM_NUMBER, 0))
        result = {
            "run": self._folder.plan.run,
            "devices": job.total,
            "left_out": {str(device): phase for device, phase in party.left_out.items()},
            "coins": self._folder.plan.config.train.coins,
            "sums": sums,
            "seconds": round(self._seconds, 3),
            "seconds_per_sum": round(self._seconds / sums, 4) if sums else None,
            "weights_sha256": weights_digest(weights) if weights else None,
            "losses": self._history.all_losses.values(),
            "ledger": job.ledgers.totals(),
        }
        write_arrays(path / WEIGHTS, weights, private=True)
        write_json(path / RESULT, result, private=True)

    def _tidy(self) -> dict[str, Any]:
        """Add what passed on the wire to the result, and delete what the run needed on the way."""
        path = self._folder.path
        result: dict[str, Any] = {**read_json(path / RESULT), WIRE: self._count.totals()}
        write_json(path / RESULT, result, private=True)
        for name in (SNAPSHOT, ROUNDS, ATTEMPTS, LEFT_OUT, WIRE_COUNT, HISTORY, LOSSES, LOCK):
            (path / name).unlink(missing_ok=True)
        return result

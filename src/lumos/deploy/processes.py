"""The process of one participant: from its folder to its result, and to its answers after it.

Its loop takes what arrives, goes on, and sends what is due. With a plan whose devices stay, a
device that is ended or killed after the training comes back when it is started again, and answers
with the budget that it had left (`answering`).
"""

import asyncio
import json
import math
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lumos import __version__
from lumos.crypto import entropy
from lumos.deploy.evidence import copy_evidence, kept_evidence
from lumos.deploy.identity import fingerprint
from lumos.deploy.nats import WIRE_COUNT, NatsLink, WireCount
from lumos.deploy.plan import LOCK, WIRE, FederationPlan, ParticipantFolder, refuse_plan
from lumos.deploy.protocol.coordinator import CoordinatorParticipant
from lumos.deploy.protocol.device import AnsweringParticipant, DeviceParticipant
from lumos.deploy.protocol.frames import Alive, Frame
from lumos.deploy.protocol.job import ANSWERS_WITH, TrainingJob
from lumos.deploy.protocol.questions import PairQuestions
from lumos.deploy.state import (
    ATTEMPTS,
    LEFT_OUT,
    OPENINGS,
    PEERS,
    RESULT,
    ROUNDS,
    SNAPSHOT,
    SUM_NUMBER,
    AnsweringFiles,
    CoordinatorFolder,
    DeviceFolder,
)
from lumos.deploy.status import (
    LOSSES,
    STATUS,
    RunHistory,
    RunStatus,
    StatusFeed,
    StatusPage,
    WireBytes,
)
from lumos.device.randomness import DeviceKeys
from lumos.errors import InputError, LumosError, RunFailed, UsageError
from lumos.exchange.observer import own_ledger
from lumos.graph.arrays import IdTexts
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import Manifest
from lumos.ldp.account import AccountLimits, PrivacyAccount
from lumos.machine import peak_rss_mb, threads_for
from lumos.runs.schema import plain
from lumos.runs.text import guarantee_lines
from lumos.storage import part_of, read_json, write_json, write_text
from lumos.training.trainer import MAIN, EpochEvent, PairAnswer, weights_digest
from lumos.typing import Arrays

if TYPE_CHECKING:
    from lumos.runs.run import Run

MAX_SLEEP = 1.0
"""Longest sleep of the loop in seconds, also where nothing is due."""


_BEGINNING = time.time() - time.monotonic()


def clock() -> float:
    """Return the time of day in seconds, which never goes back while the process runs.

    Ticks of devices are multiples of the same length of it, so they are about the same everywhere.
    """
    return _BEGINNING + time.monotonic()


class StopRequest:
    """The signal that asked the process to end; false while there is none."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def stopped_by_signals(wake: Callable[[], None]) -> Iterator[StopRequest]:
    """Make SIGINT and SIGTERM request an orderly end and call `wake`, inside."""
    request, loop = StopRequest(), asyncio.get_running_loop()

    def ask(number: int) -> None:
        request.signal = request.signal or number
        wake()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask, number)
    try:
        yield request
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def drive(
    participant: DeviceParticipant | AnsweringParticipant | CoordinatorParticipant,
    link: NatsLink,
    over: Callable[[float], bool],
    observe: Callable[[int, list[Frame]], None] | None = None,
) -> None:
    """Run a participant over its link.

    Args:
        participant: has begun, by `clock`.
        link: is open.
        over: called with the time after all that is due was sent; returns whether to stop.
        observe: called with the sender and the frames of every packet received.
    """
    while True:
        now = clock()
        for sender, frames in link.take():
            participant.receive(sender, frames, now)
            if observe is not None:
                observe(sender, frames)
        participant.advance(now)
        now = clock()
        for receiver, frames in participant.due(now):
            await link.send(receiver, frames)
        now = clock()
        if over(now):
            return
        await link.wait(min(participant.next_due() - now, MAX_SLEEP), participant.awaited())


BOOT_BYTES = 16
FAREWELLS = 3
"""Number of farewells that a device sends once it knows of the end: packets can be lost."""


class _ParticipantProcess:
    """The common part of the processes of devices and of the coordinator.

    Args:
        folder: of the participant.
        log: called with a line, without anything private.
        broker: address in place of the plan's.
    """

    def __init__(
        self,
        folder: ParticipantFolder,
        log: Callable[[str], None],
        *,
        broker: str | None = None,
    ) -> None:
        self._folder, self._log = folder, log
        self._broker = broker or folder.plan.broker
        self._count = WireCount()

    def _link(self) -> NatsLink:
        folder = self._folder
        return NatsLink(
            folder.identity,
            folder.directory,
            folder.plan.tag,
            self._broker,
            self._log,
            self._count,
        )

    def _result(self, job: TrainingJob, weights: Arrays, snapshot: Arrays) -> dict[str, Any]:
        """Return the entries common to the results of all participants."""
        return {
            "run": self._folder.plan.tag.hex(),
            "randomness": self._folder.plan.config.train.randomness,
            "sums": int(snapshot.get(SUM_NUMBER, 0)),
            "weights_sha256": weights_digest(weights),
            "ledger": job.ledgers.totals(),
        }

    def _guarantees(self, guarantees: list[dict[str, Any]], in_sums: str) -> dict[str, Any]:
        """Return what the run guarantees, as table and in words, and a sentence on its sums."""
        config, classes = self._folder.plan.config, self._folder.manifest.graph.class_count
        words = guarantee_lines(config, guarantees, classes)
        return {"guarantees": guarantees, "guarantee": [*words, ("In the sums", in_sums)]}

    def _end_result(self) -> dict[str, Any]:
        """Add packets and bytes on the wire to the result: from then on the run is over."""
        path = self._folder.path / RESULT
        result: dict[str, Any] = {
            **read_json(path),
            WIRE: self._count.totals(),
            "cpu_seconds": round(time.process_time(), 3),
        }
        write_json(path, result, private=True, durable=True)
        return result

    def _delete(self, *names: str) -> None:
        for name in names:
            (self._folder.path / name).unlink(missing_ok=True)


def _refuse_interrupted(stop: StopRequest) -> None:
    """Raise `KeyboardInterrupt` where Ctrl-C ended the process before the run was over."""
    if stop.signal == signal.SIGINT:
        raise KeyboardInterrupt("the same command goes on")


class DeviceProcess(_ParticipantProcess):
    """One device, with its state on disk.

    Args:
        others: those of `_ParticipantProcess`.
        account: folder of its privacy account and its owner's limits; None: its own folder.
    """

    _farewells = 0

    def __init__(
        self,
        folder: ParticipantFolder,
        log: Callable[[str], None],
        *,
        broker: str | None = None,
        account: Path | None = None,
    ) -> None:
        super().__init__(folder, log, broker=broker)
        self._account_folder = account or folder.path

    @cached_property
    def _limits(self) -> AccountLimits:
        return AccountLimits.read(self._account_folder)

    def _account(self, run: str) -> PrivacyAccount:
        """Return the privacy account; `run` names what is charged once."""
        return PrivacyAccount(
            self._account_folder,
            numbers=np.array([self._folder.participant]),
            limits=self._limits,
            run=run,
        )

    @cached_property
    def _store(self) -> DeviceFolder:
        return DeviceFolder(self._folder.path)

    @cached_property
    def _answering(self) -> AnsweringFiles:
        folder = self._folder
        account = self._account("answers")
        return AnsweringFiles(folder.path, folder.plan.tag.hex(), folder.participant, account)

    def run(self) -> bool:
        """Take part until the run has ended; False where a signal ended this process before.

        Raises:
            RunFailed: the run has failed, or goes on without this device.
            KeyboardInterrupt: Ctrl-C ended this process before.
            InputError: a file is missing, damaged, or of another run; or the plan is an old one.
            BudgetExceeded: the plan exceeds a limit of the device's owner.
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
            self._check_plan()
            ended = asyncio.run(self._take_part())
            if ended is None:
                return False
            if ended:
                self._store.forget_secret()
                raise RunFailed(ended)
            if not self._farewells:
                self._tidy()
            if not self._folder.plan.stay:
                self._delete(LOCK)
            return True

    def _check_plan(self) -> None:
        """Refuse a plan beyond the owner's limits, or an old one, before anything else is done."""
        folder = self._folder
        refuse_plan(folder.plan, folder.manifest, self._limits)
        operator = fingerprint(folder.identity.authority)
        self._account("").begin_plan(operator, folder.plan.issued)

    async def _take_part(self) -> str | None:
        """Return the end that the coordinator announced; None where a signal came before."""
        folder = self._folder
        self._store.begin_run(folder.plan.tag)
        job = self._job(self._store.keys(folder.plan.tag))
        self._count = WireCount(folder.path)
        participant = DeviceParticipant(
            folder.participant,
            job,
            self._store,
            entropy.draw(BOOT_BYTES),
            self._pair_key,
            folder.plan.tick,
            folder.plan.beat,
            folder.plan.deadline,
            clock(),
            self._log,
            self._answering.pairs if folder.plan.stay else None,
            tree_tick=folder.plan.tree_tick,
        )
        self._store.before_save = lambda snapshot: self._write_result(participant, snapshot)
        async with self._connected(participant) as (link, stop):
            await drive(participant, link, lambda _now: self._is_over(participant, stop))
            if participant.ended is None:
                _refuse_interrupted(stop)
                return None
            for _ in range(FAREWELLS + 1):
                participant.say_farewell()
                for receiver, frames in participant.due(clock()):
                    await link.send(receiver, frames)
                await asyncio.sleep(folder.plan.tick)
        return participant.ended

    def _pair_key(self, other: int) -> bytes:
        """Return a key that this device and another have in this run."""
        folder = self._folder
        shared = folder.identity.box(folder.directory, other).shared_key()
        return blake2b(
            folder.plan.tag, digest_size=32, key=shared, person=b"lumos flag key"
        ).digest()

    async def _answer_again(self) -> None:
        """Answer until a signal ends this process."""
        folder = self._folder
        job = self._job(None)
        if self._answering.exist:
            job.restore_answers(self._answering.load())
        participant = AnsweringParticipant(
            folder.participant,
            job,
            self._answering.pairs,
            entropy.draw(BOOT_BYTES),
            folder.plan.deadline,
            self._log,
        )
        async with self._connected(participant) as (link, stop):
            self._log("the training is over; the device is back, and answers its owner")
            await drive(participant, link, lambda _now: bool(stop))

    @asynccontextmanager
    async def _connected(
        self, participant: DeviceParticipant | AnsweringParticipant
    ) -> AsyncIterator[tuple[NatsLink, StopRequest]]:
        """Open the link and answer the owner inside, until a signal asks for an end."""
        folder, link, neighbours = self._folder, self._link(), participant.job.shard.neighbours
        with threads_for(1, len(neighbours)), stopped_by_signals(link.wake) as stop:
            prediction = partial(prediction_in, folder)
            async with link, answering(folder.path, participant, prediction, link.wake):
                yield link, stop

    def _is_over(self, participant: DeviceParticipant, stop: StopRequest) -> bool:
        """Return whether the process ends; a device that stays only sends its farewells."""
        if stop or participant.ended is None:
            return bool(stop)
        if participant.ended or not self._folder.plan.stay:
            return True
        if self._farewells == 0:
            self._tidy()
            self._log("the training is over; the device stays, and answers its owner")
        if self._farewells < FAREWELLS:
            self._farewells += 1
            participant.say_farewell()
        return False

    def _job(self, keys: DeviceKeys | None) -> TrainingJob:
        """The device's job; without its secret, of a device that only answers."""
        folder, plan = self._folder, self._folder.plan
        part = PartsFolder.open(folder.path).part([folder.participant], plan.config.train.task)
        opened = None if keys is None else self._store.opened()
        # A run that begins again with another secret draws anew, and is charged again.
        account = None if keys is None else self._account(keys.key("account", plan.tag).hex())
        return TrainingJob(
            folder.manifest,
            plan.config,
            part,
            keys,
            opened,
            stays=plan.stay,
            account=account,
            plan=plan.tag,
            signatures=folder.signatures,
        )

    def _write_result(self, participant: DeviceParticipant, snapshot: Arrays) -> Arrays:
        """After the last phase, keep public weights, and for the device alone its prediction, its
        ledger, and what the run guarantees to it."""
        job = participant.job
        if int(snapshot["phase"]) <= job.last:
            return snapshot
        weights = job.trainer.state_dict("model")
        result = {
            **self._result(job, weights, snapshot),
            "device": self._folder.participant,
            "prediction": _probabilities(job.result),
            "edges_carried": job.carried,
            "account": self._account("").summary(),
            "left_out": sorted(participant.out),
        }
        outcome = job.trainer.outcome(job.result, own_ledger(job.ledgers.flows()))
        told = (
            f"The coordinator says that {job.total - len(participant.out):,} of {job.total:,} "
            f"devices were there at the end; the figures need {job.minimum:,} in each sum."
        )
        result |= self._guarantees(outcome.guarantees, told)
        if part_of(snapshot, ANSWERS_WITH):
            self._answering.begin(snapshot)
        self._store.write_result(weights, result)
        return snapshot

    def _tidy(self) -> None:
        result = self._end_result()
        for title, text in result.get("guarantee", []):
            self._log(f"{title}: {text}" if title else text)
        self._forget_run()

    def _forget_run(self) -> None:
        """Delete what the run needed on the way, its secret first."""
        self._store.forget_secret()
        self._delete(SNAPSHOT, OPENINGS, ROUNDS, ATTEMPTS, PEERS, WIRE_COUNT)


def _probabilities(result: Any) -> list[float] | None:
    """Return the device's own class probabilities; None where no classes are predicted."""
    logits = getattr(result, "logits", None)
    if logits is None or not logits.size:
        return None
    powers = np.exp(np.float64(logits[0]) - logits[0].max())
    return (powers / powers.sum()).tolist()  # type: ignore[no-any-return]


def prediction_in(folder: ParticipantFolder) -> dict[str, Any]:
    """Return a device's prediction of itself: `device`, `label`, `probability`.

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
    return {"device": folder.participant, "label": label, "probability": chances[best]}


STATUS_PAGE = "status page: "
"""Begins the line of the coordinator's log with the address of its page."""
RUN = "run"
"""Folder of the coordinator with what it may know of the finished run: a run folder."""


def coordinator_run(
    plan: FederationPlan,
    manifest: Manifest,
    job: TrainingJob,
    weights: Arrays,
    losses: Iterable[tuple[int, float]],
    seconds: float,
) -> "Run":
    """Return a finished run as its coordinator knows it: nothing of a single device is in it.

    Args:
        job: of the coordinator, after its last phase.
        losses: by epoch, where there is one.
        seconds: of the whole run.
    """
    from lumos.runs.folder import installed
    from lumos.runs.run import Cost, Run, RunData
    from lumos.runs.schema import About, AboutSplit, PerEpoch, Split, TreeSummary

    config, facts = plan.config, manifest.graph
    task, epochs = config.train.task, job.trainer.last_epoch()
    drawn, loss_of, none = manifest.split(task), dict(losses), np.empty(0, np.int64)
    ledger = own_ledger(job.ledgers.flows())
    flows = job.ledgers.totals()
    shares = {name: flows[name] / (facts.devices * epochs) for name in _OF_DEVICES.values()}
    outcome = job.trainer.outcome(job.result, ledger)
    exposed = f"{outcome.exposed} {job.trainer.noise_added()}"
    about = About(
        lumos=__version__,
        versions=installed(),
        graph=facts.name,
        source={},
        seed=manifest.seed,
        shards=facts.devices,
        deployed=True,
        devices=facts.devices,
        edges=None,
        features=facts.feature_count,
        classes=list(facts.classes) if task == "classify" else [],
        notes=[],
        settings=plain(config.flat()),
        split=AboutSplit(origin=drawn.origin or "as the operator drew it", name=drawn.name),
    )
    return Run(
        about=about,
        config=config,
        scores={},
        histories={
            MAIN: [
                EpochEvent(
                    variant=MAIN,
                    epoch=epoch,
                    loss=loss_of.get(epoch),
                    score=None,
                    seconds=round(seconds / epochs, 6),
                )
                for epoch in range(1, epochs + 1)
            ]
        },
        split_sizes=Split(drawn.train, drawn.validation, drawn.test),
        model=replace(
            outcome, exposed=exposed, weights=weights, logits=None, embeddings=None, evaluated={}
        ),
        cost=Cost(
            seconds=round(seconds, 3),
            seconds_per_epoch=round(seconds / epochs, 4),
            peak_rss_mb=peak_rss_mb(),
            ranks=[],
            per_epoch=PerEpoch(
                **{
                    f"{name}_{which}": shares[flow]
                    for name, flow in _OF_DEVICES.items()
                    for which in ("mean", "largest")
                },
                rounds=0.0,
            ),
        ),
        trees=TreeSummary(
            balancer=config.trees.balancer,
            compare=config.trees.compare,
            keep=np.empty(0, np.bool_),
            workload=none,
            degree=none,
            max_workload=None,
            ledger=own_ledger({}),
            history=[],
            seconds=0.0,
        ),
        ids=IdTexts(np.arange(facts.devices)),
        data=RunData(about=about),
    )


_OF_DEVICES = {
    "messages_sent": "received",
    "messages_received": "sent",
    "bytes_sent": "bytes_received",
    "bytes_received": "bytes_sent",
}
"""By count of devices, the count of the coordinator that it equals: sent here is received there."""


SILENT_BEATS = 5
"""Beats after which, in a failed run, silent devices count as gone."""
HISTORY = "history.json"
_SECONDS = "course/seconds"
"""In a snapshot of the coordinator: seconds of the run so far, restarts included."""


class CoordinatorProcess(_ParticipantProcess):
    """The coordinator, with its state on disk.

    Args:
        others: those of `_ParticipantProcess`.
        status: port of the status page, on loopback; 0 for a free one, None for no page.
    """

    def __init__(
        self,
        folder: ParticipantFolder,
        log: Callable[[str], None],
        *,
        broker: str | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(folder, log, broker=broker)
        self._status_port = status
        self._history = RunHistory(folder.plan.tag, folder.path / HISTORY)
        self._store = CoordinatorFolder(folder.path)
        self._count = WireCount(folder.path)
        self._gone: set[int] = set()
        self._last_received = 0.0
        self._began = clock()
        plan = folder.plan
        self._page: StatusPage | None = None
        self._feed = StatusFeed(self._publish, plan.config, self._history, beat=plan.beat)

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
            with self._served():
                ended = asyncio.run(self._coordinate())
            if ended is None:
                return None
            if ended:
                raise RunFailed(ended)
            return self._tidy()

    @contextmanager
    def _served(self) -> Iterator[None]:
        """Serve the status page inside, if a port was given."""
        if self._status_port is None:
            yield
            return
        with StatusPage(self._status_port) as page:
            self._page = page
            self._log(f"{STATUS_PAGE}{page.address}")
            yield

    async def _coordinate(self) -> str | None:
        folder, config = self._folder, self._folder.plan.config
        job = TrainingJob(
            folder.manifest,
            config,
            None,
            None,
            on_epoch=self._history.on_epoch,
            plan=folder.plan.tag,
            signatures=folder.signatures,
            nonces=folder.nonces,
        )
        before = self._store.load()
        if before is not None:
            self._began -= float(before[_SECONDS])
        participant = CoordinatorParticipant(
            job,
            self._store,
            entropy.draw(BOOT_BYTES),
            folder.plan.deadline,
            clock(),
            self._log,
        )
        self._store.before_save = lambda snapshot: self._write_result(participant, snapshot)
        link = self._link()
        with threads_for(folder.total, 0), stopped_by_signals(link.wake) as stop:
            async with link:
                await drive(
                    participant,
                    link,
                    lambda now: self._is_over(participant, stop, now),
                    lambda sender, frames: self._observe(job, sender, frames),
                )
                self._show(participant, clock())
        if participant.ended is None:
            _refuse_interrupted(stop)
        return participant.ended

    def _is_over(self, participant: CoordinatorParticipant, stop: StopRequest, now: float) -> bool:
        """Publish the status, and return whether every present device knows of the end."""
        self._show(participant, now)
        if stop:
            return True
        if not participant.finished:
            self._last_received = now
            return False
        plan = self._folder.plan
        patience = SILENT_BEATS * plan.beat if participant.ended else plan.deadline
        silent = now - self._last_received > patience
        return silent or self._gone >= set(participant.present())

    def _show(self, participant: CoordinatorParticipant, now: float) -> None:
        """Publish the status from time to time."""
        wire = self._count.totals()
        self._feed.update(participant, now, WireBytes(wire["bytes_sent"], wire["bytes_received"]))

    def _publish(self, status: RunStatus) -> None:
        write_text(self._folder.path / STATUS, status.text(), private=True)
        if self._page is not None:
            self._page.publish(status)

    def _observe(self, job: TrainingJob, sender: int, frames: list[Frame]) -> None:
        """Note the devices that know of the end."""
        for frame in frames:
            if isinstance(frame, Alive) and frame.phase >= job.left:
                self._gone.add(sender)
            elif isinstance(frame, Alive):
                self._last_received = clock()

    @property
    def _seconds(self) -> float:
        return clock() - self._began

    def _write_result(self, participant: CoordinatorParticipant, snapshot: Arrays) -> Arrays:
        """After the last phase, keep the result; add to the snapshot how long the run took."""
        job = participant.job
        if int(snapshot["phase"]) > job.last:
            weights = job.trainer.state_dict("model")
            result = self._result(job, weights, snapshot)
            sums = result["sums"]
            result |= {
                "devices": job.total,
                "left_out": {str(device): phase for device, phase in participant.left_out.items()},
                "evidence": self._evidence(participant),
                "seconds": round(self._seconds, 3),
                "seconds_per_sum": round(self._seconds / sums, 4) if sums else None,
                "seconds_between_sums": self._history.seconds_per_sum,
                "losses": self._history.all_losses.values(),
            }
            model = self._save_run(job, weights).model
            copy_evidence(self._folder.path, self._folder.path / RUN, result["evidence"])
            result["estimates"] = model.estimates
            result |= self._guarantees(model.guarantees, job.trainer.noise_added())
            self._store.write_result(weights, result)
        self._history.all_losses.sync()  # those of before the snapshot are not computed again
        return {**snapshot, _SECONDS: np.array(self._seconds)}

    def _evidence(self, participant: CoordinatorParticipant) -> dict[str, str]:
        """Return the files of evidence against devices of this run."""
        folder = self._folder
        return kept_evidence(folder.path, list(participant.left_out), folder.plan.tag)

    def _save_run(self, job: TrainingJob, weights: Arrays) -> "Run":
        """Write the run folder, `RUN`, once; return the run."""
        folder, seconds = self._folder, self._seconds
        run = coordinator_run(
            folder.plan, folder.manifest, job, weights, self._history.all_losses.items(), seconds
        )
        shutil.rmtree(folder.path / RUN, ignore_errors=True)  # of a coordinator that was killed
        run.save(folder.path / RUN)
        return run

    def _tidy(self) -> dict[str, Any]:
        """End the result, and delete what the run needed on the way."""
        result = self._end_result()
        self._delete(SNAPSHOT, ROUNDS, ATTEMPTS, LEFT_OUT, WIRE_COUNT, HISTORY, LOSSES, LOCK)
        return result


# Questions of a device's owner, through a socket in the device's folder.
#
# Only the owner can open it. A question is a line of JSON, `{"ask": "label"}` or `{"ask": "link",
# "device": 23}`; so is the answer. The question never leaves the machine. For a pair the device
# then asks the other one, by real cryptography (`lumos.deploy.protocol.questions`).

SOCKET = "control.sock"
_LONGEST = 4096
_POLL = 0.02


class AskedParticipant(Protocol):
    """A device, in the training (`DeviceParticipant`) or after it (`AnsweringParticipant`)."""

    phase: int
    job: TrainingJob
    questions: PairQuestions

    @property
    def finished(self) -> bool:
        """True once the training is over."""
        ...


@asynccontextmanager
async def answering(
    folder: Path,
    participant: AskedParticipant,
    prediction: Callable[[], dict[str, Any]],
    wake: Callable[[], None],
) -> AsyncIterator[None]:
    """Answer the device's owner, inside.

    Args:
        folder: of the device.
        participant: the device.
        prediction: returns its prediction of itself, once the training is over.
        wake: makes the device go on.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await _answer(participant, prediction, wake, await reader.readline())
        except (ValueError, TypeError, KeyError):
            answer = {"error": "this is no question"}
        except LumosError as error:
            answer = {"error": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    (folder / SOCKET).unlink(missing_ok=True)
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        # A path of any length: those of sockets have at most 107 bytes.
        server = await asyncio.start_unix_server(
            serve, f"/proc/self/fd/{place}/{SOCKET}", limit=_LONGEST
        )
        (folder / SOCKET).chmod(0o600)
        async with server:
            yield
    finally:
        os.close(place)
        (folder / SOCKET).unlink(missing_ok=True)


async def _answer(
    participant: AskedParticipant,
    prediction: Callable[[], dict[str, Any]],
    wake: Callable[[], None],
    line: bytes,
) -> dict[str, Any]:
    asked = json.loads(line)
    if not participant.finished:
        raise UsageError(
            f"the training goes on: {participant.job.name(participant.phase)}; ask later"
        )
    if asked["ask"] == "label":
        return prediction()
    if asked["ask"] != "link":
        raise ValueError("another question")
    peer = int(asked["device"])
    number = participant.questions.ask(peer, clock())
    wake()
    while number not in participant.questions.answers:
        await asyncio.sleep(_POLL)
    answer = participant.questions.answers.pop(number)
    if not isinstance(answer, PairAnswer):
        raise UsageError(answer)
    return {
        "device": peer,
        "probability": 1 / (1 + math.exp(-answer.score)),
        "answered": answer.answered,
    }


def ask_device(folder: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Ask a running device; called by its owner.

    Raises:
        InputError: no device runs in this folder.
        UsageError: the device says why it has no answer.
    """
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"/proc/self/fd/{place}/{SOCKET}")
        except OSError:
            raise InputError(
                f"{folder}: no device runs here that stays after the training; start it (lumos "
                "device), with a plan that says so (lumos up --stay)"
            ) from None
        finally:
            os.close(place)
        connection.sendall(json.dumps(question).encode() + b"\n")
        received = b""
        while chunk := connection.recv(_LONGEST):
            received += chunk
    answer: dict[str, Any] = json.loads(received)
    if "error" in answer:
        raise UsageError(f"{folder}: {answer['error']}")
    return answer

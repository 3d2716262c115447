"""Where a run stands, as its coordinator may tell it: nothing in it is private.

Of a single device it has the public id, and whether it answers or is left out.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from lumos.deploy.coordinator_party import CoordinatorParty
from lumos.deploy.run_history import RunHistory
from lumos.deploy.training_job import TrainingJob
from lumos.exchange.topic import TOPICS
from lumos.training.config import Config

ANSWERS = 5.0
"""Beats after which a device that did not answer is no longer online."""


class WireBytes(NamedTuple):
    """What the coordinator's connection has carried since this start, padding included."""

    sent: int = 0
    received: int = 0


NO_BYTES = WireBytes()


class TopicFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one topic that the coordinator sent, or received."""

    topic: str
    """Its name."""
    door: str
    """The door it leaves through, which says what protects it."""
    direction: str
    """`sent` to devices or `received` from them."""
    messages: int
    """How many."""
    bytes: int
    """Of their bodies."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A device that did not answer in time."""

    device: int
    """Its public id."""
    phase: str
    """The phase in which it was left out."""
    at: str
    """When: ISO 8601, UTC."""


class RunStage(msgspec.Struct, frozen=True, kw_only=True):
    """Epochs in which one part of the model learns: losses of two stages cannot be compared."""

    name: str
    """What people call it."""
    first: int
    """Its first epoch; 1 is the first of the run."""


class PageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands."""

    run: str
    """The first 8 hexadecimal digits of the run's tag."""
    task: str
    """`classify` or `link`."""
    profile: str
    """Name of the privacy profile."""
    coins: str
    """`system`, or `simulated` in tests: those protect nobody."""
    devices: int
    """Devices in all, those that are left out included."""
    online: int
    """Devices that take part and answer."""
    silent: list[int]
    """Public ids of devices that take part, and do not answer at present."""
    phase: str
    """Name of the present phase; of the last one, once the run has ended."""
    phase_number: int
    """Its number; 1 is the first."""
    phases: int
    """Phases in all."""
    phases_done: int
    """Phases that are over."""
    attempt: int
    """How often the present phase has begun again."""
    epochs: int
    """Epochs in all; 0 for a run that builds trees only."""
    stages: list[RunStage]
    """Stages of training, in order."""
    sums: int
    """Sums that were opened so far."""
    seconds_per_sum: float | None
    """Median of `recent_seconds`; None before two sums."""
    recent_seconds: list[tuple[int, float]]
    """(number of a sum, seconds since the one before it was opened) of the last sums."""
    ledger: list[TopicFlow]
    """What the coordinator's own ledger has counted, by topic and direction."""
    wire_sent: int
    """Bytes that the coordinator's connection has sent since it started."""
    wire_received: int
    """Bytes that it has received."""
    losses: list[tuple[int, float]]
    """(epoch, mean training loss), which all parties learn from a sum."""
    about_losses: str
    """What these losses are, in a sentence."""
    left_out: list[LeftOut]
    """Devices that are left out for good, the first one first."""
    ended: str | None
    """Empty: the run is finished; a line: it has failed, and why; None: it goes on."""
    headline: str
    """All of it in one sentence."""
    started: str
    """When the run began: ISO 8601, UTC."""
    updated: str
    """When this was put together: ISO 8601, UTC."""


def status_of(
    party: CoordinatorParty,
    config: Config,
    history: RunHistory,
    now: float,
    *,
    beat: float = 1.0,
    wire: WireBytes = NO_BYTES,
) -> PageStatus:
    """Where a run stands.

    Args:
        party: the coordinator.
        config: settings of the run.
        history: what it noted of the party so far.
        now: as `party.advance` takes it.
        beat: seconds between two signs of life of a device.
        wire: what the connection has carried.
    """
    history.watch(party, now)
    job, texts = party.job, config.profile.texts(config)
    silent = party.silent(now, ANSWERS * beat)
    shown = min(party.phase, job.last)
    trains = job.last > 0
    stages = {texts.first_stage: 1, **texts.stages} if trains else {}
    return PageStatus(
        run=history.run[:8],
        task=config.train.task,
        profile=config.train.profile,
        coins=config.train.coins,
        devices=job.total,
        online=len(party.present()) - len(silent),
        silent=silent,
        phase=job.name(shown),
        phase_number=shown + 1,
        phases=job.last + 1,
        phases_done=party.phase,
        attempt=party.attempt,
        epochs=config.train.epochs if trains else 0,
        stages=[RunStage(name=name, first=first) for name, first in stages.items()],
        sums=party.sums,
        seconds_per_sum=history.seconds_per_sum,
        recent_seconds=history.recent,
        ledger=list(_flows(job)),
        wire_sent=wire.sent,
        wire_received=wire.received,
        losses=history.losses,
        about_losses=texts.loss,
        left_out=_left_out(party, history),
        ended=party.ended,
        headline=_headline(party, online=len(party.present()) - len(silent)),
        started=_iso(history.started),
        updated=_iso(history.wall()),
    )


def _headline(party: CoordinatorParty, online: int) -> str:
    total, lost = party.job.total, len(party.out)
    if party.ended:
        return f"The run has failed: {party.ended}"
    if party.ended == "":
        end = f"{lost} of {total} devices were left out" if lost else f"all {total} devices stayed"
        return f"The run has finished after {_count(party.sums, 'sum')}; {end}"
    if not online and not party.phase:
        return f"Waiting for {total} devices; none has answered yet"
    phase = party.job.name(party.phase)
    left = f", {lost} left out" if lost else ""
    return f"{phase[:1].upper()}{phase[1:]}: {online} of {total} devices online{left}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _left_out(party: CoordinatorParty, history: RunHistory) -> list[LeftOut]:
    times = {device: history.left_out_at(device) for device in party.left_out}
    return [
        LeftOut(device=device, phase=party.left_out[device], at=_iso(times[device]))
        for device in sorted(times, key=lambda device: (times[device], device))
    ]


def _flows(job: TrainingJob) -> Iterator[TopicFlow]:
    """By topic and direction, where anything passed."""
    for name, flow in sorted(job.ledgers.flows().items()):
        for direction in ("received", "sent"):
            if messages := flow.get(direction, 0):
                yield TopicFlow(
                    topic=name,
                    door=TOPICS[name].door.value,
                    direction=direction,
                    messages=messages,
                    bytes=flow[f"bytes_{direction}"],
                )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

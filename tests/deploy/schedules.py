"""Random schedules of kills and restarts, counted in packets: each is a function of its seed."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.graph.parts import PartsFolder
from lumos.training.config import Config

LONGEST = 600.0
"""Virtual seconds after the last event of a schedule in which a run has to end."""


@dataclass
class Schedule:
    """Kills at packets, and how long each participant stays away.

    Args:
        seed: of all choices.
        packets: about how many the run has without kills.
        lost: whether one device stays away for longer than the deadline, or for good.
    """

    seed: int
    packets: int
    lost: bool
    kills: list[tuple[int, int, float]] = field(default_factory=list)
    """(packet, participant, seconds away)."""

    def __post_init__(self) -> None:
        randomness = np.random.default_rng(self.seed)
        for _ in range(int(randomness.integers(1, 7))):
            # Some kills come in a row, some behind the last packet of an undisturbed run.
            packet = int(randomness.integers(0, int(1.15 * self.packets)))
            participant = (
                int(randomness.integers(0, 12)) if randomness.random() < 0.7 else COORDINATOR
            )
            away = float(randomness.choice([0.0, 0.2, 1.0, 5.0, 20.0]))
            self.kills.append((packet, participant, away))
        if self.lost:
            packet = int(randomness.integers(0, self.packets))
            away = float(randomness.choice([40.0, np.inf]))
            self.kills.append((packet, int(randomness.integers(0, 12)), away))
        self.kills.sort()


def play(folder: PartsFolder, config: Config, schedule: Schedule) -> tuple[Federation, str]:
    """The federation after its run, and what was wrong: nothing, a hang, or an end."""
    federation = Federation(folder, config)
    left, down = list(schedule.kills), dict[int, float]()
    sent = 0
    victims: set[int] = set()

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        nonlocal sent
        sent += 1
        while left and left[0][0] <= sent:
            _, participant, away = left.pop(0)
            if participant not in federation.participants:
                continue
            if away > federation.deadline:
                victims.add(participant)
            federation.kill(participant)
            down[participant] = now + away

    federation.watch = watch

    def due() -> list[int]:
        return [participant for participant, back in down.items() if back <= federation.now]

    def ended() -> bool:
        finite = [back for back in down.values() if np.isfinite(back)]
        return not finite and all(p.ended is not None for p in federation.participants.values())

    limit = LONGEST
    while True:
        try:
            federation.run(until=lambda: bool(due()) or ended(), limit=limit)
        except TimeoutError:
            if any(np.isfinite(back) for back in down.values()):
                federation.now = min(back for back in down.values() if np.isfinite(back))
            else:
                return federation, _where(federation, "hangs")
        for participant in due():
            del down[participant]
            federation.start(participant)
            limit = max(limit, federation.now + LONGEST)
        if ended():
            break
    out = set(federation.coordinator.out)
    if len(out) > 1 and out <= victims:
        return federation, ""  # more than are tolerated
    wrong = federation.coordinator.ended != ""
    for device in range(12):
        found = federation.participants.get(device)
        if found is not None and found.ended != "" and device not in federation.coordinator.out:
            wrong = True
    if set(federation.coordinator.out) - victims:
        wrong = True
    return federation, _where(federation, "ended") if wrong else ""


def _where(federation: Federation, what: str) -> str:
    places = [
        f"{number}: {participant.phase}.{participant.attempt} {participant.ended!r}"
        for number, participant in sorted(federation.participants.items())
    ]
    out = sorted(federation.coordinator.out) if COORDINATOR in federation.participants else "?"
    return f"{what} at {federation.now:g} s, left out {out}; " + "; ".join(places)

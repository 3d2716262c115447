"""The loop of a party's process: take what arrives, go on, send what is due."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from lumos.deploy.frames import Frame
from lumos.deploy.nats_link import NatsLink

LONGEST_SLEEP = 1.0
"""Seconds after which the loop looks around, also where nothing is due."""


class DrivenParty(Protocol):
    """A device or the coordinator; see `device_party` and `coordinator_party`."""

    def receive(self, sender: int, frames: list[Frame], now: float) -> None:
        """Take what has arrived."""
        ...

    def advance(self, now: float) -> None:
        """Go on as far as that allows."""
        ...

    def due(self, now: float) -> list[tuple[int, list[Frame]]]:
        """What is to be sent now, by receiver."""
        ...

    def next_due(self) -> float:
        """When there is something to do, if nothing arrives."""
        ...


class StopRequest:
    """Whether somebody has asked the process to end."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def stopped_by_signals(wake: Callable[[], None]) -> Iterator[StopRequest]:
    """Inside, SIGINT and SIGTERM ask for an end in order, and call `wake`."""
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
    party: DrivenParty,
    link: NatsLink,
    over: Callable[[float], bool],
    observe: Callable[[int, list[Frame]], None] | None = None,
) -> None:
    """Run a party over its link.

    Args:
        party: has begun, by the clock `time.monotonic`.
        link: is open.
        over: asked with the time, after all that is due was sent: whether to return.
        observe: called with every packet that has arrived: from whom, and what.
    """
    while True:
        now = time.monotonic()
        for sender, frames in link.take():
            party.receive(sender, frames, now)
            if observe is not None:
                observe(sender, frames)
        party.advance(now)
        now = time.monotonic()
        for receiver, frames in party.due(now):
            await link.send(receiver, frames)
        now = time.monotonic()
        if over(now):
            return
        await link.wait(min(party.next_due() - now, LONGEST_SLEEP))

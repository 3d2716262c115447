"""One line for what a party drops: without its content, and not more often than people can read."""

from collections.abc import Callable

from lumos.deploy.parties import described

PAUSE = 10.0
"""Seconds between two lines about one sender."""


class DropLog:
    """Says that packets were dropped, and why; of each sender at most once in `PAUSE` seconds.

    Args:
        log: called with a line.
        clock: the time, in seconds.
    """

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._log, self._clock = log, clock
        self._next: dict[int | None, float] = {}
        self._unsaid: dict[int | None, int] = {}
        self.total = 0
        """Packets that were dropped."""

    def drop(self, sender: int | None, why: str) -> None:
        """A packet was dropped.

        Args:
            sender: None where it is nobody of the directory.
            why: in a few words, without anything of the packet.
        """
        self.total += 1
        now = self._clock()
        if now < self._next.get(sender, float("-inf")):
            self._unsaid[sender] = self._unsaid.get(sender, 0) + 1
            return
        self._next[sender] = now + PAUSE
        more = self._unsaid.pop(sender, 0)
        name = "somebody" if sender is None else described(sender)
        self._log(f"{name}: {why}; dropped" + (f" (and {more:,} before)" if more else ""))

"""Of every sum a device gives out shares once: also if it was restarted in between.

A device that replays a sum after a restart sends the same messages again, byte by byte, as long as
it is told the same. Were it told something else the second time (another device is lost, another
attempt of the same step is to be opened), its shares of both times together would open what neither
opens alone. So a device notes what it was told before it gives out the first share, where it
survives a restart, and gives out nothing of that sum, or of that step, for anything else.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from lumos.aggregate.errors import AlreadyOpened


class Opening(NamedTuple):
    """What a device was told when it gave out shares."""

    step: int
    """Attempts of one step have the same."""
    number: int
    """Of the sum, or attempt: it grows."""
    told: bytes
    """Digest of who is in the sum, who is lost, and the context."""


class OpenedSums:
    """The rule of one shard.

    Args:
        before: openings before a restart, of all sums that can be replayed.
        write: makes an opening survive a restart, before it returns.
    """

    def __init__(
        self,
        before: Iterable[Opening] = (),
        write: Callable[[Opening], None] | None = None,
    ) -> None:
        self._by_number = {opening.number: opening for opening in before}
        self._write = write

    def has(self, step: int, *, but: int | None = None) -> bool:
        """Whether shares of an attempt of this step were given out.

        Args:
            but: number of an attempt that does not count, as it is replayed.
        """
        return any(
            opening.step == step and opening.number != but for opening in self._by_number.values()
        )

    def settle(self, number: int) -> None:
        """Sums before this number cannot be replayed any more: their openings are forgotten."""
        self._by_number = {
            opened: opening for opened, opening in self._by_number.items() if opened >= number
        }

    def open(self, opening: Opening) -> None:
        """Note an opening. Afterwards shares of it may be given out.

        Raises:
            AlreadyOpened: shares of this sum, of another attempt of its step, or of a later sum
                were given out before, for something else.
        """
        if opening == self._by_number.get(opening.number):
            return
        later = opening.number <= max(self._by_number, default=-1)
        if later or self.has(opening.step):
            raise AlreadyOpened("shares of this sum were given out before, for something else")
        if self._write is not None:
            self._write(opening)
        self._by_number[opening.number] = opening

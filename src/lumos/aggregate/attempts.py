"""Attempts at one sum: of all attempts of a step at most one is opened.

A sum whose vectors belong together (both shares of a pair's product, or neither) can turn out
wrong before it is opened. It is then called off and made again, with fresh masks. Were two attempts
of a step opened, their difference would show what only one of them has. So a holder

* takes part in attempts of a step in their order, and none of them twice;
* forgets all shares of an attempt that is called off, before it joins another; they follow from
  keys that were overwritten when the attempt began (`pair_keys`), so nobody can make them again;
* takes part in no further attempt of a step once it gave out shares of one, also after a restart
  (`opened_sums`).

*Why that is enough, whatever the coordinator says to whom.* Let X of v's k neighbours collude. To
open v's vector in an attempt takes t shares of one of its secrets, so at least t - X honest holders
gave one out in that attempt; and none of them does in another attempt of the step. Two attempts in
which v is opened would need 2(t - X) honest holders of the k - X that there are, but by the choice
of t (`parameters`) 2t - k - X ≥ 1.
"""

from typing import NamedTuple

from lumos.aggregate.errors import AlreadyOpened
from lumos.aggregate.opened_sums import OpenedSums
from lumos.aggregate.share_vault import ShareVault
from lumos.crypto.in_memory import InMemoryOnly
from lumos.typing import Doubles


class Attempted(NamedTuple):
    """How an attempt ended."""

    total: Doubles | None
    """[width] the sum; None where nothing was opened, or no hosted device received it."""
    called_off: bool
    """Whether nothing was opened because somebody objected or fell silent: try again."""


class Attempts(InMemoryOnly):
    """The holders' rule, for the devices of one shard."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._vault: ShareVault | None = None

    def begin(self, step: int, number: int, opened: OpenedSums, sums: int) -> None:
        """Join an attempt, or refuse with `AlreadyOpened`.

        Args:
            opened: what the devices gave out shares for.
            sums: how many sums and attempts were before: an attempt that was opened before a
                restart is replayed, and opens the same.
        """
        if self._last is not None and (step, number) <= self._last:
            raise AlreadyOpened("an attempt at a sum is made once, and in order")
        if opened.has(step, but=sums):
            raise AlreadyOpened("another attempt at this sum was opened here")
        self._last = (step, number)
        if self._vault is not None:
            self._vault.forget()
        self._vault = None

    def hold(self, vault: ShareVault) -> None:
        """The shares of the present attempt; they are forgotten when another begins."""
        self._vault = vault

    def call_off(self) -> None:
        """The present attempt is called off: its shares are forgotten."""
        if self._vault is not None:
            self._vault.forget()

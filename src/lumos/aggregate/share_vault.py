"""Shares held for other devices: of a device's two secrets one is given out, never both.

In a round every device has two secrets, shared among its k neighbours: the *self secret*, whose
mask is opened when its vector has arrived, and the *pair secret*, which opens its pair masks when
it is lost. Both together would open its vector.
"""

import numpy as np

from lumos.aggregate.errors import BothSecrets, WrongSender
from lumos.aggregate.shamir import LIMBS, Elements
from lumos.crypto.in_memory import InMemoryOnly
from lumos.typing import Flags, Ints

SELF, PAIR = 0, 1


class ShareVault(InMemoryOnly):
    """The shares that hosted devices hold for their neighbours in one round."""

    def __init__(self, hosted: int, neighbours: int) -> None:
        self._shares = np.zeros((hosted, neighbours, 2, LIMBS), np.uint16)
        self._given = np.zeros((hosted, neighbours), np.bool_)
        self.has: Flags = np.zeros((hosted, neighbours), np.bool_)
        """[hosted, k] whose shares are here."""

    def store(self, rows: Ints, slots: Ints, shares: Elements) -> None:
        """Store shares, [messages, 2, limbs]: of the self secret, of the pair secret."""
        self._shares[rows, slots] = shares
        self.has[rows, slots] = True

    def give_out(self, rows: Ints, slots: Ints, which: Ints) -> Elements:
        """[requests, limbs] one share each; both are erased here.

        Args:
            rows: [requests] the hosted device that holds the share.
            slots: [requests] the neighbour whose secret it is.
            which: [requests] `SELF` or `PAIR`.
        """
        asked = rows * self.has.shape[1] + slots
        if self._given[rows, slots].any() or len(np.unique(asked)) < len(asked):
            raise BothSecrets("a holder was asked again about a device of which it gave a share")
        if not self.has[rows, slots].all():
            raise WrongSender("a holder was asked about a device that sent it no share")
        shares: Elements = self._shares[rows, slots, which]
        self._given[rows, slots] = True
        self._shares[rows, slots] = 0
        return shares

    def forget(self) -> None:
        """Erase all shares: nothing of this round can be given out any more."""
        self._shares[:] = 0
        self.has[:] = False

"""Shares held for other devices: of a device's two secrets one is given out, never both.

In a round every device has two secrets, shared among its k neighbours: the *self secret*, whose
mask is opened when its vector has arrived, and the *pair secret*, which opens its pair masks when
it is lost. Both together would open its vector. What a holder holds follows from the keys of the
round (`lumos.aggregate.derived_shares`), which exist nowhere else once the round has begun.
"""

import numpy as np

from lumos.aggregate.errors import BothSecrets, WrongSender
from lumos.aggregate.shamir import Elements
from lumos.crypto.in_memory import InMemoryOnly
from lumos.typing import Flags, Ints

SELF, PAIR = 0, 1


class ShareVault(InMemoryOnly):
    """What hosted devices hold for their neighbours in one round.

    Args:
        values: [hosted, k, 2, limbs] of the self secret and of the pair secret; kept, not copied.
    """

    def __init__(self, values: Elements) -> None:
        self._values = values
        self._given = np.zeros(values.shape[:2], np.bool_)
        self._in_round: Flags = np.zeros(values.shape[:2], np.bool_)

    def admit(self, joined: Flags) -> None:
        """[hosted, k] who is in the round: of nobody else anything is given out."""
        self._in_round = joined.copy()

    def give_out(self, rows: Ints, slots: Ints, which: Ints) -> Elements:
        """[requests, limbs] one value each; both are erased here.

        Args:
            rows: [requests] the hosted device that holds the share.
            slots: [requests] the neighbour whose secret it is.
            which: [requests] `SELF` or `PAIR`.
        """
        asked = rows * self._in_round.shape[1] + slots
        if self._given[rows, slots].any() or len(np.unique(asked)) < len(asked):
            raise BothSecrets("a holder was asked again about a device of which it gave a share")
        if not self._in_round[rows, slots].all():
            raise WrongSender("a holder was asked about a device that is not in the round")
        values: Elements = self._values[rows, slots, which]
        self._given[rows, slots] = True
        self._values[rows, slots] = 0
        return values

    def forget(self) -> None:
        """Erase everything: nothing of this round can be given out any more."""
        self._values[:] = 0
        self._in_round[:] = False

"""Surroundings: what a device hears from its neighbours, as a vector to compare with others'.

Every device draws a colour at random and tells its neighbours. Then, a few times, it tells them the
colour that it heard most often: an opinion, randomized, the same for all of them (`opinions`). So
colours gather in neighbourhoods, and two devices that know the same people hear the same colours.

The vector is the number of times that each colour was heard in the last round, less what is usual
for so many messages: otherwise its direction would tell the degree. Scaled to norm 1.
"""

import numpy as np

from lumos.device.shard import Shard
from lumos.encode.mechanisms import Mechanism
from lumos.strict.link_encoder import unit
from lumos.strict.opinions import preferred, randomized
from lumos.typing import Bytes, Doubles, Ints

CROWD = 16
"""Neighbours up to which a device's colour weighs more the more of them hear it."""


class Surroundings:
    """Colours that the hosted devices sent and heard, round by round.

    Args:
        shard: the hosted devices.
        mechanism: how an opinion on colours is randomized.
    """

    def __init__(self, shard: Shard, mechanism: Mechanism) -> None:
        self._shard = shard
        self._mechanism = mechanism
        self._size = mechanism.size
        everyone = np.arange(len(shard))
        chance = shard.coins.uniform(everyone, "colour", 0)[:, 0]
        self._own: Ints = np.floor(chance * self._size).astype(np.int64)
        """[hosted] what the device takes for its own: its colour, then its opinion as it was."""
        self._sent = self._own.astype(np.uint8)
        self._heard = np.zeros((len(shard), self._size))
        self.usual: list[Doubles] = []
        """For each round [colours], the frequency of each colour among all messages."""

    def message(self, number: int) -> Bytes:
        """[hosted, 1] what each device sends in a round: its colour, then opinions."""
        if number:
            self._own = preferred(self._shard, self._above_usual(number - 1), number)
            self._sent = randomized(self._shard, self._own, self._mechanism, number)[:, 0]
        return self._sent[:, None]

    def repeat(self, number: int, sent: Bytes) -> None:
        """Go through a round of a finished run again, in which devices sent this.

        Args:
            sent: [hosted] as neighbours received it.
        """
        if number:
            self._own = preferred(self._shard, self._above_usual(number - 1), number)
        else:
            self._own = sent.astype(np.int64)
        self._sent = sent

    def hear(self, receiver: Ints, colours: Ints) -> None:
        """Take the messages of a round.

        Args:
            receiver: [messages] positions.
            colours: [messages].
        """
        places = receiver * self._size + colours
        counts = np.bincount(places, minlength=self._heard.size)
        self._heard = counts.reshape(self._heard.shape).astype(np.float64)

    def sent_weights(self) -> Doubles:
        """[hosted, colours] what each device sent, by how many heard it, up to a crowd."""
        rows = np.zeros((len(self._sent), self._size))
        crowd = np.minimum(self._shard.degree, CROWD) / CROWD
        rows[np.arange(len(rows)), self._sent] = crowd
        return rows

    def learn_usual(self, total: Doubles) -> None:
        """Take the sum of `sent_weights`."""
        positive = np.maximum(total, 1e-3)
        self.usual = [*self.usual, positive / positive.sum()]

    def _above_usual(self, number: int) -> Doubles:
        """[hosted, colours] heard in a round, and one's own, less what is usual."""
        messages = self._shard.degree + 1
        own = np.eye(self._size)[self._own]
        above: Doubles = self._heard + own - messages[:, None] * self.usual[number]
        return above

    def vectors(self) -> Doubles:
        """[hosted, colours] of norm 1, of the last round."""
        return unit(self._above_usual(len(self.usual) - 1))

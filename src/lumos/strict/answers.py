"""What a device tells whoever asks: so many draws of each hop, whatever its degree.

**What of a device's embedding leaves.** Nothing that is computed from it. Scoring a pair needs
something of both ends to meet; here it is a sample of *released* symbols: the device's own, and for
each hop `answer` of those it heard, drawn without replacement and once per run. Everybody gets the
same sample, except that a neighbour's own messages are left out of what it is told.

**Why its form does not show the degree.** Every answer has the same length. Each pool holds at
least `PADS` made-up symbols, and so many that there is one more than is told; a device with few
neighbours tells mostly made-up ones. That its symbols then look more random is a hint that remains:
`benchmarks/strict_link_leak.py` measures it.
"""

from typing import NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.strict.relay import PADS
from lumos.typing import Bytes, Doubles, Ints


class Sample(NamedTuple):
    """What each hosted device may tell of one hop: one entry more than it tells anybody."""

    slots: Ints
    """[hosted, many + 1] where it came from; -1 for what is made up."""
    values: Bytes
    """[hosted, many + 1]"""

    def for_strangers(self) -> Bytes:
        """[hosted, many] what whoever asks is told."""
        return self.values[:, :-1]

    def for_neighbours(self, owner: Ints) -> Bytes:
        """[slots, many] what each neighbour is told: nothing that it said itself."""
        theirs = self.slots[owner] == np.arange(len(owner))[:, None]
        theirs[:, -1] |= ~theirs.any(axis=1)  # one entry goes in any case
        many = self.values.shape[1] - 1
        kept: Bytes = self.values[owner][~theirs].reshape(len(owner), many)
        return kept


def sample(shard: Shard, said: Bytes, usual: Doubles, many: int, purpose: str, hop: int) -> Sample:
    """Draw without replacement from what was heard and what is made up. O(slots log slots).

    Args:
        said: [slots] what came over each slot in this hop.
        usual: [size] how often each symbol is heard: what is made up is drawn from it.
        many: how many are told.
        purpose: names the coins, with the hop.
    """
    hosted = len(shard)
    spare = np.maximum(PADS, many + 1 - shard.degree)
    chance = shard.coins.uniform_each(spare, f"{purpose}/made up", hop)
    made = np.searchsorted(np.cumsum(usual)[:-1], chance, side="right")
    chance = np.concatenate(
        [
            shard.coins.uniform_each(shard.degree, f"{purpose}/heard", hop),
            shard.coins.uniform_each(spare, f"{purpose}/spare", hop),
        ]
    )
    owner = np.concatenate([shard.owner, np.repeat(np.arange(hosted), spare)])
    slots = np.concatenate([np.arange(len(said)), np.full(len(made), -1)])
    values = np.concatenate([said, made.astype(np.uint8)])
    order = np.lexsort((chance, owner))
    pool = shard.degree + spare
    first = order[(np.cumsum(pool) - pool)[:, None] + np.arange(many + 1)]
    return Sample(slots[first], values[first])

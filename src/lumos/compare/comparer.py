"""Comparisons in rounds: what the tree constructor asks, whichever backend answers.

Both ends of a pair take part, each on behalf of its own device, in the same rounds. The end with
the smaller id is the sender S of the protocol, the other one the receiver R.
"""

from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lumos.compare.spec import Spec
from lumos.device.shard import Shard
from lumos.errors import UsageError
from lumos.exchange.endpoint import Program
from lumos.exchange.masked_flag import anyone, count_for_everyone
from lumos.session.pairs import ComparedPairs
from lumos.typing import Flags, Ints

Signs = npt.NDArray[np.int8]

spec_of = cache(Spec)
"""Specs that are revealed to both ends, made once."""

LENGTHS = (4, 8, 12, 16, 20, 24, 28, 32)
"""Bit lengths ℓ that devices agree on; the first to which nobody objects is used."""


class Comparer(Protocol):
    """A backend: `secure` runs the protocol, `ideal` computes in the clear and is labelled so.

    A value above 2^bits - 1 saturates there.
    """

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """For each pair, whether S's value is below R's. Both ends learn this bit."""
        ...

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """For each pair the sign of (own value - peer's value). Both ends learn it."""
        ...


class RefusingComparer:
    """The comparer of a balancer that declares that it compares nothing."""

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """Refuse."""
        raise UsageError(_UNDECLARED)

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """Refuse."""
        raise UsageError(_UNDECLARED)


_UNDECLARED = "this balancer declares that it compares nothing; set its `compares` to True"


def at_least(
    comparer: Comparer, pairs: ComparedPairs, values: Ints, asker: Flags, bits: int
) -> Program[Flags]:
    """For each pair, whether the asker's value is at least the other's: one bit, for both ends.

    Args:
        asker: [pairs] True where the hosted device is the asker.
    """
    # asker is S:  [a ≥ b] = ¬[a < b].   asker is R:  [a ≥ b] = [b < a + 1].
    values = np.minimum(values, 2**bits - 2)  # room for the + 1
    below = yield from comparer.less(pairs, values + (asker & ~pairs.first), bits)
    answer: Flags = below ^ (asker == pairs.first)
    return answer


def agree_on_length(shard: Shard, largest: Ints) -> Program[int]:
    """The public ℓ: the smallest that holds every device's largest value. `largest`: [hosted]."""
    for bits in LENGTHS[:-1]:
        if not (yield from anyone(shard, largest >= 2**bits)):
            return bits
    return LENGTHS[-1]


def count_objections(devices: Ints) -> Program[None]:
    """The coordinator's part in `agree_on_length`. `devices`: ids of all that take part."""
    for _ in LENGTHS[:-1]:
        if not (yield from count_for_everyone(devices)):
            return

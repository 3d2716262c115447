"""The public mask graph: who shares masks with whom. It is drawn apart from the data graph.

All devices stand on a ring in a random public order, and each is joined to the h that follow and
the h that precede it (Bell et al. 2020, section 3.2: a Harary graph with k = 2h under a random
permutation); with k = n - 1 everyone is joined to everyone. The neighbours of a device are then a
uniform sample of k others, and the graph says nothing of the data: it depends on the number of
devices and on a seed only, which all devices draw together (`lumos.aggregate.mask_draw`).

The k *slots* of a device number its neighbours: slot j is the one at `steps[j]` places along the
ring. Slots mirror: if v sits in slot j of u, then u sits in slot k - 1 - j of v.
"""

import numpy as np

from lumos.aggregate.errors import WrongSender
from lumos.aggregate.ring_order import RingOrder
from lumos.typing import Flags, Ints


class MaskGraph:
    """The mask graph of a federation.

    Args:
        total: number of devices.
        neighbours: k, even or total - 1.
        seed: 32 bytes, which order the ring (`lumos.aggregate.ring_order`).
    """

    def __init__(self, total: int, neighbours: int, seed: bytes) -> None:
        self.total = total
        self.neighbours = neighbours
        self._ahead = -(-neighbours // 2)
        self._ring = RingOrder(total, seed)
        self.steps: Ints = np.arange(1, neighbours + 1)
        self.steps[self._ahead :] += total - 1 - neighbours

    @property
    def order(self) -> Ints:
        """[total] the ids along the ring: an array of the size of the federation."""
        return self._ring.ids

    def of(self, devices: Ints) -> Ints:
        """[devices, k] the neighbours of each, by slot."""
        there = (self._ring.place_of(devices)[:, None] + self.steps) % self.total
        return self._ring.id_at(there)

    def slots(self, devices: Ints, neighbours: Ints) -> Ints:
        """The slot of each neighbour at each device; `WrongSender` where they are not joined."""
        # As unsigned numbers negative ids are huge.
        if len(neighbours) and neighbours.view(np.uint64).max() >= self.total:
            raise WrongSender("a message names a device that does not exist")
        places = self._ring.place_of(np.stack([neighbours, devices]))
        step = (places[0] - places[1]) % self.total
        slots: Ints = (
            np.where(step <= self._ahead, step, step + self.neighbours + 1 - self.total) - 1
        )
        if not np.array_equal(self.steps.take(slots, mode="clip"), step):
            raise WrongSender("a message came from a device that shares no mask with its receiver")
        return slots

    def count(self, flags: Flags) -> Ints:
        """[total] how many neighbours of each device have their flag raised.

        It looks at the whole ring: arrays of the size of the federation.
        """
        # Neighbours are two windows of the ring: differences of running sums, O(n).
        ring = flags[self.order].astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(np.tile(ring, 3))])
        here = np.arange(self.total) + self.total
        behind = self.neighbours - self._ahead
        window: Ints = sums[here + self._ahead + 1] - sums[here - behind] - ring
        return window[self._ring.places]

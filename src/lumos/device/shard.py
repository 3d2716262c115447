"""Shards: the devices that one process hosts, as arrays. A shard of one is a device."""

from bisect import bisect_left
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lumos.device.randomness import (
    DeviceKeys,
    PrivateRandomness,
    PublicRandomness,
    fresh_key,
    simulated_secrets,
    system_secrets,
)
from lumos.errors import NotHosted, UsageError
from lumos.graph.arrays import spans
from lumos.graph.facts import GraphPart, parts_of
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.graph import Graph

_HANDFUL = 8  # up to so many devices or pairs are taken one by one; pairs are looked up …
_FEW = 4096  # … up to so many in the hash table …
_SMALL = 1 << 21  # … of shards with up to so many slots; it takes 24 to 48 bytes for each

COORDINATOR = -1
"""The coordinator's id: it receives and sends like the devices, and hosts none."""


def within(ids: Ints, least: int, end: int) -> bool:
    """Return whether least ≤ id < end for all of `ids`."""
    if ids.size <= _HANDFUL:
        values = ids.ravel().tolist()
        return not values or (least <= min(values) and max(values) < end)
    # As unsigned numbers those below the least are huge: one maximum checks both ends.
    highest = np.maximum.reduce((ids - least if least else ids).view(np.uint64), axis=None)
    return bool(highest < end - least)


class Shard:
    """The hosted devices, what they alone know, and nothing of anybody else.

    A *slot* is a pair (hosted device, one of its neighbours); slots are sorted by device, then by
    neighbour, and all arrays over slots share that order.

    Args:
        devices: [hosted] ids of the hosted devices, increasing.
        total: number of devices in the federation (public).
        offsets: [hosted + 1] slots of hosted device i are offsets[i] … offsets[i + 1] - 1.
        neighbours: [slots] id of the neighbour.
        randomness: private randomness of the hosted devices.
        public: public randomness.
        keys: of a device that keeps a secret, so that it can come back after a restart; None: keys
            are drawn fresh.
        absent: ids of devices that are left out of the run; none of them is a neighbour.
    """

    def __init__(
        self,
        devices: Ints,
        total: int,
        offsets: Ints,
        neighbours: Ints,
        randomness: PrivateRandomness,
        public: PublicRandomness,
        keys: DeviceKeys | None = None,
        absent: Collection[int] = (),
    ) -> None:
        if keys is not None and len(devices) != 1:
            raise UsageError("only a shard of one device keeps a secret")
        self.devices = devices
        self.total = total
        self.offsets = offsets
        self.neighbours = neighbours
        self.randomness = randomness
        self.public = public
        self.keys = keys
        self.absent = frozenset(absent)
        self.degree: Ints = np.diff(offsets)
        self.owner: Ints = np.repeat(np.arange(len(devices)), self.degree)
        self._dense = len(devices) == total
        self._first = int(devices[0]) if len(devices) else 0
        # A rank hosts a range of ids: positions are differences, and need no search.
        self._range = len(devices) > 0 and int(devices[-1]) - self._first == len(devices) - 1

    def __repr__(self) -> str:
        return f"Shard(devices={len(self.devices)} of {self.total})"

    def __len__(self) -> int:
        return len(self.devices)

    def private_keys(self, purpose: str, run: bytes) -> list[bytes]:
        """[hosted] a private key of each device, 32 bytes.

        Args:
            purpose: what it is for.
            run: names the run; a device that keeps a secret has the same key again for the same.
        """
        if self.keys is not None:
            return [self.keys.key(purpose, run)]
        return [fresh_key() for _ in range(len(self.devices))]

    def local(self, ids: Ints) -> Ints:
        """Positions of hosted devices. Raises `NotHosted` for any other id."""
        ids = np.asarray(ids, np.int64)
        if self._dense:
            if not within(ids, 0, self.total):
                raise NotHosted(f"device {ids[(ids < 0) | (ids >= self.total)][0]} does not exist")
            return ids
        if self._range and within(ids - self._first, 0, len(self.devices)):
            return ids - self._first
        rows = np.searchsorted(self.devices, ids)
        hosted = rows < len(self.devices)
        hosted[hosted] = self.devices[rows[hosted]] == ids[hosted]
        if not hosted.all():
            raise NotHosted(f"device {ids[~hosted][0]} is not hosted by this shard")
        return rows

    def ids_of(self, rows: Ints) -> Ints:
        """Ids of hosted devices."""
        if self._dense:
            return rows
        return rows + self._first if self._range else self.devices[rows]

    def neighbours_of(self, device: int) -> Ints:
        """The neighbours of one hosted device."""
        row = int(self.local(np.array([device]))[0])
        return self.neighbours[self.offsets[row] : self.offsets[row + 1]]

    def slots(self, device: Ints, neighbour: Ints) -> Ints:
        """Slots of (hosted device id, neighbour id) pairs. O(m), or O(m log slots) for many."""
        slots = self.slots_or_none(self.local(device), neighbour)
        if np.count_nonzero(slots < 0):
            raise NotHosted("a message came from a device that is no neighbour of its receiver")
        return slots

    def slots_or_none(self, rows: Ints, others: Ints) -> Ints:
        """Slots of (position of a hosted device, any id); -1 where they are no neighbours."""
        if len(rows) <= _HANDFUL:
            return self._slots_one_by_one(rows, others)
        if not len(self.neighbours) or np.maximum.reduce(others.view(np.uint64)) >= self.total:
            # An id out of range would be the key of another device's slot.
            near = (others >= 0) & (others < self.total) & (len(self.neighbours) > 0)
            slots = np.full(len(rows), -1, np.int64)
            if near.any():
                slots[near] = self.slots_or_none(rows[near], others[near])
            return slots
        keys = rows * self.total + others
        if len(keys) <= _FEW and len(self.neighbours) <= _SMALL:
            return self._index.find(keys)
        # Sorted keys walk through the table of slots once: here the search is the faster one.
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, places, -1)

    def _slots_one_by_one(self, rows: Ints, others: Ints) -> Ints:
        """`slots_or_none` of a handful: a dozen calls of numpy would take longer."""
        neighbours = self.neighbours.data  # a memoryview: plain numbers
        slots = np.empty(len(rows), np.int64)
        for number, (row, other) in enumerate(zip(rows.tolist(), others.tolist(), strict=True)):
            end = self.offsets[row + 1]
            slot = bisect_left(neighbours, other, self.offsets[row], end)
            slots[number] = slot if slot < end and neighbours[slot] == other else -1
        return slots

    @cached_property
    def present(self) -> Ints:
        """[present] ids of all devices of the federation that are not left out, increasing."""
        return np.setdiff1d(np.arange(self.total), sorted(self.absent), assume_unique=True)

    @cached_property
    def _keys(self) -> Ints:
        """[slots] one number for each slot, in order."""
        return self.owner * self.total + self.neighbours

    @cached_property
    def _index(self) -> "SlotIndex":
        return SlotIndex(self._keys)

    def slots_of(self, rows: Ints) -> Ints:
        """All slots of the hosted devices `rows` (positions), in order."""
        if 0 < len(rows) <= _HANDFUL:
            ends = zip(self.offsets[rows].tolist(), self.offsets[rows + 1].tolist(), strict=True)
            return np.concatenate([np.arange(start, end) for start, end in ends])
        return spans(self.offsets[rows], self.degree[rows])


def shard_of(part: GraphPart, seed: int, randomness: str = "seeded", variant: str = "") -> Shard:
    """The shard that hosts the devices of a part.

    Args:
        part: its arrays are used as they are.
        seed: run seed.
        randomness: where device secrets come from, `simulated` (run seed) or `system`.
        variant: name of an experiment beside the run: it has secrets of its own.
    """
    devices = part.devices
    simulated = randomness == "seeded"
    secrets = simulated_secrets(seed, devices, variant) if simulated else system_secrets(devices)
    return Shard(
        devices,
        part.total,
        part.offsets,
        part.neighbours,
        PrivateRandomness(secrets),
        PublicRandomness(seed),
    )


def spread(devices: int, shards: int) -> list[Ints]:
    """For each shard of one process the ids of its devices: device i goes to i mod `shards`.

    Raises:
        UsageError: there are more shards than devices, or none.
    """
    if not 1 <= shards <= devices:
        raise UsageError(
            f"`shards` must be between 1 and the number of devices ({devices}), got {shards}"
        )
    return [np.arange(number, devices, shards, dtype=np.int64) for number in range(shards)]


def cut(
    graph: "Graph", shards: int, seed: int, randomness: str = "seeded", variant: str = ""
) -> list[Shard]:
    """Cut a graph into shards: device i goes to shard i mod `shards`. Nothing is shared.

    Args:
        graph: the graph, which no shard will see.
        shards: number of shards, 1 to the number of devices.
        seed: run seed.
        randomness: where device secrets come from, `simulated` (run seed) or `system`.
        variant: name of an experiment beside the run: it has secrets of its own.
    """
    parts = parts_of(graph, spread(graph.devices, shards), features=False)
    return [shard_of(part, seed, randomness, variant) for part in parts]


# Slots by key in constant time: a hash table of integers, vectorised.
#
# A binary search over hundreds of thousands of keys touches a cold cache line at every step, and
# that is most of the time of the small requests of one step of a balancer. Here every key lies in
# one of two places (cuckoo hashing), so that a look-up is one comparison, for a few keys two.

# Odd multipliers of two hash functions: 2^64 divided by the golden ratio, and a prime of xxHash.
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_PATIENCE = 100  # rounds until a larger table is tried; at most a third full, it takes about 20


class SlotIndex:
    """Positions of distinct keys that are not negative.

    Args:
        keys: [slots] the keys; the value of a key is its position.
    """

    def __init__(self, keys: Ints) -> None:
        self._keys = keys if len(keys) else np.array([-1])  # one that nobody looks for
        bits = max(4, (3 * len(keys)).bit_length())
        while not self._build(bits):
            bits += 1

    def _build(self, bits: int) -> bool:
        """Give every key one of its two places; False when that takes too long."""
        self._shift = np.uint64(64 - bits)
        table = np.full(1 << bits, -1, np.int64)
        places = np.stack([self._place(self._keys, which) for which in (0, 1)])
        which = np.zeros(len(self._keys), np.int64)
        waiting = np.arange(len(self._keys))
        for _ in range(_PATIENCE):
            if not len(waiting):
                break
            wanted = places[which[waiting], waiting]
            evicted = table[wanted]
            table[wanted] = waiting  # of several, one stays
            lost = waiting[table[wanted] != waiting]
            waiting = np.unique(np.concatenate([lost, evicted[evicted >= 0]]))
            which[waiting] ^= 1  # who has to go tries its other place
        # A free place names some slot: whoever looks there compares keys in any case.
        self._table = np.maximum(table, 0)
        return not len(waiting)

    def find(self, keys: Ints) -> Ints:
        """[keys] position of each key, or -1."""
        slots: Ints = self._table[self._place(keys, 0)]
        missed = (self._keys[slots] != keys).nonzero()[0]
        if missed.size:
            keys = keys[missed]
            other = self._table[self._place(keys, 1)]
            slots[missed] = np.where(self._keys[other] == keys, other, -1)
        return slots

    def _place(self, keys: Ints, which: int) -> Ints:
        place: Ints = ((keys.view(np.uint64) * _FACTORS[which]) >> self._shift).view(np.int64)
        return place

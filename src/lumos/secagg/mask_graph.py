"""The public mask graph: the mask neighbours of every device, drawn apart from the data graph.

All devices stand on a ring in a random public order, and each is joined to the h that follow and
the h that precede it (Bell et al. 2020, section 3.2: a Harary graph with k = 2h under a random
permutation); with k = n - 1 everyone is joined to everyone. The neighbours of a device are then a
uniform sample of k others, and the graph reveals nothing of the data: it depends on the number of
devices and on a seed only, which all devices draw together.

The k *slots* of a device number its neighbours: slot j is the one at `steps[j]` places along the
ring. Slots mirror: if v sits in slot j of u, then u sits in slot k - 1 - j of v.

First comes the graph (`MaskGraph`), then the draw of its seed, then the order of the ring.
"""

from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from lumos.crypto import entropy
from lumos.device.shard import Shard
from lumos.errors import DrawVoid, Equivocation, Forged, WrongLength, WrongSender
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import Inbox
from lumos.secagg.topics import (
    CONTRIBUTION,
    DRAW_COMMITMENT,
    DRAW_CONTRIBUTION,
    DRAW_DIGEST,
    DRAW_LIST,
    PUBLIC_HASH,
    SEED_TAG,
    check_from_coordinator,
)
from lumos.typing import Bytes, Flags, Ints, Words


class MaskGraph:
    """The mask graph of a federation.

    Args:
        total: number of devices.
        neighbours: k, even or total - 1.
        seed: 32 bytes, which order the ring.
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
        slots, joined = self.slots_if_joined(devices, neighbours)
        if not joined.all():
            raise WrongSender("a message came from a device that shares no mask with its receiver")
        return slots

    def slots_if_joined(self, devices: Ints, others: Ints) -> tuple[Ints, Flags]:
        """The slot of each other device at each device, and whether the two are joined."""
        # As unsigned numbers negative ids are huge.
        if len(others) and others.view(np.uint64).max() >= self.total:
            raise WrongSender("a message names a device that does not exist")
        places = self._ring.place_of(np.stack([others, devices]))
        step = (places[0] - places[1]) % self.total
        slots: Ints = (
            np.where(step <= self._ahead, step, step + self.neighbours + 1 - self.total) - 1
        )
        return slots, self.steps.take(slots, mode="clip") == step

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


# The draw of the mask graph: a seed that all devices make together and nobody chooses.
#
# It is held in the `setup` of every run, after enrolment: the ids 0 … n - 1 are fixed and public.
#
# 1. Each device draws a contribution r_u of 16 bytes from its private randomness, and sends the
#    coordinator the commitment c_u = H(plan, n, draw, u, r_u).
# 2. The coordinator sends everyone D = H(c_0 … c_{n-1}).
# 3. Each device sends r_u; the coordinator sends everyone r_0 … r_{n-1}, 16 n bytes.
# 4. Each device finds its own r_u in the list, recomputes all c and D, and takes seed = H(plan, n,
#    draw, r_0 … r_{n-1}). Mask neighbours compare a tag of it with their keys.
#
# *plan* is the digest of the signed plan of real devices, and empty in a simulation. Devices with
# different plans take different seeds, so none of them has a mask neighbour with another plan.
#
# **Guarantee**, for BLAKE2b as a random oracle, against a coordinator that lies and any number of
# devices: the seed that an honest device takes is uniform, given all that anybody knew before that
# device showed its contribution. For D binds its sender to one list (a second one with the same D
# is a collision), the list has the device's own r_u in it, and r_u was hidden in c_u until D was
# there. A commitment names its device, so a copy of it opens nowhere else.
#
# **Void draws.** Whoever withholds its contribution can see the seed first. So a contribution that
# is missing, or opens no commitment, voids the draw for all. There is another one, with fresh
# contributions, from which whoever withheld one is barred: it counts as absent. So a device voids
# one draw at most, and several that withhold in the same draw void one together.
#
# **Absent devices.** Whoever binds itself to nothing in a draw contributes 16 zero bytes, by rule.
# The coordinator shows so by its list, and cannot do it to a device that takes part: that one does
# not find its own contribution in the list. If fewer than `minimum` take part, the run ends.
#
# **Number of draws.** So n - minimum devices may withhold one after the other, and a run has at
# most one draw more (`MaskParameters.draws`). A coordinator that lies can void as many without
# costing any device, and no more: devices count them. The adversary chooses among that many seeds,
# and the failure bound is divided by their number (`lumos.secagg.parameters`).
#
# **Not covered**: who colludes, or is seized, after the draw has been chosen with knowledge of it.
# With simulated randomness the contributions follow from the run seed, and so does the mask graph.

PURPOSE = "mask graph"
_ID = 8


def draw_seed(shard: Shard, draws: int) -> Program[bytes]:
    """The hosted devices' part: the seed of the mask graph.

    Args:
        shard: the hosted devices.
        draws: how many draws there are at most.

    Raises:
        DrawVoid: every draw was void.
        Forged: the coordinator's list is not what devices bound themselves to.
        Equivocation: the coordinator sent hosted devices different things.
    """
    everyone, plan = np.arange(len(shard)), shard.public.plan
    for draw in range(draws):
        mine = contributions_of(shard, draw)
        bound = commitments(mine, shard.devices, shard.total, draw, plan)
        yield DRAW_COMMITMENT.to_coordinator(shard, everyone, bound)
        digest = _received(shard, (yield DRAW_DIGEST.nothing()))
        if digest is None:
            continue  # void before anybody showed anything
        yield DRAW_CONTRIBUTION.to_coordinator(shard, everyone, mine)
        listed = _received(shard, (yield DRAW_LIST.nothing()))
        if listed is None:
            continue
        if listed.size != CONTRIBUTION * shard.total:
            raise WrongLength("the list of a draw is too long or too short")
        shown = listed.reshape(shard.total, CONTRIBUTION)
        if not np.array_equal(shown[shard.devices], mine):
            raise Forged("the list of a draw has not what a device contributed")
        total = shard.total
        if list_digest(commitments(shown, np.arange(total), total, draw, plan)) != digest.tobytes():
            raise Forged("the list of a draw is not what devices bound themselves to")
        return seed_of(shown, draw, plan)
    raise DrawVoid(
        f"the coordinator declared {draws} draws of the mask graph void, and there are no more"
    )


class Draw(NamedTuple):
    """The result of a draw at the coordinator."""

    seed: bytes
    silent: Flags
    """[total] who committed itself in some draw and showed nothing."""
    lied: Flags
    """[total] who showed something else than it had committed itself to."""


def hold_draw(
    total: int, minimum: int | None = None, plan: bytes = b"", refused: list[int] | None = None
) -> Program[Draw]:
    """The coordinator's part: the seed of the mask graph.

    Args:
        total: number of devices.
        minimum: how many have to take part; None: all of them.
        plan: as in `PublicRandomness`.
        refused: gets devices whose messages break the rules, which count as silent; None: that
            raises.

    Raises:
        DrawVoid: fewer than `minimum` take part.
    """
    everyone, minimum = np.arange(total), total if minimum is None else minimum
    silent, lied = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    for draw in range(total - minimum + 1):
        barred = silent | lied
        bound, here = _filled((yield DRAW_COMMITMENT.nothing()), total, PUBLIC_HASH, refused)
        here &= ~barred
        if here.sum() < minimum:
            break
        absent = np.flatnonzero(~here)
        nothing = np.zeros((len(absent), CONTRIBUTION), np.uint8)
        bound[absent] = commitments(nothing, absent, total, draw, plan)
        digest = np.frombuffer(list_digest(bound), np.uint8)
        yield DRAW_DIGEST.from_coordinator(everyone, np.broadcast_to(digest, (total, PUBLIC_HASH)))
        inbox = yield DRAW_CONTRIBUTION.nothing()
        shown, showing = _filled(inbox, total, CONTRIBUTION, refused)
        shown[absent] = 0
        withheld = (commitments(shown, everyone, total, draw, plan) != bound).any(axis=1)
        if not withheld.any():
            listed = shown.ravel()
            yield DRAW_LIST.from_coordinator(
                everyone, np.broadcast_to(listed, (total, len(listed)))
            )
            return Draw(seed_of(shown, draw, plan), silent, lied)
        silent |= withheld & ~showing
        lied |= withheld & showing
        yield DRAW_LIST.nothing()
    here &= ~(silent | lied)
    raise DrawVoid(
        f"the mask graph could not be drawn: {here.sum()} of {total} devices take part, and "
        f"{minimum} have to; enrol without those that withhold what they committed themselves to"
    )


def contributions_of(shard: Shard, draw: int) -> Bytes:
    """[hosted, 16] what hosted devices contribute to a draw, from their private randomness."""
    words = shard.randomness.words(np.arange(len(shard)), PURPOSE, draw, CONTRIBUTION // 4)
    return np.ascontiguousarray(words, "<u4").view(np.uint8).reshape(len(shard), CONTRIBUTION)


def commitments(
    contributions: Bytes, devices: Ints, total: int, draw: int, plan: bytes = b""
) -> Bytes:
    """[devices, 32] what binds each device to its contribution and hides it (128 uniform bits)."""
    size = 3 * _ID + CONTRIBUTION
    rows = np.empty((len(devices), size), np.uint8)
    rows[:, : 2 * _ID] = np.array([total, draw], "<i8").view(np.uint8)
    rows[:, 2 * _ID : 3 * _ID] = devices.astype("<i8").view(np.uint8).reshape(-1, _ID)
    rows[:, 3 * _ID :] = contributions
    whole = rows.tobytes()
    hashed = b"".join(
        blake2b(
            whole[start : start + size],
            digest_size=PUBLIC_HASH,
            key=plan,
            person=b"lumos draw bound",
        ).digest()
        for start in range(0, len(whole), size)
    )
    return np.frombuffer(hashed, np.uint8).reshape(len(devices), PUBLIC_HASH)


def list_digest(bound: Bytes) -> bytes:
    """D: the hash of all commitments, in the order of the ids."""
    whole = np.ascontiguousarray(bound).tobytes()
    return blake2b(whole, digest_size=PUBLIC_HASH, person=b"lumos draw list").digest()


def seed_of(contributions: Bytes, draw: int, plan: bytes = b"") -> bytes:
    """The seed, 32 bytes, from all contributions in the order of the ids."""
    numbers = np.array([len(contributions), draw], "<i8").tobytes()
    whole = numbers + np.ascontiguousarray(contributions).tobytes()
    return blake2b(whole, digest_size=PUBLIC_HASH, key=plan, person=b"lumos draw seed").digest()


def seed_tag(seed: bytes) -> bytes:
    """Return the tag by which mask neighbours compare their seeds."""
    return blake2b(seed, digest_size=SEED_TAG, person=b"lumos draw tag").digest()


def _received(shard: Shard, inbox: Inbox) -> Bytes | None:
    """Return the bytes that the coordinator sent every hosted device; None where it sent none."""
    if not len(inbox.sender):
        return None
    check_from_coordinator(inbox)
    if not np.array_equal(inbox.receiver, shard.devices):
        raise WrongSender("the coordinator's word in a draw is missing, or came twice")
    lengths = inbox.batch.lengths
    # One array for all receivers is one list; copies are compared.
    one = inbox.body.strides[0] == 0 or all(
        np.array_equal(row, inbox.body[0]) for row in inbox.body[1:]
    )
    if not one or (lengths is not None and lengths.min() != lengths.max()):
        raise Equivocation("the coordinator sent devices different lists of a draw")
    return np.ascontiguousarray(inbox.body[0])


def _filled(inbox: Inbox, total: int, size: int, refused: list[int] | None) -> tuple[Bytes, Flags]:
    """[total, size] what each device sent, zeros where it sent nothing; and [total] who sent."""
    sender = inbox.sender
    # Senders are sorted. As unsigned numbers negative ids are huge.
    if len(sender) and sender.view(np.uint64).max() >= total:
        raise WrongSender("a message came from a device that does not exist")
    here, filled = np.zeros(total, np.bool_), np.zeros((total, size), np.uint8)
    here[sender], filled[sender] = True, inbox.body
    twice = sender[1:][np.diff(sender) == 0]
    if len(twice):
        if refused is None:
            raise WrongSender("a device sent the same thing twice")
        refused += twice.tolist()
        here[twice], filled[twice] = False, 0
    return filled, here


# The order of the ring: a permutation of the ids that is evaluated where it is asked.
#
# A device needs 2 · h places of the ring and not all n. So the order of more than `TABLE` devices
# is a keyed permutation: a Feistel network over Z_a × Z_b with a = ⌈√n⌉ and b = ⌈n / a⌉ (Black,
# Rogaway 2002, section 5), whose even rounds are L ← L + F(R) mod a and whose odd ones R ← R + F(L)
# mod b. Each round has a table of its own, filled from the seed by ChaCha20: `ROUNDS` · √n numbers
# in all, 100 kB for a million devices. A result in a·b that is no id is put in again until it is
# one (their cycle walking; fewer than one in √n are).
#
# *What is assumed.* `lumos.secagg.parameters` bounds events of the ring for a uniform order. The
# colluders are chosen before the seed, and whether the event happened can be read from the place of
# one device and the set of the colluders' places. So its probability grows at most by the advantage
# with which somebody who sees these, and not the key, tells them from uniform ones. That this is
# negligible beside 2^-security_bits is assumed for a network of `ROUNDS` rounds. It is no theorem
# at this size (Patarin 2010 proves it for fewer questions than there are ids). The best
# distinguishers known count pairs that agree in one half, and have an advantage of about √n^(2 -
# ROUNDS/2) (Patarin 2001): 2^-60 at `TABLE` devices, 2^-99 at a million. Attacks on short
# format-preserving encryption (Hoang, Tessaro, Trieu 2018) use few rounds and many permutations;
# here are 24 rounds and at most one for each draw. *Of the whole order it would be false*: where a
# and b are odd, every round is an even permutation, and so are all orders of a · b ids. That is no
# help here. If two colluders change places, an even order becomes an odd one and the set stays: a
# uniform even order has uniform sets. Up to `TABLE` devices, where such networks are weakest, the
# order is a sorted table of 64-bit words of ChaCha20: uniform, as far as that is.

TABLE = 4096
"""Devices up to which the order is a table."""
ROUNDS = 24
"""Rounds of the network."""

_NONCE = bytes(12)  # a seed is used for one order
_ROWS = 1 << 16  # ids at a time: their halves stay in the cache


class RingOrder:
    """The ids along the ring, and the places of ids.

    Args:
        total: number of devices.
        seed: 32 bytes.
    """

    def __init__(self, total: int, seed: bytes) -> None:
        self.total = total
        self._seed = seed
        self._network = KeyedPermutation(total, seed) if total > TABLE else None

    @cached_property
    def ids(self) -> Ints:
        """[total] the ids along the ring: 8 bytes for each device of the federation."""
        if self._network is None:
            return sorted_order(self.total, self._seed)
        return self._network.forward(np.arange(self.total))

    @cached_property
    def places(self) -> Ints:
        """[total] the place of each id."""
        places = np.empty(self.total, np.int64)
        places[self.ids] = np.arange(self.total)
        return places

    def id_at(self, places: Ints) -> Ints:
        """The ids at places of the ring, in the shape of `places`."""
        if self._network is None or places.size >= self.total or "ids" in vars(self):
            return self.ids[places]
        return self._network.forward(places.ravel()).reshape(places.shape)

    def place_of(self, ids: Ints) -> Ints:
        """The places of ids on the ring, in the shape of `ids`."""
        if self._network is None or ids.size >= self.total or "places" in vars(self):
            return self.places[ids]
        return self._network.backward(ids.ravel()).reshape(ids.shape)


def sorted_order(total: int, seed: bytes) -> Ints:
    """[total] the ids in a uniform order: sorted by random words of 64 bits."""
    words = entropy.blocks(_key(seed), _NONCE, -(-total // 8))
    drawn = np.ascontiguousarray(words, "<u4").view("<u8").ravel()[:total]
    return np.argsort(drawn, kind="stable")


class KeyedPermutation:
    """The Feistel network on 0 … total - 1."""

    def __init__(self, total: int, seed: bytes) -> None:
        self._total = total
        self._left = max(1, int(np.ceil(np.sqrt(total))))
        self._right = -(-total // self._left)
        sizes = [self._right, self._left] * (ROUNDS // 2)  # by round: what F looks at
        words = entropy.blocks(_key(seed), _NONCE, -(-sum(sizes) // 8))
        drawn = np.ascontiguousarray(words, "<u4").view("<u8").ravel()
        # A word modulo a half is uniform but for 2^-48.
        moduli = np.array([self._left, self._right] * (ROUNDS // 2), np.uint64)
        ends = np.cumsum(sizes)
        self._tables: list[Ints] = [
            (drawn[end - size : end] % modulus).astype(np.int64)
            for end, size, modulus in zip(ends.tolist(), sizes, moduli, strict=True)
        ]

    def forward(self, values: Ints) -> Ints:
        """π of each value, [values]."""
        return self._walk(values, self._tables, sign=1)

    def backward(self, values: Ints) -> Ints:
        """π^-1 of each value, [values]."""
        return self._walk(values, self._tables[::-1], sign=-1)

    def _walk(self, values: Ints, tables: list[Ints], sign: int) -> Ints:
        found = np.empty(len(values), np.int64)
        for start in range(0, len(values), _ROWS):
            found[start : start + _ROWS] = self._once(values[start : start + _ROWS], tables, sign)
        while (outside := np.flatnonzero(found >= self._total)).size:
            found[outside] = self._once(found[outside], tables, sign)
        return found

    def _once(self, values: Ints, tables: list[Ints], sign: int) -> Ints:
        left, right = np.divmod(values, self._right)
        for number, table in enumerate(tables):
            changes_left = (number % 2 == 0) == (sign == 1)
            size = self._left if changes_left else self._right
            changed, shift = (left, table[right]) if changes_left else (right, table[left])
            # The sum lies within one modulus of the range: cheaper than a division.
            if sign == 1:
                changed += shift
                changed -= size * (changed >= size)
            else:
                changed -= shift
                changed += size * (changed < 0)
        return left * self._right + right


def _key(seed: bytes) -> Words:
    return np.frombuffer(seed, "<u4").astype(np.uint32)[None]

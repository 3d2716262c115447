"""The draw of the mask graph: a seed that all devices make together and nobody chooses.

It is held in the `setup` of every run, after enrolment: the ids 0 … n - 1 are fixed and public.

1. Each device draws a contribution r_u of 16 bytes from its private coins, and sends the
   coordinator the commitment c_u = H(n, draw, u, r_u).
2. The coordinator tells everyone D = H(c_0 … c_{n-1}).
3. Each device sends r_u; the coordinator tells everyone r_0 … r_{n-1}, 16 n bytes.
4. Each device finds its own r_u in the list, recomputes all c and D, and takes
   seed = H(n, draw, r_0 … r_{n-1}). Mask neighbours compare a tag of it with their keys.

**Guarantee**, for BLAKE2b as a random oracle, against a coordinator that lies and any number of
devices: the seed that an honest device takes is uniform, given all that anybody knew before that
device showed its contribution. For D binds its sender to one list (a second one with the same D is
a collision), the list has the device's own r_u in it, and r_u was hidden in c_u until D was there.
A commitment names its device, so a copy of it opens nowhere else.

**Void draws.** Whoever withholds its contribution can see the seed first. So a contribution that is
missing, or opens no commitment, voids the draw for all: there is another one, with fresh
contributions, and after `DRAWS` of them an error. The adversary chooses among `DRAWS` seeds at
most, and the failure bound is divided by that number (`lumos.aggregate.parameters`).

**Absent devices.** Whoever binds itself to nothing in a draw contributes 16 zero bytes, by rule.
The coordinator says so by its list, and cannot say it of a device that takes part: that one does
not find its own contribution in the list. More absent devices than `dropped` allows void the draw.

**Not covered**: who colludes, or is seized, after the draw has been chosen with knowledge of it.
With simulated coins the contributions follow from the run seed, and so does the mask graph.
"""

from hashlib import blake2b

import numpy as np

from lumos.aggregate.errors import DrawVoid, Equivocation, Forged, WrongSender
from lumos.aggregate.parameters import DRAWS
from lumos.aggregate.topics import (
    CONTRIBUTION,
    DRAW_COMMITMENT,
    DRAW_CONTRIBUTION,
    DRAW_DIGEST,
    DRAW_LIST,
    PUBLIC_HASH,
    SEED_TAG,
)
from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import WrongLength
from lumos.exchange.batch import Inbox
from lumos.exchange.endpoint import Program
from lumos.typing import Bytes, Ints

PURPOSE = "mask graph"
_ID = 8


def draw_seed(shard: Shard) -> Program[bytes]:
    """The hosted devices' part: the seed of the mask graph.

    Raises:
        DrawVoid: a contribution was missing in every draw.
        Forged: the coordinator's list is not what devices bound themselves to.
        Equivocation: the coordinator told hosted devices different things.
    """
    everyone = np.arange(len(shard))
    for draw in range(DRAWS):
        mine = contributions_of(shard, draw)
        bound = commitments(mine, shard.devices, shard.total, draw)
        yield DRAW_COMMITMENT.to_coordinator(shard, everyone, bound)
        digest = _told(shard, (yield DRAW_DIGEST.nothing()))
        if digest is None:
            continue  # void before anybody showed anything
        yield DRAW_CONTRIBUTION.to_coordinator(shard, everyone, mine)
        listed = _told(shard, (yield DRAW_LIST.nothing()))
        if listed is None:
            continue
        if listed.size != CONTRIBUTION * shard.total:
            raise WrongLength("the list of a draw is too long or too short")
        shown = listed.reshape(shard.total, CONTRIBUTION)
        if not np.array_equal(shown[shard.devices], mine):
            raise Forged("the list of a draw has not what a device contributed")
        if list_digest(commitments(shown, np.arange(shard.total), shard.total, draw)) != (
            digest.tobytes()
        ):
            raise Forged("the list of a draw is not what devices bound themselves to")
        return seed_of(shown, draw)
    raise _void()


def hold_draw(total: int, minimum: int | None = None) -> Program[bytes]:
    """The coordinator's part: the seed of the mask graph.

    Args:
        total: number of devices.
        minimum: how many have to take part; None: all of them.
    """
    everyone = np.arange(total)
    for draw in range(DRAWS):
        bound, absent = _filled((yield DRAW_COMMITMENT.nothing()), total, PUBLIC_HASH)
        if total - len(absent) < (total if minimum is None else minimum):
            yield DRAW_DIGEST.nothing()
            continue
        if len(absent):
            nothing = np.zeros((len(absent), CONTRIBUTION), np.uint8)
            bound[absent] = commitments(nothing, absent, total, draw)
        digest = np.frombuffer(list_digest(bound), np.uint8)
        yield DRAW_DIGEST.from_coordinator(everyone, np.broadcast_to(digest, (total, PUBLIC_HASH)))
        shown, _ = _filled((yield DRAW_CONTRIBUTION.nothing()), total, CONTRIBUTION)
        if not np.array_equal(commitments(shown, everyone, total, draw), bound):
            yield DRAW_LIST.nothing()
            continue
        listed = np.ascontiguousarray(shown).ravel()
        yield DRAW_LIST.send(
            np.full(total, COORDINATOR),
            everyone,
            np.broadcast_to(listed, (total, listed.size)),
            lengths=np.full(total, listed.size),
        )
        return seed_of(shown, draw)
    raise _void()


def contributions_of(shard: Shard, draw: int) -> Bytes:
    """[hosted, 16] what hosted devices contribute to a draw, from their private coins."""
    words = shard.coins.words(np.arange(len(shard)), PURPOSE, draw, CONTRIBUTION // 4)
    return np.ascontiguousarray(words, "<u4").view(np.uint8).reshape(len(shard), CONTRIBUTION)


def commitments(contributions: Bytes, devices: Ints, total: int, draw: int) -> Bytes:
    """[devices, 32] what binds each device to its contribution and hides it (128 uniform bits)."""
    size = 3 * _ID + CONTRIBUTION
    rows = np.empty((len(devices), size), np.uint8)
    rows[:, : 2 * _ID] = np.array([total, draw], "<i8").view(np.uint8)
    rows[:, 2 * _ID : 3 * _ID] = devices.astype("<i8").view(np.uint8).reshape(-1, _ID)
    rows[:, 3 * _ID :] = contributions
    whole = rows.tobytes()
    hashed = b"".join(
        blake2b(
            whole[start : start + size], digest_size=PUBLIC_HASH, person=b"lumos draw bound"
        ).digest()
        for start in range(0, len(whole), size)
    )
    return np.frombuffer(hashed, np.uint8).reshape(len(devices), PUBLIC_HASH)


def list_digest(bound: Bytes) -> bytes:
    """D: the hash of all commitments, in the order of the ids."""
    whole = np.ascontiguousarray(bound).tobytes()
    return blake2b(whole, digest_size=PUBLIC_HASH, person=b"lumos draw list").digest()


def seed_of(contributions: Bytes, draw: int) -> bytes:
    """The seed, 32 bytes, from all contributions in the order of the ids."""
    numbers = np.array([len(contributions), draw], "<i8").tobytes()
    whole = numbers + np.ascontiguousarray(contributions).tobytes()
    return blake2b(whole, digest_size=PUBLIC_HASH, person=b"lumos draw seed").digest()


def seed_tag(seed: bytes) -> bytes:
    """What mask neighbours compare, to learn whether they took the same seed."""
    return blake2b(seed, digest_size=SEED_TAG, person=b"lumos draw tag").digest()


def _told(shard: Shard, inbox: Inbox) -> Bytes | None:
    """The bytes that the coordinator told every hosted device; None where it told nobody any."""
    if not len(inbox.sender):
        return None
    if (inbox.sender != COORDINATOR).any():
        raise WrongSender("a device spoke in place of the coordinator")
    if not np.array_equal(inbox.receiver, shard.devices):
        raise WrongSender("the coordinator's word in a draw is missing, or came twice")
    lengths = inbox.batch.lengths
    # One array for all receivers is one list; copies are compared.
    one = inbox.body.strides[0] == 0 or all(
        np.array_equal(row, inbox.body[0]) for row in inbox.body[1:]
    )
    if not one or (lengths is not None and lengths.min() != lengths.max()):
        raise Equivocation("the coordinator told devices different lists of a draw")
    return np.ascontiguousarray(inbox.body[0])


def _filled(inbox: Inbox, total: int, size: int) -> tuple[Bytes, Ints]:
    """[total, size] what each device sent, zeros where it sent nothing; and who did not."""
    sender = inbox.sender
    # Senders are sorted. As unsigned numbers negative ids are huge.
    if len(sender) and sender.view(np.uint64).max() >= total:
        raise WrongSender("a message came from a device that does not exist")
    if (np.diff(sender) == 0).any():
        raise WrongSender("a device sent the same thing twice")
    if len(sender) == total:
        return inbox.body, sender[:0]
    filled = np.zeros((total, size), np.uint8)
    filled[sender] = inbox.body
    return filled, np.setdiff1d(np.arange(total), sender)


def _void() -> DrawVoid:
    return DrawVoid(
        f"the mask graph could not be drawn: in each of {DRAWS} draws a device sent no "
        "contribution; enrol without the devices that stay silent, and run again"
    )

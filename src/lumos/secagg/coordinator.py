"""The coordinator of masked sums: it adds what it cannot read, and opens the total or nothing.

Its stages are those of `lumos.secagg.device`: SETUP (`setup`), SHARE_KEYS and
COLLECT_MASKED_VECTORS (`_collect`), UNMASK (`_open`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lumos.errors import Forged, UsageError, WrongLength, WrongSender
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.messages import Inbox, Outbox, Topic
from lumos.secagg import masks, shares
from lumos.secagg.mask_graph import Draw, MaskGraph, hold_draw, seed_tag
from lumos.secagg.noise import DrawnNoise
from lumos.secagg.openings import relay
from lumos.secagg.parameters import AggregateSettings, FixedPoint, RingWords, mask_parameters
from lumos.secagg.shares import PAIR, SELF, reconstruct_secret
from lumos.secagg.topics import (
    ALIVE,
    LEFT_OUT,
    LOST,
    MASKED,
    REVEAL,
    SHARE,
    SUM,
    WRAPPED,
    published_bytes,
    wrapped_bytes,
)
from lumos.typing import Arrays, Bytes, Doubles, Flags, Ints


class SecureCoordinator:
    """The coordinator's part of the backend `secure`.

    Args:
        total: number of devices.
        endpoint: unused; for the same signature as the ideal backend.
        settings: public settings, the same everywhere.
        drops_refused: a message that breaks the rules is dropped, and its sender counts as silent
            in that stage, so that it does not stop the others; False: it raises.
        plan: as in `PublicRandomness`.
    """

    label = "secure"

    def __init__(
        self,
        total: int,
        endpoint: Endpoint,
        settings: AggregateSettings | None = None,
        *,
        drops_refused: bool = False,
        plan: bytes = b"",
    ) -> None:
        settings = settings or AggregateSettings()
        self._drops_refused, self._plan = drops_refused, plan
        self.refused: list[int] = []
        """Senders of messages that were dropped, in the order of time."""
        self._total = total
        self.parameters = mask_parameters(settings, total)
        self.fixed = FixedPoint.of(settings, total)
        self._drawn = False
        self._number = 0  # of the next sum
        self.fewest = total
        """Smallest number of devices in a sum that was opened."""
        # Made by `setup`:
        self._graph: MaskGraph
        self._seed: bytes
        self._run: bytes

    def setup(self) -> Program[None]:
        """Run SETUP: hold the draw of the mask graph, once per run, before the first sum."""
        refused = self.refused if self._drops_refused else None
        draw = yield from hold_draw(self._total, self.parameters.minimum, self._plan, refused)
        self._note_withheld(draw)
        self._place(draw.seed)

    def _note_withheld(self, draw: Draw) -> None:
        """Do nothing: devices that withheld a contribution are barred from draws alone."""

    def _place(self, seed: bytes) -> None:
        self._seed, self._run = seed, seed_tag(seed)
        self._graph = MaskGraph(self._total, self.parameters.neighbours, seed)
        self._drawn = True

    def state_dict(self) -> Arrays:
        """Return what the coordinator needs to go on after a restart; all of it is public."""
        return {
            "seed": np.frombuffer(self._seed, np.uint8),
            "number": np.array(self._number),
            "fewest": np.array(self.fewest),
        }

    def load_state_dict(self, state: Arrays) -> None:
        """Go on from a state instead of `setup`: before the sum whose number it has."""
        self._place(state["seed"].tobytes())
        self._number, self.fewest = int(state["number"]), int(state["fewest"])

    def sum(self, width: int, noise: DrawnNoise | None = None) -> Program[Doubles | None]:
        """One sum of vectors of `width` numbers; None when nothing was opened.

        Args:
            noise: unused, the devices draw it; for the same signature as the ideal backend.
        """
        collected = yield from self._collect(width)
        return (yield from self._open(collected))

    def _collect(self, width: int) -> "Program[_Collected]":
        """Run SHARE_KEYS and COLLECT_MASKED_VECTORS, up to who is asked for shares."""
        if not self._drawn:
            raise UsageError("the first sum of a run needs setup() before it")
        of = masks.SumId(self._run, self._number)
        self._number += 1
        k, t = self.parameters.neighbours, self.parameters.threshold
        everyone = np.ones(self._total, np.bool_)
        inbox = yield WRAPPED.nothing()
        inbox = self._screened(
            inbox, everyone, lambda _: wrapped_bytes(k, t), masks.SEED * k + masks.COMMITMENT
        )
        joined = self._senders(inbox, everyone)
        wrapped = self._bodies(inbox, wrapped_bytes(k, t))
        left_out = ~joined
        if joined.sum() < self.parameters.minimum:
            joined = np.zeros_like(joined)
        yield self._name(LEFT_OUT, joined, left_out)

        inbox = yield MASKED.nothing()
        inbox = self._screened(
            inbox,
            joined,
            lambda sender: self._masked_bytes(sender, width, joined),
            width * self.fixed.wire + masks.COMMITMENT,
        )
        arrived = self._senders(inbox, joined)
        total, published = self._add_up(inbox, width, joined)
        asked = arrived if arrived.sum() >= self.parameters.minimum else np.zeros_like(arrived)
        yield self._name(LOST, asked, joined & ~arrived)
        return _Collected(of, total, wrapped, published, joined, arrived, asked)

    def _open(self, collected: "_Collected") -> Program[Doubles | None]:
        """Run UNMASK: pass on who confirms whom, ask for shares; None where they are too few."""
        joined, arrived, asked = collected.joined, collected.arrived, collected.asked
        inbox = yield ALIVE.nothing()
        words_bytes = masks.WORD * self.parameters.neighbours
        inbox = self._screened(inbox, asked, lambda _: words_bytes, None)
        alive = self._senders(inbox, asked)
        words = self._bodies(inbox, words_bytes)
        yield self._relay(alive, words)
        inbox = yield REVEAL.nothing()
        inbox = self._screened(inbox, alive, lambda sender: self._asked_bytes(sender, joined), 0)
        answering = self._senders(inbox, alive)
        given = self._given(inbox, joined)
        # A lost device matters if one that is not lost masked with it.
        lost = joined & ~arrived & (self._graph.count(asked) > 0)
        enough = self._graph.count(answering) >= self.parameters.threshold
        if not asked.any() or not enough[asked | lost].all():
            yield SUM.nothing()
            return None
        self._subtract_self_masks(collected, given, answering)
        self._subtract_pair_masks(collected, np.flatnonzero(lost), given, answering)
        self.fewest = min(self.fewest, int(arrived.sum()))
        return (yield from self._send_sum(collected.total, answering))

    def _relay(self, alive: Flags, words: Bytes) -> Outbox:
        return relay(self._graph, alive, words)

    def _screened(
        self,
        inbox: Inbox,
        expected: Flags,
        size: Callable[[Ints], Ints | int],
        elements: int | None,
    ) -> Inbox:
        """The messages that keep the rules, where others are dropped.

        Args:
            expected: [total] who may send.
            size: from ids of senders to the bytes of their messages.
            elements: from which byte on a message has elements of the field; None: nowhere.
        """
        if not self._drops_refused or not inbox.batch.messages:
            return inbox
        sender, lengths = inbox.sender, inbox.batch.lengths
        right = (sender >= 0) & (sender < self._total)
        known = np.where(right, sender, 0)
        right &= expected[known] & (np.bincount(known, minlength=self._total)[known] == 1)
        if lengths is not None:
            right &= lengths == size(known)
            if elements is not None:
                for row in np.flatnonzero(right).tolist():
                    found = inbox.body[row, elements : lengths[row]].view("<u2")
                    right[row] = found.max(initial=0) < shares.PRIME
        if right.all():
            return inbox
        self.refused += sender[~right].tolist()
        return Inbox(inbox.batch.take(np.flatnonzero(right)).packed(), inbox.quiet)

    def _masked_bytes(self, sender: Ints, width: int, joined: Flags) -> Ints:
        """[senders] bytes of their `masked` messages."""
        holders = joined[self._graph.of(sender)].sum(axis=1)
        size: Ints = (
            width * self.fixed.wire
            + published_bytes(0, self.parameters.threshold)
            + SHARE * holders
        )
        return size

    def _asked_bytes(self, sender: Ints, joined: Flags) -> Ints:
        """[senders] bytes of their `reveal` messages."""
        size: Ints = SHARE * joined[self._graph.of(sender)].sum(axis=1)
        return size

    def _senders(self, inbox: Inbox, expected: Flags) -> Flags:
        """[total] who sent; everybody once at most, and nobody but the expected."""
        sender = inbox.sender
        # As unsigned numbers negative ids are huge.
        if len(sender) and sender.view(np.uint64).max() >= self._total:
            raise WrongSender("a message came from a device that does not exist")
        flags = np.zeros(self._total, np.bool_)
        flags[sender] = True
        if np.count_nonzero(flags) < len(sender):
            raise WrongSender("a device sent the same thing twice")
        if (flags & ~expected).any():
            raise WrongSender("a message came from a device that has no part in this stage")
        return flags

    def _bodies(self, inbox: Inbox, size: Ints | int) -> Bytes:
        """[messages, bytes] the bodies, which must have these sizes. Senders are increasing."""
        lengths = inbox.batch.lengths
        if lengths is not None and (lengths != size).any():
            raise WrongLength("a message of a masked sum is too long or too short")
        return inbox.body

    def _name(self, topic: Topic, receivers: Flags, named: Flags) -> Outbox:
        """Send each receiver the ids of its neighbours that are named, and then its own id."""
        to = np.flatnonzero(receivers)
        neighbours = self._graph.of(to)
        rows, slots = np.nonzero(named[neighbours])
        receiver = np.concatenate([to[rows], to])
        body = np.concatenate([neighbours[rows, slots], to])
        return topic.from_coordinator(receiver, body)

    def _add_up(self, inbox: Inbox, width: int, joined: Flags) -> tuple[RingWords, Bytes]:
        """[1, width] the sum of the masked vectors, and what is published behind each of them.

        Nothing else of them is kept.
        """
        k, t = self.parameters.neighbours, self.parameters.threshold
        size = width * self.fixed.wire
        bodies = self._bodies(inbox, self._masked_bytes(inbox.sender, width, joined))
        total = np.zeros((1, width), self.fixed.dtype)
        for body in bodies:  # row by row: a copy of all would double the memory
            total += self.fixed.unpack(body[:size])
        published = np.zeros((len(bodies), published_bytes(k, t)), np.uint8)
        published[:, : max(0, bodies.shape[1] - size)] = bodies[:, size:]
        return total, published

    def _given(self, inbox: Inbox, joined: Flags) -> shares.Elements:
        """[total, k, limbs] what each device gave out of each neighbour, zero elsewhere.

        An array of the size of the federation: it is the coordinator's, which receives from
        everybody.
        """
        given = np.zeros((self._total, self.parameters.neighbours, shares.LIMBS), np.uint16)
        lengths = inbox.batch.lengths
        if lengths is not None and lengths.size:
            asked = joined[self._graph.of(inbox.sender)]
            if not np.array_equal(lengths, SHARE * asked.sum(axis=1)):
                raise WrongLength("a holder gave more or fewer shares than it was asked for")
            rows, slots = np.nonzero(asked)
            in_message = np.arange(inbox.body.shape[1]) < lengths[:, None]
            given[inbox.sender[rows], slots] = (
                inbox.body[in_message].view("<u2").reshape(-1, shares.LIMBS)
            )
            if given.max() >= shares.PRIME:
                raise Forged("a share is no element of the field")
        return given

    def _reconstructed(
        self,
        devices: Ints,
        which: int,
        published: Bytes,
        present: Flags,
        given: shares.Elements,
        answering: Flags,
        of: masks.SumId,
    ) -> shares.Elements:
        """[devices, limbs] a secret of each, which must be the one that it bound itself to.

        Args:
            published: [devices, bytes] its commitment, and the corrections of its shares.
            present: [total] who held shares of it, if it is a neighbour.
        """
        k, t = self.parameters.neighbours, self.parameters.threshold
        corrections = _elements(published[:, masks.COMMITMENT :])
        holders = self._graph.of(devices)
        secrets = reconstruct_secret(
            given[holders, k - 1 - np.arange(k)],  # slots mirror, see `MaskGraph`
            corrections.reshape(len(devices), k - t, shares.LIMBS),
            present[holders],
            answering[holders],
            t,
        )
        bound = masks.commitments(secrets, devices, which, of)
        if not np.array_equal(bound, published[:, : masks.COMMITMENT]):
            raise Forged("shares do not give the secret that a device bound itself to")
        return secrets

    def _subtract_self_masks(
        self, collected: "_Collected", given: shares.Elements, answering: Flags
    ) -> None:
        devices, of = np.flatnonzero(collected.arrived), collected.of
        secrets = self._reconstructed(
            devices, SELF, collected.published, collected.joined, given, answering, of
        )
        nobody = np.full(len(devices), masks.NOBODY)
        keys = masks.keys_of(secrets, devices, SELF, of)
        masks.add_masks(collected.total, keys, nobody, np.zeros_like(nobody))

    def _subtract_pair_masks(
        self, collected: "_Collected", lost: Ints, given: shares.Elements, answering: Flags
    ) -> None:
        """Subtract the masks with lost devices from the vectors that arrived."""
        k, of = self.parameters.neighbours, collected.of
        sent = collected.wrapped[np.searchsorted(np.flatnonzero(collected.joined), lost)]
        everyone = np.ones(self._total, np.bool_)
        wrapped, published = np.split(sent, [masks.SEED * k], axis=1)
        secrets = self._reconstructed(lost, PAIR, published, everyone, given, answering, of)
        seeds = masks.wrap(
            np.ascontiguousarray(wrapped).view("<u4").reshape(len(lost), k, 4),
            masks.keys_of(secrets, lost, PAIR, of),
        )
        neighbours = self._graph.of(lost)
        rows, slots = np.nonzero(collected.arrived[neighbours])
        one, other = neighbours[rows, slots], lost[rows]
        keys = masks.pair_keys_of(
            seeds[rows, slots], np.minimum(one, other), np.maximum(one, other), of
        )
        # The smaller id of a pair added the mask: it is taken off again.
        added = one < other
        masks.add_masks(
            collected.total,
            keys,
            np.where(added, masks.NOBODY, 0),
            np.where(added, 0, masks.NOBODY),
        )

    def _send_sum(self, total: RingWords, answering: Flags) -> Program[Doubles]:
        to = np.flatnonzero(answering)
        body = self.fixed.pack(total)
        yield SUM.from_coordinator(to, np.broadcast_to(body, (len(to), body.shape[1])))
        return self.fixed.decode(self.fixed.unpack(body[0]))


class _Collected(NamedTuple):
    """The coordinator's state of a round before anything is opened."""

    of: masks.SumId
    total: RingWords
    """[1, width] the sum of the masked vectors."""
    wrapped: Bytes
    """[joined, bytes] the wrapped seeds, and what is published of pair secrets, by id."""
    published: Bytes
    """[arrived, bytes] what is published of self secrets, by id."""
    joined: Flags
    """[total] who is in the round."""
    arrived: Flags
    """[total] whose masked vector is in the sum."""
    asked: Flags
    """[total] who is asked for shares."""


def _elements(published: Bytes) -> shares.Elements:
    elements = np.ascontiguousarray(published).view("<u2").astype(np.uint16)
    if elements.max(initial=0) >= shares.PRIME:
        raise Forged("a correction is no element of the field")
    return elements

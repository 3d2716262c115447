"""The coordinator of masked sums: it adds what it cannot read, and opens the total or nothing."""

from typing import NamedTuple

import numpy as np

from lumos.aggregate import masks, shamir
from lumos.aggregate.attempts import Attempted
from lumos.aggregate.errors import Forged, WrongSender
from lumos.aggregate.fixed_point import FixedPoint, RingWords
from lumos.aggregate.mask_draw import hold_draw
from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.objections import decide
from lumos.aggregate.parameters import mask_parameters
from lumos.aggregate.settings import AggregateSettings
from lumos.aggregate.share_vault import PAIR, SELF
from lumos.aggregate.topics import (
    LEFT_OUT,
    LOST,
    MASKED,
    REVEAL,
    SHARE,
    SUM,
    WRAPPED,
    wrapped_bytes,
)
from lumos.device.shard import COORDINATOR
from lumos.errors import UsageError, WrongLength
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Topic
from lumos.typing import Bytes, Doubles, Flags, Ints


class SecureCoordinator:
    """The coordinator's part of the backend `secure`.

    Args:
        total: number of devices.
        endpoint: unused; for the same signature as the ideal backend.
        settings: public settings, the same everywhere.
    """

    label = "secure"

    def __init__(
        self,
        total: int,
        endpoint: Endpoint,
        settings: AggregateSettings | None = None,
    ) -> None:
        settings = settings or AggregateSettings()
        self._total = total
        self.parameters = mask_parameters(settings, total)
        self.fixed = FixedPoint.of(settings, total)
        self._drawn = False
        self._graph: MaskGraph  # made by `setup`

    def setup(self) -> Program[None]:
        """Hold the draw of the mask graph: once per run, before the first sum."""
        seed = yield from hold_draw(self._total)
        self._graph = MaskGraph(self._total, self.parameters.neighbours, seed)
        self._drawn = True

    def sum(self, width: int) -> Program[Doubles | None]:
        """One sum of vectors of `width` numbers; None when nothing was opened."""
        collected = yield from self._collect(width)
        return (yield from self._open(collected))

    def attempt(self, width: int) -> Program[Attempted]:
        """One attempt at a sum: it is opened if no device objects."""
        collected = yield from self._collect(width)
        if (yield from decide(collected.asked)):
            return Attempted(None, called_off=True)
        return Attempted((yield from self._open(collected)), called_off=False)

    def _collect(self, width: int) -> "Program[_Collected]":
        """Up to the masked vectors, and who of their senders is asked for shares."""
        if not self._drawn:
            raise UsageError("the first sum of a run needs setup() before it")
        inbox = yield WRAPPED.nothing()
        joined = self._senders(inbox, np.ones(self._total, np.bool_))
        wrapped = self._bodies(inbox, wrapped_bytes(self.parameters.neighbours))
        left_out = ~joined
        if joined.sum() < self.parameters.minimum:
            joined = np.zeros_like(joined)
        yield self._name(LEFT_OUT, joined, left_out)

        inbox = yield MASKED.nothing()
        arrived = self._senders(inbox, joined)
        total = self._add_up(inbox, width)
        asked = arrived if arrived.sum() >= self.parameters.minimum else np.zeros_like(arrived)
        yield self._name(LOST, asked, joined & ~arrived)
        return _Collected(total, wrapped, joined, arrived, asked)

    def _open(self, collected: "_Collected") -> Program[Doubles | None]:
        """Ask for shares; the sum, or None where they are too few."""
        total, wrapped, joined, arrived, asked = collected
        lost = joined & ~arrived
        inbox = yield REVEAL.nothing()
        answering = self._senders(inbox, asked)
        shares = self._shares(inbox, joined)
        # A lost device matters if one that is not lost masked with it.
        needed = asked | (lost & (self._graph.count(asked) > 0))
        enough = self._graph.count(answering) >= self.parameters.threshold
        if not asked.any() or not enough[needed].all():
            yield SUM.nothing()
            return None
        devices = np.flatnonzero(needed)
        which = np.where(asked[devices], SELF, PAIR)
        secrets = self._reconstructed(devices, shares, answering)
        sent = wrapped[np.searchsorted(np.flatnonzero(joined), devices)]
        self._check_commitments(secrets, sent, which)
        kept = which == SELF
        self._subtract_self_masks(total, secrets[kept])
        self._subtract_pair_masks(total, devices[~kept], secrets[~kept], sent[~kept], arrived)
        return (yield from self._send_sum(total, answering))

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

    def _bodies(self, inbox: Inbox, size: int) -> Bytes:
        """[messages, size] the bodies, which must all have that size. Senders are increasing."""
        lengths = inbox.batch.lengths
        if lengths is not None and (lengths != size).any():
            raise WrongLength("a message of a masked sum is too long or too short")
        return inbox.body[:, :size]

    def _name(self, topic: Topic, receivers: Flags, named: Flags) -> Outbox:
        """Tell each receiver which of its neighbours are named, and then its own id."""
        to = np.flatnonzero(receivers)
        neighbours = self._graph.of(to)
        rows, slots = np.nonzero(named[neighbours])
        receiver = np.concatenate([to[rows], to])
        body = np.concatenate([neighbours[rows, slots], to])
        return topic.send(np.full(len(receiver), COORDINATOR), receiver, body)

    def _add_up(self, inbox: Inbox, width: int) -> RingWords:
        """[1, width] the sum of the masked vectors; nothing else of them is kept."""
        bodies = self._bodies(inbox, width * self.fixed.word)
        total = np.zeros((1, width), self.fixed.dtype)
        for body in bodies:  # row by row: a copy of all would double the memory
            total += np.ascontiguousarray(body).view(self.fixed.dtype)
        return total

    def _shares(self, inbox: Inbox, joined: Flags) -> shamir.Elements:
        """[total, k, limbs] the share that each device holds of each neighbour, zero elsewhere."""
        held = np.zeros((self._total, self.parameters.neighbours, shamir.LIMBS), np.uint16)
        lengths = inbox.batch.lengths
        if lengths is not None and lengths.size:
            asked = joined[self._graph.of(inbox.sender)]
            if not np.array_equal(lengths, SHARE * asked.sum(axis=1)):
                raise WrongLength("a holder gave more or fewer shares than it was asked for")
            rows, slots = np.nonzero(asked)
            in_message = np.arange(inbox.body.shape[1]) < lengths[:, None]
            held[inbox.sender[rows], slots] = (
                inbox.body[in_message].view("<u2").reshape(-1, shamir.LIMBS)
            )
            if held.max() >= shamir.PRIME:
                raise Forged("a share is no element of the field")
        return held

    def _reconstructed(
        self, devices: Ints, held: shamir.Elements, answering: Flags
    ) -> shamir.Elements:
        """[devices, limbs] the secret of each that its holders were asked for."""
        k, t = self.parameters.neighbours, self.parameters.threshold
        holders = self._graph.of(devices)
        # The first t holders that answered; slots mirror, see `MaskGraph`.
        slots = np.argsort(~answering[holders], axis=1, kind="stable")[:, :t]
        chosen = np.take_along_axis(holders, slots, axis=1)
        return shamir.reconstruct(slots + 1, held[chosen, k - 1 - slots])

    def _check_commitments(self, secrets: shamir.Elements, sent: Bytes, which: Ints) -> None:
        both = sent[:, -2 * masks.COMMITMENT :].reshape(len(sent), 2, masks.COMMITMENT)
        if not np.array_equal(masks.commitments(secrets), both[np.arange(len(sent)), which]):
            raise Forged("shares do not give the secret that a device bound itself to")

    def _subtract_self_masks(self, total: RingWords, secrets: shamir.Elements) -> None:
        nobody = np.full(len(secrets), masks.NOBODY)
        masks.add_masks(total, masks.keys_of(secrets), nobody, np.zeros_like(nobody))

    def _subtract_pair_masks(
        self, total: RingWords, lost: Ints, secrets: shamir.Elements, sent: Bytes, arrived: Flags
    ) -> None:
        """What the masks with lost devices left behind in the vectors that arrived."""
        wrapped = np.ascontiguousarray(sent[:, : -2 * masks.COMMITMENT]).view("<u4")
        seeds = masks.wrap(
            wrapped.reshape(len(lost), self.parameters.neighbours, 8), masks.keys_of(secrets)
        )
        neighbours = self._graph.of(lost)
        rows, slots = np.nonzero(arrived[neighbours])
        # The smaller id of a pair added the mask: it is taken off again.
        added = neighbours[rows, slots] < lost[rows]
        masks.add_masks(
            total,
            seeds[rows, slots],
            np.where(added, masks.NOBODY, 0),
            np.where(added, 0, masks.NOBODY),
        )

    def _send_sum(self, total: RingWords, answering: Flags) -> Program[Doubles]:
        to = np.flatnonzero(answering)
        body = total.view(np.uint8)
        yield SUM.send(
            np.full(len(to), COORDINATOR),
            to,
            np.broadcast_to(body, (len(to), body.shape[1])),
            lengths=np.full(len(to), body.shape[1]),
        )
        return self.fixed.decode(total[0])


class _Collected(NamedTuple):
    """What the coordinator has before anything is opened."""

    total: RingWords
    """[1, width] the sum of the masked vectors."""
    wrapped: Bytes
    """[joined, bytes] the wrapped seeds and commitments, in the order of the ids."""
    joined: Flags
    """[total] who is in the round."""
    arrived: Flags
    """[total] whose masked vector is in the sum."""
    asked: Flags
    """[total] who is asked for shares."""

"""The masked sum of one shard's devices: double masking with secret-shared seeds.

Bonawitz et al. 2017 (protocol of figure 4) on the random k-regular graph of Bell et al. 2020, for
many rounds. In each round device u draws a self secret b_u and a pair secret K_u and sends

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(seed_uv) - Σ_{v < u} PRG(seed_uv)

over its mask neighbours v. Pair masks cancel in the sum of the vectors that arrived. Where u's
vector arrived, t neighbours open b_u. Where u was lost, they open K_u, with which the coordinator
recovers u's pair seeds and removes the masks that did not cancel.

*Why K_u, and not the private key of the agreement.* In the original protocol t neighbours of a lost
device open its Diffie-Hellman key. Keys that live for many rounds must never be opened: the key of
a device lost in round 9 gives its pair masks of round 3, whose self mask was opened in round 3, and
so its vector of round 3. Here each round's seeds are wrapped under a fresh K_u of that round, whose
shares travel with those of b_u (Ma et al. 2023, Flamingo, solves the same problem with threshold
encryption). So nothing outlives its round, and a device that was lost may come back in the next
one.

*Against equivocation.* Before it opens anything, each device tells its mask neighbours that it was
not declared lost, and nobody opens the pair secret of a device that says so. Let X of v's
neighbours collude. Where b_v is opened, at least t - X honest neighbours of v took part and were
not declared lost, so their pair secrets stay shut; v masked with at least t - X honest neighbours;
so whatever the coordinator tells to whom, at least 2t - k - X ≥ 1 honest neighbours are in both
sets, and their masks still hide v.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.aggregate import masks, pair_keys, shamir
from lumos.aggregate.attempts import Attempted, Attempts
from lumos.aggregate.errors import Equivocation, Forged, WrongSender
from lumos.aggregate.fixed_point import FixedPoint, RingWords
from lumos.aggregate.mask_draw import draw_seed, seed_tag
from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.objections import Objections, object_to
from lumos.aggregate.parameters import mask_parameters
from lumos.aggregate.settings import AggregateSettings
from lumos.aggregate.share_vault import PAIR, SELF, ShareVault
from lumos.aggregate.topics import (
    ALIVE,
    KEYS,
    LEFT_OUT,
    LOST,
    MASKED,
    REVEAL,
    SHARE,
    SHARES,
    SUM,
    WRAPPED,
    Stage,
)
from lumos.crypto.in_memory import InMemoryOnly
from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import UsageError, WrongLength
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import Endpoint, Program
from lumos.typing import Doubles, Flags, Ints


class SecureAggregator(InMemoryOnly):
    """The backend `secure` of one shard. Its keys live in memory: after a restart, a new setup.

    Args:
        shard: the hosted devices.
        endpoint: unused; for the same signature as the ideal backend.
        settings: public settings, the same everywhere.
    """

    label = "secure"

    def __init__(
        self, shard: Shard, endpoint: Endpoint, settings: AggregateSettings | None = None
    ) -> None:
        settings = settings or AggregateSettings()
        self._shard = shard
        self.parameters = mask_parameters(settings, shard.total)
        self.fixed = FixedPoint.of(settings, shard.total)
        self._attempts = Attempts()
        self._agreed = False
        # Made by `setup`:
        self._graph: MaskGraph
        self._neighbours: Ints
        self._up: Flags
        self._pairs: pair_keys.PairKeys

    def setup(self) -> Program[None]:
        """Draw the mask graph with all devices, and agree on a key with each mask neighbour.

        Once per run, before the first sum. Every device has to take part: one that stays silent
        here stops the run.
        """
        shard, k = self._shard, self.parameters.neighbours
        seed = yield from draw_seed(shard)
        self._graph = MaskGraph(shard.total, k, seed)
        self._neighbours = self._graph.of(shard.devices)
        self._up = shard.devices[:, None] < self._neighbours
        self._pairs = pair_keys.PairKeys(shard.devices, self._neighbours)
        tag = np.frombuffer(seed_tag(seed), np.uint8)
        body = np.hstack([self._pairs.fresh_keys(), np.tile(tag, (len(shard), 1))])
        inbox = yield KEYS.send(
            np.repeat(shard.devices, k), self._neighbours.ravel(), np.repeat(body, k, axis=0)
        )
        # Before the senders are looked up: with another seed they are no mask neighbours.
        if (inbox.body[:, pair_keys.KEY :] != tag).any():
            raise Equivocation("a mask neighbour took another seed of the mask graph")
        rows, slots = self._places(inbox)
        if len(rows) < self._neighbours.size:
            raise WrongSender("a mask neighbour sent no public key")
        received = np.empty((*self._neighbours.shape, pair_keys.KEY), np.uint8)
        received[rows, slots] = inbox.body[:, : pair_keys.KEY]
        self._pairs.agree(received)
        self._agreed = True

    def sum(
        self,
        vectors: Doubles,
        drop_stage: npt.NDArray[np.int8] | None = None,
        *,
        shares: RingWords | None = None,
    ) -> Program[Doubles | None]:
        """The sum over all devices of the federation whose vectors arrive.

        Args:
            vectors: [hosted, width] one vector per hosted device.
            drop_stage: [hosted] the `Stage` in which each drops out; None: nobody does.
            shares: [hosted, width] words of the ring that are added to the vectors.

        Returns:
            [width] the sum, or None where nothing was opened or no hosted device received it.
        """
        if drop_stage is None:
            drop_stage = np.full(len(self._shard), Stage.NEVER, np.int8)
        collected = yield from self._collect(vectors, shares, drop_stage)
        opening = collected.opening & (drop_stage > Stage.ALIVE)
        return (yield from self._open(collected, opening, drop_stage > Stage.REVEAL))

    def attempt(
        self,
        vectors: Doubles,
        shares: RingWords,
        step: int,
        number: int,
        objections: Objections,
    ) -> Program[Attempted]:
        """An attempt at the sum of a step: it is opened if nobody objects, or called off.

        Args:
            vectors: [hosted, width] one vector per hosted device.
            shares: [hosted, width] words of the ring that are added to the vectors.
            step: the sum; of one step at most one attempt is opened.
            number: of the attempt, larger than of those before.
            objections: called with [hosted] who is in the sum and may open it, once the
                coordinator said who is lost; returns [hosted] who objects.

        Raises:
            AlreadyOpened: a hosted device helped to open this step, or this attempt was made.
        """
        self._attempts.begin(step, number)
        everyone = np.ones(len(self._shard), np.bool_)
        never = np.full(len(self._shard), Stage.NEVER, np.int8)
        collected = yield from self._collect(vectors, shares, never)
        self._attempts.hold(collected.vault)
        opening = collected.opening
        objecting = yield from objections(opening)
        called_off = yield from object_to(
            self._shard, opening, objecting & opening, self._flag_masks(collected)
        )
        if called_off:
            self._attempts.call_off()
            return Attempted(None, called_off=True)
        self._attempts.open()
        total = yield from self._open(collected, opening, everyone)
        return Attempted(total, called_off=False)

    def _collect(
        self, vectors: Doubles, shares: RingWords | None, drop_stage: npt.NDArray[np.int8]
    ) -> "Program[_Collected]":
        """Up to the masked vectors, and the coordinator's word on who is lost."""
        if not self._agreed:
            raise UsageError("the first sum of a run needs setup() before it")
        if vectors.ndim != 2 or len(vectors) != len(self._shard):
            raise UsageError(
                f"vectors must be [{len(self._shard)}, width], got {list(vectors.shape)}"
            )
        if shares is not None and (
            shares.shape != vectors.shape or shares.dtype != self.fixed.dtype
        ):
            raise UsageError(
                f"shares must be {self.fixed.dtype}{list(vectors.shape)} as the vectors, "
                f"got {shares.dtype}{list(shares.shape)}"
            )
        keys = self._pairs.ratchet()
        secrets = shamir.uniform(2 * len(vectors) * shamir.LIMBS).reshape(2, len(vectors), -1)
        vault = yield from self._share(keys, secrets, drop_stage > Stage.SHARES)
        joined = yield from self._wrap(keys, secrets, drop_stage > Stage.WRAPPED)
        if (joined & ~vault.has).any():
            raise WrongSender("a mask neighbour is in the round, and sent no share")
        # Too few neighbours hide nothing well, and could not open anything.
        sending = (joined.sum(axis=1) >= self.parameters.threshold) & (drop_stage > Stage.MASKED)
        rows = np.flatnonzero(sending)
        words = self._masked(vectors, rows, keys, joined, secrets[SELF])
        if shares is not None:
            words += shares if len(rows) == len(shares) else shares[rows]
        yield MASKED.send(
            self._shard.devices[rows],
            np.full(len(rows), COORDINATOR),
            words.view(np.uint8),
            lengths=np.full(len(rows), words.shape[1] * self.fixed.word),
        )
        width = words.shape[1]
        del words
        opening, lost = self._named((yield LOST.nothing()), sending)
        if (lost & ~joined).any():
            raise WrongSender("a device was called lost that is not in the round")
        opening &= (joined & ~lost).sum(axis=1) >= self.parameters.threshold
        return _Collected(keys, vault, joined, lost, opening, width)

    def _open(
        self, collected: "_Collected", opening: Flags, revealing: Flags
    ) -> Program[Doubles | None]:
        """Confirm to neighbours that one is in the sum, give out shares, receive the sum."""
        joined, lost = collected.joined, collected.lost
        yield from self._confirm_alive(collected.keys, opening, joined & ~lost)
        opening = opening & revealing
        yield self._reveal(collected.vault, np.flatnonzero(opening), joined, lost)
        return self._summed((yield SUM.nothing()), opening, collected.width)

    def _flag_masks(self, collected: "_Collected") -> npt.NDArray[np.uint64]:
        """[hosted] what hides a device's objection: masks of its pairs that are in the sum."""
        in_sum = collected.joined & ~collected.lost
        flags = np.ascontiguousarray(collected.keys.flag).astype("<u4").view("<u8").ravel()
        masks_by_slot = np.where(in_sum, flags[self._pairs.of], np.uint64(0))
        added = np.where(self._up, masks_by_slot, np.uint64(0)).sum(axis=1, dtype=np.uint64)
        taken = np.where(self._up, np.uint64(0), masks_by_slot).sum(axis=1, dtype=np.uint64)
        hidden: npt.NDArray[np.uint64] = added - taken
        return hidden

    def _share(
        self, keys: pair_keys.RoundKeys, secrets: shamir.Elements, speaking: Flags
    ) -> Program[ShareVault]:
        """Send each neighbour its shares of both secrets; store those that neighbours send."""
        rows = np.flatnonzero(speaking)
        k, t = self.parameters.neighbours, self.parameters.threshold
        # [rows, k, 2 * limbs]: the self secret's share, then the pair secret's
        shares = shamir.split(np.concatenate(list(secrets[:, rows]), axis=1), t, k)
        of, up = self._pairs.of[rows], self._up[rows, :, None]
        inbox = yield SHARES.send(
            np.repeat(self._shard.devices[rows], k),
            self._neighbours[rows].ravel(),
            pair_keys.seal(
                np.where(up, keys.up[of], keys.down[of]).reshape(-1, 8),
                np.ascontiguousarray(shares, "<u2").view(np.uint8).reshape(-1, 2 * SHARE),
            ),
        )
        vault = ShareVault(len(self._shard), k)
        rows, slots = self._places(inbox)
        receiving = speaking[rows]
        rows, slots = rows[receiving], slots[receiving]
        of, up = self._pairs.of[rows, slots], self._up[rows, slots, None]
        opened = pair_keys.unseal(np.where(up, keys.down[of], keys.up[of]), inbox.body[receiving])
        vault.store(rows, slots, opened.view("<u2").reshape(-1, 2, shamir.LIMBS))
        return vault

    def _wrap(
        self, keys: pair_keys.RoundKeys, secrets: shamir.Elements, speaking: Flags
    ) -> Program[Flags]:
        """Send the wrapped seeds to the coordinator; receive who is in the round.

        Returns:
            [hosted, k] the neighbours in the round; none where the device itself is not.
        """
        rows = np.flatnonzero(speaking)
        mine = secrets[:, rows]
        wrapped = masks.wrap(keys.seed[self._pairs.of[rows]], masks.keys_of(mine[PAIR]))
        body = np.concatenate(
            [
                wrapped.astype("<u4")
                .view(np.uint8)
                .reshape(len(rows), pair_keys.KEY * wrapped.shape[1]),
                masks.commitments(mine[SELF]),
                masks.commitments(mine[PAIR]),
            ],
            axis=1,
        )
        yield WRAPPED.send(
            self._shard.devices[rows],
            np.full(len(rows), COORDINATOR),
            body,
            lengths=np.full(len(rows), body.shape[1]),
        )
        going, left_out = self._named((yield LEFT_OUT.nothing()), speaking)
        return going[:, None] & ~left_out

    def _masked(
        self,
        vectors: Doubles,
        rows: Ints,
        keys: pair_keys.RoundKeys,
        joined: Flags,
        self_secrets: shamir.Elements,
    ) -> RingWords:
        """[rows, width] y_u: the vector, the self mask, and the masks of all pairs in the round."""
        words = self.fixed.encode(vectors if len(rows) == len(vectors) else vectors[rows])
        here, slots = np.nonzero(joined[rows])
        pair, up = self._pairs.of[rows[here], slots], self._up[rows[here], slots]
        plus = np.full(len(keys.seed), masks.NOBODY)
        minus = plus.copy()
        plus[pair[up]] = here[up]
        minus[pair[~up]] = here[~up]
        used = np.flatnonzero((plus != masks.NOBODY) | (minus != masks.NOBODY))
        masks.add_masks(words, keys.seed[used], plus[used], minus[used])
        everyone = np.arange(len(rows))
        masks.add_masks(
            words, masks.keys_of(self_secrets[rows]), everyone, np.full(len(rows), masks.NOBODY)
        )
        return words

    def _confirm_alive(
        self, keys: pair_keys.RoundKeys, speaking: Flags, alive: Flags
    ) -> Program[None]:
        """Tell the neighbours that one was not called lost, and receive the same from them.

        Args:
            speaking: [hosted] the devices that were told to open.
            alive: [hosted, k] the neighbours that are in the sum, by what the coordinator said.
        """
        rows = np.flatnonzero(speaking)
        of, up = self._pairs.of[rows], self._up[rows, :, None]
        words = np.where(up, keys.word_up[of], keys.word_down[of])
        inbox = yield ALIVE.send(
            np.repeat(self._shard.devices[rows], self.parameters.neighbours),
            self._neighbours[rows].ravel(),
            words.astype("<u4").reshape(-1, 4).view(np.uint8),
        )
        rows, slots = self._places(inbox)
        receiving = speaking[rows]
        rows, slots = rows[receiving], slots[receiving]
        of, up = self._pairs.of[rows, slots], self._up[rows, slots, None]
        words = np.where(up, keys.word_down[of], keys.word_up[of])
        if not np.array_equal(words.astype("<u4").view(np.uint8), inbox.body[receiving]):
            raise Forged("a word that proves its speaker is wrong")
        if not alive[rows, slots].all():
            raise Equivocation("a neighbour that was called lost, or left out, was told otherwise")

    def _reveal(self, vault: ShareVault, rows: Ints, joined: Flags, lost: Flags) -> Outbox:
        """Of each neighbour in the round one share: the self secret's, or, if lost, the pair's."""
        here, slots = np.nonzero(joined[rows])
        which = np.where(lost[rows[here], slots], PAIR, SELF)
        counts = np.bincount(here, minlength=len(rows))
        within = np.arange(len(here)) - np.repeat(np.cumsum(counts) - counts, counts)
        body = np.zeros((len(rows), self.parameters.neighbours, shamir.LIMBS), "<u2")
        body[here, within] = vault.give_out(rows[here], slots, which)
        return REVEAL.send(
            self._shard.devices[rows],
            np.full(len(rows), COORDINATOR),
            body.view(np.uint8).reshape(len(rows), SHARE * self.parameters.neighbours),
            lengths=SHARE * counts,
        )

    def _summed(self, inbox: Inbox, receiving: Flags, width: int) -> Doubles | None:
        """The sum, where a hosted device received it."""
        rows = self._from_coordinator(inbox)
        lengths = inbox.batch.lengths
        if lengths is not None and (lengths != width * self.fixed.word).any():
            raise WrongLength("a sum has another length than the vectors")
        if not receiving[rows].any():
            return None
        row = int(np.argmax(receiving[rows]))
        return self.fixed.decode(
            np.ascontiguousarray(inbox.body[row, : width * self.fixed.word]).view(self.fixed.dtype)
        )

    def _places(self, inbox: Inbox) -> tuple[Ints, Ints]:
        """Row of the receiver and slot of the sender of each message, at most one for each."""
        rows = self._shard.local(inbox.receiver)
        slots = self._graph.slots(inbox.receiver, inbox.sender)
        if len(np.unique(rows * self.parameters.neighbours + slots)) < len(rows):
            raise WrongSender("a mask neighbour sent the same thing twice")
        return rows, slots

    def _from_coordinator(self, inbox: Inbox) -> Ints:
        """Rows of the receivers of what only the coordinator may send."""
        if (inbox.sender != COORDINATOR).any():
            raise WrongSender("a device spoke in place of the coordinator")
        return self._shard.local(inbox.receiver)

    def _named(self, inbox: Inbox, receiving: Flags) -> tuple[Flags, Flags]:
        """[hosted] who received its own id, and [hosted, k] the neighbours named to each."""
        rows = self._from_coordinator(inbox)
        own = inbox.body == inbox.receiver
        slots = self._graph.slots(inbox.receiver[~own], inbox.body[~own])
        own_named = np.zeros(len(self._shard), np.bool_)
        own_named[rows[own]] = True
        named = np.zeros(self._neighbours.shape, np.bool_)
        named[rows[~own], slots] = True
        if np.count_nonzero(own_named) + np.count_nonzero(named) < len(rows):
            raise WrongSender("the coordinator named a device twice")
        return own_named & receiving, named & receiving[:, None]


class _Collected(NamedTuple):
    """What hosted devices have of a round before anything is opened."""

    keys: pair_keys.RoundKeys
    vault: ShareVault
    joined: Flags
    """[hosted, k] the neighbours in the round."""
    lost: Flags
    """[hosted, k] those of them that are lost, by what the coordinator said."""
    opening: Flags
    """[hosted] who is in the sum and was told to open it."""
    width: int

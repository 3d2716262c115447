"""The masked sum of one shard's devices: double masking with secret-shared seeds.

Stages: SETUP (`setup`, once per run), then in each sum SHARE_KEYS and COLLECT_MASKED_VECTORS
(`_collect`) and UNMASK (`_open`).

Bonawitz et al. 2017 (protocol of figure 4) on the random k-regular graph of Bell et al. 2020, for
many rounds. In each round device u has a self secret b_u and a pair secret K_u and sends

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(seed_uv) - Σ_{v < u} PRG(seed_uv)

over its mask neighbours v in the round, J_u. Pair masks cancel in the sum of the vectors that
arrived. Where u's vector arrived, t neighbours open b_u. Where u was lost, they open K_u, with
which the coordinator recovers u's pair seeds and removes the masks that did not cancel.

*Shares are not sent.* They follow from the keys that mask neighbours agreed on once per run
(`lumos.secagg.shares`), as Flamingo (Ma et al. 2023) agrees on keys once for many sums.
Shares of K_u are held by all k neighbours, and their corrections travel with the wrapped seeds.
Shares of b_u are held by J_u alone, and their corrections travel with y_u: whoever u did not mask
with has no share of b_u, whatever it is sent.

*Why K_u, and not the private key of the agreement.* In the original protocol t neighbours of a lost
device open its Diffie-Hellman key. Keys that live for many rounds must never be opened: the key of
a device lost in round 9 gives its pair masks of round 3, whose self mask was opened in round 3, and
so its vector of round 3. Here each round's seeds are wrapped under a K_u of that round. So nothing
outlives its round, and a device that was lost, or that missed rounds, may come back in the next one
(`SecureAggregator.skip`).

*Against equivocation.* Let v be honest, X of its neighbours collude, and b_v be opened.

1. K_v is not: each honest holder gives out a share of one of the two, so both together need 2t
   shares of the k + X that there are, and 2t - k - X ≥ 1 (`lumos.secagg.parameters`).
2. t - X honest holders opened b_v. They are in J_v, as nobody else has a share.
3. Each of them opened something, so its own pair secret is shut (`lumos.secagg.openings`).
4. So the masks of v with t - X ≥ 1 honest neighbours are known to nobody: the seed of a pair is
   wrapped under the pair secrets of its two ends only. They still hide v, and cancel only in a sum
   with those neighbours, of whom the same is true.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.crypto.entropy import InMemoryOnly
from lumos.device.shard import Shard
from lumos.errors import Equivocation, Forged, UsageError, WrongLength, WrongSender
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.messages import Inbox, Outbox
from lumos.secagg import masks
from lumos.secagg.mask_graph import MaskGraph, draw_seed, seed_tag
from lumos.secagg.noise import Noise, Update
from lumos.secagg.openings import (
    OpenedSums,
    Opening,
    confirm,
)
from lumos.secagg.parameters import AggregateSettings, FixedPoint, RingWords, mask_parameters
from lumos.secagg.shares import LIMBS, PAIR, SELF, Elements, ShareVault, secrets_of
from lumos.secagg.topics import (
    KEYS,
    LEFT_OUT,
    LOST,
    MASKED,
    PUBLIC_HASH,
    REVEAL,
    SHARE,
    SUM,
    TOLD,
    WRAPPED,
    Stage,
    check_from_coordinator,
    published_bytes,
)
from lumos.typing import Arrays, Bytes, Doubles, Flags, Ints, Words

_ROWS = 256  # vectors encoded at a time


class SecureAggregator(InMemoryOnly):
    """The backend `secure` of one shard. Its keys live in memory: after a restart, a new setup; or
    `load_state_dict`, where a device keeps its secret.

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
        self.context = b""
        """Digest of what hosted devices know of earlier sums; devices that know different things
        open nothing together."""
        self.opened = OpenedSums()
        """Sums for which hosted devices gave out shares; it lasts where a device may restart."""
        self._agreed = False
        # Made by `setup`:
        self._graph: MaskGraph
        self._neighbours: Ints
        self._up: Flags
        self._pairs: masks.PairKeys
        self._received: Bytes
        self._seed: bytes
        self._run: bytes
        self._known: Flags

    def setup(self) -> Program[None]:
        """Run SETUP: draw the mask graph, and agree on a key with each mask neighbour.

        Once per run, before the first sum. A mask neighbour that stays silent here has no key, and
        is in no sum with the device.

        Raises:
            WrongSender: fewer than t neighbours of a device sent a key.
        """
        shard, k = self._shard, self.parameters.neighbours
        self._place((yield from draw_seed(shard, self.parameters.draws)))
        tag = np.frombuffer(self._run, np.uint8)
        body = np.hstack([self._public_keys(), np.tile(tag, (len(shard), 1))])
        inbox = yield KEYS.send(
            np.repeat(shard.devices, k),
            self._neighbours.ravel(),
            np.repeat(body, k, axis=0),
            awaits=self._neighbours.ravel(),
        )
        # Before the senders are looked up: with another seed they are no mask neighbours.
        inbox = self._usable(inbox, (inbox.body[:, masks.KEY :] == tag).all(axis=1))
        rows, slots = self._places(inbox)
        received = np.zeros((*self._neighbours.shape, masks.KEY), np.uint8)
        received[rows, slots] = inbox.body[:, : masks.KEY]
        if not received[rows, slots].any(axis=1).all():
            raise Forged("a public key is no point of large order")
        self._agree(received)

    def _usable(self, inbox: Inbox, same: Flags) -> Inbox:
        """Return the keys to agree with. `same`: [messages] whose sender took the same seed."""
        if not same.all():
            raise Equivocation("a mask neighbour took another seed of the mask graph")
        return inbox

    def _place(self, seed: bytes) -> None:
        """Find the mask neighbours of hosted devices."""
        self._seed, self._run = seed, seed_tag(seed)
        self._graph = MaskGraph(self._shard.total, self.parameters.neighbours, seed)
        self._neighbours = self._graph.of(self._shard.devices)
        self._up = self._shard.devices[:, None] < self._neighbours
        self._pairs = masks.PairKeys(self._shard.devices, self._neighbours)

    def _public_keys(self) -> Bytes:
        """[hosted, 32]; the private ones are computed here, or drawn."""
        return self._pairs.public_keys(self._shard.private_keys("masked sums", self._run))

    def _agree(self, received: Bytes) -> None:
        """Agree on keys with the neighbours whose public key is there, [hosted, k, 32]."""
        self._known = np.any(received != 0, axis=2)
        if (self._known.sum(axis=1) < self.parameters.threshold).any():
            raise WrongSender("too few mask neighbours sent a public key")
        self._received = received
        self._pairs.agree(received)
        self._agreed = True

    def state_dict(self) -> Arrays:
        """Return what a device that keeps its secret needs after a restart; no private key."""
        self._require_setup()
        return {
            "seed": np.frombuffer(self._seed, np.uint8),
            "public_keys": self._received,
            "number": np.array(self._pairs.number),
        }

    def load_state_dict(self, state: Arrays) -> None:
        """Go on from a state instead of `setup`: before the sum whose number it has.

        Raises:
            UsageError: the device keeps no secret, so its keys are gone.
        """
        if self._shard.keys is None:
            raise UsageError("keys that were drawn fresh do not survive a restart")
        self._place(state["seed"].tobytes())
        self._public_keys()
        self._agree(state["public_keys"])
        self._pairs.skip(int(state["number"]))

    def skip(self, sums: int = 1) -> None:
        """The hosted devices missed so many sums, or attempts: go on with the next one.

        The keys of what was missed are overwritten.
        """
        self._require_setup()
        if sums < 0:
            raise UsageError(
                f"sums that were missed must be >= 0, got {sums}: keys never come back"
            )
        self._pairs.skip(sums)

    def sum(
        self,
        vectors: Doubles,
        drop_stage: npt.NDArray[np.int8] | None = None,
    ) -> Program[Doubles | None]:
        """The sum over all devices of the federation whose vectors arrive.

        Args:
            vectors: [hosted, width] one vector per hosted device.
            drop_stage: [hosted] the `Stage` in which each drops out; None: nobody does.

        Returns:
            [width] the sum, or None where nothing was opened or no hosted device received it.
        """
        if drop_stage is None:
            drop_stage = np.full(len(self._shard), Stage.NEVER, np.int8)
        collected = yield from self._collect(vectors, drop_stage)
        opening = collected.opening & (drop_stage > Stage.ALIVE)
        return (yield from self._open(collected, opening, drop_stage > Stage.REVEAL))

    def sum_updates(
        self,
        update: Update,
        noise: Noise | None = None,
        step: int = 0,
        drop_stage: npt.NDArray[np.int8] | None = None,
    ) -> Program[Doubles | None]:
        """Sum the vectors of an update, with noise that the devices draw; see `sum`.

        Args:
            update: see `Update`.
            noise: None for an exact sum.
            step: names the randomness of the noise.
            drop_stage: as `sum` takes it.
        """
        vectors = update(True)
        shares = self.noise_shares(noise, vectors.shape[1], step)
        if shares is not None:
            # Rounded separately: noise must not depend on the data, not even in its rounding.
            vectors = self.fixed.rounded(vectors) + self.fixed.rounded(shares)
        return (yield from self.sum(vectors, drop_stage))

    def noise_shares(self, noise: Noise | None, width: int, step: int) -> Doubles | None:
        """Draw the devices' shares of noise, [hosted, width]; None for an exact sum."""
        if noise is None:
            return None
        return noise.shares(self._shard.randomness, len(self._shard), width, step)

    def restartable(self) -> "SecureAggregator":
        """Return this backend: its devices may restart."""
        return self

    def compare_told(self, digest: bytes) -> Program[None]:
        """Compare the sums that hosted devices received with those of their mask neighbours.

        Every sum is bound to those before it, so it is the last one that needs this. Guarantee,
        against a coordinator that lies and X colluding neighbours of each device: two honest
        neighbours that received different sums do not both go on, as each needs t neighbours
        that received the same, and 2t - k - X ≥ 1. Less than that keep nobody from going on.

        Args:
            digest: 32 bytes, of all sums.

        Raises:
            Equivocation: fewer than t neighbours of a device received the same.
        """
        rows, slots = np.nonzero(self._known)
        body = np.broadcast_to(np.frombuffer(digest, np.uint8), (len(rows), PUBLIC_HASH))
        inbox = yield TOLD.send(
            self._shard.devices[rows],
            self._neighbours[rows, slots],
            body,
            awaits=self._neighbours[rows, slots],
        )
        inbox = self._from_mask_neighbours(inbox)
        rows, _ = self._places(inbox)
        same = (inbox.body == np.frombuffer(digest, np.uint8)).all(axis=1)
        agreeing = np.bincount(rows[same], minlength=len(self._shard))
        if (agreeing < self.parameters.threshold).any():
            raise Equivocation("the coordinator sent mask neighbours different sums")

    def _collect(
        self,
        vectors: Doubles,
        drop_stage: npt.NDArray[np.int8],
    ) -> "Program[_Collected]":
        """Run SHARE_KEYS and COLLECT_MASKED_VECTORS, up to the coordinator's list of the lost."""
        self._require_setup()
        if vectors.ndim != 2 or len(vectors) != len(self._shard):
            raise UsageError(
                f"vectors must be [{len(self._shard)}, width], got {list(vectors.shape)}"
            )
        of = masks.SumId(self._run, self._pairs.number)
        keys = self._pairs.ratchet(self.context)
        own, vault = self._values(keys)
        joined = yield from self._wrap(keys, own[:, :, PAIR], of, drop_stage > Stage.WRAPPED)
        vault.admit(joined)
        # Too few neighbours hide nothing well, and could not open anything.
        sending = (joined.sum(axis=1) >= self.parameters.threshold) & (drop_stage > Stage.MASKED)
        rows = np.flatnonzero(sending)
        yield self._masked(vectors, rows, keys, own[:, :, SELF], joined, of)
        opening, lost = self._named((yield LOST.nothing()), sending)
        if (lost & ~joined).any():
            raise WrongSender("a device was called lost that is not in the round")
        opening &= (joined & ~lost).sum(axis=1) >= self.parameters.threshold
        up, pairs = self._up[:, :, None], self._pairs.of
        words = keys.word_up[pairs], keys.word_down[pairs]
        return _Collected(
            own_words=np.where(up, *words),
            their_words=np.where(up, *words[::-1]),
            vault=vault,
            joined=joined,
            lost=lost,
            opening=opening,
            width=vectors.shape[1],
            number=of.number,
            context=self.context,
        )

    def _open(
        self, collected: "_Collected", opening: Flags, revealing: Flags
    ) -> Program[Doubles | None]:
        """Run UNMASK: confirm neighbours that are in the sum, give out shares, receive the sum."""
        joined, lost = collected.joined, collected.lost
        opening = yield from confirm(
            self._shard,
            opening,
            joined & ~lost,
            collected.own_words,
            collected.their_words,
            self.parameters.threshold,
        )
        opening = opening & revealing
        if opening.any():
            self.opened.open(collected.record(opening))
        revealed = self._reveal(collected.vault, np.flatnonzero(opening), joined, lost)
        collected.vault.forget()  # what was not asked for here is never given out
        yield revealed
        return self._summed((yield SUM.nothing()), opening, collected.width)

    def _require_setup(self) -> None:
        if not self._agreed:
            raise UsageError("the first sum of a run needs setup() before it")

    def _values(self, keys: masks.RoundKeys) -> tuple[Elements, ShareVault]:
        """[hosted, k, 2, limbs] what each device shares with its holders, and what it holds."""
        up, of = self._up[:, :, None, None], self._pairs.of
        values = keys.values_up[of], keys.values_down[of]
        return np.where(up, *values), ShareVault(np.where(up, *values[::-1]))

    def _wrap(
        self,
        keys: masks.RoundKeys,
        values: Elements,
        of: masks.SumId,
        speaking: Flags,
    ) -> Program[Flags]:
        """Send the wrapped seeds to the coordinator; receive who is in the round.

        Args:
            values: [hosted, k, limbs] what the pair secrets are made of.

        Returns:
            [hosted, k] the neighbours in the round; none where the device itself is not.
        """
        rows = np.flatnonzero(speaking)
        devices, k = self._shard.devices[rows], self.parameters.neighbours
        everyone = np.ones((len(rows), k), np.bool_)
        secrets, corrections = secrets_of(values[rows], everyone, self.parameters.threshold)
        wrapped = masks.wrap(
            keys.seed[self._pairs.of[rows]], masks.keys_of(secrets, devices, PAIR, of)
        )
        body = np.concatenate(
            [
                wrapped.astype("<u4").view(np.uint8).reshape(len(rows), masks.SEED * k),
                masks.commitments(secrets, devices, PAIR, of),
                _as_bytes(corrections),
            ],
            axis=1,
        )
        yield WRAPPED.to_coordinator(self._shard, rows, body)
        going, left_out = self._named((yield LEFT_OUT.nothing()), speaking)
        return going[:, None] & ~left_out & self._known

    def _masked(
        self,
        vectors: Doubles,
        rows: Ints,
        keys: masks.RoundKeys,
        values: Elements,
        joined: Flags,
        of: masks.SumId,
    ) -> Outbox:
        """The message with y_u of each of `rows`, and what opens its self secret.

        Args:
            values: [hosted, k, limbs] what the self secrets are made of.
        """
        t, present = self.parameters.threshold, joined[rows]
        devices, width = self._shard.devices[rows], vectors.shape[1]
        secrets, corrections = secrets_of(values[rows], present, t)
        published = [masks.commitments(secrets, devices, SELF, of), _as_bytes(corrections)]
        size, tail = width * self.fixed.wire, published_bytes(self.parameters.neighbours, t)
        body = np.empty((len(rows), size + tail), np.uint8)
        body[:, size:] = np.hstack(published)
        # Where words travel as they are, no second array is made: vectors may be large.
        as_they_are = self.fixed.wire == self.fixed.word
        words = (
            body[:, :size].view(self.fixed.dtype)
            if as_they_are
            else np.empty((len(rows), width), self.fixed.dtype)
        )
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            words[start : start + _ROWS] = self.fixed.encode(vectors[some])
        self._add_masks(words, rows, keys, joined, secrets, of)
        if not as_they_are:
            body[:, :size] = self.fixed.pack(words)
        lengths = size + published_bytes(0, t) + SHARE * present.sum(axis=1)
        return MASKED.to_coordinator(self._shard, rows, body, lengths=lengths)

    def _add_masks(
        self,
        words: RingWords,
        rows: Ints,
        keys: masks.RoundKeys,
        joined: Flags,
        secrets: Elements,
        of: masks.SumId,
    ) -> None:
        """Add the masks of all pairs in the round, and the self masks, to [rows, width] words."""
        here, slots = np.nonzero(joined[rows])
        pair, up = self._pairs.of[rows[here], slots], self._up[rows[here], slots]
        plus = np.full(len(keys.seed), masks.NOBODY)
        minus = plus.copy()
        plus[pair[up]] = here[up]
        minus[pair[~up]] = here[~up]
        used = np.flatnonzero((plus != masks.NOBODY) | (minus != masks.NOBODY))
        low, high = self._pairs.low[used], self._pairs.high[used]
        masks.add_masks(
            words, masks.pair_keys_of(keys.seed[used], low, high, of), plus[used], minus[used]
        )
        everyone = np.arange(len(rows))
        masks.add_masks(
            words,
            masks.keys_of(secrets, self._shard.devices[rows], SELF, of),
            everyone,
            np.full(len(rows), masks.NOBODY),
        )

    def _reveal(self, vault: ShareVault, rows: Ints, joined: Flags, lost: Flags) -> Outbox:
        """Give out one share per neighbour in the round: of its self secret, or of its pair secret
        if it is lost."""
        here, slots = np.nonzero(joined[rows])
        which = np.where(lost[rows[here], slots], PAIR, SELF)
        counts = np.bincount(here, minlength=len(rows))
        within = np.arange(len(here)) - np.repeat(np.cumsum(counts) - counts, counts)
        body = np.zeros((len(rows), self.parameters.neighbours, LIMBS), "<u2")
        body[here, within] = vault.give_out(rows[here], slots, which)
        whole = body.view(np.uint8).reshape(len(rows), SHARE * self.parameters.neighbours)
        return REVEAL.to_coordinator(self._shard, rows, whole, lengths=SHARE * counts)

    def _summed(self, inbox: Inbox, receiving: Flags, width: int) -> Doubles | None:
        """The sum, where a hosted device received it."""
        rows = self._from_coordinator(inbox)
        lengths = inbox.batch.lengths
        if lengths is not None and (lengths != width * self.fixed.wire).any():
            raise WrongLength("a sum has another length than the vectors")
        if not receiving[rows].any():
            return None
        row = int(np.argmax(receiving[rows]))
        return self.fixed.decode(self.fixed.unpack(inbox.body[row, : width * self.fixed.wire]))

    def _from_mask_neighbours(self, inbox: Inbox) -> Inbox:
        """Return what mask neighbours sent once: a liar may send more, and to anybody."""
        slots, joined = self._graph.slots_if_joined(inbox.receiver, inbox.sender)
        place = self._shard.local(inbox.receiver) * self.parameters.neighbours + slots
        rows = np.flatnonzero(joined)
        _, first, counts = np.unique(place[rows], return_index=True, return_counts=True)
        return Inbox(inbox.batch.take(np.sort(rows[first[counts == 1]])), inbox.quiet)

    def _places(self, inbox: Inbox) -> tuple[Ints, Ints]:
        """Row of the receiver and slot of the sender of each message, at most one for each."""
        rows = self._shard.local(inbox.receiver)
        slots = self._graph.slots(inbox.receiver, inbox.sender)
        if len(np.unique(rows * self.parameters.neighbours + slots)) < len(rows):
            raise WrongSender("a mask neighbour sent the same thing twice")
        return rows, slots

    def _from_coordinator(self, inbox: Inbox) -> Ints:
        """Return the rows of the receivers of what only the coordinator may send."""
        check_from_coordinator(inbox)
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
    """The state of hosted devices in a round before anything is opened."""

    own_words: Words
    """[hosted, k, 3] the words for the neighbours."""
    their_words: Words
    """[hosted, k, 3] the words that the neighbours would send."""
    vault: ShareVault
    joined: Flags
    """[hosted, k] the neighbours in the round."""
    lost: Flags
    """[hosted, k] those of them that are lost, according to the coordinator."""
    opening: Flags
    """[hosted] the devices in the sum that were asked to open it."""
    width: int
    number: int
    context: bytes

    def record(self, opening: Flags) -> Opening:
        """Return the record of what the coordinator sent of this sum, for those `opening`."""
        digest = blake2b(self.context, digest_size=32, person=b"lumos opening")
        for flags in (self.joined, self.lost, opening):
            digest.update(np.packbits(flags).tobytes())
        return Opening(-1 - self.number, self.number, digest.digest())


def _as_bytes(elements: Elements) -> Bytes:
    """[devices, count, limbs] → [devices, bytes]."""
    devices, count, _ = elements.shape
    return np.ascontiguousarray(elements, "<u2").view(np.uint8).reshape(devices, SHARE * count)

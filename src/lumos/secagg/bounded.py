"""Masked sums in which every device proves that its summand is short; liars are excluded.

Without proofs a device can add any numbers to a sum. Here the norm of what it adds is bounded, a
device that lies is named and left out, and the sum is made without it.

**An attempt at a sum**, in rounds (`lumos.secagg.topics`):

1. *Pledge.* Each device sends hashes of everything that it shares with each mask neighbour: the
   seed of the pair's mask, values of both self secrets, and words by which they confirm each other.
   Both ends have to send the same; a pair that does not is left out of the sum, for both. All that
   a device sends from here on, but the seeds of step 6, is signed (`lumos.secagg.evidence`).
2. *Masked.* y_u = x_u + PRG(b_u) + Σ ± PRG(seed_uv), a commitment to the self secret b_u, and
   corrections of its shares, as in `lumos.secagg.device`.
3. *Challenge.* With all vectors there, the coordinator sends a fresh nonce and a digest of all of
   them. A random matrix R follows from both, and everybody's projections R·y_u.
4. *Proof.* Each device commits to the projection of its self mask and proves that what is left of
   R·y_u without self and pair masks is short (`lumos.crypto.shortness`). The commitment D_u to the
   projected pair masks follows from the proof. Pair masks cancel, and so do the blindings of D_u,
   which both ends of a pair take from its seed: the D_u add up to zero.
5. *Decision.* **Again**, if a vector or proof is missing or invalid: the next attempt is made
   without that device, with fresh masks. **Blame**, if all proofs are valid and the D_u do not add
   up: devices send their pair seeds of this attempt, which is never opened, and the coordinator
   computes each D_u. **Open** otherwise: devices give out shares of self secrets.
6. *Evidence.* With b_u open, the commitment to the projected self mask is checked. Whoever lied
   there has signed the contradiction. Its mask neighbours check the evidence and send the seeds
   that they share with it, so that the sum is formed without it.

No pair secret exists, and a device that falls silent costs an attempt and not a mask. So a sum
never leaves out a device whose vector is masked with others in it.

**Privacy**, against a coordinator that lies and X colluding neighbours of each device (t, k and the
bound 2t - k - X ≥ 1 as in `lumos.secagg.parameters`). In one attempt a device follows one decision:
it gives out shares, or it confirms *blame* by words that only the two ends of a pair know. It sends
its seeds only if t neighbours confirm *blame*.

* *Self secret and pair seeds of v are not both known.* b_v needs t holders that open, of which
  t - X are honest. If v sent its seeds, t neighbours confirmed *blame*, t - X of them honest, and
  none of these opens. Both together are more than the k - X honest neighbours that there are. So
  opening needs no confirmation, and seeds do.
* *An opened vector stays masked.* t - X honest neighbours of v opened b_v. They sent no seeds in
  this attempt, and neither did v. Their masks hide v except in a sum with all of them, of whom the
  same holds: the group that is opened is closed under such neighbours, and goes round the ring.
* *Evidence opens nobody who is honest.* It has v's signature under two things that contradict each
  other. Files of it show what the coordinator has, and the coordinator is the adversary here.
* *Two attempts of one sum are never both opened.* A holder that opened one takes part in no later
  one, and opens none before it (`lumos.secagg.openings`). One that is at another sum already has
  other keys.
* *Proofs and pledges* show nothing but that summands are short (zero knowledge), for any R. A
  coordinator that chooses nonces does not find an R for which an honest proof fails, except with
  probability 2^-128 for each that it tries.

**Integrity**, if the coordinator follows the protocol: all devices that are not excluded together
add at most the proved bound for each of them. Where a device is excluded in step 6, the D_u of the
others are checked again without it: a liar that is caught on purpose could have moved numbers for
another one. If they do not add up, a seed shared with a liar is withheld, too few are left, or more
than `LEAVING` are caught where vectors are projected, the sum is *spoiled*: it was opened once, and
is left out by all. Colluding devices can shift numbers between
themselves, and nothing else: pair masks are checked in their sum. An honest device is never
excluded: pledges of two honest ends agree, its proof is valid, its D_u is what its seeds give, and
its self commitment fits. Silence is no lie: whoever falls silent within `LATE` sums, or so that a
sum is spoiled, is in no further sum, and is not named. So each liar spoils at most one sum by
silence and one by being caught, and costs at most `LATE` attempts. More than 2t - k - 1 pairs whose
pledges differ are more than its colluding neighbours can cause.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from lumos.crypto import entropy, shortness
from lumos.device.shard import Shard
from lumos.errors import AlreadyOpened, Equivocation
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.messages import Inbox, Outbox, Topic
from lumos.secagg import evidence, masks, signing
from lumos.secagg.coordinator import SecureCoordinator
from lumos.secagg.device import SecureAggregator
from lumos.secagg.evidence import (
    AnyEvidence,
    Attempt,
    EvidenceFile,
    ShownEvidence,
    SumForm,
    centred,
    challenge_of,
    check_bound,
    pair_blinding,
    projected_self_masks,
    self_blinding,
    unsigned,
    with_pair_lifts,
    with_self_lifts,
)
from lumos.secagg.mask_graph import Draw
from lumos.secagg.noise import Bound, DrawnNoise, Noise, Update
from lumos.secagg.openings import Opening, confirm
from lumos.secagg.parameters import AggregateSettings, RingWords
from lumos.secagg.shares import SELF, Elements, ShareVault, secrets_of
from lumos.secagg.topics import (
    ALIVE,
    CHALLENGE,
    DECISION,
    EVIDENCE,
    LEFT_OUT,
    MASKED,
    PLEDGE,
    PROOF,
    PUBLIC_HASH,
    REVEAL,
    SEEDS,
    SHARE,
    SUM,
    check_from_coordinator,
    pledge_bytes,
    published_bytes,
)
from lumos.typing import Arrays, Bytes, Doubles, Flags, Ints, Words

OPEN, AGAIN, BLAME, TOO_FEW = range(4)
"""The words of a decision."""
SPOILED, EVIDENCE_FOLLOWS = range(2)
"""One byte in place of a sum."""
LATE = 3
"""Times that a device may fall silent within a sum: every time costs all others an attempt. Then it
is in no further sum."""
LEAVING = 1
"""Devices that may be left out of a sum once its matrix R is known. Of many, liars would choose who
stays, so that R makes the sum of their vectors look short."""
_BLAME_STEP = -(1 << 48)
"""Openings of pair seeds are recorded under steps of their own."""


@dataclass
class _DeviceAttempt:
    """The state of hosted devices in one attempt."""

    facts: Attempt
    keys: masks.RoundKeys
    values: Elements
    """[hosted, k, limbs] what the self secrets are made of."""
    vault: ShareVault
    pledge: Bytes
    """[hosted, bytes] the pledges."""
    joined: Flags
    """[hosted, k] the neighbours in the attempt."""
    rows: Ints
    """The hosted devices that sent a vector."""
    masked: Outbox | None = None

    @property
    def of(self) -> masks.SumId:
        """The name of the attempt."""
        return self.facts.of


class BoundedAggregator(SecureAggregator):
    """The backend `secure` of one shard, with proofs; arguments as those of `SecureAggregator`."""

    def __init__(
        self, shard: Shard, endpoint: Endpoint, settings: AggregateSettings | None = None
    ) -> None:
        super().__init__(shard, endpoint, settings)
        self._proofs = (settings or AggregateSettings()).proofs

    def _usable(self, inbox: Inbox, same: Flags) -> Inbox:
        """Drop the pair, and not the device, where a neighbour's key or seed is wrong."""
        if not self._proofs:
            return super()._usable(inbox, same)
        right = same & [masks.is_public_key(row[: masks.KEY].tobytes()) for row in inbox.body]
        usable = Inbox(inbox.batch.take(np.flatnonzero(right)), inbox.quiet)
        return self._from_mask_neighbours(usable)

    def sum_updates(
        self,
        update: Update,
        noise: Noise | None = None,
        step: int = 0,
        drop_stage: "np.ndarray[tuple[int], np.dtype[np.int8]] | None" = None,
        bound: Bound | None = None,
    ) -> Program[Doubles | None]:
        """Sum the vectors of an update, with noise, as `SecureAggregator.sum_updates`.

        Args:
            bound: of an honest summand; None or infinite: without proofs.
        """
        vectors = update(True)
        norm = math.inf if bound is None else bound(vectors.shape[1])
        if not self._proofs or math.isinf(norm):
            return (yield from super().sum_updates(lambda _: vectors, noise, step, drop_stage))
        vectors = self.fixed.rounded(vectors)
        shares = self.noise_shares(noise, vectors.shape[1], step)
        if shares is not None:
            vectors += self.fixed.rounded(shares)
        return (yield from self.sum_bounded(vectors, norm))

    def sum_bounded(self, vectors: Doubles, bound: float) -> Program[Doubles | None]:
        """Return [width] the sum over all devices whose summands are proved to be short.

        Args:
            vectors: [hosted, width] the summands, noise included.
            bound: norm of an honest summand.

        Returns:
            The sum; None where it was not opened, or no hosted device is in it; not a number where
            it was opened and could not be formed.
        """
        self._require_setup()
        check_bound(bound, vectors.shape[1], self.fixed, self._shard.total // 10 + 1)
        step = -1 - self._pairs.number  # the same for all attempts
        form = self._form(vectors.shape[1], bound)
        while True:
            if self.opened.has(step, before=self._pairs.number):
                raise AlreadyOpened("another attempt at this sum was opened here")
            attempt = yield from self._pledge(step, form)
            attempt.masked = self._masked(
                vectors,
                attempt.rows,
                attempt.keys,
                attempt.values,
                attempt.joined,
                attempt.of,
            )
            yield attempt.masked
            challenge = self._challenge((yield CHALLENGE.nothing()), attempt)
            yield self._proof_messages(attempt, challenge)
            decision = self._decided((yield DECISION.nothing()))
            if decision == OPEN:
                return (yield from self._open_bounded(attempt, challenge, step))
            attempt.vault.forget()
            if decision == TOO_FEW:
                return None
            if decision == BLAME:
                yield from self._show_seeds(attempt)

    def _form(self, width: int, bound: float) -> SumForm:
        threshold = self.parameters.threshold
        return SumForm.of(self._graph, threshold, self.fixed, width, bound, self._seed)

    def _pledge(self, step: int, form: SumForm) -> Program[_DeviceAttempt]:
        context = self.context + step.to_bytes(8, "little", signed=True)
        facts = Attempt(form=form, number=self._pairs.number, context=_digest(context))
        # Devices at different sums share no key, whatever the coordinator made them count.
        keys = self._pairs.ratchet(context)
        values, vault = self._values(keys)
        pledged = self._pledges(keys, facts.of)
        everyone, me = np.arange(len(self._shard)), self._shard.devices
        each = pledged[self._pairs.of]
        each[~self._known] = 0  # a pair without a key is in no sum, and nobody's lie
        body = each.reshape(len(me), -1)
        signed = [
            facts.sign(device, b"pledge", row.tobytes())
            for device, row in zip(me.tolist(), body, strict=True)
        ]
        known = np.tile(np.frombuffer(facts.context, np.uint8), (len(me), 1))
        yield PLEDGE.to_coordinator(self._shard, everyone, np.hstack([body, known, _rows(signed)]))
        here = np.ones(len(me), np.bool_)
        going, left_out = self._named((yield LEFT_OUT.nothing()), here)
        joined = going[:, None] & ~left_out & self._known
        vault.admit(joined)
        rows = np.flatnonzero(joined.sum(axis=1) >= self.parameters.threshold)
        return _DeviceAttempt(facts, keys, values[:, :, SELF], vault, body, joined, rows)

    def _pledges(self, keys: masks.RoundKeys, of: masks.SumId) -> Bytes:
        """[pairs, bytes] the pledge of each pair."""
        return masks.pledges(keys, self._pairs.low, self._pairs.high, of)

    def _challenge(self, inbox: Inbox, attempt: _DeviceAttempt) -> bytes:
        """Return the challenge; empty where there is none, as a vector is missing."""
        rows = self._from_coordinator(inbox)
        if not np.isin(rows, attempt.rows).all():
            raise Equivocation("a device was challenged that is not in the sum")
        if not len(rows):
            attempt.rows = attempt.rows[:0]
            return b""
        if (inbox.body != inbox.body[0]).any():
            raise Equivocation("the coordinator sent devices different challenges")
        return bytes(inbox.body[0])

    def _proof_messages(self, attempt: _DeviceAttempt, challenge: bytes) -> Outbox:
        if not challenge:
            return PROOF.nothing()
        proofs = self._prove(attempt, challenge)
        rows = [row for row, proof in zip(attempt.rows.tolist(), proofs, strict=True) if proof]
        if not rows:
            return PROOF.nothing()
        body = np.frombuffer(b"".join(proofs), np.uint8).reshape(len(rows), -1)
        return PROOF.to_coordinator(self._shard, np.array(rows), body)

    def _prove(self, attempt: _DeviceAttempt, challenge: bytes) -> list[bytes]:
        """Return the proof of each device in the sum, with its signature; none is empty bytes."""
        rows, facts, bits = attempt.rows, attempt.facts, 8 * self.fixed.wire
        devices, width = self._shard.devices[rows], facts.form.width
        size = width * self.fixed.wire
        assert attempt.masked is not None  # noqa: S101 - sent before the challenge
        sent, lengths = attempt.masked.batch.body, attempt.masked.batch.lengths
        assert lengths is not None  # noqa: S101 - messages of any length
        secrets = self._self_secrets(attempt)
        drawn = challenge_of(challenge, facts.of)
        masked, own, pair = self._projected(attempt, secrets, drawn, width)
        blindings = self._pair_blindings(attempt, drawn)
        proofs = []
        for place, device in enumerate(devices.tolist()):
            short = [
                centred(total - mine - theirs, bits)
                for total, mine, theirs in zip(masked[place], own[place], pair[place], strict=True)
            ]
            statement = facts.statement(device, drawn, masked[place])
            witness = shortness.Witness(
                short=short,
                self_projected=own[place],
                self_blinding=self_blinding(secrets[place], drawn),
                pair_projected=pair[place],
                pair_blinding=blindings[place],
            )
            try:
                proof = self._proved(statement, witness)
            except ValueError:  # its noise is longer than the bound, with probability 2^-58
                proofs.append(b"")
                continue
            record = evidence.Signed.of(
                attempt.pledge[rows[place]].tobytes(),
                attempt.joined[rows[place]],
                sent[place, :size].tobytes(),
                sent[place, size : lengths[place]].tobytes(),
                challenge,
                proof,
            )
            proofs.append(proof + record.sign(facts, device))
        return proofs

    def _proved(self, statement: shortness.Statement, witness: shortness.Witness) -> bytes:
        return shortness.prove(statement, witness, entropy.draw)

    def _self_secrets(self, attempt: _DeviceAttempt) -> Elements:
        """[in the sum, limbs] the self secrets."""
        values, joined = attempt.values[attempt.rows], attempt.joined[attempt.rows]
        return secrets_of(values, joined, self.parameters.threshold)[0]

    def _projected(
        self, attempt: _DeviceAttempt, secrets: Elements, drawn: bytes, width: int
    ) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
        """Return the projections of masked vectors, self masks and pair masks."""
        assert attempt.masked is not None  # noqa: S101 - sent before the challenge
        bits, devices = 8 * self.fixed.wire, self._shard.devices[attempt.rows]
        sent = unsigned(
            self.fixed.unpack(attempt.masked.batch.body[:, : width * self.fixed.wire]), bits
        )
        pairs = self._pair_places(attempt)
        halves = [
            (
                (sent & np.uint64(0xFFFFFFFF)).astype(np.int64),
                (sent >> np.uint64(32)).astype(np.int64),
            ),
            masks.self_mask_halves(secrets, devices, width, attempt.of, bits),
            self._pair_halves(attempt, width, *pairs),
        ]
        low, high = (np.concatenate(part) for part in zip(*halves, strict=True))
        projected = shortness.projection(drawn, width).apply_halves(low, high)  # R is used once
        count = len(devices)
        masked, own, pair = (projected[start : start + count] for start in (0, count, 2 * count))
        used, plus, minus = pairs
        for place in range(count):
            mine = (plus == place) | (minus == place)
            seeds = attempt.keys.seed[used[mine]]
            pair[place] = with_pair_lifts(pair[place], seeds, plus[mine] == place, drawn, bits)
        return masked, with_self_lifts(own, secrets, drawn, bits), pair

    def _pair_places(self, attempt: _DeviceAttempt) -> tuple[Ints, Ints, Ints]:
        """Return the pairs in the attempt, and the places in `rows` that add and take each."""
        here, slots = np.nonzero(attempt.joined[attempt.rows])
        pair = self._pairs.of[attempt.rows[here], slots]
        up = self._up[attempt.rows[here], slots]
        plus = np.full(len(attempt.keys.seed), masks.NOBODY)
        minus = plus.copy()
        plus[pair[up]] = here[up]
        minus[pair[~up]] = here[~up]
        used = np.flatnonzero((plus != masks.NOBODY) | (minus != masks.NOBODY))
        return used, plus[used], minus[used]

    def _pair_halves(
        self, attempt: _DeviceAttempt, width: int, used: Ints, plus: Ints, minus: Ints
    ) -> tuple[Ints, Ints]:
        """[in the sum, width] the integer sums of the pair masks of each device."""
        keys = masks.pair_keys_of(
            attempt.keys.seed[used], self._pairs.low[used], self._pairs.high[used], attempt.of
        )
        bits = 8 * self.fixed.wire
        return masks.mask_halves(len(attempt.rows), width, keys, plus, minus, bits)

    def _pair_blindings(self, attempt: _DeviceAttempt, challenge: bytes) -> list[int]:
        """Return the blinding of D_u of each device in the sum."""
        totals = [0] * len(attempt.rows)
        places = (array.tolist() for array in self._pair_places(attempt))
        for pair, adding, taking in zip(*places, strict=True):
            drawn = pair_blinding(attempt.keys.seed[pair], challenge)
            if adding != masks.NOBODY:
                totals[adding] += drawn
            if taking != masks.NOBODY:
                totals[taking] -= drawn
        return totals

    def _decided(self, inbox: Inbox) -> int:
        check_from_coordinator(inbox)
        if not len(inbox.body):
            return TOO_FEW
        if inbox.body.min() != inbox.body.max():
            raise Equivocation("the coordinator sent devices different decisions")
        return int(inbox.body[0])

    def _confirmed(self, attempt: _DeviceAttempt) -> Program[Flags]:
        """[hosted] whose neighbours confirmed that they open nothing in this attempt."""
        here = self._in_sum(attempt)
        up, pairs = self._up[:, :, None], self._pairs.of
        words = [word[pairs] for word in (attempt.keys.word_up, attempt.keys.word_down)]
        return (
            yield from confirm(
                self._shard,
                here,
                attempt.joined & here[:, None],
                np.where(up, *words),
                np.where(up, *words[::-1]),
                self.parameters.threshold,
                lambda outbox: self._with_signatures(outbox, attempt, "word"),
            )
        )

    def _record(self, attempt: _DeviceAttempt, step: int, what: bytes) -> None:
        """Record what is about to be given out, where that survives a restart.

        Raises:
            AlreadyOpened: something else of this attempt was recorded.
        """
        if not len(attempt.rows):
            return
        digest = blake2b(self.context + what, digest_size=32, person=b"lumos opening")
        for flags in (attempt.joined, self._in_sum(attempt)):
            digest.update(np.packbits(flags).tobytes())
        self.opened.open(Opening(step, attempt.of.number, digest.digest()))

    def _in_sum(self, attempt: _DeviceAttempt) -> Flags:
        """[hosted] the devices in the sum."""
        here = np.zeros(len(self._shard), np.bool_)
        here[attempt.rows] = True
        return here

    def _show_seeds(self, attempt: _DeviceAttempt) -> Program[None]:
        """Send the pair seeds of an attempt whose vectors are never opened."""
        # Whoever confirms blame opens nothing of this attempt, also after a restart.
        self._record(attempt, _BLAME_STEP - attempt.of.number, b"blame")
        showing = yield from self._confirmed(attempt)
        rows = np.flatnonzero(showing)
        seeds = attempt.keys.seed[self._pairs.of].astype("<u4")
        each = seeds.view(np.uint8).reshape(*seeds.shape[:2], SHARE)
        yield self._with_signatures(self._by_slot(attempt, rows, each), attempt, "seed")

    def _with_signatures(self, outbox: Outbox, attempt: _DeviceAttempt, what: str) -> Outbox:
        """Sign what hosted devices give out, so that a wrong one can be shown to others."""
        sent, width = outbox.batch, outbox.batch.body.shape[-1]
        if not sent.messages:
            return outbox
        rows = self._shard.local(sent.sender)
        lengths = np.full(len(rows), width) if sent.lengths is None else sent.lengths
        body = np.zeros((len(rows), width + signing.SIGNATURE), np.uint8)
        body[:, :width] = sent.body
        for message, (row, size) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            pledge, given = attempt.pledge[row].tobytes(), sent.body[message, :size].tobytes()
            parts = evidence.answer_parts(pledge, attempt.joined[row], given)
            device = int(sent.sender[message])
            signature = attempt.facts.sign(device, what.encode(), *parts)
            body[message, size : size + signing.SIGNATURE] = np.frombuffer(signature, np.uint8)
        return outbox.topic.to_coordinator(
            self._shard, rows, body, lengths=lengths + signing.SIGNATURE
        )

    def _by_slot(self, attempt: _DeviceAttempt, rows: Ints, each: Bytes) -> Outbox:
        """Return the message with 16 bytes for each neighbour in the attempt."""
        joined = attempt.joined[rows]
        counts = joined.sum(axis=1)
        body = np.zeros((len(rows), self.parameters.neighbours, SHARE), np.uint8)
        here, slots = np.nonzero(joined)
        within = np.arange(len(here)) - np.repeat(np.cumsum(counts) - counts, counts)
        body[here, within] = each[rows[here], slots]
        whole = body.reshape(len(rows), SHARE * self.parameters.neighbours)
        return REVEAL.to_coordinator(self._shard, rows, whole, lengths=SHARE * counts)

    def _open_bounded(
        self, attempt: _DeviceAttempt, challenge: bytes, step: int
    ) -> Program[Doubles | None]:
        rows, width = attempt.rows, attempt.facts.form.width
        self._record(attempt, step, b"open")
        none_lost = np.zeros_like(attempt.joined)
        revealed = self._reveal(attempt.vault, rows, attempt.joined, none_lost)
        attempt.vault.forget()
        yield self._with_signatures(revealed, attempt, "share")
        inbox = yield SUM.nothing()
        while (note := _note(inbox)) == EVIDENCE_FOLLOWS:
            yield self._answer_evidence((yield EVIDENCE.nothing()), attempt, challenge)
            inbox = yield SUM.nothing()
        if note == SPOILED:
            return np.full(width, np.nan)
        return self._summed(inbox, self._in_sum(attempt), width)

    def _answer_evidence(self, inbox: Inbox, attempt: _DeviceAttempt, challenge: bytes) -> Outbox:
        """Send the seeds shared with devices that lied, if the evidence against them holds."""
        rows = np.intersect1d(self._from_coordinator(inbox), attempt.rows)
        if not len(rows) or inbox.batch.lengths is None:
            return SEEDS.nothing()
        first = int(np.flatnonzero(self._shard.local(inbox.receiver) == rows[0])[0])
        cases = evidence.decode(inbox.body[first, : inbox.batch.lengths[first]].tobytes())
        proved = [case.device for case in cases if self._holds(case, attempt, challenge)]
        body = np.zeros((len(rows), len(cases), SHARE), np.uint8)
        seeds = attempt.keys.seed.astype("<u4")
        for column, case in enumerate(cases):
            if case.device in proved:
                found, slots = np.nonzero(
                    (self._neighbours[rows] == case.device) & attempt.joined[rows]
                )
                pairs = self._pairs.of[rows[found], slots]
                body[found, column] = seeds[pairs].view(np.uint8).reshape(len(pairs), SHARE)
        return SEEDS.to_coordinator(self._shard, rows, body.reshape(len(rows), -1))

    def _holds(self, case: ShownEvidence, attempt: _DeviceAttempt, challenge: bytes) -> bool:
        """Return whether evidence shows that a device lied in this attempt."""
        return case.signed.challenge == challenge and case.holds(attempt.facts)


def _digest(context: bytes) -> bytes:
    return blake2b(context, digest_size=PUBLIC_HASH, person=b"lumos known sums").digest()


def _rows(signatures: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(signatures), np.uint8).reshape(-1, signing.SIGNATURE)


def _note(inbox: Inbox) -> int | None:
    """Return what the coordinator sent in place of a sum; None for a sum or nothing."""
    check_from_coordinator(inbox)
    lengths = inbox.batch.lengths
    if lengths is None or not (lengths == 1).any():
        return None
    notes = {int(row[0]) for row in inbox.body[lengths == 1]}
    if len(notes) > 1 or not (lengths == 1).all() or not notes <= {SPOILED, EVIDENCE_FOLLOWS}:
        raise Equivocation("the coordinator sent devices different sums")
    return notes.pop()


class _Exclusion(NamedTuple):
    """A device that lied, and how."""

    device: int
    why: str


@dataclass
class _CoordinatorAttempt:
    """The coordinator's state in one attempt."""

    facts: Attempt
    holders: Flags
    """[total, k] the mask neighbours of each device in the attempt; none of one that is out."""
    joined: Flags
    """[total] who is in the attempt."""
    pledge: dict[int, bytes]
    neighbours: Ints
    """[total, k] the mask neighbours of each device."""
    arrived: Flags
    """[total] whose vector has arrived."""
    bodies: dict[int, bytes]
    """The `masked` messages."""
    challenge: bytes = b""
    proofs: dict[int, bytes] = field(default_factory=dict)
    """Proofs with signatures."""
    records: dict[int, evidence.Signed] = field(default_factory=dict)
    verified: "shortness.Verified | None" = None

    @property
    def of(self) -> masks.SumId:
        """The name of the attempt."""
        return self.facts.of

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.facts.form.width

    def vector(self, device: int) -> bytes:
        """Return the masked vector of a device, as it travelled."""
        return self.bodies[device][: self.width * self.facts.form.bits // 8]

    def proof(self, device: int) -> bytes:
        """Return the proof of a device."""
        return self.proofs[device][: -signing.SIGNATURE]

    def record(self, device: int) -> evidence.Signed:
        """Return what a device has signed with its proof, and the signature."""
        if device not in self.records:
            vector = self.vector(device)
            self.records[device] = evidence.Signed.of(
                self.pledge[device],
                self.holders[device],
                vector,
                self.bodies[device][len(vector) :],
                self.challenge,
                self.proof(device),
                self.proofs[device][-signing.SIGNATURE :],
            )
        return self.records[device]


class BoundedCoordinator(SecureCoordinator):
    """The coordinator's part; arguments as those of `SecureCoordinator`."""

    def __init__(
        self,
        total: int,
        endpoint: Endpoint,
        settings: AggregateSettings | None = None,
        *,
        drops_refused: bool = False,
        plan: bytes = b"",
    ) -> None:
        super().__init__(total, endpoint, settings, drops_refused=drops_refused, plan=plan)
        self._proofs = (settings or AggregateSettings()).proofs
        self.excluded: list[_Exclusion] = []
        """Devices that lied, in the order in which that was found; they are in no further sum."""
        self.evidence: dict[int, EvidenceFile] = {}
        """Evidence against some of them that anybody can check."""
        self._late: Ints = np.zeros(total, np.int64)  # how often each fell silent within a sum

    def sum(
        self, width: int, noise: DrawnNoise | None = None, bound: Bound | None = None
    ) -> Program[Doubles | None]:
        """One sum of vectors of `width` numbers; None when nothing was opened.

        Args:
            noise: unused, as in `SecureCoordinator.sum`.
            bound: of an honest summand; None or infinite: without proofs.
        """
        norm = math.inf if bound is None else bound(width)
        if not self._proofs or math.isinf(norm):
            return (yield from super().sum(width, noise))
        silent = np.zeros(self._total, np.bool_)  # in this sum
        form = self._form(width, norm)
        while True:
            attempt = yield from self._gather(form, silent)
            decision = yield from self._judge(attempt, silent)
            yield DECISION.from_coordinator(np.arange(self._total), decision)
            if decision == OPEN:
                return (yield from self._open_bounded(attempt))
            if decision == TOO_FEW:
                return None
            if decision == BLAME:
                yield from self._find_liars(attempt, silent)

    def _form(self, width: int, bound: float) -> SumForm:
        threshold = self.parameters.threshold
        return SumForm.of(self._graph, threshold, self.fixed, width, bound, self._seed)

    def _note_withheld(self, draw: Draw) -> None:
        """Exclude who lied in the draw of the mask graph; note who fell silent in it."""
        if self._proofs:
            self._late += draw.silent
            for device in np.flatnonzero(draw.lied).tolist():
                self._exclude(device, "it contributed to the draw what it had not committed to")

    def _miss(self, missing: Flags, silent: Flags) -> None:
        """Note who fell silent within an attempt: it is out of this sum."""
        self._late += missing
        silent |= missing

    def state_dict(self) -> Arrays:
        """Return what the coordinator needs to go on after a restart; all of it is public."""
        return {**super().state_dict(), "late": self._late.copy()}

    def load_state_dict(self, state: Arrays) -> None:
        """Go on from a state instead of `setup`: before the sum whose number it has."""
        super().load_state_dict(state)
        self._late = state["late"].copy()

    def _exclude(self, device: int, why: str) -> None:
        if any(one.device == device for one in self.excluded):
            return
        self.excluded.append(_Exclusion(device, why))

    def _accuse(self, case: AnyEvidence, facts: Attempt) -> None:
        """Exclude a device that lied, and keep the evidence."""
        if not any(one.device == case.device for one in self.excluded):
            self.evidence[case.device] = EvidenceFile.of(case, facts, self._plan)
        self._exclude(case.device, case.lie)

    def _out(self) -> Flags:
        """[total] who is excluded, or fell silent too often."""
        out = self._late >= LATE
        out[[one.device for one in self.excluded]] = True
        return out

    def _taken(
        self, inbox: Inbox, expected: Flags, size: "Callable[[int], int] | None"
    ) -> dict[int, bytes]:
        """Return the messages of expected devices by id; others, and of another size, are dropped.

        Args:
            size: from a device to the bytes of its message; None: any.
        """
        found: dict[int, bytes] = {}
        lengths = inbox.batch.lengths
        for row, device in enumerate(inbox.sender.tolist()):
            if not 0 <= device < self._total or not expected[device]:
                continue
            body = inbox.body[row] if lengths is None else inbox.body[row, : lengths[row]]
            wrong = size is not None and len(body) != size(device)
            if wrong or device in found:
                self.refused.append(device)
                found.pop(device, None)
                continue
            found[device] = body.tobytes()
        return found

    def _gather(self, form: SumForm, silent: Flags) -> Program[_CoordinatorAttempt]:
        """Run the rounds up to the masked vectors."""
        number = self._number
        self._number += 1
        k = self.parameters.neighbours
        messages = self._taken(
            (yield PLEDGE.nothing()), ~silent & ~self._out(), lambda _: pledge_bytes(k)
        )
        facts, pledge, signatures = self._pledged(messages, form, number)
        joined = np.zeros(self._total, np.bool_)
        joined[list(pledge)] = True
        neighbours = self._graph.of(np.arange(self._total))
        holders, differing = self._compared(pledge)
        at_most = self._differing_at_most(form)
        for device in np.flatnonzero(joined & (differing.sum(axis=1) > at_most)).tolist():
            slots = np.flatnonzero(differing[device])[: at_most + 1].tolist()
            others = [(slot, int(neighbours[device, slot])) for slot in slots]
            theirs = [(slot, pledge[other], signatures[other]) for slot, other in others]
            self._accuse(
                evidence.DifferingPledges(device, pledge[device], signatures[device], theirs), facts
            )
            joined[device] = False
        holders &= joined[:, None] & joined[neighbours]
        # A device that is out takes a holder from others: those with too few cannot send.
        while (few := joined & (holders.sum(axis=1) < self.parameters.threshold)).any():
            joined &= ~few
            holders &= joined[:, None] & joined[neighbours]
        going = joined if joined.sum() >= self.parameters.minimum else np.zeros_like(joined)
        yield self._name_pairs(LEFT_OUT, going, ~holders)
        size = form.width * self.fixed.wire
        bodies = self._taken(
            (yield MASKED.nothing()),
            going,
            lambda device: (
                size + published_bytes(int(holders[device].sum()), self.parameters.threshold)
            ),
        )
        arrived = np.zeros(self._total, np.bool_)
        arrived[list(bodies)] = True
        self._miss(going & ~arrived, silent)
        return _CoordinatorAttempt(facts, holders, going, pledge, neighbours, arrived, bodies)

    def _pledged(
        self, messages: dict[int, bytes], form: SumForm, number: int
    ) -> tuple[Attempt, dict[int, bytes], dict[int, bytes]]:
        """Return the attempt at which devices are, their pledges and their signatures."""
        size, known = masks.PLEDGE_BYTES * self.parameters.neighbours, PUBLIC_HASH
        contexts = Counter(body[size : size + known] for body in messages.values())
        # That of most devices: liars are a tenth.
        context = contexts.most_common(1)[0][0] if contexts else bytes(known)
        facts = Attempt(form=form, number=number, context=context)
        pledge, signatures = {}, {}
        for device, body in messages.items():
            if body[size : size + known] != context:
                self._exclude(device, "it says that it knows other sums than most devices")
            elif not facts.signed(body[size + known :], device, b"pledge", body[:size]):
                self._exclude(device, "its signature is wrong")
            else:
                pledge[device], signatures[device] = body[:size], body[size + known :]
        return facts, pledge, signatures

    def _differing_at_most(self, form: SumForm) -> int:
        """Return how many pairs that differ liars beside an honest device can cause."""
        return form.frameable

    def _compared(self, pledge: dict[int, bytes]) -> tuple[Flags, Flags]:
        """[total, k] the neighbours whose pledges are the device's own, and those who differ."""
        k = self.parameters.neighbours
        sent = np.zeros((self._total, k, masks.PLEDGE_BYTES), np.uint8)
        for device, body in pledge.items():
            sent[device] = np.frombuffer(body, np.uint8).reshape(k, masks.PLEDGE_BYTES)
        theirs = sent[self._graph.of(np.arange(self._total)), k - 1 - np.arange(k)]  # mirrored
        both = sent.any(axis=2) & theirs.any(axis=2)  # zeros: nothing is shared with it
        same = (sent == theirs).all(axis=2)
        return both & same, both & ~same

    def _name_pairs(self, topic: Topic, receivers: Flags, named: Flags) -> Outbox:
        """Send each receiver the neighbours that are named to it, [total, k], and its own id."""
        to = np.flatnonzero(receivers)
        rows, slots = np.nonzero(named[to])
        receiver = np.concatenate([to[rows], to])
        return topic.from_coordinator(
            receiver, np.concatenate([self._graph.of(to)[rows, slots], to])
        )

    def _judge(self, attempt: _CoordinatorAttempt, silent: Flags) -> Program[int]:
        """Send the challenge, check the proofs, and decide."""
        complete = attempt.joined.any() and np.array_equal(attempt.arrived, attempt.joined)
        if not complete:
            yield CHALLENGE.nothing()
            yield PROOF.nothing()
            return AGAIN if attempt.joined.any() else TOO_FEW
        digest = blake2b(digest_size=PUBLIC_HASH, person=b"lumos vectors")
        for device in sorted(attempt.bodies):
            digest.update(attempt.bodies[device])
        # A coordinator that is restarted draws the same key: for other vectors, another nonce.
        fixed, key = digest.digest(), entropy.draw(PUBLIC_HASH)
        nonce = blake2b(fixed, digest_size=PUBLIC_HASH, key=key, person=b"lumos nonce").digest()
        attempt.challenge = nonce + fixed
        to = np.flatnonzero(attempt.joined)
        body = np.frombuffer(attempt.challenge, np.uint8)
        yield CHALLENGE.from_coordinator(to, np.broadcast_to(body, (len(to), len(body))))
        size = shortness.proof_size(min(attempt.width, shortness.ROWS)) + signing.SIGNATURE
        attempt.proofs = self._taken((yield PROOF.nothing()), attempt.joined, lambda _: size)
        missing = attempt.joined.copy()
        missing[list(attempt.proofs)] = False
        self._miss(missing, silent)
        if self._unproved(attempt) or missing.any():
            return AGAIN  # this attempt is never opened: masked vectors may be shown
        assert attempt.verified is not None  # noqa: S101 - checked just now
        return (
            OPEN
            if shortness.cancel([pair for pair in attempt.verified.pair if pair is not None])
            else BLAME
        )

    def _unproved(self, attempt: _CoordinatorAttempt) -> bool:
        """Exclude the devices whose proof or signature is wrong; return whether there are any."""
        devices, facts, forged = sorted(attempt.proofs), attempt.facts, False
        for device in [*devices]:
            if not attempt.record(device).right(facts, device):
                self._exclude(device, "its signature is wrong")
                devices.remove(device)
                forged = True
        vectors = {device: attempt.vector(device) for device in devices}
        proofs = [attempt.proof(device) for device in devices]
        statements = facts.statements(vectors, attempt.challenge)
        attempt.verified = shortness.verify(statements, proofs)
        for place in np.flatnonzero(~np.asarray(attempt.verified.valid)).tolist():
            device, proof = devices[place], proofs[place]
            record = attempt.record(device)
            self._accuse(evidence.InvalidProof(device, record, vectors[device], proof), facts)
        return forged or not all(attempt.verified.valid)

    def _find_liars(self, attempt: _CoordinatorAttempt, silent: Flags) -> Program[None]:
        """Exclude the devices whose pair masks are not what their seeds give."""
        alive = yield from self._blaming(attempt)
        shown = self._answers((yield REVEAL.nothing()), attempt, alive, "seed")
        missing = attempt.joined.copy()
        missing[list(shown)] = False
        self._miss(missing, silent)
        for device, seeds in shown.items():
            pair = self._pair_commitments(attempt, [device])[0]
            case = evidence.OtherMasks(
                device,
                attempt.record(device),
                attempt.vector(device),
                attempt.proof(device),
                attempt.pledge[device],
                seeds,
            )
            if not case.fits(attempt.facts, pair, attempt.neighbours[device]):
                self._accuse(case, attempt.facts)

    def _answers(
        self, inbox: Inbox, attempt: _CoordinatorAttempt, expected: Flags, what: evidence.Answer
    ) -> dict[int, bytes]:
        """Return what devices gave out, by id; whoever gave out something wrong is excluded."""
        right, k = {}, self.parameters.neighbours
        sizes = masks.WORD * np.full(self._total, k)
        if what != "word":
            sizes = SHARE * attempt.holders.sum(axis=1)
        taken = self._taken(inbox, expected, lambda device: int(sizes[device]) + signing.SIGNATURE)
        for device, body in taken.items():
            given, signature = body[: -signing.SIGNATURE], body[-signing.SIGNATURE :]
            record, pledge = attempt.record(device), attempt.pledge[device]
            case = evidence.WrongAnswer(device, record, pledge, what, given, signature)
            if not case.is_signed(attempt.facts):
                self._exclude(device, "its signature is wrong")
            elif not self._as_pledged(case, attempt):
                self._accuse(case, attempt.facts)
            else:
                right[device] = given
        return right

    def _as_pledged(self, case: evidence.WrongAnswer, attempt: _CoordinatorAttempt) -> bool:
        """Return whether a device gave out what it had pledged."""
        return case.is_right(attempt.facts, attempt.neighbours[case.device])

    def _others_cancel(
        self,
        attempt: _CoordinatorAttempt,
        others: list[int],
        seeds: dict[int, dict[int, Words]],
    ) -> bool:
        """Return whether D_u of others add up to the masks that they share with liars."""
        pairs = [(liar, other) for liar, of_liar in seeds.items() for other in of_liar]
        liars, ends = np.array(pairs, np.int64).reshape(-1, 2).T
        shared = np.array([seeds[liar][other] for liar, other in pairs], np.uint32).reshape(-1, 4)
        low, high = np.minimum(liars, ends), np.maximum(liars, ends)
        projected, blinding = attempt.facts.opened_pairs(
            shared, low, high, low == ends, attempt.challenge
        )
        return shortness.cancel(self._pair_commitments(attempt, others), projected, blinding)

    def _pair_commitments(
        self, attempt: _CoordinatorAttempt, devices: list[int]
    ) -> "list[shortness.PairCommitment | None]":
        """Return D_u of devices."""
        assert attempt.verified is not None  # noqa: S101 - used after verification
        places = {device: place for place, device in enumerate(sorted(attempt.proofs))}
        return [attempt.verified.pair[places[device]] for device in devices]

    def _blaming(self, attempt: _CoordinatorAttempt) -> Program[Flags]:
        """Pass on confirmations of blame; return [total] who sent them."""
        words = self._answers((yield ALIVE.nothing()), attempt, attempt.joined, "word")
        alive = np.zeros(self._total, np.bool_)
        alive[list(words)] = True
        size = masks.WORD * self.parameters.neighbours
        bodies = b"".join(words[device] for device in sorted(words))
        yield self._relay(alive, np.frombuffer(bodies, np.uint8).reshape(-1, size))
        return alive

    def _open_bounded(self, attempt: _CoordinatorAttempt) -> Program[Doubles | None]:
        """Open self secrets, and form the sum without those who lied about theirs."""
        shown = self._answers((yield REVEAL.nothing()), attempt, attempt.joined, "share")
        answering = np.zeros(self._total, np.bool_)
        answering[list(shown)] = True
        self._late += attempt.joined & ~answering
        opened = self._self_secrets(attempt, shown)
        if opened is None:
            yield self._send_note(SPOILED)
            return np.full(attempt.width, np.nan)
        secrets, cases = opened
        seeds: dict[int, dict[int, Words]] = {}
        cases += self._wrong_commitments(attempt, secrets)
        if cases:
            for case in cases:
                self._accuse(case, attempt.facts)
            chosen = attempt.width > shortness.ROWS and len(cases) > LEAVING
            if chosen or len(secrets) < self.parameters.minimum:
                yield self._send_note(SPOILED)
                return np.full(attempt.width, np.nan)
            yield self._send_note(EVIDENCE_FOLLOWS)
            packed = np.frombuffer(evidence.encode(cases), np.uint8)
            to = np.flatnonzero(attempt.joined)
            yield EVIDENCE.from_coordinator(to, np.broadcast_to(packed, (len(to), len(packed))))
            liars = [case.device for case in cases]
            body_size = SHARE * len(liars)
            sent = self._taken((yield SEEDS.nothing()), attempt.joined, lambda _: body_size)
            found = self._liars_seeds(attempt, liars, sent)
            # A liar that is gone may have balanced one that stays.
            if found is None or not self._others_cancel(attempt, list(secrets), found):
                yield self._send_note(SPOILED)
                return np.full(attempt.width, np.nan)
            seeds = found
        total = self._total_without(attempt, secrets, seeds)
        self.fewest = min(self.fewest, int(attempt.joined.sum()) - len(cases))
        return (yield from self._send_sum(total, answering))

    def _send_note(self, note: int) -> Outbox:
        """Send everybody one byte in place of a sum."""
        return SUM.from_coordinator(
            np.arange(self._total), np.full((self._total, 1), note, np.uint8)
        )

    def _self_secrets(
        self, attempt: _CoordinatorAttempt, shown: dict[int, bytes]
    ) -> "tuple[dict[int, Elements], list[ShownEvidence]] | None":
        """Return the self secrets of devices, and evidence against those whose shares are wrong.

        None where too few holders of a device gave out shares that they had pledged: those who were
        silent are in no further sum.
        """
        devices, k = np.flatnonzero(attempt.joined), self.parameters.neighbours
        threshold, by_slot = self.parameters.threshold, np.zeros((self._total, k, SHARE), np.uint8)
        answering = np.zeros(self._total, np.bool_)
        for holder, body in shown.items():
            answering[holder] = True
            by_slot[holder, attempt.holders[holder]] = np.frombuffer(body, np.uint8).reshape(
                -1, SHARE
            )
        secrets: dict[int, Elements] = {}
        cases: list[ShownEvidence] = []
        for device in devices.tolist():
            holders, present = attempt.neighbours[device], attempt.holders[device]
            answered = present & answering[holders]
            if answered.sum() < threshold:
                self._late[holders[present & ~answered]] = LATE
                continue
            record = attempt.record(device)
            given = by_slot[holders, k - 1 - np.arange(k)]  # slots mirror
            answers = evidence.SharesOf(device, given, answered, present, record.published)
            secret = answers.secret(threshold, attempt.of)
            if secret is None:
                pledge = attempt.pledge[device]
                cases.append(evidence.WrongShares.of(answers, record, pledge, threshold))
            else:
                secrets[device] = secret
        return (secrets, cases) if len(secrets) + len(cases) == len(devices) else None

    def _wrong_commitments(
        self, attempt: _CoordinatorAttempt, secrets: dict[int, Elements]
    ) -> list[ShownEvidence]:
        """Return evidence against devices whose self commitment is not to their self mask."""
        drawn, bits = challenge_of(attempt.challenge, attempt.of), 8 * self.fixed.wire
        projection = shortness.projection(drawn, attempt.width)
        assert attempt.verified is not None  # noqa: S101 - opened after verification
        places = {device: place for place, device in enumerate(sorted(attempt.proofs))}
        devices = sorted(secrets)
        openings, sent = [], []
        for start in range(0, len(devices), _ROWS):
            some = devices[start : start + _ROWS]
            own = np.stack([secrets[device] for device in some])
            found = projected_self_masks(own, np.array(some), projection, drawn, attempt.of, bits)
            for device, projected in zip(some, found, strict=True):
                committed = attempt.verified.self_commitment[places[device]]
                assert committed is not None  # noqa: S101 - opened after verification
                openings.append((projected, self_blinding(secrets[device], drawn)))
                sent.append(committed)
        cases: list[ShownEvidence] = []
        for place in np.flatnonzero(~shortness.correctly_opened(sent, openings)).tolist():
            device = devices[place]
            record, secret = attempt.record(device), secrets.pop(device)
            cases.append(evidence.WrongCommitment.of(device, record, secret))
        return cases

    def _liars_seeds(
        self, attempt: _CoordinatorAttempt, liars: list[int], sent: dict[int, bytes]
    ) -> dict[int, dict[int, Words]] | None:
        """Return the seeds shared with liars, by liar and neighbour; None where one is missing."""
        found: dict[int, dict[int, Words]] = {}
        k, complete = self.parameters.neighbours, True
        for column, liar in enumerate(liars):
            neighbours = self._graph.of(np.array([liar]))[0]
            pledged = np.frombuffer(attempt.pledge[liar], np.uint8).reshape(k, -1)
            found[liar] = {}
            for slot in np.flatnonzero(attempt.holders[liar]).tolist():
                other = int(neighbours[slot])
                if other in liars:
                    continue
                if other not in sent:
                    self._late[other] = LATE  # it spoils the sum
                    complete = False
                    continue
                body = sent[other]
                seed = np.frombuffer(body[SHARE * column : SHARE * (column + 1)], "<u4")[None]
                low, high = np.array([min(liar, other)]), np.array([max(liar, other)])
                hashed = masks.seed_pledges(seed, low, high, attempt.of)
                if not np.array_equal(hashed[0], pledged[slot, : masks.PLEDGE]):
                    self._exclude(other, "it did not show the seed that it shares with a liar")
                    complete = False
                    continue
                found[liar][other] = seed[0]
        return found if complete else None

    def _total_without(
        self,
        attempt: _CoordinatorAttempt,
        secrets: dict[int, Elements],
        seeds: dict[int, dict[int, Words]],
    ) -> RingWords:
        """[1, width] the sum of all vectors but those of liars, without masks."""
        total = np.zeros((1, attempt.width), self.fixed.dtype)
        size = attempt.width * self.fixed.wire
        for device in secrets:
            body = np.frombuffer(attempt.bodies[device][:size], np.uint8)
            total += self.fixed.unpack(body)
        devices = np.array(sorted(secrets), np.int64)
        own = np.stack([secrets[device] for device in devices.tolist()])
        keys = masks.keys_of(own, devices, SELF, attempt.of)
        nobody = np.full(len(devices), masks.NOBODY)
        masks.add_masks(total, keys, nobody, np.zeros_like(nobody))
        for liar, of_liar in seeds.items():
            others = np.array(sorted(of_liar), np.int64)
            shared = np.stack([of_liar[other] for other in others.tolist()])
            low, high = np.minimum(liar, others), np.maximum(liar, others)
            pair_keys = masks.pair_keys_of(shared, low, high, attempt.of)
            # The smaller id of a pair added the mask: it is taken off again.
            added = others < liar
            masks.add_masks(
                total,
                pair_keys,
                np.where(added, masks.NOBODY, 0),
                np.where(added, 0, masks.NOBODY),
            )
        return total


_ROWS = 64  # vectors projected at a time

"""Masked sums in which every device proves that its summand is short; liars are excluded.

Without proofs a device can add any numbers to a sum. Here the norm of what it adds is bounded, a
device that lies is named and left out, and the sum is made without it.

**An attempt at a sum**, in rounds (`lumos.secagg.topics`):

1. *Pledge.* Each device sends hashes of everything that it shares with each mask neighbour: the
   seed of the pair's mask, values of both self secrets, and words by which they confirm each other.
   Both ends have to send the same; a pair that does not is left out of the sum, for both.
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
  other.
* *Two attempts of one sum are never both opened.* A holder that opened one takes part in no later
  one, and opens none before it (`lumos.secagg.openings`). One that is at another sum already has
  other keys.
* *Proofs and pledges* show nothing but that summands are short (zero knowledge), for any R. A
  coordinator that chooses nonces does not find an R for which an honest proof fails, except with
  probability 2^-128 for each that it tries.

**Integrity**, if the coordinator follows the protocol: all devices that are not excluded together
add at most the proved bound for each of them. Where a device is excluded in step 6, the D_u of the
others are checked again without it: a liar that is caught on purpose could have moved numbers for
another one. If they do not add up, or a seed shared with a liar is withheld, the sum is *spoiled*:
it was opened once, and is left out by all. Colluding devices can shift numbers between
themselves, and nothing else: pair masks are checked in their sum. An honest device is never
excluded: pledges of two honest ends agree, its proof is valid, its D_u is what its seeds give, and
its self commitment fits. Silence is no lie: whoever falls silent within `LATE` sums, or so that a
sum is spoiled, is in no further sum, and is not named. So each liar spoils at most one sum by
silence and one by being caught, and costs at most `LATE` attempts. More than 2t - k - 1 pairs whose
pledges differ are more than its colluding neighbours can cause.
"""

import math
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
    Evidence,
    EvidenceFile,
    SumForm,
    centred,
    challenge_of,
    check_bound,
    pair_blinding,
    projected_self_masks,
    self_blinding,
    statement_of,
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
_BLAME_STEP = -(1 << 48)
"""Openings of pair seeds are recorded under steps of their own."""


@dataclass
class _DeviceAttempt:
    """The state of hosted devices in one attempt."""

    of: masks.SumId
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
    signed: list[bytes] = field(default_factory=list)


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
        while True:
            if self.opened.has(step, before=self._pairs.number):
                raise AlreadyOpened("another attempt at this sum was opened here")
            attempt = yield from self._pledge(step)
            attempt.masked = self._masked(
                vectors,
                None,
                attempt.rows,
                attempt.keys,
                attempt.values,
                attempt.joined,
                attempt.of,
            )
            yield attempt.masked
            challenge = self._challenge((yield CHALLENGE.nothing()), attempt)
            yield self._proof_messages(attempt, challenge, vectors.shape[1], bound)
            decision = self._decided((yield DECISION.nothing()))
            if decision == OPEN:
                return (yield from self._open_bounded(attempt, challenge, vectors.shape[1], step))
            attempt.vault.forget()
            if decision == TOO_FEW:
                return None
            if decision == BLAME:
                yield from self._show_seeds(attempt)

    def _pledge(self, step: int) -> Program[_DeviceAttempt]:
        of = masks.SumId(self._run, self._pairs.number)
        # Devices at different sums share no key, whatever the coordinator made them count.
        keys = self._pairs.ratchet(self.context + step.to_bytes(8, "little", signed=True))
        values, vault = self._values(keys)
        pledged = self._pledges(keys, of)
        everyone, me = np.arange(len(self._shard)), self._shard.devices
        each = pledged[self._pairs.of]
        each[~self._known] = 0  # a pair without a key is in no sum, and nobody's lie
        body = each.reshape(len(me), -1)
        signed = [
            signing.present().sign(device, evidence.pledge_digest(of, device, row.tobytes()))
            for device, row in zip(me.tolist(), body, strict=True)
        ]
        yield PLEDGE.to_coordinator(self._shard, everyone, np.hstack([body, _rows(signed)]))
        here = np.ones(len(me), np.bool_)
        going, left_out = self._named((yield LEFT_OUT.nothing()), here)
        joined = going[:, None] & ~left_out & self._known
        vault.admit(joined)
        rows = np.flatnonzero(joined.sum(axis=1) >= self.parameters.threshold)
        return _DeviceAttempt(of, keys, values[:, :, SELF], vault, body, joined, rows)

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

    def _proof_messages(
        self, attempt: _DeviceAttempt, challenge: bytes, width: int, bound: float
    ) -> Outbox:
        if not challenge:
            return PROOF.nothing()
        proofs = self._prove(attempt, challenge, width, bound)
        rows = [row for row, proof in zip(attempt.rows.tolist(), proofs, strict=True) if proof]
        if not rows:
            return PROOF.nothing()
        body = np.frombuffer(b"".join(proofs), np.uint8).reshape(len(rows), -1)
        return PROOF.to_coordinator(self._shard, np.array(rows), body)

    def _prove(
        self, attempt: _DeviceAttempt, challenge: bytes, width: int, bound: float
    ) -> list[bytes]:
        """Return the proof of each device in the sum, with its signature; none is empty bytes."""
        rows, of, bits = attempt.rows, attempt.of, 8 * self.fixed.wire
        devices, size = self._shard.devices[rows], width * self.fixed.wire
        assert attempt.masked is not None  # noqa: S101 - sent before the challenge
        sent, lengths = attempt.masked.batch.body, attempt.masked.batch.lengths
        assert lengths is not None  # noqa: S101 - messages of any length
        secrets = self._self_secrets(attempt)
        drawn = challenge_of(challenge, of)
        masked, own, pair = self._projected(attempt, secrets, drawn, width)
        blindings = self._pair_blindings(attempt, drawn)
        proofs = []
        for place, device in enumerate(devices.tolist()):
            short = [
                centred(total - mine - theirs, bits)
                for total, mine, theirs in zip(masked[place], own[place], pair[place], strict=True)
            ]
            statement = statement_of(
                of, device, drawn, bits, width, self.fixed.fraction_bits, bound, masked[place]
            )
            witness = shortness.Witness(
                short=short,
                self_projected=own[place],
                self_blinding=self_blinding(secrets[place], drawn),
                pair_projected=pair[place],
                pair_blinding=blindings[place],
            )
            try:
                proof = shortness.prove(statement, witness, entropy.draw)
            except ValueError:  # its noise is longer than the bound, with probability 2^-58
                proofs.append(b"")
                continue
            record = evidence.Signed.of(
                self._form(width),
                of,
                device,
                attempt.pledge[rows[place]].tobytes(),
                attempt.joined[rows[place]],
                sent[place, :size].tobytes(),
                sent[place, size : lengths[place]].tobytes(),
                challenge,
                proof,
            )
            proofs.append(proof + signing.present().sign(device, record.digest(of, device)))
        return proofs

    def _form(self, width: int) -> SumForm:
        return SumForm.of(self._graph, self.parameters.threshold, self.fixed, width, self._seed)

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
        yield self._by_slot(attempt, rows, seeds.view(np.uint8).reshape(*seeds.shape[:2], SHARE))

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
        self, attempt: _DeviceAttempt, challenge: bytes, width: int, step: int
    ) -> Program[Doubles | None]:
        rows = attempt.rows
        self._record(attempt, step, b"open")
        none_lost = np.zeros_like(attempt.joined)
        revealed = self._reveal(attempt.vault, rows, attempt.joined, none_lost)
        attempt.vault.forget()
        yield revealed
        inbox = yield SUM.nothing()
        while (note := _note(inbox)) == EVIDENCE_FOLLOWS:
            yield self._answer_evidence((yield EVIDENCE.nothing()), attempt, challenge, width)
            inbox = yield SUM.nothing()
        if note == SPOILED:
            return np.full(width, np.nan)
        return self._summed(inbox, self._in_sum(attempt), width)

    def _answer_evidence(
        self, inbox: Inbox, attempt: _DeviceAttempt, challenge: bytes, width: int
    ) -> Outbox:
        """Send the seeds shared with devices that lied, if the evidence against them holds."""
        rows = np.intersect1d(self._from_coordinator(inbox), attempt.rows)
        if not len(rows) or inbox.batch.lengths is None:
            return SEEDS.nothing()
        first = int(np.flatnonzero(self._shard.local(inbox.receiver) == rows[0])[0])
        cases = evidence.decode(inbox.body[first, : inbox.batch.lengths[first]].tobytes())
        proved = [case.device for case in cases if self._holds(case, attempt, challenge, width)]
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

    def _holds(self, case: Evidence, attempt: _DeviceAttempt, challenge: bytes, width: int) -> bool:
        """Return whether evidence shows that a device lied in this attempt."""
        return case.holds(self._form(width), attempt.of.number, challenge)


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

    of: masks.SumId
    width: int
    holders: Flags
    """[total, k] the mask neighbours of each device in the attempt; none of one that is out."""
    joined: Flags
    """[total] who is in the attempt."""
    pledge: dict[int, bytes]
    arrived: Flags
    """[total] whose vector has arrived."""
    bodies: dict[int, bytes]
    """The `masked` messages."""
    challenge: bytes = b""
    proofs: dict[int, bytes] = field(default_factory=dict)
    """Proofs with signatures."""
    verified: "shortness.Verified | None" = None

    def vectors(self, wire: int) -> list[bytes]:
        """Return the vectors that arrived, in the order of ids."""
        return [self.bodies[device][: self.width * wire] for device in sorted(self.bodies)]


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
        while True:
            attempt = yield from self._gather(width, silent)
            decision = yield from self._judge(attempt, norm, silent)
            yield DECISION.from_coordinator(np.arange(self._total), decision)
            if decision == OPEN:
                return (yield from self._open_bounded(attempt))
            if decision == TOO_FEW:
                return None
            if decision == BLAME:
                yield from self._find_liars(attempt, silent)

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

    def _gather(self, width: int, silent: Flags) -> Program[_CoordinatorAttempt]:
        """Run the rounds up to the masked vectors."""
        of = masks.SumId(self._run, self._number)
        self._number += 1
        k = self.parameters.neighbours
        pledge = self._taken(
            (yield PLEDGE.nothing()), ~silent & ~self._out(), lambda _: pledge_bytes(k)
        )
        for device in [*pledge]:
            body, signature = (
                pledge[device][: -signing.SIGNATURE],
                pledge[device][-signing.SIGNATURE :],
            )
            digest = evidence.pledge_digest(of, device, body)
            if signing.present().check(device, digest, signature):
                pledge[device] = body
            else:
                self._exclude(device, "its signature is wrong")
                del pledge[device]
        joined = np.zeros(self._total, np.bool_)
        joined[list(pledge)] = True
        holders, differing = self._compared(pledge)
        too_many = differing.sum(axis=1) > self._differing_at_most()
        for device in np.flatnonzero(joined & too_many).tolist():
            self._exclude(device, "its pledges differ from those of too many mask neighbours")
            joined[device] = False
        holders &= joined[:, None] & joined[self._graph.of(np.arange(self._total))]
        joined &= holders.sum(axis=1) >= self.parameters.threshold
        holders &= joined[:, None] & joined[self._graph.of(np.arange(self._total))]
        going = joined if joined.sum() >= self.parameters.minimum else np.zeros_like(joined)
        yield self._name_pairs(LEFT_OUT, going, ~holders)
        size = width * self.fixed.wire
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
        return _CoordinatorAttempt(of, width, holders, going, pledge, arrived, bodies)

    def _differing_at_most(self) -> int:
        """Return how many pairs that differ liars beside an honest device can cause."""
        return max(0, 2 * self.parameters.threshold - self.parameters.neighbours - 1)

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

    def _judge(self, attempt: _CoordinatorAttempt, bound: float, silent: Flags) -> Program[int]:
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
        liars = self._unproved(attempt, bound)
        for device, why in liars.items():
            self._exclude(device, why)
        if missing.any() or liars:
            return AGAIN
        assert attempt.verified is not None  # noqa: S101 - checked just now
        return (
            OPEN
            if shortness.cancel([pair for pair in attempt.verified.pair if pair is not None])
            else BLAME
        )

    def _unproved(self, attempt: _CoordinatorAttempt, bound: float) -> dict[int, str]:
        """Return the devices whose proof or signature is wrong, and why."""
        found: dict[int, str] = {}
        devices = sorted(attempt.proofs)
        for device in devices:
            record, signature = self._signed(attempt, device)
            if not signing.present().check(device, record.digest(attempt.of, device), signature):
                found[device] = "its signature is wrong"
        devices = [device for device in devices if device not in found]
        statements = self._statements(attempt, devices, bound)
        proofs = [attempt.proofs[device][: -signing.SIGNATURE] for device in devices]
        attempt.verified = shortness.verify(statements, proofs)
        for place in np.flatnonzero(~np.asarray(attempt.verified.valid)).tolist():
            found[devices[place]] = "its summand is not proved to be short"
        return found

    def _statements(
        self, attempt: _CoordinatorAttempt, devices: list[int], bound: float
    ) -> "list[shortness.Statement]":
        drawn, bits = challenge_of(attempt.challenge, attempt.of), 8 * self.fixed.wire
        projection = shortness.projection(drawn, attempt.width)
        size = attempt.width * self.fixed.wire
        statements = []
        for start in range(0, len(devices), _ROWS):
            some = devices[start : start + _ROWS]
            vectors = [np.frombuffer(attempt.bodies[device][:size], np.uint8) for device in some]
            words = unsigned(self.fixed.unpack(np.stack(vectors)), bits)
            for device, masked in zip(some, projection.apply(words), strict=True):
                statements.append(
                    statement_of(
                        attempt.of,
                        device,
                        drawn,
                        bits,
                        attempt.width,
                        self.fixed.fraction_bits,
                        bound,
                        masked,
                    )
                )
        return statements

    def _form(self, width: int) -> SumForm:
        return SumForm.of(self._graph, self.parameters.threshold, self.fixed, width, self._seed)

    def _signed(self, attempt: _CoordinatorAttempt, device: int) -> tuple[evidence.Signed, bytes]:
        """Return what a device has signed, and its signature."""
        size, whole = attempt.width * self.fixed.wire, attempt.proofs[device]
        record = evidence.Signed.of(
            self._form(attempt.width),
            attempt.of,
            device,
            attempt.pledge[device],
            attempt.holders[device],
            attempt.bodies[device][:size],
            attempt.bodies[device][size:],
            attempt.challenge,
            whole[: -signing.SIGNATURE],
        )
        return record, whole[-signing.SIGNATURE :]

    def _find_liars(self, attempt: _CoordinatorAttempt, silent: Flags) -> Program[None]:
        """Exclude the devices whose pair masks are not what their seeds give."""
        shown = yield from self._given_out(attempt, (yield from self._blaming(attempt)))
        missing = attempt.joined.copy()
        missing[list(shown)] = False
        self._miss(missing, silent)
        k, of = self.parameters.neighbours, attempt.of
        neighbours = self._graph.of(np.arange(self._total))
        seeds = np.zeros((self._total, k, 4), np.uint32)
        for device, found in shown.items():
            seeds[device] = np.frombuffer(found.tobytes(), "<u4").reshape(k, 4)
        for device in shown:
            slots = np.flatnonzero(attempt.holders[device])
            other = neighbours[device, slots]
            low, high = np.minimum(device, other), np.maximum(device, other)
            hashed = masks.seed_pledges(seeds[device, slots], low, high, of)
            pledged = np.frombuffer(attempt.pledge[device], np.uint8).reshape(k, -1)
            if not np.array_equal(hashed, pledged[slots, : masks.PLEDGE]):
                self._exclude(device, "it did not show the seeds that it had pledged")
                continue
            if not self._fits(attempt, device, seeds[device, slots], low, high):
                self._exclude(device, "its masks are not those of its seeds")

    def _fits(
        self, attempt: _CoordinatorAttempt, device: int, seeds: Words, low: Ints, high: Ints
    ) -> bool:
        """Return whether D_u is the commitment to the masks that these seeds give."""
        pair = self._pair_commitments(attempt, [device])[0]
        right = shortness.pair_commitment(*self._opened(attempt, seeds, low, high, low == device))
        return pair is not None and right == pair.to_bytes()

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
        projected, blinding = self._opened(attempt, shared, low, high, low == ends)
        return shortness.cancel(self._pair_commitments(attempt, others), projected, blinding)

    def _pair_commitments(
        self, attempt: _CoordinatorAttempt, devices: list[int]
    ) -> "list[shortness.PairCommitment | None]":
        """Return D_u of devices."""
        assert attempt.verified is not None  # noqa: S101 - used after verification
        places = {device: place for place, device in enumerate(sorted(attempt.proofs))}
        return [attempt.verified.pair[places[device]] for device in devices]

    def _opened(
        self, attempt: _CoordinatorAttempt, seeds: Words, low: Ints, high: Ints, adds: Flags
    ) -> tuple[list[int], int]:
        """Return the projection of the masks of pairs, and their blinding.

        Args:
            adds: [pairs] True where a mask is added, False where it is taken away.
        """
        drawn, bits = challenge_of(attempt.challenge, attempt.of), 8 * self.fixed.wire
        keys = masks.pair_keys_of(seeds, low, high, attempt.of)
        plus = np.where(adds, 0, masks.NOBODY)
        minus = np.where(adds, masks.NOBODY, 0)
        halves = masks.mask_halves(1, attempt.width, keys, plus, minus, bits)
        projected = with_pair_lifts(
            shortness.projection(drawn, attempt.width).apply_halves(*halves)[0],
            seeds,
            adds,
            drawn,
            bits,
        )
        blinding = sum(
            pair_blinding(seed, drawn) * (1 if up else -1)
            for seed, up in zip(seeds, adds.tolist(), strict=True)
        )
        return projected, blinding

    def _blaming(self, attempt: _CoordinatorAttempt) -> Program[Flags]:
        """Pass on confirmations of blame; return [total] who sent them."""
        inbox = yield ALIVE.nothing()
        words_bytes = masks.WORD * self.parameters.neighbours
        words = self._taken(inbox, attempt.joined, lambda _: words_bytes)
        for device in [
            device for device in words if not self._confirms(attempt, device, words[device])
        ]:
            self._exclude(device, "it confirmed a mask neighbour with a wrong word")
            del words[device]
        alive = np.zeros(self._total, np.bool_)
        alive[list(words)] = True
        bodies = [np.frombuffer(words[device], np.uint8) for device in sorted(words)]
        whole = np.stack(bodies) if bodies else np.empty((0, words_bytes), np.uint8)
        yield self._relay(alive, whole)
        return alive

    def _given_out(
        self, attempt: _CoordinatorAttempt, expected: Flags
    ) -> Program[dict[int, Bytes]]:
        """Return [k, 16] what each of the expected devices gave out, by slot."""
        given = self._taken(
            (yield REVEAL.nothing()),
            expected,
            lambda device: SHARE * int(attempt.holders[device].sum()),
        )
        shown = {}
        for device, body in given.items():
            by_slot = np.zeros((self.parameters.neighbours, SHARE), np.uint8)
            by_slot[attempt.holders[device]] = np.frombuffer(body, np.uint8).reshape(-1, SHARE)
            shown[device] = by_slot
        return shown

    def _confirms(self, attempt: _CoordinatorAttempt, device: int, sent: bytes) -> bool:
        """Return whether a device sent the words that it had pledged."""
        k, slots = self.parameters.neighbours, np.flatnonzero(attempt.holders[device])
        words = np.frombuffer(sent, "<u4").reshape(k, -1).astype(np.uint32)
        other = self._graph.of(np.array([device]))[0, slots]
        low, high = np.minimum(device, other), np.maximum(device, other)
        hashed = masks.word_pledges(words[slots], low, high, attempt.of)
        pledged = np.frombuffer(attempt.pledge[device], np.uint8).reshape(k, -1)[slots]
        start = 3 * masks.PLEDGE + masks.WORD_PLEDGE * (low != device)[:, None]
        expected = np.take_along_axis(pledged, start + np.arange(masks.WORD_PLEDGE), axis=1)
        return np.array_equal(hashed, expected) and not np.delete(words, slots, axis=0).any()

    def _open_bounded(self, attempt: _CoordinatorAttempt) -> Program[Doubles | None]:
        """Open self secrets, and form the sum without those who lied about theirs."""
        shown = yield from self._given_out(attempt, attempt.joined)
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
            form, number = self._form(attempt.width), attempt.of.number
            for case in cases:
                self._exclude(case.device, case.why)
                kept = EvidenceFile.of(case, form, number, self._plan)
                self.evidence.setdefault(case.device, kept)
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
        self, attempt: _CoordinatorAttempt, shown: dict[int, Bytes]
    ) -> "tuple[dict[int, Elements], list[Evidence]] | None":
        """Return the self secrets of devices, and evidence against those whose shares are wrong.

        None where too few holders of a device gave out shares that they had pledged: those who were
        silent are in no further sum.
        """
        devices = np.flatnonzero(attempt.joined)
        k, size = self.parameters.neighbours, attempt.width * self.fixed.wire
        holders = self._graph.of(devices)
        given = np.zeros((len(devices), k, SHARE), np.uint8)
        answered = np.zeros((len(devices), k), np.bool_)
        for row, device in enumerate(devices.tolist()):
            for slot in np.flatnonzero(attempt.holders[device]).tolist():
                holder = int(holders[row, slot])
                if holder in shown:
                    given[row, slot] = shown[holder][k - 1 - slot]  # slots mirror
                    answered[row, slot] = True
        secrets: dict[int, Elements] = {}
        cases: list[Evidence] = []
        for row, device in enumerate(devices.tolist()):
            published = attempt.bodies[device][size:]
            present = attempt.holders[device]
            answers = evidence.SharesOf(device, given[row], answered[row], present, published)
            pledged = np.frombuffer(attempt.pledge[device], np.uint8).reshape(k, -1)
            right = self._given_as_pledged(answers, pledged, holders[row], attempt)
            for holder in holders[row, answered[row] & ~right].tolist():
                self._exclude(holder, "it gave out a share that it had not pledged")
            answers = answers._replace(answering=right)
            if right.sum() < self.parameters.threshold:
                self._late[holders[row, present & ~answered[row]]] = LATE
                continue
            secret = answers.secret(self.parameters.threshold, attempt.of)
            if secret is None:
                record, signature = self._signed(attempt, device)
                cases.append(Evidence.of_shares(record, answers, attempt.pledge[device], signature))
            else:
                secrets[device] = secret
        return (secrets, cases) if len(secrets) + len(cases) == len(devices) else None

    def _given_as_pledged(
        self,
        answers: evidence.SharesOf,
        pledged: Bytes,
        holders: Ints,
        attempt: _CoordinatorAttempt,
    ) -> Flags:
        """[k] the holders that gave out what they had pledged."""
        return answers.as_pledged(pledged, holders, attempt.of)

    def _wrong_commitments(
        self, attempt: _CoordinatorAttempt, secrets: dict[int, Elements]
    ) -> list[Evidence]:
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
        cases = []
        for place in np.flatnonzero(~shortness.correctly_opened(sent, openings)).tolist():
            device = devices[place]
            record, signature = self._signed(attempt, device)
            cases.append(Evidence.of_commitment(record, device, secrets.pop(device), signature))
        return cases

    def _liars_seeds(
        self, attempt: _CoordinatorAttempt, liars: list[int], sent: dict[int, bytes]
    ) -> dict[int, dict[int, Words]] | None:
        """Return the seeds shared with liars, by liar and neighbour; None where one is missing."""
        found: dict[int, dict[int, Words]] = {}
        k = self.parameters.neighbours
        for column, liar in enumerate(liars):
            neighbours = self._graph.of(np.array([liar]))[0]
            pledged = np.frombuffer(attempt.pledge[liar], np.uint8).reshape(k, -1)
            found[liar] = {}
            for slot in np.flatnonzero(attempt.holders[liar]).tolist():
                other = int(neighbours[slot])
                if other in liars:
                    continue
                if other not in sent:
                    self._late[other] += 1
                    return None
                body = sent[other]
                seed = np.frombuffer(body[SHARE * column : SHARE * (column + 1)], "<u4")[None]
                low, high = np.array([min(liar, other)]), np.array([max(liar, other)])
                hashed = masks.seed_pledges(seed, low, high, attempt.of)
                if not np.array_equal(hashed[0], pledged[slot, : masks.PLEDGE]):
                    self._exclude(other, "it did not show the seed that it shares with a liar")
                    return None
                found[liar][other] = seed[0]
        return found

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

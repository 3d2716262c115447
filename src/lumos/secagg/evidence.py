"""Evidence that a device lied in a sum with proofs: anybody can check it.

Everything that a device sends in an attempt at a sum has its signature, which covers the attempt
(`Attempt`): form and number of the sum, and the earlier sums that the device knows. Two of the
things that it signed contradict each other if it lied:

| kind | contradiction |
|---|---|
| `pledges` | its pledges, and those of more mask neighbours than liars can be |
| `proof` | its masked vector, and a proof that is invalid for it |
| `masks` | its pledged pair seeds, and the commitment to their masks that follows from its proof |
| `commitment` | its self secret, and the commitment to the self mask in its proof |
| `shares` | its pledged shares, and the self secret that it committed itself to |
| `answer` | what it pledged to a neighbour, and the share, word or seed that it gave out |

*Nobody can make evidence against an honest device* without a forged signature, a second preimage of
a hash or a second opening of a commitment, also not a lying coordinator. All kinds but `pledges`
consist of what one device signed in one attempt, and what an honest device signs there follows from
keys of this attempt: it fits together. If the coordinator made it run an attempt twice, before and
after a restart, with different mask neighbours, then holders and challenge are different, and are
signed together with what depends on them. `pledges` compares devices. Two honest ones compute equal
pledges in attempts that are equal: whoever knows other sums, or is at another sum of this number,
signs another attempt. So the pledges of liars alone differ, 2t - k - 1 mask neighbours of any
device at most (`lumos.secagg.parameters`).

The coordinator keeps evidence in files (`EvidenceFile`), checked with the certificates of the run.
"""

import math
from hashlib import blake2b
from typing import ClassVar, Literal, NamedTuple

import msgspec
import numpy as np

from lumos.crypto import shortness
from lumos.errors import Forged, InputError, UsageError
from lumos.secagg import masks, shares, signing
from lumos.secagg.mask_graph import MaskGraph, seed_tag
from lumos.secagg.parameters import FixedPoint, RingWords
from lumos.secagg.shares import LIMBS, SELF, Elements
from lumos.typing import Bytes, Flags, Ints, Words

_HASH = 32
_POINT = 48  # bytes of a commitment; a proof begins with that to the projected self mask
_ROWS = 64  # vectors projected at a time
Answer = Literal["share", "word", "seed"]
MAX_DEVICES, MAX_NEIGHBOURS, MAX_FILE = 1 << 31, 1 << 10, 1 << 25
"""Largest numbers of a file that is looked at: others would only cost time."""


def grid_bound(bound: float, fraction_bits: int) -> int:
    """Return the bound of a norm in steps of the fixed point."""
    return math.ceil(bound * 2.0**fraction_bits)


def challenge_of(sent: bytes, of: masks.SumId) -> bytes:
    """Return the challenge of an attempt: 32 bytes, from which the random matrix follows."""
    name = of.run + of.number.to_bytes(8, "little")
    return blake2b(name + sent, digest_size=32, person=b"lumos challenge").digest()


def check_bound(bound: float, width: int, fixed: FixedPoint, liars: int) -> None:
    """Refuse a bound that proofs cannot show in this ring.

    Args:
        bound: norm of an honest summand.
        width: numbers of a vector.
        fixed: the form of numbers.
        liars: number of devices whose summands must not come round the ring together.

    Raises:
        UsageError: it is too large.
    """
    bits = 8 * fixed.wire
    if not shortness.allowed(grid_bound(bound, fixed.fraction_bits), width, bits, liars):
        raise UsageError(
            f"summands of norm {bound:.3g} are too long for proofs in sums of {bits} bits; "
            "use `proofs=False`"
        )


def self_blinding(secret: Elements, challenge: bytes) -> int:
    """Return the blinding of the commitment to a self mask; whoever has the secret knows it."""
    return _scalar(secret.astype("<u2").tobytes(), challenge, b"lumos self blind")


def pair_blinding(seed: Words, challenge: bytes) -> int:
    """Return the blinding that both ends of a pair use, with opposite signs.

    It depends on the challenge: ends with different challenges do not cancel.
    """
    return _scalar(seed.astype("<u4").tobytes(), challenge, b"lumos pair blind")


def _scalar(key: bytes, challenge: bytes, purpose: bytes) -> int:
    hashed = blake2b(challenge, key=key, digest_size=64, person=purpose).digest()
    return int.from_bytes(hashed, "little") % shortness.ORDER


def projected_self_masks(
    secrets: Elements,
    devices: Ints,
    projection: "shortness.Projection",
    challenge: bytes,
    of: masks.SumId,
    bits: int,
) -> list[list[int]]:
    """Return the projections of self masks, with their lifts."""
    halves = masks.self_mask_halves(secrets, devices, projection.width, of, bits)
    return with_self_lifts(projection.apply_halves(*halves), secrets, challenge, bits)


def with_self_lifts(
    projected: list[list[int]], secrets: Elements, challenge: bytes, bits: int
) -> list[list[int]]:
    """Return projections of self masks with the lifts that hide the carry."""
    keys = [_lift_key(secret.astype("<u2"), challenge, b"lumos self lift") for secret in secrets]
    return [
        _added(row, shortness.lifts([key], [1], bits, len(row)))
        for row, key in zip(projected, keys, strict=True)
    ]


def with_pair_lifts(
    projected: list[int], seeds: Words, adds: Flags, challenge: bytes, bits: int
) -> list[int]:
    """Return the projected sum of pair masks with the lifts that hide the carry.

    Args:
        projected: the numbers.
        seeds: [pairs, 4].
        adds: [pairs] True where a mask is added, False where it is taken away.
        challenge: both ends of a pair have the same, or their lifts do not cancel.
        bits: of a number on the wire.
    """
    keys = [_lift_key(seed.astype("<u4"), challenge, b"lumos pair lift") for seed in seeds]
    signs = [1 if up else -1 for up in adds.tolist()]
    return _added(projected, shortness.lifts(keys, signs, bits, len(projected)))


def _lift_key(
    secret: "np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]", challenge: bytes, purpose: bytes
) -> bytes:
    """Return the key of the lifts of a mask; self secrets and seeds are equally long."""
    return blake2b(challenge, key=secret.tobytes(), digest_size=32, person=purpose).digest()


def _added(one: list[int], other: list[int]) -> list[int]:
    return [a + b for a, b in zip(one, other, strict=True)]


def centred(number: int, bits: int) -> int:
    """Return the number modulo 2^bits that is nearest to 0."""
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def unsigned(words: RingWords, bits: int) -> "np.ndarray[tuple[int, int], np.dtype[np.uint64]]":
    """Return words as numbers from 0 to 2^bits - 1."""
    return words.astype(np.uint64) & np.uint64((1 << bits) - 1)


def _hashed(person: bytes, *parts: bytes) -> bytes:
    """Return a hash of parts, each with its length before it."""
    digest = blake2b(digest_size=_HASH, person=person)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


class SumForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public numbers of a sum, without which its messages mean nothing."""

    devices: int
    mask_neighbours: int
    threshold: int
    bits: int
    """Bits of a word of the ring."""
    width: int
    """Numbers of a vector."""
    bound: int
    """Norm of an honest summand, in steps of the fixed point."""
    seed: bytes
    """Seed of the mask graph."""

    @staticmethod
    def of(
        graph: MaskGraph, threshold: int, fixed: FixedPoint, width: int, bound: float, seed: bytes
    ) -> "SumForm":
        """Return the form of a sum."""
        return SumForm(
            devices=graph.total,
            mask_neighbours=graph.neighbours,
            threshold=threshold,
            bits=8 * fixed.wire,
            width=width,
            bound=grid_bound(bound, fixed.fraction_bits),
            seed=seed,
        )

    @property
    def frameable(self) -> int:
        """The number of mask neighbours of a device that may be liars: 2t - k - 1."""
        return max(0, 2 * self.threshold - self.mask_neighbours - 1)


class Attempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt at a sum. All signatures of it cover all of this."""

    form: SumForm
    number: int
    """Number of the attempt in the run."""
    context: bytes
    """Digest of the earlier sums that a device knows, and of the sum that it is at: two honest
    devices with the same one share the same keys, if they share any."""

    @property
    def of(self) -> masks.SumId:
        """The name of the attempt."""
        return masks.SumId(seed_tag(self.form.seed), self.number)

    def digest(self, device: int, what: bytes, *parts: bytes) -> bytes:
        """Return what a device signs: the kind of a message, and its parts."""
        form = self.form
        numbers = (form.devices, form.mask_neighbours, form.threshold, form.bits, form.width)
        whole = b"".join(
            number.to_bytes(8, "little") for number in (*numbers, form.bound, self.number, device)
        )
        return _hashed(b"lumos signed", whole, form.seed, self.context, what, *parts)

    def sign(self, device: int, what: bytes, *parts: bytes) -> bytes:
        """Return the signature of a hosted device; arguments as those of `digest`."""
        return signing.present().sign(device, self.digest(device, what, *parts))

    def signed(self, signature: bytes, device: int, what: bytes, *parts: bytes) -> bool:
        """Return whether a device has signed; arguments as those of `digest`."""
        return signing.present().check(device, self.digest(device, what, *parts), signature)

    def allowed(self) -> bool:
        """Return whether such an attempt can be."""
        form = self.form
        return (
            1 < form.devices <= MAX_DEVICES
            and 0 < form.threshold <= form.mask_neighbours <= MAX_NEIGHBOURS
            and form.mask_neighbours < form.devices
            and (form.mask_neighbours % 2 == 0 or form.mask_neighbours == form.devices - 1)
            and form.bits in range(8, shortness.MAX_WORD_BITS + 1, 8)
            and 0 < form.width <= shortness.MAX_WIDTH
            and len(form.seed) == len(self.context) == _HASH
        )

    def neighbours(self, device: int) -> Ints:
        """[k] the mask neighbours of a device, by slot."""
        form = self.form
        graph = MaskGraph(form.devices, form.mask_neighbours, form.seed)
        found: Ints = graph.of(np.array([device]))[0]
        return found

    def statement(self, device: int, challenge: bytes, masked: list[int]) -> "shortness.Statement":
        """Return what a device proves: its summand in the attempt has at most this norm.

        Args:
            device: it proves.
            challenge: of `challenge_of`.
            masked: the projection of its masked vector.
        """
        form = self.form
        square = shortness.projected_bound(form.bound, form.width)
        name = self.of.run + b"".join(n.to_bytes(8, "little") for n in (self.number, device))
        return shortness.Statement(name, challenge, form.bits, form.width, square, masked)

    def statements(
        self, vectors: dict[int, bytes], challenge: bytes
    ) -> "list[shortness.Statement]":
        """Return what devices prove about their masked vectors: that summands are short.

        Args:
            vectors: by device, as they travel.
            challenge: as the coordinator sent it.
        """
        form, drawn = self.form, challenge_of(challenge, self.of)
        projection = shortness.projection(drawn, form.width)
        fixed = FixedPoint(0.0, 0, form.bits // 8, clip=False)
        statements, devices = [], list(vectors)
        for start in range(0, len(devices), _ROWS):
            some = devices[start : start + _ROWS]
            bodies = np.stack([np.frombuffer(vectors[device], np.uint8) for device in some])
            projected = projection.apply(unsigned(fixed.unpack(bodies), form.bits))
            statements += [
                self.statement(device, drawn, masked)
                for device, masked in zip(some, projected, strict=True)
            ]
        return statements

    def opened_pairs(
        self, seeds: Words, low: Ints, high: Ints, adds: Flags, challenge: bytes
    ) -> tuple[list[int], int]:
        """Return the projection of the masks of pairs low < high, and their blinding.

        Args:
            seeds, low, high: [pairs, …].
            adds: [pairs] True where a mask is added, False where it is taken away.
            challenge: as the coordinator sent it.
        """
        form, drawn = self.form, challenge_of(challenge, self.of)
        keys = masks.pair_keys_of(seeds, low, high, self.of)
        plus, minus = np.where(adds, 0, masks.NOBODY), np.where(adds, masks.NOBODY, 0)
        halves = masks.mask_halves(1, form.width, keys, plus, minus, form.bits)
        (projected,) = shortness.projection(drawn, form.width).apply_halves(*halves)
        blinding = sum(
            pair_blinding(seed, drawn) * (1 if up else -1)
            for seed, up in zip(seeds, adds.tolist(), strict=True)
        )
        return with_pair_lifts(projected, seeds, adds, drawn, form.bits), blinding


class Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content that a device signs with its proof, and its signature."""

    pledge: bytes
    """Digest of its pledges."""
    holders: bytes
    """The holders of its self secret, a bit for each slot."""
    vector: bytes
    """Digest of its masked vector."""
    published: bytes
    """Commitment to its self secret, and corrections of shares."""
    challenge: bytes
    commitment: bytes
    """To the projected self mask."""
    proof: bytes
    """Digest of the whole proof."""
    signature: bytes = b""

    @staticmethod
    def of(
        pledge: bytes,
        holders: Flags,
        vector: bytes,
        published: bytes,
        challenge: bytes,
        proof: bytes,
        signature: bytes = b"",
    ) -> "Signed":
        """Return the record of one device in one attempt."""
        return Signed(
            _hashed(b"lumos pledge", pledge),
            np.packbits(holders).tobytes(),
            _hashed(b"lumos vector", vector),
            published,
            challenge,
            proof[:_POINT],
            _hashed(b"lumos proof", proof),
            signature,
        )

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The content, without the signature."""
        return msgspec.structs.astuple(self)[:-1]

    def sign(self, attempt: Attempt, device: int) -> bytes:
        """Return the signature of a hosted device."""
        return attempt.sign(device, b"proof", *self.parts)

    def right(self, attempt: Attempt, device: int) -> bool:
        """Return whether the signature is that of a device."""
        return attempt.signed(self.signature, device, b"proof", *self.parts)

    def covers(self, **shown: bytes) -> bool:
        """Return whether these are its pledges, its vector or its proof, by their names."""
        return all(
            getattr(self, name) == _hashed(b"lumos " + name.encode(), content)
            for name, content in shown.items()
        )


def as_pledged(
    what: str, given: Bytes, device: int, others: Ints, pledge: Bytes, of: masks.SumId
) -> Flags:
    """[pairs] where what one end of a pair gave out is what was pledged for the pair.

    Args:
        what: "share": the other end's, which the device holds. "own share": of its own secret,
            given out by the other end. "word": by which the device confirms the other end. "seed":
            the pair's.
        given: [pairs, 16 or 12].
        device: one end.
        others: [pairs] the other ends.
        pledge: [pairs, 64].
        of: the attempt.
    """
    low, high = np.minimum(device, others), np.maximum(device, others)
    up = others < device if what == "share" else others > device  # whose it is: the low end's?
    words = np.ascontiguousarray(given).view("<u4").astype(np.uint32)
    if what == "seed":
        hashed, start = masks.seed_pledges(words, low, high, of), np.zeros(len(others), np.int64)
    elif what == "word":
        hashed = masks.word_pledges(words, low, high, of)
        start = 3 * masks.PLEDGE + masks.WORD_PLEDGE * ~up
    else:
        values = np.ascontiguousarray(given).view("<u2").astype(np.uint16)
        hashed = np.empty((len(others), masks.PLEDGE), np.uint8)
        for side in (True, False):
            some = up == side
            hashed[some] = masks.value_pledges(values[some], low[some], high[some], of, up=side)
        start = np.where(up, masks.PLEDGE, 2 * masks.PLEDGE)
    expected = np.take_along_axis(pledge, start[:, None] + np.arange(hashed.shape[1]), axis=1)
    return np.asarray((hashed == expected).all(axis=1))


class SharesOf(NamedTuple):
    """The shares that holders gave out of a device's self secret."""

    device: int
    given: Bytes
    """[k, 16] by slot."""
    answering: Flags
    """[k] who gave out something."""
    present: Flags
    """[k] the holders."""
    published: bytes

    def first(self, threshold: int) -> Flags:
        """[k] Return the first t who answered. Evidence has no others, so no others count."""
        return np.asarray(self.answering & (np.cumsum(self.answering) <= threshold))

    def secret(self, threshold: int, of: masks.SumId) -> Elements | None:
        """Return [limbs] the secret; None if shares do not give the one that was published."""
        first = self.first(threshold)
        if first.sum() < threshold:
            return None
        values = np.ascontiguousarray(self.given).view("<u2").astype(np.uint16)
        values[~first] = 0  # nobody answers for what is there
        k = len(values)
        corrections = np.zeros((k - threshold, LIMBS), np.uint16)
        sent = np.frombuffer(self.published[masks.COMMITMENT :], "<u2").reshape(-1, LIMBS)
        corrections[: len(sent)] = sent
        if max(values.max(initial=0), corrections.max(initial=0)) >= shares.PRIME:
            return None
        secret = shares.reconstruct_secret(
            values[None],
            corrections[None],
            self.present[None],
            first[None],
            threshold,
        )
        bound = masks.commitments(secret, np.array([self.device]), SELF, of)
        right = bound[0].tobytes() == self.published[: masks.COMMITMENT]
        return secret[0] if right else None


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Things that a device signed in one attempt and that contradict each other.

    A kind is a subclass. Every entry of it is used up to the last bit, so that a piece of evidence
    holds in one form only.
    """

    why: ClassVar[str]
    """The lie, for people."""
    device: int

    @property
    def lie(self) -> str:
        """The lie, for people."""
        return self.why

    def holds(self, attempt: Attempt) -> bool:
        """Return whether the device signed the contradiction, by the signatures in use."""
        try:
            right = attempt.allowed() and 0 <= self.device < attempt.form.devices
            return right and self._contradicts(attempt)
        except (ValueError, IndexError, OverflowError):  # sizes, numbers out of range
            return False

    def _contradicts(self, attempt: Attempt) -> bool:
        raise NotImplementedError


class DifferingPledges(Evidence, frozen=True, tag="pledges"):
    """Pledges that differ from those of one mask neighbour more than may be liars."""

    why = "its pledges differ from those of too many mask neighbours"
    pledge: bytes
    signature: bytes
    neighbours: list[tuple[int, bytes, bytes]]
    """Slot, pledges and signature of each neighbour, by increasing slots."""

    def _contradicts(self, attempt: Attempt) -> bool:
        k, ids = attempt.form.mask_neighbours, attempt.neighbours(self.device)
        slots = [slot for slot, _, _ in self.neighbours]
        if len(slots) != attempt.form.frameable + 1 or slots != sorted({*slots} & {*range(k)}):
            return False
        own = _pledged(self.pledge, k)
        return attempt.signed(self.signature, self.device, b"pledge", self.pledge) and all(
            attempt.signed(signature, int(ids[slot]), b"pledge", pledge)
            and differ(own[slot], _pledged(pledge, k)[k - 1 - slot])  # slots mirror
            for slot, pledge, signature in self.neighbours
        )


def differ(own: Bytes, theirs: Bytes) -> bool:
    """Return whether the pledges of two ends of a pair differ.

    Zeros say that nothing is shared with the other end: that is nobody's lie.
    """
    return bool(own.any() and theirs.any() and (own != theirs).any())


class InvalidProof(Evidence, frozen=True, tag="proof"):
    """A proof that is invalid for the masked vector."""

    why = "its summand is not proved to be short"
    signed: Signed
    vector: bytes
    proof: bytes

    def _contradicts(self, attempt: Attempt) -> bool:
        if not self.signed.covers(vector=self.vector, proof=self.proof):
            return False
        return self.signed.right(attempt, self.device) and not self._verified(attempt).valid[0]

    def _verified(self, attempt: Attempt) -> "shortness.Verified":
        statements = attempt.statements({self.device: self.vector}, self.signed.challenge)
        return shortness.verify(statements, [self.proof])


class OtherMasks(InvalidProof, frozen=True, tag="masks"):
    """A valid proof for other pair masks than the pledged seeds give."""

    why = "its masks are not those of its seeds"
    pledge: bytes
    seeds: bytes
    """16 bytes for each holder."""

    def _contradicts(self, attempt: Attempt) -> bool:
        record, k = self.signed, attempt.form.mask_neighbours
        if not record.covers(pledge=self.pledge, vector=self.vector, proof=self.proof):
            return False
        holders, others = _flags(record.holders, k), attempt.neighbours(self.device)
        seeds = np.frombuffer(self.seeds, np.uint8).reshape(int(holders.sum()), masks.SEED)
        pledge, of = _pledged(self.pledge, k)[holders], attempt.of
        if not as_pledged("seed", seeds, self.device, others[holders], pledge, of).all():
            return False
        if not record.right(attempt, self.device):
            return False
        pair = self._verified(attempt).pair[0]
        return pair is not None and not self.fits(attempt, pair, others)

    def fits(self, attempt: Attempt, pair: "shortness.PairCommitment | None", others: Ints) -> bool:
        """Return whether `pair` is the commitment to the masks that the seeds give.

        Args:
            attempt, others: as in `WrongAnswer.is_right`.
            pair: D_u; None where the proof is invalid.
        """
        others = others[_flags(self.signed.holders, len(others))]
        low, high = np.minimum(self.device, others), np.maximum(self.device, others)
        seeds = np.frombuffer(self.seeds, "<u4").reshape(len(others), -1).astype(np.uint32)
        adds = low == self.device
        right = attempt.opened_pairs(seeds, low, high, adds, self.signed.challenge)
        return pair is not None and shortness.pair_commitment(*right) == pair.to_bytes()


class WrongCommitment(Evidence, frozen=True, tag="commitment"):
    """A commitment to the projected self mask that is not what the self secret gives."""

    why = "its commitment is not to its self mask"
    signed: Signed
    secret: bytes

    @staticmethod
    def of(device: int, record: Signed, secret: Elements) -> "WrongCommitment":
        """Return evidence with a self secret that was opened."""
        return WrongCommitment(device, record, secret.astype("<u2").tobytes())

    def _contradicts(self, attempt: Attempt) -> bool:
        record, of, form = self.signed, attempt.of, attempt.form
        secret = np.frombuffer(self.secret, "<u2").astype(np.uint16).reshape(1, LIMBS)
        device = np.array([self.device])
        bound = masks.commitments(secret, device, SELF, of)
        if bound[0].tobytes() != record.published[: masks.COMMITMENT]:
            return False
        if not record.right(attempt, self.device):
            return False
        drawn = challenge_of(record.challenge, of)
        projection = shortness.projection(drawn, form.width)
        (projected,) = projected_self_masks(secret, device, projection, drawn, of, form.bits)
        right = shortness.self_commitment(projected, self_blinding(secret[0], drawn))
        return bool(right != record.commitment)


class WrongShares(Evidence, frozen=True, tag="shares"):
    """Shares of t holders, as pledged, that do not give the self secret that was published."""

    why = "its shares do not give the secret that it committed itself to"
    signed: Signed
    pledge: bytes
    given: bytes
    """16 bytes for each slot; zeros where it is not one of the t holders."""
    answering: bytes
    """The t holders, a bit for each slot."""

    @staticmethod
    def of(answers: SharesOf, record: Signed, pledge: bytes, threshold: int) -> "WrongShares":
        """Return evidence of answers that are as pledged: of the first t of them."""
        first = answers.first(threshold)
        given = np.where(first[:, None], answers.given, 0).astype(np.uint8).tobytes()
        return WrongShares(answers.device, record, pledge, given, np.packbits(first).tobytes())

    def _contradicts(self, attempt: Attempt) -> bool:
        record, form = self.signed, attempt.form
        k = form.mask_neighbours
        if not (record.covers(pledge=self.pledge) and record.right(attempt, self.device)):
            return False
        answers = SharesOf(
            self.device,
            np.frombuffer(self.given, np.uint8).reshape(k, -1),
            _flags(self.answering, k),
            _flags(record.holders, k),
            record.published,
        )
        silent = ~answers.answering
        if (answers.answering & ~answers.present).any() or answers.given[silent].any():
            return False
        of, ids, pledged = attempt.of, attempt.neighbours(self.device), _pledged(self.pledge, k)
        right = as_pledged("own share", answers.given, self.device, ids, pledged, of)
        if not right[answers.answering].all() or answers.answering.sum() != form.threshold:
            return False
        return answers.secret(form.threshold, attempt.of) is None


class WrongAnswer(Evidence, frozen=True, tag="answer"):
    """A share, a word or a seed that was given out, and is not the pledged one."""

    signed: Signed
    pledge: bytes
    what: Answer
    given: bytes
    """The message: 16 bytes for each holder, or 12 for each slot, zeros for who is no holder."""
    signature: bytes

    @property
    def lie(self) -> str:
        """The lie, for people."""
        return f"it gave out a {self.what} that it had not pledged"

    def _contradicts(self, attempt: Attempt) -> bool:
        record = self.signed
        return (
            record.covers(pledge=self.pledge)
            and record.right(attempt, self.device)
            and self.is_signed(attempt)
            and not self.is_right(attempt, attempt.neighbours(self.device))
        )

    def is_signed(self, attempt: Attempt) -> bool:
        """Return whether the device signed the message."""
        holders = _flags(self.signed.holders, attempt.form.mask_neighbours)
        parts = answer_parts(self.pledge, holders, self.given)
        return attempt.signed(self.signature, self.device, self.what.encode(), *parts)

    def is_right(self, attempt: Attempt, others: Ints) -> bool:
        """Return whether the device gave out what it had pledged.

        Args:
            attempt: it answered in.
            others: [k] its mask neighbours.
        """
        k = len(others)
        holders, rows = _flags(self.signed.holders, k), np.frombuffer(self.given, np.uint8)
        if self.what == "word":
            rows = rows.reshape(k, masks.WORD)
            if rows[~holders].any():
                return False
            rows = rows[holders]
        rows, pledged = rows.reshape(int(holders.sum()), -1), _pledged(self.pledge, k)[holders]
        right = as_pledged(self.what, rows, self.device, others[holders], pledged, attempt.of)
        return bool(right.all())


def answer_parts(pledge: bytes, holders: Flags, given: bytes) -> tuple[bytes, ...]:
    """Return what a device signs with an answer.

    The answer has a meaning for these pledges and holders only: after a restart there may be other
    holders.
    """
    return _hashed(b"lumos pledge", pledge), np.packbits(holders).tobytes(), given


def _pledged(pledge: bytes, neighbours: int) -> Bytes:
    """[k, 64] pledges by slot."""
    return np.frombuffer(pledge, np.uint8).reshape(neighbours, masks.PLEDGE_BYTES)


def _flags(packed: bytes, count: int) -> Flags:
    """Return flags from bits; `ValueError` for bits that stand for nothing."""
    flags = np.unpackbits(np.frombuffer(packed, np.uint8), count=count).astype(np.bool_)
    if np.packbits(flags).tobytes() != packed:
        raise ValueError("flags have bits behind the last one")
    return flags


AnyEvidence = (
    DifferingPledges | InvalidProof | OtherMasks | WrongCommitment | WrongShares | WrongAnswer
)
ShownEvidence = WrongCommitment | WrongShares
"""Evidence that comes out when self secrets are open, which the coordinator shows the devices."""


class EvidenceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evidence against a device as it is kept: JSON, bytes in base64.

    Nothing in it is private to anybody but the device that lied. Of others there are hashes of
    random numbers, and what the liar shares with them in an attempt at which its vector is not
    opened, or left out of the sum.
    """

    format: Literal["lumos evidence 2"] = "lumos evidence 2"
    plan: bytes
    """Digest of the signed plan of the run."""
    lie: str
    """For people; follows from the others."""
    attempt: Attempt
    case: AnyEvidence

    @property
    def device(self) -> int:
        """The device that lied."""
        return self.case.device

    @staticmethod
    def of(case: AnyEvidence, attempt: Attempt, plan: bytes) -> "EvidenceFile":
        """Return evidence with what somebody who was not there needs to check it."""
        return EvidenceFile(plan=plan, lie=case.lie, attempt=attempt, case=case)

    def packed(self) -> bytes:
        """Return the content of the file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @staticmethod
    def read(content: bytes) -> "EvidenceFile":
        """Return evidence from a file.

        Raises:
            InputError: it is none.
        """
        try:
            return msgspec.json.decode(content, type=EvidenceFile)
        except (msgspec.MsgspecError, ValueError):
            raise InputError("is no evidence of this version of Lumos") from None

    def proves(self) -> bool:
        """Return whether the device signed the contradiction, by the signatures in use."""
        return self.lie == self.case.lie and self.case.holds(self.attempt)


_DECODER = msgspec.msgpack.Decoder(list[ShownEvidence])


def encode(cases: list[ShownEvidence]) -> bytes:
    """Return evidence as bytes."""
    return msgspec.msgpack.encode(cases)


def decode(body: bytes) -> list[ShownEvidence]:
    """Return evidence from bytes.

    Raises:
        Forged: they are no evidence.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError):
        raise Forged("the coordinator sent evidence that cannot be read") from None

"""Evidence that a device lied about its self mask: anybody who takes part can check it.

A device signs once in an attempt what it pledged, the digest of its masked vector, what it
published of its self secret, the challenge, and its proof, in which the commitment to its projected
self mask comes first. Two contradictions can come out when the self secret is opened:

* the shares that it pledged do not give the secret that it committed itself to;
* the secret is that one, and the commitment to the projected self mask is not what follows from it.

An honest device signs neither, so nobody can make evidence against it without a forged signature, a
collision of BLAKE2b or a second opening of a commitment. The signature also covers the form of the
sum (`SumForm`), so that nobody who was not there is shown a true record under other numbers.

The coordinator keeps evidence in files (`EvidenceFile`), which anybody can check who has the
certificates of the run.
"""

import math
from hashlib import blake2b
from typing import Literal, NamedTuple

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


def grid_bound(bound: float, fraction_bits: int) -> int:
    """Return the bound of a norm in steps of the fixed point."""
    return math.ceil(bound * 2.0**fraction_bits)


def challenge_of(sent: bytes, of: masks.SumId) -> bytes:
    """Return the challenge of an attempt: 32 bytes, from which the random matrix follows."""
    name = of.run + of.number.to_bytes(8, "little")
    return blake2b(name + sent, digest_size=32, person=b"lumos challenge").digest()


def statement_of(
    of: masks.SumId,
    device: int,
    challenge: bytes,
    bits: int,
    width: int,
    fraction_bits: int,
    bound: float,
    masked: list[int],
) -> "shortness.Statement":
    """Return what a device proves: its summand in an attempt has at most this norm."""
    square = shortness.projected_bound(grid_bound(bound, fraction_bits), width)
    return shortness.Statement(_name(of, device), challenge, bits, width, square, masked)


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


def _name(of: masks.SumId, device: int) -> bytes:
    return of.run + of.number.to_bytes(8, "little") + device.to_bytes(8, "little")


def pledge_digest(of: masks.SumId, device: int, pledge: bytes) -> bytes:
    """Return what a device signs when it sends its pledges."""
    return _hashed(b"lumos pledge", _name(of, device), pledge)


class SumForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public numbers of a sum, without which its records mean nothing."""

    devices: int
    mask_neighbours: int
    threshold: int
    bits: int
    """Bits of a word of the ring."""
    width: int
    """Numbers of a vector."""
    seed: bytes
    """Seed of the mask graph."""

    @staticmethod
    def of(
        graph: MaskGraph, threshold: int, fixed: FixedPoint, width: int, seed: bytes
    ) -> "SumForm":
        """Return the form of a sum."""
        return SumForm(
            devices=graph.total,
            mask_neighbours=graph.neighbours,
            threshold=threshold,
            bits=8 * fixed.wire,
            width=width,
            seed=seed,
        )

    def digest(self) -> bytes:
        """Return the digest that is signed."""
        numbers = (self.devices, self.mask_neighbours, self.threshold, self.bits, self.width)
        return _hashed(b"lumos sum form", np.array(numbers, "<i8").tobytes(), self.seed)


class Signed(NamedTuple):
    """The content that a device signs with its proof."""

    form: bytes
    """Digest of the form of the sum."""
    pledge: bytes
    """Digest of its pledges."""
    vector: bytes
    """Digest of its masked vector."""
    holders: bytes
    """The holders of its self secret, a bit for each slot."""
    published: bytes
    """Commitment to its self secret, and corrections of shares."""
    challenge: bytes
    commitment: bytes
    """To the projected self mask."""
    proof: bytes
    """Digest of the whole proof."""

    @staticmethod
    def of(
        form: SumForm,
        of: masks.SumId,
        device: int,
        pledge: bytes,
        holders: Flags,
        vector: bytes,
        published: bytes,
        challenge: bytes,
        proof: bytes,
    ) -> "Signed":
        """Return the record of one device in one attempt."""
        return Signed(
            form.digest(),
            pledge_digest(of, device, pledge),
            _hashed(b"lumos vector", vector),
            np.packbits(holders).tobytes(),
            published,
            challenge,
            proof[:_POINT],
            _hashed(b"lumos proof", proof),
        )

    def digest(self, of: masks.SumId, device: int) -> bytes:
        """Return the digest that is signed."""
        return _hashed(b"lumos signed", _name(of, device), *self)


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

    def secret(self, threshold: int, of: masks.SumId) -> Elements | None:
        """Return [limbs] the secret; None if shares do not give the one that was published."""
        if self.answering.sum() < threshold:
            return None
        values = np.ascontiguousarray(self.given).view("<u2").astype(np.uint16)
        values[~self.answering] = 0  # nobody answers for what is there
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
            self.answering[None],
            threshold,
        )
        bound = masks.commitments(secret, np.array([self.device]), SELF, of)
        right = bound[0].tobytes() == self.published[: masks.COMMITMENT]
        return secret[0] if right else None

    def as_pledged(self, pledged: Bytes, holders: Ints, of: masks.SumId) -> Flags:
        """[k] the holders that gave out what they had pledged.

        Args:
            pledged: [k, bytes] the pledges of the device, which its holders share.
            holders: [k] ids.
        """
        me = np.full(len(holders), self.device)
        low, high = np.minimum(me, holders), np.maximum(me, holders)
        values = np.ascontiguousarray(self.given).view("<u2").astype(np.uint16)
        hashed = np.empty((len(me), masks.PLEDGE), np.uint8)
        sent = np.empty_like(hashed)
        for up in (True, False):
            some = (me == low) == up
            start = masks.PLEDGE if up else 2 * masks.PLEDGE
            hashed[some] = masks.value_pledges(values[some], low[some], high[some], of, up=up)
            sent[some] = pledged[some, start : start + masks.PLEDGE]
        right: Flags = self.answering & (hashed == sent).all(axis=1)
        return right


class Evidence(msgspec.Struct, frozen=True, array_like=True):
    """Two things that a device signed and that contradict each other."""

    device: int
    signed: Signed
    signature: bytes
    secret: bytes = b""
    """The self secret, where the commitment to its mask is wrong."""
    pledge: bytes = b""
    """The pledges, where shares do not give the published secret."""
    given: bytes = b""
    answering: bytes = b""

    @property
    def why(self) -> str:
        """The lie, for people."""
        if self.secret:
            return "its commitment is not to its self mask"
        return "its shares do not give the secret that it committed itself to"

    @staticmethod
    def of_commitment(
        record: Signed, device: int, secret: Elements, signature: bytes
    ) -> "Evidence":
        """Return evidence of a wrong commitment to a self mask."""
        return Evidence(device, record, signature, secret.astype("<u2").tobytes())

    @staticmethod
    def of_shares(record: Signed, answers: SharesOf, pledge: bytes, signature: bytes) -> "Evidence":
        """Return evidence of shares that do not give the published secret."""
        return Evidence(
            answers.device,
            record,
            signature,
            pledge=pledge,
            given=answers.given.tobytes(),
            answering=np.packbits(answers.answering).tobytes(),
        )

    def holds(self, form: SumForm, number: int, challenge: bytes | None = None) -> bool:
        """Return whether the device signed the contradiction.

        Args:
            form: of the sum.
            number: of the sum, or attempt, in its run.
            challenge: as the coordinator sent it; None for who was not there.
        """
        record = self.signed
        if not 0 <= self.device < form.devices or record.form != form.digest():
            return False
        if challenge is not None and record.challenge != challenge:
            return False
        of = masks.SumId(seed_tag(form.seed), number)
        digest = record.digest(of, self.device)
        if not signing.present().check(self.device, digest, self.signature):
            return False
        try:
            if self.secret:
                return self._wrong_commitment(record, of, form)
            return self._wrong_shares(record, of, form)
        except (ValueError, IndexError, OverflowError):
            return False

    def _wrong_commitment(self, record: Signed, of: masks.SumId, form: SumForm) -> bool:
        secret = np.frombuffer(self.secret, "<u2").astype(np.uint16).reshape(1, LIMBS)
        device = np.array([self.device])
        bound = masks.commitments(secret, device, SELF, of)
        if bound[0].tobytes() != record.published[: masks.COMMITMENT]:
            return False
        drawn = challenge_of(record.challenge, of)
        projection = shortness.projection(drawn, form.width)
        (projected,) = projected_self_masks(secret, device, projection, drawn, of, form.bits)
        right = shortness.self_commitment(projected, self_blinding(secret[0], drawn))
        return bool(right != record.commitment)

    def _wrong_shares(self, record: Signed, of: masks.SumId, form: SumForm) -> bool:
        if pledge_digest(of, self.device, self.pledge) != record.pledge:
            return False
        k = form.mask_neighbours
        answers = SharesOf(
            self.device,
            np.frombuffer(self.given, np.uint8).reshape(k, -1),
            _flags(self.answering, k),
            _flags(record.holders, k),
            record.published,
        )
        if (answers.answering & ~answers.present).any():
            return False
        pledged = np.frombuffer(self.pledge, np.uint8).reshape(k, -1)
        holders = MaskGraph(form.devices, k, form.seed).of(np.array([self.device]))[0]
        right = answers.as_pledged(pledged, holders, of)
        if not np.array_equal(right, answers.answering) or right.sum() < form.threshold:
            return False
        return answers.secret(form.threshold, of) is None


class EvidenceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evidence against a device as it is kept: JSON, bytes in base64.

    Nothing in it is private to anybody but the device that lied: its self secret of one attempt, or
    shares of it, and hashes. A sum is formed without that device, so its vector is in no sum.
    """

    format: Literal["lumos evidence 1"] = "lumos evidence 1"
    plan: bytes
    """Digest of the signed plan of the run."""
    device: int
    lie: str
    """For people; follows from the others."""
    sum: int
    """Number of the attempt at a sum in the run."""
    form: SumForm
    signed: dict[str, bytes]
    signature: bytes
    secret: bytes
    pledge: bytes
    given: bytes
    answering: bytes

    @staticmethod
    def of(case: Evidence, form: SumForm, number: int, plan: bytes) -> "EvidenceFile":
        """Return evidence with what somebody who was not there needs to check it."""
        return EvidenceFile(
            plan=plan,
            device=case.device,
            lie=case.why,
            sum=number,
            form=form,
            signed=case.signed._asdict(),
            signature=case.signature,
            secret=case.secret,
            pledge=case.pledge,
            given=case.given,
            answering=case.answering,
        )

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
        try:
            case = Evidence(
                self.device,
                Signed(**self.signed),
                self.signature,
                self.secret,
                self.pledge,
                self.given,
                self.answering,
            )
        except TypeError:
            return False
        form = self.form
        right = form.devices > 1 and 0 < form.threshold <= form.mask_neighbours < form.devices
        right = right and 0 < form.bits <= MAX_BITS and 0 < form.width <= MAX_WIDTH
        return right and self.lie == case.why and case.holds(form, self.sum)


MAX_BITS, MAX_WIDTH = 64, 1 << 24
"""Largest numbers of a file that is looked at: others would only cost time."""


def _flags(packed: bytes, count: int) -> Flags:
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=count).astype(np.bool_)


_DECODER = msgspec.msgpack.Decoder(list[Evidence])


def encode(cases: list[Evidence]) -> bytes:
    """Return evidence as bytes."""
    return msgspec.msgpack.encode(cases)


def decode(body: bytes) -> list[Evidence]:
    """Return evidence from bytes.

    Raises:
        Forged: they are no evidence.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError):
        raise Forged("the coordinator sent evidence that cannot be read") from None

"""Evidence that a device lied about its self mask: anybody who takes part can check it.

A device signs once in an attempt what it pledged, the digest of its masked vector, what it
published of its self secret, the challenge, and its proof, in which the commitment to its projected
self mask comes first. Two contradictions can come out when the self secret is opened:

* the shares that it pledged do not give the secret that it committed itself to;
* the secret is that one, and the commitment to the projected self mask is not what follows from it.

An honest device signs neither, so nobody can make evidence against it without a forged signature, a
collision of BLAKE2b or a second opening of a commitment.
"""

import math
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import numpy as np

from lumos.crypto import shortness
from lumos.errors import Forged, UsageError
from lumos.secagg import masks, shares, signing
from lumos.secagg.mask_graph import MaskGraph
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


class Signed(NamedTuple):
    """The content that a device signs with its proof."""

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

    def holds(
        self,
        graph: MaskGraph,
        threshold: int,
        of: masks.SumId,
        challenge: bytes,
        fixed: FixedPoint,
        width: int,
    ) -> bool:
        """Return whether the device signed the contradiction.

        Args:
            graph: the mask graph.
            threshold: t.
            of: the attempt.
            challenge: as the coordinator sent it.
            fixed: the form of numbers.
            width: numbers of a vector.
        """
        record = self.signed
        if not 0 <= self.device < graph.total or record.challenge != challenge:
            return False
        digest = record.digest(of, self.device)
        if not signing.present().check(self.device, digest, self.signature):
            return False
        try:
            if self.secret:
                return self._wrong_commitment(record, of, fixed, width)
            return self._wrong_shares(record, graph, threshold, of)
        except (ValueError, IndexError):
            return False

    def _wrong_commitment(
        self, record: Signed, of: masks.SumId, fixed: FixedPoint, width: int
    ) -> bool:
        secret = np.frombuffer(self.secret, "<u2").astype(np.uint16).reshape(1, LIMBS)
        device = np.array([self.device])
        bound = masks.commitments(secret, device, SELF, of)
        if bound[0].tobytes() != record.published[: masks.COMMITMENT]:
            return False
        drawn = challenge_of(record.challenge, of)
        halves = masks.self_mask_halves(secret, device, width, of, 8 * fixed.wire)
        (projected,) = shortness.projection(drawn, width).apply_halves(*halves)
        right = shortness.self_commitment(projected, self_blinding(secret[0], drawn))
        return bool(right != record.commitment)

    def _wrong_shares(
        self, record: Signed, graph: MaskGraph, threshold: int, of: masks.SumId
    ) -> bool:
        if pledge_digest(of, self.device, self.pledge) != record.pledge:
            return False
        k = graph.neighbours
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
        right = answers.as_pledged(pledged, graph.of(np.array([self.device]))[0], of)
        if not np.array_equal(right, answers.answering) or right.sum() < threshold:
            return False
        return answers.secret(threshold, of) is None


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

"""Products of two matched devices, as shares: a session over bytes, the same at both ends.

For devices u and v with chosen words b and small numbers Z, the two shares add up to
(b_u ⊗ Z_v + b_v ⊗ Z_u) / 128, and no device sees the other's words or numbers. In the order of the
file: the extended oblivious transfers, the two halves of a product, and the session of a pair
(`PairSession`). `lumos.twoparty.product_sums` runs sessions in rounds.
"""

import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.poly1305 import Poly1305

from lumos.crypto import entropy
from lumos.crypto.entropy import InMemoryOnly
from lumos.crypto.groups import ED25519, ED25519_POINT, BadPoint, Group
from lumos.errors import (
    CheckFailed,
    InputError,
    OutOfOrder,
    Replay,
    SessionClosed,
    UsageError,
    WrongLength,
)
from lumos.secagg.parameters import FixedPoint, RingWords
from lumos.twoparty.lookup import Lookup, Query, ReceiverKeys, SenderKeys
from lumos.typing import Bytes, Flags

# Extended oblivious transfers: 128 base transfers become one for each word, by symmetric means.
#
# Ishai, Kilian, Nissim and Petrank 2003, section 3. R has a choice b_f for each of F words, S draws
# s ∈ {0,1}^128. In the base transfers, with the roles reversed, R offers two seeds k_i^0, k_i^1 for
# each i < 128 and S takes k_i^{s_i}. With G = ChaCha20 and columns of F bits,
#
#     R:  t_i = G(k_i^0)       u_i = t_i ⊕ G(k_i^1) ⊕ b          sends all u_i
#     S:  q_i = G(k_i^{s_i}) ⊕ s_i u_i
#
# so that the rows, [F, 128], satisfy q_f = t_f ⊕ b_f s. Pads are hashes of rows: S knows P_f^0 =
# H(q_f) and P_f^1 = H(q_f ⊕ s), R knows H(t_f) = P_f^{b_f} and, as long as H is correlation robust,
# nothing of the other; S knows nothing of b, which u_i hides under G(k_i^{1-s_i}).
#
# *Correlated transfers.* For numbers z_k in the ring of 2^(8 word) elements
#
#     S:  c_fk = P^0_fk - P^1_fk + z_k      share  -P^0_fk
#     R:                                    share  H(t_f)_k + b_f c_fk
#
# and the two shares add up to b_f z_k.
#
# *Consistency.* Nothing above makes R use one b in all columns. Let b_i be its choices in column i:
# q_i = t_i ⊕ s_i b_i. Where b_i differs from the others in row f, a product of that word is garbage
# if s_i = 1 and right if s_i = 0. So 128 rows of one opened sum show s, and with it every number of
# S. To prevent this R adds 128 rows with random choices b'. Once u is fixed, M = G(H(session,
# direction, u)) is a random matrix, and h(c ‖ c') = M c ⊕ c' hashes a column to 128 bits:
#
#     R:  x = h(b ‖ b')    d = H(session, direction, x, h(t_1) … h(t_128))     sends x, d after u
#     S:  refuses unless d = H(session, direction, x, h(q_1) ⊕ s_1 x … h(q_128) ⊕ s_128 x)
#
# This is the check of Roy 2022 (SoftSpokenOT), as in figure 10 of the corrected Keller, Orsini and
# Scholl 2015, with the challenge by Fiat and Shamir and a hash in place of the h(t_i). The first
# check of Keller, Orsini and Scholl, one equation over all columns, has no sound proof and is not
# used. docs/protocols.md has the proof: whoever passes has used one b, but for columns in which it
# guessed s_i, each with probability 1/2; x is uniform, and d follows from x and what S knows.

BASE = 128
"""κ, base transfers of one direction."""
SEED = 32
CHECK_ROWS = 128
"""Rows with random choices that hide the rest in the check; bits of its hash."""
_DIGEST_BYTES = 32
PROOF = CHECK_ROWS // 8 + _DIGEST_BYTES
"""Bytes of x and d."""
_NONCE = bytes(12)  # each seed is stretched once
_ROW = BASE // 8
_DIGEST = 64


def column_bytes(words: int) -> int:
    """Bytes of one column of the matrix: those of the words, and of the rows of the check."""
    return -(-words // 8) + CHECK_ROWS // 8


def stretch(seeds: Bytes, size: int) -> Bytes:
    """[n, 32] seeds → [n, size] columns of pseudo-random bytes."""
    keys = np.ascontiguousarray(seeds).view("<u4").astype(np.uint32)
    stream = np.ascontiguousarray(entropy.blocks(keys, _NONCE, -(-size // 64)), "<u4")
    return stream.view(np.uint8)[:, :size]


def masked_columns(one: Bytes, other: Bytes, chosen: Bytes) -> Bytes:
    """u: [128, bytes] what R sends, from the columns of both seeds and its choices."""
    masked: Bytes = one ^ other ^ chosen
    return masked


def challenge(sid: bytes, columns: bytes) -> Bytes:
    """M: [128, bytes of the words] random bits that follow from all columns."""
    seed = blake2b(columns, digest_size=SEED, key=sid, person=b"lumos.ot.matrix").digest()
    size = len(columns) // BASE - CHECK_ROWS // 8
    long = stretch(np.frombuffer(seed, np.uint8)[None], CHECK_ROWS * size)
    return long.reshape(CHECK_ROWS, size)


def column_hashes(matrix: Bytes, columns: Bytes) -> Bytes:
    """[n, 16] h(c ‖ c') = M c ⊕ c' of each of [n, bytes] columns."""
    size = matrix.shape[1]
    spare = -size % 8
    words, rows = (
        np.ascontiguousarray(np.pad(part, ((0, 0), (0, spare))).view(np.uint64).T)
        for part in (columns[:, :size], matrix)
    )
    folded = np.empty((CHECK_ROWS, len(columns)), np.uint64)
    for place, row in enumerate(rows.T):
        np.bitwise_xor.reduce(words & row[:, None], axis=0, out=folded[place])
    parity = (np.bitwise_count(folded) & 1).T
    hashes: Bytes = np.packbits(parity, axis=1, bitorder="little") ^ columns[:, size:]
    return hashes


def consistency(sid: bytes, x: bytes, hashes: Bytes) -> bytes:
    """d: the digest of the hashes of all columns."""
    state = blake2b(x, digest_size=32, key=sid, person=b"lumos.ot.check")
    state.update(hashes.tobytes())
    return state.digest()


def transposed(columns: Bytes, words: int) -> Bytes:
    """[128, bytes] columns → [words, 16] rows; those of the check are left out."""
    bits = np.unpackbits(columns, axis=1, count=words, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little")


def pads(rows: Bytes, label: bytes, width: int, ring: "np.dtype[np.unsignedinteger]") -> RingWords:
    """[words, width] one pad for each number of each row: H(label, part, f, row f).

    Args:
        rows: [words, 16].
        label: names session, direction, step and attempt; pads under one label are used once.
        width: numbers of each pad.
        ring: type of one number.
    """
    numbered = np.empty((len(rows), 4 + _ROW), np.uint8)
    numbered[:, :4] = np.arange(len(rows), dtype="<u4")[:, None].view(np.uint8)
    numbered[:, 4:] = rows
    data, step = numbered.tobytes(), 4 + _ROW
    pieces = [data[place : place + step] for place in range(0, len(data), step)]
    size = width * ring.itemsize
    hashed = np.empty((len(rows), size), np.uint8)
    for part in range(-(-size // _DIGEST)):
        first = part * _DIGEST
        digest = min(_DIGEST, size - first)
        start = blake2b(
            label + part.to_bytes(4, "little"), digest_size=digest, person=b"lumos.product.1"
        )
        digests = []
        for piece in pieces:
            state = start.copy()
            state.update(piece)
            digests.append(state.digest())
        hashed[:, first : first + digest] = np.frombuffer(b"".join(digests), np.uint8).reshape(
            len(rows), digest
        )
    return hashed.view(ring)


# The two halves of a product: one device has chosen words, the other has numbers.
#
# A pair computes b_u ⊗ Z_v and b_v ⊗ Z_u, so each device holds one `Multiplier` (its numbers, the
# partner's choices: S above) and one `Chooser` (its choices, the partner's numbers: R).

_SEED_TABLE = Lookup(widths=(1,), outputs=8 * SEED)
_NAME = b"lumos.products"
POINTS = BASE * ED25519_POINT
"""Bytes of the points of all base transfers."""


class Chooser(InMemoryOnly):
    """R: holds the choices, and offers both seeds of every base transfer.

    Args:
        chosen: [words] which words the device chose.
    """

    __slots__ = ("_chosen", "_keys", "_rows")

    def __init__(self, chosen: Flags, group: Group) -> None:
        self._chosen = chosen.copy()
        self._keys: SenderKeys | None = SenderKeys(group)
        self._rows: Bytes = np.empty((0, BASE // 8), np.uint8)

    @property
    def A(self) -> bytes:
        """The point that opens the base transfers."""
        return self._base().A

    def columns(self, sid: bytes, points: bytes) -> bytes:
        """The masked columns and x, d of the check, in answer to the base transfers' points."""
        keys = self._base()
        keys.bind(sid)
        seeds = b"".join(
            seed
            for number in range(BASE)
            for seed in keys.pads(
                _query(number), 0, points[ED25519_POINT * number : ED25519_POINT * (number + 1)]
            )
        )
        both = np.frombuffer(seeds, np.uint8).reshape(BASE, 2, SEED)
        words = len(self._chosen)
        one, other = (stretch(both[:, bit], column_bytes(words)) for bit in range(2))
        self._rows = transposed(one, words)
        self._keys = None  # base transfers are made once
        drawn = np.frombuffer(entropy.draw(CHECK_ROWS // 8), np.uint8)
        chosen = np.append(np.packbits(self._chosen, bitorder="little"), drawn)
        columns = self._masked(one, other, chosen).tobytes()
        matrix = challenge(sid, columns)
        x = column_hashes(matrix, chosen[None]).tobytes()
        return columns + x + consistency(sid, x, column_hashes(matrix, one))

    def share(self, correction: RingWords, label: bytes) -> RingWords:
        """[words, width] its share of the product, from the multiplier's correction."""
        own = pads(self._rows, label, correction.shape[1], correction.dtype)
        own += correction * self._chosen[:, None].astype(correction.dtype)
        return own

    def _masked(self, one: Bytes, other: Bytes, chosen: Bytes) -> Bytes:
        return masked_columns(one, other, chosen)

    def _base(self) -> SenderKeys:
        if self._keys is None:
            raise RuntimeError("base transfers are made once")
        return self._keys


class Multiplier(InMemoryOnly):
    """S: holds the numbers, and takes one seed of every base transfer, chosen by s."""

    __slots__ = ("_group", "_rows", "_s", "_seeds", "_sid", "_words")

    def __init__(self, words: int, group: Group) -> None:
        self._group = group
        self._words = words
        self._sid = b""
        self._s: Bytes = np.frombuffer(entropy.draw(BASE // 8), np.uint8)
        self._seeds = b""
        self._rows: Bytes = np.empty((0, BASE // 8), np.uint8)

    def points(self, sid: bytes, A: bytes) -> bytes:
        """The points of all base transfers, in answer to A."""
        keys = ReceiverKeys(A, sid, self._group)
        self._sid = sid
        points, seeds = [], []
        for number, bit in enumerate(np.unpackbits(self._s, bitorder="little").tolist()):
            point, seed = keys.choose(_query(number), bit)
            points.append(point)
            seeds += seed
        self._seeds = b"".join(seeds)
        return b"".join(points)

    def extend(self, columns: bytes) -> None:
        """Turn the chooser's columns into one key for each word.

        Raises:
            CheckFailed: the columns do not belong to one choice of words.
        """
        seeds, self._seeds = np.frombuffer(self._seeds, np.uint8).reshape(BASE, SEED), b""
        size = column_bytes(self._words)
        columns, x, d = columns[:-PROOF], columns[-PROOF:-_DIGEST_BYTES], columns[-_DIGEST_BYTES:]
        received = np.frombuffer(columns, np.uint8).reshape(BASE, size)
        chosen = np.unpackbits(self._s, bitorder="little")[:, None]
        own = stretch(seeds, size) ^ received * chosen
        hashes = column_hashes(challenge(self._sid, columns), own)
        hashes ^= np.frombuffer(x, np.uint8) * chosen
        if not hmac.compare_digest(d, consistency(self._sid, x, hashes)):
            raise CheckFailed("the columns of the transfers do not belong together")
        self._rows = transposed(own, self._words)

    def multiply(self, numbers: RingWords, label: bytes) -> tuple[RingWords, RingWords]:
        """[words, width] the correction for the chooser, and the own share of the product.

        Args:
            numbers: [width] in the ring.
            label: names this product; never twice.
        """
        zero = pads(self._rows, label, len(numbers), numbers.dtype)
        one = pads(self._rows ^ self._s, label, len(numbers), numbers.dtype)
        correction: RingWords = zero - one
        correction += numbers
        np.negative(zero, out=zero)
        return correction, zero


def _query(number: int) -> Query:
    return Query(_SEED_TABLE, _NAME, number)


# A session of two matched devices: bytes in, bytes out, the same program at both ends.
#
# Device u has b_u ∈ {0,1}^F and, in each step, Z_u ∈ [-127, 127]^K. After a product both hold a
# share in the ring of the masked sum, [F, K], and the two shares add up to
#
#     (b_u ⊗ Z_v + b_v ⊗ Z_u) · 2^(fraction bits - 7),    that is, to b ⊗ Z / 128 in fixed point.
#
# | message, both ways at once | bytes |
# |---|---|
# | opening | 80: nonce, A of the base transfers in which the sender offers, X25519 key |
# | points | 4,096 + 16: the points of the base transfers in which the sender takes |
# | columns | 128 ⌈F/8⌉ + 2,048 + 48 + 16: the choices, masked, and the check |
# | correction, one for each product | F K word + 16 |
# | word, two for each product | 16: proves who sent it (`PairSession.word`) |
#
# Every message but the opening ends with a Poly1305 tag, under a key for this one message that
# BLAKE2b derives from a key which both openings give. So **any flipped bit ends the session with an
# error**, also one in an opening, which changes the key. Choices are bound for the session; numbers
# are new in each product. Pads are hashes under (session, direction, step, attempt), and (step,
# attempt) only grows: none is used twice.
#
# A lying partner learns neither words nor numbers from messages and shares. It can still choose its
# own words, multiply by other numbers for each word, and by numbers out of range: see the table of
# docs/protocols.md.

NONCE = 16
KEY = 32
CHECK = 16
"""Bytes at the end of a message, and of a word."""
SCALE_BITS = 7
"""Numbers stand for multiples of 2^-7."""

OPENING = NONCE + ED25519_POINT + KEY
POINTS_MESSAGE = POINTS + CHECK


def columns_message(words: int) -> int:
    """Bytes of the message with the columns."""
    return BASE * column_bytes(words) + PROOF + CHECK


def correction_message(words: int, width: int, word: int) -> int:
    """Bytes of the message of one product."""
    return words * width * word + CHECK


class _Due(IntEnum):
    OPENING = 0
    POINTS = 1
    COLUMNS = 2
    EXTENSION = 3
    PRODUCTS = 4
    NOTHING = 5


class PairSession(InMemoryOnly):
    """One end of the session of a pair.

    Args:
        me: own id.
        peer: the partner's id.
        chosen: [words] the own choices, bound for the session.
        fixed: the fixed point of the sum.
    """

    def __init__(
        self, me: int, peer: int, chosen: Flags, fixed: FixedPoint, *, group: Group = ED25519
    ) -> None:
        if me == peer:
            raise UsageError(f"a device has no product with itself, got {me} twice")
        if chosen.ndim != 1 or not len(chosen):
            raise UsageError(f"`chosen` must be [words], got {list(chosen.shape)}")
        if fixed.fraction_bits < SCALE_BITS:
            raise UsageError(
                f"products need `fraction_bits` of at least {SCALE_BITS}, got {fixed.fraction_bits}"
            )
        self._me, self._peer = me, peer
        self._words = len(chosen)
        self._fixed = fixed
        self._process = os.getpid()
        self._due = _Due.OPENING
        self._last = (-1, -1)
        self._pending: RingWords | None = None
        nonce, drawn = entropy.draw(NONCE), entropy.draw(KEY)
        self._exchange: X25519PrivateKey | None = X25519PrivateKey.from_private_bytes(drawn)
        self._chooser: Chooser | None = Chooser(chosen.astype(np.bool_), group)
        self._multiplier: Multiplier | None = Multiplier(self._words, group)
        self._opening = nonce + self._chooser.A + self._exchange.public_key().public_bytes_raw()
        self._sid = b""
        self._key = b""

    def opening(self) -> bytes:
        """Return the first message."""
        with self._turn(_Due.OPENING):
            return self._opening

    def points(self, opening: bytes) -> bytes:
        """Return the second message, in answer to the partner's opening."""
        with self._turn(_Due.POINTS):
            _check_length(opening, OPENING)
            both = (self._opening, opening) if self._me < self._peer else (opening, self._opening)
            public = f"{min(self._me, self._peer)} {max(self._me, self._peer)} {self._words} "
            public += f"{self._fixed.word} {self._fixed.fraction_bits} "
            assert self._exchange is not None  # noqa: S101
            try:
                shared = self._exchange.exchange(X25519PublicKey.from_public_bytes(opening[-KEY:]))
            except ValueError:
                raise BadPoint("a public key is no point of large order") from None
            self._exchange = None
            named = public.encode() + b"".join(both)
            self._sid = blake2b(named, digest_size=32, person=b"lumos.pair.sid").digest()
            key = blake2b(named, key=shared, digest_size=32, person=b"lumos.pair.key")
            self._key = key.digest()
            multiplier, _ = self._halves()
            A = opening[NONCE : NONCE + ED25519_POINT]
            return self._sealed(b"points", multiplier.points(self._direction(mine=True), A))

    def columns(self, points: bytes) -> bytes:
        """Return the third message, in answer to the partner's points."""
        with self._turn(_Due.COLUMNS):
            body = self._opened(b"points", points, POINTS_MESSAGE)
            _, chooser = self._halves()
            return self._sealed(b"columns", chooser.columns(self._direction(mine=False), body))

    def extend(self, columns: bytes) -> None:
        """Take the partner's third message, checked: the session is ready for products."""
        with self._turn(_Due.EXTENSION):
            body = self._opened(b"columns", columns, columns_message(self._words))
            self._halves()[0].extend(body)

    def correction(self, numbers: npt.NDArray[np.int8], step: int, attempt: int) -> bytes:
        """Return the message of one product. `numbers`: [width] the own Z, -127 to 127."""
        index = (step, attempt)
        with self._turn(_Due.PRODUCTS):
            if min(index) < 0:
                raise UsageError(f"step and attempt must be >= 0, got {index}")
            if index <= self._last:
                raise Replay("pads of this step and attempt may have been used")
            if numbers.ndim != 1 or numbers.dtype != np.int8 or not len(numbers):
                raise UsageError("numbers of a product must be int8 [width]")
            if (numbers == -128).any():
                raise InputError("a number of a product lies beyond ±127")
            self._last = index
            scaled = numbers.astype(np.int64) << (self._fixed.fraction_bits - SCALE_BITS)
            ring = scaled.astype("<u8").astype(self._fixed.dtype)
            multiplier, _ = self._halves()
            correction, self._pending = multiplier.multiply(ring, self._label(index, mine=True))
            return self._sealed(b"correction", correction.tobytes(), index)

    def share(self, correction: bytes, step: int, attempt: int) -> RingWords:
        """Return [words, width] the own share of both directions, from the partner's correction."""
        index = (step, attempt)
        with self._turn(_Due.PRODUCTS):
            if index != self._last or self._pending is None:
                raise Replay("the own half of this step and attempt is not there, or was used")
            own, self._pending = self._pending, None
            length = correction_message(self._words, own.shape[1], self._fixed.word)
            body = self._opened(b"correction", correction, length, index)
            received = np.frombuffer(body, self._fixed.dtype).reshape(own.shape)
            _, chooser = self._halves()
            own += chooser.share(received, self._label(index, mine=False))
            return own

    def word(self, purpose: bytes, step: int, attempt: int, *, mine: bool) -> bytes:
        """Return the word by which this device (`mine`), or its partner, proves its messages."""
        with self._turn(_Due.PRODUCTS):
            sender = self._me if mine else self._peer
            return self._tag(sender, b"word " + purpose, (step, attempt), b"")

    def check_word(self, word: bytes, purpose: bytes, step: int, attempt: int) -> None:
        """Raise `CheckFailed` unless the partner sent its word."""
        expected = self.word(purpose, step, attempt, mine=False)
        if not hmac.compare_digest(word, expected):
            self.close()
            raise CheckFailed("a word that proves its speaker is wrong")

    @property
    def ready(self) -> bool:
        """True once products can be computed."""
        return self._due is _Due.PRODUCTS

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        self._due = _Due.NOTHING
        self._chooser = self._multiplier = self._exchange = self._pending = None
        self._key = b""

    @contextmanager
    def _turn(self, due: _Due) -> Iterator[None]:
        """Take the turn that is `due`; any error closes the session."""
        if self._due is not _Due.NOTHING and os.getpid() != self._process:
            self.close()  # two copies of a session would use the same pads for different numbers
        if self._due is _Due.NOTHING:
            raise SessionClosed("the session is closed; open a new one")
        try:
            if self._due is not due:
                raise OutOfOrder("this message of the session is not the one that is due")
            yield
        except BaseException:
            self.close()
            raise
        if due is not _Due.PRODUCTS:
            self._due = _Due(due + 1)

    def _direction(self, *, mine: bool) -> bytes:
        """Names the session and the direction in which this device (`mine`) has the numbers."""
        multiplier = self._me if mine else self._peer
        return self._sid + multiplier.to_bytes(8, "little")

    def _label(self, index: tuple[int, int], *, mine: bool) -> bytes:
        return self._direction(mine=mine) + _bytes_of(index)

    def _halves(self) -> tuple[Multiplier, Chooser]:
        if self._multiplier is None or self._chooser is None:
            raise SessionClosed("the session is closed; open a new one")
        return self._multiplier, self._chooser

    def _sealed(self, purpose: bytes, body: bytes, index: tuple[int, int] = (0, 0)) -> bytes:
        return body + self._tag(self._me, purpose, index, body)

    def _opened(
        self, purpose: bytes, message: bytes, length: int, index: tuple[int, int] = (0, 0)
    ) -> bytes:
        _check_length(message, length)
        body, check = message[:-CHECK], message[-CHECK:]
        if not hmac.compare_digest(check, self._tag(self._peer, purpose, index, body)):
            raise CheckFailed("a message is not what the partner sent")
        return body

    def _tag(self, speaker: int, purpose: bytes, index: tuple[int, int], body: bytes) -> bytes:
        named = speaker.to_bytes(8, "little") + _bytes_of(index) + purpose
        once = blake2b(named, key=self._key, digest_size=32, person=b"lumos.pair.tag").digest()
        return Poly1305.generate_tag(once, body)


def _bytes_of(index: tuple[int, int]) -> bytes:
    return index[0].to_bytes(8, "little") + index[1].to_bytes(8, "little")


def _check_length(message: bytes, expected: int) -> None:
    if len(message) != expected:
        raise WrongLength(f"a message has {len(message)} bytes instead of {expected}")

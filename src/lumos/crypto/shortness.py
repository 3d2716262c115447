"""Zero-knowledge proofs that a masked vector hides a short one.

A device publishes y = x + PRG(b) + Σ ± PRG(pair) mod 2^W. A public matrix R, drawn after y was
fixed, projects all three parts to at most `ROWS` numbers. Over the integers

    R·y = T = s + d + p + 2^W·c,     s = R·PRG(b),  d = R·Σ ± PRG(pair),  p = R·x mod 2^W, centred.

To s and d multiples of 2^W are added that follow from the same secrets (`lifts`). They hide the
carry c, so that the device sends it. It proves with Pedersen commitments in BLS12-381 G1 that
|p|² ≤ β², without showing p, s or d. It publishes commitments C and P to s and p; what is left,
D = Σ (T_i − 2^W c_i) G_i − C − P, commits to d, and the D of all devices of a sum cancel as the
masks do. The steps, proved complete, sound and zero-knowledge in `docs/proofs-of-bounds.md`:

1. C, P; N, a commitment to four squares, Σ sq² = β² − |p|²; and Q, one to 128 masks g.
2. A random ternary matrix R' with 128 rows; h = R'(sq, p) + g, accepted if it is small. So all of
   sq and p are small integers, and nothing comes round modulo the group order q.
3. A random ξ makes one equation of |p|² + |sq|² = β² and of the 128 rows of h.
4. That equation is one coefficient of a polynomial in X, made of f(X) = p + X g + X² α and
   s(X) = sq + X β with nonce vectors α, β. The other five coefficients are committed to in W; f, s
   and the blindings are opened at a random e.

Secret numbers meet the library's variable-time multi-exponentiation only under a uniform mask
(`_Hider`). Nonces are derived from the caller's randomness *and* the statement and witness
(`_private_stream`), so that a device which restarts cannot use one nonce for two challenges.
"""

import hashlib
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, repeat, zip_longest
from operator import mul

import numpy as np
import numpy.typing as npt
from py_arkworks_bls12381 import G1Point, Scalar

from lumos.crypto.entropy import Expanded, InMemoryOnly
from lumos.typing import Doubles, Flags, Ints, Small

ROWS = 256
"""Rows of the projection. Narrower vectors are not projected."""
ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Prime order q of the group."""
MAX_WORD_BITS = 64
MAX_WIDTH = 1 << 21

TAU = 2.68
"""β² = TAU·(ROWS/2)·B²: an honest |x| ≤ B has |R·x|² > β² with probability below 2^-128."""
COMPLETENESS_BITS = 128
SOUNDNESS_BITS = 56
"""A vector longer than the proved bound passes with probability below 2^-56."""
_MIN_THETA = 0.33  # the lemma's Hölder bound is largest in the Gaussian case down to here

_CHECKS = 128  # rows of R', which shows that committed numbers are small integers
_SQUARES = 4
_LIFT_PIECES = 3  # of 32 bits: other summands move 256 carries by w + 1, hidden but for 2^-73
_CARRY_BYTES = 14  # |c| <= (1 + mask neighbours)·(2^96 + width) + 1, always far below
_PRODUCT_BITS = 68  # |R'(sq, p)| <= sqrt(260)·2^63 < 2^68 for words of 64 bits
_MASK_BITS = _PRODUCT_BITS + 15  # of g: a repetition is rarer than 128·2^-15 = 2^-8
# Numbers pass the check of R' only below 2^(MASK_BITS + 1). Sums of their squares are then below q,
# and so are sums of 2^W c over a million devices: equations modulo q hold in integers.
_H_LIMIT = (1 << _MASK_BITS) - (1 << _PRODUCT_BITS)
_H_BYTES = 11
_POINT = 48
_SCALAR = 32
_DOMAIN = b"lumos-shortness-v1"


class BadProof(ValueError):
    """A proof does not parse: its length, a point, a scalar or a number out of range."""


# Bounds.


def _tail_bits(ratio: float) -> float:
    """Bits of the Chernoff bound for |R·x|² ≥ ratio·mean (ratio > 1) or ≤ ratio·mean (< 1)."""
    return ROWS / 2 * (ratio - 1 - math.log(ratio)) / math.log(2)


@lru_cache
def _theta(bits: float) -> float:
    """The largest ratio θ < 1 whose lower tail is at most 2^-bits, by bisection."""
    low, high = _MIN_THETA, 1.0
    if _tail_bits(low) < bits:
        raise ValueError(f"{ROWS} rows give at most 2^-{_tail_bits(low):.0f}, not 2^-{bits:g}")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail_bits(middle) >= bits else (low, middle)
    return low


def proved_factor(width: int, bits: float = SOUNDNESS_BITS) -> float:
    """Ratio of the proved bound to the honest one.

    Args:
        width: numbers of a vector. Up to `ROWS` the bound is proved exactly.
        bits: a longer vector passes with probability at most 2^-bits.
    """
    return 1.0 if width <= ROWS else math.sqrt(TAU / _theta(bits))


def projected_bound(bound: float, width: int) -> int:
    """Return β², the bound of |R·x|² for an honest |x| ≤ `bound`."""
    square = Fraction(bound) ** 2  # exact: all participants get the same number
    return math.floor(square if width <= ROWS else Fraction(TAU) * ROWS / 2 * square)


def allowed(bound: float, width: int, word_bits: int, liars: int = 1) -> bool:
    """Return whether the ring is large enough for the proof to mean what it says.

    The sum of the vectors of `liars` devices must not come round the ring: exactly for vectors that
    are not projected; by the lemma's condition √(B'² + 4β²) ≤ 2^(W − 5) for projected ones.
    """
    if not 0 < word_bits <= MAX_WORD_BITS or bound <= 0:
        return False
    if width <= ROWS:
        return liars * bound < math.ldexp(1, word_bits - 1)
    proved = (proved_factor(width) * bound) ** 2 + 4 * projected_bound(bound, width)
    return liars * math.sqrt(proved) <= math.ldexp(1, word_bits - 5)


# Exact integer products by float64 matrix multiplication on pieces of 32 bits: every partial sum
# stays below 2^53 for widths up to 2^21.

_PIECE = 32
_LOW = np.int64((1 << _PIECE) - 1)


def _pieces(numbers: Sequence[int], count: int) -> Doubles:
    """[numbers, count] pieces of 32 bits of numbers in [0, 2^(32·count)), lowest first."""
    joined = b"".join([number.to_bytes(4 * count, "little") for number in numbers])
    return np.frombuffer(joined, "<u4").reshape(len(numbers), count).astype(np.float64)


def _joined(pieces: Ints) -> list[int]:
    """The integers Σ_k pieces[:, k]·2^(32k); pieces have signs and up to 62 bits."""
    rows, count = pieces.shape
    words = np.empty((rows, count + 2), "<u4")
    carry = np.zeros(rows, np.int64)
    for k in range(count):
        carry = carry + pieces[:, k]
        words[:, k] = carry & _LOW
        carry >>= _PIECE
    words[:, count] = carry & _LOW
    words[:, count + 1] = (carry >> _PIECE) & _LOW
    size = 4 * (count + 2)
    joined = words.tobytes()
    return [
        int.from_bytes(joined[start : start + size], "little", signed=True)
        for start in range(0, rows * size, size)
    ]


def _ternary(seed: bytes, rows: int, columns: int) -> Small:
    """A [rows, columns] matrix of −1, 0, 1 with probabilities ¼, ½, ¼ from SHAKE256."""
    count = rows * columns
    size = (count + 7) // 8
    packed = np.frombuffer(hashlib.shake_256(seed).digest(2 * size), np.uint8).reshape(2, size)
    bits = np.unpackbits(packed, axis=1, count=count).view(np.int8)
    entries: Small = bits[0] - bits[1]
    return entries.reshape(rows, columns)


_COLUMNS = 4096  # of R at a time as float64: 8 MB
_NUMBERS = 1 << 20  # of vectors at a time: 8 MB for each piece


class Projection:
    """Product with the public matrix R of a challenge; the identity for widths up to `ROWS`.

    Args:
        challenge: what all devices derived after the masked vectors were fixed.
        width: numbers of a vector.
    """

    def __init__(self, challenge: bytes, width: int) -> None:
        if not 0 < width <= MAX_WIDTH:
            raise ValueError(f"width must be in 1..{MAX_WIDTH}, not {width}")
        self.width = width
        self.rows = min(width, ROWS)
        self._matrix = None
        if width > ROWS:
            seed = _hash(b"projection", challenge, width.to_bytes(8, "little"))
            self._matrix = _ternary(seed, ROWS, width)

    def apply(self, words: npt.NDArray[np.unsignedinteger]) -> list[list[int]]:
        """Return R·row as exact integers for each row of [n, width] unsigned words."""
        products: list[list[int]] = []
        for part in self._parts(len(words)):
            wide = words[part].astype(np.uint64)
            low, high = wide & np.uint64(_LOW), wide >> np.uint64(_PIECE)
            products += self._product([low.astype(np.int64), high.astype(np.int64)])
        return products

    def apply_halves(self, low: Ints, high: Ints) -> list[list[int]]:
        """Return R·(low + 2^32·high) for each row of [n, width] integers with signs.

        Sums of masks of many neighbours are formed in halves, which do not overflow.
        """
        products: list[list[int]] = []
        for part in self._parts(len(low)):
            carried = high[part] + (low[part] >> _PIECE)
            products += self._product([low[part] & _LOW, carried & _LOW, carried >> _PIECE])
        return products

    def _parts(self, count: int) -> list[slice]:
        """Vectors at a time."""
        step = max(1, _NUMBERS // self.width)
        return [slice(start, start + step) for start in range(0, count, step)]

    def _product(self, pieces: list[Ints]) -> list[list[int]]:
        """R·Σ_k 2^(32k) pieces_k for [n, width] pieces of at most 32 bits."""
        if pieces[0].shape[1] != self.width:
            raise ValueError(f"a vector has {self.width} numbers, not {pieces[0].shape[1]}")
        products = self._exact(np.stack(pieces))
        joined = _joined(products.transpose(1, 2, 0).reshape(-1, len(pieces)))
        return [joined[i : i + self.rows] for i in range(0, len(joined), self.rows)]

    def _exact(self, pieces: Ints) -> Ints:
        """[pieces, n, rows] products of [pieces, n, width] numbers of at most 32 bits."""
        if self._matrix is None:
            return pieces
        total = np.zeros((*pieces.shape[:2], self.rows))
        for start in range(0, self.width, _COLUMNS):
            part = slice(start, start + _COLUMNS)
            block = self._matrix[:, part].astype(np.float64)
            total += pieces[:, :, part].astype(np.float64) @ block.T
        return total.astype(np.int64)


def projection(challenge: bytes, width: int) -> Projection:
    """Return the projection of a challenge."""
    return Projection(challenge, width)


def lifts(keys: Sequence[bytes], signs: Sequence[int], word_bits: int, rows: int) -> list[int]:
    """[rows] multiples of 2^word_bits that are added to a projected mask, or to a sum of masks.

    Each key is expanded to uniform numbers of 96 bits. They hide the carry from whoever does not
    have one of the keys, and cancel where the masks do.

    Args:
        keys: 32 bytes each, made of the secrets of masks and of the challenge for this purpose.
        signs: 1 where a mask is added, -1 where it is taken away.
        word_bits: W.
        rows: numbers of a projected vector.
    """
    total = np.zeros((rows, _LIFT_PIECES), np.int64)
    for key, sign in zip(keys, signs, strict=True):
        drawn = np.frombuffer(Expanded(key).draw(4 * total.size), "<u4").reshape(total.shape)
        total += sign * drawn.astype(np.int64)
    return [number << word_bits for number in _joined(total)]


# Group.

_SLOTS = _SQUARES + ROWS


@lru_cache(maxsize=1)
def _generators() -> list[G1Point]:
    """S_1 … S_4, G_1 … G_ROWS, U, H: hashes to the curve, so that nobody knows a relation."""
    return [
        G1Point.hash_to_curve(number.to_bytes(4, "little"), _DOMAIN) for number in range(_SLOTS + 2)
    ]


_DIGIT = 11  # bytes; a scalar has three


@lru_cache(maxsize=1)
def _tables() -> list[list[G1Point]]:
    """[3][generators] the generators times 1, 2^88 and 2^176.

    With them a multi-exponentiation has three times the points and scalars of a third of the
    length: its buckets are added up a third as often.
    """
    shift = Scalar.from_le_bytes((1 << 8 * _DIGIT).to_bytes(_SCALAR, "little"))
    tables = [_generators()]
    while len(tables) < 3:
        tables.append([point * shift for point in tables[-1]])
    return tables


def warm_up() -> None:
    """Compute what all proofs share, in a process that devices are forked from."""
    _tables()


def _fixed_sum(start: int, stop: int, numbers: Sequence[int]) -> G1Point:
    """Σ numbers_i·generator_i + numbers_last·H, in time that depends on the numbers."""
    points = [point for table in _tables() for point in (*table[start:stop], table[_SLOTS + 1])]
    encoded = [(number % ORDER).to_bytes(_SCALAR, "little") for number in numbers]
    digits = [
        Scalar.from_le_bytes(number[at : at + _DIGIT].ljust(_SCALAR, b"\0"))
        for at in range(0, _SCALAR, _DIGIT)
        for number in encoded
    ]
    return G1Point.multiexp_unchecked(points, digits)


def _slots(rows: int) -> int:
    """Length of the vectors p, g, α of the polynomial, each padded with zeros."""
    return max(rows, _CHECKS)


def _sum(points: Sequence[G1Point], scalars: Sequence[int]) -> G1Point:
    """Σ scalar·point, in time that depends on the scalars."""
    reduced = [Scalar.from_le_bytes((k % ORDER).to_bytes(_SCALAR, "little")) for k in scalars]
    return G1Point.multiexp_unchecked(list(points), reduced)


def _commit(numbers: Sequence[int], blinding: int) -> G1Point:
    """Σ numbers_i G_i + blinding·H, for opened numbers."""
    return _fixed_sum(_SQUARES, _SQUARES + len(numbers), [*numbers, blinding])


def self_commitment(projected: Sequence[int], blinding: int) -> bytes:
    """Return C of an opened self mask. The time depends on the numbers."""
    return _bytes(_commit(projected, blinding))


def pair_commitment(projected: Sequence[int], blinding: int) -> bytes:
    """Return D of opened pair masks. The time depends on the numbers."""
    return _bytes(_commit(projected, blinding))


def _bytes(point: G1Point) -> bytes:
    return bytes(point.to_compressed_bytes())


class _ProcessMask(InMemoryOnly):
    """A uniform mask of all generators, drawn once in a process, and its commitments."""

    def __init__(self) -> None:
        self.numbers = [secrets.randbelow(ORDER) for _ in _generators()]
        self._offsets: dict[tuple[int, int], G1Point] = {}

    def offset(self, start: int, stop: int) -> G1Point:
        """Return the commitment to the mask of some generators, and of H."""
        if (start, stop) not in self._offsets:
            numbers = [*self.numbers[start:stop], self.numbers[-1]]
            self._offsets[start, stop] = _fixed_sum(start, stop, numbers)
        return self._offsets[start, stop]


_process_mask = lru_cache(maxsize=1)(_ProcessMask)


class _Hider:
    """Commitments to secret vectors as (vector + t·mask)·basis − t·(mask·basis).

    The mask is that of the process, and t is fresh for each proof. So each multi-exponentiation
    alone runs on uniform scalars, independent of the vectors and of what a proof shows of them. (A
    nonce needs that too: α = (f − p − …)/e² depends on the witness as soon as f is known.)
    """

    def __init__(self, stream: Expanded) -> None:
        (factor,) = _uniform(stream, 1)
        self._factor = Scalar.from_le_bytes(factor.to_bytes(_SCALAR, "little"))
        self._mask = [factor * number % ORDER for number in _process_mask().numbers]
        self._offsets: dict[tuple[int, int], G1Point] = {}

    def commit(self, start: int, size: int, opening: "_Opening") -> bytes:
        """Σ numbers_i G_i + blinding·H, for `size` generators from the `start`th on."""
        stop = start + size
        mask = [*self._mask[start:stop], self._mask[-1]]
        secret = [*opening.numbers, *[ORDER] * (size - len(opening.numbers)), opening.blinding]
        hidden = [a + b for a, b in zip(secret, mask, strict=True)]
        if (start, stop) not in self._offsets:
            self._offsets[start, stop] = _process_mask().offset(start, stop) * self._factor
        return _bytes(_fixed_sum(start, stop, hidden) - self._offsets[start, stop])


class _Opening(InMemoryOnly):
    """A secret vector and its blinding, all numbers in [q, 2q): equally long for any value."""

    def __init__(self, numbers: Sequence[int], blinding: int) -> None:
        self.numbers = [number % ORDER + ORDER for number in numbers]
        self.blinding = blinding % ORDER + ORDER


def _uniform(stream: Expanded, count: int) -> list[int]:
    """`count` scalars, uniform up to 2^-129."""
    size = _SCALAR + 16
    return [
        int.from_bytes(part, "little") % ORDER for part in _split(stream.draw(size * count), size)
    ]


def _split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    """Inner product over the length of the shorter one."""
    return sum(map(mul, left, right))


# Statements and challenges.


def _hash(label: bytes, *parts: bytes) -> bytes:
    state = hashlib.blake2b(person=b"lumos-shortness", digest_size=64)
    for part in (label, *parts):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def _encoded(numbers: Sequence[int]) -> bytes:
    return b"".join([number.to_bytes(24, "little", signed=True) for number in numbers])


def _encoded_scalars(scalars: Sequence[int]) -> bytes:
    return b"".join([(scalar % ORDER).to_bytes(_SCALAR, "little") for scalar in scalars])


@dataclass(frozen=True)
class Statement:
    """Public input of a proof: R·x of the vector that `masked` hides has a square sum ≤ β².

    Args:
        context: what the proof is bound to: run, sum, attempt, device.
        challenge: the bytes that the projection was drawn from.
        word_bits: W, bits of a number of the masked vector.
        width: numbers of the masked vector.
        square_bound: β², of `projected_bound`.
        masked: T = R·y, [min(width, ROWS)] integers.
    """

    context: bytes
    challenge: bytes
    word_bits: int
    width: int
    square_bound: int
    masked: Sequence[int]

    def __post_init__(self) -> None:
        if not 0 < self.word_bits <= MAX_WORD_BITS:
            raise ValueError(f"word_bits must be in 1..{MAX_WORD_BITS}, not {self.word_bits}")
        if not 0 < self.width <= MAX_WIDTH:
            raise ValueError(f"width must be in 1..{MAX_WIDTH}, not {self.width}")
        if not 0 <= self.square_bound < 1 << (2 * self.word_bits - 2):
            raise ValueError("square_bound is not below the square of half the ring")
        if len(self.masked) != min(self.width, ROWS):
            raise ValueError(f"expected {min(self.width, ROWS)} rows, got {len(self.masked)}")

    @property
    def rows(self) -> int:
        """Length of a projected vector."""
        return len(self.masked)

    def digest(self) -> bytes:
        """Hash of all fields."""
        numbers = (self.word_bits, self.width, self.square_bound, *self.masked)
        return _hash(b"statement", self.context, self.challenge, _encoded(numbers))


@dataclass(frozen=True, repr=False)
class Witness(InMemoryOnly):
    """Secret input of a proof.

    Args:
        short: p, the projection of x, centred modulo 2^W.
        self_projected: s, the projection of the self mask, and its lifts.
        self_blinding: of the commitment to s; whoever learns the self secret can recompute it.
        pair_projected: d, the projection of the signed sum of pair masks, and their lifts.
        pair_blinding: the signed sum of the pairs' blindings.
    """

    short: Sequence[int]
    self_projected: Sequence[int]
    self_blinding: int
    pair_projected: Sequence[int]
    pair_blinding: int

    def digest(self) -> bytes:
        """Hash of all fields."""
        parts = (self.short, self.self_projected, self.pair_projected)
        blindings = _encoded_scalars((self.self_blinding, self.pair_blinding))
        return _hash(b"witness", *(_encoded(part) for part in parts), blindings)


def _private_stream(
    statement: Statement, witness: Witness, random: Callable[[int], bytes]
) -> Expanded:
    """Expand the caller's randomness, bound to statement and witness.

    A caller that draws the same bytes again after a restart, for another challenge, gets other
    nonces: two answers of one nonce would give the witness away.
    """
    key = _hash(b"private", random(32), statement.digest(), witness.digest())
    return Expanded(key[:32])


class _Transcript:
    """The random oracle's side of a proof: a hash over all messages so far.

    Args:
        statement: what is proved.
        carry: c, the first message.
    """

    def __init__(self, statement: Statement, carry: Sequence[int]) -> None:
        self._state = _hash(b"carry", statement.digest(), _encoded(carry))

    def add(self, label: bytes, *parts: bytes) -> None:
        """Append a message."""
        self._state = _hash(label, self._state, *parts)

    def matrix(self, rows: int) -> Small:
        """R', [128, 4 + rows]."""
        return _ternary(_hash(b"matrix", self._state), _CHECKS, _SQUARES + rows)

    def scalar(self) -> int:
        """A challenge modulo q."""
        return int.from_bytes(_hash(b"scalar", self._state), "little") % ORDER


@dataclass(frozen=True)
class _Relation:
    """The relation of what is committed to: |p|² + |sq|² + ⟨squares, sq⟩ + ⟨short, p⟩ + ⟨mask, g⟩
    = total.

    It is |p|² + |sq|² = β² plus Σ_i ξ^i·(row i of R'(sq, p) + g = h), step 3.
    """

    squares: list[int]
    short: list[int]
    mask: list[int]
    total: int

    @staticmethod
    def of(statement: Statement, matrix: Small, checks: Sequence[int], point: int) -> "_Relation":
        """Weigh the rows of R' with the powers of ξ."""
        powers = list(accumulate(repeat(point, _CHECKS), lambda power, by: power * by % ORDER))
        product = matrix.T.astype(np.float64) @ _pieces(powers, _SCALAR // 4)
        weights = [number % ORDER for number in _joined(product.astype(np.int64))]
        total = (statement.square_bound + _dot(powers, checks)) % ORDER
        return _Relation(weights[:_SQUARES], weights[_SQUARES:], powers, total)

    def value(self, f: Sequence[int], squares: Sequence[int], e: int) -> int:
        """Ψ(e) = e·(|f|² + ⟨short, f⟩ + |s|² + ⟨squares, s⟩) + ⟨mask, f⟩ at f(e) and s(e)."""
        numbers = f[: len(self.short)]  # those that R' checks; others may be anything modulo q
        square = _dot(numbers, numbers) + _dot(self.short, numbers)
        square += _dot(squares, squares) + _dot(self.squares, squares)
        return (e * square + _dot(self.mask, f)) % ORDER

    def coefficients(
        self, vectors: Sequence[Sequence[int]], squares: Sequence[Sequence[int]]
    ) -> list[int]:
        """Ψ(X) for f(X) = Σ_i vectors_i X^i and s(X) = Σ_i squares_i X^i.

        Six numbers, of which number 1 is `total`.
        """
        result = [0] * 6
        checked = [vector[: len(self.short)] for vector in vectors]
        for parts, weights in ((checked, self.short), (squares, self.squares)):
            for i, left in enumerate(parts):
                result[1 + i] += _dot(weights, left)
                for j, right in enumerate(parts[i:], i):
                    result[1 + i + j] += _dot(left, right) * (1 + (i != j))
        for i, vector in enumerate(vectors):
            result[i] += _dot(self.mask, vector)
        return [number % ORDER for number in result]


_TARGET = 1  # the coefficient of Ψ that is public
_OTHERS = [k for k in range(6) if k != _TARGET]


# Proofs.

_COMMITTED, _POINTS = 4, 6 + len(_OTHERS)


@dataclass(frozen=True)
class _Proof:
    """The messages of a proof; points as bytes, scalars modulo q."""

    carry: list[int]
    """c"""
    committed: list[bytes]
    """C, P, N, Q."""
    checks: list[int]
    """h, 128 small integers."""
    announced: list[bytes]
    """A and B, commitments to the nonces α and β, and W, to the coefficients of Ψ but the public
    one."""
    response: list[int]
    """f(e)."""
    squares: list[int]
    """s(e)."""
    blindings: list[int]
    """The openings of P + e Q + e² A, N + e B and Σ e^k W_k."""

    def to_bytes(self) -> bytes:
        """Encode with fixed lengths."""
        small = [
            number.to_bytes(size, "little", signed=True)
            for numbers, size in ((self.carry, _CARRY_BYTES), (self.checks, _H_BYTES))
            for number in numbers
        ]
        scalars = _encoded_scalars([*self.response, *self.squares, *self.blindings])
        return b"".join([*self.committed, *self.announced, *small, scalars])

    @staticmethod
    def parse(data: bytes, rows: int) -> "_Proof":
        """Decode; raises `BadProof` unless every number is canonical."""
        if len(data) != proof_size(rows):
            raise BadProof(f"a proof has {proof_size(rows)} bytes, not {len(data)}")
        carry_at = _POINTS * _POINT
        checks_at = carry_at + rows * _CARRY_BYTES
        scalars_at = checks_at + _CHECKS * _H_BYTES
        points = _split(data[:carry_at], _POINT)
        carry, checks = (
            [int.from_bytes(part, "little", signed=True) for part in _split(numbers, size)]
            for numbers, size in (
                (data[carry_at:checks_at], _CARRY_BYTES),
                (data[checks_at:scalars_at], _H_BYTES),
            )
        )
        scalars = [int.from_bytes(part, "little") for part in _split(data[scalars_at:], _SCALAR)]
        if not _accepted(checks):
            raise BadProof("a check number is out of range")
        if max(scalars) >= ORDER:
            raise BadProof("a scalar is not reduced")
        slots = _slots(rows)
        return _Proof(
            carry,
            points[:_COMMITTED],
            checks,
            points[_COMMITTED:],
            scalars[:slots],
            scalars[slots : slots + _SQUARES],
            scalars[slots + _SQUARES :],
        )


def _accepted(checks: Sequence[int]) -> bool:
    """Return whether h is in the range where it is uniform, whatever the witness."""
    return min(checks) >= -_H_LIMIT and max(checks) < _H_LIMIT


def proof_size(rows: int) -> int:
    """Return the bytes of a proof for vectors of `rows` projected numbers."""
    numbers = rows * _CARRY_BYTES + _CHECKS * _H_BYTES
    return _POINTS * _POINT + numbers + (_slots(rows) + _SQUARES + 3) * _SCALAR


def prove(statement: Statement, witness: Witness, random: Callable[[int], bytes]) -> bytes:
    """Prove that the vector which a masked one hides is short.

    Args:
        statement: public input.
        witness: secret input.
        random: returns private uniform bytes.

    Raises:
        ValueError: the witness does not fit the statement; the message tells no number.
    """
    stream = _private_stream(statement, witness, random)
    carry = _carry(statement, witness)
    roots = four_squares(_rest(statement, witness), stream)
    small = [*roots, *witness.short]
    rows, slots = statement.rows, _slots(statement.rows)

    # Step 1. The blinding of P makes that of D what the caller gave.
    squares_blinding, mask_blinding, nonce_blinding, square_nonce_blinding = _uniform(stream, 4)
    own = _Opening(witness.self_projected, witness.self_blinding)
    short = _Opening(witness.short, -(witness.pair_blinding + witness.self_blinding))
    squares = _Opening(roots, squares_blinding)
    hider = _Hider(stream)
    committed = [hider.commit(_SQUARES, rows, opening) for opening in (own, short)]
    committed.append(hider.commit(0, _SQUARES, squares))

    # Step 2, by rejection: h is then uniform in its range. What is rejected is not shown.
    while True:
        drawn = _masks(stream)
        masks = _Opening(drawn, mask_blinding)
        committed[3:] = [hider.commit(_SQUARES, _CHECKS, masks)]
        transcript = _Transcript(statement, carry)
        transcript.add(b"committed", *committed)
        matrix = transcript.matrix(rows)
        checks = [a + b for a, b in zip(_signed_product(matrix, small), drawn, strict=True)]
        if _accepted(checks):
            break

    # Step 3.
    transcript.add(b"checks", _encoded(checks))
    relation = _Relation.of(statement, matrix, checks, transcript.scalar())

    # Step 4.
    nonces = _Opening(_uniform(stream, slots), nonce_blinding)
    square_nonces = _Opening(_uniform(stream, _SQUARES), square_nonce_blinding)
    polynomials: list[tuple[_Opening, ...]] = [
        (short, masks, nonces),
        (squares, square_nonces),
    ]
    coefficients = relation.coefficients(
        *([part.numbers for part in polynomial] for polynomial in polynomials)
    )
    others = [_Opening([coefficients[k]], *_uniform(stream, 1)) for k in _OTHERS]
    announced = [
        hider.commit(_SQUARES, slots, nonces),
        hider.commit(0, _SQUARES, square_nonces),
        *(hider.commit(_SLOTS, 1, other) for other in others),
    ]
    transcript.add(b"announced", *announced)
    e = transcript.scalar()
    response, square_response = (
        [
            _evaluated(column, e)
            for column in zip_longest(*(part.numbers for part in polynomial), fillvalue=ORDER)
        ]
        for polynomial in polynomials
    )
    others.insert(_TARGET, _Opening([], 0))
    blindings = [
        _evaluated([part.blinding for part in polynomial], e)
        for polynomial in (*polynomials, others)
    ]
    return _Proof(
        carry, committed, checks, announced, response, square_response, blindings
    ).to_bytes()


def _carry(statement: Statement, witness: Witness) -> list[int]:
    """Return c = (T − s − d − p) / 2^W."""
    carry = []
    half = 1 << (statement.word_bits - 1)
    parts = (witness.self_projected, witness.pair_projected, witness.short)
    for total, own, pairs, short in zip(statement.masked, *parts, strict=True):
        number, rest = divmod(total - own - pairs - short, 2 * half)
        if rest or not -half <= short < half or abs(number) >> (8 * _CARRY_BYTES - 1):
            raise ValueError("the witness does not fit the masked vector")
        carry.append(number)
    return carry


def _rest(statement: Statement, witness: Witness) -> int:
    """Return β² − |p|²."""
    rest = statement.square_bound - _dot(witness.short, witness.short)
    if rest < 0:
        raise ValueError("the projected vector is longer than the bound")
    return rest


def _masks(stream: Expanded) -> list[int]:
    """g, 128 integers uniform in [−2^MASK_BITS, 2^MASK_BITS)."""
    half = 1 << _MASK_BITS
    drawn = _split(stream.draw(_H_BYTES * _CHECKS), _H_BYTES)
    return [(int.from_bytes(part, "little") & (2 * half - 1)) - half for part in drawn]


_OFFSET = 1 << 90  # makes secret numbers equally long, whatever their sign and size


def _signed_product(matrix: Small, numbers: Sequence[int]) -> list[int]:
    """matrix·numbers over the integers, for |numbers| < 2^90."""
    shifted = matrix.astype(np.float64) @ _pieces([k + _OFFSET for k in numbers], 3)
    sums = matrix.sum(axis=1, dtype=np.int64).tolist()
    products = _joined(shifted.astype(np.int64))
    return [number - total * _OFFSET for number, total in zip(products, sums, strict=True)]


def _evaluated(coefficients: Sequence[int], e: int) -> int:
    """Σ_i coefficients_i e^i modulo q (Horner)."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * e + coefficient) % ORDER
    return value


# Four squares (Rabin and Shallit 1986).

_FEW = 1 << 12


def four_squares(number: int, stream: Expanded) -> list[int]:
    """Return four integers whose squares sum up to `number`, by random search.

    After powers of 4 are divided out, random x, y are drawn with a parity that makes
    number − x² − y² ≡ 1 (mod 4), until that is a prime and hence a sum of two squares.
    """
    power = 0
    while number and number % 4 == 0:
        number //= 4
        power += 1
    found = _search(number) if number < _FEW else _random_search(number, stream)
    return [root << power for root in found]


def _search(number: int) -> list[int]:
    for first in range(math.isqrt(number), -1, -1):
        for second in range(math.isqrt(number - first**2), -1, -1):
            rest = number - first**2 - second**2
            for third in range(math.isqrt(rest), -1, -1):
                fourth = math.isqrt(rest - third**2)
                if third**2 + fourth**2 == rest:
                    return [first, second, third, fourth]
    raise AssertionError("Lagrange: every natural number is a sum of four squares")


_SMALL_PRIMES = math.prod(k for k in range(3, 400, 2) if all(k % d for d in range(3, k, 2)))


def _random_search(number: int, stream: Expanded) -> list[int]:
    odd = (number - 1) % 4  # how many of x, y are odd
    limit = math.isqrt(number // 2)
    size = (limit.bit_length() + 7) // 8 + 8
    while True:
        x, y = (int.from_bytes(stream.draw(size), "little") % limit for _ in range(2))
        x, y = x & ~1 | (odd >= 1), y & ~1 | (odd == 2)
        rest = number - x * x - y * y
        if rest > 1 and math.gcd(rest, _SMALL_PRIMES) == 1:
            pair = _two_squares(rest, 2 + stream.draw(1)[0])
            if pair is not None:
                return [x, y, *pair]


def _two_squares(prime: int, base: int) -> tuple[int, int] | None:
    """Two squares that sum up to a prime ≡ 1 (mod 4), or None: base or prime did not fit."""
    root = pow(base, (prime - 1) // 4, prime)
    if root * root % prime != prime - 1:
        return None
    # Euclid's algorithm, stopped below the square root (Hermite, Serret).
    larger, smaller = prime, root
    while smaller * smaller > prime:
        larger, smaller = smaller, larger % smaller
    other = math.isqrt(prime - smaller * smaller)
    return (smaller, other) if smaller * smaller + other * other == prime else None


# Verification.


@dataclass(frozen=True)
class PairCommitment:
    """D = Σ (T_i − 2^W c_i) G_i − C − P, kept as its parts: a sum of many costs one evaluation."""

    masked: Sequence[int]
    """T − 2^W c"""
    plain: G1Point
    """C + P"""

    def to_bytes(self) -> bytes:
        """Return the point, as `pair_commitment` does."""
        return _bytes(_total([self], self.masked, 0))


@dataclass(frozen=True)
class Verified:
    """Outcome of a batch of proofs, in the order of the statements."""

    valid: Flags
    """[n]"""
    self_commitment: list[bytes | None]
    """[n] C; None where a proof does not hold."""
    pair: list[PairCommitment | None]
    """[n] D; None where a proof does not hold."""


@dataclass(frozen=True)
class _Equation:
    """Σ fixed_i·generator_i = Σ scalars_i·points_i: a random combination of a proof's equations."""

    fixed: list[int]
    points: list[G1Point]
    scalars: list[int]


def verify(statements: Sequence[Statement], proofs: Sequence[bytes]) -> Verified:
    """Check proofs together; where that fails, find the wrong ones by bisection."""
    valid = np.zeros(len(statements), np.bool_)
    self_commitments: list[bytes | None] = [None] * len(statements)
    pairs: list[PairCommitment | None] = [None] * len(statements)
    parsed = {}
    equations = {}
    for number, (statement, data) in enumerate(zip(statements, proofs, strict=True)):
        try:
            proof = _Proof.parse(data, statement.rows)
            points = _parsed_points([*proof.committed, *proof.announced])
        except BadProof:
            continue
        parsed[number] = proof, points
        equations[number] = _equation(statement, proof, points[1:])
    for number in _holding(equations, list(equations)):
        valid[number] = True
        proof, (own, short, *_) = parsed[number]
        self_commitments[number] = proof.committed[0]
        totals, bits = statements[number].masked, statements[number].word_bits
        masked = [total - (c << bits) for total, c in zip(totals, proof.carry, strict=True)]
        pairs[number] = PairCommitment(masked, own + short)
    return Verified(valid, self_commitments, pairs)


def _parsed_points(encoded: Sequence[bytes]) -> list[G1Point]:
    try:
        points = [G1Point.from_compressed_bytes(data) for data in encoded]
    except ValueError as error:
        raise BadProof("a point is not in the group") from error
    identity = G1Point.identity()
    if any(point == identity for point in points):
        raise BadProof("a point is the identity")
    return points


def _equation(statement: Statement, proof: _Proof, points: list[G1Point]) -> _Equation:
    """Combine the three equations of step 4 with random weights.

    P + e Q + e² A = Σ f_i G_i + z H,   N + e B = Σ s_i S_i + z' H   and
    Σ_{k≠1} e^k W_k = (Ψ(e) − e total) U + w H.
    """
    transcript = _Transcript(statement, proof.carry)
    transcript.add(b"committed", *proof.committed)
    matrix = transcript.matrix(statement.rows)
    transcript.add(b"checks", _encoded(proof.checks))
    relation = _Relation.of(statement, matrix, proof.checks, transcript.scalar())
    transcript.add(b"announced", *proof.announced)
    e = transcript.scalar()
    powers = [pow(e, k, ORDER) for k in range(6)]
    first, second, third = weights = [secrets.randbits(128) for _ in range(3)]
    others = relation.value(proof.response, proof.squares, e) - powers[_TARGET] * relation.total
    fixed = [second * number for number in proof.squares]
    fixed += [first * number for number in proof.response]
    fixed += [0] * (_SLOTS - len(fixed))
    fixed += [third * others, _dot(weights, proof.blindings)]
    # Of P, N, Q, A, B and W.
    scalars = [first, second, first * e, first * powers[2], second * e]
    return _Equation(fixed, points, scalars + [third * powers[k] for k in _OTHERS])


def _holding(equations: dict[int, _Equation], numbers: list[int]) -> list[int]:
    """Return which of the numbered equations hold."""
    if not numbers or _holds([equations[number] for number in numbers]):
        return numbers
    if len(numbers) == 1:
        return []
    half = len(numbers) // 2
    return _holding(equations, numbers[:half]) + _holding(equations, numbers[half:])


def _holds(equations: Sequence[_Equation]) -> bool:
    fixed = [-sum(column) for column in zip(*(e.fixed for e in equations), strict=True)]
    points = [point for equation in equations for point in equation.points]
    scalars = [scalar for equation in equations for scalar in equation.scalars]
    return bool(_sum([*_generators(), *points], [*fixed, *scalars]) == G1Point.identity())


def correctly_opened(
    commitments: Sequence[bytes], openings: Sequence[tuple[Sequence[int], int]]
) -> Flags:
    """[n] Return which C are the commitments to opened self masks: one check, halved if it fails.

    Args:
        commitments: C of proofs that hold, so points of the group.
        openings: projected self masks and their blindings.
    """
    equations = {}
    for place, (data, (numbers, blinding)) in enumerate(zip(commitments, openings, strict=True)):
        weight = secrets.randbits(128)
        fixed = [*[0] * _SQUARES, *(weight * number for number in numbers)]
        fixed += [*[0] * (_SLOTS + 1 - len(fixed)), weight * blinding]
        equations[place] = _Equation(
            fixed, [G1Point.from_compressed_bytes_unchecked(data)], [weight]
        )
    right = np.zeros(len(equations), np.bool_)
    right[_holding(equations, list(equations))] = True
    return right


def _total(pairs: Sequence[PairCommitment], numbers: Sequence[int], blinding: int) -> G1Point:
    """Σ numbers_i G_i + blinding·H − Σ (C + P)."""
    total = _commit(numbers, blinding)
    for pair in pairs:
        total -= pair.plain
    return total


def cancel(
    pairs: Sequence[PairCommitment | None],
    projected: Sequence[int] | None = None,
    blinding: int = 0,
) -> bool:
    """Return whether the sum of D is the commitment to the masks of lost neighbours.

    It says nothing about a part of the devices: if one is left out afterwards, check the others
    again with the masks that they share with it. It could have balanced a lie of one that stays.

    Args:
        pairs: D of the devices whose masked vectors are summed; with a None, the answer is no.
        projected: projection of what their pair masks sum up to, from the opened secrets of lost
            devices; None: no device was lost and all masks cancel.
        blinding: what their pair blindings sum up to.
    """
    known = [pair for pair in pairs if pair is not None]
    if not known or len(known) < len(pairs):
        return False
    totals = [sum(column) for column in zip(*(pair.masked for pair in known), strict=True)]
    if projected is not None:
        totals = [total - number for total, number in zip(totals, projected, strict=True)]
    return bool(_total(known, totals, -blinding) == G1Point.identity())

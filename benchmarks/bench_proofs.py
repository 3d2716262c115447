"""Proofs of short vectors: time and bytes beside the masked sum, and beside two other systems.

Both other systems prove the same relations. *Groups without multi-exponentiation*: the proof's own
scalar multiplications one by one, in libsodium's edwards25519 and libsecp256k1. *An inner-product
argument* (Bünz et al., Bulletproofs, 2018, protocol 2) in the same group instead of the response
f(e), which is the bulk of a proof. What is measured of it is a lower bound: it shows ⟨a, b⟩ = v for
committed a and b, and not yet that b = e²·a + w, which takes two more scalars a round.
"""

import hashlib
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from benchmarks.bench import Row, Size, seconds_of
from benchmarks.bench_crypto import mask_price, shard_of
from coincurve import PublicKey
from nacl.bindings import crypto_core_ed25519_add, crypto_scalarmult_ed25519_noclamp
from py_arkworks_bls12381 import G1Point

from lumos.crypto import shortness
from lumos.crypto.groups import ED25519
from lumos.crypto.shortness import ORDER, Statement, Witness
from lumos.exchange import Endpoint
from lumos.secagg import SecureAggregator

DEVICES = 60
WORD_BITS = 56
BOUND = 2.0**30
CHALLENGE = bytes(32)


def instance(width: int, seed: int) -> tuple[Statement, Witness]:
    """Hide a random vector of the largest length that an honest one has."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=width)
    x *= 0.99 * BOUND / np.linalg.norm(x)
    modulus = np.uint64((1 << WORD_BITS) - 1)
    own = rng.integers(0, 1 << WORD_BITS, width, np.uint64)
    hidden = (x.astype(np.int64).astype(np.uint64) + own) & modulus
    masked, projected = shortness.projection(CHALLENGE, width).apply(np.stack([hidden, own]))
    half = 1 << (WORD_BITS - 1)
    short = [(a - b + half) % (2 * half) - half for a, b in zip(masked, projected, strict=True)]
    square_bound = shortness.projected_bound(BOUND, width)
    statement = Statement(bytes(8), CHALLENGE, WORD_BITS, width, square_bound, masked)
    return statement, Witness(short, projected, seed, [0] * len(short), 0)


def projections(width: int, vectors: int) -> None:
    """Draw the matrix and project what a participant projects."""
    shortness.projection(CHALLENGE, width).apply(np.ones((vectors, width), np.uint64))


def proofs(size: Size) -> list[Row]:
    """Measure the widths of the strict profile's sums, then the other systems."""
    widths = (36, 3607, 18_861)
    rows = [row for width in widths for row in width_rows(width, 9 if size.full else 3)]
    return rows + [row for width in widths[:2] for row in system_rows(width)]


def best(turns: int, call: Callable[[], object]) -> float:
    """Return milliseconds of the fastest of some calls, since cores are shared."""
    return 1e3 * min(seconds_of(call) for _ in range(turns))


def width_rows(width: int, turns: int, devices: int = DEVICES) -> list[Row]:
    """Measure one width: prover, verifier and bytes."""
    inputs = [instance(width, seed) for seed in range(devices)]
    statements = [statement for statement, _ in inputs]
    made = [shortness.prove(*pair, secrets.token_bytes) for pair in inputs]
    prover = best(turns, lambda: shortness.prove(*inputs[0], secrets.token_bytes))
    prover += best(turns, lambda: projections(width, 3))
    verified = shortness.verify(statements, made)
    if not verified.valid.all():
        raise AssertionError("a proof does not hold")
    verifier = best(turns, lambda: shortness.verify(statements, made)) / devices
    verifier += best(turns, lambda: projections(width, devices)) / devices
    sent, vector = len(made[0]), width * WORD_BITS // 8
    probe = SecureAggregator(shard_of(DEVICES), Endpoint(None))
    neighbours = probe.parameters.neighbours
    masks = 1e3 * (neighbours + 1) * mask_price(width, probe.fixed.word)
    name, against = f"proof for {width:,} numbers", f"masks of {neighbours} neighbours"
    note = f"proved: {shortness.proved_factor(width):.2f} times the honest bound"
    return [
        _row(f"{name}: prover", prover, masks, "CPU ms", against, note),
        _row(f"{name}: verifier, each of {devices}", verifier, masks, "CPU ms", against),
        _row(f"{name}: size", sent, vector, "bytes", "masked vector"),
    ]


# The other systems.


def multiplication_prices() -> dict[str, float]:
    """Milliseconds of one scalar multiplication and addition, without multi-exponentiation."""
    scalar = secrets.token_bytes(31) + b"\0"
    _, point, _ = ED25519.key()
    other = PublicKey.from_secret(secrets.token_bytes(32))

    def edwards() -> None:
        for _ in range(100):
            crypto_core_ed25519_add(crypto_scalarmult_ed25519_noclamp(scalar, point), point)

    def weierstrass() -> None:
        for _ in range(100):
            PublicKey.combine_keys([other.multiply(scalar), other])

    return {"ed25519": best(5, edwards) / 100, "secp256k1": best(5, weierstrass) / 100}


def operations(rows: int, devices: int) -> tuple[int, float]:
    """Return scalar multiplications of the prover, and of the verifier for each device.

    The prover commits to s, p, g, α, squares and their nonces, and five coefficients. Masks of
    scalars are multiplied for each basis.
    """
    slots, squares = shortness._slots(rows), shortness._SQUARES
    prover = 2 * (rows + 1) + shortness._CHECKS + 1 + slots + 1 + 2 * (squares + 1)
    prover += 2 * len(shortness._OTHERS) + 5
    return prover, (shortness._SLOTS + 2) / devices + shortness._POINTS - 1


def system_rows(width: int) -> list[Row]:
    """Measure the other systems for one width."""
    statement, witness = instance(width, 0)
    ours = best(3, lambda: shortness.prove(statement, witness, secrets.token_bytes))
    count = 12
    proof = shortness.prove(statement, witness, secrets.token_bytes)
    verifier = best(3, lambda: shortness.verify([statement] * count, [proof] * count)) / count
    rows = []
    for group, price in multiplication_prices().items():
        prover, checks = operations(statement.rows, count)
        note = f"{prover:,} multiplications of {1e3 * price:.0f} µs; group operations alone"
        for what, mine, peer in (
            ("prover", ours, prover * price),
            (f"verifier, each of {count}", verifier, checks * price),
        ):
            name = f"proof for {width:,} numbers: {what}"
            rows.append(_row(name, mine, peer, "CPU ms", f"{group}, one by one", note))
    return rows + argument_rows(width, statement.rows, ours, verifier, count)


def _row(name: str, ours: float, peer: float, unit: str, against: str, note: str = "") -> Row:
    return Row(
        name=name, ours=ours, peer=peer, ratio=peer / ours, unit=unit, against=against, note=note
    )


def argument_rows(width: int, rows: int, ours: float, verifier: float, count: int) -> list[Row]:
    """Replace the response by an inner-product argument and compare."""
    slots = shortness._slots(rows)
    left, right = ([secrets.randbelow(ORDER) for _ in range(slots)] for _ in range(2))
    argument = Argument.prove(left, right)
    value = shortness._dot(left, right) % ORDER
    commitment = commit(left, right, value)
    if not argument.verify(commitment, slots):
        raise AssertionError("an inner-product argument does not hold")
    more = best(3, lambda: Argument.prove(left, right))
    batch = best(3, lambda: verify_batch([(argument, commitment)] * count, slots)) / count
    size = shortness.proof_size(rows)
    other = size - 32 * slots + len(argument.points) * 48 + 64
    name, against = f"proof for {width:,} numbers", "inner-product argument"
    return [
        _row(f"{name}: prover", ours, ours + more, "CPU ms", against),
        _row(f"{name}: verifier, each of {count}", verifier, verifier + batch, "CPU ms", against),
        _row(f"{name}: size", size, other, "bytes", against),
    ]


def bases(slots: int) -> tuple[list[G1Point], list[G1Point], G1Point]:
    """Two bases of a power of two of points, and one for the value."""
    count = 1 << math.ceil(math.log2(slots))
    while len(_POINTS) < 2 * count + 1:
        _POINTS.append(G1Point.hash_to_curve(len(_POINTS).to_bytes(4, "little"), b"argument"))
    return _POINTS[1 : count + 1], _POINTS[count + 1 : 2 * count + 1], _POINTS[0]


_POINTS: list[G1Point] = []


def commit(left: list[int], right: list[int], value: int) -> G1Point:
    """Σ a_i G_i + Σ b_i H_i + v U."""
    first, second, unit = bases(len(left))
    points = [*first[: len(left)], *second[: len(right)], unit]
    return shortness._sum(points, [*left, *right, value])


@dataclass(frozen=True)
class Argument:
    """L and R of each round, and the two numbers that are left."""

    points: list[bytes]
    left: int
    right: int

    @staticmethod
    def prove(left: list[int], right: list[int]) -> "Argument":
        """Halve both vectors in each round; bases are folded in the exponents."""
        first, second, unit = bases(len(left))
        count = len(first)
        a, b = ([*side, *[0] * (count - len(side))] for side in (left, right))
        folds_a, folds_b = [1] * count, [1] * count  # G'_j = Σ folds_a_i G_i over i ≡ j
        points: list[bytes] = []
        while len(a) > 1:
            half = len(a) // 2
            for a_half, b_half, a_shift, b_shift in (
                (a[:half], b[half:], half, 0),
                (a[half:], b[:half], 0, half),
            ):
                chosen, scalars = [unit], [shortness._dot(a_half, b_half)]
                for base, numbers, folds, shift in (
                    (first, a_half, folds_a, a_shift),
                    (second, b_half, folds_b, b_shift),
                ):
                    for i in range(count):
                        j = i % len(a) - shift
                        if 0 <= j < half and numbers[j]:
                            chosen.append(base[i])
                            scalars.append(numbers[j] * folds[i])
                points.append(bytes(shortness._sum(chosen, scalars).to_compressed_bytes()))
            x, inverse = challenge(points)
            for i in range(count):
                high = i % len(a) >= half
                folds_a[i] = folds_a[i] * (x if high else inverse) % ORDER
                folds_b[i] = folds_b[i] * (inverse if high else x) % ORDER
            a = [(p * x + q * inverse) % ORDER for p, q in zip(a[:half], a[half:], strict=True)]
            b = [(p * inverse + q * x) % ORDER for p, q in zip(b[:half], b[half:], strict=True)]
        return Argument(points, a[0], b[0])

    def equation(self, slots: int, weight: int) -> tuple[list[int], list[int], list[int]]:
        """Weighted scalars of both bases and U, of the commitment, and of L and R."""
        count = len(bases(slots)[0])
        folds_a, folds_b = [1] * count, [1] * count
        scalars, size = [], count
        for at in range(0, len(self.points), 2):
            x, inverse = challenge(self.points[: at + 2])
            scalars += [weight * x * x, weight * inverse * inverse]
            half = size // 2
            for i in range(count):
                high = i % size >= half
                folds_a[i] = folds_a[i] * (x if high else inverse) % ORDER
                folds_b[i] = folds_b[i] * (inverse if high else x) % ORDER
            size = half
        fixed = [-weight * self.left * k for k in folds_a]
        fixed += [-weight * self.right * k for k in folds_b]
        return [*fixed, -weight * self.left * self.right], [weight], scalars

    def verify(self, commitment: G1Point, slots: int) -> bool:
        """Check one argument."""
        return verify_batch([(self, commitment)], slots)


def challenge(points: list[bytes]) -> tuple[int, int]:
    """Return a round's challenge and its inverse."""
    digest = hashlib.blake2b(b"".join(points)).digest()
    x = int.from_bytes(digest, "little") % ORDER
    return x, pow(x, -1, ORDER)


def verify_batch(arguments: list[tuple[Argument, G1Point]], slots: int) -> bool:
    """Check many arguments by one multi-exponentiation."""
    first, second, unit = bases(slots)
    total = [0] * (2 * len(first) + 1)
    points, scalars = [], []
    for argument, commitment in arguments:
        fixed, own, rounds = argument.equation(slots, secrets.randbits(128))
        total = [p + q for p, q in zip(total, fixed, strict=True)]
        points += [commitment, *map(G1Point.from_compressed_bytes, argument.points)]
        scalars += [*own, *rounds]
    found = shortness._sum([*first, *second, unit, *points], [*total, *scalars])
    return bool(found == G1Point.identity())

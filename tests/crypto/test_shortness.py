"""Proofs of short vectors: complete, and every broken prover is caught.

The lemma's tails and constants are recomputed here in another way than the module does. Provers
that lie are the module's own with one step replaced, so that everything else fits.
"""

import copy
import dataclasses
import math
import secrets

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py_arkworks_bls12381 import G1Point
from scipy import integrate, stats
from tests.distinguisher import z_scores

from lumos.crypto import shortness
from lumos.crypto.entropy import Expanded
from lumos.crypto.shortness import (
    ORDER,
    ROWS,
    Statement,
    Witness,
    allowed,
    cancel,
    four_squares,
    pair_commitment,
    projected_bound,
    projection,
    proof_size,
    prove,
    proved_factor,
    self_commitment,
    verify,
)

CHALLENGE = b"challenge of this test, 32 bytes"
BOUND = 2**20


def centred(number, word_bits):
    half = 1 << (word_bits - 1)
    return (number + half) % (2 * half) - half


def vector(width, seed, norm=0.999 * BOUND):
    """A vector of integers in a random direction, at most as long as `norm`."""
    drawn = np.random.default_rng(seed).normal(size=width)
    return [int(number) for number in drawn * (norm / np.linalg.norm(drawn))]


def words(width, word_bits, seed):
    drawn = np.random.default_rng([seed, 7]).integers(0, 2**63, (2, width), np.uint64)
    return (drawn[0] * np.uint64(2) ^ drawn[1]) >> np.uint64(64 - word_bits)


def instance(x, *, word_bits=56, seed=0, sign=1, pair_seed=99, bound=BOUND, context=b"device"):
    """The statement and witness of a device that hides `x` under its own and one pair's mask."""
    width, modulus = len(x), 1 << word_bits
    own, pair = words(width, word_bits, seed), words(width, word_bits, pair_seed)
    hidden = [
        (number + int(a) + sign * int(b)) % modulus
        for number, a, b in zip(x, own, pair, strict=True)
    ]
    masked, self_projected, pair_projected = projection(CHALLENGE, width).apply(
        np.stack([np.array(hidden, np.uint64), own, pair])
    )
    pair_projected = [sign * number for number in pair_projected]
    short = [
        centred(total - a - b, word_bits)
        for total, a, b in zip(masked, self_projected, pair_projected, strict=True)
    ]
    statement = Statement(
        context, CHALLENGE, word_bits, width, projected_bound(bound, width), masked
    )
    blinding = np.random.default_rng(pair_seed).integers(2**62)
    witness = Witness(short, self_projected, 1234 + seed, pair_projected, sign * int(blinding))
    return statement, witness


def proved(x, **options):
    statement, witness = instance(x, **options)
    return statement, witness, prove(statement, witness, secrets.token_bytes)


def pair_bytes(outcome):
    """D of the only proof of a batch."""
    [pair] = outcome.pair
    assert pair is not None
    return pair.to_bytes()


def holds(statement, proof):
    return bool(verify([statement], [proof]).valid[0])


@pytest.fixture(scope="module")
def small():
    return proved(vector(4, 0))


# Completeness.


@pytest.mark.parametrize(
    ("width", "word_bits"), [(1, 56), (4, 64), (36, 32), (256, 56), (257, 64), (3607, 56)]
)
def test_a_short_vector_is_proved(width, word_bits):
    statement, witness, proof = proved(vector(width, width), word_bits=word_bits)
    assert len(proof) == proof_size(statement.rows)
    outcome = verify([statement], [proof])
    assert outcome.valid.all()
    assert outcome.self_commitment == [
        self_commitment(witness.self_projected, witness.self_blinding)
    ]
    expected = pair_commitment(witness.pair_projected, witness.pair_blinding)
    assert pair_bytes(outcome) == expected


@pytest.mark.parametrize("short", [[0], [BOUND], [-BOUND], [-1]])
def test_the_bound_is_proved_exactly_where_nothing_is_projected(short):
    statement, _, proof = proved(short)
    assert holds(statement, proof)
    longer = [BOUND + 1] if short[0] >= 0 else [-BOUND - 1]
    with pytest.raises(ValueError, match="longer than the bound"):
        proved(longer)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_fit(sign):
    # β = 2^63 − 1 and the largest carry that a prover accepts.
    bound, carry = 2**63 - 1, sign * ((1 << 111) - 1)
    statement = Statement(b"", CHALLENGE, 64, 1, bound**2, [sign * bound + (carry << 64) + 5])
    witness = Witness([sign * bound], [3], ORDER - 1, [2], -1)
    assert holds(statement, prove(statement, witness, secrets.token_bytes))
    further = dataclasses.replace(statement, masked=[statement.masked[0] + (sign << 64)])
    with pytest.raises(ValueError, match="does not fit"):
        prove(further, witness, secrets.token_bytes)


def test_nothing_comes_round_modulo_the_order():
    limit = 1 << (shortness._MASK_BITS + 1)
    assert (ROWS + 4) * limit**2 < ORDER // 2
    carry = 1 << (8 * shortness._CARRY_BYTES - 1)
    assert carry << (20 + shortness.MAX_WORD_BITS + 1) < ORDER
    assert carry > 1000 * (2**96 + shortness.MAX_WIDTH)
    assert (math.isqrt(ROWS + 4) + 1) * 2**63 < 1 << shortness._PRODUCT_BITS
    assert shortness._MASK_BITS < 8 * shortness._H_BYTES - 1


def test_projection_is_the_exact_matrix_product():
    width = 5000
    matrix = shortness._ternary(
        shortness._hash(b"projection", CHALLENGE, width.to_bytes(8, "little")), ROWS, width
    )
    drawn = np.stack([words(width, 64, seed) for seed in range(300)])
    found = projection(CHALLENGE, width).apply(drawn)
    for device in (0, 255, 299):
        exact = (matrix.astype(object) @ drawn[device].astype(object)).tolist()
        assert found[device] == exact


@given(st.integers(0, 2**32), st.integers(1, 400))
@settings(max_examples=20, deadline=None)
def test_halves_are_projected_exactly(seed, width):
    rng = np.random.default_rng(seed)
    low, high = rng.integers(-(2**45), 2**45, (2, 3, width))
    whole = low.astype(object) + (high.astype(object) << 32)
    wide = projection(CHALLENGE, width)
    found = wide.apply_halves(low, high)
    matrix = np.eye(width, dtype=np.int8) if wide._matrix is None else wide._matrix
    assert found == (whole @ matrix.T.astype(object)).tolist()


def test_entries_have_their_probabilities():
    entries = shortness._ternary(b"seed", 512, 4096)
    counts = np.array([(entries == value).sum() for value in (-1, 0, 1)])
    chi = ((counts - entries.size * np.array([0.25, 0.5, 0.25])) ** 2 / (entries.size / 3)).sum()
    assert chi < 30
    # Neither rows nor columns repeat or correlate.
    wide = entries.astype(np.float64)
    correlation = wide @ wide.T / (4096 / 2)
    assert np.abs(correlation - np.eye(512)).max() < 7 * math.sqrt(1 / 4096)


@given(st.integers(0, 2**126))
@settings(max_examples=60, deadline=None)
def test_four_squares(number):
    assert sum(root**2 for root in four_squares(number, Expanded(bytes(32)))) == number


def test_digits_of_scalars_give_the_sum():
    rng = np.random.default_rng(0)
    scalars = [0, 1, ORDER - 1, 2**88 - 1, 2**88, 2**176, 2**255 % ORDER, -5]
    scalars += [int.from_bytes(rng.bytes(32), "little") for _ in range(6)]
    generators = shortness._generators()
    for start in (0, shortness._SQUARES, shortness._SLOTS - len(scalars) + 1):
        points = [*generators[start : start + len(scalars) - 1], generators[-1]]
        expected = shortness._sum(points, scalars)
        assert shortness._fixed_sum(start, start + len(scalars) - 1, scalars) == expected


def test_four_squares_of_all_small_numbers():
    stream = Expanded(bytes(32))
    for number in [*range(6000), *(4**k * j for k in range(60) for j in (1, 2, 3, 7, 4111))]:
        assert sum(root**2 for root in four_squares(number, stream)) == number


# The lemma.


def gaussian_bound(u, a):
    """G_u(a) = E|cos(√u h a)|^(2/a²), by the trapezoid rule; [len(a)]."""
    h = np.linspace(0, 12, 4801)
    density = np.exp(-(h**2) / 2) * math.sqrt(2 / math.pi) * (h[1] - h[0])
    density[0] /= 2
    cosine = np.abs(np.cos(math.sqrt(u) * np.multiply.outer(a, h)))
    return cosine ** (2 / a**2)[:, None] @ density


def best_u(theta):
    """The minimum of e^(uθ)·(1 + 2u)^(-1/2)."""
    return (1 / theta - 1) / 2


@pytest.mark.parametrize("bits", [40, 56, 80])
def test_hoelder_bound_is_largest_in_the_gaussian_case(bits):
    u = best_u(shortness._theta(bits))
    at_zero = (1 + 2 * u) ** -0.5
    # a ≤ 1/3: ln cos y ≤ −y²/2 − y⁴/12 below π/2 gains more than what lies beyond π/2 can add, and
    # gain/a² falls with a while (what lies beyond)/a² grows: the end of the interval decides.
    gain, _ = integrate.quad(
        lambda h: stats.norm.pdf(h) * math.exp(-u * h * h) * -math.expm1(-(u**2) * h**4 / (6 * 9)),
        -12,
        12,
    )
    assert gain > 100 * 2 * stats.norm.sf(3 * math.pi / (2 * math.sqrt(u)))
    # 1/3 ≤ a ≤ 1: |dG/da| ≤ 2/(e a) + 2 √(2u/π)/a², so half a step of the grid adds at most this.
    step = 4e-4
    for start in np.arange(1 / 3, 1, 0.1):
        a = np.minimum(np.arange(start, start + 0.1 + step, step), 1.0)
        slope = 2 / (math.e * (a - step)) + 2 * math.sqrt(2 * u / math.pi) / (a - step) ** 2
        assert (gaussian_bound(u, a) + slope * step / 2 < at_zero).all()


def test_the_integral_agrees_with_closed_forms():
    for u in (0.3, 0.8, 1.0):
        found = gaussian_bound(u, np.array([1e-3, 1.0]))
        assert found == pytest.approx([(1 + 2 * u) ** -0.5, 0.5 + math.exp(-2 * u) / 2], abs=1e-6)


def test_constants_recomputed():
    # Chernoff bounds minimised numerically; the true tails of χ² lie below them.
    def upper(t):
        return -ROWS / 2 * (math.log1p(-2 * t) + 2 * t * shortness.TAU) / math.log(2)

    def lower(u, theta):
        return ROWS * (u * theta - math.log1p(2 * u) / 2) / math.log(2)

    assert min(upper(t) for t in np.linspace(0, 0.49, 2000)) < -shortness.COMPLETENESS_BITS
    theta = (math.sqrt(shortness.TAU) / proved_factor(ROWS + 1)) ** 2
    assert min(lower(u, theta) for u in np.linspace(0, 3, 3000)) == pytest.approx(-56, abs=1e-3)
    assert stats.chi2.sf(shortness.TAU * ROWS, ROWS) < 2.0**-128
    assert stats.chi2.cdf(theta * ROWS, ROWS) < 2.0**-56
    assert 2.5 < proved_factor(ROWS + 1) < 2.6
    assert proved_factor(ROWS) == 1
    assert proved_factor(1000, bits=80) > proved_factor(1000)
    with pytest.raises(ValueError, match="256 rows give at most"):
        proved_factor(1000, bits=200)


def spikes(width, word_bits, seed):
    """Vectors that are awkward to project: few or many equal numbers, and round the ring."""
    half = 1 << (word_bits - 1)
    rng = np.random.default_rng(seed)
    yield "one", [half // 1000, *[0] * (width - 1)]
    yield "two", [half // 1000] * 2 + [0] * (width - 2)
    yield "nine", [half // 1000] * 9 + [0] * (width - 9)
    yield "all", [half // 1000] * width
    yield "normal", [int(k) for k in rng.normal(size=width) * (half / 1000)]
    yield "heavy", [int(k) for k in rng.standard_t(1.5, width).clip(-300, 300) * (half / 1000)]


@pytest.mark.parametrize("rows", [4, 8, 12])
def test_both_tails_by_simulation(rows):
    # Probabilities that 20,000 draws reach; the bounds hold for every one of the vectors.
    width, word_bits, draws = 24, 40, 20_000
    matrices = shortness._ternary(b"tails", draws * rows, width).astype(np.float64)
    for _, x in spikes(width, word_bits, rows):
        products = (matrices @ np.array(x, np.float64)).reshape(draws, rows)
        squares = (centred(products, word_bits) ** 2).sum(axis=1)
        mean = rows / 2 * float(np.square(np.array(x, np.float64)).sum())
        for ratio in (0.1, 0.2, 0.35, 0.5, 1.7, 2.2, 2.68, 3.2):
            seen = (squares <= ratio * mean) if ratio < 1 else (squares >= ratio * mean)
            bound = math.exp(-rows / 2 * (ratio - 1 - math.log(ratio)))
            if ratio < shortness._MIN_THETA:  # there the single number decides: (1 + e^-2u)/2
                u = best_u(ratio)
                worst = max((1 + 2 * u) ** -0.5, 0.5 + math.exp(-2 * u) / 2)
                bound = (math.exp(u * ratio) * worst) ** rows
            assert seen.mean() <= bound + 4 * math.sqrt(bound / draws)


def test_round_the_ring():
    # x = 2^(W−1)(e_i + e_j), multiples of 2^W/k and others whose projections can vanish: a row
    # stays within a hundredth of the ring at most half the time.
    width, word_bits, draws = 6, 48, 4000
    ring = 1 << word_bits
    matrix = shortness._ternary(b"ring", draws, width).astype(object)
    awkward = [
        [ring // 2, ring // 2, 0, 0, 0, 0],
        [ring // 3, ring // 3, ring // 3, 0, 0, 0],
        [ring // 4, ring // 2, ring // 4, 0, 0, 0],
        [ring // 2] * 6,
        [ring // 5, 2 * ring // 5, 3 * ring // 5, 4 * ring // 5, 1, 1],
        [ring - 1, ring // 2 + 1, 5, 5, 5, 5],
    ]
    for x in awkward:
        products = np.array([abs(centred(int(k), word_bits)) for k in matrix @ np.array(x)])
        assert (products <= ring // 100).mean() < 0.5 + 4 * 0.5 / math.sqrt(draws)


def test_parameters_that_prove_nothing_are_refused():
    assert allowed(2**30, 3607, 56)
    assert not allowed(2**50, 3607, 56)
    assert allowed(2**50, 36, 56)
    assert allowed(2**45, 3607, 56)
    assert not allowed(2**45, 3607, 56, liars=3)
    assert not allowed(2**55, 36, 56)
    assert not allowed(2**30, 36, 65)
    assert not allowed(0, 36, 56)


# Soundness: broken provers.


@pytest.mark.parametrize("width", [4, 257])
def test_a_longer_vector_has_no_proof(width):
    longer = vector(width, 1, norm=4 * BOUND)
    for x in (longer, [1 << 55, 1 << 55, *[0] * (width - 2)], [(1 << 56) // 3] * width):
        with pytest.raises(ValueError, match="longer than the bound") as raised:
            proved(x)
        assert not any(character.isdigit() for character in str(raised.value))


def exact_product(matrix, numbers):
    return (matrix.astype(object) @ np.array(numbers, object)).tolist()


def clipped(checks):
    """A liar's h, brought into the range that verifiers accept."""
    limit = shortness._H_LIMIT - 1
    checks[:] = [max(-limit, min(limit, centred_mod_order(k))) for k in checks]
    return True


def centred_mod_order(number):
    return (number + ORDER // 2) % ORDER - ORDER // 2


def liar(monkeypatch):
    """Let the prover go on with numbers of any size."""
    monkeypatch.setattr(shortness, "_signed_product", exact_product)
    monkeypatch.setattr(shortness, "_accepted", clipped)


def lie(monkeypatch, statement, witness):
    with monkeypatch.context() as patched:
        liar(patched)
        return prove(statement, witness, secrets.token_bytes)


def test_the_liars_tools_prove_what_is_true(monkeypatch):
    statement, witness = instance(vector(4, 3))
    # The liar does not repeat where masks of h come out too large: once in 2^8.
    assert any(holds(statement, lie(monkeypatch, statement, witness)) for _ in range(6))


def test_squares_that_do_not_fit(monkeypatch):
    honest = instance(vector(4, 3))
    first, *others = four_squares(shortness._rest(*honest), Expanded(bytes(32)))
    long = instance(vector(4, 3, norm=2 * BOUND))
    monkeypatch.setattr(shortness, "_rest", lambda *_: 0)
    for pair, squares in (
        (honest, [first + 1, *others]),
        (honest, [0, 0, 0, 0]),
        (long, [0, 0, 0, 0]),
        (long, [BOUND, 0, 0, 1]),
    ):
        monkeypatch.setattr(shortness, "four_squares", lambda *_, squares=squares: squares)
        assert not holds(pair[0], lie(monkeypatch, *pair))
    monkeypatch.setattr(shortness, "four_squares", lambda *_: [first, *others])
    assert any(holds(honest[0], lie(monkeypatch, *honest)) for _ in range(6))


def test_squares_that_fit_modulo_the_order_only(monkeypatch):
    # |p|² + |sq|² = β² + q: true modulo q, with squares of 127 bits. R' shows that they are long.
    statement, witness = instance(vector(4, 3, norm=2 * BOUND))
    rest = (statement.square_bound - sum(k * k for k in witness.short)) % ORDER
    monkeypatch.setattr(shortness, "_rest", lambda *_: rest)
    assert not holds(statement, lie(monkeypatch, statement, witness))


def test_long_numbers_whose_squares_are_small_modulo_the_order(monkeypatch):
    # p = (t, i·t) with i² = −1 modulo q: a long vector of square length 0.
    root = pow(7, (ORDER - 1) // 4, ORDER)
    assert root * root % ORDER == ORDER - 1
    statement, witness = instance([5, 0, 0, 0])
    monkeypatch.setattr(shortness, "_carry", lambda *_: [0, 0, 0, 0])
    monkeypatch.setattr(shortness, "_rest", lambda *_: statement.square_bound)
    monkeypatch.setattr(shortness, "_encoded", lambda numbers: repr(list(numbers)).encode())
    tampered = dataclasses.replace(witness, short=[12345, 12345 * root % ORDER, 0, 0])
    assert not holds(statement, lie(monkeypatch, statement, tampered))


def test_a_carry_that_is_no_small_integer_cannot_be_sent(monkeypatch):
    # p' = 0 and c' = c + p/2^W modulo q: D would be the commitment to d.
    statement, witness = instance(vector(4, 3, norm=2 * BOUND))
    back = pow(1 << statement.word_bits, -1, ORDER)
    true = shortness._carry(statement, witness)
    false = [(c + p * back) % ORDER for c, p in zip(true, witness.short, strict=True)]
    tampered = dataclasses.replace(witness, short=[0, 0, 0, 0])
    monkeypatch.setattr(shortness, "_carry", lambda *_: false)
    monkeypatch.setattr(shortness, "_encoded", lambda numbers: repr(list(numbers)).encode())
    with pytest.raises(OverflowError):
        lie(monkeypatch, statement, tampered)
    # With longer numbers on the wire it would pass: the length is what bounds c.
    monkeypatch.setattr(shortness, "_CARRY_BYTES", 33)
    outcome = verify([statement], [lie(monkeypatch, statement, tampered)])
    expected = pair_commitment(witness.pair_projected, witness.pair_blinding)
    assert not outcome.valid.all() or pair_bytes(outcome) == expected


def test_another_carry_of_the_same_number_shows_in_the_pair_commitment(small):
    # p' = p − 2^W and c' = c + 1 would be a true opening: p' is too long.
    statement, _, proof = small
    parsed = shortness._Proof.parse(proof, statement.rows)
    parsed.carry[0] += 1
    assert not holds(statement, parsed.to_bytes())


def test_squares_have_no_part_in_the_pair_commitment(monkeypatch):
    # N commits to ⟨sq, S⟩ + ⟨n, G⟩: P without n, and so D with it, would be off by any n.
    statement, witness = instance(vector(4, 3))
    original = shortness._Hider.commit

    def moved(hider, start, size, opening):
        if (start, size) == (0, shortness._SQUARES):
            found = G1Point.from_compressed_bytes(original(hider, start, size, opening))
            return shortness._bytes(found + shortness._generators()[shortness._SQUARES])
        return original(hider, start, size, opening)

    monkeypatch.setattr(shortness._Hider, "commit", moved)
    assert not holds(statement, prove(statement, witness, secrets.token_bytes))


def test_another_vector_shows_in_the_pair_commitment():
    # A liar proves a true statement about p' ≠ p by a wrong s or d: then C or D is not what it is.
    statement, witness = instance(vector(4, 3, norm=2 * BOUND))
    for field in ("self_projected", "pair_projected"):
        shifted = [a + b for a, b in zip(getattr(witness, field), witness.short, strict=True)]
        tampered = dataclasses.replace(witness, short=[0] * 4, **{field: shifted})
        proof = prove(statement, tampered, secrets.token_bytes)
        outcome = verify([statement], [proof])
        assert outcome.valid.all()
        own = self_commitment(witness.self_projected, witness.self_blinding)
        pair = pair_commitment(witness.pair_projected, witness.pair_blinding)
        assert (outcome.self_commitment[0] == own) == (field == "pair_projected")
        assert (pair_bytes(outcome) == pair) == (field == "self_projected")


def test_a_carry_off_by_one_is_another_vector():
    statement, witness = instance(vector(4, 3))
    modulus = 1 << statement.word_bits
    shifted = [witness.short[0] + modulus, *witness.short[1:]]
    with pytest.raises(ValueError, match="does not fit"):
        prove(statement, dataclasses.replace(witness, short=shifted), secrets.token_bytes)


@pytest.mark.parametrize(
    "change",
    [
        {"context": b"another device"},
        {"challenge": b"another challenge, also 32 bytes"},
        {"square_bound": projected_bound(BOUND, 4) + 1},
        {"square_bound": projected_bound(BOUND, 4) - 1},
        {"word_bits": 48},
        {"masked": "one more"},
    ],
    ids=str,
)
def test_a_proof_belongs_to_its_statement(small, change):
    statement, _, proof = small
    if change == {"masked": "one more"}:
        change = {"masked": [statement.masked[0] + 1, *statement.masked[1:]]}
    assert holds(statement, proof)
    assert not holds(dataclasses.replace(statement, **change), proof)


def test_another_width_of_the_same_rows():
    statement, _, proof = proved(vector(300, 2))
    assert not holds(dataclasses.replace(statement, width=301), proof)


def fields(rows):
    """First bytes of all parts of a proof."""
    points = shortness._POINTS * shortness._POINT
    carry = points + rows * shortness._CARRY_BYTES
    checks = carry + shortness._CHECKS * shortness._H_BYTES
    yield from range(0, points, shortness._POINT)
    yield from (points, carry - 1, carry, checks - 1, checks)
    yield from (proof_size(rows) - 32 * place for place in (1, 2, 3, 4, 7))


def flipped(proof, bit):
    changed = bytearray(proof)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_flipped_bit_of_every_part(small):
    statement, _, proof = small
    bits = [8 * first + bit for first in fields(statement.rows) for bit in (0, 7)]
    outcome = verify([statement] * (len(bits) + 1), [proof, *(flipped(proof, k) for k in bits)])
    assert outcome.valid.tolist() == [True] + [False] * len(bits)
    assert outcome.pair[1] is None
    assert outcome.self_commitment[1] is None


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_anywhere(small, data):
    statement, _, proof = small
    assert not holds(statement, flipped(proof, data.draw(st.integers(0, 8 * len(proof) - 1))))


def small_order_point():
    """A point of the curve y² = x³ + 4 outside the subgroup: the first x that has one."""
    z = -0xD201000000010000
    prime = (z - 1) ** 2 * (z**4 - z**2 + 1) // 3 + z
    for x in range(1, 100):
        if pow(x**3 + 4, (prime - 1) // 2, prime) == 1:
            data = bytearray(x.to_bytes(48, "big"))
            data[0] |= 0x80
            if not G1Point.from_compressed_bytes_unchecked(bytes(data)).is_in_subgroup():
                return bytes(data)
    raise AssertionError("no such point")


def test_points_outside_the_group_and_lengths(small):
    statement, _, proof = small
    identity = bytes(G1Point.identity().to_compressed_bytes())
    for place in range(shortness._POINTS):
        start = 48 * place
        for point in (identity, small_order_point(), bytes(48), b"\xff" * 48):
            assert not holds(statement, proof[:start] + point + proof[start + 48 :])
    for wrong in (b"", proof[:-1], proof + b"\0", proof[32:]):
        assert not holds(statement, wrong)
    at = len(proof) - 32
    last = int.from_bytes(proof[at:], "little")
    if last + ORDER < 1 << 256:  # the same scalar, written in another way
        assert not holds(statement, proof[:at] + (last + ORDER).to_bytes(32, "little"))


def test_checks_out_of_range(small):
    statement, _, proof = small
    at = 48 * shortness._POINTS + statement.rows * shortness._CARRY_BYTES
    for number in (shortness._H_LIMIT, -shortness._H_LIMIT - 1):
        data = number.to_bytes(shortness._H_BYTES, "little", signed=True)
        with pytest.raises(shortness.BadProof, match="out of range"):
            shortness._Proof.parse(proof[:at] + data + proof[at + len(data) :], statement.rows)


@pytest.mark.parametrize(
    "change",
    [
        {"word_bits": 65},
        {"width": 5},
        {"width": 0},
        {"square_bound": -1},
        {"square_bound": 1 << 110},
        {"masked": [1, 2, 3]},
    ],
    ids=str,
)
def test_statements_that_mean_nothing(small, change):
    with pytest.raises(ValueError, match=r"word_bits|width|square_bound|rows"):
        dataclasses.replace(small[0], **change)


# Many devices.


def three(**options):
    """Devices 0 and 1 share a mask; device 2 shares one with a lost device."""
    return [
        proved(vector(4, 0), seed=0, sign=1, pair_seed=50, context=b"0", **options),
        proved(vector(4, 1), seed=1, sign=-1, pair_seed=50, context=b"1", **options),
        proved(vector(4, 2), seed=2, sign=1, pair_seed=51, context=b"2", **options),
    ]


def test_pair_masks_cancel_and_what_is_shifted_does_not():
    devices = three()
    outcome = verify([k[0] for k in devices], [k[2] for k in devices])
    assert outcome.valid.all()
    assert cancel(outcome.pair[:2])
    assert not cancel(outcome.pair)
    lost = devices[2][1]
    assert cancel(outcome.pair, lost.pair_projected, lost.pair_blinding)
    assert not cancel(outcome.pair, lost.pair_projected, lost.pair_blinding + 1)
    assert not cancel([])
    assert not cancel([*outcome.pair[:2], None])
    # A device that claims another pair mask, to make room for a longer vector.
    statement, witness, _ = devices[0]
    shifted = [k + 1 for k in witness.pair_projected]
    short = [k - 1 for k in witness.short]
    tampered = dataclasses.replace(witness, pair_projected=shifted, short=short)
    other = verify([statement], [prove(statement, tampered, secrets.token_bytes)])
    assert other.valid.all()
    assert not cancel([other.pair[0], outcome.pair[1]])
    # Two devices can shift between themselves, and the sum of their vectors stays bounded.
    statement, witness, _ = devices[1]
    tampered = dataclasses.replace(
        witness,
        pair_projected=[k - 1 for k in witness.pair_projected],
        short=[k + 1 for k in witness.short],
    )
    friend = verify([statement], [prove(statement, tampered, secrets.token_bytes)])
    assert cancel([other.pair[0], friend.pair[0]])
    # If the friend is left out afterwards, the other has to be checked again, and is caught.
    _, true, _ = devices[0]
    assert not cancel([other.pair[0]], true.pair_projected, true.pair_blinding)
    assert cancel([outcome.pair[0]], true.pair_projected, true.pair_blinding)


def test_a_batch_names_exactly_the_wrong_ones():
    devices = three() * 4
    statements, proofs = [k[0] for k in devices], [k[2] for k in devices]
    wrong = {1, 2, 7, 11}
    for number in wrong:
        proofs[number] = [
            flipped(proofs[number], 8 * (48 * shortness._POINTS + 3)),
            flipped(proofs[number], 8 * len(proofs[number]) - 300),
            proofs[number][:-1],
            proofs[0],
        ][number % 4]
    outcome = verify(statements, proofs)
    assert np.flatnonzero(~outcome.valid).tolist() == sorted(wrong)
    assert [k is None for k in outcome.pair] == [k in wrong for k in range(12)]
    assert verify([], []).valid.tolist() == []


def test_batches_mix_widths(small):
    other = proved(vector(300, 5))
    assert verify([small[0], other[0]], [small[2], other[2]]).valid.all()


def test_opened_self_masks_are_checked_together():
    devices = three()
    outcome = verify([k[0] for k in devices], [k[2] for k in devices])
    openings = [(k[1].self_projected, k[1].self_blinding) for k in devices]
    committed = [own for own in outcome.self_commitment if own is not None]
    right = shortness.correctly_opened
    assert right(committed, openings).tolist() == [True, True, True]
    numbers, blinding = openings[1]
    for wrong in (
        ([numbers[0] + 1, *numbers[1:]], blinding),
        (numbers, blinding + 1),
        ([*numbers[:-1], numbers[-1] - 1], blinding),
    ):
        found = right(committed, [openings[0], wrong, openings[2]])
        assert found.tolist() == [True, False, True]
    # Two errors that cancel in a sum without weights.
    up, down = ((openings[k][0], openings[k][1] + sign) for k, sign in ((0, 1), (1, -1)))
    found = right(committed, [up, down, openings[2]])
    assert found.tolist() == [False, False, True]
    assert right([], []).tolist() == []


# Zero knowledge.


def lifted(own, pair, keys, sign):
    """Self and pair masks with the lifts of two keys."""
    bits, rows = 56, len(own)
    lifts = [
        shortness.lifts([key], [one], bits, rows) for key, one in zip(keys, (1, sign), strict=True)
    ]
    return [
        [a + b for a, b in zip(numbers, more, strict=True)]
        for numbers, more in zip((own, pair), lifts, strict=True)
    ]


def carries(x, count, lift):
    """The carries that `count` devices with the summand [x] send."""
    found = []
    for seed in range(count):
        statement, witness = instance([x], seed=seed, pair_seed=1000 + seed, bound=2**55 - 1)
        if lift:
            keys = [bytes([seed % 256, seed // 256, k]) + bytes(29) for k in range(2)]
            own, pair = lifted(witness.self_projected, witness.pair_projected, keys, 1)
            witness = dataclasses.replace(witness, self_projected=own, pair_projected=pair)
        found += shortness._carry(statement, witness)
    return np.array([float(c) for c in found])


def test_a_carry_shows_nothing_and_without_lifts_it_would():
    before, after = (carries(x, 400, lift=True) for x in (2**54, -(2**54)))
    # The same keys for both: they differ by 1 where they differ at all, of 2^96.
    assert np.array_equal(before, after)
    drawn = (before / 2.0**96 + 2) / 2  # − (two uniform numbers), scaled
    assert stats.kstest(drawn, stats.triang(0.5).cdf).pvalue > 1e-6
    bare = [carries(x, 400, lift=False) for x in (2**54, -(2**54))]
    assert stats.ks_2samp(*bare).pvalue < 1e-9


def ring_of_carries(vectors):
    """The carries of devices that share a lifted mask with the next and the one before."""
    count, width, bits = len(vectors), len(vectors[0]), 56
    own = [words(width, bits, 100 + k).astype(object) for k in range(count)]
    shared = [words(width, bits, 200 + k).astype(object) for k in range(count)]
    keys = [bytes([k]) * 32 for k in range(2 * count)]
    found, hidden_by_self = [], 0
    for k, x in enumerate(vectors):
        before = k - 1 if k else count - 1
        hidden = (np.array(x, object) + own[k] + shared[k] - shared[before]) % (1 << bits)
        project = projection(CHALLENGE, width)
        total, mine, ahead, behind = project.apply(
            np.stack(
                [part.astype(np.uint64) for part in (hidden, own[k], shared[k], shared[before])]
            )
        )
        rows = len(total)
        lift = shortness.lifts([keys[k]], [1], bits, rows)
        pair_lifts = shortness.lifts([keys[count + k], keys[count + before]], [1, -1], bits, rows)
        mine = [a + b for a, b in zip(mine, lift, strict=True)]
        pair = [a - b + c for a, b, c in zip(ahead, behind, pair_lifts, strict=True)]
        short = [centred(t - a - b, bits) for t, a, b in zip(total, mine, pair, strict=True)]
        statement = Statement(b"", CHALLENGE, bits, width, projected_bound(BOUND, width), total)
        found.append(shortness._carry(statement, Witness(short, mine, 0, pair, 0)))
        hidden_by_self += np.array(total, object) - np.array(mine, object)
    return np.array(found, object), hidden_by_self


@pytest.mark.parametrize("width", [4, 300])
def test_carries_of_an_opened_group_add_up_to_what_the_sum_shows(width):
    vectors = [vector(width, k) for k in range(3)]
    found, without_self = ring_of_carries(vectors)
    summed = np.array([sum(column) for column in zip(*vectors, strict=True)], object)
    matrix = projection(CHALLENGE, width)._matrix
    projected = summed if matrix is None else matrix.astype(object) @ summed
    assert ((without_self - projected) % 2**56 == 0).all()
    assert (found.sum(axis=0) == (without_self - projected) // 2**56).all()
    # Each alone is far larger than what it hides.
    assert np.median(np.abs(found).astype(float)) > 2.0**90


def test_lifts_cancel_where_masks_do():
    key, other = bytes(32), bytes(31) + b"x"
    one = shortness.lifts([key, other], [1, -1], 56, 300)
    assert [-k for k in one] == shortness.lifts([other, key], [1, -1], 56, 300)
    assert not any(shortness.lifts([key, key], [1, -1], 56, 300))
    assert not any(k % 2**56 for k in one)
    single = np.array([k >> 56 for k in shortness.lifts([key], [1], 56, 4000)], object)
    assert min(single) >= 0
    assert max(single) < 2**96
    assert stats.kstest((single / 2**96).astype(float), "uniform").pvalue > 1e-6


def test_secrets_are_not_shown():
    _, witness = instance(vector(4, 0))
    assert repr(witness) == "<Witness>"
    with pytest.raises(TypeError):
        copy.copy(witness)


def test_one_randomness_two_challenges():
    # A restarted caller draws the same bytes. Nonces must differ: f' − f would show the witness.
    statement, witness = instance(vector(4, 0))
    other = dataclasses.replace(statement, context=b"another attempt")
    same = [prove(k, witness, bytes) for k in (statement, statement, other)]
    assert same[0] == same[1]
    committed = [shortness._Proof.parse(k, 4).announced[0] for k in same]
    assert committed[0] != committed[2]


def test_no_secret_number_is_multiplied_bare(monkeypatch):
    # The time of a multi-exponentiation shows small scalars: it is given uniform ones only.
    scalars: list[int] = []
    original = shortness._fixed_sum

    def recorded(start, stop, numbers):
        scalars.extend(number % ORDER for number in numbers)
        return original(start, stop, numbers)

    monkeypatch.setattr(shortness, "_fixed_sum", recorded)
    proved([0, 0, 0, BOUND])
    assert len(scalars) > 250
    assert min(scalars) > 2**128
    assert stats.kstest([number / ORDER for number in scalars], "uniform").pvalue > 1e-6


def test_accepted_checks_are_uniform_whatever_is_added(monkeypatch):
    # All masks g of a small range, for every number v that R'(sq, p, c) can be: the accepted v + g
    # are the whole range, each once.
    monkeypatch.setattr(shortness, "_H_LIMIT", 32 - 4)
    for v in range(-4, 5):
        accepted = [v + g for g in range(-32, 32) if shortness._accepted([v + g])]
        assert sorted(accepted) == list(range(-28, 28))


LARGEST = 1_490_000
ADDED, MASK = 1_500_000, 1 << 26
"""At most what is added to a mask, and the range of masks, in the tests below."""


@pytest.fixture
def quick(monkeypatch):
    """Let commitments be uniform bytes, as they are to whoever sees them, and masks be small.

    They are 45 times what they hide, not 2^15 times, so that a shift of h would show; then 94 of
    100 attempts are rejected.
    """
    monkeypatch.setattr(shortness._Hider, "__init__", lambda *_: None)
    monkeypatch.setattr(shortness._Hider, "commit", lambda *_: secrets.token_bytes(48))
    monkeypatch.setattr(shortness, "_MASK_BITS", MASK.bit_length() - 1)
    monkeypatch.setattr(shortness, "_H_LIMIT", MASK - ADDED)
    return monkeypatch


def views(x, count):
    """Proofs of one witness: the statement, and the messages."""
    statement, witness = instance([x, 0, 0, 0], bound=LARGEST)
    drawn = [prove(statement, witness, secrets.token_bytes) for _ in range(count)]
    return statement, [shortness._Proof.parse(proof, statement.rows) for proof in drawn]


def matched(statement, proofs):
    """Correlation of h with what the witness x = LARGEST·e_1 would add to it, in standard errors.

    No other test of h has more power against a shift by R'(sq, p, c).
    """
    total, variance = 0.0, 0.0
    for proof in proofs:
        transcript = shortness._Transcript(statement, proof.carry)
        transcript.add(b"committed", *proof.committed)
        added = transcript.matrix(4)[:, 4].astype(np.float64) * LARGEST
        total += float(added @ np.array(proof.checks, np.float64))
        variance += float(added @ added) * (MASK - ADDED) ** 2 / 3
    return total / math.sqrt(variance)


SAMPLES = 300


def test_two_witnesses_look_the_same(quick):
    # ±LARGEST. A prover that does not reject stands ±5.3 standard errors from 0 each, 7.5 for the
    # difference: told apart in 998 of 1,000 runs; a sound prover, in 1 of 150,000.
    left, right = views(LARGEST, SAMPLES), views(-LARGEST, SAMPLES)
    assert abs(matched(*left) - matched(*right)) / math.sqrt(2) < 4.5
    limit = MASK - ADDED
    ranges = (("checks", -limit, 2 * limit), ("response", 0, ORDER), ("squares", 0, ORDER))
    for part, low, width in ranges:
        before, after = (
            np.array([[(k - low) / width for k in getattr(proof, part)] for proof in proofs])
            for _, proofs in (left, right)
        )
        assert np.abs(z_scores(before > 0.5, after > 0.5)).max() < 5
        assert stats.ks_2samp(before.ravel(), after.ravel()).pvalue > 1e-6
        assert stats.kstest(before.ravel(), "uniform").pvalue > 1e-6
        assert stats.kstest(after.ravel(), "uniform").pvalue > 1e-6


def test_a_prover_that_does_not_reject_is_told_apart(quick):
    quick.setattr(shortness._Proof, "parse", lambda data, rows: data)
    quick.setattr(shortness._Proof, "to_bytes", lambda proof: proof)
    quick.setattr(shortness, "_accepted", lambda _: True)
    left, right = views(LARGEST, SAMPLES), views(-LARGEST, SAMPLES)
    assert abs(matched(*left) - matched(*right)) / math.sqrt(2) > 4.5


def test_rejections_are_as_rare_as_stated(quick):
    # 128 numbers, each rejected with probability ADDED/MASK, as the module's are with 2^-15.
    drawn: list[int] = []
    original = shortness._masks

    def counted(stream):
        drawn.append(0)
        return original(stream)

    quick.setattr(shortness, "_masks", counted)
    views(LARGEST, 100)
    rate = (1 - ADDED / MASK) ** 128
    expected, deviation = 100 / rate, math.sqrt(100 * (1 - rate)) / rate
    assert abs(len(drawn) - expected) < 5 * deviation
    assert 1 - (1 - 2**-15) ** 128 < 2**-8

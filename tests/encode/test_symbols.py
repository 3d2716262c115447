"""One symbol under ε-LDP: probabilities by counting coins, information by enumeration."""

import math
from decimal import Decimal, localcontext
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2

from lumos.encode.symbols import COIN, Symbols
from lumos.errors import ProtocolError, UsageError

MECHANISMS = ("krr", "oue")
SIZES = (2, 3, 4, 7, 18, 64, 256, 257, 500)
EPSILONS = (1e-3, 0.1, 0.5, 1.0, math.log(3), 2.0, 4.0, 10.0, 22.0, 40.0)


def said_by(symbols: Symbols, symbol: int, words: list[int]) -> list[int]:
    """What a device of `symbol` says for each coin (krr)."""
    messages = symbols.release(np.full(len(words), symbol), np.array(words, np.uint32)[:, None])
    return symbols.read(messages).argmax(axis=1).tolist()


def bits_by(symbols: Symbols, symbol: int, words: list[int]) -> np.ndarray:
    """[words, k] the bits for each coin, tossed alike for every bit (oue)."""
    coins = np.repeat(np.array(words, np.uint32)[:, None], symbols.size, axis=1)
    return symbols.read(symbols.release(np.full(len(words), symbol), coins))


def counted(symbols: Symbols) -> np.ndarray:
    """[k, k] of the 2^32 coins, how many make symbol x say y (krr).

    What is said changes only at multiples of `other`, and on both sides of every multiple it is
    looked at, so the count covers all coins without walking through them.
    """
    k, other = symbols.size, symbols.other
    starts = [step * other for step in range(k)]
    ends = [*starts[1:], COIN]
    table = np.zeros((k, k), dtype=object)
    for symbol in range(k):
        first = said_by(symbols, symbol, starts)
        middle = said_by(symbols, symbol, [(a + b) // 2 for a, b in zip(starts, ends, strict=True)])
        last = said_by(symbols, symbol, [end - 1 for end in ends])
        assert first == middle == last
        for said, start, end in zip(first, starts, ends, strict=True):
            table[symbol, said] += end - start
    return table


def at_most(count: int, other: int, epsilon: float) -> bool:
    """Whether count ≤ e^ε · other, with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Decimal(count) <= Decimal(epsilon).exp() * Decimal(other)


@pytest.mark.parametrize("size", [2, 3, 7, 64])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 10.0])
def test_every_coin_of_randomized_response_is_counted(size: int, epsilon: float) -> None:
    symbols = Symbols.of(size, epsilon, "krr")
    table = counted(symbols)
    assert (table.sum(axis=1) == COIN).all()
    off = ~np.eye(size, dtype=bool)
    assert set(table[off]) == {symbols.other}
    assert set(table.diagonal()) == {symbols.truth}
    # Columns: for every message, any two true symbols.
    for column in table.T:
        assert at_most(max(column), min(column), epsilon)


@pytest.mark.parametrize("size", [2, 9, 30])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_every_coin_of_unary_encoding_is_counted(size: int, epsilon: float) -> None:
    symbols = Symbols.of(size, epsilon, "oue")
    edges = [0, symbols.other - 1, symbols.other, symbols.truth - 1, symbols.truth, COIN - 1]
    for symbol in {0, size // 2, size - 1}:
        bits = bits_by(symbols, symbol, edges)
        own = np.arange(size) == symbol
        # One up to the limit, zero from it on: so as many coins as the limit give a 1.
        assert bits[:, own].ravel().tolist() == [1, 1, 1, 1, 0, 0]
        assert (bits[:, ~own] == np.array([1, 1, 0, 0, 0, 0])[:, None]).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_ratio_exceeds_e_to_the_epsilon(size: int, epsilon: float) -> None:
    krr = Symbols.of(size, epsilon, "krr")
    assert krr.truth + (size - 1) * krr.other == COIN
    assert krr.truth >= krr.other > 0
    assert at_most(krr.truth, krr.other, epsilon)
    oue = Symbols.of(size, epsilon, "oue")
    truth, other = oue.truth, oue.other
    assert 0 < other <= truth
    # Messages differ in likelihood by the bits of the two symbols alone: bit of x, then bit of y.
    for first, second in product((0, 1), repeat=2):
        one = (truth if first else COIN - truth) * (other if second else COIN - other)
        two = (other if first else COIN - other) * (truth if second else COIN - truth)
        assert at_most(one, two, epsilon)


@pytest.mark.parametrize(
    ("size", "epsilon"), [(5, 1e-9), (300, 1e-5), (3000, 1e-3), (40_000, 0.01), (65_536, 0.1)]
)
def test_no_ratio_exceeds_at_the_ends_of_what_is_allowed(size: int, epsilon: float) -> None:
    """Coins are whole numbers: with many symbols and a small ε they must not run out."""
    for mechanism in ("auto", "krr"):
        try:
            symbols = Symbols.of(size, epsilon, mechanism)
        except UsageError:
            continue  # to refuse is fine
        if symbols.mechanism == "krr":
            assert symbols.truth + (size - 1) * symbols.other == COIN
            high, low = sorted((symbols.truth, symbols.other), reverse=True)
            assert low > 0
            assert at_most(high, low, epsilon)


@pytest.mark.parametrize("size", [2, 18, 256])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_little_is_given_away_to_whole_coins(size: int, epsilon: float) -> None:
    """Rounding is on the safe side, but by less than a millionth."""
    krr = Symbols.of(size, epsilon, "krr")
    assert_allclose(krr.truth / COIN, math.exp(epsilon) / (math.exp(epsilon) + size - 1), rtol=1e-5)
    assert_allclose(krr.other / COIN, 1 / (math.exp(epsilon) + size - 1), rtol=1e-6)
    oue = Symbols.of(size, epsilon, "oue")
    assert oue.truth == COIN // 2
    assert_allclose(oue.other / COIN, 1 / (math.exp(epsilon) + 1), rtol=1e-8)


def test_a_large_epsilon_is_no_accident() -> None:
    """Any finite ε is allowed; there, nearly all coins tell the truth."""
    for mechanism in MECHANISMS:
        symbols = Symbols.of(6, 1000.0, mechanism)
        assert 1 <= symbols.other <= 2


@pytest.mark.parametrize("size", [2, 5, 12])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_krr_releases_come_as_often_as_they_should(size: int, epsilon: float) -> None:
    rng = np.random.default_rng(size)
    symbols, tries = Symbols.of(size, epsilon, "krr"), 200_000
    coins = rng.integers(0, COIN, (tries, 1), np.uint32)
    for symbol in (0, size - 1):
        said = symbols.read(symbols.release(np.full(tries, symbol), coins)).sum(axis=0)
        expected = np.full(size, tries * symbols.other / COIN)
        expected[symbol] = tries * symbols.truth / COIN
        assert ((said - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, size - 1)


@pytest.mark.parametrize("size", [3, 10])
def test_oue_messages_come_as_often_as_they_should(size: int) -> None:
    """Whole messages, so that bits are seen to be independent."""
    rng = np.random.default_rng(size)
    symbols, tries, symbol = Symbols.of(size, 1.0, "oue"), 200_000, 1
    coins = rng.integers(0, COIN, (tries, size), np.uint32)
    bits = symbols.read(symbols.release(np.full(tries, symbol), coins)).astype(np.int64)
    found = np.bincount(bits @ (1 << np.arange(size)), minlength=1 << size)
    expected = tries * np.array(
        [likelihood(symbols, message, symbol) for message in all_bits(size)]
    )
    assert ((found - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, len(expected) - 1)


def all_bits(size: int) -> list[tuple[int, ...]]:
    return [tuple((code >> bit) & 1 for bit in range(size)) for code in range(1 << size)]


def likelihood(symbols: Symbols, bits: tuple[int, ...], symbol: int) -> float:
    """P(message | symbol) of unary encoding, bit by bit."""
    chance = 1.0
    for place, bit in enumerate(bits):
        one = (symbols.truth if place == symbol else symbols.other) / COIN
        chance *= one if bit else 1 - one
    return chance


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("size", [2, 6, 20])
def test_unbiased_is_unbiased_and_its_variance_known(mechanism: str, size: int) -> None:
    rng = np.random.default_rng(7)
    symbols, tries, symbol = Symbols.of(size, 1.0, mechanism), 400_000, size - 1
    coins = rng.integers(0, COIN, (tries, symbols.coins), np.uint32)
    found = symbols.unbiased(symbols.read(symbols.release(np.full(tries, symbol), coins)))
    mean, spread = found.mean(axis=0), found.std(axis=0)
    assert (np.abs(mean - (np.arange(size) == symbol)) < 5 * spread / math.sqrt(tries)).all()
    assert_allclose(spread[:symbol] ** 2, symbols.variance(), rtol=0.02)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_information_is_that_of_all_messages(mechanism: str, size: int, epsilon: float) -> None:
    symbols = Symbols.of(size, epsilon, mechanism)
    if mechanism == "krr":
        table = np.full((size, size), symbols.other / COIN)
        np.fill_diagonal(table, symbols.truth / COIN)
    else:
        table = np.array(
            [[likelihood(symbols, bits, x) for bits in all_bits(size)] for x in range(size)]
        )
    assert_allclose(table.sum(axis=1), 1)
    joint = table / size
    independent = joint.sum(axis=0, keepdims=True) / size
    brute = (joint * np.log2(joint / independent)).sum()
    assert symbols.information() == pytest.approx(brute, rel=1e-6, abs=1e-12)
    assert 0 < symbols.information() <= epsilon * math.log2(math.e)


@pytest.mark.parametrize("size", [2, 8, 9, 200, 256, 257, 3000])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_is_said_is_read(size: int, mechanism: str) -> None:
    """Coins that tell the truth, bytes on the way."""
    symbols = Symbols.of(size, 8.0, mechanism)
    every = np.arange(size)
    coins = np.full((size, symbols.coins), COIN - 1, np.uint32)
    if mechanism == "oue":
        coins[every, every] = 0
    messages = symbols.release(every, coins)
    assert (messages.dtype, messages.shape) == (np.uint8, (size, symbols.width))
    assert np.array_equal(symbols.read(messages), np.eye(size))


def test_more_symbols_than_two_bytes_hold_are_read_or_refused() -> None:
    try:
        symbols = Symbols.of(70_000, 12.0)
    except UsageError:
        return
    every = np.array([0, 65_535, 65_536, 69_999])
    messages = symbols.release(every, np.full((4, symbols.coins), COIN - 1, np.uint32))
    assert symbols.read(messages).argmax(axis=1).tolist() == every.tolist()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_messages_of_the_wrong_length_are_refused(mechanism: str) -> None:
    symbols = Symbols.of(20, 1.0, mechanism)
    for width in (0, symbols.width - 1, symbols.width + 1, 20):
        if width != symbols.width:
            with pytest.raises(ProtocolError, match="wrong length"):
                symbols.read(np.zeros((2, width), np.uint8))


@pytest.mark.parametrize("size", [2, 20, 255, 257, 1000])
def test_symbols_out_of_range_are_refused(size: int) -> None:
    symbols = Symbols.of(size, 10.0, "krr")
    for wrong in (size, (1 << (8 * symbols.width)) - 1):
        body = np.frombuffer(wrong.to_bytes(symbols.width, "little"), np.uint8)[None, :]
        with pytest.raises(ProtocolError, match="out of range"):
            symbols.read(body)


def test_bits_beyond_the_last_symbol_are_refused_or_ignored() -> None:
    """20 symbols, 24 bits on the wire: what the last four say must not be heard."""
    symbols = Symbols.of(20, 1.0, "oue")
    try:
        heard = symbols.read(np.array([[0, 0, 0xF0]], np.uint8))
    except ProtocolError:
        return
    assert heard.shape == (1, 20)
    assert not heard.any()


def test_no_messages_are_no_messages() -> None:
    for mechanism in MECHANISMS:
        symbols = Symbols.of(5, 1.0, mechanism)
        assert symbols.read(np.empty((0, symbols.width), np.uint8)).shape == (0, 5)


@pytest.mark.parametrize("size", [1, 0, -3])
def test_one_symbol_says_nothing_and_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"at least 2 symbols, got {size}"):
        Symbols.of(size, 1.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_an_epsilon_that_promises_nothing_is_refused(epsilon: float) -> None:
    with pytest.raises(UsageError, match="--epsilon must be above 0 and finite"):
        Symbols.of(4, epsilon)


def test_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(UsageError, match="auto, krr, digits, oue, multibit, got 'rappor'"):
        Symbols.of(4, 1.0, "rappor")

"""Randomized response: probabilities by counting randomness, information by enumeration."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2
from tests.ldp.mechanisms.counting import at_most

from lumos.errors import ProtocolError, UsageError
from lumos.ldp.mechanisms import COIN, Mechanism, RandomizedResponse, make_mechanism

SIZES = (2, 3, 4, 7, 18, 64, 256, 257, 500)
EPSILONS = (1e-3, 0.1, 0.5, 1.0, math.log(3), 2.0, 4.0, 10.0, 22.0, 40.0)


def said_by(symbols: Mechanism, symbol: int, words: list[int]) -> list[int]:
    """What a device of `symbol` says for each random bit."""
    messages = symbols.release(np.full(len(words), symbol), np.array(words, np.uint32)[:, None])
    return symbols.read(messages).argmax(axis=1).tolist()


def counted(symbols: Mechanism) -> np.ndarray:
    """[k, k] of the 2^32 randomness, how many make symbol x say y.

    The answer changes only at multiples of `other`, and on both sides of every multiple it is
    looked at, so the count covers all randomness without walking through them.
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


@pytest.mark.parametrize("size", [2, 3, 7, 64])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 10.0])
def test_every_coin_of_randomized_response_is_counted(size: int, epsilon: float) -> None:
    symbols = make_mechanism(size, epsilon, "krr")
    table = counted(symbols)
    assert (table.sum(axis=1) == COIN).all()
    off = ~np.eye(size, dtype=bool)
    assert set(table[off]) == {symbols.other}
    assert set(table.diagonal()) == {symbols.truth}
    # Columns: for every message, any two true labels.
    for column in table.T:
        assert at_most(max(column), min(column), epsilon)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_ratio_exceeds_e_to_the_epsilon(size: int, epsilon: float) -> None:
    krr = make_mechanism(size, epsilon, "krr")
    assert krr.truth + (size - 1) * krr.other == COIN
    assert krr.truth >= krr.other > 0
    assert at_most(krr.truth, krr.other, epsilon)


@pytest.mark.parametrize(
    ("size", "epsilon"), [(5, 1e-9), (300, 1e-5), (3000, 1e-3), (40_000, 0.01), (65_536, 0.1)]
)
def test_no_ratio_exceeds_at_the_ends_of_what_is_allowed(size: int, epsilon: float) -> None:
    """Randomness are whole numbers: with many symbols and a small ε they must not run out."""
    for mechanism in ("auto", "krr"):
        try:
            symbols = make_mechanism(size, epsilon, mechanism)
        except UsageError:
            continue  # to refuse is fine
        if symbols.name == "krr":
            assert symbols.truth + (size - 1) * symbols.other == COIN
            high, low = sorted((symbols.truth, symbols.other), reverse=True)
            assert low > 0
            assert at_most(high, low, epsilon)


@pytest.mark.parametrize("size", [2, 18, 256])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_little_is_given_away_to_whole_randomness(size: int, epsilon: float) -> None:
    """Rounding is on the safe side, but by less than a millionth."""
    krr = make_mechanism(size, epsilon, "krr")
    assert_allclose(krr.truth / COIN, math.exp(epsilon) / (math.exp(epsilon) + size - 1), rtol=1e-5)
    assert_allclose(krr.other / COIN, 1 / (math.exp(epsilon) + size - 1), rtol=1e-6)


@pytest.mark.parametrize("size", [2, 5, 12])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_krr_releases_come_as_often_as_they_should(size: int, epsilon: float) -> None:
    rng = np.random.default_rng(size)
    symbols, tries = make_mechanism(size, epsilon, "krr"), 200_000
    randomness = rng.integers(0, COIN, (tries, 1), np.uint32)
    for symbol in (0, size - 1):
        said = symbols.read(symbols.release(np.full(tries, symbol), randomness)).sum(axis=0)
        expected = np.full(size, tries * symbols.other / COIN)
        expected[symbol] = tries * symbols.truth / COIN
        assert ((said - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, size - 1)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_information_is_that_of_all_messages(size: int, epsilon: float) -> None:
    symbols = make_mechanism(size, epsilon, "krr")
    table = np.full((size, size), symbols.other / COIN)
    np.fill_diagonal(table, symbols.truth / COIN)
    assert_allclose(table.sum(axis=1), 1)
    joint = table / size
    independent = joint.sum(axis=0, keepdims=True) / size
    brute = (joint * np.log2(joint / independent)).sum()
    assert symbols.information() == pytest.approx(brute, rel=1e-6, abs=1e-12)
    assert 0 < symbols.information() <= epsilon * math.log2(math.e)


def test_more_symbols_than_two_bytes_hold_are_read_or_refused() -> None:
    try:
        symbols = make_mechanism(70_000, 12.0)
    except UsageError:
        return
    every = np.array([0, 65_535, 65_536, 69_999])
    messages = symbols.release(every, np.full((4, symbols.randomness), COIN - 1, np.uint32))
    assert symbols.read(messages).argmax(axis=1).tolist() == every.tolist()


@pytest.mark.parametrize("size", [2, 20, 255, 257, 1000])
def test_symbols_out_of_range_are_refused(size: int) -> None:
    symbols = make_mechanism(size, 10.0, "krr")
    for wrong in (size, (1 << (8 * symbols.width)) - 1):
        body = np.frombuffer(wrong.to_bytes(symbols.width, "little"), np.uint8)[None, :]
        with pytest.raises(ProtocolError, match="out of range"):
            symbols.read(body)


@pytest.mark.parametrize("rest", [1, 3, 6])
def test_a_share_that_is_nearly_a_whole_number_is_rounded_up(rest: int) -> None:
    """There floats may err on the wrong side of a whole number of randomness."""
    for share in range(1 << 20, (1 << 20) + 3000):
        symbols = RandomizedResponse(rest + 1, math.log(COIN / share - rest))
        with localcontext() as context:
            context.prec = 60
            limit = Decimal(symbols.epsilon).exp() * Decimal(symbols.other)
            assert Decimal(symbols.truth) <= limit

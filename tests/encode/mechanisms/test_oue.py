"""Unary encoding: probabilities by counting coins, information by enumeration."""

import math
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2
from tests.encode.mechanisms.counting import at_most

from lumos.encode.mechanisms import COIN, Mechanism, make_mechanism
from lumos.errors import ProtocolError

SIZES = (2, 3, 4, 7, 18, 64, 256, 257, 500)
EPSILONS = (1e-3, 0.1, 0.5, 1.0, math.log(3), 2.0, 4.0, 10.0, 22.0, 40.0)


def bits_by(symbols: Mechanism, symbol: int, words: list[int]) -> np.ndarray:
    """[words, k] the bits for each coin, tossed alike for every bit."""
    coins = np.repeat(np.array(words, np.uint32)[:, None], symbols.size, axis=1)
    return symbols.read(symbols.release(np.full(len(words), symbol), coins))


def all_bits(size: int) -> list[tuple[int, ...]]:
    return [tuple((code >> bit) & 1 for bit in range(size)) for code in range(1 << size)]


def likelihood(symbols: Mechanism, bits: tuple[int, ...], symbol: int) -> float:
    """P(message | symbol) of unary encoding, bit by bit."""
    chance = 1.0
    for place, bit in enumerate(bits):
        one = (symbols.truth if place == symbol else symbols.other) / COIN
        chance *= one if bit else 1 - one
    return chance


@pytest.mark.parametrize("size", [2, 9, 30])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_every_coin_of_unary_encoding_is_counted(size: int, epsilon: float) -> None:
    symbols = make_mechanism(size, epsilon, "oue")
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
    oue = make_mechanism(size, epsilon, "oue")
    truth, other = oue.truth, oue.other
    assert 0 < other <= truth
    # Messages differ in likelihood by the bits of the two symbols alone: bit of x, then bit of y.
    for first, second in product((0, 1), repeat=2):
        one = (truth if first else COIN - truth) * (other if second else COIN - other)
        two = (other if first else COIN - other) * (truth if second else COIN - truth)
        assert at_most(one, two, epsilon)


@pytest.mark.parametrize("size", [2, 18, 256])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_little_is_given_away_to_whole_coins(size: int, epsilon: float) -> None:
    """Rounding is on the safe side, but by less than a millionth."""
    oue = make_mechanism(size, epsilon, "oue")
    assert oue.truth == COIN // 2
    assert_allclose(oue.other / COIN, 1 / (math.exp(epsilon) + 1), rtol=1e-8)


@pytest.mark.parametrize("size", [3, 10])
def test_oue_messages_come_as_often_as_they_should(size: int) -> None:
    """Whole messages, so that bits are seen to be independent."""
    rng = np.random.default_rng(size)
    symbols, tries, symbol = make_mechanism(size, 1.0, "oue"), 200_000, 1
    coins = rng.integers(0, COIN, (tries, size), np.uint32)
    bits = symbols.read(symbols.release(np.full(tries, symbol), coins)).astype(np.int64)
    found = np.bincount(bits @ (1 << np.arange(size)), minlength=1 << size)
    expected = tries * np.array(
        [likelihood(symbols, message, symbol) for message in all_bits(size)]
    )
    assert ((found - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, len(expected) - 1)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_information_is_that_of_all_messages(size: int, epsilon: float) -> None:
    symbols = make_mechanism(size, epsilon, "oue")
    table = np.array(
        [[likelihood(symbols, bits, x) for bits in all_bits(size)] for x in range(size)]
    )
    assert_allclose(table.sum(axis=1), 1)
    joint = table / size
    independent = joint.sum(axis=0, keepdims=True) / size
    brute = (joint * np.log2(joint / independent)).sum()
    assert symbols.information() == pytest.approx(brute, rel=1e-6, abs=1e-12)
    assert 0 < symbols.information() <= epsilon * math.log2(math.e)


def test_bits_beyond_the_last_symbol_are_refused_or_ignored() -> None:
    """20 symbols, 24 bits on the wire: what the last four say must not be heard."""
    symbols = make_mechanism(20, 1.0, "oue")
    try:
        heard = symbols.read(np.array([[0, 0, 0xF0]], np.uint8))
    except ProtocolError:
        return
    assert heard.shape == (1, 20)
    assert not heard.any()

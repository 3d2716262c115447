"""One digit of a symbol under ε-LDP: by counting randomness, and information by enumeration."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lumos.errors import ProtocolError
from lumos.ldp.mechanisms import COIN, Digits, make_mechanism

SIZES = (2, 3, 5, 8, 10, 18, 26, 100, 300)


def digits(size: int, epsilon: float) -> Digits:
    made = make_mechanism(size, epsilon, "digits")
    assert isinstance(made, Digits)
    return made


def chances(symbols: Digits) -> np.ndarray:
    """[k, alphabet] P(message | symbol), from the description alone."""
    table = np.full((symbols.size, symbols.places, symbols.base), symbols.other / COIN)
    for symbol in range(symbols.size):
        rest = symbol
        for place in range(symbols.places):
            rest, digit = divmod(rest, symbols.base)
            table[symbol, place, digit] = symbols.truth / COIN
        assert rest == 0
    return table.reshape(symbols.size, -1) / symbols.places


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 4.0])
def test_messages_come_as_described(size: int, epsilon: float) -> None:
    symbols, tries = digits(size, epsilon), 60_000
    rng = np.random.default_rng(size)
    for symbol in {0, size // 2, size - 1}:
        randomness = rng.integers(0, COIN, (tries, symbols.randomness), np.uint32)
        messages = symbols.release(np.full(tries, symbol), randomness)
        assert messages.shape == (tries, symbols.width)
        said = symbols.read(messages)
        assert said.shape == (tries, symbols.alphabet)
        assert (said.sum(axis=1) == 1).all()
        expected = chances(symbols)[symbol]
        error = np.sqrt(expected * (1 - expected) / tries)
        assert (np.abs(said.mean(axis=0) - expected) < 5 * error + 1e-9).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 2.0, 10.0, 30.0])
def test_no_message_tells_more_than_epsilon(size: int, epsilon: float) -> None:
    """The place is the same random bit for all symbols; given it, randomness is counted exactly."""
    symbols = digits(size, epsilon)
    with localcontext() as context:
        context.prec = 60
        assert Decimal(symbols.truth) <= Decimal(epsilon).exp() * Decimal(symbols.other)
    assert symbols.truth + (symbols.base - 1) * symbols.other == COIN
    every = np.arange(size)
    for place_coin in (0, COIN // 3, COIN - 1):
        told = []
        for coin in (0, symbols.other - 1, symbols.other, COIN - 1):
            randomness = np.tile(np.array([place_coin, coin], np.uint32), (size, 1))
            said = symbols.read(symbols.release(every, randomness)).argmax(axis=1)
            told.append(said // symbols.base)
        assert len(np.unique(told)) == 1  # one place, whatever the symbol and the other random bit


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_information_is_that_of_all_messages(size: int, epsilon: float) -> None:
    symbols = digits(size, epsilon)
    joint = chances(symbols) / size
    independent = joint.sum(axis=0, keepdims=True) / size
    brute = (joint * np.log2(joint / independent)).sum()
    assert symbols.information() == pytest.approx(brute, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_every_symbol_has_its_own_digits_and_no_more_than_needed(epsilon: float) -> None:
    for size in range(2, 300):
        symbols = digits(size, epsilon)
        base, places = symbols.base, symbols.places
        assert (base - 1) ** places < size <= base**places
        assert base >= 2


@pytest.mark.parametrize("size", [2, 6, 20, 100])
def test_unbiased_is_unbiased_and_its_variance_known(size: int) -> None:
    symbols = digits(size, 1.0)
    rows = np.eye(symbols.alphabet)
    table, unbiased = chances(symbols), symbols.unbiased(rows)
    true = (table * symbols.places * COIN > symbols.truth - 0.5).astype(float)
    assert_allclose(table @ unbiased, true, atol=1e-9)
    second = table @ unbiased**2
    assert_allclose(second[true == 0], symbols.variance(), rtol=1e-6)


def test_what_is_no_digit_is_refused() -> None:
    symbols = digits(18, 2.0)
    assert (symbols.base, symbols.places, symbols.width) == (5, 2, 1)
    symbols.read(np.array([[9]], np.uint8))
    with pytest.raises(ProtocolError, match="out of range"):
        symbols.read(np.array([[10]], np.uint8))
    with pytest.raises(ProtocolError, match="wrong length"):
        symbols.read(np.array([[1, 0]], np.uint8))


def test_many_symbols_take_two_bytes() -> None:
    symbols = digits(60_000, 9.0)
    assert symbols.alphabet > 256
    assert symbols.width == 2
    every = np.array([0, 1, 255, 256, 59_999])
    for place in range(symbols.places):
        coin = math.ceil(place * COIN / symbols.places)
        randomness = np.tile(np.array([coin, COIN - 1], np.uint32), (len(every), 1))
        said = symbols.read(symbols.release(every, randomness)).argmax(axis=1)
        assert (said == place * symbols.base + every // symbols.base**place % symbols.base).all()

"""What mechanisms share: the choice by name, and what is refused."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lumos.errors import ProtocolError, UsageError
from lumos.ldp.mechanisms import BETTER, COIN, MECHANISMS, make_mechanism

NAMES = ("krr",)


def test_a_large_epsilon_is_no_accident() -> None:
    """Any finite ε is allowed; there, nearly all randomness tell the truth."""
    for mechanism in NAMES:
        symbols = make_mechanism(6, 1000.0, mechanism)
        assert 1 <= symbols.other <= 2


@pytest.mark.parametrize("mechanism", NAMES)
@pytest.mark.parametrize("size", [2, 6, 20])
def test_unbiased_is_unbiased_and_its_variance_known(mechanism: str, size: int) -> None:
    rng = np.random.default_rng(7)
    symbols, tries, symbol = make_mechanism(size, 1.0, mechanism), 400_000, size - 1
    randomness = rng.integers(0, COIN, (tries, symbols.randomness), np.uint32)
    found = symbols.unbiased(symbols.read(symbols.release(np.full(tries, symbol), randomness)))
    mean, spread = found.mean(axis=0), found.std(axis=0)
    assert (np.abs(mean - (np.arange(size) == symbol)) < 5 * spread / math.sqrt(tries)).all()
    assert_allclose(spread[:symbol] ** 2, symbols.variance(), rtol=0.02)


@pytest.mark.parametrize("size", [2, 8, 9, 200, 256, 257, 3000])
@pytest.mark.parametrize("mechanism", NAMES)
def test_what_is_said_is_read(size: int, mechanism: str) -> None:
    """Randomness that tell the truth, bytes on the way."""
    symbols = make_mechanism(size, 8.0, mechanism)
    every = np.arange(size)
    randomness = np.full((size, symbols.randomness), COIN - 1, np.uint32)
    messages = symbols.release(every, randomness)
    assert (messages.dtype, messages.shape) == (np.dtype(np.uint8), (size, symbols.width))
    assert np.array_equal(symbols.read(messages), np.eye(size))


@pytest.mark.parametrize("mechanism", NAMES)
def test_messages_of_the_wrong_length_are_refused(mechanism: str) -> None:
    symbols = make_mechanism(20, 1.0, mechanism)
    for width in (0, symbols.width - 1, symbols.width + 1, 20):
        if width != symbols.width:
            with pytest.raises(ProtocolError, match="wrong length"):
                symbols.read(np.zeros((2, width), np.uint8))


def test_no_messages_are_no_messages() -> None:
    for mechanism in NAMES:
        symbols = make_mechanism(5, 1.0, mechanism)
        assert symbols.read(np.empty((0, symbols.width), np.uint8)).shape == (0, 5)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_auto_keeps_more_bits(epsilon: float) -> None:
    taken = set()
    for size in range(2, 300):
        chosen, krr = make_mechanism(size, epsilon), make_mechanism(size, epsilon, "krr")
        digits = make_mechanism(size, epsilon, "digits")
        more = digits.information() > BETTER * krr.information()
        assert chosen.name == ("digits" if more else "krr")
        taken.add(chosen.name)
    assert taken == {"krr", "digits"}


@pytest.mark.parametrize("epsilon", [1e-3, 3e-3, 0.01])
def test_what_randomness_cannot_tell_apart_is_not_chosen(epsilon: float) -> None:
    for size in (2, 3, 300, 20_000, 60_000, 65_536):
        symbols = make_mechanism(size, epsilon)
        assert symbols.other < symbols.truth
        assert symbols.information() > 0
        assert math.isfinite(symbols.variance())


def test_where_nothing_can_be_told_it_is_refused() -> None:
    for arguments in ((65_536, 1e-3, "krr"), (2, 1e-10)):
        with pytest.raises(UsageError, match="too little for randomness of 32 bits"):
            make_mechanism(*arguments)


@pytest.mark.parametrize("size", [1, 0, -3])
def test_one_symbol_says_nothing_and_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"at least 2 labels, got {size}"):
        make_mechanism(size, 1.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_an_epsilon_that_guarantees_nothing_is_refused(epsilon: float) -> None:
    with pytest.raises(UsageError, match="`epsilon` must be above 0 and finite"):
        make_mechanism(4, epsilon)


def test_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(UsageError, match="auto, krr, digits, got 'rappor'"):
        make_mechanism(4, 1.0, "rappor")


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_entry_has_its_own_name(name: str) -> None:
    assert make_mechanism(5, 1.0, name).name == name

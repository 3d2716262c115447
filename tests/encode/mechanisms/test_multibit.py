"""One symbol by the multi-bit mechanism: every message enumerated, and the mechanism of rows."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lumos.device.coins import PrivateCoins, system_secrets
from lumos.encode import multibit_features
from lumos.encode.mechanisms import COIN, make_mechanism
from lumos.encode.mechanisms.multibit import MultiBit
from lumos.errors import ProtocolError

CASES = [(2, 0.5), (3, 1.0), (4, 2.0), (5, 5.0), (6, 9.0), (3, 20.0)]


def multibit(size: int, epsilon: float) -> MultiBit:
    made = make_mechanism(size, epsilon, "multibit")
    assert isinstance(made, MultiBit)
    return made


def messages(symbols: MultiBit) -> tuple[np.ndarray, np.ndarray]:
    """Every message as read, and [messages, k] its probability for each true symbol."""
    k, m = symbols.size, symbols.sampled
    truth, other = symbols.truth / COIN, symbols.other / COIN
    rows, chances = [], []
    for chosen in combinations(range(k), m):
        for bits in product((True, False), repeat=m):
            row = np.zeros(2 * k)
            row[[c if bit else k + c for c, bit in zip(chosen, bits, strict=True)]] = 1
            yes = np.where(np.arange(k)[:, None] == np.array(chosen), truth, other)
            rows.append(row)
            chances.append(np.where(bits, yes, 1 - yes).prod(axis=1) / math.comb(k, m))
    return np.stack(rows), np.stack(chances)


@pytest.mark.parametrize(("size", "epsilon"), CASES)
def test_all_messages(size: int, epsilon: float) -> None:
    symbols = multibit(size, epsilon)
    rows, chances = messages(symbols)
    assert_allclose(chances.sum(axis=0), 1)
    worst = (chances.max(axis=1) / chances.min(axis=1)).max()
    assert worst <= math.exp(epsilon) * (1 + 1e-12)
    # Two symbols differ in two coordinates: of m, the others give their ε away.
    used = epsilon * min(2, symbols.sampled) / symbols.sampled
    assert worst == pytest.approx(math.exp(used), rel=1e-4)
    assert_allclose(chances.T @ symbols.unbiased(rows), np.eye(size), atol=1e-9)
    if size > 2:
        second = chances[:, 0] @ symbols.unbiased(rows)[:, 1] ** 2
        assert symbols.variance() == pytest.approx(second, rel=1e-6)
    before = chances.mean(axis=1, keepdims=True)
    told = (chances * np.log2(chances / before)).sum() / size
    assert symbols.information() == pytest.approx(told, abs=1e-9)


@pytest.mark.parametrize(("size", "epsilon"), [(3, 1.0), (4, 5.0)])
def test_messages_come_as_often_as_they_should(size: int, epsilon: float) -> None:
    symbols = multibit(size, epsilon)
    rows, chances = messages(symbols)
    many = 40_000
    words = np.random.default_rng(5).integers(0, COIN, (many, symbols.coins), dtype=np.uint32)
    said = symbols.read(symbols.release(np.ones(many, np.int64), words))
    place = {tuple(row): number for number, row in enumerate(rows)}
    counts = np.bincount([place[tuple(row)] for row in said], minlength=len(rows))
    expected = many * chances[:, 1]
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < len(rows) + 6 * math.sqrt(2 * len(rows))


def test_it_is_the_mechanism_of_rows() -> None:
    """The same probabilities as `multi_bit` has for a row of zeros and one 1."""
    symbols, devices = multibit(5, 6.0), 20_000
    features = np.tile(np.eye(5, dtype=np.float32)[2], (devices, 1))
    coins = PrivateCoins(system_secrets(np.arange(devices)))
    rows = multibit_features.release(features, 6.0, coins).toarray()
    assert (np.abs(rows).sum(axis=1) == symbols.sampled).all()
    for column in range(5):
        sent = rows[:, column] != 0
        chance = (symbols.truth if column == 2 else symbols.other) / COIN
        error = math.sqrt(0.25 / sent.sum())
        assert (rows[sent, column] > 0).mean() == pytest.approx(chance, abs=5 * error)


@pytest.mark.parametrize("bad", [0b000000, 0b000011, 0b001001])
def test_a_message_that_tells_too_much_is_refused(bad: int) -> None:
    symbols = multibit(3, 1.0)
    with pytest.raises(ProtocolError, match="as many bits"):
        symbols.read(np.array([[bad]], np.uint8))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 4.0, 10.0])
@pytest.mark.parametrize("size", [2, 4, 18, 200])
def test_it_never_keeps_more(size: int, epsilon: float) -> None:
    best = make_mechanism(size, epsilon).information()
    assert multibit(size, epsilon).information() <= best + 1e-9

"""Words of devices, against loops over dense rows."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from lumos.strict.link.encoder import COUNTED, TokenRows


def rows_of(features: Any, *, signed: bool = False) -> TokenRows:
    return TokenRows(features, signed=signed)


def has(rows: TokenRows) -> np.ndarray:
    """[devices, words] 1 where a device has the word."""
    return (rows.weighted(np.ones(rows.width)).toarray() > 0).astype(int)


def words_by_hand(features: np.ndarray, *, signed: bool) -> list[dict[int, float]]:
    """Of each device, the value of each of its words."""
    d = features.shape[1]
    found: list[dict[int, float]] = []
    for row in features.astype(np.float64).tolist():
        words: dict[int, float] = {}
        for column, value in enumerate(row):
            if value > 0 or (signed and value < 0):
                words[column + d * (value < 0)] = abs(value)
        found.append(words)
    return found


def dense(words: list[dict[int, float]], width: int) -> np.ndarray:
    rows = np.zeros((len(words), width))
    for row, of_device in zip(rows, words, strict=True):
        for name, value in of_device.items():
            row[name] = value
    return rows


def random_features(seed: int, devices: int = 12, d: int = 9) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(devices, d)) * (rng.random((devices, d)) < 0.4)
    values[3] = 0  # a device without words
    return values.astype(np.float32)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_everything_against_loops(signed: bool, seed: int) -> None:
    features = random_features(seed)
    width = 18 if signed else 9
    words = words_by_hand(features, signed=signed)
    values = dense(words, width)
    held = values > 0
    weights = np.random.default_rng(seed).random(width) + 0.1
    for given_as in (features, csr_array(features), features.astype(np.float64)):
        rows = rows_of(given_as, signed=signed)
        assert rows.width == width
        assert_array_equal(rows.held, held.sum(axis=1))
        assert_array_equal(has(rows), held)
        assert_allclose(
            rows.shares().toarray(), held / np.sqrt(np.maximum(held.sum(axis=1), COUNTED))[:, None]
        )
        weighted = values * weights
        norm = np.sqrt((weighted**2).sum(axis=1, keepdims=True))
        assert_allclose(rows.weighted(weights).toarray(), weighted / np.where(norm, norm, 1))


def test_a_negative_feature_is_another_word_or_none() -> None:
    features = np.array([[1.0, -2.0, 0.0], [-1.0, 0.0, 3.0]])
    assert_array_equal(has(rows_of(features)), [[1, 0, 0], [0, 0, 1]])
    both = rows_of(features, signed=True)
    assert_array_equal(has(both), [[1, 0, 0, 0, 1, 0], [0, 0, 1, 1, 0, 0]])


def test_stored_zeros_are_no_words() -> None:
    stored = csr_array((np.array([0.0, 1.0]), np.array([0, 2]), np.array([0, 1, 2])), shape=(2, 3))
    assert_array_equal(rows_of(stored).held, [0, 1])
    assert_array_equal(has(rows_of(stored, signed=True)).sum(axis=0), [0, 0, 1, 0, 0, 0])


def test_random_words_are_as_many_but_for_those_drawn_twice() -> None:
    """The control: names are drawn, and how many words a device has stays."""
    features = (np.random.default_rng(0).random((50, 4000)) < 0.01).astype(np.float32)
    rows = rows_of(features)
    held, total = rows.held, rows._values.sum()
    rows.replaced(np.random.default_rng(1).integers(0, 4000, int(held.sum())))
    assert (rows.held <= held).all()
    assert rows.held.sum() > 0.98 * held.sum()
    assert rows._values.sum() == total
    assert (has(rows) != (features > 0)).any()


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=40, deadline=None)
def test_norms_are_at_most_one(seed: int, signed: bool) -> None:
    rng = np.random.default_rng(seed)
    many = int(rng.integers(1, 120))
    features = rng.normal(size=(6, many)) * 10.0 ** rng.integers(-30, 30, (6, many))
    rows = rows_of(features.astype(np.float64), signed=signed)
    shares = np.sqrt((rows.shares().toarray() ** 2).sum(axis=1))
    assert (shares <= 1 + 1e-12).all()
    assert_allclose(shares, np.sqrt(rows.held / np.maximum(rows.held, COUNTED)))
    norms = np.sqrt((rows.weighted(rng.random(rows.width) + 1e-3).toarray() ** 2).sum(axis=1))
    assert_allclose(norms, np.where(rows.held > 0, 1.0, 0.0), atol=1e-9)
    assert math.isclose(norms.max(initial=0), 1, rel_tol=1e-9) or not rows.held.any()

"""Releases of a shard: every element once, any shards, and what the receivers recover."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from tests.ldp.formulas import recovered_variance

from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.errors import InputError, UsageError
from lumos.ldp import EncoderSettings, Released, recover, release, scaled
from lumos.ldp.one_bit import largest_bin

NOISY = EncoderSettings(epsilon=2.0)


def randomness(devices: npt.ArrayLike, seed: int = 0) -> PrivateRandomness:
    return PrivateRandomness(simulated_secrets(seed, np.asarray(devices, np.int64)))


def rows_of(released: Released) -> list[list[int]]:
    return [part.tolist() for part in np.split(released.elements, released.offsets[1:-1])]


@given(st.integers(1, 40), st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_every_element_is_sent_exactly_once(width: int, receivers: list[int]) -> None:
    rho = np.array(receivers)
    features = np.full((len(rho), width), 0.5, np.float32)
    released = release(features, rho, NOISY, randomness(range(len(rho))))
    assert released.messages == rho.sum()
    rows = rows_of(released) if released.messages else []
    spent = released.epsilon(NOISY)
    start = 0
    for count in receivers:
        mine = rows[start : start + count]
        if count:
            assert sorted(element for row in mine for element in row) == list(range(width))
            assert all(row == sorted(row) for row in mine)
            sizes = [len(row) for row in mine]
            assert max(sizes) - min(sizes) <= 1
            assert max(sizes) == largest_bin(width, np.array([count]))[0]
            assert spent[start : start + count].max() == 2.0
        start += count
    assert (spent <= 2.0).all()


@pytest.mark.parametrize("settings", [NOISY, EncoderSettings(epsilon=math.inf, bins=True)])
@pytest.mark.parametrize("shards", [2, 7])
def test_releases_do_not_depend_on_shards(settings: EncoderSettings, shards: int) -> None:
    rng = np.random.default_rng(0)
    features = rng.random((150, 33), np.float32)
    rho = rng.integers(0, 12, 150)
    whole = release(features, rho, settings, randomness(range(150)), step=3)
    ends = np.cumsum(rho)
    for shard in range(shards):
        devices = np.arange(shard, 150, shards)
        part = release(features[devices], rho[devices], settings, randomness(devices), step=3)
        mine = whole.take(np.concatenate([np.arange(ends[u] - rho[u], ends[u]) for u in devices]))
        np.testing.assert_array_equal(part.codes, mine.codes)
        np.testing.assert_array_equal(part.offsets, mine.offsets)
        np.testing.assert_array_equal(part.largest, mine.largest)
        if mine.values is not None:
            np.testing.assert_array_equal(part.values, mine.values)


def test_dense_and_sparse_features_release_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    dense = (rng.random((60, 50)) < 0.1).astype(np.float32)
    rho = rng.integers(0, 5, 60)
    one, other = (release(x, rho, NOISY, randomness(range(60))) for x in (dense, csr_array(dense)))
    np.testing.assert_array_equal(one.codes, other.codes)


def test_each_step_has_randomness_of_its_own() -> None:
    features = np.full((1, 400), 0.5, np.float32)
    first, second = (
        release(features, np.array([1]), NOISY, randomness([0]), step=step) for step in (0, 1)
    )
    assert 0.3 < (first.bits == second.bits).mean() < 0.7


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (-1.0, 3.0)])
@pytest.mark.parametrize(("width", "receivers"), [(1, 1), (6, 4), (3, 5)])
def test_recovered_features_have_the_mean_and_variance_of_the_mechanism(
    a: float, b: float, width: int, receivers: int
) -> None:
    settings = EncoderSettings(epsilon=3.0, low=a, high=b)
    devices = 6000
    x = np.linspace(a, b, width + 2)[1:-1].astype(np.float32)
    released = release(
        np.tile(x, (devices, 1)), np.full(devices, receivers), settings, randomness(range(devices))
    )
    recovered = recover(released, settings)
    dense = recovered.dense().reshape(devices, receivers, width)
    # Elements that did not come stand at the midpoint; the one that came is the deviation's sum.
    came = (dense - settings.midpoint).sum(axis=1) + settings.midpoint
    each = 3.0 / float(released.largest[0])
    variance = recovered_variance(x.astype(np.float64), each, a, b)
    error = np.sqrt(variance / devices)
    assert (np.abs(came.mean(axis=0) - x) < 4.5 * error).all()
    # The fourth moment is at most (2·scale)⁴, so this is beyond 4.5 standard errors.
    tolerance = 4.5 * float((2 * recovered.scale[0]) ** 2) / np.sqrt(devices)
    assert (np.abs(came.var(axis=0) - variance) < tolerance).all()


def test_bins_are_uniform_over_receivers_and_pairs_of_elements_are_not_tied() -> None:
    devices, width, receivers = 8000, 5, 3
    features = np.zeros((devices, width), np.float32)
    released = release(features, np.full(devices, receivers), NOISY, randomness(range(devices)))
    home = np.empty((devices, width), np.int64)
    message = np.repeat(np.arange(released.messages), released.counts)
    home[message // receivers, released.elements] = message % receivers
    for element in range(width):
        share = np.bincount(home[:, element], minlength=receivers) / devices
        assert (np.abs(share - 1 / receivers) < 4.5 * np.sqrt(2 / 9 / devices)).all()
    # Two elements share a bin with chance (2·(1 + 1))/(5·4): bins of 2, 2 and 1 elements.
    together = (home[:, 0] == home[:, 3]).mean()
    assert abs(together - 0.2) < 4.5 * np.sqrt(0.2 * 0.8 / devices)


def test_without_noise_all_features_reach_all_receivers() -> None:
    settings = EncoderSettings(epsilon=math.inf)
    dense = np.array([[0, 1, 0.25], [0, 0, 0], [1, 0, 0]], np.float32)
    for features in (dense, csr_array(dense)):
        released = release(features, np.array([2, 1, 0]), settings, randomness(range(3)))
        np.testing.assert_array_equal(recover(released, settings).dense(), dense[[0, 0, 1]])
        assert np.isinf(released.epsilon(settings)).all()


def test_without_noise_bins_keep_what_came_and_the_midpoint_elsewhere() -> None:
    settings = EncoderSettings(epsilon=math.inf, bins=True)
    features = np.array([[0, 1, 0.25, 0.75]], np.float32)
    dense = recover(release(features, np.array([2]), settings, randomness([0])), settings).dense()
    np.testing.assert_allclose((dense - 0.5).sum(axis=0) + 0.5, features[0])
    assert ((dense == 0.5).sum(axis=1) == 2).all()


@pytest.mark.parametrize(
    "features", [np.array([[np.nan]], np.float32), csr_array(np.array([[np.inf]], np.float32))]
)
def test_features_that_are_no_numbers_are_refused(features: npt.NDArray[np.float32]) -> None:
    with pytest.raises(InputError, match="not finite"):
        release(features, np.array([1]), NOISY, randomness([0]))
    with pytest.raises(InputError, match="not finite"):
        scaled(features, 0, 1)


def test_features_outside_the_public_bounds_are_refused() -> None:
    with pytest.raises(InputError, match="outside the public bounds"):
        release(np.array([[1.5]], np.float32), np.array([1]), NOISY, randomness([0]))
    positive = EncoderSettings(low=1.0, high=2.0)
    with pytest.raises(InputError, match="outside the public bounds"):
        release(csr_array(np.zeros((1, 3), np.float32)), np.array([1]), positive, randomness([0]))


def test_receivers_must_fit_the_devices() -> None:
    with pytest.raises(UsageError, match="receivers must be 1 numbers"):
        release(np.zeros((1, 2), np.float32), np.array([1, 1]), NOISY, randomness([0]))
    with pytest.raises(UsageError, match="none to release"):
        release(np.zeros((1, 0), np.float32), np.array([1]), NOISY, randomness([0]))


def test_scaling_maps_public_bounds_and_clips() -> None:
    dense = np.array([[0, 5, 20], [10, -3, 2]], np.float32)
    expected = np.array([[0, 0.5, 1], [1, 0, 0.2]], np.float32)
    unit = scaled(dense, 0, 10)
    assert isinstance(unit, np.ndarray)
    np.testing.assert_allclose(unit, expected)
    sparse = scaled(csr_array(dense), 0, 10)
    assert isinstance(sparse, csr_array)
    np.testing.assert_allclose(sparse.toarray(), expected)
    by_column = scaled(dense, [0, -5, 0], [10, 5, 20])
    assert isinstance(by_column, np.ndarray)
    np.testing.assert_allclose(by_column[:, 1], [1, 0.2])
    with pytest.raises(UsageError, match="0 mapped to 0"):
        scaled(csr_array(dense), -1, 1)
    with pytest.raises(UsageError, match="low must be below high"):
        scaled(dense, 1, 1)


def test_blocks_of_any_size_multiply_like_the_dense_array(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    features, rho = rng.random((30, 21), np.float32), rng.integers(0, 6, 30)
    weight = rng.normal(size=(21, 4)).astype(np.float32)
    for settings in (NOISY, EncoderSettings(epsilon=math.inf, bins=True)):
        recovered = recover(release(features, rho, settings, randomness(range(30))), settings)
        for size in (1, 40, 1 << 22):
            monkeypatch.setattr("lumos.ldp.one_bit._ELEMENTS_AT_ONCE", size)
            again = recovered.span(slice(0, recovered.shape[0]))  # blocks are kept, with their size
            total = np.zeros((recovered.shape[0], 4), np.float32)
            for block in again.blocks:
                total[block.rows] += block.sign * (block.matrix @ weight)
                transposed: Any = block.transposed
                assert (transposed != block.matrix.T).nnz == 0
            total *= recovered.scale[:, None]
            total += recovered.filler * weight.sum(axis=0)
            np.testing.assert_allclose(total, recovered.dense() @ weight, rtol=1e-3, atol=1e-4)

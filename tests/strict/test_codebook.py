"""The codebook: plain spherical k-means, by sums of vectors of norm 1 at most."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from lumos.device.coins import PublicCoins
from lumos.strict.codebook import DAMPING, DOUBT, RARE, ROUNDS, Codebook, widths
from lumos.strict.feature_rows import FeatureRows

DEVICES, WIDTH, SIZE = 90, 13, 4
KINDS = ("sparse", "dense")
ZERO = 7
"""A device without any feature."""


def features(kind: str) -> Any:
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=(DEVICES, WIDTH)) * (rng.random((DEVICES, WIDTH)) < 0.3)
    rows[:, 0] = 1.0  # everybody has it
    rows[rng.random(DEVICES) < 0.2, 1] = -2.0
    rows[ZERO] = 0
    return csr_array(rows.astype(np.float32)) if kind == "sparse" else rows.astype(np.float32)


def codebook(kind: str, some: Any = slice(None), noise: float = 0.0, size: int = SIZE) -> Codebook:
    rows = features(kind)[some]
    return Codebook(
        FeatureRows(rows, np.ones(rows.shape[0], np.bool_)), size, PublicCoins(3), noise
    )


def unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


def plain(entries: np.ndarray, rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, entries and codes, in loops over devices."""
    rows = unit(features("dense").astype(np.float64))
    total = np.abs(rows).sum(axis=0)
    weights = np.maximum(total, RARE * total.mean()) ** -DAMPING
    rows = unit(rows * weights)

    def nearest() -> np.ndarray:
        return np.array([int(np.argmax([row @ entry for entry in entries])) for row in rows])

    for _ in range(rounds):
        codes, sums = nearest(), np.zeros_like(entries)
        for row, code in zip(rows, codes, strict=True):
            sums[code] += row
        norms = np.linalg.norm(sums, axis=1)
        entries = np.array(
            [sums[k] / norms[k] if norms[k] > 0 else entries[k] for k in range(len(entries))]
        )
    return weights, entries, nearest()


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_spherical_k_means(kind: str, each: bool) -> None:
    book = codebook(kind)
    weights, entries, codes = plain(book.entries.copy(), ROUNDS)
    for epoch in range(1 + ROUNDS):
        total = book.update(epoch, each=each)
        book.advance(epoch, total.sum(axis=0) if each else total)
    assert_allclose(book.weights, weights, rtol=1e-5)
    assert_allclose(book.entries, entries, atol=1e-5)
    assert_array_equal(book.nearest(), codes)
    assert len(set(codes)) == SIZE  # the example is not a trivial one
    assert_allclose(np.linalg.norm(book.entries, axis=1), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_add_up_and_have_norm_one_at_most(kind: str) -> None:
    book = codebook(kind)
    codes = book.nearest()
    for epoch in range(3):
        rows, total = book.update(epoch, each=True), book.update(epoch, each=False)
        width = widths(WIDTH, SIZE)[min(epoch, 1)]
        assert rows.shape == (DEVICES, width)
        assert total.shape == (width,)
        assert_allclose(rows.sum(axis=0), total, rtol=1e-5, atol=1e-6)
        norms = np.linalg.norm(rows, axis=1)
        assert norms[ZERO] == 0
        assert_allclose(np.delete(norms, ZERO), 1, atol=1e-6)
        if epoch:  # in one block of k, that of the nearest entry
            blocks = rows.reshape(DEVICES, SIZE, WIDTH).any(axis=2)
            assert_array_equal(np.delete(blocks.argmax(axis=1), ZERO), np.delete(codes, ZERO))
            assert (np.delete(blocks.sum(axis=1), ZERO) == 1).all()
        book.advance(epoch, total)
        codes = book.nearest()


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_shards_and_kinds_of_features_change_no_sum(epoch: int) -> None:
    parts = [slice(0, 40), slice(40, 41), slice(41, DEVICES)]
    kinds = ("sparse", "dense", "sparse")
    several = [codebook(kind, some) for kind, some in zip(kinds, parts, strict=True)]
    one = codebook("dense")
    for step in range(epoch + 1):
        total = np.sum([book.update(step, each=False) for book in several], axis=0)
        assert_allclose(total, one.update(step, each=False), rtol=1e-5, atol=1e-5)
        for book in (*several, one):
            book.advance(step, total)
    assert_array_equal(np.concatenate([book.nearest() for book in several]), one.nearest())


def test_an_entry_that_nobody_is_near_to_stays() -> None:
    book = codebook("dense")
    book.advance(0, book.update(0, each=False))
    book.entries[0] = np.eye(WIDTH)[0]
    book.entries[2] = -book.entries[0]  # away from what everybody has
    before = book.entries[2].copy()
    assert not (book.nearest() == 2).any()
    book.advance(1, book.update(1, each=False))
    assert_array_equal(book.entries[2], before)


def test_a_row_of_zeros_is_like_nothing() -> None:
    for kind in KINDS:
        book = codebook(kind)
        book.advance(0, book.update(0, each=False))
        assert not book.similarity()[ZERO].any()
        assert np.isfinite(book.similarity()).all()


def test_what_may_be_noise_counts_as_nothing() -> None:
    """And a feature that is mostly noise counts no more than a rare one."""
    noise = 0.5
    book = codebook("dense", noise=noise)
    total = np.array([-3.0, 0.0, 0.1, 0.9, 2.0] + [10.0] * (WIDTH - 5))
    book.advance(0, total)
    floor = max(RARE * total.mean(), 2 * noise)
    assert_allclose(book.weights, np.maximum(total, floor) ** -DAMPING)
    sums = np.random.default_rng(1).normal(size=(SIZE, WIDTH))
    sums[1] = 0.74  # below 1.5 standard deviations
    before = book.entries.copy()
    book.advance(1, sums.ravel())
    kept = np.where(np.abs(sums) > DOUBT * noise, sums, 0)
    assert_array_equal(book.entries[1], before[1])
    for entry in (0, 2, 3):
        assert_allclose(book.entries[entry], kept[entry] / np.linalg.norm(kept[entry]))


def test_two_entries_and_many() -> None:
    for size in (2, 64):
        book = codebook("sparse", size=size)
        for epoch in range(4):
            book.advance(epoch, book.update(epoch, each=False))
        assert_allclose(np.linalg.norm(book.entries, axis=1), 1)
        assert set(book.nearest()) <= set(range(size))


@pytest.mark.parametrize("kind", KINDS)
def test_features_too_small_for_single_precision_add_no_more_than_others(kind: str) -> None:
    """Their squares are 0 there."""
    tiny = np.full((3, 1000), 2.6e-23, np.float32)
    tiny[:, 0] = 3.8e-23
    rows = FeatureRows(csr_array(tiny) if kind == "sparse" else tiny, np.ones(3, np.bool_))
    book = Codebook(rows, SIZE, PublicCoins(3), 0.0)
    for epoch in range(2):
        added = book.update(epoch, each=True)
        assert (np.linalg.norm(added, axis=1) <= 1 + 2e-6).all()
        assert_allclose(added.sum(axis=0), book.update(epoch, each=False), rtol=1e-6)
        book.advance(epoch, added.sum(axis=0))


def test_only_training_devices_add() -> None:
    train = np.arange(DEVICES) % 3 == 0
    book = Codebook(FeatureRows(features("sparse"), train), SIZE, PublicCoins(3), 0.0)
    alone = codebook("sparse", np.flatnonzero(train))
    for epoch in range(1 + ROUNDS):
        added = book.update(epoch, each=True)
        assert not added[~train].any()
        assert_allclose(added.sum(axis=0), book.update(epoch, each=False), atol=1e-6)
        assert_allclose(added[train], alone.update(epoch, each=True), atol=1e-6)
        book.advance(epoch, added.sum(axis=0))
        alone.advance(epoch, added.sum(axis=0))
    assert len(book.nearest()) == DEVICES  # everybody knows its entry

"""Encoders of words: sums of associations against products of matrices that are written out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from tests.narrow import sparse
from tests.strict.linking import on_shards, schedule, started, sums, town, whole

from lumos.graph import Graph
from lumos.secagg.noise import Noise
from lumos.strict.link import encoder as link_encoder
from lumos.strict.link.encoder import (
    COUNTED,
    FLATTEN,
    MIN_COUNT,
    MIN_VARIANCE,
    LinkEncoder,
    TokenRows,
    unit,
)
from lumos.strict.link.levels import BOTH, combined
from lumos.strict.link.stages import MARGIN


def encoder_of(features: Any, *, signed: bool = False, **given_: Any) -> LinkEncoder:
    words = TokenRows(features, signed=signed)
    return LinkEncoder(words, schedule(len(features), signed=signed, **given_))


def with_basis(features: Any, random_marks: int = 4, seed: int = 0) -> LinkEncoder:
    """An encoder that has learnt something."""
    encoder = encoder_of(features, random_marks=random_marks)
    encoder.basis = np.random.default_rng(seed).normal(size=encoder.basis.shape)
    return encoder


def sketches(rng: np.random.Generator, devices: int, size: int) -> np.ndarray:
    """Rows of norm 1, most numbers of which may be 0."""
    rows = rng.normal(size=(devices, size)) * (rng.random((devices, size)) < rng.random())
    return unit(rows)


def random_words(devices: int = 30, words: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    features = (rng.random((devices, words)) < 0.3).astype(np.float64)
    features[4] = 0
    return features


@pytest.mark.parametrize("shards", [1, 3])
def test_the_sum_of_a_run_is_that_of_words_and_sketches(shards: int) -> None:
    """XᵀS of all devices, each rounded towards 0, in a run without noise."""
    graph = town(40)
    made = started(graph, protect="none", shards=shards)
    for first, last in ((0, 5), (5, 6)):  # counts and random marks, then associations
        if first:
            parts = [(t.shard, t.sketch.vectors()) for t in made.trainers]
            weights = made.trainers[0].encoder.weights
        with sums() as opened:
            made.run(
                lambda trainer, one=first, two=last: trainer.epochs(one, two),
                lambda program, one=first, two=last: program.epochs(one, two),
            )
    words = np.asarray(graph.features, np.float64) * weights
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    steps = 2.0**made.config.updates.fraction_bits
    expected = sum(
        np.trunc(np.outer(x, s) * steps) / steps for x, s in zip(words, whole(parts), strict=True)
    )
    (only,) = opened
    assert_allclose(only.total.reshape(expected.shape), expected, atol=40 / steps)
    for trainer in made.trainers:
        assert_array_equal(trainer.encoder.basis, only.total.reshape(expected.shape))


def test_a_sum_of_associations_is_that_of_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded towards 0 device by device, in blocks of any size."""
    monkeypatch.setattr(link_encoder, "AT_ONCE", 7)
    rng = np.random.default_rng(0)
    features = (rng.random((30, 12)) < 0.3) * rng.random((30, 12))
    features[3] = 0
    encoder = encoder_of(features, random_marks=4)
    encoder.learn_counts(rng.random(12), None)
    rows, sketch = features * encoder.weights, sketches(rng, 30, 4)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    exact = rows[:, :, None] * sketch[:, None, :]
    each = encoder.associations(sketch, 10, each=True)
    assert_allclose(each.reshape(exact.shape), np.trunc(exact * 1024) / 1024, atol=1e-12)
    assert_array_equal(encoder.associations(sketch, 10, each=False), each.sum(axis=0))


@given(st.integers(0, 2**32 - 1), st.integers(2, 32), st.integers(1, 24), st.booleans())
@settings(max_examples=100, deadline=None)
def test_no_features_move_an_association_beyond_its_noise(
    seed: int, size: int, bits: int, signed: bool
) -> None:
    """All devices have one sketch: the difference of two is that of other features in one."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(8, int(rng.integers(1, 40))))
    features *= rng.random(features.shape) < rng.random()
    features *= 10.0 ** rng.integers(-30, 30, features.shape)
    encoder = encoder_of(features, signed=signed, random_marks=size)
    noise = Noise.of(1.0, 1, 1.0, 30, schedule().config.updates)
    encoder.learn_counts(rng.normal(size=encoder.weights.shape) * 100, noise)
    sketch = np.tile(sketches(rng, 1, size), (8, 1))
    each = encoder.associations(sketch, bits, each=True)
    assert np.linalg.norm(each, axis=1).max() <= 1 + 1e-12
    moves = np.linalg.norm(each[:, None] - each, axis=2)
    assert moves.max() <= np.sqrt(2) * (1 + MARGIN)
    whole_steps = each * 2.0**bits
    assert_array_equal(whole_steps, np.rint(whole_steps))


@pytest.mark.parametrize("size", [2, 24])
def test_rows_are_shrunk_by_what_noise_alone_would_have(size: int) -> None:
    """max(0, 1 - K σ² / |row|²), row by row; exact sums and rows of zeros stay as they are."""
    rng = np.random.default_rng(size)
    rows = rng.standard_normal((12, size)) * np.geomspace(0.01, 100, 12)[:, None]
    rows[3] = 0
    noise = Noise.of(1.0, 1, 1.0, 30, schedule().config.updates)
    encoder = encoder_of(random_words(), random_marks=size)
    encoder.learn_associations(rows.ravel(), None)
    assert_array_equal(encoder.basis, rows)
    encoder.learn_associations(rows.ravel(), noise)
    factors = []
    for row, learnt in zip(rows, encoder.basis, strict=True):
        energy = sum(number * number for number in row)
        factors.append(max(0.0, 1 - size * noise.total**2 / energy) if energy else 0.0)
        assert_allclose(learnt, factors[-1] * row, rtol=1e-9, atol=1e-12)
    assert min(factors) == 0.0
    assert 0.9 < max(factors) < 1.0


def test_shrunk_rows_are_nearer_to_the_truth_than_noisy_ones() -> None:
    """Under noise of known size, of associations that few tokens have."""
    rng = np.random.default_rng(0)
    words, size, used = 400, 6, 30
    truth = np.zeros((words, size))
    truth[:used] = 20 * rng.standard_normal((used, size))
    noise = Noise(sigma=2.0, clip=4.0, devices=5, absent=0)
    noisy = truth + noise.total * rng.standard_normal(truth.shape)
    errors = []
    for known in (None, noise):
        encoder = encoder_of(random_words(5, words), random_marks=size)
        encoder.learn_associations(noisy.ravel(), known)
        errors.append(np.linalg.norm(encoder.basis - truth))
    assert errors[1] < 0.6 * errors[0]
    assert not encoder.basis[used:].any(axis=1).all()
    # Every row is along the noisy one, and none is longer.
    shares = (encoder.basis * noisy).sum(axis=1) / (noisy**2).sum(axis=1)
    assert_allclose(encoder.basis, shares[:, None] * noisy, atol=1e-12)
    assert ((shares >= 0) & (shares < 1)).all()


@pytest.mark.parametrize("size", [0.0, 0.5])
def test_an_encoder_that_noise_drowns_embeds_nothing(size: float) -> None:
    """Embeddings are 0 and not undefined, in every stage that follows."""
    encoder = encoder_of(random_words(), random_marks=4)
    noise = Noise(sigma=2.0, clip=4.0, devices=30, absent=0)
    encoder.learn_associations(np.full(48, size * noise.total), noise)
    assert not encoder.embeddings().any()
    assert not encoder.spread().any()
    encoder.learn_spread(encoder.spread().sum(axis=0))
    assert np.isfinite(encoder.mixing).all()
    assert not encoder.embeddings().any()
    sketch = sketches(np.random.default_rng(0), 30, 4)
    assert_allclose(combined(encoder.embeddings(), sketch, 1)[BOTH][:, 4:], sketch, atol=1e-12)


def test_directions_that_neighbours_share_are_found() -> None:
    """Groups share words: embeddings of a group are close, those of two groups are not."""
    graph = town(150, 5)
    made = started(graph, protect="none")
    made.run(lambda trainer: trainer.epochs(0, 7), lambda program: program.epochs(0, 7))
    z = made.trainers[0].encoder.embeddings()
    same = (np.arange(150)[:, None] - np.arange(150)) % 5 == 0
    products = z @ z.T
    assert products[same].mean() > products[~same].mean() + 0.3


def test_counts_weigh_rare_words_more() -> None:
    encoder = encoder_of(random_words())
    total = np.array([0, 10, 40, 90, 400, 1600] + [40] * 6) / np.sqrt(COUNTED)
    encoder.learn_counts(total, None)
    expected = np.maximum([0, 10, 40, 90, 400, 1600] + [40] * 6, MIN_COUNT) ** -0.5
    assert_allclose(encoder.weights, expected)
    noise = Noise.of(1.0, 1, 1.0, 30, schedule().config.updates)
    encoder.learn_counts(total, noise)
    floor = max(MIN_COUNT, 2 * noise.total * np.sqrt(COUNTED))
    assert_allclose(encoder.weights, np.maximum(total * np.sqrt(COUNTED), floor) ** -0.5)
    negative = encoder_of(random_words())
    negative.learn_counts(-total, noise)
    assert np.isfinite(negative.weights).all()


@given(st.integers(0, 2**32 - 1), st.integers(2, 24))
@settings(max_examples=40, deadline=None)
def test_no_vector_is_longer_than_one(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    encoder = encoder_of(random_words(20, 8, seed), random_marks=size)
    encoder.basis = rng.normal(size=encoder.basis.shape) * 10.0 ** rng.integers(-8, 8)
    encoder.mixing = rng.normal(size=encoder.mixing.shape)
    norms = np.linalg.norm(encoder.embeddings(), axis=1)
    assert_allclose(norms, encoder._tokens.held > 0, atol=1e-9)
    spread = encoder.spread()
    assert spread.shape == (20, size * (size + 1) // 2)
    assert (np.linalg.norm(spread, axis=1) <= 1 + 1e-9).all()
    # The upper half has the norm of the whole matrix.
    for row, z in zip(spread, encoder.embeddings(), strict=True):
        assert np.linalg.norm(row) == pytest.approx(np.linalg.norm(np.outer(z, z)))


def test_whitening_halves_the_differences_of_variance() -> None:
    """In the exact case: directions with variance λ are scaled by λ^(-1/4)."""
    encoder = with_basis(random_words(60, 12))
    z = encoder.embeddings()
    covariance = z.T @ z
    encoder.learn_spread(encoder.spread().sum(axis=0))
    variance, directions = np.linalg.eigh(covariance)
    assert variance.min() > MIN_VARIANCE * variance.max()
    mixed = encoder.mixing.T @ covariance @ encoder.mixing
    assert_allclose(np.diag(mixed), variance ** (1 - 2 * FLATTEN), rtol=1e-9)
    assert_allclose(mixed, np.diag(np.diag(mixed)), atol=1e-9)
    assert_allclose(np.abs(encoder.mixing), np.abs(directions * variance**-FLATTEN), rtol=1e-6)


@pytest.mark.parametrize("total", [0.0, -5.0, 1e-30])
def test_whitening_survives_sums_that_are_all_noise(total: float) -> None:
    encoder = with_basis(random_words())
    encoder.learn_spread(np.full(10, total))
    assert np.isfinite(encoder.mixing).all()
    assert_allclose(np.linalg.norm(encoder.embeddings(), axis=1), encoder._tokens.held > 0)


@pytest.mark.parametrize("left", [0, 2, 5, 12])
def test_devices_with_other_processors_learn_the_same(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another library rounds otherwise, and gives eigenvectors of the other sign: also where fewer
    rows than numbers of an embedding are left, and directions are alike."""
    features, rng = random_words(40, 12), np.random.default_rng(1)
    one, other = (encoder_of(features, random_marks=6) for _ in range(2))
    rows = rng.standard_normal((12, 6))
    rows[left:] = 0
    spread = rng.standard_normal((40, 21)).sum(axis=0)
    one.learn_associations(rows.ravel(), None)
    one.learn_spread(spread)
    eigh = np.linalg.eigh

    def flipped(matrix: np.ndarray) -> Any:
        variance, directions = eigh(matrix)
        return variance, directions * rng.choice([-1.0, 1.0], len(matrix))

    monkeypatch.setattr(np.linalg, "eigh", flipped)
    rounded = rows * (1 + 1e-15 * rng.standard_normal(rows.shape)) + 0.0
    other.learn_associations(rounded.ravel(), None)
    other.learn_spread(spread)
    assert_allclose(other.embeddings(), one.embeddings(), atol=1e-9)


def test_a_state_is_everything() -> None:
    one, two = (encoder_of(random_words(), random_marks=4) for _ in range(2))
    rng = np.random.default_rng(0)
    one.learn_counts(rng.random(12) * 20, None)
    one.learn_associations(rng.normal(size=48), None)
    one.learn_spread(one.spread().sum(axis=0))
    two.load_state_dict(one.state_dict())
    assert one.embeddings().tobytes() == two.embeddings().tobytes()


def test_rows_of_zeros_stay() -> None:
    expected = np.array([[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]])
    assert_allclose(unit(np.array([[3.0, 4.0], [0.0, 0.0], [1e-5, 0.0]])), expected)


@pytest.mark.parametrize("shards", [2, 7])
def test_an_embedding_does_not_depend_on_the_shard(shards: int, sixty: Graph) -> None:
    """Rows are multiplied one by one: the others of a shard change no bit."""
    features = sparse(sixty.features).toarray().astype(np.float64)
    alone = with_basis(features).embeddings()

    def device(shard: Any, endpoint: Any) -> Any:
        yield from ()
        return with_basis(features[shard.devices]).embeddings()

    for shard, found in on_shards(sixty, device, shards)[0]:
        assert found.tobytes() == alone[shard.devices].tobytes()

"""Encoders of words: power iteration against the eigenvectors of a matrix that is written out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import subspace_angles
from tests.narrow import sparse
from tests.strict.linking import on_shards, schedule, started, town

from lumos.device.randomness import PublicRandomness
from lumos.graph import Graph
from lumos.secagg.noise import Noise
from lumos.strict.link import encoder as link_encoder
from lumos.strict.link.encoder import (
    COUNTED,
    FLATTEN,
    MIN_COUNT,
    MIN_VARIANCE,
    NOBODY,
    Z_STEPS,
    LinkEncoder,
    TokenRows,
    unit,
)


def encoder_of(features: Any, **given_: Any) -> LinkEncoder:
    public = PublicRandomness(0)
    words = TokenRows(features, signed=False)
    return LinkEncoder(words, schedule(len(features), **given_), public)


def random_words(devices: int = 30, words: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    features = (rng.random((devices, words)) < 0.3).astype(np.float64)
    features[4] = 0
    return features


def random_partners(devices: int, seed: int = 0) -> np.ndarray:
    """[devices, devices] a symmetric matrix of 0 and 1: who is matched with whom."""
    order = np.random.default_rng(seed).permutation(devices)[: devices // 2 * 2].reshape(-1, 2)
    matrix = np.zeros((devices, devices))
    matrix[order[:, 0], order[:, 1]] = matrix[order[:, 1], order[:, 0]] = 1
    return matrix


def test_power_iteration_finds_the_leading_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """E of many exact sums spans the leading eigenspace of Bᵀ A X.

    z is not scaled to norm 1 here, so that the iteration is linear and the oracle exact; whether a
    direction leads is then a matter of eigenvalues alone.
    """
    monkeypatch.setattr(link_encoder, "unit", lambda rows: rows)
    size = 3
    features = random_words(60, 10, seed=3)
    encoder = encoder_of(features, embedding=size, tokens=64)
    together = random_partners(60)
    chosen = encoder.chosen.toarray()
    rows = features / np.maximum(np.sqrt((features**2).sum(axis=1, keepdims=True)), 1e-300)
    matrix = chosen.T @ together @ rows
    for _ in range(3000):
        encoder.learn_products((chosen.T @ together @ encoder.embeddings()).ravel(), None)
    values, vectors = np.linalg.eig(matrix)
    order = np.argsort(-np.abs(values))
    assert abs(values[order[size]]) < 0.999 * abs(values[order[size - 1]]), "the example is clear"
    leading = np.linalg.qr(
        np.hstack([vectors[:, order[:size]].real, vectors[:, order[:size]].imag])
    )[0][:, :size]
    if np.isreal(values[order[:size]]).all():
        leading = np.linalg.qr(vectors[:, order[:size]].real)[0]
    assert subspace_angles(encoder.basis, leading).max() < 1e-3


def test_shrunk_rows_are_nearer_to_the_truth_than_noisy_ones() -> None:
    """Under noise of known size, of a basis in which few tokens have a part."""
    rng = np.random.default_rng(0)
    words, size, used = 400, 6, 30
    truth = np.zeros((words, size))
    truth[:used] = 20 * rng.standard_normal((used, size))
    basis = np.linalg.qr(truth)[0]
    noise = Noise(sigma=2.0, clip=4.0, devices=5, absent=0)
    noisy = truth + noise.total * rng.standard_normal(truth.shape)
    angles = []
    for known in (None, noise):
        encoder = encoder_of(random_words(5, words), embedding=size)
        encoder.learn_products(noisy.ravel(), known)
        angles.append(float(subspace_angles(encoder.basis, basis).max()))
    assert angles[1] < 0.7 * angles[0]
    encoder.learn_products(np.zeros(words * size), noise)  # nothing is left: no division by zero
    assert np.isfinite(encoder.embeddings()).all()


def test_a_sum_of_a_run_is_the_product_of_matrices() -> None:
    """Bᵀ A Z / 128 in a run without noise; devices without a partner add half of their own."""
    graph = town(40)
    made = started(graph, protect="none", epochs=8, products="pairs")
    run = lambda one, two: made.run(  # noqa: E731
        lambda trainer: trainer.epochs(one, two), lambda program: program.epochs(one, two)
    )
    run(0, 1)
    trainer = made.trainers[0]
    before = trainer.encoder.integers().astype(np.float64) / Z_STEPS
    words = trainer.encoder.chosen.toarray().T
    run(1, 2)
    partner = trainer._partner
    together = np.zeros((40, 40))
    here = np.flatnonzero(partner != NOBODY)
    together[here, partner[here]] = 1
    half = np.trunc(before * Z_STEPS / 2) / Z_STEPS
    expected = words @ (together @ before + np.where(partner == NOBODY, 1, 0)[:, None] * half)
    # The basis is orthogonal and spans the same: its projection of the sum is the sum.
    basis = trainer.encoder.basis
    assert_allclose(basis @ (basis.T @ expected), expected, atol=1e-9)
    assert_allclose(np.abs(basis), np.abs(np.linalg.qr(expected)[0]), atol=1e-9)


def test_a_sum_of_own_products_is_that_of_rows_and_embeddings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rounded towards 0 device by device, in blocks of any size."""
    monkeypatch.setattr(link_encoder, "AT_ONCE", 7)
    rng = np.random.default_rng(0)
    features = (rng.random((30, 12)) < 0.3) * rng.random((30, 12))
    features[3] = 0
    encoder = encoder_of(features, embedding=4)
    encoder.learn_counts(rng.random(12), None)
    rows, z = features * encoder.weights, encoder.embeddings()
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    exact = rows[:, :, None] * z[:, None, :]
    each = encoder.own_products(10, each=True)
    assert_allclose(each.reshape(exact.shape), np.trunc(exact * 1024) / 1024, atol=1e-12)
    assert_array_equal(encoder.own_products(10, each=False), each.sum(axis=0))


def test_directions_that_neighbours_share_are_found() -> None:
    """Groups share words: embeddings of a group are close, those of two groups are not."""
    graph = town(150, 5)
    made = started(graph, protect="none")
    made.run(lambda trainer: trainer.epochs(0, 6), lambda program: program.epochs(0, 6))
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
    encoder = encoder_of(random_words(20, 8, seed), embedding=size)
    encoder.basis = rng.normal(size=encoder.basis.shape) * 10.0 ** rng.integers(-8, 8)
    encoder.mixing = rng.normal(size=encoder.mixing.shape)
    norms = np.linalg.norm(encoder.embeddings(), axis=1)
    held = encoder._tokens.held > 0
    assert_allclose(norms, held, atol=1e-9)
    whole = encoder.integers().astype(np.int64)
    assert ((whole**2).sum(axis=1) <= Z_STEPS**2).all()
    assert (np.abs(whole) <= np.abs(encoder.embeddings()) * Z_STEPS).all()
    spread = encoder.spread()
    assert spread.shape == (20, size * (size + 1) // 2)
    assert (np.linalg.norm(spread, axis=1) <= 1 + 1e-9).all()
    # The upper half has the norm of the whole matrix.
    for row, z in zip(spread, encoder.embeddings(), strict=True):
        assert np.linalg.norm(row) == pytest.approx(np.linalg.norm(np.outer(z, z)))


def test_whitening_halves_the_differences_of_variance() -> None:
    """In the exact case: directions with variance λ are scaled by λ^(-1/4)."""
    encoder = encoder_of(random_words(60, 12), embedding=4)
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
    encoder = encoder_of(random_words(), embedding=4)
    encoder.learn_spread(np.full(10, total))
    assert np.isfinite(encoder.mixing).all()
    assert_allclose(np.linalg.norm(encoder.embeddings(), axis=1), encoder._tokens.held > 0)


@pytest.mark.parametrize("words", [1, 3, 24, 30])
def test_fewer_words_than_numbers(words: int) -> None:
    """Directions beyond the number of words stay 0, and all shapes stay."""
    encoder = encoder_of(np.ones((5, words)), embedding=24)
    encoder.learn_products(np.random.default_rng(0).normal(size=words * 24), None)
    assert encoder.basis.shape == (words, 24)
    used = min(words, 24)
    assert_allclose(encoder.basis.T @ encoder.basis, np.diag([1.0] * used + [0.0] * (24 - used)),
                    atol=1e-12)  # fmt: skip
    assert encoder.integers().shape == (5, 24)


@pytest.mark.parametrize("left", [0, 2, 5, 12])
def test_devices_with_other_processors_learn_the_same(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another library rounds otherwise, and gives eigenvectors of the other sign.

    Where fewer rows than numbers of an embedding are left, an orthogonal basis has directions that
    rounding alone chooses: a device with another processor would embed its tokens elsewhere.
    """
    features, rng = random_words(40, 12), np.random.default_rng(1)
    one, other = encoder_of(features, embedding=6), encoder_of(features, embedding=6)
    rows = rng.standard_normal((12, 6))
    rows[left:] = 0
    spread = rng.standard_normal((40, 21)).sum(axis=0)
    one.learn_products(rows.ravel(), None)
    one.learn_spread(spread)
    eigh = np.linalg.eigh

    def flipped(matrix: np.ndarray) -> Any:
        variance, directions = eigh(matrix)
        return variance, directions * rng.choice([-1.0, 1.0], len(matrix))

    monkeypatch.setattr(np.linalg, "eigh", flipped)
    rounded = rows * (1 + 1e-15 * rng.standard_normal(rows.shape)) + 0.0
    other.learn_products(rounded.ravel(), None)
    other.learn_spread(spread)
    assert_allclose(other.embeddings(), one.embeddings(), atol=1e-9)


def test_a_state_is_everything() -> None:
    one, two = (encoder_of(random_words(), embedding=4) for _ in range(2))
    rng = np.random.default_rng(0)
    one.learn_counts(rng.random(12) * 20, None)
    one.learn_products(rng.normal(size=48), None)
    one.learn_spread(one.spread().sum(axis=0))
    two.load_state_dict(one.state_dict())
    assert one.embeddings().tobytes() == two.embeddings().tobytes()
    assert_array_equal(one.chosen.toarray(), two.chosen.toarray())


def test_rows_of_zeros_stay() -> None:
    expected = np.array([[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]])
    assert_allclose(unit(np.array([[3.0, 4.0], [0.0, 0.0], [1e-5, 0.0]])), expected)


@pytest.mark.parametrize("shards", [2, 7])
def test_an_embedding_does_not_depend_on_the_shard(shards: int, sixty: Graph) -> None:
    """Rows are multiplied one by one: the others of a shard change no bit."""
    features = sparse(sixty.features).toarray().astype(np.float64)
    alone = encoder_of(features).embeddings()

    def device(shard: Any, endpoint: Any) -> Any:
        yield from ()
        return encoder_of(features[shard.devices]).embeddings()

    for shard, found in on_shards(sixty, device, shards)[0]:
        assert found.tobytes() == alone[shard.devices].tobytes()

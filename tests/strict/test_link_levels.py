"""Levels: vectors as integers, and what noisy histograms choose."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from lumos.errors import InputError
from lumos.strict.link import levels
from lumos.strict.link.levels import (
    ALONE,
    BITS,
    BOTH,
    COSINES,
    SKETCH,
    SKETCH_WEIGHT,
    SURE,
    TOKENS,
    WAYS,
    Reading,
    _merged,
    _separation,
    _steps,
    combined,
    integers,
    read_levels,
    spec_for,
)
from lumos.twoparty.score import fitting_vectors, levels_of

LEVELS = len(COSINES) + 1


def unit_rows(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    found = rng.normal(size=(rows, width))
    unit: np.ndarray = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


# -- vectors ------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 16, 24, 40, 64, 96]), st.floats(0, 40))
@settings(max_examples=60, deadline=None)
def test_integers_are_what_scores_take(seed: int, width: int, peak: float) -> None:
    """Also vectors with all their length in one number, and rows of zeros."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(8, width))
    vectors[0] += peak * np.eye(width)[0]
    vectors[1:] /= np.linalg.norm(vectors[1:], axis=1, keepdims=True)
    vectors[0] /= np.linalg.norm(vectors[0])
    vectors[2] = 0
    whole = integers(vectors.copy())
    half = 2 ** (BITS - 1)
    assert whole.min() >= -half
    assert whole.max() < half
    fitting_vectors(whole, spec_for(width))  # raises where one is too long
    assert not whole[2].any()


@pytest.mark.parametrize("width", [24, 40, 64])
def test_products_of_integers_are_cosines(width: int) -> None:
    rng = np.random.default_rng(0)
    one = unit_rows(rng, 3000, width)
    two = unit_rows(rng, 3000, width) + rng.uniform(-2, 2, (3000, 1)) * one
    two /= np.linalg.norm(two, axis=1, keepdims=True)
    products = (integers(one).astype(int) * integers(two)).sum(axis=1) / _steps(width) ** 2
    cosines = (one * two).sum(axis=1)
    assert np.corrcoef(products, cosines)[0, 1] > 0.97
    levels = levels_of(products * _steps(width) ** 2, spec_for(width))
    right = (cosines[:, None] >= np.array(COSINES)).sum(axis=1)
    assert (np.abs(levels - right) <= 1).mean() > 0.95


@pytest.mark.parametrize("tested", [1, 3])
def test_vectors_of_both_are_of_norm_one(tested: int) -> None:
    weight = SKETCH_WEIGHT[tested]
    rng = np.random.default_rng(0)
    words, heard = unit_rows(rng, 5, 4), unit_rows(rng, 5, 3)
    words[1] = 0
    ways = combined(words, heard, tested)
    assert tuple(ways) == WAYS
    assert_array_equal(ways[TOKENS], words)
    assert_array_equal(ways[SKETCH], heard)
    assert_allclose(np.linalg.norm(ways[BOTH], axis=1), 1)
    for me, other in combinations(range(5), 2):
        norms = [np.sqrt(float(np.any(words[i])) + weight**2) for i in (me, other)]
        product = words[me] @ words[other] + weight**2 * heard[me] @ heard[other]
        assert ways[BOTH][me] @ ways[BOTH][other] == pytest.approx(product / norms[0] / norms[1])


# -- histograms ---------------------------------------------------------------------------


def auc_by_pairs(edges: np.ndarray, non_neighbours: np.ndarray) -> float:
    """Every edge against every non-neighbour."""
    one = np.repeat(np.arange(len(edges)), edges.astype(int))
    two = np.repeat(np.arange(len(non_neighbours)), non_neighbours.astype(int))
    return float((one[:, None] > two).mean() + 0.5 * (one[:, None] == two).mean())


@pytest.mark.parametrize("seed", range(5))
def test_separation_is_the_auc_over_all_pairs(seed: int) -> None:
    edges, non_neighbours = np.random.default_rng(seed).integers(1, 20, (2, LEVELS)).astype(float)
    assert _separation(edges, non_neighbours) == pytest.approx(auc_by_pairs(edges, non_neighbours))


def histograms(rng: np.random.Generator, shapes: dict[str, np.ndarray], many: int) -> np.ndarray:
    """[ways, 2, levels] counts of edges of these shares, and of non-neighbours of even ones."""
    even = np.ones(LEVELS) / LEVELS
    return np.array(
        [[rng.multinomial(many, shapes[way]), rng.multinomial(many, even)] for way in WAYS], float
    )


EVEN = np.ones(LEVELS) / LEVELS
RISING = np.arange(1.0, LEVELS + 1) / np.arange(1.0, LEVELS + 1).sum()
STEEP = RISING**3 / (RISING**3).sum()


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize("way", [TOKENS, SKETCH])
def test_the_way_that_separates_best_is_chosen_with_its_thresholds(bits: int, way: str) -> None:
    rng = np.random.default_rng(bits)
    shapes = dict.fromkeys(WAYS, EVEN) | {way: STEEP, BOTH: RISING}
    total = histograms(rng, shapes, 800)
    reading = read_levels(total, 0.0, bits)
    assert reading.way == way
    edges, non_neighbours = np.maximum(total[WAYS.index(way)], 1)
    assert len(reading.kept) == 2**bits - 1
    best = max(
        auc_by_pairs(_merged(edges, kept), _merged(non_neighbours, kept))
        for kept in combinations(range(len(COSINES)), 2**bits - 1)
    )
    found = _merged(edges, reading.kept), _merged(non_neighbours, reading.kept)
    assert auc_by_pairs(*found) == pytest.approx(best)
    expected = np.log(found[0] / found[0].sum()) - np.log(found[1] / found[1].sum())
    doubt = SURE[len(WAYS)] * reading.error[way] / (reading.separation[way] - 0.5)
    assert 0 < doubt < 1
    assert_allclose(reading.evidence, (1 - doubt**2) * expected)
    assert reading.cosines == tuple(COSINES[place] for place in reading.kept)
    for name in WAYS:
        sharp = np.maximum(total[WAYS.index(name)], 1)
        assert reading.separation[name] == pytest.approx(auc_by_pairs(*sharp))


def test_in_doubt_both_are_used() -> None:
    shapes = dict.fromkeys(WAYS, STEEP)
    rng = np.random.default_rng(0)
    chosen = [read_levels(histograms(rng, shapes, 500), 0.0, 2).way for _ in range(200)]
    assert np.mean([way == BOTH for way in chosen]) > 0.5


def test_merged_levels_are_those_between_kept_thresholds() -> None:
    counts = np.arange(1.0, LEVELS + 1)
    assert_array_equal(_merged(counts, (0, 3, 6)), [1, 2 + 3 + 4, 5 + 6 + 7, 8])
    assert_array_equal(_merged(counts, tuple(range(7))), counts)


def test_equal_histograms_choose_nothing() -> None:
    total = np.tile(np.full(LEVELS, 50.0), (len(WAYS), 2, 1))
    for bits in (1, 2, 3):
        reading = read_levels(total, 0.0, bits)
        assert reading.way == ALONE
        assert_array_equal(reading.evidence, np.zeros(2**bits))


def gaussian_shapes(distance: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares of buckets of edges and of non-neighbours: two normal distributions, cut."""
    cuts = np.linspace(-0.5, 2.0, LEVELS - 1)
    edges, others = (np.diff([0.0, *norm.cdf(cuts - mean), 1.0]) for mean in (distance, 0.0))
    return edges, others


def gained(reading: Reading, distances: dict[str, float], degree: float = 0.95) -> float:
    """AUC that a reading adds to that of degrees, exactly.

    The logarithm of the likelihood ratio of degrees is normal; `degree` is its separation.
    """
    evidence = reading.evidence[:, None] - reading.evidence
    shapes = gaussian_shapes(distances.get(reading.way, 0.0))
    edges, non_neighbours = (_merged(shares, reading.kept) for shares in shapes)
    weights = edges[:, None] * non_neighbours
    with_evidence = (weights * norm.cdf((evidence + degree**2) / (np.sqrt(2) * degree))).sum()
    return float(with_evidence - norm.cdf(degree / np.sqrt(2)))


def mean_gain(pairs: int, *separations: float, spread: float = 3.8) -> float:
    """Mean gain of calibration with so many edges per way, and three times as many others."""
    rng = np.random.default_rng(pairs)
    distances = dict(zip(WAYS, separations, strict=True))
    gains = []
    for _ in range(100):
        total = np.array(
            [
                [
                    rng.multinomial(many, shares)
                    for many, shares in zip((pairs, 3 * pairs), shapes, strict=True)
                ]
                for shapes in map(gaussian_shapes, separations)
            ],
            float,
        )
        total += spread * rng.standard_normal(total.shape)
        gains.append(gained(read_levels(total, spread, 2), distances))
    return float(np.mean(gains))


@pytest.mark.parametrize("pairs", [20, 50, 100, 400])
def test_chance_costs_little(pairs: int) -> None:
    """`SURE` is chosen by this cost; at three standard errors all of it, and most gains, vanish."""
    assert mean_gain(pairs, 0, 0, 0) > -0.004


def test_small_graphs_gain_by_what_separates() -> None:
    """Also where one way separates and the vector of both does not pass."""
    assert mean_gain(50, 0.0, 1.0, 0.2) > 0.03  # 0.01 at three standard errors
    assert mean_gain(50, 1.0, 1.0, 1.3) > 0.08  # 0.04
    assert mean_gain(400, 1.0, 1.0, 1.3) > 0.11


def mean_gain_of_one(pairs: int, separation: float, spread: float = 3.8) -> float:
    """Mean gain of calibration where all pairs compare the vector of both."""
    rng, gains = np.random.default_rng(pairs), []
    shapes = gaussian_shapes(separation)
    for _ in range(200):
        total = np.array(
            [[rng.multinomial(pairs, shapes[0]), rng.multinomial(4 * pairs, shapes[1])]]
        )
        noisy = total + spread * rng.standard_normal(total.shape)
        gains.append(gained(read_levels(noisy, spread, 2, (BOTH,)), {BOTH: separation}))
    return float(np.mean(gains))


def test_one_vector_needs_fewer_standard_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one standard error chance costs as little as with 1.5 and a choice of three vectors."""
    assert min(mean_gain_of_one(pairs, 0.0) for pairs in (20, 50, 100, 400)) > -0.004
    assert mean_gain_of_one(50, 1.0) > mean_gain(17, 0.0, 1.0, 1.0) + 0.02
    assert mean_gain_of_one(50, 0.5) > 0.012
    monkeypatch.setitem(levels.SURE, 1, 0.5)
    assert mean_gain_of_one(50, 0.0) < -0.005


def test_a_reading_of_one_vector_survives_its_file() -> None:
    total = np.array([[100 * STEEP, 100 * EVEN]])
    reading = read_levels(total, 1.0, 2, (BOTH,))
    assert reading.way == BOTH
    assert reading.separation.keys() == {BOTH}
    again = Reading.of(reading.arrays(), 2)
    assert (again.separation, again.error) == (reading.separation, reading.error)
    with pytest.raises(InputError, match="levels/tested"):
        Reading.of({k: v for k, v in reading.arrays().items() if k != "levels/tested"}, 2)
    with pytest.raises(InputError, match="do not match this run"):
        Reading.of(reading.arrays() | {"levels/tested": np.array(["other"])}, 2)


def test_what_separates_is_believed_under_noise() -> None:
    rng = np.random.default_rng(0)
    shapes = dict.fromkeys(WAYS, STEEP)
    total = histograms(rng, shapes, 2000) + 20 * rng.standard_normal((len(WAYS), 2, LEVELS))
    reading = read_levels(total, 20.0, 2)
    assert reading.way in WAYS
    assert (np.diff(reading.evidence) > 0).all()


def test_the_error_is_that_of_repeated_histograms() -> None:
    rng = np.random.default_rng(0)
    many, spread, found, errors = 400, 5.0, [], []
    for _ in range(400):
        total = histograms(rng, dict.fromkeys(WAYS, EVEN), many)
        total += spread * rng.standard_normal(total.shape)
        reading = read_levels(total, spread, 2)
        found.append(reading.separation[TOKENS])
        errors.append(reading.error[TOKENS])
    assert np.mean(found) == pytest.approx(0.5, abs=0.01)
    assert np.std(found) == pytest.approx(np.mean(errors), rel=0.3)


def test_noise_below_nothing_gives_finite_evidence() -> None:
    total = -100 * np.ones((len(WAYS), 2, LEVELS))
    reading = read_levels(total, 10.0, 3)
    assert np.isfinite(reading.evidence).all()
    assert reading.way == ALONE


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_a_reading_survives_its_file(bits: int) -> None:
    rng = np.random.default_rng(bits)
    reading = read_levels(histograms(rng, dict.fromkeys(WAYS, STEEP), 500), 2.0, bits)
    again = Reading.of(reading.arrays(), bits)
    assert (again.way, again.kept) == (reading.way, reading.kept)
    assert (again.separation, again.error) == (reading.separation, reading.error)
    assert_array_equal(again.evidence, reading.evidence)


def test_thresholds_of_any_width_increase() -> None:
    """Of the narrowest embeddings and of the fewest random marks, too."""
    for width in range(2, 64 + 32 + 1):
        thresholds = spec_for(width).thresholds
        assert list(thresholds) == sorted(set(thresholds))


def test_thresholds_of_a_spec_are_cosines() -> None:
    spec = spec_for(24, (0.1, 0.5))
    assert spec.levels == 3
    assert [round(cosine * _steps(24) ** 2) for cosine in (0.1, 0.5)] == list(spec.thresholds)

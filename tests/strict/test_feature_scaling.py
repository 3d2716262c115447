"""Centre and size of features: what devices add, what is learnt, what it costs, what it mends."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.narrow import present
from tests.strict.classifying import schedule_of
from tests.strict.strictly import QUICK, identical, strict

import lumos
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.facts import facts_of
from lumos.secagg.noise import epsilon_for, mu_for
from lumos.strict.classify.stages import ENCODER
from lumos.strict.features import (
    BUCKETS,
    CENTRES,
    MAX_SIZES,
    MIN_POWER,
    POWERS,
    SIZES,
    STAGES,
    FeatureScaling,
    ScalingSums,
    feature_form,
    octaves,
)
from lumos.strict.link.stages import ASSOCIATIONS, LinkSchedule
from lumos.strict.settings import StrictSettings
from lumos.strict.stages import SCALING_SHARE
from lumos.training.config import Config
from lumos.training.split import Role

BITS = 24
KINDS: dict[str, Any] = {
    "one column in the thousands": lambda x, r: np.where(np.arange(16) == 0, 3000.0 * r, x),
    "offset": lambda x, _: x + 20,
    "years": lambda x, _: np.where(np.arange(16) % 4 == 0, 2000 + 10 * x, x),
    "scales from 0.001 to 1000": lambda x, _: x * 10.0 ** (np.arange(16) % 7 - 3.0),
}


def communities(kind: str = "", devices: int = 800, seed: int = 0) -> Graph:
    """Four classes, sixteen Gaussian features that tell them apart, edges mostly within a class."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, devices)
    ends = generator.integers(0, devices, (20 * devices, 2))
    alike = labels[ends[:, 0]] == labels[ends[:, 1]]
    edges = ends[alike | (generator.random(len(ends)) < 0.1)][: 3 * devices]
    features = generator.standard_normal((4, 16))[labels]
    features = features + generator.standard_normal((devices, 16))
    if kind:
        features = KINDS[kind](features, generator.standard_normal((devices, 16)))
    return Graph.from_edges(
        edges, devices=devices, features=features.astype(np.float32), labels=labels
    )


def sums_of(features: Any, *, adding: Any = None) -> ScalingSums:
    rows = np.arange(features.shape[0]) if adding is None else np.asarray(adding)
    return ScalingSums(features, rows, len(rows), BITS)


def learnt(features: Any, noise: float = 0.0, kind: str = "standard", seed: int = 0) -> Any:
    """The scaling that these features give, under noise of this standard deviation."""
    sums, generator = sums_of(features), np.random.default_rng(seed)
    for stage in STAGES[kind]:
        total = sums.vectors(stage, each=False)
        sums.learn(stage, total + noise * generator.standard_normal(len(total)), noise)
    return sums.scaling()


# What devices add.


def test_octaves_are_powers_of_two() -> None:
    values = [0.0, 1.0, -1.0, 1.99, 2.0, 0.5, 2.0**-24, 2.0**-25, 1e30, -1e-30]
    expected = []
    for value in values:
        size, bucket = abs(value), 0
        for power in range(POWERS):
            if size >= 2.0 ** (MIN_POWER + power):
                bucket = 1 + power
        expected.append(bucket)
    assert octaves(np.array(values)).tolist() == expected
    assert max(expected) == BUCKETS - 1


@pytest.mark.parametrize("stage", [SIZES, CENTRES])
@pytest.mark.parametrize("sparse", [False, True])
def test_single_vectors_and_their_sum_are_the_same_bit_by_bit(stage: str, sparse: bool) -> None:
    rows = np.random.default_rng(1).standard_normal((30, 7)) * 10.0 ** np.arange(-3, 4)
    rows[rows > 100] = 0
    features: Any = csr_array(rows) if sparse else rows
    sums = sums_of(features, adding=[1, 4, 5, 20])
    each, total = sums.vectors(stage, each=True), sums.vectors(stage, each=False)
    assert each.shape == (30, 7 * BUCKETS if stage == SIZES else 7)
    assert np.array_equal(each.sum(axis=0), total)
    assert not np.delete(each, [1, 4, 5, 20], axis=0).any()
    assert np.array_equal(each * 2.0**BITS, np.rint(each * 2.0**BITS))  # on the fixed point


@pytest.mark.parametrize("width", [1, 3, 16, 777])
def test_no_vector_is_longer_or_moves_further_than_its_noise_assumes(width: int) -> None:
    generator = np.random.default_rng(width)
    one, other = (generator.standard_normal((20, width)) * 10.0**k for k in (0, 3))
    one[0], other[0] = 1e38, -1e38
    one[1] = 0
    for stage in (SIZES, CENTRES):
        allowed = schedule_of(signed=True)[stage].sensitivity
        first, second = (sums_of(rows).vectors(stage, each=True) for rows in (one, other))
        assert np.linalg.norm(first, axis=1).max() <= allowed.norm
        moved = np.linalg.norm(first - second, axis=1).max()
        assert 0.9 * allowed.features < moved <= allowed.features


# What is learnt.


def test_exact_sums_find_centre_and_size() -> None:
    generator = np.random.default_rng(0)
    centre, spread = np.array([0, 5, -300, 2000, 0.01]), np.array([1, 2, 40, 10, 0.001])
    rows = centre + spread * generator.standard_normal((4000, 5))
    scaling = learnt(rows)
    assert (np.abs(scaling.centre - centre) < 0.2 * spread).all()
    assert (np.abs(np.log2(scaling.size / spread)) < 0.6).all()  # a window is an octave wide
    moved = present(scaling.apply(rows))
    assert np.abs(moved.mean(axis=0)).max() < 0.2
    assert np.abs(moved).max() <= MAX_SIZES
    assert moved.dtype == np.float32


def test_noise_hides_features_of_few_devices_and_nothing_is_changed() -> None:
    rows = np.random.default_rng(0).standard_normal((100, 50)) * 1000
    scaling = learnt(rows, noise=5.0)
    assert not scaling.learnt
    assert scaling.apply(rows) is rows
    assert learnt(rows, noise=0.01).learnt


def test_a_few_features_that_noise_hides_take_the_common_size() -> None:
    rows = np.random.default_rng(0).standard_normal((400, 10))
    sums = sums_of(rows)
    for stage in STAGES["standard"]:
        total = sums.vectors(stage, each=False)
        if stage == SIZES:
            total[3 * BUCKETS : 4 * BUCKETS] = 0.1  # nothing stands out of the noise
        sums.learn(stage, total, 1.0)
    scaling = sums.scaling()
    assert scaling.learnt
    assert scaling.centre[3] == 0 != scaling.centre[2]
    assert 0.5 <= scaling.size[3] <= 2


def test_mostly_zero_features_keep_their_zeros() -> None:
    rows = np.random.default_rng(0).random((500, 4)) * 1000
    rows[50:, 1] = 0
    scaling = learnt(rows)
    assert scaling.centre[1] == 0 != scaling.centre[0]
    assert not present(scaling.apply(rows))[50:, 1].any()


def test_sparse_features_stay_sparse_and_give_the_same_as_dense_ones() -> None:
    generator = np.random.default_rng(0)
    rows = np.where(generator.random((600, 6)) < 0.2, generator.gamma(2, 500, (600, 6)), 0)
    dense, sparse = learnt(rows, kind="size"), learnt(csr_array(rows), kind="size")
    assert np.array_equal(dense.size, sparse.size)
    made: Any = sparse.apply(csr_array(rows.astype(np.float32)))
    assert made.nnz == (rows != 0).sum()
    assert np.allclose(made.toarray(), present(dense.apply(rows.astype(np.float32))))


def test_a_scaling_is_kept_and_read_back() -> None:
    scaling = FeatureScaling(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    again = FeatureScaling.of(scaling.arrays(), 2)
    assert np.array_equal(again.centre, scaling.centre)
    assert np.array_equal(again.size, scaling.size)
    assert again.learnt
    for name, wrong in (("feature_size", np.zeros(2)), ("feature_centre", np.ones(3))):
        with pytest.raises(InputError, match="do not match these features; train again"):
            FeatureScaling.of({**scaling.arrays(), name: wrong}, 2)
    with pytest.raises(InputError, match="are missing; train again"):
        FeatureScaling.of({}, 2)


# What it costs.


@pytest.mark.parametrize("kind", ["size", "standard"])
def test_scaling_is_within_the_same_account(kind: Any) -> None:
    plain = schedule_of(signed=True)
    scaled = replace(plain, scaling=kind)
    whole = mu_for(plain.strict.feature_epsilon, plain.strict.delta)
    assert scaled.mu("features", Role.TRAIN) == pytest.approx(whole, rel=1e-9)
    assert epsilon_for(scaled.mu("features", Role.TRAIN), 1e-5) <= 8 + 1e-6
    for role in (Role.VALIDATION, Role.TEST):
        assert scaled.mu("features", role) == plain.mu("features", role)
    assert scaled.mu("edge", Role.TRAIN) == plain.mu("edge", Role.TRAIN)
    spent = sum((1 / present(scaled[stage].noise()).sigma) ** 2 for stage in STAGES[kind])
    moved = {SIZES: 2.0, CENTRES: 4.0}
    again = sum(
        moved[stage] / (present(scaled[stage].noise()).sigma) ** 2 for stage in STAGES[kind]
    )
    assert again == pytest.approx(SCALING_SHARE * len(STAGES[kind]) * whole**2)
    assert spent < again
    first = present(scaled[ENCODER].noise()).sigma / present(plain[ENCODER].noise()).sigma
    assert first == pytest.approx(math.sqrt(0.94 / (0.94 - SCALING_SHARE * len(STAGES[kind]))))


@pytest.mark.parametrize("kind", ["size", "standard"])
def test_links_pay_for_it_too(kind: Any) -> None:
    config = Config.of(profile="strict", task="link")
    plain, scaled = (LinkSchedule(config=config, devices=500, scaling=s) for s in ("none", kind))
    assert scaled.mu("features") == pytest.approx(plain.mu("features"))
    assert present(scaled[ASSOCIATIONS].noise()).sigma > present(plain[ASSOCIATIONS].noise()).sigma


def test_no_two_sums_have_the_same_randomness() -> None:
    schedule = replace(schedule_of(), scaling="standard")
    epochs = schedule.config.train.epochs
    after = [epochs + place for place in range(len(schedule.last_stages))]
    before = [schedule.first_randomness(place) for place in range(5)]
    assert len({*range(epochs), *after, *before}) == epochs + len(after) + 5


# What decides.


@pytest.mark.parametrize(
    ("features", "settings", "expected"),
    [
        (np.eye(3), {}, ("none", False)),
        (np.array([[-1.0, 0.5], [0, 1], [0, 0]]), {}, ("none", True)),
        (np.array([[2.0, 0], [0, 1], [0, 0]]), {}, ("standard", True)),
        (csr_array(np.array([[2.0, 0], [0, 1], [0, 0]])), {}, ("size", False)),
        (csr_array(np.array([[-2.0, 0], [0, 1], [0, 0]])), {}, ("size", True)),
        (np.array([[2.0, 0], [0, 1], [0, 0]]), {"scaling": "none"}, ("none", False)),
        (np.array([[2.0, 0], [0, 1], [0, 0]]), {"scaling": "size"}, ("size", False)),
        (np.array([[2.0, 0], [0, 1], [0, 0]]), {"signs": "nonnegative"}, ("size", False)),
        (np.eye(3), {"scaling": "standard"}, ("standard", True)),
    ],
)
def test_public_facts_decide(features: Any, settings: Any, expected: tuple[str, bool]) -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], devices=3, features=features)
    form = feature_form(facts_of(graph), StrictSettings(**settings))
    assert (form["scaling"], form["signed"]) == expected


@pytest.mark.parametrize(
    ("features", "settings", "reason"),
    [
        (csr_array(np.eye(3)), {"scaling": "standard"}, "zeros of sparse features; use `scaling"),
        (np.eye(3), {"scaling": "standard", "signs": "nonnegative"}, "leave `signs` out"),
    ],
)
def test_what_cannot_be_scaled_is_refused(features: Any, settings: Any, reason: str) -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], devices=3, features=features)
    with pytest.raises(UsageError, match=reason):
        feature_form(facts_of(graph), StrictSettings(**settings))


# Whole runs.


@pytest.mark.parametrize("kind", KINDS)
def test_no_scale_and_no_offset_ruins_a_run(kind: str) -> None:
    """The finding: before, own features fell to chance, in silence."""
    graph = communities(kind)
    before, after = (lumos.train(graph, scaling=scaling).own for scaling in ("none", "auto"))
    # Gradients are used without their part along the mean row, so an offset costs little.
    assert kind == "offset" or present(before)["test_accuracy"] < 0.7
    assert present(after)["test_accuracy"] > 0.85


def test_features_of_one_scale_are_left_alone() -> None:
    graph = communities()
    bounded = Graph.from_edges(
        graph.edge_list(), features=np.tanh(np.asarray(graph.features)), labels=graph.labels
    )
    one, other = (strict(bounded, scaling=scaling) for scaling in ("none", "auto"))
    identical(one, other)
    assert "feature_centre" not in one.model.weights


def test_the_run_says_that_sizes_are_public_and_new_devices_use_them(tmp_path: Any) -> None:
    run = strict(communities("offset", devices=200), out=tmp_path / "run")
    assert "sizes and centres of the features" in run.model.exposed
    assert "whether all of them lie between -1 and 1" in run.model.exposed
    again = lumos.load_run(tmp_path / "run")
    assert np.array_equal(again.model.weights["feature_size"], run.model.weights["feature_size"])
    assert again.guarantees == run.guarantees
    assert any("(8, 1e-05)" in str(cell) for row in run.guarantees for cell in row.values())


def test_links_are_the_same_when_asked_later(tmp_path: Any) -> None:
    graph = communities("scales from 0.001 to 1000", devices=150)
    run = lumos.train(graph, task="link", out=tmp_path / "run", score_queries=0)
    pairs: Any = [(0, 5), (7, 20), (3, 9)]
    later = lumos.load_run(tmp_path / "run", graph=graph).predict_links(ids=pairs)
    assert np.array_equal(run.predict_links(ids=pairs), later)


@pytest.mark.parametrize("shards", [1, 3])
def test_secure_sums_scale_as_ideal_ones_do(shards: int) -> None:
    graph = communities("offset", devices=40)
    settings: dict[str, Any] = {**QUICK, "protect": "none", "scaling": "standard"}
    ideal = lumos.train(graph, **settings).model.weights
    secure = lumos.train(graph, aggregate="secure", shards=shards, **settings).model.weights
    for name in ("feature_centre", "feature_size"):
        assert np.array_equal(ideal[name], secure[name])

"""All devices take part: rules that keep the guarantees, each with a broken variant; few labels."""

import math
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from benchmarks.held_out import Drawn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from tests.narrow import present
from tests.runs.running import listening
from tests.strict.classifying import encoder_of, schedule_of
from tests.strict.replay import whole_run
from tests.strict.strictly import ALL_TAKE_PART, identical, small, strict

import lumos
from lumos import Graph
from lumos.audit.attacks.replay import Transcript, changed, replay
from lumos.strict.classify.encoder import Encoder
from lumos.strict.classify.evidence import SHOWN, propagated_accuracy
from lumos.strict.classify.stages import AGREEMENT, ENCODER, PROPAGATED
from lumos.strict.classify.trainer import ONE, StrictClassifier
from lumos.strict.features import FeatureRows
from lumos.training.split import Role

ALL: dict[str, Any] = {**ALL_TAKE_PART, "encoder_epochs": 2, "epochs": 10}
THRESHOLD = "lumos.strict.classify.evidence.SHOWN"


@pytest.fixture
def labels_train() -> Iterator[None]:
    """Let propagated labels train whatever they tell: rules must hold in every run where they do.

    On graphs as small as these the noisy agreement shows nothing.
    """
    with patch(THRESHOLD, -math.inf):
        yield


by_propagated_labels = pytest.mark.usefixtures("labels_train")


def run_of(graph: Graph, roles: np.ndarray) -> Transcript:
    """A recorded run with these roles, replayed."""
    return whole_run(graph, roles=roles, **ALL)


def sixty() -> tuple[Graph, np.ndarray]:
    graph = small(60)
    return graph, np.arange(60) % 5 % 3  # more devices train and validate than test


def parts(run: Transcript, stage: str) -> list[np.ndarray]:
    """[devices, width] vectors in every sum of a stage."""
    found = []
    for part in run.parts:
        if part.stage == stage:
            vectors: Any = part.vectors
            dense = vectors.dense() if hasattr(vectors, "dense") else vectors
            of_all = np.zeros((len(run.roles), dense.shape[1]))
            of_all[part.devices] = dense
            found.append(of_all)
    return found


def differ(one: Transcript, two: Transcript, stage: str) -> np.ndarray:
    """[devices] whether any vector of a stage differs."""
    pairs = zip(parts(one, stage), parts(two, stage), strict=True)
    return np.any([(a != b).any(axis=1) for a, b in pairs], axis=0)


# Edges: what was sent is all that training depends on.


def without_edges(run: Transcript) -> Transcript:
    """The same messages and sums, and no device has a neighbour."""
    return replay(run, graph=changed(run.graph, edges=np.empty((0, 2), np.int64)))


def training_label(run: Transcript) -> np.ndarray:
    """[devices] randomized labels, and elsewhere the class that was sent; k for none."""
    sent = run.seen.propagated_labels[run.schedule[PROPAGATED].num_sums - 1][:, 0]
    return np.where(run.roles == Role.TRAIN, run.labels.values, sent)


@by_propagated_labels
def test_a_first_edge_switches_nothing_on() -> None:
    """Who trains is decided by what was sent, with neighbours and without."""
    graph, roles = sixty()
    run = run_of(graph, roles)
    alone = graph.degrees == 0
    trains = alone & (training_label(run) < graph.class_count)
    assert trains.sum() >= 2
    assert (alone & ~trains).any()
    for vectors in parts(run, ENCODER):
        adds = (np.abs(vectors) > 1e-12).any(axis=1)  # less is 0 in the fixed point of a sum
        assert_array_equal(adds[alone], trains[alone])
    for stage in (ENCODER, AGREEMENT):
        assert not differ(run, without_edges(run), stage).any()


@by_propagated_labels
def test_devices_that_train_only_with_a_neighbour_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken variant: a device without neighbours adds nothing, so its first edge shows."""
    original = Encoder.gradients
    linked: dict[int, np.ndarray] = {}

    def gradients(self: Encoder) -> Any:
        found = original(self)
        found.slope[~linked[0][self.adding]] = 0
        found.rest[~linked[0][self.adding]] = 0
        return found

    graph, roles = sixty()
    run = run_of(graph, roles)
    monkeypatch.setattr(Encoder, "gradients", gradients)
    linked[0] = graph.degrees > 0
    here = replay(run, graph=graph)
    linked[0] = np.zeros(60, np.bool_)
    trains = (graph.degrees > 0) & (training_label(run) < graph.class_count)
    assert trains.any()
    assert differ(here, without_edges(run), ENCODER)[trains].all()


@by_propagated_labels
def test_training_by_the_label_before_it_was_randomized_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken variant: the label received most often, in place of the propagated one as sent."""
    graph, roles = sixty()
    run = run_of(graph, roles)

    def before_randomization(self: StrictClassifier) -> np.ndarray:
        return self.counts[ONE][0].counts.argmax(axis=1)[:, None].astype(np.uint8)

    monkeypatch.setattr(StrictClassifier, "_training_message", before_randomization)
    here = replay(run, graph=graph)
    assert differ(here, without_edges(run), ENCODER).any()


def test_a_run_sends_one_more_propagated_label() -> None:
    """The default of a run, not only of its schedule: three on a small graph, otherwise two."""
    for split, number in (((0.1, 0.1, 0.8), 3), ((0.5, 0.25, 0.25), 2)):
        run = lumos.train("demo:300", split=split, encoder_epochs=2, epochs=12, floor=False)
        assert run.model.kept["propagated_labels"].shape[1] == number


# Labels: validation devices train by what they sent.


def with_other_labels(run: Transcript, role: Role) -> Transcript:
    values = run.labels.values
    other = np.where(run.roles == role, (values + 1) % 4, values)
    return replay(run, labels=run.labels._replace(values=other))


@by_propagated_labels
def test_validation_devices_never_train_by_their_randomized_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, roles = sixty()
    run = run_of(graph, roles)
    assert not differ(run, with_other_labels(run, Role.VALIDATION), ENCODER).any()
    assert differ(run, with_other_labels(run, Role.TRAIN), ENCODER)[roles == Role.TRAIN].all()
    # The broken variant trains by all randomized labels.
    original = FeatureRows.__init__

    def labelled(self: FeatureRows, features: Any, train: Any, **settings: Any) -> None:
        original(self, features, np.isin(roles, (Role.TRAIN, Role.VALIDATION)), **settings)

    monkeypatch.setattr(FeatureRows, "__init__", labelled)
    here = replay(run, graph=graph)
    assert differ(here, with_other_labels(run, Role.VALIDATION), ENCODER).any()


# Labels that tell nothing train nobody.


@by_propagated_labels
def test_labels_that_are_not_shown_to_tell_anything_train_nobody() -> None:
    """The decision follows from opened sums, which the replays share: nothing else differs."""
    graph, roles = sixty()
    run = run_of(graph, roles)
    others = roles != Role.TRAIN
    assert all(vectors[others].any() for vectors in parts(run, ENCODER))
    with patch(THRESHOLD, SHOWN):
        without = replay(run)
    assert not any(vectors[others].any() for vectors in parts(without, ENCODER))
    assert all(vectors[~others].any() for vectors in parts(without, ENCODER))
    pairs = list(zip(run.noises, without.noises, strict=True))
    assert all(one == two for one, two in pairs)  # the same sums, with the same noise


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_the_local_classifier_is_then_that_of_labelled_devices_alone(kind: str) -> None:
    rng = np.random.default_rng(5)
    rows: Any = (rng.random((50, 12)) * (rng.random((50, 12)) < 0.4)).astype(np.float32)
    labels = np.where(np.arange(50) % 5 < 2, np.arange(50) % 4, -1)
    counts = rng.uniform(0, 20, 12)
    made = []
    for participation in ("labelled", "all"):
        schedule = schedule_of(devices=50, training=20, participation=participation)
        encoder = encoder_of(csr_array(rows) if kind == "sparse" else rows, labels, schedule)
        encoder.learn_counts(counts)
        made.append(encoder)
    alone, every = made
    every.use_propagated_labels(rng.random((50, 4)), 0.5)
    before = every.update(each=True)
    assert before[labels < 0].any()
    assert not np.allclose(before[labels >= 0], alone.update(each=True)[labels >= 0])
    every.leave_out_others()
    for step in range(3):
        total = alone.update(each=True).sum(axis=0) + rng.normal(size=alone.width)
        assert_allclose(every.update(each=True), alone.update(each=True), rtol=1e-6, atol=1e-9)
        assert_allclose(every.update(each=False), every.update(each=True).sum(axis=0), atol=1e-6)
        for encoder in made:
            encoder.learn(total, step)
        assert_allclose(every.weights, alone.weights, rtol=1e-9)
        kept = every.state_dict()  # a run that goes on decides the same again
        every = encoder_of(csr_array(rows) if kind == "sparse" else rows, labels, schedule)
        every.load_state_dict(kept)
        every.leave_out_others()
        made[1] = every
    assert_allclose(every.logits(), alone.logits(), rtol=1e-6, atol=1e-9)


CHANCE: list[dict[str, Any]] = [
    {"classes": 2},
    {"classes": 7, "validation": 100},
    {"classes": 30, "mechanism": "digits", "label_epsilon": 4.0},
]


@pytest.mark.parametrize("settings", CHANCE, ids=str)
def test_labels_by_chance_rarely_pass(settings: dict[str, Any]) -> None:
    """Two standard errors: one side of a Gaussian beyond them has 2.3 %."""
    schedule = schedule_of(participation="all", devices=2000, training=100, **settings)
    form, rng = schedule.label_form, np.random.default_rng(6)
    noise = schedule[AGREEMENT].spread() * rng.standard_normal((4000, 2))
    right = rng.binomial(schedule.validation, 1 / form.alphabet, 4000)
    totals = np.stack([right, schedule.validation - right], axis=1) + noise
    passed = [propagated_accuracy(total, schedule) is not None for total in totals]
    assert 0.005 < np.mean(passed) < 0.04


@pytest.mark.parametrize("settings", CHANCE, ids=str)
def test_labels_that_are_mostly_right_pass_and_are_believed_no_less_than_chance(
    settings: dict[str, Any],
) -> None:
    schedule = schedule_of(participation="all", devices=2000, training=100, **settings)
    form = schedule.label_form
    found = []
    for share in np.linspace(0, 1, 21):
        agreed = 500 * (1 - 1 / form.places) / form.base + 500 * share / form.places
        found.append(propagated_accuracy(np.array([agreed, 500 - agreed]), schedule))
    believed = [accuracy for accuracy in found if accuracy is not None]
    assert found[0] is None
    assert len(believed) > 5
    assert found[-len(believed) :] == believed == sorted(believed)
    assert 1 / form.base < believed[0] < believed[-1] <= 0.99


def test_labels_that_cannot_be_compared_count_as_chance() -> None:
    schedule = schedule_of(participation="all", classes=20, label_epsilon=2.0)
    assert schedule.label_form != schedule.propagated_label_form
    assert propagated_accuracy(np.array([200.0, 0.0]), schedule) == 1 / 20


def test_a_sum_that_was_left_out_shows_nothing() -> None:
    assert propagated_accuracy(np.zeros(2), schedule_of(participation="all")) is None


# Features: predicted labels are randomized at half of ε.


def kept_share(monkeypatch: pytest.MonkeyPatch | None = None) -> tuple[float, float, int]:
    """How often a predicted label is the prediction itself, by the mechanism, and their number."""
    if monkeypatch is not None:
        monkeypatch.setattr(
            "lumos.strict.classify.trainer.randomized",
            lambda shard, chosen, mechanism, number, purpose: chosen[:, None].astype(np.uint8),
        )
    run = strict("demo:3000", **ALL_TAKE_PART, feature_epsilon=4.0)
    weights, graph = run.model.weights, present(run.graph)
    features: Any = graph.features
    rows: Any = csr_array(features)
    rows = rows.multiply(1 / np.sqrt(rows.multiply(rows).sum(axis=1))[:, None]).tocsr()
    logits = rows @ weights["encoder"][:-1] + 0.05 * weights["encoder"][-1]
    silent = run.model.kept["released"] < 0
    agree = logits.argmax(axis=1)[silent] == run.model.kept["predicted_labels"][silent, 0]
    e = np.exp(2.0)
    return float(agree.mean()), float(e / (e + 5)), int(silent.sum())


def test_predicted_labels_are_randomized(monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected, number = kept_share()
    assert abs(found - expected) < 5 * np.sqrt(0.25 / number)
    broken, expected, number = kept_share(monkeypatch)
    assert broken - expected > 5 * np.sqrt(0.25 / number)


def test_whoever_trains_sends_no_predicted_label() -> None:
    with listening() as wire:
        run = strict(small(60), **ALL_TAKE_PART)
    (messages,) = wire.of("strict/prediction")
    trains = np.flatnonzero(run.model.kept["released"] >= 0)
    senders = {message.sender for message in messages}
    assert not senders & set(trains.tolist())
    predicted = run.model.kept["predicted_labels"]  # run folders keep them
    assert not predicted[trains].any()
    assert np.delete(predicted, trains, axis=0).any()
    assert senders == set(np.flatnonzero(present(run.graph).degrees > 0)) - set(trains.tolist())
    with listening() as wire:
        strict(small(60))
    assert not wire.of("strict/prediction")


# The same program, however devices are spread.


@pytest.mark.parametrize("threshold", [-math.inf, SHOWN])
@pytest.mark.parametrize("shards", [2, 7])
def test_any_number_of_shards_gives_the_same_run(shards: int, threshold: float) -> None:
    with patch(THRESHOLD, threshold):
        one, many = (strict(small(60), shards=s, **ALL_TAKE_PART) for s in (1, shards))
    identical(one, many)


def test_a_repeat_and_a_control_change_nothing() -> None:
    one, two = (strict(small(60), control=control, **ALL_TAKE_PART) for control in (False, True))
    for name, values in one.model.weights.items():
        assert_array_equal(values, two.model.weights[name])


# Few labels.


def accuracy(split: tuple[float, float, float], **settings: Any) -> float:
    runs = [lumos.train("demo", split=split, seed=seed, **settings) for seed in range(2)]
    return float(np.mean([run.metrics["test_accuracy"] for run in runs]))


def test_few_labels_are_enough() -> None:
    """A tenth of demo: 59 % before, 43 % without neighbours."""
    tenth = (0.1, 0.1, 0.8)
    assert accuracy(tenth) > 0.80
    assert accuracy(tenth, participation="labelled") < 0.80
    assert accuracy((0.05, 0.05, 0.9)) > 0.60


def by_chance(devices: int = 1500) -> Graph:
    """Edges that know nothing of classes, and words that do."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, devices)
    likely = np.arange(200) % 4 == labels[:, None]
    words = rng.random((devices, 200)) < np.where(likely, 0.06, 0.02)
    return Graph.from_edges(
        rng.integers(0, devices, (4 * devices, 2)),
        devices=devices,
        features=csr_array(words.astype(np.float32)),
        labels=labels,
    )


def test_edges_that_say_nothing_cost_little_where_labels_are_few() -> None:
    """Compared with the local model of labelled devices only, on the same splits."""
    split, graph = (0.1, 0.1, 0.8), by_chance()
    gains = []
    for seed in range(4):
        run = lumos.train(graph, split=split, seed=seed)
        alone = lumos.train(graph, split=split, seed=seed, participation="labelled")
        gains.append(run.metrics["test_accuracy"] - present(alone.own)["test_accuracy"])
    assert np.mean(gains) > -0.03


def test_labels_that_tell_nothing_change_no_weights_of_features() -> None:
    """Edges by chance, and features in units of their own: 5 points below the local model."""
    before: list[float] = []
    now: list[float] = []
    for number in (1004, 1007):
        drawn = Drawn(number, 101)
        graph, split = drawn.graph(), drawn.splits["few"]
        for seed in range(2):
            settings: dict[str, Any] = {
                "split": split,
                "seed": seed,
                "label_epsilon": drawn.label_epsilon,
            }
            alone = present(lumos.train(graph, **settings, participation="labelled").own)
            for threshold, found in ((-math.inf, before), (SHOWN, now)):
                with patch(THRESHOLD, threshold):
                    run = lumos.train(graph, **settings)
                found.append(run.metrics["test_accuracy"] - alone["test_accuracy"])
    assert np.mean(now) > -0.025
    assert np.mean(before) < np.mean(now) - 0.015

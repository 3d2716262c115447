"""Whole strict runs of `classify`: what passes, what it costs, what is refused."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammaln
from tests.narrow import present
from tests.runs.running import Wire, listening
from tests.strict.strictly import (
    epochs,
    losses,
    run_with_wire,
    small,
    started,
    strict,
    sums,
    the_same_randomness,
)

from lumos import Graph, InputError
from lumos.device.randomness import PublicRandomness
from lumos.errors import DoorClosed, UsageError
from lumos.exchange import Door
from lumos.exchange.messages import TOPICS
from lumos.ldp.labels import LabelDraws, LabelForm
from lumos.ldp.mechanisms import make_mechanism
from lumos.paper.messages import LEAF
from lumos.runs.run import Run
from lumos.strict.classify.stages import ENCODER
from lumos.strict.classify.trainer import StrictClassifier
from lumos.strict.messages import PURPOSE, uses_edge
from lumos.training.guarantees import cells_of
from lumos.training.split import Role, split_vertices

pytestmark = pytest.mark.usefixtures("short")

RANDOMIZED_LABEL, PROPAGATED_LABEL = "strict/symbol", "strict/opinion"
DIGITS = {"mechanism": "digits"}
TREES = {"tree_network": True, "epochs": 12}


def pairs_of(graph: Graph) -> set[tuple[int, int]]:
    """All (sender, receiver) of an edge."""
    edges = graph.edge_list()
    return {(int(u), int(v)) for u, v in [*edges.tolist(), *edges[:, ::-1].tolist()]}


def roles_of(graph: Graph, seed: int = 0) -> np.ndarray:
    return split_vertices(present(graph.labels), PublicRandomness(seed))


def bodies_of(wire: Wire, topic: str) -> list[dict[int, set[bytes]]]:
    """Round by round and by device, all different bodies that it sent."""
    rounds = []
    for messages in wire.of(topic):
        found = defaultdict(set)
        for message in messages:
            found[message.sender].add(message.body)
        rounds.append(dict(found))
    return rounds


@pytest.fixture(scope="module")
def whole(short: Any, sixty: Graph) -> tuple[Run, Wire]:
    return run_with_wire(sixty)


# What passes.


def test_every_message_has_a_door_and_none_is_open(whole: tuple[Run, Wire]) -> None:
    result, wire = whole
    passed = wire.topics()
    doors = {TOPICS[name].door for name in passed} | {
        Door(line.door) for line in result.ledger.topics.values()
    }
    assert {RANDOMIZED_LABEL, PROPAGATED_LABEL} <= passed
    assert doors <= {Door.RELEASE, Door.AGGREGATE, Door.CONTROL}
    assert all(TOPICS[name].learns for name in passed | set(result.ledger.topics))


def test_masked_runs_pass_no_other_door() -> None:
    graph = small()
    result, wire = run_with_wire(graph, aggregate="secure", shards=2)
    assert "aggregate/clear-sum/ideal" not in wire.topics()
    # Beside masks, nothing but randomized labels and propagated labels ever leaves.
    others = {name for name in wire.topics() if not name.startswith("aggregate/")}
    assert others == {RANDOMIZED_LABEL, PROPAGATED_LABEL}
    assert len(wire.all_of(PROPAGATED_LABEL)) == 2 * 2 * graph.edges
    assert result.ledger.topics[PROPAGATED_LABEL].messages == 2 * 2 * graph.edges


@pytest.mark.parametrize("where", ["setup", "release", "finish"])
def test_a_program_that_uses_the_open_door_is_stopped(
    where: str, sixty: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(StrictClassifier, where)

    def chatty(self: StrictClassifier) -> Any:
        result = yield from original(self)
        shard = self.shard
        slots = len(shard.owner)
        body = np.zeros((slots, 64), np.uint8)
        lengths = np.full(slots, 64)
        yield LEAF.send(shard.ids_of(shard.owner), shard.neighbours, body, lengths=lengths)
        return result

    monkeypatch.setattr(StrictClassifier, where, chatty)
    with pytest.raises(DoorClosed) as refused:
        strict(sixty)
    assert "'train/leaf' leaves through the door 'open'" in str(refused.value)
    assert LEAF.learns in str(refused.value)


@pytest.mark.parametrize(
    ("graph", "settings"),
    [("demo:60", {}), (small(60, 14), DIGITS), (small(60, unknown=0.3), {"propagated_labels": 3})],
)
def test_training_devices_send_one_randomized_label_and_everybody_with_neighbours_propagated_labels(
    graph: Any, settings: dict[str, Any]
) -> None:
    result, wire = run_with_wire(graph, **settings)
    graph = present(result.graph)
    training = set(np.flatnonzero(roles_of(graph) == Role.TRAIN).tolist())
    (randomized_labels,) = wire.of(RANDOMIZED_LABEL)
    pairs = pairs_of(graph)
    assert {(m.sender, m.receiver) for m in randomized_labels} == {
        p for p in pairs if p[0] in training
    }
    assert {m.epsilon for m in randomized_labels} == {3.0}
    rounds = wire.of(PROPAGATED_LABEL)
    assert len(rounds) == settings.get("propagated_labels", 2)
    for messages in rounds:  # who is isolated sends nothing, all others do, to every neighbour
        assert {(m.sender, m.receiver) for m in messages} == pairs
        assert {m.epsilon for m in messages} == {4.0}
    for messages in [randomized_labels, *rounds]:
        assert len({(m.sender, m.receiver) for m in messages}) == len(messages)
    for sent in [*bodies_of(wire, RANDOMIZED_LABEL), *bodies_of(wire, PROPAGATED_LABEL)]:
        assert all(len(bodies) == 1 for bodies in sent.values())  # the same for all receivers


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("propagated_labels", [0, 1, 3])
def test_receivers_who_collude_have_no_more(
    epsilon: float, propagated_labels: int, sixty: Graph
) -> None:
    """ε of propagated labels about edges has a column of its own: it costs no label anything."""
    told = {"propagated_epsilon": 1.5} if propagated_labels else {}
    ledger = strict(
        sixty, label_epsilon=epsilon, propagated_labels=propagated_labels, **told
    ).ledger
    assert ledger.epsilon_per_receiver == ledger.epsilon_collusion == epsilon
    trains, degree = roles_of(sixty) == Role.TRAIN, np.diff(sixty.offsets)
    assert_array_equal(ledger.device_epsilon, np.where(trains & (degree > 0), epsilon, 0))
    assert_array_equal(ledger.device_epsilon, ledger.device_epsilon_collusion)
    assert ledger.edge_epsilon == 1.5 * propagated_labels
    assert_array_equal(ledger.device_edge_epsilon, np.where(degree > 0, 1.5 * propagated_labels, 0))


@pytest.mark.parametrize(("graph", "form"), [(small(), LabelForm(4, 1, 4)), (small(60, 14), None)])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_randomized_label_is_the_draw_of_the_label(
    graph: Graph, form: LabelForm | None, epsilon: float
) -> None:
    """From the device's own randomness; sums use the same one."""
    if form is None:
        form = LabelForm.of(make_mechanism(14, epsilon, "digits"))
    mechanism = "krr" if form.places == 1 else "digits"
    roles = np.arange(graph.devices) % 3
    made = started(graph, roles, label_epsilon=epsilon, mechanism=mechanism)
    randomness, everyone = made.shards[0].randomness, np.arange(graph.devices)
    draws = LabelDraws.first(form, present(graph.labels), randomness, everyone)
    expected = draws.at(epsilon)
    with listening() as wire:
        made.run(lambda trainer: trainer.release())
    (sent,) = bodies_of(wire, RANDOMIZED_LABEL)
    assert set(sent) <= set(np.flatnonzero(roles == Role.TRAIN).tolist())
    assert len(sent) > 5
    for device, bodies in sent.items():
        assert bodies == {form.messages(expected[0])[device].tobytes()}
    drawn = made.trainers[0].labels
    labelled = (roles == Role.TRAIN) | (roles == Role.VALIDATION)
    assert_array_equal(drawn.values, np.where(labelled, expected[-1], -1))


@pytest.mark.parametrize("settings", [{}, {"mechanism": "digits"}])
def test_an_propagated_label_is_a_function_of_what_was_received(
    settings: dict[str, Any], sixty: Graph
) -> None:
    """Recomputed from the messages, the public matrices and the device's randomness."""
    with listening() as wire:
        made = started(sixty, np.arange(60) % 3, **settings)
        epochs(made, 0, 8)
    trainer = made.trainers[0]
    form, mechanism = trainer.labels.form, trainer.schedule.propagated_label_mechanism
    randomness, everyone = made.shards[0].randomness, np.arange(60)
    (randomized_labels,) = wire.of(RANDOMIZED_LABEL)
    trains = np.arange(60) % 3 == Role.TRAIN
    edges = {(message.receiver, message.sender) for message in wire.of(PROPAGATED_LABEL)[0]}
    u, v = np.array(sorted(edges)).T
    uses = uses_edge(u, v, trains[u], trains[v])
    used = set(zip(u[uses].tolist(), v[uses].tolist(), strict=True))
    assert used | {(v, u) for u, v in used} == edges
    assert 2 * len(used) == len(edges)
    counts = [np.zeros((60, form.alphabet))]
    for message in randomized_labels:
        if (message.receiver, message.sender) in used:
            counts[0][message.receiver, message.body[0]] += 1
    for number, messages in enumerate(wire.of(PROPAGATED_LABEL), start=1):
        evidence = np.zeros((60, 6))
        for place, kind in enumerate(counts):
            evidence += polya(kind, trainer.schedule.matrix(place, trainer.matrices))
        chance = randomness.uniform(everyone, f"{PURPOSE}/tie", number)[:, 0]
        best = np.array([pick(row, at) for row, at in zip(evidence, chance, strict=True)])
        if mechanism.size > 6:  # the last value: no class
            best[np.isclose(evidence, 0, atol=1e-9).all(axis=1)] = 6
        words = randomness.words(everyone, PURPOSE, number, mechanism.randomness)
        expected = mechanism.release(best, words)
        for message in messages:
            assert message.body == expected[message.sender].tobytes()
        received = np.zeros((60, mechanism.alphabet))
        for message in messages:
            if (message.receiver, message.sender) in used:
                named = mechanism.read(np.frombuffer(message.body, np.uint8)[None])[0]
                received[message.receiver] += named / max(1.0, named.sum())
        counts.append(received[:, : trainer.schedule.propagated_label_form.alphabet])


def polya(counts: np.ndarray, total: np.ndarray) -> np.ndarray:
    """[devices, k] log-likelihood by the product of rising factorials, less its mean."""
    table = total
    prior = 16.0 * table / table.sum(axis=1, keepdims=True)
    found = np.zeros((len(counts), len(prior)))
    for device, row in enumerate(counts):
        for label, parameters in enumerate(prior):
            for count, parameter in zip(row, parameters, strict=True):
                whole = int(count)
                rising = [np.log(parameter + n) for n in range(whole)]
                found[device, label] += sum(rising)
                if count != whole:  # a share of a message that names several values
                    found[device, label] += gammaln(parameter + count) - gammaln(parameter + whole)
    return found - found.mean(axis=1, keepdims=True)


def pick(row: np.ndarray, chance: float) -> int:
    """The largest; one of several by chance, where rounding makes none of them larger."""
    best = np.flatnonzero(np.isclose(row, row.max(), rtol=0, atol=1e-9))
    return int(best[int(chance * len(best))])


@pytest.mark.parametrize("settings", [{}, {"propagated_labels": 3}, {"aggregate": "secure"}])
def test_devices_without_a_part_in_training_give_away_nothing_of_their_own(
    settings: dict[str, Any],
) -> None:
    """Their features and labels change, and not a bit that leaves any device, nor any sum."""
    graph = small(60, classes=3)
    silent = roles_of(graph) == Role.TEST
    labels, features = present(graph.labels).copy(), np.array(graph.features)
    rng = np.random.default_rng(5)
    features[silent] = rng.random((int(silent.sum()), 12))
    labels[silent] = (labels[silent] + 1) % 3
    other = Graph.from_edges(
        graph.edge_list(), devices=60, features=features, labels=labels, classes=graph.classes
    )
    found = []
    for each in (graph, other):
        with the_same_randomness(), listening() as wire, sums() as opened:
            made = started(each, roles_of(graph), **settings)
            epochs(made, 0, 10)
            outcome = made.finish()
        sent = [
            messages
            for topic in (RANDOMIZED_LABEL, PROPAGATED_LABEL)
            for messages in wire.of(topic)
        ]
        found.append((sent, [(step, total.tobytes()) for step, total in opened], outcome))
    (sent, totals, one), (sent_there, totals_there, two) = found
    assert (
        len(totals) == 5 + 10 + 2
    )  # those that scale features, epochs, model selection and temperature
    assert sent == sent_there
    assert totals == totals_there
    assert_array_equal(one.logits[~silent], two.logits[~silent])
    assert (one.logits[silent] != two.logits[silent]).any()  # the change is one


def test_every_run_tells_what_it_guarantees(whole: tuple[Run, Wire]) -> None:
    result, _ = whole
    rows = {row["about"]: row for row in result.guarantees}
    roles = {"training devices", "validation devices", "other devices"}
    assert all(
        cells_of(row).keys() == roles and all(cells_of(row).values()) for row in rows.values()
    )
    label = rows["label replaced"]
    assert label["training devices"] == label["validation devices"] == "ε = 3, pure"
    assert rows["features replaced"]["training devices"] == "(8, 1e-05)"
    assert json.loads(json.dumps(result.summary()))["guarantees"] == result.guarantees
    assert result.model.exposed.startswith("Nothing left a device through the door `open`.")
    for words in (
        "several runs add up",
        "This was a simulation: sums were computed in the clear and randomness comes from the "
        "run seed.",
        "`aggregate='secure'` with `randomness='system'`",
    ):
        assert words in result.model.exposed
    assert "30 training devices are too few for 3,607 weights" in " ".join(result.model.warnings)
    assert "15 validation devices are few" in " ".join(result.model.warnings)


# Noise.


@pytest.mark.parametrize("aggregate", ["secure", "ideal"])
def test_noise_in_a_sum_is_as_large_as_it_should_be(aggregate: str, sixty: Graph) -> None:
    made = started(sixty, aggregate=aggregate, propagated_labels=0)
    trainer = made.trainers[0]
    scaled = []
    epochs(made, 0, 2)  # counts and randomized labels
    for epoch in (2, 3):
        exact = trainer.encoder.update(each=False)
        noise = trainer.schedule[ENCODER].noise(epoch - 2)
        with sums() as opened:
            epochs(made, epoch, epoch + 1)
        ((step, total),) = opened
        assert step == epoch
        assert len(total) == 601 * 6 + 1
        scaled.append((total - exact) / noise.total)
        assert scaled[-1].std() == pytest.approx(1, rel=0.06)
        assert abs(scaled[-1].mean()) < 5 / np.sqrt(len(total))
    assert abs(np.corrcoef(*scaled)[0, 1]) < 0.1  # another step, other noise


def test_devices_draw_their_noise_themselves(sixty: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each vector is noisy before it is masked; shares of two devices have nothing in common."""
    from lumos.secagg import SecureAggregator

    given: list[np.ndarray] = []
    original = SecureAggregator.sum

    def watched(self: Any, vectors: np.ndarray, leaves: Any = None) -> Any:
        given.append(vectors.copy())
        return (yield from original(self, vectors, leaves))

    monkeypatch.setattr(SecureAggregator, "sum", watched)
    roles = np.where(np.arange(60) % 2, Role.TEST, Role.TRAIN)
    made = started(sixty, roles, aggregate="secure", propagated_labels=0)
    noise = made.trainers[0].schedule[ENCODER].noise(0)
    epochs(made, 0, 3)
    silent = given[2][roles == Role.TEST]  # they add nothing but noise
    assert silent.std() == pytest.approx(noise.share, rel=0.02)
    between = np.corrcoef(silent) - np.eye(len(silent))
    assert np.abs(between).max() < 6 / np.sqrt(silent.shape[1])
    grid = silent * 2.0**24
    assert np.array_equal(grid, np.rint(grid))


# What is refused, and what runs.


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"score_queries": 4},
            r"`score_queries` has no effect with `profile='strict'` and `task='classify'`",
        ),
        ({"random_marks": 4}, r"`random_marks` has no effect"),
        ({"label_epsilon": float("inf")}, r"`label_epsilon` must be above 0 and finite, got inf"),
        ({"label_epsilon": 0.0}, r"`label_epsilon` must be above 0"),
        ({"label_epsilon": float("nan")}, r"`label_epsilon` must be above 0 and finite, got nan"),
        ({"epsilon": 2.0}, r"there are `label_epsilon` and `feature_epsilon`"),
        ({"propagated_labels": 4}, r"`propagated_labels` must be 0 to 3, got 4"),
        ({"propagated_labels": -1}, r"`propagated_labels` must be 0 to 3, got -1"),
        ({"propagated_epsilon": float("inf")}, r"`propagated_epsilon` must be above 0 and finite"),
        ({"propagated_epsilon": 0.0}, r"`propagated_epsilon` must be above 0"),
        ({"lifetime_propagated_epsilon": 0.0}, r"`lifetime_propagated_epsilon` must be above 0"),
        ({"signs": "both"}, r"`signs`"),
        ({"mechanism": "none"}, r"`mechanism`"),
        ({"virtual_nodes": False}, r"`virtual_nodes` has no effect with `profile='strict'`"),
        ({"layers": 2}, r"`layers` has no effect .* `tree_network=False`"),
        (
            {"layers": 3, **TREES},
            r"normalisation of deeper trees would reveal the number of neighbours",
        ),
        ({"layers": 1, **TREES}, r"needs `layers=2`"),
        ({"epochs": 6}, r"`epochs` must be above 6 .*2 for encoder; got 6"),
        ({"epochs": 5, "propagated_labels": 1}, r"`epochs` must be above 5"),
        (
            {"epochs": 10, "tree_network": True},
            r"`epochs` must be above 10 .* 4 for evidence_weights; got 10",
        ),
        ({"pool": "max"}, r"`pool` has no effect with `profile='strict'`"),
        ({"balancer": "greedy"}, r"has no `balancer`.*would reveal degrees"),
        ({"control": True, "randomness": "system"}, r"`control` is an experiment of simulations"),
        ({"clip": 1e-6}, r"`clip` must be 0.05 or more"),
        ({"label_epsilon": 1e-9}, r"epsilon=1e-09` for 6 labels is too little"),
    ],
)
def test_what_cannot_keep_the_guarantees_is_refused(
    settings: dict[str, Any], reason: str, sixty: Graph, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        strict(sixty, out=tmp_path / "run", **settings)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()  # and no run stands in the way


def with_features(features: Any, labels: Any, edges: Any = ((0, 1), (1, 2))) -> Graph:
    return Graph.from_edges(
        np.asarray(edges).reshape(-1, 2), devices=len(labels), features=features, labels=labels
    )


ONE_OF_A_CLASS = with_features(
    np.random.default_rng(0).random((30, 5)).astype(np.float32),
    np.where(np.arange(30) == 7, 2, np.arange(30) % 2),
    np.random.default_rng(0).integers(0, 30, (60, 2)),
)


@pytest.mark.parametrize(
    ("graph", "settings"),
    [
        (small(), {}),
        (small(edges=0), {}),
        (small(edges=0), {"propagated_labels": 0, "shards": 7}),
        (small(edges=0), {"tree_network": True, "epochs": 12, "aggregate": "secure"}),
        (small(unknown=0.4), {}),
        (small(classes=2), {}),
        (
            small(classes=2),
            {"label_epsilon": 0.1, "tree_network": True, "epochs": 12, "backbone": "gat"},
        ),
        (small(120, 30), {"label_epsilon": 0.5}),
        (small(120, 30), {"label_epsilon": 4.0}),
        (small(), {"label_epsilon": 20.0, "propagated_epsilon": 20.0}),
        (small(signed=True), {"signs": "nonnegative"}),
        (small(), {"signs": "signed"}),
        (small(), {"protect": "none", "propagated_labels": 3}),
        (small(), {"randomness": "system"}),
        (small(), {"encoder_epochs": 1, "epochs": 7}),
        (ONE_OF_A_CLASS, {}),
        (with_features(np.zeros((12, 4), np.float32), np.arange(12) % 2), {}),
        (with_features(np.full((12, 4), 1e30, np.float32), np.arange(12) % 2), {}),
        (with_features(np.full((12, 4), 1e-30, np.float32), np.arange(12) % 2), {}),
        (with_features(np.eye(12, 900, dtype=np.float32), np.arange(12) % 2), {}),
    ],
)
def test_graphs_and_settings_of_all_kinds_run(graph: Graph, settings: dict[str, Any]) -> None:
    result, wire = run_with_wire(graph, **settings)
    logits = present(result.model.logits)
    assert logits.shape == (graph.devices, graph.class_count)
    assert np.isfinite(logits).all()
    assert np.isfinite(losses(result)).all()
    propagated_labels = settings.get("propagated_labels", 2)
    assert len(wire.all_of(PROPAGATED_LABEL)) == 2 * graph.edges * propagated_labels
    training = np.flatnonzero(roles_of(graph) == Role.TRAIN)
    assert len(wire.all_of(RANDOMIZED_LABEL)) == np.diff(graph.offsets)[training].sum()
    released = result.model.kept["released"]
    assert_array_equal(np.flatnonzero(released >= 0), training)


def test_a_class_that_no_training_device_has() -> None:
    """Two classes, one of them absent from training: the run ends, whatever it predicts."""
    graph = small(classes=2)
    roles = np.where(present(graph.labels) == 0, Role.TRAIN, np.arange(40) % 2 + Role.VALIDATION)
    made = started(graph, roles)
    epochs(made, 0, 10)
    assert np.isfinite(made.finish().logits).all()


@pytest.mark.parametrize(
    "settings", [{}, {"propagated_labels": 0}, {"tree_network": True, "epochs": 12}]
)
def test_two_devices_with_a_label(settings: dict[str, Any]) -> None:
    """One trains, one validates: too few to split, but not too few to run."""
    graph = small(30)
    labels = np.full(30, -1)
    labels[[3, 4]] = [0, 1]
    graph = Graph.from_edges(
        graph.edge_list(), devices=30, features=graph.features, labels=labels, classes=["a", "b"]
    )
    with pytest.raises(InputError, match="2 devices have one; classify needs at least 4") as few:
        strict(graph, **settings)
    assert "\n" not in str(few.value)
    roles = np.full(30, Role.NOBODY)
    roles[[3, 4]] = Role.TRAIN, Role.VALIDATION
    with listening() as wire:
        made = started(graph, roles, **settings)
        epochs(made, 0, made.config.train.epochs)
        assert np.isfinite(made.finish().logits).all()
    assert {message.sender for message in wire.all_of(RANDOMIZED_LABEL)} == {3}


@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e-10, 1e10, 1e30])
def test_features_of_any_size_are_the_same(size: float) -> None:
    """Rows are scaled to norm 1, so their unit is of no importance."""
    graph = small()
    rows = np.array(graph.features) * (1 if size > 1e-40 else 100)
    other = with_features((rows * size).astype(np.float32), graph.labels, graph.edge_list())
    plain = with_features(rows.astype(np.float32), graph.labels, graph.edge_list())
    with the_same_randomness():
        one, two = (present(strict(each, scaling="none").model.logits) for each in (plain, other))
    coarse = 0.02 if size < 1e-38 else 1e-3  # numbers below 1e-38 have few digits
    assert_allclose(two, one, atol=coarse * np.abs(one).max())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_no_numbers_are_refused(value: float) -> None:
    features = np.ones((12, 3), np.float32)
    features[7, 1] = value
    with pytest.raises(InputError) as refused:
        strict(with_features(features, np.arange(12) % 2))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("epsilon", "name"), [(0.5, "digits"), (6.0, "krr")])
def test_many_classes_take_the_form_that_keeps_more(epsilon: float, name: str) -> None:
    _, wire = run_with_wire(small(120, 30), label_epsilon=epsilon)
    mechanism = make_mechanism(30, epsilon)
    form = LabelForm.of(mechanism)
    assert form.name.split()[0] == name
    values = {message.body[0] for message in wire.all_of(RANDOMIZED_LABEL)}
    assert max(values) < form.alphabet
    assert (form.alphabet < 30) == (name == "digits")

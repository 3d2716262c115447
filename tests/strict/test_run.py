"""Whole strict runs: what passes, what it costs; shards, masks and faults change nothing."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.narrow import present
from tests.runs.running import Wire, listening
from tests.strict.strictly import epochs, losses, started, sums, the_same_coins
from tests.strict.strictly import run_with_wire as long_run_with_wire
from tests.strict.strictly import strict as strict_long

from lumos import Graph, LumosError
from lumos.encode.mechanisms import make_mechanism
from lumos.errors import DoorClosed, UsageError
from lumos.exchange import Door
from lumos.exchange.topic import TOPICS
from lumos.paper.topics import LEAF
from lumos.runs.events import EpochEvent
from lumos.runs.run import Run
from lumos.strict.classify_trainer import StrictClassifier
from lumos.strict.promises import NONE, WHO
from lumos.strict.schedule import ENCODER
from lumos.training.split import Role

pytestmark = pytest.mark.usefixtures("short")

SYMBOL = "strict/symbol"
SHORT = {"encoder_epochs": 2, "epochs": 8}
CODED = {"symbol": "codebook", "epochs": 17}


def strict(graph: Any, **settings: Any) -> Run:
    return strict_long(graph, **{**SHORT, **settings})


def run_with_wire(graph: Any, **settings: Any) -> tuple[Run, Wire]:
    return long_run_with_wire(graph, **{**SHORT, **settings})


def symbols_of(wire: Wire) -> dict[int, set[bytes]]:
    """By device, all different symbols that it ever sent."""
    found = defaultdict(set)
    for message in wire.all_of(SYMBOL):
        found[message.sender].add(message.body)
    return found


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
    assert SYMBOL in passed
    assert doors <= {Door.RELEASE, Door.AGGREGATE, Door.CONTROL}
    assert all(TOPICS[name].learns for name in passed | set(result.ledger.topics))


def test_masked_runs_pass_no_other_door(sixty: Graph) -> None:
    result, wire = run_with_wire(sixty, aggregate="secure", shards=2)
    assert {TOPICS[name].door for name in wire.topics()} <= {
        Door.RELEASE,
        Door.AGGREGATE,
        Door.CONTROL,
    }
    assert "aggregate/ideal" not in wire.topics()
    # Beside masks, nothing but one symbol for each neighbour ever leaves.
    others = {name for name in wire.topics() if not name.startswith("aggregate/")}
    assert others == {SYMBOL}
    assert len(wire.all_of(SYMBOL)) == 2 * sixty.edges
    assert result.ledger.topics[SYMBOL].messages == 2 * sixty.edges


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


def test_symbols_go_to_neighbours_and_each_device_says_one_thing(
    whole: tuple[Run, Wire], sixty: Graph
) -> None:
    _, wire = whole
    (messages,) = wire.of(SYMBOL)
    pairs = {(message.sender, message.receiver) for message in messages}
    edges = sixty.edge_list()
    assert pairs == {tuple(pair) for pair in [*edges.tolist(), *edges[:, ::-1].tolist()]}
    assert len(messages) == len(pairs)
    assert all(len(messages) == 1 for messages in symbols_of(wire).values())
    assert {message.epsilon for message in messages} == {2.0}


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("mechanism", ["krr", "digits", "oue"])
def test_receivers_who_collude_have_no_more(epsilon: float, mechanism: str, sixty: Graph) -> None:
    ledger = strict(sixty, epsilon=epsilon, mechanism=mechanism).ledger
    assert ledger.epsilon_per_receiver == ledger.epsilon_collusion == epsilon
    degree = np.diff(sixty.offsets)
    assert np.array_equal(ledger.device_epsilon, np.where(degree > 0, epsilon, 0))
    assert np.array_equal(ledger.device_epsilon, ledger.device_epsilon_collusion)


def test_the_symbol_is_what_the_mechanism_says(sixty: Graph) -> None:
    """Training devices their label, others their encoder's answer; from their own coins."""
    roles = np.arange(60) % 3
    made = started(sixty, roles, epsilon=1.0)
    epochs(made, 0, 2)
    trainer = made.trainers[0]
    answer = trainer._own().argmax(axis=1)
    true = np.where(roles == Role.TRAIN, present(sixty.labels), answer)
    mechanism = make_mechanism(6, 1.0)
    coins = made.shards[0].coins.words(np.arange(60), "symbol", 0, mechanism.coins)
    expected = mechanism.release(true, coins)
    with listening() as wire:
        made.run(lambda trainer: trainer.release())
    for device, released in symbols_of(wire).items():
        assert released == {expected[device].tobytes()}


def test_trainers_may_say_what_their_encoder_says(sixty: Graph) -> None:
    """Then nothing released depends on a label, given the weights."""
    found = []
    for labels in (present(sixty.labels), present(sixty.labels)[::-1]):
        graph = Graph.from_edges(
            sixty.edge_list(), features=sixty.features, labels=labels, classes=sixty.classes
        )
        with the_same_coins():  # only labels differ
            made = started(graph, trainers_say="prediction")
        with listening() as wire:
            made.run(lambda trainer: trainer.release())
        found.append(symbols_of(wire))
    assert found[0] == found[1]


def test_every_run_tells_what_it_promises(whole: tuple[Run, Wire]) -> None:
    result, _ = whole
    rows = {row["about"]: row for row in result.promises}
    assert set(rows) == {"features", "label", "degree and workload", "edges", "losses"}
    assert all(len(row) == 6 and all(row.values()) for row in rows.values())
    for about in ("features", "label", "losses"):
        # What the symbol tells, 2, and what updates tell, 8: to all who see the weights.
        assert {rows[about][who] for who in WHO[:-1]} == {"(10, 1e-05)"}
        assert rows[about]["the broker"].startswith(NONE)
    assert json.loads(json.dumps(result.summary()))["promises"] == result.promises
    assert result.privacy.exposed.startswith("Nothing left a device through the door `open`.")
    for words in (
        "several runs add up",
        "This was a simulation: sums were computed in the clear and coins come from the run seed.",
        "`aggregate='secure'` with `coins='system'`",
    ):
        assert words in result.privacy.exposed
    assert (
        "training devices are too few for 3,606 weights under this noise" in result.training.caution
    )


# Shards.


@pytest.mark.parametrize(
    "settings", [{}, {"protect": "none"}, {"relay": 2, "backbone": "gat"}, CODED]
)
def test_shards_change_nothing(
    settings: dict[str, Any], sixty: Graph, ledger_differences: Any
) -> None:
    one, wire = run_with_wire(sixty, **settings)
    for shards in (2, 7, 60):
        other, wire_there = run_with_wire(sixty, shards=shards, **settings)
        for topic in (SYMBOL, "strict/relay"):
            assert wire.of(topic) == wire_there.of(topic)
        assert ledger_differences(one.ledger, other.ledger) == []
        assert_allclose(losses(other), losses(one), atol=1e-5)
        assert_allclose(present(other.model.logits), present(one.model.logits), atol=1e-5)
        assert one.metrics == other.metrics
        assert one.promises == other.promises


# Masked sums and noise.


def test_masked_sums_without_noise_are_the_ideal_ones(sixty: Graph) -> None:
    with the_same_coins():  # only the way of adding up differs
        ideal = strict(sixty, protect="none")
        masked = strict(sixty, protect="none", aggregate="secure", shards=2)
    assert_allclose(losses(masked), losses(ideal), atol=1e-4)
    assert_allclose(present(masked.model.logits), present(ideal.model.logits), atol=1e-3)


@pytest.mark.parametrize("aggregate", ["secure", "ideal"])
def test_noise_in_a_sum_is_as_large_as_it_should_be(aggregate: str, sixty: Graph) -> None:
    made = started(sixty, aggregate=aggregate)
    noise = made.trainers[0].schedule.noise(ENCODER)
    limit = made.trainers[0].schedule.limit(ENCODER)
    exact = made.trainers[0]._encoder.update(np.zeros(601 * 6), limit, each=False)
    with sums() as opened:
        epochs(made, 0, 2)
    difference = opened[0][1] - exact
    assert len(difference) == 601 * 6 + 1
    assert difference.std() == pytest.approx(noise.total, rel=0.06)
    assert abs(difference.mean()) < 5 * noise.total / np.sqrt(len(difference))
    assert abs(np.corrcoef(opened[0][1], opened[1][1])[0, 1]) < 0.1  # another step, other noise


def test_devices_draw_their_noise_themselves(sixty: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each vector is noisy before it is masked; shares of two devices have nothing in common."""
    from lumos.aggregate import SecureAggregator

    given: list[np.ndarray] = []
    original = SecureAggregator.sum

    def watched(self: Any, vectors: np.ndarray, leaves: Any = None) -> Any:
        given.append(vectors.copy())
        return (yield from original(self, vectors, leaves))

    monkeypatch.setattr(SecureAggregator, "sum", watched)
    roles = np.where(np.arange(60) % 2, Role.TEST, Role.TRAIN)
    made = started(sixty, roles, aggregate="secure")
    noise = made.trainers[0].schedule.noise(ENCODER)
    epochs(made, 0, 1)
    silent = given[0][roles == Role.TEST]  # they add nothing but noise
    assert silent.std() == pytest.approx(noise.share, rel=0.02)
    between = np.corrcoef(silent) - np.eye(len(silent))
    assert np.abs(between).max() < 6 / np.sqrt(silent.shape[1])
    grid = silent * 2.0**24
    assert np.array_equal(grid, np.rint(grid))


# Interruptions.


class Pulled(KeyboardInterrupt):
    """Somebody pulled the plug."""


STOPS = {"encoder_epochs": 4, "epochs": 12, "checkpoint_every": 2}


def same(one: Run, other: Run, differences: Any) -> None:
    assert_allclose(losses(one), losses(other), rtol=0, atol=0)
    assert (one.metrics, one.own, one.control) == (other.metrics, other.own, other.control)
    assert np.array_equal(present(one.model.logits), present(other.model.logits))
    assert one.model.weights.keys() == other.model.weights.keys()
    assert all(
        np.array_equal(one.model.weights[name], other.model.weights[name])
        for name in one.model.weights
    )
    assert differences(one.ledger, other.ledger) == []
    assert one.promises == other.promises
    assert one.cost.per_epoch == other.cost.per_epoch


@pytest.fixture(scope="module")
def uninterrupted(short: Any, sixty: Graph) -> Run:
    return strict(sixty, **STOPS)


@pytest.mark.parametrize("epoch", [1, 3, 4, 5, 6, 7, 8, 9, 11, 12])
def test_an_interrupted_run_goes_on_exactly(
    epoch: int, uninterrupted: Run, sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    """In the encoder, at the release, in trust, at its end, in the trees, after the last."""

    def interrupt(event: EpochEvent) -> None:
        if event.epoch == epoch:
            raise Pulled

    with pytest.raises(Pulled):
        strict(sixty, out=tmp_path, on_epoch=interrupt, **STOPS)
    resumed, wire = run_with_wire(sixty, out=tmp_path, resume=True, **STOPS)
    same(uninterrupted, resumed, ledger_differences)
    assert len(wire.of(SYMBOL)) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"protect": "holders", "min_holders": 2, "shards": 3},
        {"relay": 3, "mechanism": "oue"},
        {"aggregate": "secure", "shards": 2},
        {"symbol": "codebook", "epochs": 21},
    ],
)
def test_other_runs_go_on_too(
    settings: dict[str, Any], sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    settings = {**STOPS, **settings}

    def interrupt(event: EpochEvent) -> None:
        if event.epoch == 7:
            raise Pulled

    with pytest.raises(Pulled):
        strict(sixty, out=tmp_path, on_epoch=interrupt, **settings)
    resumed = strict(sixty, out=tmp_path, resume=True, **settings)
    same(strict(sixty, **settings), resumed, ledger_differences)


# What is refused, and what runs.


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"answer": 4}, r"`answer` has no meaning with `profile='strict'` and `task='classify'`"),
        ({"epsilon": float("inf")}, r"needs a finite `epsilon`"),
        ({"virtual_nodes": False}, r"`virtual_nodes` has no meaning with `profile='strict'`"),
        ({"layers": 3}, r"number of neighbours in their normalisation"),
        ({"layers": 1}, r"needs `layers=2`"),
        ({"epochs": 6}, r"`epochs` must be above 6"),
        ({"epochs": 3}, r"2 for the encoder, 4 for trust; got 3"),
        ({"pool": "max"}, r"`pool` has no meaning with `profile='strict'`"),
        ({"balancer": "greedy"}, r"needs no `balancer`.*would tell of degrees"),
        ({"balancer": "mcmc"}, r"needs no `balancer`"),
        ({"control": True, "coins": "system"}, r"`control` is an experiment of simulations"),
        ({"codebook": 4}, r"`codebook` has no meaning"),
        ({"symbol": "codebook", "trainers_say": "label"}, r"`trainers_say` has no meaning"),
        ({"symbol": "codebook", "epochs": 15}, r"2 for the encoder and 9 for the codebook, 4 for"),
        ({"clip": 1e-6}, r"`clip` must be 0.05 or more"),
    ],
)
def test_what_cannot_keep_the_promises_is_refused(
    settings: dict[str, Any], reason: str, sixty: Graph, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        strict(sixty, out=tmp_path / "run", **settings)
    assert "\n" not in str(refused.value)
    strict(sixty, out=tmp_path / "run")  # and no run stands in the way


def small(
    devices: int = 40, classes: int = 4, *, edges: int = 80, unknown: float = 0.0, seed: int = 0
) -> Graph:
    rng = np.random.default_rng(seed)
    labels = np.arange(devices) % classes
    features = rng.random((devices, 12)).astype(np.float32)
    pairs = rng.integers(0, devices - 5, (edges, 2))  # the last five have no neighbour
    return Graph.from_edges(
        pairs,
        devices=devices,
        features=features,
        labels=np.where(rng.random(devices) < unknown, -1, labels),
        classes=[str(name) for name in range(classes)],
    )


@pytest.mark.parametrize(
    ("graph", "settings"),
    [
        (small(), {}),
        (small(edges=0), {}),
        (small(edges=0), {"relay": 2, "shards": 7}),
        (small(unknown=0.4), {}),
        (small(classes=2), {}),
        (small(classes=2), {"epsilon": 0.1, "backbone": "gat"}),
        (small(120, 30), {"epsilon": 0.5}),
        (small(120, 30), {"epsilon": 4.0}),
        (small(), {"epsilon": 800.0}),
        (small(), {"protect": "projection", "projection": 5}),
        (small(), {"protect": "holders"}),
        (small(), {"relay": 4, "mechanism": "oue"}),
        (small(), {"coins": "system"}),
        (small(), CODED),
        (small(120, 30), {**CODED, "codebook": 4, "relay": 2, "mechanism": "oue"}),
        (small(edges=0), {**CODED, "protect": "projection", "projection": 5}),
        (small(unknown=0.4), {**CODED, "protect": "holders", "shards": 7}),
    ],
)
def test_graphs_and_settings_of_all_kinds_run(graph: Graph, settings: dict[str, Any]) -> None:
    result, wire = run_with_wire(graph, **settings)
    logits = present(result.model.logits)
    assert logits.shape == (graph.devices, graph.class_count)
    assert np.isfinite(logits).all()
    assert np.isfinite(losses(result)).all()
    assert len(wire.all_of(SYMBOL)) == 2 * graph.edges * (1 + bool(settings.get("control")))
    spent = settings.get("epsilon", 2.0) if graph.edges else 0.0
    assert result.ledger.epsilon_collusion == spent


def test_many_classes_and_a_small_epsilon_take_digits() -> None:
    for epsilon, mechanism, width in ((0.5, "auto", 1), (4.0, "auto", 1), (0.5, "oue", 4)):
        _, wire = run_with_wire(small(120, 30), epsilon=epsilon, mechanism=mechanism)
        assert {len(message.body) for message in wire.all_of(SYMBOL)} == {width}
        symbols_seen = {message.body[0] for message in wire.all_of(SYMBOL)}
        if (epsilon, mechanism) == (0.5, "auto"):
            symbols = make_mechanism(30, 0.5)
            assert symbols.name == "digits"
            assert max(symbols_seen) < symbols.alphabet < 30


def test_entries_of_a_codebook_are_released_by_everybody(sixty: Graph) -> None:
    """Whatever the labels: the nearest entry, from their own coins."""
    for labels in (present(sixty.labels), present(sixty.labels)[::-1]):
        graph = Graph.from_edges(
            sixty.edge_list(), features=sixty.features, labels=labels, classes=sixty.classes
        )
        with the_same_coins():
            made = started(graph, np.arange(60) % 3, **CODED)
        epochs(made, 0, 11)
        trainer = made.trainers[0]
        mechanism = make_mechanism(8, 2.0)
        coins = made.shards[0].coins.words(np.arange(60), "symbol", 0, mechanism.coins)
        expected = mechanism.release(trainer.codebook.nearest(), coins)
        assert len(np.unique(trainer.codebook.nearest())) > 2
        with listening() as wire:
            made.run(lambda trainer: trainer.release())
        for device, released in symbols_of(wire).items():
            assert released == {expected[device].tobytes()}


def test_masked_sums_of_a_codebook_are_the_ideal_ones(sixty: Graph) -> None:
    with the_same_coins():
        ideal = strict(sixty, protect="none", **CODED)
        masked = strict(sixty, protect="none", aggregate="secure", shards=3, **CODED)
    assert_allclose(masked.model.weights["codebook"], ideal.model.weights["codebook"], atol=1e-5)
    assert_allclose(present(masked.model.logits), present(ideal.model.logits), atol=1e-4)


def test_features_that_nobody_shares_are_too_few_for_holders() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, 20, (30, 2)), devices=20, features=np.eye(20, dtype=np.float32),
        labels=np.arange(20) % 2,
    )  # fmt: skip
    with pytest.raises(LumosError, match=r"no feature has 5 holders.*`min_holders`"):
        strict(graph, protect="holders")

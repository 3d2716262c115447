"""Whole strict runs of `link`: what passes and what it costs; shards and faults change nothing."""

import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.narrow import sparse
from tests.runs.running import Wire, listening
from tests.strict.linking import linked, losses, run_with_wire, started, sums
from tests.strict.strictly import the_same_coins

from lumos import Graph
from lumos.device.coins import PublicCoins
from lumos.encode.mechanisms import make_mechanism
from lumos.errors import ProtocolError
from lumos.exchange import Door
from lumos.exchange.topic import TOPICS
from lumos.runs.events import EpochEvent
from lumos.runs.load import load_run
from lumos.runs.run import Run
from lumos.storage import read_arrays
from lumos.strict.answer_samples import Answers, draw_answers
from lumos.strict.pair_scorer import LinkResult
from lumos.strict.score_models import PAIRS
from lumos.training.metrics import auc
from lumos.training.split import split_edges

pytestmark = pytest.mark.usefixtures("short")

SYMBOL, RELAY, ASK = "strict/symbol", "strict/relay", "strict/ask"
ANSWER, NEIGHBOUR_ANSWER = "strict/answer", "strict/neighbour-answer"
RELEASES = (SYMBOL, RELAY, NEIGHBOUR_ANSWER, ASK, ANSWER)


def bodies(wire: Wire, topic: str) -> dict[int, set[bytes]]:
    """By device, all different messages of a topic that it ever sent."""
    found = defaultdict(set)
    for message in wire.all_of(topic):
        found[message.sender].add(message.body)
    return found


@pytest.fixture(scope="module")
def whole(short: Any, sixty: Graph) -> tuple[Run, Wire]:
    return run_with_wire(sixty)


@pytest.fixture(scope="module")
def training(sixty: Graph) -> Graph:
    return split_edges(sixty, PublicCoins(0)).training


# What passes.


def test_every_message_has_a_door_and_none_is_open(whole: tuple[Run, Wire]) -> None:
    result, wire = whole
    passed = wire.topics()
    assert passed == {*RELEASES, "aggregate/ideal"}
    doors = {TOPICS[name].door for name in passed} | {
        Door(line.door) for line in result.ledger.topics.values()
    }
    assert doors == {Door.RELEASE, Door.AGGREGATE, Door.CONTROL}
    assert all(TOPICS[name].learns for name in passed | set(result.ledger.topics))
    assert result.privacy.exposed.startswith("Nothing left a device through the door `open`.")


def test_symbols_and_relays_go_to_neighbours_in_training(
    whole: tuple[Run, Wire], training: Graph
) -> None:
    _, wire = whole
    edges = training.edge_list()
    arcs = {tuple(pair) for pair in [*edges.tolist(), *edges[:, ::-1].tolist()]}
    for topic, rounds in ((SYMBOL, 1), (RELAY, 3), (NEIGHBOUR_ANSWER, 1)):
        assert len(wire.of(topic)) == rounds
        for messages in wire.of(topic):
            assert {(m.sender, m.receiver) for m in messages} == arcs
            assert len(messages) == len(arcs)
    assert all(len(messages) == 1 for messages in bodies(wire, SYMBOL).values())


def test_answers_are_the_same_for_all_who_ask_and_of_one_length(
    whole: tuple[Run, Wire], training: Graph
) -> None:
    _, wire = whole
    asked = {(message.receiver, message.sender) for message in wire.all_of(ASK)}
    assert {(message.sender, message.receiver) for message in wire.all_of(ANSWER)} == asked
    assert all(len(messages) == 1 for messages in bodies(wire, ANSWER).values())
    width = 2 * (1 + 4 * 8)
    for topic in (ANSWER, NEIGHBOUR_ANSWER):
        assert {len(message.body) for message in wire.all_of(topic)} == {width}
    own = {sender: next(iter(messages)) for sender, messages in bodies(wire, SYMBOL).items()}
    for topic in (ANSWER, NEIGHBOUR_ANSWER):  # the symbol and the colour are those released
        for message in wire.all_of(topic):
            if message.sender in own:
                both = bytes([message.body[0], message.body[width // 2]])
                assert both == own[message.sender]
    # How many are asked does not depend on degrees; asks carry no word.
    asks = np.bincount([m.sender for m in wire.all_of(ASK)], minlength=60)
    assert asks.max() <= PAIRS + 2
    assert (asks > 0).all()
    assert {m.body for m in wire.all_of(ASK)} == {wire.all_of(ASK)[0].body}


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_receivers_who_collude_have_no_more(epsilon: float, sixty: Graph) -> None:
    result, wire = run_with_wire(sixty, epsilon=epsilon, relay="none")
    ledger = result.ledger
    assert ledger.epsilon_per_receiver == ledger.epsilon_collusion == epsilon
    senders = {m.sender for m in wire.all_of(SYMBOL)} | {m.sender for m in wire.all_of(ANSWER)}
    expected = np.where(np.isin(np.arange(60), list(senders)), epsilon, 0)
    assert_array_equal(ledger.device_epsilon, expected)
    assert_array_equal(ledger.device_epsilon_collusion, expected)
    for topic, spent in (
        (RELAY, 0.0),
        (NEIGHBOUR_ANSWER, 0.0),
        (SYMBOL, epsilon),
        (ANSWER, epsilon),
    ):
        assert {m.epsilon for m in wire.all_of(topic)} <= {spent}


def test_the_symbol_is_what_the_mechanism_says(sixty: Graph) -> None:
    made = started(sixty, epsilon=1.0)
    made.run(lambda trainer: trainer.epochs(0, 9), lambda program: program.epochs(0, 9))
    entries = made.trainers[0]._codebook.nearest()
    mechanism = make_mechanism(8, 1.0, "krr")
    coins = made.shards[0].coins.words(np.arange(60), "symbol", 0, mechanism.coins)
    expected = mechanism.release(entries, coins)[:, 0]
    with listening() as wire:
        made.run(lambda trainer: trainer.release())
    for device, (released,) in ((d, tuple(s)) for d, s in bodies(wire, SYMBOL).items()):
        assert released[0] == expected[device]


def test_masked_runs_pass_no_other_door_and_find_the_same(sixty: Graph) -> None:
    settings = {"protect": "none", "relay": 2, "codebook": 4}
    with the_same_coins():  # only the way of adding up differs
        ideal = linked(sixty, **settings)
        masked, wire = run_with_wire(sixty, aggregate="secure", shards=2, **settings)
    assert "aggregate/ideal" not in wire.topics()
    assert {TOPICS[name].door for name in wire.topics()} == {
        Door.RELEASE,
        Door.AGGREGATE,
        Door.CONTROL,
    }
    others = {name for name in wire.topics() if not name.startswith("aggregate/")}
    assert others == set(RELEASES)
    assert_allclose(losses(masked), losses(ideal), atol=1e-4)
    assert_array_equal(masked.model.kept["answers"], ideal.model.kept["answers"])
    assert_array_equal(masked.model.kept["entries"], ideal.model.kept["entries"])
    assert_allclose(masked.embeddings, ideal.embeddings, atol=1e-3)
    assert masked.training.choice == ideal.training.choice


def test_a_neighbours_answer_out_of_range_is_refused(
    sixty: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As is a stranger's: the error is a typed one, not an index that does not exist."""
    for topic in (NEIGHBOUR_ANSWER, ANSWER):
        with monkeypatch.context() as patch:

            def wrong(*args: Any, topic: str = topic) -> Answers:
                answers = draw_answers(*args)
                strangers = topic == ANSWER
                (answers.for_strangers if strangers else answers.for_neighbours)[:, 3] = 200
                return answers

            patch.setattr("lumos.strict.link_trainer.draw_answers", wrong)
            with pytest.raises(ProtocolError, match="does not exist"):
                linked(sixty)


# Shards.


@pytest.mark.parametrize(
    ("settings", "all_shards"),
    [({}, (2, 60)), ({"protect": "none", "relay": "none", "backbone": "gat"}, (7,))],
)
def test_shards_change_nothing(
    settings: dict[str, Any], all_shards: tuple[int, ...], sixty: Graph, ledger_differences: Any
) -> None:
    one, wire = run_with_wire(sixty, **settings)
    for shards in all_shards:
        other, wire_there = run_with_wire(sixty, shards=shards, **settings)
        for topic in RELEASES:
            assert wire.of(topic) == wire_there.of(topic)
        assert ledger_differences(one.ledger, other.ledger) == []
        assert_allclose(losses(other), losses(one), atol=1e-5)
        assert one.model.kept.keys() == other.model.kept.keys()
        for name, array in one.model.kept.items():
            assert_allclose(other.model.kept[name], array, atol=1e-5)
        # A first step of Adam is as long for a slope of rounding errors as for any other.
        assert_allclose(other.embeddings, one.embeddings, atol=1e-3)
        pairs = np.random.default_rng(0).integers(0, 60, (80, 2))
        both = [scores_of(result, pairs) for result in (one, other)]
        assert_allclose(both[0], both[1], atol=1e-5)
        assert (one.training.choice, one.promises) == (other.training.choice, other.promises)
        assert one.metrics == pytest.approx(other.metrics, abs=1e-9)


def scores_of(result: Run, pairs: np.ndarray) -> np.ndarray:
    """By every candidate, from what a run folder keeps."""
    known = {**result.model.kept, "embeddings": result.embeddings}
    found = LinkResult.of(result.config.model, result.model.weights, known)
    assert found.choice == result.training.choice
    return np.stack(list(found.scores(pairs[:, 0], pairs[:, 1]).values()))


# Interruptions.


class Pulled(KeyboardInterrupt):
    """Somebody pulled the plug."""


STOPS = {"epochs": 16, "checkpoint_every": 2, "relay": 2}


def same(one: Run, other: Run, differences: Any) -> None:
    assert_array_equal(losses(one), losses(other))
    assert (one.metrics, one.own, one.by_ids, one.training.choice) == (
        other.metrics, other.own, other.by_ids, other.training.choice,
    )  # fmt: skip
    for mine, theirs in (
        (one.model.weights, other.model.weights),
        (one.model.kept, other.model.kept),
    ):
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert np.array_equal(one.embeddings, other.embeddings)
    assert differences(one.ledger, other.ledger) == []
    assert (one.promises, one.cost.per_epoch) == (other.promises, other.cost.per_epoch)


def pulled(sixty: Graph, epoch: int, folder: Path, **settings: Any) -> None:
    def interrupt(event: EpochEvent) -> None:
        if event.epoch == epoch:
            raise Pulled

    with pytest.raises(Pulled):
        linked(sixty, out=folder, on_epoch=interrupt, **settings)


@pytest.fixture(scope="module")
def uninterrupted(short: Any, sixty: Graph) -> Run:
    return linked(sixty, **STOPS)


@pytest.mark.parametrize("epoch", [1, 8, 9, 11, 13, 15, 16])
def test_an_interrupted_run_goes_on_exactly(
    epoch: int, uninterrupted: Run, sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    """In the codebook, just before and at the release, in trust, at its end, in the trees, last."""
    pulled(sixty, epoch, tmp_path, **STOPS)
    resumed, wire = run_with_wire(sixty, out=tmp_path, resume=True, **STOPS)
    same(uninterrupted, resumed, ledger_differences)
    assert len(wire.of(SYMBOL)) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"protect": "holders", "min_holders": 2, "shards": 3, "checkpoint_every": 9},
        {"aggregate": "secure", "shards": 2, "codebook": 2, "relay": "none"},
    ],
)
def test_other_runs_go_on_too(
    settings: dict[str, Any], sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    settings = {**STOPS, **settings}
    pulled(sixty, 12, tmp_path, **settings)
    resumed = linked(sixty, out=tmp_path, resume=True, **settings)
    same(linked(sixty, **settings), resumed, ledger_differences)


# What runs.


def small(devices: int = 40, *, edges: int = 80, width: int = 12, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, devices - 5, (edges, 2))  # the last five have no neighbour
    features = rng.random((devices, width)).astype(np.float32)
    features[3] = 0
    return Graph.from_edges(pairs, devices=devices, features=features)  # and no label


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"backbone": "gat"},
        {"protect": "none", "relay": "none", "answer": 1, "colours": "none"},
        {"protect": "holders", "relay": 2, "answer": 16, "colours": 2},
        {"protect": "projection", "projection": 5, "answer": 64, "colours": 256},
        {"codebook": 2, "epsilon": 0.1, "answer": 1, "shards": 7},
        {"codebook": 64, "epsilon": 800.0, "relay": 2},
        {"coins": "system", "answer": 64, "relay": 3},
        {"control": True, "relay": 2},
    ],
    ids=str,
)
def test_settings_of_all_kinds_run(settings: dict[str, Any]) -> None:
    """On a graph without labels, with devices without neighbours, or without features."""
    graph = small()
    result, wire = run_with_wire(graph, **settings)
    plan_hops = {"none": 1}.get(settings.get("relay", 4), settings.get("relay", 4))
    kinds = 1 + (settings.get("colours") != "none")
    width = kinds * (1 + plan_hops * settings.get("answer", 8))
    for topic in (ANSWER, NEIGHBOUR_ANSWER):
        assert {len(message.body) for message in wire.all_of(topic)} == {width}
    assert {len(message.body) for message in wire.all_of(SYMBOL)} == {kinds}
    assert np.isfinite(losses(result)[9:]).all()
    assert np.isfinite(result.embeddings).all()
    assert all(np.isfinite(array).all() for array in result.model.weights.values())
    pairs = np.random.default_rng(0).integers(0, 40, (50, 2))
    assert np.isfinite(scores_of(result, pairs)).all()
    assert (result.by_ids is None) == (kinds == 1)
    assert result.training.choice in ("own", "evidence", "backbone")
    assert 0 <= result.metrics["test_auc"] <= 1
    assert json.loads(json.dumps(result.summary()))["task"] == "link"


def test_a_run_folder_scores_as_the_run_did(sixty: Graph, tmp_path: Path) -> None:
    result = linked(sixty, out=tmp_path, relay=2)
    weights = read_arrays(tmp_path / "model.npz")
    assert all(np.array_equal(weights[name], array) for name, array in result.model.weights.items())
    split = split_edges(sixty, PublicCoins(0))
    scores = {"own": result.own, "ids": result.by_ids, result.training.choice: result.metrics}
    for name, metrics in scores.items():
        known = {**result.model.kept, "embeddings": result.embeddings}
        found = LinkResult.of(result.config.model, weights, known)
        ends = [found.at_both_ends(name, pairs) for pairs in (split.test, split.test_strangers)]
        assert metrics is not None
        assert metrics["test_auc"] == pytest.approx(auc(*ends))


# The control.


def test_the_control_says_nothing_of_features(sixty: Graph) -> None:
    """Symbols, relays and answers are the same, bit by bit, whoever has which features."""
    found = []
    for order in (np.arange(60), np.arange(60)[::-1]):
        features = sparse(sixty.features)[order]
        graph = Graph.from_edges(sixty.edge_list(), features=features, labels=sixty.labels)
        with the_same_coins():
            made = started(graph, control=True, protect="none", relay=2)
        made.run(lambda trainer: trainer.epochs(0, 9), lambda program: program.epochs(0, 9))
        with listening() as wire:
            made.run(lambda trainer: trainer.release())
            made.run(lambda trainer: trainer._prepare_inputs())
        found.append(wire.rounds)
        received = made.trainers[0]._received
    assert found[0] == found[1]
    # Received symbols are drawn afresh: the neighbours of a device do not agree on its symbol.
    shard = made.shards[0]
    by_sender = defaultdict(set)
    for slot, sender in enumerate(shard.neighbours.tolist()):
        by_sender[sender].add(int(received[0][slot, 0]))
    assert max(len(symbols) for symbols in by_sender.values()) > 3


def test_the_control_is_another_run_beside(sixty: Graph) -> None:
    result, wire = run_with_wire(sixty, control=True, relay="none")
    assert len(wire.of(SYMBOL)) == 2
    assert result.control is not None
    assert result.control.keys() == result.metrics.keys()


# The number of sums.


def test_every_sum_of_a_run_is_one_that_the_plan_knows(sixty: Graph) -> None:
    with sums() as opened:
        linked(sixty, relay="none")
    steps = [some.step for some in opened]
    assert steps == [*range(9), -10, *range(9, 15), 15]
    assert len(set(steps)) == len(steps)  # no noise twice


# Predictions.


def test_pairs_are_predicted_as_the_first_of_them_sees_them(sixty: Graph, tmp_path: Path) -> None:
    result = linked(sixty, out=tmp_path, relay=2)
    run = load_run(tmp_path)
    names = [str(sixty.ids[place]) for place in (3, 17, 40)]
    pairs = list(combinations(names, 2))
    number = ("own", "evidence", "backbone").index(result.training.choice)
    expected = scores_of(result, np.array([[3, 17], [3, 40], [17, 40]]))[number]
    assert_allclose(run.predict_links(pairs), 1 / (1 + np.exp(-expected)))
    (backwards,) = run.predict_links([(names[2], names[1])])  # as 40 sees 17
    assert backwards == pytest.approx(
        float(1 / (1 + np.exp(-scores_of(result, np.array([[40, 17]]))[number, 0])))
    )

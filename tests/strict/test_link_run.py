"""Whole runs of links: the same on any shards, masked or not, interrupted or not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from tests.runs.running import Wire
from tests.strict.linking import (
    Opened,
    identical,
    linked,
    run_with_wire,
    started,
    sums,
    town,
)
from tests.strict.strictly import epochs, small, the_same_randomness

from lumos import InputError, UsageError, load_run
from lumos.exchange import TOPICS
from lumos.graph import Graph
from lumos.runs.run import Run
from lumos.strict.link.encoder import NOBODY
from lumos.strict.link.levels import ALONE, BOTH, NeighbourhoodSketch
from lumos.strict.link.stages import ASSOCIATIONS, COUNTS, WHITENING
from lumos.training.trainer import EpochEvent

DEVICES = 14
CHEAP = {"random_marks": 4}
"""Sums of secure runs are of few numbers."""
BETWEEN = ("strict/colour", "strict/opinion", "strict/proposal", "strict/reply")
"""What neighbours send one another."""


def watched(**settings: Any) -> tuple[Run, Wire, list[Opened]]:
    """A run, its messages, and every sum."""
    graph = settings.pop("graph", None)
    with sums() as opened:
        run, wire = run_with_wire(small(DEVICES) if graph is None else graph, **settings)
    return run, wire, opened


def bytes_of(opened: list[Opened]) -> list[tuple[int, bytes]]:
    return [(each.step, each.total.tobytes()) for each in opened]


# -- shards and masks -----------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "without propagated labels": {"propagated_labels": 0},
    "one propagated label": {"propagated_labels": 1, "propagated_epsilon": 2.0},
    "exact": {"protect": "none"},
    "signed": {"graph": small(DEVICES, signed=True)},
    "nonnegative": {"graph": small(DEVICES, signed=True), "signs": "nonnegative"},
    "words": {"graph": "demo:14"},
    "randomized answers": {"query_epsilon": 2.0, "query_bits": 3},
    "one bit": {"query_bits": 1, "score_queries": 5},
    "narrow": {"random_marks": 2},
}
MASKED = {"default", "exact", "signed", "randomized answers"}


SHORT = ("randomized answers",)
LONG = {"one propagated label", "nonnegative", "one bit", "narrow"}


@pytest.mark.parametrize(
    ("name", "aggregate"),
    [
        pytest.param(name, "ideal", marks=pytest.mark.long if name in LONG else ())
        for name in SETTINGS
    ]
    + [
        pytest.param(name, "secure", marks=() if name in SHORT else pytest.mark.long)
        for name in SETTINGS
        if name in MASKED
    ],
)
def test_shards_change_nothing(name: str, aggregate: str, ledger_differences: Any) -> None:
    settings = {**(CHEAP if aggregate == "secure" else {}), **SETTINGS[name]}
    one, wire, opened = watched(aggregate=aggregate, **settings)
    assert len(opened) >= one.config.train.epochs + 1
    for shards in (3, DEVICES) if name == "default" else (DEVICES,):
        other, wire_there, there = watched(shards=shards, aggregate=aggregate, **settings)
        identical(one, other)
        assert bytes_of(opened) == bytes_of(there)
        for topic in BETWEEN:
            assert wire.of(topic) == wire_there.of(topic)
        assert ledger_differences(one.ledger, other.ledger) == []


@pytest.mark.parametrize(
    "name",
    [
        "words",
        "randomized answers",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("exact", "signed")),
    ],
)
def test_masked_runs_without_noise_are_the_ideal_ones(name: str, ledger_differences: Any) -> None:
    """Masked sums and secret scores: bit by bit, and every count of the ledger."""
    settings = {**CHEAP, **SETTINGS[name], "protect": "none"}
    with the_same_randomness():  # only the way of adding up differs
        ideal, _, totals = watched(**settings)
        masked, wire, masked_totals = watched(aggregate="secure", shards=2, **settings)
    assert bytes_of(totals) == bytes_of(masked_totals)
    identical(ideal, masked)
    assert ledger_differences(ideal.ledger, masked.ledger) in ([], ["topics"])
    assert not [topic for topic in wire.topics() if topic.endswith("/ideal")]


@pytest.mark.parametrize("aggregate", ["ideal", "secure"])
def test_noise_of_a_masked_run_is_that_of_the_schedule(sixty: Graph, aggregate: str) -> None:
    """The sum less what the devices hold, in standard deviations."""
    made = started(sixty, aggregate=aggregate, random_marks=8, propagated_labels=0)
    trainer, found = made.trainers[0], {}
    for number in range(made.config.train.epochs):
        stage, step = trainer.schedule.place(number)
        with sums() as opened:
            if stage.name in (COUNTS, ASSOCIATIONS, WHITENING):  # others send messages before
                found[stage.name] = stage.update(trainer, each=True).sum(axis=0)
            epochs(made, number, number + 1)
        (only,) = opened
        if stage.name in found:
            found[stage.name] = (only.total - found[stage.name]) / stage.noise(step).total
    assert found.keys() == {COUNTS, ASSOCIATIONS, WHITENING}
    for error in found.values():
        assert error.std() == pytest.approx(1, abs=5 / np.sqrt(2 * len(error)))
        assert abs(error.mean()) < 5 / np.sqrt(len(error))


# -- interruptions ---------------------------------------------------------------------------


class Pulled(KeyboardInterrupt):
    """Somebody pulled the plug."""


RESUMED: dict[str, dict[str, Any]] = {
    "default": {},
    "masked": {"aggregate": "secure", "shards": 2, **CHEAP, "propagated_labels": 1},
    "exact": {"protect": "none", "shards": 3, "propagated_labels": 1},
    "control": {"control": True, "propagated_labels": 0, "query_epsilon": 2.0},
}


def graph_of(name: str) -> Graph:
    return small(DEVICES if name == "masked" else 30)


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, Run]:
    every = {"checkpoint_every": 1}
    return {name: linked(graph_of(name), **RESUMED[name], **every) for name in RESUMED}


STAGES = {
    "default": range(1, 8),
    "masked": range(1, 6),
    "exact": range(1, 6),
    "control": (1, 3, 4),
}
"""Epochs after which a run is interrupted."""


@pytest.mark.parametrize("name", STAGES)
def test_an_interrupted_run_goes_on_exactly(
    name: str, uninterrupted: dict[str, Run], tmp_path: Path, ledger_differences: Any
) -> None:
    """Interrupted, gone on with, and interrupted again."""
    settings = {**RESUMED[name], "checkpoint_every": 1, "out": tmp_path / "run"}

    def interrupted_after(epoch: int) -> Callable[[EpochEvent], None]:
        def interrupt(event: EpochEvent) -> None:
            if event.epoch == epoch:
                raise Pulled

        return interrupt

    graph = graph_of(name)
    for number, epoch in enumerate(STAGES[name]):
        with pytest.raises(Pulled):
            linked(graph, on_epoch=interrupted_after(epoch), resume=number > 0, **settings)
    resumed = linked(graph, resume=True, **settings)
    whole = uninterrupted[name]
    identical(whole, resumed)
    assert ledger_differences(whole.ledger, resumed.ledger) == []
    assert whole.cost.per_epoch == resumed.cost.per_epoch


# -- what passes -----------------------------------------------------------------------------


@pytest.mark.parametrize("aggregate", ["ideal", "secure"])
def test_every_message_has_a_door_and_none_is_open(aggregate: str) -> None:
    run, wire = run_with_wire(small(DEVICES), aggregate=aggregate, **CHEAP)
    doors = {TOPICS[name].door.value for name in wire.topics()}
    assert doors <= {"release", "control", "aggregate", "compare"}
    assert {line.door for line in run.ledger.topics.values()} <= doors
    near = {frozenset(edge) for edge in small(DEVICES).edge_list().tolist()}
    for topic in BETWEEN:
        assert all(frozenset((m.sender, m.receiver)) in near for m in wire.all_of(topic))


def test_ledger_of_releases() -> None:
    """A random mark costs nothing, three propagated labels ε each; they are about edges."""
    run, wire = run_with_wire(small(DEVICES))
    assert {m.epsilon for m in wire.all_of("strict/colour")} == {0.0}
    assert {m.epsilon for m in wire.all_of("strict/opinion")} == {4.0}
    assert run.ledger.epsilon_per_receiver == 0
    assert run.ledger.edge_epsilon == 12.0
    for topic, rounds in (("strict/colour", 1), ("strict/opinion", 3)):
        assert len(wire.of(topic)) == rounds
        for messages in wire.of(topic):
            told = {m.sender: m.body for m in messages}
            assert all(m.body == told[m.sender] for m in messages), "the same to all neighbours"


def test_calibration_compares_every_device_twice_at_most() -> None:
    run, wire = run_with_wire(random_graph(0), seed=0, protect="none")
    assert run.model.choice == ALONE  # no score was asked for later
    counts = np.zeros(200, np.int64)
    assert run.model.kept.keys() == {"sent"}  # who calibrated how often tells who has such an edge
    for message in wire.all_of("score/ideal"):
        counts[message.sender] += 1
    assert counts.max() == 2
    assert (run.ledger.device_comparison_bits <= 2 * 3).all()


def one_with_other_words(**settings: Any) -> list[tuple[Wire, list[Opened], list[np.ndarray]]]:
    """Two runs with the same randomness; one device has other words. Also every sketch."""
    found: list[tuple[Wire, list[Opened], list[np.ndarray]]] = []
    honest = NeighbourhoodSketch.vectors
    for touched in (None, 7):
        sketches: list[np.ndarray] = []

        def seen(self: Any, sketches: list[np.ndarray] = sketches) -> np.ndarray:
            sketches.append(honest(self))
            return sketches[-1]

        with the_same_randomness(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(NeighbourhoodSketch, "vectors", seen)
            _, wire, opened = watched(graph=town(30, 3, touched=touched), **settings)
        found.append((wire, opened, sketches))
    return found


@pytest.mark.parametrize("aggregate", ["ideal", "secure"])
def test_features_reach_no_release_no_control_and_no_sketch(aggregate: str) -> None:
    """One device with other features, the same randomness: nothing that neighbours see has changed.

    Whoever is matched, random marks, propagated labels and sketches follow from edges and
    randomness alone. Scores and other sums do depend on features: they change, so the test has
    teeth.
    """
    (wire, opened, sketches), (other, there, elsewhere) = one_with_other_words(
        aggregate=aggregate, shards=2, **CHEAP
    )
    names = {name for name in wire.topics() | other.topics() if name.startswith("strict/")}
    assert names == set(BETWEEN)
    for name in names:
        assert TOPICS[name].door.value in ("release", "control")
        assert wire.of(name) == other.of(name)
    changed = {
        a.step for a, b in zip(opened, there, strict=True) if a.total.tobytes() != b.total.tobytes()
    }
    assert {a.step for a in opened} == set(range(8))
    # Counts, associations, whitening; in levels two pairs may keep their buckets.
    assert changed | {7} == {0, 5, 6, 7}
    assert len(sketches) == len(elsewhere) >= 4
    for one, two in zip(sketches, elsewhere, strict=True):
        assert one.tobytes() == two.tobytes()


def test_twin_colours_of_words_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer whose random marks depend on its words would not pass the test above."""
    from lumos.strict.link.trainer import StrictLinker

    honest = StrictLinker._begin

    def leaking(self: Any) -> None:
        honest(self)
        first = self.tokens.shares().toarray().argmax(axis=1) % 4
        self.sketch._own = first
        self.sketch._sent = first.astype(np.uint8)

    monkeypatch.setattr(StrictLinker, "_begin", leaking)
    (wire, _, sketches), (other, _, elsewhere) = one_with_other_words(**CHEAP)
    assert wire.of("strict/colour") != other.of("strict/colour")
    assert wire.of("strict/proposal") == other.of("strict/proposal")
    assert sketches[0].tobytes() != elsewhere[0].tobytes()


# -- what comes out --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good() -> Run:
    """A run in which words and neighbourhood sketch both tell who knows whom."""
    return linked(town(), protect="none", control=True)


def test_a_run_finds_edges_where_words_and_surroundings_tell_them(good: Run) -> None:
    assert good.model.choice == BOTH
    assert good.metrics["test_auc"] > 0.8
    assert good.own is not None
    assert good.own["test_auc"] < 0.6
    assert good.model.warnings == []
    estimates = good.model.estimates
    assert set(estimates) == {"levels_auc_both", "levels_auc_both_error"}  # few devices: one vector
    assert 0.5 < estimates[f"levels_auc_{good.model.choice}"] <= 1


def test_the_control_knows_nothing(good: Run) -> None:
    """Random words and random random marks: no better than the asker's own degree."""
    assert good.control is not None
    assert good.own is not None
    assert abs(good.control["test_auc"] - good.own["test_auc"]) < 0.1


def test_the_control_has_as_many_words_and_other_ones() -> None:
    made = started(town(60), control=True)
    honest = started(town(60))
    one, two = made.trainers[0].tokens, honest.trainers[0].tokens
    assert (one.held <= two.held).all()
    assert one.held.sum() > 0.8 * two.held.sum()
    assert ((one.shares() > 0) != (two.shares() > 0)).sum() > 0.1 * 60 * one.width


def random_graph(seed: int) -> Graph:
    """A graph in which words have nothing to do with edges."""
    rng = np.random.default_rng(seed)
    features = (rng.random((200, 40)) < 0.2).astype(np.float32)
    return Graph.from_edges(rng.integers(0, 200, (600, 2)), devices=200, features=features)


def test_chance_that_is_believed_costs_little() -> None:
    run = linked(random_graph(1), seed=1, protect="none")
    assert run.model.choice != ALONE, "the example shows what chance costs"
    assert run.metrics["test_auc"] > (run.own or {})["test_auc"] - 0.02


@pytest.mark.parametrize("seed", [0, 4, 5])
def test_a_random_graph_is_scored_by_degrees(seed: int) -> None:
    graph = random_graph(seed)
    run = linked(graph, seed=seed, protect="none")
    assert run.model.choice == ALONE
    assert run.metrics == run.own
    assert "pairs are scored by the asker's own degree" in run.model.warnings[0]
    assert "which may be chance; so no device is asked" in run.model.warnings[0]
    assert "too few" not in run.model.warnings[0]
    noisy = linked(graph, seed=seed, feature_epsilon=0.5)
    assert noisy.model.choice == ALONE
    assert "200 devices are too few for 40 tokens under this noise" in noisy.model.warnings[0]


def test_in_doubt_vectors_of_both_are_kept() -> None:
    """Embeddings of a run that fell back are still those of words and neighbourhood sketch."""
    run = linked("demo:60")
    assert run.model.choice == ALONE
    assert run.embeddings.shape == (60, 24 + 24)
    assert_allclose(np.linalg.norm(run.embeddings, axis=1), 1, rtol=1e-5)


# -- odd graphs ------------------------------------------------------------------------------


def with_features(features: Any, edges: int = 60, devices: int = 40) -> Graph:
    pairs = np.random.default_rng(0).integers(0, devices - 5, (edges, 2))
    return Graph.from_edges(pairs, devices=devices, features=features)


@pytest.mark.parametrize("protect", ["noise", "none"])
@pytest.mark.parametrize(
    "features",
    [
        np.zeros((40, 12), np.float32),
        np.eye(40, 12, dtype=np.float32),
        np.ones((40, 1), np.float32),
        np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32),
        1e30 * np.random.default_rng(0).random((40, 5)).astype(np.float32),
        csr_array((40, 50), dtype=np.float32),
    ],
    ids=["no words", "one word each", "one word", "signed", "large", "sparse and empty"],
)
def test_odd_features(features: Any, protect: str) -> None:
    run = linked(with_features(features), protect=protect)
    assert np.isfinite(run.embeddings).all()
    assert np.isfinite(list(run.metrics.values())).all()
    assert np.isfinite(run.predict_links(ids=[(0, 1), (2, 39)])).all()


def test_dense_and_sparse_features_are_the_same_run() -> None:
    dense = town(40).features
    with the_same_randomness():
        one = linked(with_features(np.asarray(dense)), protect="none")
        two = linked(with_features(csr_array(np.asarray(dense))), protect="none")
    identical(one, two)


def test_devices_without_neighbours_have_vectors_and_answer() -> None:
    """The last five are isolated: they hear nothing, are matched with nobody, and are
    non-neighbours."""
    run, wire = run_with_wire(with_features(np.eye(40, 12, dtype=np.float32)), protect="none")
    lonely = set(range(35, 40))
    for topic in BETWEEN:
        assert not lonely & {end for m in wire.all_of(topic) for end in (m.sender, m.receiver)}
    assert np.linalg.norm(run.embeddings[35:], axis=1) == pytest.approx(1)
    assert {m.sender for m in wire.all_of("score/ideal")} >= lonely


def test_no_edge_is_held_back() -> None:
    """A federation of its own: histograms of edges are empty, so nothing is chosen."""
    made = started(town(40), protect="none")
    last = made.config.train.epochs
    made.run(lambda trainer: trainer.epochs(0, last), lambda program: program.epochs(0, last))
    (part,) = made.run(lambda trainer: trainer.finish(), lambda program: program.finish())
    assert part.reading.way == ALONE
    assert (part.budget.calibrated <= 1).all()


def test_an_odd_number_of_devices_leaves_one_without_a_non_neighbour() -> None:
    for devices in (40, 41):
        made = started(town(devices), protect="none")
        partner = made.trainers[0]._non_neighbours()
        here = np.flatnonzero(partner != NOBODY)
        assert len(here) == devices // 2 * 2
        assert_array_equal(partner[partner[here]], here)
        assert (partner[here] != here).all()


def test_features_that_are_no_numbers_are_refused() -> None:
    features = np.ones((40, 3), np.float32)
    features[3, 1] = np.nan
    with pytest.raises(InputError, match="row 3, column 1 is nan"):
        linked(with_features(features))
    with pytest.raises(InputError, match="no features"):
        linked(Graph.from_edges(np.random.default_rng(0).integers(0, 40, (60, 2)), devices=40))


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backbone": "gcn"}, "which have no tree network"),
        ({"learning_rate": 0.1}, "which have no tree network"),
        (
            {"label_epsilon": 2.0},
            "`label_epsilon` has no effect with `profile='strict'` and `task='link'`",
        ),
        ({"clip": 0.2}, "`clip` has no effect"),
        ({"tree_network": True}, "`tree_network` has no effect"),
        ({"relay": 2}, "there is no setting 'relay'"),
        ({"balancer": "greedy"}, "has no `balancer`"),
        ({"propagated_labels": 4}, "must be 0 to 3"),
        ({"score_queries": 1}, "must be above 2"),
        ({"epochs": 6}, "`epochs` must be 7 with these settings"),
        ({"epochs": 8}, "`epochs` must be 7 with these settings"),
    ],
)
def test_settings_that_links_do_not_have_are_refused(
    settings: dict[str, Any], words: str, sixty: Graph
) -> None:
    with pytest.raises(UsageError) as caught:
        linked(sixty, **settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_new_devices_are_refused(tmp_path: Path, sixty: Graph) -> None:
    from lumos.runs.predict import NewDevice, predict_new_devices

    run = linked(sixty)
    arrived = [NewDevice(id="new", features=np.zeros((1, 600), np.float32), neighbours=("1",))]
    with pytest.raises(UsageError, match="new devices are for runs that classify"):
        predict_new_devices(run, arrived)


# -- folders -----------------------------------------------------------------------------------


def test_a_run_folder_keeps_everything(tmp_path: Path) -> None:
    graph = town()
    run = linked(graph, protect="none", out=tmp_path / "run")
    again = load_run(tmp_path / "run")
    identical(run, replace(again, model=replace(again.model, embeddings=run.embeddings)))
    with pytest.raises(UsageError, match="the folder of this run keeps no embeddings"):
        _ = again.embeddings
    with pytest.raises(UsageError, match="made from a graph in memory; pass that graph"):
        again.ask_links(ids=[(0, 1)])
    assert again.model.choice == BOTH
    assert again.guarantees == run.guarantees

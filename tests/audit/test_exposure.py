"""Attacks on open messages and on traffic: oracles, and twins on which they must succeed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import lumos
from lumos.audit import AuditReport, Scene, run_audit
from lumos.audit.attacker_models import ridge_scores
from lumos.audit.attacks import paper as embedding_neighbours
from lumos.audit.attacks import paper as gradient_labels
from lumos.audit.attacks import paper as leaf_features
from lumos.audit.attacks import traffic
from lumos.audit.attacks.paper import network_of, rows_in, weights_by_epoch
from lumos.audit.attacks.traffic import uncounted_bytes
from lumos.audit.harness import without_masked_vectors
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import Batch, Topic
from lumos.exchange.tape import Tape
from lumos.ldp.one_bit import Elements, RecoveredFeatures
from lumos.model.tree_tensors import Trees

SHORT: dict[str, Any] = {"encoder_epochs": 2, "epochs": 63}
QUICK: dict[str, Any] = {"profile": "paper", "balancer": "none", "epochs": 12, "dropout": 0.0}


@pytest.fixture(scope="module")
def paper() -> Scene:
    """Both tasks of the paper profile, on a small graph."""
    return Scene(lumos.load("demo:200"), {**QUICK, "epsilon": 2.0}, tasks=("classify", "link"))


def exceeded(report: AuditReport) -> list[str]:
    """What the rows are about that exceed their bound."""
    return [row.about for row in report.exceeded]


def test_public_weights_are_those_of_the_run(paper: Scene) -> None:
    """The last of them, one step before the last sum, against the trainer's own."""
    scene = Scene(paper.graph, {**paper.settings, "select": "last"}, tasks=("classify",))
    recorded = scene.recorded("classify")
    longer = scene.record(scene.graph, "classify", keep=without_masked_vectors, epochs=13)
    *_, last = weights_by_epoch(longer)
    flat = np.concatenate([w.ravel() for w in recorded.run.model.weights.values()])
    assert np.array_equal(last.astype(np.float32), flat)


def test_equations_are_those_of_the_network(paper: Scene) -> None:
    recorded = paper.recorded("classify")
    generator, d = np.random.default_rng(0), paper.graph.feature_count
    x = torch.from_numpy(generator.random((5, d)).astype(np.float32))
    offsets = np.arange(0, 5 * 7 + 1, 7)
    numbers = np.concatenate([np.sort(generator.permutation(d)[:7]) for _ in range(5)])
    theirs = RecoveredFeatures(
        width=d,
        received=(
            Elements(sign=1.0, offsets=offsets, numbers=numbers.astype(np.int32), values=None),
        ),
        scale=generator.random(5).astype(np.float32),
        filler=0.0,
    )
    found = leaf_features.LeafEquations(recorded, 3, theirs).leaves(x)
    trees = Trees(
        owner=torch.arange(5), workload=torch.ones(5, dtype=torch.int64), virtual_nodes=True
    )
    model = network_of(recorded)
    for number, weights in enumerate(list(weights_by_epoch(recorded))[:3]):
        model.load(weights)
        with torch.no_grad():
            known = model.network(trees, x, theirs).neighbour
        torch.testing.assert_close(found[number], known, rtol=1e-4, atol=1e-6)


def test_equations_explain_what_was_sent(paper: Scene) -> None:
    """Without dropout the true features give the messages themselves."""
    recorded = paper.recorded("link")
    victim, attacker = leaf_features.leaf_victims(recorded, paper.watched(), 20)
    released = leaf_features._released(recorded, attacker, victim)
    truth = torch.from_numpy(leaf_features.words(recorded, victim).astype(np.float32))
    computed = leaf_features.LeafEquations(recorded, 12, released).leaves(truth)
    for number, batch in enumerate(recorded.tape.messages("train/leaf")[:12]):
        rows = rows_in(batch, victim, attacker, recorded.graph.devices)
        np.testing.assert_allclose(computed[number], rows, rtol=1e-3, atol=1e-5)


def test_features_are_found_in_leaves_and_not_in_those_of_others(
    paper: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf_features, "MAX_LEAF_VICTIMS", 30)
    recorded, often = paper.recorded("link"), leaf_features.frequencies(paper.recorded("link"))
    victim, attacker = leaf_features.leaf_victims(recorded, paper.watched(), 30)
    found = leaf_features.searched(recorded, victim, attacker, often, 12)
    right = leaf_features._right(found, leaf_features.words(recorded, victim)).mean()
    others = leaf_features._right(found, leaf_features.words(recorded, np.roll(victim, 1))).mean()
    assert right > 0.5
    assert others < 0.25


def test_a_release_without_noise_tells_all_and_one_with_noise_next_to_nothing() -> None:
    clear = Scene(lumos.load("demo:60"), {**QUICK, "epsilon": float("inf")}, tasks=("classify",))
    recorded = clear.recorded("classify")
    (batch, *_) = recorded.tape.messages("train/features-in-the-clear")
    read = leaf_features._read(recorded, batch.sender, batch.receiver)
    truth = leaf_features.words(recorded, batch.sender)
    row = np.repeat(np.arange(read.messages), read.counts)
    assert read.values is not None
    assert np.array_equal(read.values > 0.5, truth[row, read.elements])
    assert read.counts.sum() >= truth.sum()
    noisy = run_audit(clear.graph, attacks=["leaf-features"], **{**QUICK, "epsilon": 2.0})
    (row_, *_) = (row for row in noisy.rows if "release under ε alone" in row.about)
    assert row_.value - (row_.chance or 0) < 0.05
    assert exceeded(noisy) == []


def test_labels_leaves_and_degrees_are_in_gradients(paper: Scene) -> None:
    rows = list(gradient_labels.attack_gradient_labels(paper))
    labels, counted = rows[:-2], rows[-2]
    assert all(row.value == 1.0 for row in labels)
    assert counted.value > 0.95


def test_labels_are_the_negative_entry() -> None:
    """Closed form: (p - y)/n for any p and n."""
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(5), (3, 40))
    label = generator.integers(0, 5, 40)
    slopes = (p - np.eye(5)[label]) / generator.integers(1, 90, 40)[:, None]
    assert np.array_equal(gradient_labels.label_guess(slopes), label)
    even = (np.full((40, 5), 0.2) - np.eye(5)[label]) / np.arange(1, 41)[:, None]
    assert np.array_equal(gradient_labels.leaves_guess(even), np.arange(1, 41))


def test_non_neighbours_learn_from_embeddings(paper: Scene) -> None:
    near, asked, told, pairs = embedding_neighbours.attack_embedding_neighbours(paper)
    assert near.value > 0.55
    assert min(asked.value, told.value, pairs.value) > 0.6


def test_ridge_is_least_squares() -> None:
    generator = np.random.default_rng(0)
    columns, known = generator.normal(size=(400, 3)), np.arange(400) < 300
    wanted = columns @ np.array([[1.0], [-2.0], [0.5]]) + 3
    np.testing.assert_allclose(ridge_scores(columns, wanted, known), wanted[~known], atol=0.2)


@pytest.mark.parametrize("task", ["classify", "link"])
@pytest.mark.parametrize("profile", ["strict", "paper"])
def test_a_broker_knows_every_edge(task: str, profile: str, paper: Scene) -> None:
    graph = lumos.load("demo:60")
    scene = paper if profile == "paper" else Scene(graph, {}, tasks=(task,))
    recorded = scene.recorded(task)
    edges = recorded.graph.edge_list()
    keys = np.sort(edges[:, 0] * recorded.graph.devices + edges[:, 1])
    assert np.array_equal(traffic.talkers(recorded), keys)
    if profile == "paper":
        assert traffic.edge_owners(recorded).value == 1.0


Lengths = Callable[[Batch, "lumos.Graph"], np.ndarray]


def by_degree(batch: Batch, graph: "lumos.Graph") -> np.ndarray:
    """One byte more for each neighbour."""
    return graph.degrees[batch.sender]


def by_label(batch: Batch, graph: "lumos.Graph") -> np.ndarray:
    """As many bytes more as the number of the class, the same for all in a round."""
    return np.full(batch.messages, np.asarray(graph.labels)[batch.sender].sum())


@pytest.mark.parametrize(
    ("padded", "wrong"), [(by_degree, "differ in size"), (by_label, "dealt out anew")]
)
def test_content_in_the_size_of_messages_is_found(
    padded: Lengths, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, add = lumos.load("demo:60"), Tape.add
    world = {"graph": graph}
    deal = traffic.dealt_anew

    def dealt(*args: Any) -> Any:
        world["graph"] = deal(*args)
        return world["graph"]

    def longer(
        tape: Tape, exchange: int, round_: int, topic: Topic, batch: Batch, *rest: Any, **more: Any
    ) -> None:
        if topic.name == "strict/symbol" and batch.lengths is not None:
            lengths = batch.lengths + padded(batch, world["graph"])
            batch = Batch(batch.sender, batch.receiver, batch.body, batch.epsilon, lengths)
        add(tape, exchange, round_, topic, batch, *rest, **more)

    assert exceeded(run_audit(graph, attacks=["broker"])) == []
    monkeypatch.setattr(traffic, "dealt_anew", dealt)
    monkeypatch.setattr(Tape, "add", longer)
    found = exceeded(run_audit(graph, attacks=["broker"], task="classify"))
    assert any(wrong in about for about in found)


@pytest.mark.parametrize("profile", ["strict", "paper"])
def test_real_sums_and_comparisons_are_counted_to_the_byte(profile: str) -> None:
    settings: dict[str, Any] = {"profile": profile, "aggregate": "secure", "task": "classify"}
    if profile == "strict":
        settings |= SHORT
    if profile == "paper":
        settings |= {"epsilon": 2.0, "epochs": 3, "balancer": "greedy", "compare": "secure"}
    report = run_audit(lumos.load("demo:60"), attacks=["ledger", "broker"], **settings)
    assert exceeded(report) == []
    assert any("trees" in row.about for row in report.rows) == (profile == "paper")


def test_messages_that_the_ledger_does_not_see_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    received = Ledger.received

    def blind(ledger: Ledger, topic: Topic, rows: np.ndarray, batch: Batch) -> None:
        if topic.name != "strict/opinion":
            received(ledger, topic, rows, batch)

    monkeypatch.setattr(Ledger, "received", blind)
    report = run_audit(lumos.load("demo:60"), attacks=["ledger"], task="classify")
    assert len(exceeded(report)) == 1


def test_a_program_that_sends_uncounted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was received is counted, and what was sent is not: only devices show it."""
    sent = Ledger.sent
    scene = Scene(lumos.load("demo:60"), {**SHORT, "aggregate": "secure"}, tasks=("classify",))

    def blind(ledger: Ledger, topic: Topic, rows: np.ndarray, batch: Batch) -> None:
        if topic.name != "strict/symbol":
            sent(ledger, topic, rows, batch)

    monkeypatch.setattr(Ledger, "sent", blind)
    recorded = scene.record(scene.graph, "classify")
    (randomized_labels,) = recorded.tape.messages("strict/symbol")
    assert uncounted_bytes(recorded)["training"] == randomized_labels.messages  # one byte each

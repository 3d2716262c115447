"""What propagated labels guarantee about edges, by exact likelihood ratios on small graphs; and
their echo.

All randomized labels and propagated labels of a small federation are enumerated, with their
probabilities by the real evidence, the real choice of a class and the real mechanism. Public
matrices are fixed: the noise of the sums that learn them is accounted for elsewhere. Everything is
taken as seen by one observer, which is more than any set of neighbours sees.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.narrow import present
from tests.strict.accounts import amounts
from tests.strict.replay import little_graph, whole_run
from tests.strict.strictly import epochs, started, strict, sums

from lumos.audit.attacks.replay import Transcript, changed
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import cut
from lumos.errors import BudgetExceeded
from lumos.graph import Graph
from lumos.ldp.labels import LabelForm
from lumos.ldp.mechanisms import COIN, make_mechanism
from lumos.strict.classify.evidence import MessageCounts
from lumos.strict.classify.stages import (
    EVIDENCE_WEIGHTS,
    PROPAGATED,
    RANDOMIZED,
    SELECTION,
    TEMPERATURE,
    EvidenceWeightsStage,
    PropagatedLabels,
    RandomizedLabels,
)
from lumos.strict.classify.trainer import BOTH, ONE
from lumos.strict.messages import most_likely, propagated_labels, undecided, uses_edge
from lumos.training.split import Role, split_vertices

EPSILON = 2.0
CHANCES = (np.arange(6) + 0.5) / 6
"""Splits ties of up to three classes evenly."""
Edges = frozenset[tuple[int, int]]


class Town(NamedTuple):
    """A small federation: everything public about it."""

    devices: int
    classes: int
    matrices: np.ndarray
    """[kinds, k · k] of randomized labels, then of each propagated label but the last, which nobody
    uses here."""
    training: tuple[int, ...]
    """Who sends a randomized label."""
    users: str = "rule"
    """Which end of an edge uses it. rule: the real one; both: both ends; degree: the end with fewer
    neighbours, which a balancer would choose."""

    @property
    def propagated_labels(self) -> int:
        return len(self.matrices)

    def evidence(self, words: np.ndarray, arcs: np.ndarray, kind: int) -> np.ndarray:
        """[outcomes, devices, k] of messages words [outcomes, devices] over (sender, receiver)."""
        outcomes, said = np.arange(len(words)), words[:, arcs[:, 0]].ravel()
        receiver = (outcomes[:, None] * self.devices + arcs[:, 1]).ravel()
        some = said < self.classes  # the others name no class
        named = np.eye(self.classes)[said[some]]
        counts = MessageCounts(named, receiver[some], len(words) * self.devices)
        form = LabelForm(self.classes, 1, self.classes)
        return counts.evidence(self.matrices[kind], form).reshape(
            len(words), self.devices, self.classes
        )

    def everything(self, senders: int, values: int) -> np.ndarray:
        """[outcomes, senders] all messages of so many senders."""
        return np.array(list(product(range(values), repeat=senders))).reshape(-1, senders)

    def arcs(self, edges: Edges) -> np.ndarray:
        """[arcs, 2] (sender, receiver) of the messages that propagated labels are made of."""
        arcs = np.array([arc for one, two in edges for arc in ((one, two), (two, one))])
        arcs = arcs.reshape(-1, 2).astype(np.int64)
        if self.users == "degree":
            degree = np.bincount(arcs[:, 0], minlength=self.devices)
            rank = degree * self.devices + np.arange(self.devices)
            return arcs[rank[arcs[:, 1]] < rank[arcs[:, 0]]]
        if self.users == "both":
            return arcs
        trains = np.isin(np.arange(self.devices), self.training)
        sender, receiver = arcs.T
        return arcs[uses_edge(receiver, sender, trains[receiver], trains[sender])]

    def log_probability(self, edges: Edges) -> np.ndarray:
        """[randomized labels, propagated labels 1, propagated labels 2, …] of every outcome, given
        all randomized labels.

        Randomized labels do not depend on edges, so their own probabilities are left out.
        """
        arcs = self.arcs(edges)
        from_training = arcs[np.isin(arcs[:, 0], self.training)]
        given = self.everything(len(self.training), self.classes)
        randomized_labels = np.zeros((len(given), self.devices), np.int64)
        randomized_labels[:, self.training] = given
        evidence = self.evidence(randomized_labels, from_training, 0)
        every = self.everything(self.devices, self.classes + 1)  # the last one: no class
        logarithm = np.zeros(len(randomized_labels))
        for number in range(1, self.propagated_labels + 1):
            found = np.log(propagated_label_chances(evidence))  # [outcomes, devices, k]
            step = sum(found[:, device][:, every[:, device]] for device in range(self.devices))
            logarithm = (logarithm[:, None] + step).ravel()
            if number < self.propagated_labels:
                before = len(evidence)
                evidence = np.repeat(evidence, len(every), axis=0)
                evidence = evidence + self.evidence(np.tile(every, (before, 1)), arcs, number)
        return logarithm

    def graphs(self) -> Iterator[tuple[Edges, Edges]]:
        """All pairs of graphs that differ in one edge: with it, without it."""
        pairs = list(combinations(range(self.devices), 2))
        for number in range(1 << len(pairs)):
            edges = frozenset(pair for place, pair in enumerate(pairs) if number >> place & 1)
            for edge in edges:
                yield edges, edges - {edge}

    def replaced(self) -> Iterator[tuple[Edges, Edges]]:
        """All pairs of graphs of which one has another edge at one device."""
        pairs = list(combinations(range(self.devices), 2))
        for number in range(1 << len(pairs)):
            edges = frozenset(pair for place, pair in enumerate(pairs) if number >> place & 1)
            for gone, new in product(edges, set(pairs) - edges):
                if set(gone) & set(new):
                    yield edges, edges - {gone} | {new}


def propagated_label_chances(evidence: np.ndarray) -> np.ndarray:
    """[…, k + 1] probability of each propagated label: the real choice of a class or of none, then
    the real mechanism."""
    classes = evidence.shape[-1]
    rows = evidence.reshape(-1, classes)
    values = np.eye(classes + 1)
    chosen = np.mean(
        [values[most_likely(rows, np.full(len(rows), chance))] for chance in CHANCES], axis=0
    )
    chosen[undecided(rows)] = values[classes]
    mechanism = make_mechanism(classes + 1, EPSILON, "krr")
    mixed = mechanism.other + (mechanism.truth - mechanism.other) * chosen
    return (mixed / COIN).reshape(*evidence.shape[:-1], classes + 1)


def largest_ratio(town: Town, graphs: Iterable[tuple[Edges, Edges]] | None = None) -> float:
    """The largest |log ratio| of any outcome, for any two graphs; by default with an edge more."""
    known: dict[Edges, np.ndarray] = {}

    def logarithms(edges: Edges) -> np.ndarray:
        if edges not in known:
            known[edges] = town.log_probability(edges)
        return known[edges]

    graphs = town.graphs() if graphs is None else graphs
    return max(float(np.abs(logarithms(one) - logarithms(two)).max()) for one, two in graphs)


def lopsided(classes: int, kinds: int) -> np.ndarray:
    """Matrices whose values say more or less: one message outweighs another."""
    rows = np.full((classes, classes), 4.0) + np.diag(np.linspace(6.0, 30.0, classes))
    return np.stack([rows.ravel()] * kinds)


TOWNS = {
    "three devices, three classes, two propagated labels": Town(3, 3, lopsided(3, 2), (0, 1, 2)),
    "four devices, two propagated labels": Town(4, 2, lopsided(2, 2), (0, 1, 2, 3)),
    "four devices, two of them train, two propagated labels": Town(4, 2, lopsided(2, 2), (0, 1)),
    "five devices, one propagated label": Town(5, 2, lopsided(2, 1), (0, 1, 2)),
    "three devices, three propagated labels": Town(3, 2, lopsided(2, 3), (0, 1, 2)),
}


@pytest.mark.parametrize("name", TOWNS)
def test_one_edge_has_the_guaranteed_ratio(name: str) -> None:
    town = TOWNS[name]
    assert largest_ratio(town) <= town.propagated_labels * EPSILON + 1e-9


@pytest.mark.parametrize("name", TOWNS)
def test_another_edge_at_one_device_has_the_guaranteed_ratio(name: str) -> None:
    town = TOWNS[name]
    assert largest_ratio(town, town.replaced()) <= 2 * town.propagated_labels * EPSILON + 1e-9


REACHING = (
    TOWNS["four devices, two propagated labels"],
    Town(4, 2, lopsided(2, 1), (0, 1, 2, 3)),
)


@pytest.mark.parametrize("town", REACHING)
def test_the_guarantee_about_an_edge_is_reached(town: Town) -> None:
    """The user changes its mind in every propagated label; of two edges, two users do."""
    whole = town.propagated_labels * EPSILON
    assert largest_ratio(town) > 0.99 * whole
    assert largest_ratio(town, town.replaced()) > 0.99 * 2 * whole


@pytest.mark.parametrize("town", REACHING)
@pytest.mark.parametrize("users", ["both", "degree"])
def test_other_users_break_the_guarantee(town: Town, users: str) -> None:
    """If both ends used an edge, or if who uses it depended on the other edges."""
    assert largest_ratio(town._replace(users=users)) > 1.9 * town.propagated_labels * EPSILON


def test_probabilities_add_up() -> None:
    """The enumeration is complete: given all randomized labels, propagated labels have probability
    1 in all."""
    town = TOWNS["four devices, two of them train, two propagated labels"]
    chances = np.exp(town.log_probability(frozenset({(0, 1), (1, 2), (1, 3)})))
    assert np.allclose(chances.reshape(4, -1).sum(axis=1), 1)


def receiver_ratio(leaves: int) -> float:
    """The broken twin: a propagated label for each receiver, without what that one sent, ε each.

    Device 0 has one neighbour that sent a randomized label, the other end of the edge, and so many
    that sent none. The largest |log ratio| of what these receive, with the edge and without it.
    """
    town = Town(leaves + 2, 2, lopsided(2, 1), (1,))
    randomized_labels = np.zeros((1, town.devices), np.int64)
    edge, nothing = np.array([[1, 0]]), np.empty((0, 2), np.int64)
    ratio = 0.0
    for receiver in range(2, leaves + 2):
        one, two = (
            np.log(
                propagated_label_chances(
                    town.evidence(randomized_labels, arcs[arcs[:, 0] != receiver], 0)
                )[0, 0]
            )
            for arcs in (edge, nothing)
        )
        ratio += float(np.abs(one - two).max())
    return ratio


def test_an_propagated_label_for_one_receiver_breaks_the_guarantee() -> None:
    """Every receiver has one more message about the same edge: no bound but the degree."""
    assert receiver_ratio(1) <= EPSILON
    assert receiver_ratio(4) > 2 * EPSILON  # all that both ends together may tell
    assert receiver_ratio(40) > 20 * EPSILON


def test_real_propagated_labels_have_the_enumerated_probabilities() -> None:
    """The real function with real randomness; ties, clear cases and silence."""
    cases = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, -2.0], [3.0, -1.0, -2.0]])
    devices = 30_000
    graph = Graph.from_edges(np.array([[0, 1]]), devices=devices)
    shard = cut(graph, 1, 0)[0]
    mechanism = make_mechanism(4, EPSILON, "krr")
    evidence = np.tile(cases, (devices // len(cases), 1))
    for number in (1, 2):
        sent = propagated_labels(shard, evidence, mechanism, number)[:, 0]
        for place, expected in enumerate(propagated_label_chances(cases)):
            shares = np.bincount(sent[place :: len(cases)], minlength=4) * len(cases) / devices
            error = np.sqrt(expected * (1 - expected) * len(cases) / devices)
            assert (np.abs(shares - expected) < 4 * error).all()
    first, second = (propagated_labels(shard, evidence, mechanism, number) for number in (1, 2))
    same = (first == second)[1::3].mean()  # independent randomness: equal by chance alone
    tied = propagated_label_chances(cases)[1]
    by_chance_alone = float((tied**2).sum())
    assert abs(same - by_chance_alone) < 4 * np.sqrt(by_chance_alone * 3 / devices)


def test_propagated_labels_are_made_of_received_messages_only() -> None:
    """Given what was sent, other features and randomized labels at home move no evidence."""
    graph = little_graph(1)
    run = whole_run(graph, 1)
    drawn = run.labels
    values = np.where(drawn.values < 0, -1, (drawn.values + 1) % 4)
    others = changed(graph, features=1 - np.asarray(graph.features))
    again = whole_run(others, given=run, labels=drawn._replace(values=values))
    for number, evidence in enumerate(run.evidence):
        assert np.array_equal(evidence, again.evidence[number])


ENDS = {RANDOMIZED: 1, PROPAGATED: 1, EVIDENCE_WEIGHTS: 1, SELECTION: 2, TEMPERATURE: 2}
"""Ends of an edge whose vectors it may change, by stage (docs/strict-proofs.md)."""


def moved_vectors(one: Transcript, two: Transcript, stage: str) -> set[int]:
    """Devices whose vectors in sums of a stage differ."""
    parts = [
        (a.devices, a.vectors, b.vectors)
        for a, b in zip(one.parts, two.parts, strict=True)
        if a.stage == stage
    ]
    assert parts
    return {
        int(device)
        for devices, a, b in parts
        for device in devices[(np.asarray(a) != np.asarray(b)).any(axis=1)]
    }


def test_one_edge_moves_the_evidence_of_its_user_only() -> None:
    graph = little_graph(2)
    run = whole_run(graph, 2)
    edges = graph.edge_list()
    for gone in (0, len(edges) // 2):
        without = changed(graph, edges=np.delete(edges, gone, axis=0))
        again = whole_run(without, given=run)
        trains, (one, two) = run.roles == Role.TRAIN, edges[gone]
        uses = uses_edge(edges[:, 0], edges[:, 1], trains[edges[:, 0]], trains[edges[:, 1]])
        user = one if uses[gone] else two
        for number, evidence in enumerate(run.evidence):
            moved = np.flatnonzero((evidence != again.evidence[number]).any(axis=1))
            assert set(moved) <= {user}
        # The last propagated label is made of randomized labels and of the first one.
        assert len(moved) == 1
        for stage, ends in ENDS.items():
            found = moved_vectors(run, again, stage)
            assert found <= ({user} if ends == 1 else {one, two}), stage


def test_lifetime_limit_is_that_of_all_propagated_labels(sixty: Graph, tmp_path: Path) -> None:
    """However many propagated labels each run has; a run that is refused opens no sum."""

    def run(propagated_labels: int) -> None:
        settings = {"account": tmp_path / "account", "lifetime_propagated_epsilon": 20.0}
        strict(sixty, propagated_labels=propagated_labels, **settings)

    run(3)  # 12
    run(1)  # 16
    with sums() as opened, pytest.raises(BudgetExceeded, match="lifetime_propagated_epsilon"):
        run(2)
    assert not opened
    run(0)
    run(1)  # the same run as before: it is not charged again
    assert amounts(tmp_path / "account").max() == 16


def by_chance(seed: int) -> Graph:
    """Edges that know nothing of classes, and words that do."""
    generator = np.random.default_rng(seed)
    devices = 1600
    labels = generator.integers(0, 4, devices)
    edges = generator.integers(0, devices, (3 * devices, 2))
    likely = np.arange(40) % 4 == labels[:, None]
    features = generator.random((devices, 40)) < np.where(likely, 0.25, 0.1)
    return Graph.from_edges(
        edges[edges[:, 0] != edges[:, 1]],
        devices=devices,
        features=features.astype(np.float32),
        labels=labels,
    )


class Ended(NamedTuple):
    trainer: Any
    roles: np.ndarray
    own: float
    """Accuracy of the local classifier on test devices."""
    neighbours: float
    """The same with neighbours."""

    def dependence(self, role: Role, ends: int = BOTH) -> float:
        """How far rows of propagated label 1's matrix differ, over the devices of a role."""
        rows = np.flatnonzero(self.roles == role)
        vectors = self.trainer.counts[ends][1].matrix_vectors(self.trainer.labels, rows)
        matrix = vectors.sum(axis=0).reshape(4, 4)
        return float((matrix / matrix.sum(axis=1, keepdims=True)).std(axis=0).mean())


def ended(seed: int, *, echo: bool = False) -> Ended:
    """A run on a graph without homophily; with `echo`, training devices evaluate themselves.

    They then use all that they received, at both ends of an edge.
    """
    graph = by_chance(seed)
    roles = split_vertices(present(graph.labels), PublicRandomness(seed))
    made = started(graph, roles, seed, encoder_epochs=16, epochs=61, protect="none")
    trainer = made.trainers[0]
    if echo:
        trainer.validation = trainer.training
    epochs(made, 0, 61)
    made.run(lambda trainer: trainer.finish(), lambda program: program.finish())
    test = roles == Role.TEST
    right = [
        float((logits.argmax(axis=1) == graph.labels)[test].mean())
        for logits in trainer.candidates()
    ]
    return Ended(trainer, roles, *right)


def test_matrix_of_propagated_labels_is_flat_where_edges_say_nothing() -> None:
    """In most such graphs, the shrunk matrix of randomized labels tells nothing.

    Propagated labels name no class then, except by randomization: nothing comes back to training
    devices. Rows differ by no more than twice the standard error of as many labels by chance.
    """
    for seed in range(2):
        run = ended(seed)
        assert not run.trainer._evidence(1, ONE)[0].any()
        for role, ends in product((Role.VALIDATION, Role.TRAIN), (ONE, BOTH)):
            named = run.trainer.counts[ends][1].counts[run.roles == role].sum()
            assert run.dependence(role, ends) < 2 * np.sqrt(0.75 / named)


def test_randomized_labels_come_back_to_training_devices() -> None:
    """Where chance exceeds what is shrunk; not to validation devices, which sent none.

    They do not come back over edges that a device uses: the other end has not used them.
    """
    for seed in (4, 12):
        run = ended(seed)
        assert run.trainer._evidence(1, ONE)[0].any(), "the example shows what comes back"
        assert run.dependence(Role.VALIDATION) < 0.035
        assert run.dependence(Role.TRAIN) > 0.1
        assert run.dependence(Role.TRAIN, ONE) < 0.035


def test_training_devices_would_overstate_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model selection of the broken twin is for neighbours; the truth is against them."""
    honest = ended(0)
    for stage in (RandomizedLabels, PropagatedLabels, EvidenceWeightsStage):
        monkeypatch.setattr(stage, "ends", BOTH)
    twin = ended(0, echo=True)
    judges = twin.trainer.schedule.validation
    strength = twin.trainer.schedule.strength
    assert twin.trainer.choice == 1
    gain = (twin.trainer.selection.accuracy[0] - twin.trainer.selection.own[0]) * strength * judges
    assert gain / len(twin.trainer.training) > 0.1
    assert twin.neighbours < twin.own - 0.1
    assert honest.neighbours > honest.own - 0.05

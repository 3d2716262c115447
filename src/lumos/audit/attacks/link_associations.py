"""The opened sum of associations of strict links: what it tells of single edges.

A summand is x ⊗ s, tokens times neighbourhood sketch, and an edge changes the sketches of both of
its ends. The noise is calibrated to *features replaced*. No bound is claimed about edges, so these
rows are measurements.

- *Knows all else*: all features, all other edges, all messages and all draws, and asks whether two
  devices are linked. Both sums without noise are known, so the likelihood ratio of the opened sum
  is exact. μ is the distance of the two sums, by the noise that is left when the tolerated
  colluders are subtracted and the tolerated devices are absent. What the messages tell is not in
  it: they are the same in both worlds.
- The same about *all edges* of a device: those that it has, or none.
- *Knows words and messages of both ends*: everybody's model, and what two devices released. Is
  their pair an edge that trained, or one that was held out? Held-out edges are like those that
  trained but for this sum and the messages, so what people with an edge have in common cancels.
  *Without* is the same attacker without the sum: marks that both ends sent alike tell of edges
  that trained.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from lumos.audit.attacker_models import area, evaluated_by_network
from lumos.audit.attacks import attack
from lumos.audit.attacks.link_training import message_columns, sent_by, with_neighbours
from lumos.audit.harness import KnownHalf, Recorded, Scene, linked, opened_sums
from lumos.audit.table import AuditRow, Exactly, Proportion, finding
from lumos.graph import Graph
from lumos.graph.facts import facts_of
from lumos.secagg.noise import Noise
from lumos.strict.features import FeatureScaling, feature_form
from lumos.strict.link.encoder import TokenRows, unit
from lumos.strict.link.levels import FADE
from lumos.strict.link.stages import ASSOCIATIONS, LinkSchedule
from lumos.strict.messages import uses_edge
from lumos.strict.settings import settings_of
from lumos.training.problem import features_of
from lumos.typing import Doubles, Flags, Ints

PAIRS = 20_000
"""Pairs that are asked about, at most."""
DEVICES = 1500
"""Devices whose degrees are asked about, at most."""


@attack("link-associations", "edges from the sum of associations of links", "strict", "link")
def attack_link_associations(scene: Scene) -> Iterator[AuditRow]:
    """Yield rows about the sum of one recorded run; nothing where sums have no noise."""
    recorded = scene.recorded("link")
    known = AssociationSum.of(recorded)
    if known.noise is None:
        return
    pairs, there = KnownHalf.of(recorded.graph, np.empty(0, np.int64)).asked
    pairs, there = with_neighbours(recorded.graph, pairs, there)
    chosen = np.random.default_rng(6).permutation(len(pairs))[:PAIRS]
    pairs, there = pairs[chosen], there[chosen]
    scene.say("edges, by someone who knows all else")
    distance, better = known.edge_evidence(pairs, there)
    left = known.noise.sigma * known.noise.clip
    expected = float(ndtr(distance / known.noise.total / 2).mean())
    adversary = "the coordinator with colluders, who knows all else"
    yield finding(
        adversary,
        "edge added or removed, by associations: largest distance",
        "μ",
        Exactly(float(distance.max() / left), len(pairs)),
        knows_mechanism=True,
        note=f"mean {float(distance.mean() / left):.3f}, of edges and random pairs",
    )
    yield finding(
        "the coordinator, who knows all else",
        "whether two devices are linked, guessed from the opened sum of associations",
        "accuracy",
        Proportion(int(((better > 0) == there).sum()), len(pairs)),
        chance=(0.5, "a random bit"),
        knows_mechanism=True,
        note=f"by all noise it should be {expected:.3f}",
    )
    scene.say("degrees, by someone who knows all else")
    devices = np.random.default_rng(8).permutation(np.flatnonzero(recorded.graph.degrees))[:DEVICES]
    far = known.degree_distances(devices) / left
    yield finding(
        adversary,
        "all edges of a device or none, by associations: largest distance",
        "μ",
        Exactly(float(far.max()), len(devices)),
        knows_mechanism=True,
        note=f"mean {float(far.mean()):.3f}",
    )
    scene.say("edges that trained, among those that were held out")
    yield from membership_rows(recorded, known)


class AssociationSum(NamedTuple):
    """The sum of associations of a recorded run, and all that went into it."""

    graph: Graph
    rows: Any
    """[devices, tokens] weighted tokens, of norm 1."""
    sent: Ints
    """[devices, rounds] messages; -1 without neighbours."""
    usual: Doubles
    """[rounds, marks]"""
    opened: Doubles
    """[tokens, marks]"""
    noise: Noise | None

    @staticmethod
    def of(recorded: Recorded) -> "AssociationSum":
        """Read the opened sum, and compute rows as the devices do."""
        graph, config = recorded.graph, recorded.config
        weights = recorded.run.model.weights
        form = feature_form(facts_of(graph), settings_of(config))
        schedule = LinkSchedule(config=config, devices=graph.devices, **form)
        features = features_of(graph)
        if schedule.first_stages:
            features = FeatureScaling.of(weights, graph.feature_count).apply(features)
        tokens = TokenRows(features, signed=schedule.signed)
        place = [stage.name for stage, _ in schedule.sums].index(ASSOCIATIONS)
        return AssociationSum(
            graph=graph,
            rows=tokens.weighted(weights["weights"]),
            sent=sent_by(recorded),
            usual=weights["usual"],
            opened=opened_sums(recorded)[place].reshape(tokens.width, -1),
            noise=schedule[ASSOCIATIONS].noise(),
        )

    def edge_evidence(self, pairs: Ints, there: Flags) -> tuple[Doubles, Doubles]:
        """Return [pairs] distances of the sums with and without an edge, and log-likelihood ratios.

        Args:
            pairs: [pairs, 2] devices that have neighbours.
            there: [pairs] which are edges.
        """
        noise = self.opened - self.exact()
        marks = Received.of(self)
        moved = [
            marks.sketches(self, one, other, there, with_edge=True)
            - marks.sketches(self, one, other, there, with_edge=False)
            for one, other in (pairs.T, pairs.T[::-1])
        ]
        one, other = (self.rows[end] for end in pairs.T)
        inner = [np.asarray(rows.power(2).sum(axis=1)).ravel() for rows in (one, other)]
        common = np.asarray(one.multiply(other).sum(axis=1)).ravel()
        square = (
            inner[0] * (moved[0] ** 2).sum(axis=1)
            + inner[1] * (moved[1] ** 2).sum(axis=1)
            + 2 * common * (moved[0] * moved[1]).sum(axis=1)
        )
        square = np.maximum(square, 0.0)
        along = sum(
            ((rows @ noise) * move).sum(axis=1)
            for rows, move in zip((one, other), moved, strict=True)
        )
        return np.sqrt(square), along + np.where(there, 0.5, -0.5) * square

    def degree_distances(self, devices: Ints) -> Doubles:
        """Return [devices] distances of the sum to that of a graph without edges of one device.

        Messages are the same in both, and so is what each device takes for its own mark.
        """
        everyone = np.arange(self.graph.devices)
        nobody = np.zeros(len(everyone), np.bool_)
        marks = Received.of(self)
        memory = marks.memories(self, everyone, everyone, nobody, with_edge=False)
        size = self.usual.shape[1]
        messages = np.zeros_like(memory)
        for number, usual in enumerate(self.usual):
            sent = np.eye(size)[np.maximum(self.sent[:, number], 0)]
            messages = FADE * messages + sent - usual
        sketch, distances = unit(memory), np.empty(len(devices))
        for place, device in enumerate(devices):
            peers = self.graph.neighbours[
                self.graph.offsets[device] : self.graph.offsets[device + 1]
            ]
            moved = np.vstack(
                [memory[device] - messages[peers].sum(axis=0), memory[peers] - messages[device]]
            )
            ends = np.concatenate([[device], peers])
            moved = sketch[ends] - unit(moved)
            inner = (self.rows[ends] @ self.rows[ends].T).toarray()
            distances[place] = np.sqrt(max(0.0, float((inner * (moved @ moved.T)).sum())))
        return distances

    def exact(self) -> Doubles:
        """Return [tokens, marks] the sum without noise, but for rounding.

        Devices without neighbours are left out: their marks are in no message.
        """
        everyone = np.flatnonzero(self.graph.degrees)
        nobody = np.zeros(len(everyone), np.bool_)
        sketch = Received.of(self).sketches(self, everyone, everyone, nobody, with_edge=False)
        total: Doubles = np.asarray(self.rows[everyone].T @ sketch)
        return total


class Received(NamedTuple):
    """Marks that devices received in each round."""

    all: list[Doubles]
    """[rounds] of [devices, marks]."""
    used: list[Doubles]
    """The same over the edges that a device uses."""

    @staticmethod
    def of(known: AssociationSum) -> "Received":
        """Count the messages of all rounds."""
        graph, size = known.graph, known.usual.shape[1]
        owner = np.repeat(np.arange(graph.devices), graph.degrees)
        used = uses_edge(owner, graph.neighbours)

        def counted(sent: Ints, slots: Flags) -> Doubles:
            places = owner[slots] * size + sent[graph.neighbours[slots]]
            counts = np.bincount(places, minlength=graph.devices * size)
            return counts.reshape(-1, size).astype(np.float64)

        rounds = known.sent.T
        everything = np.ones_like(used)
        return Received(
            [counted(sent, everything) for sent in rounds], [counted(sent, used) for sent in rounds]
        )

    def sketches(
        self, known: AssociationSum, one: Ints, other: Ints, there: Flags, *, with_edge: bool
    ) -> Doubles:
        """Return [pairs, marks] sketches of the first ends, with the edge of the pair or without.

        Args:
            there: [pairs] whether the pair is an edge of the graph.
        """
        return unit(self.memories(known, one, other, there, with_edge=with_edge))

    def memories(
        self, known: AssociationSum, one: Ints, other: Ints, there: Flags, *, with_edge: bool
    ) -> Doubles:
        """Return the same before it is scaled to norm 1.

        Ties between marks are broken by their order: frequencies are noisy, so there are none.
        """
        size, cases = known.usual.shape[1], np.arange(len(one))
        change = float(with_edge) - there
        own = np.maximum(known.sent[one, 0], 0)
        memory = np.zeros((len(one), size))
        for number, usual in enumerate(known.usual):
            sent = np.maximum(known.sent[other, number], 0)
            marks = self.all[number][one]
            used = self.used[number][one]
            marks[cases, sent] += change
            used[cases, sent] += change * uses_edge(one, other)
            for counts in (marks, used):
                counts[cases, own] += 1
            memory = FADE * memory + marks - marks.sum(axis=1, keepdims=True) * usual
            own = (used - used.sum(axis=1, keepdims=True) * usual).argmax(axis=1)
        return memory


# Edges that trained, among edges that were held out.


def membership_rows(recorded: Recorded, known: AssociationSum) -> Iterator[AuditRow]:
    """Yield how well those who know words and messages of two devices tell that their edge trained.

    One half of the pairs is known, and another half is asked about.
    """
    if recorded.split is None:
        return
    rng, held_out = np.random.default_rng(7), recorded.split.test
    held_out = held_out[(known.graph.degrees > 0)[held_out].all(axis=1)]
    trained = rng.permutation(known.graph.edge_list())[: len(held_out)]
    pairs = np.concatenate([trained, held_out[: len(trained)]])
    pairs = np.where(rng.random(len(pairs))[:, None] < 0.5, pairs, pairs[:, ::-1])
    real = linked(known.graph, pairs)
    half = rng.random(len(pairs)) < 0.5
    messages = message_columns(known.sent, *pairs.T)
    both = np.hstack([messages, association_columns(known, pairs)])
    found, without = (
        area(evaluated_by_network(columns, real, half), real[~half]) for columns in (both, messages)
    )
    yield finding(
        "who knows words and messages of both ends",
        "whether an edge trained or was held out, from the sum of associations",
        "AUC",
        found,
        chance=(without.auc, "their messages alone"),
        note="it knows the truth about half of these pairs",
    )


def association_columns(known: AssociationSum, pairs: Ints) -> Doubles:
    """Return [pairs, …] how the sum at the words of one end fits what the other end sent."""
    rounds, size = known.usual.shape
    ends = [np.asarray(known.rows[end] @ known.opened) for end in pairs.T]
    columns = []
    for expected, other in zip(ends, pairs.T[::-1], strict=True):
        for number in range(rounds):
            sent = np.eye(size)[np.maximum(known.sent[other, number], 0)] - known.usual[number]
            columns.append((expected * sent).sum(axis=1))
        columns.append(np.linalg.norm(expected, axis=1))
    columns.append((unit(ends[0]) * unit(ends[1])).sum(axis=1))
    return np.stack(columns, axis=1)

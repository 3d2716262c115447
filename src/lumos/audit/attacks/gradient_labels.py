"""Labels and degrees from returned gradients (`train/leaf-gradient`, paper profile).

A device that carries an edge gets back the gradient of its neighbour's loss with respect to the
leaf: with pooling by average, (softmax - one-hot) W / n for the head's weights W, which are public,
and n leaves. The attacker solves for (softmax - one-hot) / n: its only negative entry is the label.
In the first epoch embeddings are nearly zero and softmax is uniform, so the size of that entry is
(1 - 1/classes) / n and tells n: the neighbours in the device's own tree, and those that carry it.
"""

from collections.abc import Iterator

import numpy as np
import torch

from lumos.audit.attacks import Attack
from lumos.audit.attacks.paper_weights import network_of, one_each, rows_in, weights_by_epoch
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Proportion
from lumos.audit.scene import Recorded, Scene
from lumos.paper.settings import settings_of
from lumos.training.split import Role
from lumos.typing import Doubles, Flags, Ints

MOST = 4000
"""Victims."""
NEAR = 0.2
"""A degree is found where the guess is so near."""


def run(scene: Scene) -> Iterator[AuditRow]:
    """By the gradients that watched devices received."""
    recorded = scene.recorded("classify")
    victim, attacker = victims(recorded, scene.watched())
    slopes = solved(recorded, victim, attacker)
    labels = np.asarray(recorded.graph.labels)[victim]
    most = int(np.bincount(labels).max()) if len(labels) else 0
    for epochs in dict.fromkeys((1, min(10, len(slopes)), len(slopes))):
        guess = label_guess(slopes[:epochs])
        yield AuditRow(
            attack=ATTACK.name,
            adversary="one neighbour",
            about="label of a training device, from gradients of the edge that the attacker "
            f"carries, {epochs} epoch{'s' * (epochs > 1)}",
            measure="accuracy",
            estimate=Proportion(int((guess == labels).sum()), len(labels)),
            chance=most / max(1, len(labels)),
            chance_is="the most frequent label",
            knows_mechanism=True,
        )
    guess, truth = leaves_guess(slopes[0]), leaves(recorded)
    degree = recorded.graph.degrees
    yield AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about="number of leaves of a training device, from the size of the first gradient",
        measure="accuracy",
        estimate=Proportion(int((guess == truth[victim]).sum()), len(victim)),
        chance=float((truth[attacker] == truth[victim]).mean()),
        chance_is="the attacker's own number",
        knows_mechanism=True,
    )
    yield AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about=f"degree of a training device within {NEAR:.0%}, from the number of leaves",
        measure="accuracy",
        # Edges that both ends carry count twice: about as often as at the attacker itself.
        estimate=_near(guess * degree[attacker] / truth[attacker], degree[victim]),
        chance=_near(degree[attacker], degree[victim]).value,
        chance_is="the attacker's own degree",
    )


def leaves(recorded: Recorded) -> Ints:
    """[devices] leaves that stand for each device: in its own tree, and in those of carriers."""
    trees, graph = recorded.run.trees, recorded.graph
    carriers = np.bincount(graph.neighbours[trees.keep], minlength=graph.devices)
    own = np.maximum(trees.workload, 1) if settings_of(recorded.config).virtual_nodes else 1
    standing: Ints = own + carriers
    return standing


def victims(recorded: Recorded, watched: Flags) -> tuple[Ints, Ints]:
    """Training devices, and for each one watched device that carries their edge."""
    first = recorded.tape.messages("train/leaf-gradient")[0]
    told = np.flatnonzero(watched[first.receiver] & (recorded.roles[first.sender] == Role.TRAIN))
    chosen = told[one_each(first.sender[told], MOST, np.random.default_rng(0))]
    return first.sender[chosen], first.receiver[chosen]


def solved(recorded: Recorded, victim: Ints, attacker: Ints) -> Doubles:
    """[epochs, victims, classes] least-squares solutions for (softmax - one-hot) / n."""
    model, devices = network_of(recorded), recorded.graph.devices
    batches = recorded.tape.messages("train/leaf-gradient")
    found = []
    for weights, batch in zip(weights_by_epoch(recorded), batches, strict=True):
        model.load(weights)
        if model.head is None:
            raise ValueError("a run of `classify` has a head")
        head = model.head.weight.detach().numpy().astype(np.float64)
        rows = torch.from_numpy(rows_in(batch, victim, attacker, devices).astype(np.float64))
        found.append((rows @ torch.from_numpy(np.linalg.pinv(head))).numpy())
    return np.stack(found)


def label_guess(slopes: Doubles) -> Ints:
    """[victims] the entry that is most negative, each epoch by its own size."""
    size = np.abs(slopes).sum(axis=2, keepdims=True)
    guess: Ints = (slopes / np.maximum(size, 1e-300)).sum(axis=0).argmin(axis=1)
    return guess


def leaves_guess(slope: Doubles) -> Ints:
    """[victims] leaves, by the first gradient, where softmax is uniform."""
    classes = slope.shape[1]
    leaves = np.rint((1 - 1 / classes) / np.maximum(-slope.min(axis=1), 1e-12))
    guess: Ints = leaves.astype(np.int64)
    return guess


def _near(guess: Doubles | Ints, truth: Ints) -> Proportion:
    return Proportion(int((np.abs(guess - truth) <= NEAR * truth).sum()), len(truth))


ATTACK = Attack(
    name="gradient-labels",
    title="labels and degrees from gradients of leaves",
    run=run,
    profiles=frozenset({"paper"}),
    tasks=frozenset({"classify"}),
)

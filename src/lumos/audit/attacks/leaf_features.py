"""Raw features of a neighbour from embeddings of leaves (`train/leaf`, paper profile).

A device u that carries the edge u-v sends v, in every epoch, the embedding of v's leaf in u's tree.
With two layers it is a function of u's raw features x, of the features that v itself released to
u, and of the weights, all of which v knows but x. The weights change from epoch to epoch, so v gets
new equations for the same x. It looks for the x in [0, 1]^d that explains all of them best, by
gradients through the network itself, starting from and weighted by how frequent words are.

Assumed: the attacker knows the frequencies of words. Dropout is private: the attacker computes as
if nothing fell, and takes what does not fit for outliers. Beside it stands what the randomized
release (`train/features`) alone tells the carrier of an edge: the only path that ε covers.
"""

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from lumos.audit.attacks import Attack
from lumos.audit.attacks.paper_weights import (
    network_of,
    one_each,
    places_in,
    rows_in,
    weights_by_epoch,
)
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import CertifiedEpsilon, Mean, Proportion
from lumos.audit.scene import Recorded, Scene
from lumos.encode import joined, read, recover
from lumos.encode.recovered import RecoveredFeatures
from lumos.encode.release import Released
from lumos.model.feature_products import as_dense, project
from lumos.model.gcn import EIGHTH, TreeGCN
from lumos.paper.messages import on_leaves
from lumos.paper.settings import settings_of
from lumos.training.metrics import auc
from lumos.training.problem import features_of
from lumos.typing import Doubles, Flags, Ints

Misfit = Callable[[Tensor], Tensor]
"""From [victims, d] to the gradient of how badly they explain what was seen."""

MOST = 80
"""Victims of the search."""
MOST_RELEASES = 2000
"""Victims of releases."""
STEPS, RATE = 160, 0.3
SPREAD = 0.02
"""Error that the attacker expects, in parts of a message's mean size."""
PRESENT = 0.5
"""From here on a word counts as found."""


def run(scene: Scene) -> Iterator[AuditRow]:
    """By what watched devices received, for each task."""
    for task in scene.tasks:
        recorded = scene.recorded(task)
        if not attackable(recorded):
            continue
        victim, attacker = victims(recorded, scene.watched())
        truth = words(recorded, victim)
        often = frequencies(recorded)
        prior = np.broadcast_to(often, truth.shape)
        epochs = len(recorded.tape.messages("train/leaf-gradient"))
        for many in dict.fromkeys((1, min(10, epochs), epochs)):
            scene.say(f"searching for features by {many} of {epochs} epochs ({task})")
            found = searched(recorded, victim, attacker, often, many)
            what = f"from embeddings of leaves, {many} epoch{'s' * (many > 1)}"
            yield _ranked(
                task, f"raw features of the carrier of an edge, {what}", found, truth, prior
            )
        yield _share(task, f"words of the carrier of an edge, {what}", found, truth, prior)
        yield AuditRow(
            attack=ATTACK.name,
            adversary="one neighbour",
            about=f"{task}: all words of the carrier of an edge and no other, {what}",
            measure="share of devices",
            estimate=Proportion(int(((found > PRESENT) == truth).all(axis=1).sum()), len(truth)),
            chance=float(((prior > PRESENT) == truth).all(axis=1).mean()),
            chance_is="the most frequent words",
        )
        if settings_of(recorded.config).noisy:
            yield from _releases(task, recorded, scene.watched(), often)


def attackable(recorded: Recorded) -> bool:
    """Whether it is the network whose equations are written down here: that of the defaults."""
    model = recorded.config.model
    trees = settings_of(recorded.config).virtual_nodes
    return model.backbone == "gcn" and model.layers == 2 and trees


def victims(recorded: Recorded, watched: Flags, most: int = MOST) -> tuple[Ints, Ints]:
    """Carriers of edges, and for each one watched neighbour to which it sends a leaf."""
    first = recorded.tape.messages("train/leaf")[0]
    told = np.flatnonzero(watched[first.receiver])
    chosen = told[one_each(first.sender[told], most, np.random.default_rng(0))]
    return first.sender[chosen], first.receiver[chosen]


def words(recorded: Recorded, devices: Ints) -> Flags:
    """[devices, d] the truth: which features are above the midpoint."""
    rows = as_dense(features_of(recorded.graph)[devices]).numpy()
    flags: Flags = rows > settings_of(recorded.config).midpoint
    return flags


def frequencies(recorded: Recorded) -> Doubles:
    """[d] how frequent each word is, strictly between 0 and 1."""
    features = features_of(recorded.graph)
    share = np.asarray((features > settings_of(recorded.config).midpoint).mean(axis=0)).ravel()
    floor = 1 / (2 * recorded.graph.devices)
    often: Doubles = np.clip(share, floor, 1 - floor)
    return often


class LeafEquations:
    """What the carrier's features make of one neighbour's leaf, in several epochs at once.

    By the formulas of `lumos.model.gcn` for two layers: z = x W and z' = x' W for the features x of
    the carrier and x' of the neighbour, act(.) = ReLU divided by 1 - chance of dropout,

        leaf = act(z'/2 + b), parent = act((z + z')/√8 + b), leaf' = (leaf/2 + parent/√8) W' + b'

    Args:
        recorded: the run.
        epochs: how many.
        released: [victims, d] x'.
    """

    def __init__(self, recorded: Recorded, epochs: int, released: RecoveredFeatures) -> None:
        config = recorded.config.model
        self._factor, self._last = 1 / (1 - config.dropout), config.activate_last
        tables, first, matrices, second, theirs = [], [], [], [], []
        model = network_of(recorded)
        for weights in islice(weights_by_epoch(recorded), epochs):
            model.load(weights)
            layers = [layer for layer in model.network.layers if isinstance(layer, TreeGCN)]
            with torch.no_grad():
                tables.append(layers[0].weight.clone())
                first.append(layers[0].bias.clone())
                matrices.append(layers[1].weight.clone())
                second.append(layers[1].bias.clone())
                theirs.append(project(released, layers[0].weight))
        self._width = tables[0].shape[1]
        self._table = torch.cat(tables, dim=1)  # [d, epochs · width]: one product for all epochs
        self._first, self._second = (torch.stack(some)[:, None] for some in (first, second))
        self._matrix, self._theirs = torch.stack(matrices), torch.stack(theirs)

    def leaves(self, x: Tensor) -> Tensor:
        """[epochs, victims, width] for [victims, d]."""
        mine = (x @ self._table).view(len(x), -1, self._width).transpose(0, 1)
        leaf = self._act(self._theirs / 2 + self._first)
        parent = self._act((mine + self._theirs) * EIGHTH + self._first)
        out = torch.bmm(leaf / 2 + parent * EIGHTH, self._matrix) + self._second
        return self._act(out) if self._last else out

    def _act(self, rows: Tensor) -> Tensor:
        return torch.relu(rows) * self._factor


def searched(
    recorded: Recorded, victim: Ints, attacker: Ints, often: Doubles, epochs: int
) -> Doubles:
    """[victims, d] what explains the leaves of the first `epochs` best, from 0 to 1."""
    equations = LeafEquations(recorded, epochs, _released(recorded, attacker, victim))
    devices, batches = recorded.graph.devices, recorded.tape.messages("train/leaf")[:epochs]
    seen = torch.from_numpy(
        np.stack([rows_in(batch, victim, attacker, devices) for batch in batches])
    )
    size = SPREAD * seen.abs().mean(dim=(1, 2), keepdim=True) + 1e-12

    def misfit(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        loss = smooth_l1_loss(equations.leaves(x) / size, seen / size, reduction="sum")
        (slope,) = torch.autograd.grad(loss, x)
        return slope

    return explained(misfit, often, len(victim))


def explained(misfit: Misfit, often: Doubles, many: int) -> Doubles:
    """The x that fits best and is likely: of a word that is there, -log frequency is paid."""
    start = torch.from_numpy(np.log(often / (1 - often)).astype(np.float32))
    price = torch.from_numpy(-np.log(often).astype(np.float32))
    logits = start.repeat(many, 1).clone().requires_grad_(True)
    adam = torch.optim.Adam([logits], RATE, betas=(0.9, 0.99))
    for step in range(STEPS):
        for group in adam.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
        adam.zero_grad()
        x = torch.sigmoid(logits)
        x.backward(misfit(x) + price)  # type: ignore[no-untyped-call]
        adam.step()
    found: Doubles = torch.sigmoid(logits).detach().numpy().astype(np.float64)
    return found


def _releases(task: str, recorded: Recorded, watched: Flags, often: Doubles) -> Iterator[AuditRow]:
    """What the randomized release alone tells: likelihoods of its bits, with the true ε'."""
    (batch, *_) = recorded.tape.messages("train/features")
    told = np.flatnonzero(watched[batch.receiver])
    chosen = told[one_each(batch.sender[told], MOST_RELEASES, np.random.default_rng(0))]
    victim, attacker = batch.sender[chosen], batch.receiver[chosen]
    released = _read(recorded, victim, attacker)
    epsilon = settings_of(recorded.config).epsilon
    truth = words(recorded, victim)
    row = np.repeat(np.arange(len(victim)), released.counts)
    elements, bits = released.elements, released.bits
    each = (epsilon / released.largest)[row]  # ε' = ε/s; the ratio of a bit is e^±ε'
    prior = np.log(often / (1 - often))
    scores = np.tile(prior, (len(victim), 1))
    scores[row, elements] += np.where(bits, each, -each)
    about = "raw features of a neighbour, from its release under ε alone"
    yield _ranked(
        task, about, scores, truth, np.broadcast_to(often, truth.shape), knows_mechanism=True
    )
    there = truth[row, elements]
    yield AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about=f"{task}: ε that the bits of releases certify: one word there, or not",
        measure="ε",
        estimate=CertifiedEpsilon(
            int((bits & there).sum()),
            max(1, int(there.sum())),
            int((bits & ~there).sum()),
            max(1, int((~there).sum())),
        ),
        bound=epsilon,
        bound_is=f"`train/features`: at most ε = {epsilon:g} per receiver (docs/privacy.md)",
        knows_mechanism=True,
    )


def _ranked(
    task: str,
    about: str,
    scores: Doubles,
    truth: Flags,
    prior: Doubles,
    *,
    knows_mechanism: bool = False,
) -> AuditRow:
    return AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about=f"{task}: {about}",
        measure="mean AUC of words",
        estimate=_mean(_areas(scores, truth)),
        chance=_mean(_areas(prior, truth)).value,
        chance_is="how frequent words are",
        knows_mechanism=knows_mechanism,
        note="weights are those that follow from the opened sums; frequencies of words are known",
    )


def _share(task: str, about: str, scores: Doubles, truth: Flags, prior: Doubles) -> AuditRow:
    return AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about=f"{task}: {about}: of the k likeliest, where the device has k",
        measure="share that is right",
        estimate=_mean(_right(scores, truth)),
        chance=_mean(_right(prior, truth)).value,
        chance_is="the k most frequent words",
    )


def _areas(scores: Doubles, truth: Flags) -> Doubles:
    """[devices] AUC of each device's words among all words."""
    rows = [
        auc(of[there], of[~there])
        for of, there in zip(scores.astype(np.float64), truth, strict=True)
        if there.any() and not there.all()
    ]
    return np.array(rows)


def _right(scores: Doubles, truth: Flags) -> Doubles:
    """[devices] share of the k likeliest words that are there, k = how many are."""
    rows = []
    for of, there in zip(scores, truth, strict=True):
        k = int(there.sum())
        if k:
            rows.append(float(there[np.argsort(-of, kind="stable")[:k]].mean()))
    return np.array(rows)


def _mean(values: Doubles) -> Mean:
    many = len(values)
    spread = float(values.std(ddof=1)) if many > 1 else 1.0
    return Mean(float(values.mean()) if many else math.nan, spread / math.sqrt(max(1, many)), many)


def _released(recorded: Recorded, sender: Ints, receiver: Ints) -> RecoveredFeatures:
    """What the receivers put on the senders' leaves; the senders sent it, and so know it."""
    paper = settings_of(recorded.config)
    return on_leaves(recover(_read(recorded, sender, receiver), paper), paper, paper.recovery)


def _read(recorded: Recorded, sender: Ints, receiver: Ints) -> Released:
    noisy, graph = settings_of(recorded.config).noisy, recorded.graph
    name = "train/features" if noisy else "train/features-in-the-clear"
    parts = []
    for number, batch in enumerate(recorded.tape.messages(name)):
        wanted = receiver * graph.devices + sender
        here = np.flatnonzero(np.isin(wanted, batch.receiver * graph.devices + batch.sender))
        rows = here if number else np.arange(len(wanted))
        place = places_in(batch, sender[rows], receiver[rows], graph.devices)
        lengths = batch.lengths
        parts.append(
            (rows, batch.body[place], np.zeros(0, np.int64) if lengths is None else lengths[place])
        )
    return read(joined(parts, len(sender)), graph.feature_count, noisy=noisy)


ATTACK = Attack(
    name="leaf-features",
    title="raw features from embeddings of leaves",
    run=run,
    profiles=frozenset({"paper"}),
)

"""Goals of servers: labels under randomized response, LPGNN's Drop, and a goal for each task.

A goal is what a server optimises, and the score by which it chooses between epochs.
"""

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, nll_loss, one_hot

from lumos.baselines.network import Arcs
from lumos.baselines.systems import ServerProblem
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError
from lumos.ldp.mechanisms import COIN, make_mechanism
from lumos.training.metrics import link_auc
from lumos.training.split import EdgeSplit, Role
from lumos.typing import Ints


def noisy_labels(
    labels: Ints, classes: int, epsilon: float, generator: np.random.Generator
) -> Ints:
    """Return [devices] the labels that devices release; -1 stays where there is none.

    The truth with probability e^ε/(e^ε + C - 1), each other class with 1/(e^ε + C - 1).
    """
    if math.isinf(epsilon):
        return labels
    mechanism = make_mechanism(classes, epsilon, "krr")
    known = np.flatnonzero(labels >= 0)
    randomness = generator.integers(0, COIN, (len(known), mechanism.randomness), dtype=np.uint32)
    released = labels.copy()
    released[known] = mechanism.read(mechanism.release(labels[known], randomness)).argmax(axis=1)
    return released


def transition(classes: int, epsilon: float) -> Tensor:
    """Return [classes, classes] T: the probability that a device of class c releases s."""
    if math.isinf(epsilon):
        return torch.eye(classes)
    mechanism = make_mechanism(classes, epsilon, "krr")
    table = torch.full((classes, classes), mechanism.other / COIN)
    return table.fill_diagonal_(mechanism.truth / COIN)


class Drop:
    """Labels that were denoised by the graph, and a loss that sends predictions the same way.

    Targets: one-hot noisy labels (none for devices that sent no label), K_y steps of KProp,
    softmax, largest entry. Predictions: p·T (what a device of that belief would release), the same
    steps and softmax. The loss is the cross-entropy between the two, over training devices; one
    whose neighbourhood holds no label has no target and is left out. With K_y = 0 this is forward
    correction alone.

    Args:
        labels: [devices] noisy labels of those who sent one, -1 elsewhere.
        train: [devices] whether the device trains.
        table: T.
        steps: K_y.
    """

    def __init__(
        self, labels: Tensor, train: Tensor, table: Tensor, arcs: Arcs, steps: int
    ) -> None:
        self._table, self._arcs, self._steps = table, arcs, steps
        known = labels >= 0
        sent = one_hot(labels.clamp(min=0), len(table)).float() * known[:, None]
        seen = self._spread(sent)
        self.target = torch.where(known, labels, 0) if steps == 0 else seen.argmax(dim=1)
        self._train = torch.nonzero(train & (seen.sum(dim=1) > 0)).flatten()
        if not len(self._train):
            raise InputError(
                f"edges: no training device has a label within {steps} steps; "
                "`label_steps=0` learns from each device's own"
            )

    def _spread(self, rows: Tensor) -> Tensor:
        for _ in range(self._steps):
            rows = self._arcs.smooth(rows)
        return rows

    def log_released(self, logits: Tensor) -> Tensor:
        """Return [devices, classes] the log-probability of each label that a device may release.

        log(softmax(logits)·T)
        """
        return (torch.softmax(logits, dim=1) @ self._table).clamp(min=1e-12).log()

    def loss(self, logits: Tensor) -> Tensor:
        """Return the cross-entropy between propagated predictions and targets."""
        logs = self.log_released(logits)
        if self._steps:
            logs = torch.log_softmax(self._spread(logs.exp()), dim=1)
        return nll_loss(logs[self._train], self.target[self._train])


PAIRS = 1 << 18
"""Edges of an epoch, at most; of more, this number is drawn afresh in every epoch."""


class Goal(Protocol):
    """A loss, and a validation score of which more is better."""

    def loss(self, out: Tensor, epoch: int) -> Tensor:
        """Return the loss of the training devices or edges."""
        ...

    def score(self, out: Tensor) -> float:
        """Return the score of the validation devices or edges, as far as the server knows them."""
        ...


class ClassifyGoal:
    """Cross-entropy with the labels that the server holds, true or noisy; accuracy on the same."""

    def __init__(self, labels: Ints, roles: Ints) -> None:
        self._labels = torch.from_numpy(labels.copy())
        self._train = torch.from_numpy(np.flatnonzero(roles == Role.TRAIN))
        self._validation = torch.from_numpy(np.flatnonzero(roles == Role.VALIDATION))

    def loss(self, out: Tensor, epoch: int) -> Tensor:
        """Return the mean over training devices."""
        return cross_entropy(out[self._train], self._labels[self._train])

    def score(self, out: Tensor) -> float:
        """Return the share of validation devices whose most likely class is their given label."""
        right = out[self._validation].argmax(dim=1) == self._labels[self._validation]
        return float(right.float().mean())


class Denoise:
    """LPGNN's goal: Drop on the training devices; likelihood of the noisy validation labels."""

    def __init__(self, drop: Drop, labels: Ints, roles: Ints) -> None:
        self._drop = drop
        self._validation = torch.from_numpy(np.flatnonzero(roles == Role.VALIDATION))
        self._labels = torch.from_numpy(labels)[self._validation]

    def loss(self, out: Tensor, epoch: int) -> Tensor:
        """Return the loss of `Drop`."""
        return self._drop.loss(out)

    def score(self, out: Tensor) -> float:
        """Return the mean log-likelihood of the labels that validation devices released."""
        return -float(nll_loss(self._drop.log_released(out[self._validation]), self._labels))


class LinkGoal:
    """-log σ(h_u·h_v) over training edges, -log σ(-h_u·h_v) over as many fresh pairs that are none.

    Args:
        pairs: [edges, 2] the edges that the server trains on, u < v, ascending.
        split: with the validation edges.
    """

    def __init__(
        self, pairs: Ints, devices: int, split: EdgeSplit, public: PublicRandomness
    ) -> None:
        self._pairs, self._devices, self._split, self._public = pairs, devices, split, public
        self._keys = pairs[:, 0] * devices + pairs[:, 1]

    def loss(self, out: Tensor, epoch: int) -> Tensor:
        """Return the mean over edges and non-neighbours."""
        generator = self._public.generator("baseline/pairs", epoch)
        pairs = self._pairs
        if len(pairs) > PAIRS:
            pairs = pairs[generator.integers(0, len(pairs), PAIRS)]
        non_neighbours = non_neighbours_to(self._keys, self._devices, len(pairs), generator)
        gain = logsigmoid(_products(out, pairs)), logsigmoid(-_products(out, non_neighbours))
        return -torch.cat(gain).mean()

    def score(self, out: Tensor) -> float:
        """Return the ROC-AUC on the validation edges."""
        split = self._split
        return link_auc(out.numpy(), split.validation, split.validation_non_neighbours)


def goal_of(problem: ServerProblem, labels: Ints | None, edges: Ints) -> Goal:
    """Return the goal of a server that holds these labels and trains on these edges."""
    if problem.split is not None:
        return LinkGoal(edges, problem.graph.devices, problem.split, problem.public)
    return ClassifyGoal(np.asarray(labels), problem.roles)


def non_neighbours_to(keys: Ints, devices: int, count: int, generator: np.random.Generator) -> Ints:
    """Draw [count, 2] pairs that are not among the edges, uniformly, with replacement.

    Args:
        keys: ascending u · devices + v of the edges u < v, of which there are not all.
    """
    drawn = np.empty((0, 2), np.int64)
    while len(drawn) < count:
        ends = np.sort(generator.integers(0, devices, (count + 16, 2)), axis=1)
        key = ends[:, 0] * devices + ends[:, 1]
        place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        free = (keys[place] != key) & (ends[:, 0] < ends[:, 1])
        drawn = np.concatenate([drawn, ends[free]])
    return drawn[:count]


def _products(rows: Tensor, pairs: Ints) -> Tensor:
    one, other = (rows[torch.from_numpy(pairs[:, end].copy())] for end in (0, 1))
    return (one * other).sum(dim=1)

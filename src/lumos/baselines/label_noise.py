"""Labels under randomized response, and LPGNN's Drop: how to learn from them."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import nll_loss, one_hot

from lumos.baselines.arcs import Arcs
from lumos.encode.mechanisms import COIN, make_mechanism
from lumos.errors import InputError
from lumos.typing import Ints


def noisy_labels(
    labels: Ints, classes: int, epsilon: float, generator: np.random.Generator
) -> Ints:
    """[devices] the labels that devices release; -1 stays where there is none.

    The truth with probability e^ε/(e^ε + C - 1), each other class with 1/(e^ε + C - 1).
    """
    if math.isinf(epsilon):
        return labels
    mechanism = make_mechanism(classes, epsilon, "krr")
    known = np.flatnonzero(labels >= 0)
    coins = generator.integers(0, COIN, (len(known), mechanism.coins), dtype=np.uint32)
    released = labels.copy()
    released[known] = mechanism.read(mechanism.release(labels[known], coins)).argmax(axis=1)
    return released


def transition(classes: int, epsilon: float) -> Tensor:
    """[classes, classes] T: the probability that a device of class c releases s."""
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
        """[devices, classes] log-probability of each label that a device may release.

        log(softmax(logits)·T)
        """
        return (torch.softmax(logits, dim=1) @ self._table).clamp(min=1e-12).log()

    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy between propagated predictions and targets."""
        logs = self.log_released(logits)
        if self._steps:
            logs = torch.log_softmax(self._spread(logs.exp()), dim=1)
        return nll_loss(logs[self._train], self.target[self._train])

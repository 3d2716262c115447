"""Readers that attackers fit on devices whose truth they know: linear ones and small networks.

Networks are no bound: a better one may find more.
"""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from torch.nn import functional

from lumos.audit.table import Area
from lumos.training.metrics import auc
from lumos.typing import Doubles, Flags, Ints

RIDGE_DECAY = 1e-2
"""Weight of the ridge, for standardised columns."""


def ridge_scores(columns: Doubles, wanted: Doubles, known: Flags) -> Doubles:
    """Return [others, targets] of least squares with an intercept, fitted on the known rows.

    Args:
        columns: [cases, …] what attackers see.
        wanted: [cases, targets] the truth; that of others is not read.
        known: [cases] whose truth they know.
    """
    mean, spread = columns[known].mean(axis=0), columns[known].std(axis=0)
    ready = np.where(spread > 0, (columns - mean) / np.where(spread > 0, spread, 1), 0.0)
    middle = wanted[known].mean(axis=0)
    square = ready[known].T @ ready[known] / max(1, known.sum())
    along = ready[known].T @ (wanted[known] - middle) / max(1, known.sum())
    weights = np.linalg.solve(square + RIDGE_DECAY * np.eye(len(square)), along)
    scores: Doubles = ready[~known] @ weights + middle
    return scores


STEPS, HIDDEN, RATE, DECAY, DROPPED = 140, 64, 0.01, 0.02, 0.25
MIN_CASES = 12
"""Cases that a network needs to learn from."""
MEETING = 16
"""Width in which the network of edges compares two devices."""


def area(scores: Doubles, truth: Flags) -> Area:
    """Return the AUC of scores; 0.5 unless there are cases of both kinds."""
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return Area(0.5, positives, negatives)
    return Area(auc(scores[truth], scores[~truth]), positives, negatives)


def evaluated_by_network(columns: Doubles, truth: Flags, half: Flags) -> Doubles:
    """Return [others] scores of a small network that learnt from the known half.

    Args:
        columns: [cases, …] what attackers see.
        truth: [cases].
        half: [cases] those that they know.
    """
    inputs = torch.from_numpy(columns).float()
    wanted = torch.from_numpy(truth[:, None]).float()
    known = torch.from_numpy(half)
    scores: Doubles = fitted(inputs[known], wanted[known], inputs[~known])[:, 0].numpy()
    return scores.astype(np.float64)


def train_network(
    model: torch.nn.Module,
    loss: Callable[[torch.Tensor], torch.Tensor],
    batch: Callable[[int], torch.Tensor],
    held: torch.Tensor,
    *,
    steps: int = STEPS,
    every: int,
    rate: float = RATE,
    decay: float = DECAY,
    patience: int | None = None,
) -> None:
    """Train by AdamW, and keep the weights with the least loss of held-back cases.

    Args:
        loss: of the cases with these numbers.
        batch: by step, the cases to learn from.
        held: cases that say when to stop.
        every: steps between two looks at them.
        patience: looks without a smaller loss after which to stop; None: never.
    """
    adam = torch.optim.AdamW(model.parameters(), rate, weight_decay=decay)
    best, kept, worse = float("inf"), deepcopy(model.state_dict()), 0
    for step in range(steps):
        adam.zero_grad()
        loss(batch(step)).backward()  # type: ignore[no-untyped-call]
        adam.step()
        if step % every == every - 1:
            model.eval()
            with torch.no_grad():
                now = float(loss(held))
            model.train()
            worse += 1
            if now < best:
                best, kept, worse = now, deepcopy(model.state_dict()), 0
            if worse == patience:
                break
    model.load_state_dict(kept)
    model.eval()


def fitted(inputs: torch.Tensor, wanted: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
    """Return [asked, targets] logits of a small network; zeros if there are too few cases.

    Args:
        inputs: [rows, …] of known cases.
        wanted: [rows] their classes, or [rows, targets] zeros and ones.
        asked: [asked, …] cases to evaluate.
    """
    generator = torch.Generator().manual_seed(0)
    classes = wanted.dtype == torch.int64
    outputs = (int(wanted.max()) + 1 if len(wanted) else 1) if classes else wanted.shape[1]
    if len(inputs) < MIN_CASES:
        return torch.zeros(len(asked), outputs)
    loss = functional.cross_entropy if classes else functional.binary_cross_entropy_with_logits
    mean, spread = inputs.mean(0), inputs.std(0) + 1e-3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Dropout(DROPPED),
            torch.nn.Linear(inputs.shape[1], HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Dropout(DROPPED),
            torch.nn.Linear(HIDDEN, outputs),
        )
        # A part of what is known says when to stop.
        order = torch.randperm(len(inputs), generator=generator)
        cut = max(1, len(inputs) // 6)
        held, learn = order[:cut], order[cut:]
        ready = (inputs - mean) / spread
        train_network(
            model,
            lambda some: loss(model(ready[some]), wanted[some]),
            lambda step: learn[step % 3 :: 3],
            held,
            every=10,
        )
    with torch.no_grad():
        logits: torch.Tensor = model((asked - mean) / spread)
    return logits


class _Comparison(torch.nn.Module):
    """The ratio, a product of two codes and their weights, in one logit."""

    def __init__(self, inputs: torch.Tensor) -> None:
        super().__init__()
        self._inputs = inputs
        self.code = torch.nn.Sequential(
            torch.nn.Linear(inputs.shape[1], HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, MEETING + 1),
        )
        self.scale = torch.nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, pairs: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
        rows, place = torch.unique(pairs, return_inverse=True)
        both = self.code(self._inputs[rows])[place]
        met = (both[:, 0, :-1] * both[:, 1, :-1]).sum(1)
        own = both[:, 0, -1], both[:, 1, -1]
        logits: torch.Tensor = base * self.scale[0] + self.scale[1] + met + own[0] + own[1]
        return logits


def comparing(
    inputs: torch.Tensor,
    pairs: Ints,
    is_edge: Flags,
    known_ratio: Doubles,
    asked: Ints,
    ratio: Doubles,
) -> Doubles:
    """Return [asked] logits of a network: the ratio, a product of two codes, their weights.

    Args:
        inputs: [devices, …] what attackers know of each device.
        pairs: [pairs, 2] whose truth they know.
        is_edge: [pairs] the truth.
        known_ratio: [pairs] a first guess, to start from.
        asked: [asked, 2] pairs to evaluate.
        ratio: [asked] the first guess of those; it is returned where known pairs are few.
    """
    if len(pairs) < MIN_CASES:
        return ratio
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = _Comparison(inputs)
        order = torch.randperm(len(pairs))
    cut = len(pairs) // 4
    ends, wanted = torch.from_numpy(pairs), torch.from_numpy(is_edge).float()
    spread = float(known_ratio.std()) + 1e-6
    start = torch.from_numpy(known_ratio / spread).float()

    def loss(some: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(
            model(ends[some], start[some]), wanted[some]
        )

    train_network(model, loss, lambda step: order[cut:][step % 4 :: 4], order[:cut], every=8)
    with torch.no_grad():
        base = torch.from_numpy(ratio / spread).float()
        evaluated: Doubles = model(torch.from_numpy(asked), base).numpy().astype(np.float64)
    return evaluated

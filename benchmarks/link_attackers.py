"""Attackers that learn on the devices whose truth they know, and are judged on the others.

They read levels, [devices, askers]: what the same m askers learnt about every device. One half of
the devices is known to them (labels, edges, degrees, words, and all answers of it, whatever the
budgets say); AUC and accuracy are those of the other half. Networks are no bound: a better one may
find more.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from lumos.training.metrics import auc
from lumos.typing import Doubles, Flags, Ints

STEPS, HIDDEN, RATE, DECAY, DROPPED = 140, 64, 0.01, 0.02, 0.25
MEETING = 16
"""Width in which the network of edges compares two devices."""


class Truth(NamedTuple):
    """What attackers want to know."""

    labels: Ints | None
    degree: Ints
    words: Doubles
    """[devices, frequent words] 0 or 1."""
    half: Flags
    """[devices] known to the attackers."""
    known: tuple[Ints, Flags]
    """[pairs, 2] of two known devices, and which are edges."""
    asked: tuple[Ints, Flags]
    """The same of two others."""


def truth_of(
    degree: Ints,
    edges: Ints,
    labels: Ints | None,
    words: Doubles,
    left_out: Ints,
    seed: int = 0,
    most: int = 40_000,
) -> Truth:
    """Half of the devices at random, and edges and as many random pairs within each half."""
    rng, many = np.random.default_rng(seed), len(degree)
    half = rng.random(many) < 0.5
    out = np.zeros(many, np.bool_)
    out[left_out] = True
    taken = np.sort(edges.min(axis=1) * many + edges.max(axis=1))
    sides = []
    for side in (half & ~out, ~half & ~out):
        inside = edges[side[edges].all(axis=1)]
        inside = inside[rng.permutation(len(inside))[:most]]
        some = np.flatnonzero(side)
        far = rng.choice(some, (2 * len(inside) + 10, 2))
        keys = far.min(axis=1) * many + far.max(axis=1)
        far = far[(far[:, 0] != far[:, 1]) & ~np.isin(keys, taken)][: len(inside)]
        pairs = np.concatenate([inside, far])
        sides.append((pairs, np.arange(len(pairs)) < len(inside)))
    return Truth(labels, degree, words, half & ~out, *sides)


def one_hot(levels: Ints) -> torch.Tensor:
    """[devices, askers · levels]"""
    size = int(levels.max()) + 1
    return functional.one_hot(torch.from_numpy(levels), size).flatten(1).float()


def attack(levels: Ints, truth: Truth) -> dict[str, float]:
    """Everything that levels tell: AUC, and accuracy for labels."""
    inputs = one_hot(levels)
    there = ~truth.half
    found: dict[str, float] = {"edge": edge_auc(inputs, levels, truth)}
    known, unknown = torch.from_numpy(truth.half), torch.from_numpy(there)
    big = truth.degree > np.median(truth.degree)
    targets = np.column_stack([big, truth.words])
    logits = fitted(inputs[known], torch.from_numpy(targets[truth.half]).float(), inputs[unknown])
    columns = logits.numpy().astype(np.float64)
    found["degree"] = auc(columns[big[there], 0], columns[~big[there], 0])
    held = truth.words[there] > 0
    by_word = [auc(s[h], s[~h]) for s, h in zip(columns[:, 1:].T, held.T, strict=True)]
    found["words"], found["worst word"] = float(np.mean(by_word)), float(np.max(by_word))
    if truth.labels is not None:
        labels = torch.from_numpy(truth.labels.copy())
        scores = fitted(inputs[known], labels[known], inputs[unknown])
        found["label"] = float((scores.argmax(1) == labels[unknown]).float().mean())
    return found


def fitted(inputs: torch.Tensor, wanted: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
    """[asked, targets] logits of a small network; `wanted` are classes, or [rows, targets]."""
    torch.manual_seed(0)
    classes = wanted.dtype == torch.int64
    outputs = int(wanted.max()) + 1 if classes else wanted.shape[1]
    loss = functional.cross_entropy if classes else functional.binary_cross_entropy_with_logits
    mean, spread = inputs.mean(0), inputs.std(0) + 1e-3
    model = torch.nn.Sequential(
        torch.nn.Dropout(DROPPED),
        torch.nn.Linear(inputs.shape[1], HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Dropout(DROPPED),
        torch.nn.Linear(HIDDEN, outputs),
    )
    # A part of what is known says when to stop.
    order = torch.randperm(len(inputs))
    cut = len(inputs) // 6
    held, learn = order[:cut], order[cut:]
    ready = (inputs - mean) / spread
    adam = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY)
    best, kept = float("inf"), {k: v.clone() for k, v in model.state_dict().items()}
    for step in range(STEPS):
        adam.zero_grad()
        some = learn[step % 3 :: 3]
        loss(model(ready[some]), wanted[some]).backward()
        adam.step()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                now = float(loss(model(ready[held]), wanted[held]))
            model.train()
            if now < best:
                best, kept = now, {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(kept)
    model.eval()
    with torch.no_grad():
        return model((asked - mean) / spread)


def edge_auc(inputs: torch.Tensor, levels: Ints, truth: Truth) -> float:
    """AUC of third-party edges: by the likelihood ratio of each asker's two levels, added up, and
    by a network that compares two devices and starts from it; the better one counts."""
    (pairs, is_edge), (asked, real) = truth.known, truth.asked
    known_ratio, ratio = ratios(levels, pairs, is_edge, asked)
    scores = [ratio, comparing(inputs, pairs, is_edge, known_ratio, asked, ratio)]
    return max(auc(score[real], score[~real]) for score in scores)


def ratios(levels: Ints, pairs: Ints, is_edge: Flags, asked: Ints) -> tuple[Doubles, Doubles]:
    """[pairs] and [asked] Σ over askers of log P(two levels | edge) / P(… | no edge)."""
    size = int(levels.max()) + 1
    totals = np.zeros(len(pairs)), np.zeros(len(asked))
    for column in levels.T:
        cells = [column[p].min(axis=1) * size + column[p].max(axis=1) for p in (pairs, asked)]
        counts = [
            np.bincount(cells[0][which], minlength=size * size) + 1.0
            for which in (is_edge, ~is_edge)
        ]
        table = np.log(counts[0] / counts[0].sum()) - np.log(counts[1] / counts[1].sum())
        for total, cell in zip(totals, cells, strict=True):
            total += table[cell]
    return totals


def comparing(
    inputs: torch.Tensor,
    pairs: Ints,
    is_edge: Flags,
    known_ratio: Doubles,
    asked: Ints,
    ratio: Doubles,
) -> Doubles:
    """[asked] logits of a network: the ratio, a product of two devices' codes, their weights."""
    torch.manual_seed(0)
    code = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, MEETING + 1),
    )
    scale = torch.nn.Parameter(torch.tensor([1.0, 0.0]))
    order = torch.randperm(len(pairs))
    cut = len(pairs) // 4
    ends, wanted = torch.from_numpy(pairs), torch.from_numpy(is_edge).float()
    spread = float(known_ratio.std()) + 1e-6
    start = torch.from_numpy(known_ratio / spread).float()
    adam = torch.optim.AdamW([*code.parameters(), scale], 0.01, weight_decay=DECAY)

    def logits(of: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
        rows, place = of.unique(return_inverse=True)
        both = code(inputs[rows])[place]
        met = (both[:, 0, :-1] * both[:, 1, :-1]).sum(1)
        return base * scale[0] + scale[1] + met + both[:, 0, -1] + both[:, 1, -1]

    best, kept = float("inf"), {k: v.clone() for k, v in code.state_dict().items()}
    at = scale.detach().clone()
    for step in range(STEPS):
        adam.zero_grad()
        some = order[cut:][step % 4 :: 4]
        found = logits(ends[some], start[some])
        functional.binary_cross_entropy_with_logits(found, wanted[some]).backward()
        adam.step()
        if step % 8 == 7:
            with torch.no_grad():
                held = logits(ends[order[:cut]], start[order[:cut]])
                now = float(functional.binary_cross_entropy_with_logits(held, wanted[order[:cut]]))
            if now < best:
                best, at = now, scale.detach().clone()
                kept = {k: v.clone() for k, v in code.state_dict().items()}
    code.load_state_dict(kept)
    with torch.no_grad():
        scale.copy_(at)
        base = torch.from_numpy(ratio / spread).float()
        return logits(torch.from_numpy(asked), base).numpy().astype(np.float64)

"""Scores, computed by the observer of a simulation from what no single participant has.

`device_scores` and `pair_scores` are the scores of a whole run: Lumos and the systems that it is
compared with are scored by them alike. `standard_error` is how far they may be off by the choice of
the test set; the last functions warn where a score means less than it seems to.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lumos.training.split import Role
from lumos.training.trainer import PairScores
from lumos.typing import Doubles, Floats, Ints

Scores = dict[str, Any]
"""The observer's scores by name; no guarantee covers them.

classify: `test_accuracy`, `test_macro_f1`, `test_balanced_accuracy`, `test_calibration_error`, and
the same with `val_`; `test_per_class`, a list of `{"class", "devices", "precision", "recall",
"f1"}`; `test_confusion`, a list of rows of counts (row: true class, column: predicted class).
link: `test_auc`, `test_average_precision`, `test_hits_at_10`, `…_50`, `…_100`, and the same with
`val_`.
"""

CLASS_SCORES = ("accuracy", "macro_f1", "balanced_accuracy", "calibration_error")
HITS = (10, 50, 100)
LINK_SCORES = ("auc", "average_precision", *(f"hits_at_{most}" for most in HITS))
PARTS = {"test": Role.TEST, "val": Role.VALIDATION}

BINS = 15
"""Ranges of probabilities in `calibration_error`."""


def device_scores(logits: Floats, labels: Ints, roles: Ints, classes: Sequence[str]) -> Scores:
    """All scores of classify.

    Args:
        logits: [devices, classes]
        labels: [devices] the true class, -1 where there is none.
        roles: [devices]
        classes: names of the classes.
    """
    scores: Scores = {
        f"{part}_{name}": score
        for part, role in PARTS.items()
        for name, score in class_scores(logits, labels, roles, role).items()
    }
    tested = np.flatnonzero(roles == Role.TEST)
    table = confusion(logits[tested].argmax(axis=1), labels[tested], len(classes))
    scores["test_per_class"] = per_class(table, classes)
    scores["test_confusion"] = table.tolist()
    return scores


class TestedPairs(Protocol):
    """Pairs by which the observer scores links, [pairs, 2] each."""

    @property
    def validation(self) -> Ints:
        """Edges that validate."""
        ...

    @property
    def test(self) -> Ints:
        """Edges that test."""
        ...

    @property
    def validation_non_neighbours(self) -> Ints:
        """As many pairs that are no edges."""
        ...

    @property
    def test_non_neighbours(self) -> Ints:
        """As many pairs that are no edges."""
        ...


def pair_scores(score: PairScores, split: TestedPairs) -> Scores:
    """All scores of link: edges against as many pairs that are none.

    Args:
        score: called once with the pairs of each part. Edges and non-neighbours are scored
            together: a budget of answers must not know which are edges.
        split: the edges and non-neighbours of each part.
    """
    parts = {
        "test": (split.test, split.test_non_neighbours),
        "val": (split.validation, split.validation_non_neighbours),
    }
    scores: Scores = {}
    for part, (edges, non_neighbours) in parts.items():
        values = score(np.concatenate([edges, non_neighbours]))
        up, down = values[..., : len(edges)], values[..., len(edges) :]
        scores |= {f"{part}_{name}": value for name, value in link_scores(up, down).items()}
    return scores


def link_scores(positive: Doubles, negative: Doubles) -> dict[str, float]:
    """ROC-AUC, average precision and hits@K.

    Where a pair has a score at each of its ends, both are pooled for AUC and average precision.
    Hits are counted for first ends and for second ends apart, and averaged: the K best pairs
    without an edge are then found among as many pairs as where a pair has one score.

    Args:
        positive: [edges] or [2, edges] scores of edges.
        negative: [pairs] or [2, pairs] scores of pairs without an edge.
    """
    ends = list(zip(np.atleast_2d(positive), np.atleast_2d(negative), strict=True))
    return {
        "auc": auc(positive.ravel(), negative.ravel()),
        "average_precision": average_precision(positive.ravel(), negative.ravel()),
        **{
            f"hits_at_{most}": float(np.mean([hits_at(most, up, down) for up, down in ends]))
            for most in HITS
        },
    }


def accuracy(logits: Floats, labels: Ints, roles: Ints, role: Role) -> float:
    """Share of the devices of a role whose most likely class is theirs."""
    here = np.flatnonzero(roles == role)
    right = logits[here].argmax(axis=1) == labels[here]
    return float(right.mean())


def class_scores(logits: Floats, labels: Ints, roles: Ints, role: Role) -> dict[str, float]:
    """The scores of `CLASS_SCORES` over the devices of a role."""
    here = np.flatnonzero(roles == role)
    predicted = logits[here].argmax(axis=1)
    return {
        "accuracy": accuracy(logits, labels, roles, role),
        "macro_f1": macro_f1(predicted, labels[here]),
        "balanced_accuracy": balanced_accuracy(predicted, labels[here]),
        "calibration_error": calibration_error(logits[here], labels[here]),
    }


def macro_f1(predicted: Ints, labels: Ints) -> float:
    """Mean F1 of all classes that occur, as a label or as a prediction: rare ones count as much."""
    classes = np.union1d(predicted, labels)
    hits = np.array([((predicted == c) & (labels == c)).sum() for c in classes])
    either = np.array([(predicted == c).sum() + (labels == c).sum() for c in classes])
    return float((2 * hits / either).mean()) if len(classes) else 0.0


def balanced_accuracy(predicted: Ints, labels: Ints) -> float:
    """Mean recall of the classes that occur as a label: rare ones count as much."""
    table = confusion(
        predicted, labels, int(max(predicted.max(initial=0), labels.max(initial=0))) + 1
    )
    devices = table.sum(axis=1)
    there = devices > 0
    return float((table.diagonal()[there] / devices[there]).mean()) if there.any() else 0.0


def confusion(predicted: Ints, labels: Ints, classes: int) -> Ints:
    """[classes, classes] counts of devices: row is the true class, column the predicted one."""
    return np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def per_class(table: Ints, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Devices, precision, recall and F1 of each class.

    precision: of the devices that were given this class, the share that has it. recall: of the
    devices that have it, the share that was given it. F1: their harmonic mean. Each is 0 where
    there is nothing to divide by, as in a class that nobody has or that is never predicted.

    Args:
        table: [classes, classes] as `confusion` returns it.
        classes: names of the classes.
    """
    hits, devices, given = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    columns = zip(
        classes,
        devices.tolist(),
        (hits / np.maximum(given, 1)).tolist(),
        (hits / np.maximum(devices, 1)).tolist(),
        (2 * hits / np.maximum(given + devices, 1)).tolist(),
        strict=True,
    )
    names = ("class", "devices", "precision", "recall", "f1")
    return [dict(zip(names, column, strict=True)) for column in columns]


def calibration_error(logits: Floats, labels: Ints) -> float:
    """Return the distance of the probability of the most likely class from its accuracy.

    The mean over `BINS` ranges of equal width, weighted by the devices in each (Guo et al. 2017).
    """
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    sure = 1 / np.exp(shifted).sum(axis=1)  # the most likely class has e^0
    right = logits.argmax(axis=1) == labels
    place = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(place, right - sure, BINS)
    return float(np.abs(gaps).sum() / max(1, len(labels)))


def auc(positive: npt.NDArray[np.float64], negative: npt.NDArray[np.float64]) -> float:
    """Area under the ROC curve: the chance that a positive outscores a negative, ties count half.

    O(n log n), by ranks (Mann and Whitney 1947).
    """
    order = np.sort(negative)
    below = np.searchsorted(order, positive, side="left")
    not_above = np.searchsorted(order, positive, side="right")
    return float((below + not_above).mean() / (2 * len(negative)))


def average_precision(positive: Doubles, negative: Doubles) -> float:
    """Area under the curve of precision over recall, as a sum of steps.

    AP = Σ (R_n - R_{n-1}) P_n over the distinct scores from the highest down: the mean, over the
    positives, of the precision among all that score as high or higher. Ties are one step, so their
    order does not matter.
    """
    up, down = np.sort(positive), np.sort(negative)
    as_high = len(up) - np.searchsorted(up, up, side="left")
    wrong = len(down) - np.searchsorted(down, up, side="left")
    return float((as_high / (as_high + wrong)).mean())


def hits_at(most: int, positive: Doubles, negative: Doubles) -> float:
    """Share of positives that score higher than the K-th best negative (OGB's hits@K).

    A positive that ties with it is no hit, so a constant score has none. With fewer than K
    negatives every positive is a hit, as in OGB: the score then says nothing.
    """
    if len(negative) < most:
        return 1.0
    place = len(negative) - most
    return float((positive > np.partition(negative, place)[place]).mean())


def dot_products(embeddings: Floats, pairs: Ints) -> npt.NDArray[np.float64]:
    """[pairs] of the embeddings of both ends."""
    one, other = (embeddings[pairs[:, end]].astype(np.float64) for end in (0, 1))
    products: npt.NDArray[np.float64] = (one * other).sum(axis=1)
    return products


def link_auc(embeddings: Floats, edges: Ints, non_neighbours: Ints) -> float:
    """AUC of dot products of embeddings, over edges against pairs that are none."""
    return auc(dot_products(embeddings, edges), dot_products(embeddings, non_neighbours))


MIN_STANDARD_ERRORS = 2.0
"""Standard errors that a difference must exceed to be more than the noise of the test set."""


def standard_error(score: float, tested: int, what: str) -> float:
    """Return the standard error of an accuracy, √(p(1-p)/n), or of an AUC with n edges and n
    non-neighbours (Hanley and McNeil).

    Q₁ = A/(2-A), Q₂ = 2A²/(1+A), variance (A(1-A) + (n-1)(Q₁ - A² + Q₂ - A²)) / n².
    """
    if not tested:
        return math.inf
    if what == "accuracy":
        return math.sqrt(score * (1 - score) / tested)
    first, second, square = score / (2 - score), 2 * score**2 / (1 + score), score**2
    pairs = (tested - 1) * (first - square + second - square)
    return math.sqrt(max(score * (1 - score) + pairs, 0.0)) / tested


def beyond_noise(one: float, other: float, tested: int, what: str) -> bool:
    """Return True if two scores on a test set of this size differ by more than its noise."""
    errors = (standard_error(score, tested, what) for score in (one, other))
    return abs(one - other) > MIN_STANDARD_ERRORS * math.hypot(*errors)


MIN_FALL = 0.01
"""Share of its value by which a loss must still fall for a run to be called unfinished."""
CLEAR = 2.0
"""Standard errors beyond which a difference is no accident."""


def still_falling(losses: Sequence[float | None]) -> tuple[float, float] | None:
    """The mean losses of the last two fifths of some epochs, where the later one is clearly lower.

    The standard error comes from the differences between successive epochs, so that a slope does
    not count as noise.
    """
    values = np.array([loss for loss in losses if loss is not None and math.isfinite(loss)])
    part = len(values) // 5
    if part < 2:
        return None
    before, after = values[-2 * part : -part], values[-part:]
    noise = float(np.abs(np.diff(values[-2 * part :])).mean()) / 1.128  # of two normal numbers
    fall, error = float(before.mean() - after.mean()), noise * math.sqrt(2 / part)
    clear = fall > CLEAR * error and fall > MIN_FALL * abs(float(before.mean()))
    return (float(before.mean()), float(after.mean())) if clear else None


def unconverged(losses: Sequence[float | None], epochs: int) -> Iterator[str]:
    """Warn where the loss of a run still falls at its end.

    Not for profiles in which all sums share one budget: more epochs are noisier ones there.
    """
    if (means := still_falling(losses)) is not None:
        yield (
            f"training was not finished: its loss still fell at the end, from {means[0]:.3g} to "
            f"{means[1]:.3g}; `epochs={2 * epochs}` trains longer"
        )


def no_better_than_majority(score: float, confusion: Sequence[Sequence[int]]) -> Iterator[str]:
    """Warn where a constant answer, the largest class of the test set, would score as well.

    Args:
        score: accuracy on the test set.
        confusion: rows of counts, one for each true class.
    """
    devices = [sum(row) for row in confusion]
    largest = max(devices, default=0) / max(1, sum(devices))
    if score <= largest:
        yield (
            f"the accuracy of {100 * score:.1f} % is not above that of naming the most frequent "
            f"class of the test set each time, {100 * largest:.1f} %"
        )


FEW_TRAIN, FEW_PER_CLASS = 0.1, 100
"""A training set is called small below this share of the labelled devices, and below this number of
devices of each class."""


def few_train(training: int, labelled: int, classes: int) -> Iterator[str]:
    """Warn where a split, as Planetoid's, trains on few of the labels, and releases are randomized.

    Args:
        training: number of devices that train.
        labelled: number of devices with a label.
    """
    if training < min(FEW_TRAIN * labelled, FEW_PER_CLASS * classes):
        yield (
            f"the split trains on {training:,} of {labelled:,} labelled devices, few for "
            "randomized releases; `split='random'` trains on half of them"
        )


def below_own(score: float, own: float | None, cases: int, what: str) -> Iterator[str]:
    """Warn where the local model did clearly better than the run.

    Args:
        cases: number of test devices or edges.
        what: accuracy or auc.
    """
    if own is not None and own > score and beyond_noise(score, own, cases, what):
        yield (
            f"the local model did better on the test set, by {100 * (own - score):.1f} points: "
            "neighbours mislead here, or training was too short or too noisy"
        )


def no_better_than_control(
    score: float, control: float | None, cases: int, what: str
) -> Iterator[str]:
    """Warn where a control, whose messages carry no information, did as well as the run."""
    if control is not None and (score < control or not beyond_noise(score, control, cases, what)):
        yield (
            "the control did as well, within the noise of this test set, so this run does not "
            "show that messages help"
        )

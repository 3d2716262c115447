"""Scores, computed by the observer of a simulation from what no single participant has."""

import numpy as np
import numpy.typing as npt

from lumos.training.split import Role
from lumos.typing import Floats, Ints

BINS = 15
"""Ranges of probabilities in `calibration_error`."""


def accuracy(logits: Floats, labels: Ints, roles: Ints, role: Role) -> float:
    """Share of the devices of a role whose most likely class is theirs."""
    here = np.flatnonzero(roles == role)
    right = logits[here].argmax(axis=1) == labels[here]
    return float(right.mean())


def class_scores(logits: Floats, labels: Ints, roles: Ints, role: Role) -> dict[str, float]:
    """Accuracy, macro-F1 and calibration error over the devices of a role."""
    here = np.flatnonzero(roles == role)
    return {
        "accuracy": accuracy(logits, labels, roles, role),
        "macro_f1": macro_f1(logits[here].argmax(axis=1), labels[here]),
        "calibration_error": calibration_error(logits[here], labels[here]),
    }


def macro_f1(predicted: Ints, labels: Ints) -> float:
    """Mean F1 of all classes that occur, as a label or as a prediction: rare ones count as much."""
    classes = np.union1d(predicted, labels)
    hits = np.array([((predicted == c) & (labels == c)).sum() for c in classes])
    either = np.array([(predicted == c).sum() + (labels == c).sum() for c in classes])
    return float((2 * hits / either).mean()) if len(classes) else 0.0


def calibration_error(logits: Floats, labels: Ints) -> float:
    """How far the probability of the most likely class is from how often it is right.

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


def dot_products(embeddings: Floats, pairs: Ints) -> npt.NDArray[np.float64]:
    """[pairs] of the embeddings of both ends."""
    one, other = (embeddings[pairs[:, end]].astype(np.float64) for end in (0, 1))
    products: npt.NDArray[np.float64] = (one * other).sum(axis=1)
    return products


def link_auc(embeddings: Floats, edges: Ints, strangers: Ints) -> float:
    """AUC of dot products of embeddings, over edges against pairs that are none."""
    return auc(dot_products(embeddings, edges), dot_products(embeddings, strangers))

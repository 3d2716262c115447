"""Scores, computed by the observer of a simulation from what no single participant has."""

import numpy as np
import numpy.typing as npt

from lumos.training.split import Role
from lumos.typing import Floats, Ints


def accuracy(logits: Floats, labels: Ints, roles: Ints, role: Role) -> float:
    """Share of the devices of a role whose most likely class is theirs."""
    here = np.flatnonzero(roles == role)
    right = logits[here].argmax(axis=1) == labels[here]
    return float(right.mean())


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

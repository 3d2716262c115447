"""Scores of pairs: a few learnt weights on likeness, and a tree network on symbols.

**Three scores** are learnt side by side, each a logistic regression: *own*, the asker's own
features against the teller's symbol; *ids*, colours alone, for comparison; *evidence*, everything.
Every device has as many strangers as neighbours in its loss, so a score is a log-likelihood ratio;
what a device adds for itself is the log of the share of devices that are its neighbours, which it
knows.

**The tree network** adds Σ m_w · h_w · ĥ_w: h is the asker's pooled embedding, from what it heard,
and ĥ what the asker makes of the teller's few symbols by the same public weights. Weights m start
at 0. No embedding leaves a device.

Vectors are clipped device by device; a device takes part with at most `PAIRS` neighbours and as
many strangers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from lumos.aggregate.noise import clip_factors
from lumos.model.settings import ModelSettings
from lumos.strict.encoder import LOSS_LIMIT, LOSS_SCALE
from lumos.strict.leaf_table import LeafTable, pooled, table_gradient
from lumos.typing import Doubles, Flags, Ints

PAIRS = 4
"""Most neighbours, and strangers, that count in a device's loss."""
CHUNK = 2048
"""Devices at a time, where the products of all their pairs are made."""


class ScoredPairs(NamedTuple):
    """What askers know of some pairs, at home."""

    rows: Ints
    """[pairs] position of the asker, not decreasing."""
    likeness: Doubles
    """[pairs, f]"""
    own: Ints
    """[pairs] the asker's entry of the codebook, which never leaves."""
    shares: Doubles
    """[pairs, k] frequencies of what the asker heard from its neighbours."""
    theirs: Ints
    """[pairs] the teller's symbol."""
    their_shares: Doubles
    """[pairs, k] frequencies of what the teller tells of its neighbours."""
    prior: Doubles
    """[pairs] log of the share of devices that are the asker's neighbours."""


class LinearScore:
    """The three logistic regressions, their weights as one vector.

    Args:
        blocks: for each of them, the columns of `likeness` that it uses: first, and one past last.
    """

    def __init__(self, blocks: list[tuple[int, int]]) -> None:
        self._blocks = [slice(*block) for block in blocks]
        self._ends = np.cumsum([last - first + 1 for first, last in blocks])

    @property
    def weights(self) -> int:
        """A weight for each column and a bias, for each block."""
        return int(self._ends[-1])

    def scores(self, weights: Doubles, likeness: Doubles) -> list[Doubles]:
        """[pairs] by each block."""
        parts = np.split(weights, self._ends[:-1])
        return [
            likeness[:, block] @ part[:-1] + part[-1]
            for block, part in zip(self._blocks, parts, strict=True)
        ]

    def update(
        self,
        weights: Doubles,
        pairs: ScoredPairs,
        edge: Flags,
        hosted: int,
        clip: float,
        *,
        each: bool,
    ) -> Doubles:
        """Clipped gradients, and the loss of the last block: [hosted, …] each, or their sum."""
        even = _evenly(pairs.rows, hosted)
        parts = []
        for block, scores in zip(self._blocks, self.scores(weights, pairs.likeness), strict=True):
            slope, loss = logistic_slope(scores, edge)
            adding = _adding(pairs.rows, hosted, slope * even)
            parts += [adding @ pairs.likeness[:, block], _added(adding)[:, None]]
        losses = _added(_adding(pairs.rows, hosted, loss * even))
        return clipped(np.concatenate(parts, axis=1), losses, clip, each=each)


class TreeScore:
    """The tree network's part of a score; its weights as one vector.

    Args:
        settings: backbone and widths; two layers.
        symbols: k.
        generator: public coins for the start.
    """

    def __init__(
        self, settings: ModelSettings, symbols: int, generator: np.random.Generator
    ) -> None:
        self._symbols = symbols
        self._leaves = LeafTable(settings, symbols, symbols, generator)
        self._scales = np.zeros(self._leaves.width)

    @property
    def width(self) -> int:
        """Numbers in one device's update: table, m, loss."""
        return self._leaves.size + len(self._scales) + 1

    def vector(self) -> Doubles:
        """[weights] tree network, then m."""
        return np.concatenate([self._leaves.vector(), self._scales])

    def load(self, vector: Doubles) -> None:
        """Set all weights."""
        count = len(vector) - len(self._scales)
        self._leaves.load(vector[:count])
        self._scales = vector[count:].copy()

    def gradient(self, total: Doubles) -> Doubles:
        """From a sum of updates to the gradient of all weights: back through the tree network."""
        size = self._leaves.size
        return np.concatenate([self._leaves.back(total[:size]), total[size:-1]])

    def embeddings(self, own: Ints, shares: Doubles) -> Doubles:
        """[rows, width] h: pooled leaves."""
        return pooled(self._leaves.table(), own, shares)

    def scores(self, pairs: ScoredPairs) -> Doubles:
        """[pairs] what is added to the evidence."""
        table = self._leaves.table()
        mine = pooled(table, pairs.own, pairs.shares)
        added: Doubles = (mine * pooled(table, pairs.theirs, pairs.their_shares)) @ self._scales
        return added

    def update(
        self,
        pairs: ScoredPairs,
        evidence: Doubles,
        edge: Flags,
        hosted: int,
        clip: float,
        *,
        each: bool,
    ) -> Doubles:
        """Clipped updates: [hosted, width] each, or their sum [width]."""
        table = self._leaves.table()
        mine = pooled(table, pairs.own, pairs.shares)
        theirs = pooled(table, pairs.theirs, pairs.their_shares)
        slope, loss = logistic_slope(evidence + (mine * theirs) @ self._scales, edge)
        even = _evenly(pairs.rows, hosted)
        slope = (slope * even)[:, None]
        losses = _added(_adding(pairs.rows, hosted, loss * even))
        told = LOSS_SCALE * np.minimum(losses, LOSS_LIMIT)
        scales = np.asarray(_adding(pairs.rows, hosted, slope[:, 0]) @ (mine * theirs))
        sides = (
            (pairs.own, pairs.shares, theirs * self._scales * slope),
            (pairs.theirs, pairs.their_shares, mine * self._scales * slope),
        )
        squares = _squares(pairs.rows, hosted, sides) + (scales**2).sum(axis=1) + told**2
        factor = clip_factors(np.sqrt(squares), clip)
        k = self._symbols
        if not each:
            ours = factor[pairs.rows][:, None]
            table = np.zeros((k, k, self._leaves.width))
            for symbol, shares, back in sides:
                table += table_gradient(k, symbol, shares, back * ours)
            return np.concatenate([np.ravel(table), factor @ scales, [factor @ told]])
        tables = np.zeros((hosted, k, k, self._leaves.width))
        for symbol, shares, back in sides:
            np.add.at(tables, (pairs.rows, symbol), np.einsum("pk,pw->pkw", shares, back))
        whole = np.concatenate([tables.reshape(hosted, -1), scales, told[:, None]], axis=1)
        return whole * factor[:, None]


def logistic_slope(scores: Doubles, edge: Flags) -> tuple[Doubles, Doubles]:
    """Derivative of the log-loss with respect to the score, and the log-loss: [pairs] each."""
    sign = np.where(edge, 1.0, -1.0)
    loss = np.logaddexp(0, -sign * scores)
    slope: Doubles = -sign * np.exp(-np.logaddexp(0, sign * scores))
    return slope, loss


def clipped(vectors: Doubles, losses: Doubles, clip: float, *, each: bool) -> Doubles:
    """Vectors with the loss as last number, clipped: [hosted, …] each, or their sum."""
    told = LOSS_SCALE * np.minimum(losses, LOSS_LIMIT)
    whole = np.concatenate([vectors, told[:, None]], axis=1)
    factor = clip_factors(np.linalg.norm(whole, axis=1), clip)
    if each:
        return whole * factor[:, None]
    total: Doubles = factor @ whole
    return total


def _squares(rows: Ints, hosted: int, sides: Sequence[tuple[Ints, Doubles, Doubles]]) -> Doubles:
    """[hosted] squared norm of each device's gradient of the table, without making it.

    It is a sum of outer products e_symbol ⊗ shares ⊗ slope, so its square is a sum over pairs of
    products of inner products. O(hosted · pairs² · (k + width)), with pairs of one device.
    """
    many = np.bincount(rows, minlength=hosted)
    start = np.cumsum(many) - many
    most = int(many.max(initial=0))
    found = np.zeros(hosted)
    for first in range(0, hosted, CHUNK):
        some = slice(first, first + CHUNK)
        there = np.arange(most) < many[some, None]
        place = np.where(there, start[some, None] + np.arange(most), 0)
        symbol = np.concatenate([side[0][place] for side in sides], axis=1)
        shares = np.concatenate([side[1][place] for side in sides], axis=1)
        slopes = np.concatenate([side[2][place] * there[:, :, None] for side in sides], axis=1)
        products = (shares @ shares.swapaxes(1, 2)) * (slopes @ slopes.swapaxes(1, 2))
        found[some] = (products * (symbol[:, :, None] == symbol[:, None, :])).sum(axis=(1, 2))
    return np.maximum(found, 0)


def _adding(rows: Ints, hosted: int, weights: Doubles) -> csr_array:
    """[hosted, pairs] a matrix that adds up the pairs of each device; `rows` do not decrease."""
    starts = np.searchsorted(rows, np.arange(hosted + 1))
    return csr_array((weights, np.arange(len(rows)), starts), (hosted, len(rows)))


def _added(adding: csr_array) -> Doubles:
    """[hosted] the sum of each row."""
    return np.asarray(adding.sum(axis=1), np.float64).ravel()


def _evenly(rows: Ints, hosted: int) -> Doubles:
    """[pairs] one over the number of pairs of the same device: each device weighs the same."""
    share: Doubles = 1 / np.maximum(np.bincount(rows, minlength=hosted), 1)[rows]
    return share


def ranges(scores: Doubles, bins: int) -> Ints:
    """[pairs] which of `bins` equal ranges of -12 … 12 a score falls into; ends are open."""
    place = np.floor((scores + REACH) / (2 * REACH) * bins).astype(np.int64)
    return np.clip(place, 0, bins - 1)


REACH = 12.0


def auc_of_ranges(edges: Doubles, strangers: Doubles, noise: float) -> tuple[float, float]:
    """AUC from noisy counts of scores by range, and its standard error.

    The error has two parts: of a sample of so many pairs (Hanley and McNeil 1982), and of noise
    of standard deviation `noise` in every count.
    """
    edges, strangers = np.maximum(edges, 0), np.maximum(strangers, 0)
    many, others = edges.sum(), strangers.sum()
    if many < 1 or others < 1:
        return 0.5, 1.0
    below = (np.cumsum(strangers) - strangers / 2) / others
    above = (edges[::-1].cumsum()[::-1] - edges / 2) / many
    area = float(edges @ below / many)
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    sampling = area * (1 - area) + (many - 1) * (q1 - area**2) + (others - 1) * (q2 - area**2)
    drawn = ((below - area) ** 2).sum() / many**2 + ((above - area) ** 2).sum() / others**2
    return area, float(np.sqrt(max(sampling, 0) / (many * others) + noise**2 * drawn))

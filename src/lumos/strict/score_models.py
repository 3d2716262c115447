"""Scores of pairs: logistic regressions on similarities, and a tree network on symbols.

**Three regressions** are learnt side by side: *own*, the asker's own features against the
answerer's symbol; *ids*, colours alone, for comparison; *evidence*, all similarities. Every device
has as many strangers as neighbours in its loss, so a score is a log-likelihood ratio; the asker
adds the log of the share of devices that are its neighbours, which it knows.

**The tree network** adds Σ m_w · h_w · ĥ_w: h is the asker's pooled embedding, from the symbols it
received, and ĥ the one that the asker computes from the answer by the same public weights. Weights
m start at 0. No embedding leaves a device.

Vectors are clipped device by device; a device takes part with at most `PAIRS` neighbours and as
many strangers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from lumos.aggregate.noise import clip_factors
from lumos.model.settings import ModelSettings
from lumos.strict.leaf_table import LeafTable, pooled, table_gradient
from lumos.strict.own_classifier import LOSS_LIMIT, LOSS_SCALE
from lumos.typing import Doubles, Flags, Ints

PAIRS = 4
"""Largest number of neighbours, and of strangers, in a device's loss."""
CHUNK = 2048
"""Devices at a time, where products of all their pairs are computed."""


class ScoredPairs(NamedTuple):
    """The inputs of the scores of some pairs. They stay on the asker."""

    rows: Ints
    """[pairs] position of the asker, not decreasing."""
    similarity: Doubles
    """[pairs, f] see `lumos.strict.similarity`."""
    own: Ints
    """[pairs] the asker's entry of the codebook, which never leaves."""
    frequencies: Doubles
    """[pairs, k] of the symbols that the asker received from its neighbours."""
    theirs: Ints
    """[pairs] the answerer's symbol."""
    their_frequencies: Doubles
    """[pairs, k] of the draws of hop 1 in the answer."""
    prior: Doubles
    """[pairs] log of the share of devices that are the asker's neighbours."""


class LabelledPairs(NamedTuple):
    """Pairs to train or to validate on."""

    pairs: ScoredPairs
    edge: Flags
    """[pairs] whether the pair is an edge."""

    @classmethod
    def of(cls, edges: ScoredPairs, strangers: ScoredPairs) -> "LabelledPairs":
        """Edges and strangers together, by asker."""
        edge = np.repeat([True, False], [len(edges.rows), len(strangers.rows)])
        columns = [np.concatenate(column) for column in zip(edges, strangers, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return cls(ScoredPairs(*(column[order] for column in columns)), edge[order])


class LinearScore:
    """The three logistic regressions, their weights as one vector.

    Args:
        blocks: for each, the columns of `similarity` that it uses: first, and one past last.
    """

    def __init__(self, blocks: list[tuple[int, int]]) -> None:
        self._blocks = [slice(*block) for block in blocks]
        self._ends = np.cumsum([last - first + 1 for first, last in blocks])

    @property
    def weights(self) -> int:
        """A weight for each column and a bias, for each block."""
        return int(self._ends[-1])

    def scores(self, weights: Doubles, similarity: Doubles) -> list[Doubles]:
        """[pairs] by each block."""
        parts = np.split(weights, self._ends[:-1])
        return [
            similarity[:, block] @ part[:-1] + part[-1]
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
        weight = _pair_weights(pairs.rows, hosted)
        parts = []
        for block, scores in zip(self._blocks, self.scores(weights, pairs.similarity), strict=True):
            slope, loss = logistic_slope(scores, edge)
            summing = _summing(pairs.rows, hosted, slope * weight)
            parts += [summing @ pairs.similarity[:, block], _row_sums(summing)[:, None]]
        losses = _row_sums(_summing(pairs.rows, hosted, loss * weight))
        return clipped(np.concatenate(parts, axis=1), losses, clip, each=each)


class TreeScore:
    """The tree network's part of a score; its weights as one vector.

    Args:
        settings: backbone and widths; two layers.
        symbols: k.
        generator: public coins for the initial weights.
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
        return np.concatenate([self._leaves.backward(total[:size]), total[size:-1]])

    def embeddings(self, own: Ints, frequencies: Doubles) -> Doubles:
        """[rows, width] h: pooled leaves."""
        return pooled(self._leaves.table(), own, frequencies)

    def scores(self, pairs: ScoredPairs) -> Doubles:
        """[pairs] the term that is added to the score by all similarities."""
        table = self._leaves.table()
        mine = pooled(table, pairs.own, pairs.frequencies)
        added: Doubles = (
            mine * pooled(table, pairs.theirs, pairs.their_frequencies)
        ) @ self._scales
        return added

    def update(
        self,
        pairs: ScoredPairs,
        base: Doubles,
        edge: Flags,
        hosted: int,
        clip: float,
        *,
        each: bool,
    ) -> Doubles:
        """Clipped updates: [hosted, width] each, or their sum [width].

        Args:
            base: [pairs] the score that the tree network adds to.
            edge: [pairs] whether the pair is an edge.
        """
        table = self._leaves.table()
        mine = pooled(table, pairs.own, pairs.frequencies)
        theirs = pooled(table, pairs.theirs, pairs.their_frequencies)
        slope, loss = logistic_slope(base + (mine * theirs) @ self._scales, edge)
        weight = _pair_weights(pairs.rows, hosted)
        slope = (slope * weight)[:, None]
        losses = _row_sums(_summing(pairs.rows, hosted, loss * weight))
        scaled_loss = LOSS_SCALE * np.minimum(losses, LOSS_LIMIT)
        scales = np.asarray(_summing(pairs.rows, hosted, slope[:, 0]) @ (mine * theirs))
        sides = (
            (pairs.own, pairs.frequencies, theirs * self._scales * slope),
            (pairs.theirs, pairs.their_frequencies, mine * self._scales * slope),
        )
        squares = _squares(pairs.rows, hosted, sides) + (scales**2).sum(axis=1) + scaled_loss**2
        factor = clip_factors(np.sqrt(squares), clip)
        k = self._symbols
        if not each:
            by_pair = factor[pairs.rows][:, None]
            table = np.zeros((k, k, self._leaves.width))
            for symbol, frequencies, back in sides:
                table += table_gradient(k, symbol, frequencies, back * by_pair)
            return np.concatenate([np.ravel(table), factor @ scales, [factor @ scaled_loss]])
        tables = np.zeros((hosted, k, k, self._leaves.width))
        for symbol, frequencies, back in sides:
            np.add.at(tables, (pairs.rows, symbol), np.einsum("pk,pw->pkw", frequencies, back))
        whole = np.concatenate([tables.reshape(hosted, -1), scales, scaled_loss[:, None]], axis=1)
        return whole * factor[:, None]


def logistic_slope(scores: Doubles, edge: Flags) -> tuple[Doubles, Doubles]:
    """Derivative of the log-loss with respect to the score, and the log-loss: [pairs] each."""
    sign = np.where(edge, 1.0, -1.0)
    loss = np.logaddexp(0, -sign * scores)
    slope: Doubles = -sign * np.exp(-np.logaddexp(0, sign * scores))
    return slope, loss


def clipped(vectors: Doubles, losses: Doubles, clip: float, *, each: bool) -> Doubles:
    """Vectors with the loss as last number, clipped: [hosted, …] each, or their sum."""
    scaled_loss = LOSS_SCALE * np.minimum(losses, LOSS_LIMIT)
    whole = np.concatenate([vectors, scaled_loss[:, None]], axis=1)
    factor = clip_factors(np.linalg.norm(whole, axis=1), clip)
    if each:
        return whole * factor[:, None]
    total: Doubles = factor @ whole
    return total


def _squares(rows: Ints, hosted: int, sides: Sequence[tuple[Ints, Doubles, Doubles]]) -> Doubles:
    """[hosted] squared norm of each device's gradient of the table, without computing the gradient.

    It is a sum of outer products e_symbol ⊗ frequencies ⊗ slope, so its square is a sum over pairs
    of products of inner products. O(hosted · pairs² · (k + width)), with pairs of one device.
    """
    many = np.bincount(rows, minlength=hosted)
    start = np.cumsum(many) - many
    most = int(many.max(initial=0))
    squares = np.zeros(hosted)
    for first in range(0, hosted, CHUNK):
        some = slice(first, first + CHUNK)
        there = np.arange(most) < many[some, None]
        place = np.where(there, start[some, None] + np.arange(most), 0)
        symbol = np.concatenate([side[0][place] for side in sides], axis=1)
        frequencies = np.concatenate([side[1][place] for side in sides], axis=1)
        slopes = np.concatenate([side[2][place] * there[:, :, None] for side in sides], axis=1)
        products = (frequencies @ frequencies.swapaxes(1, 2)) * (slopes @ slopes.swapaxes(1, 2))
        squares[some] = (products * (symbol[:, :, None] == symbol[:, None, :])).sum(axis=(1, 2))
    return np.maximum(squares, 0)


def _summing(rows: Ints, hosted: int, weights: Doubles) -> csr_array:
    """[hosted, pairs] a matrix that sums over the pairs of each device; `rows` do not decrease."""
    starts = np.searchsorted(rows, np.arange(hosted + 1))
    return csr_array((weights, np.arange(len(rows)), starts), (hosted, len(rows)))


def _row_sums(summing: csr_array) -> Doubles:
    """[hosted] the sum of each row."""
    return np.asarray(summing.sum(axis=1), np.float64).ravel()


def _pair_weights(rows: Ints, hosted: int) -> Doubles:
    """[pairs] one over the number of pairs of the same device: all devices have equal weight."""
    weights: Doubles = 1 / np.maximum(np.bincount(rows, minlength=hosted), 1)[rows]
    return weights

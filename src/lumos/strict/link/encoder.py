"""A random matching of edges by proposals: every device has at most one partner.

In each of some rounds a device without a partner tosses a random bit. Heads: it draws one of its
places, of which it has a least number, and proposes to the candidate there, if there is one. Tails:
it accepts one of the proposals that it receives. Every proposal gets an answer.

What it tells: a device learns that a candidate proposed to it, and a proposer whether it was
accepted: one bit each, through the door `control`. A device with few candidates would propose to
each of them more often. Empty places hide how few they are; beyond the least number of places,
proposals tell something about degrees (measured in docs/strict.md).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, diags_array

from lumos.device.randomness import PublicRandomness
from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.ldp.bounds import Features
from lumos.secagg.noise import Noise
from lumos.strict.features import row_products
from lumos.strict.messages import PROPOSAL, REPLY
from lumos.typing import Arrays, Doubles, Flags, Ints, Small

if TYPE_CHECKING:
    from lumos.strict.link.stages import LinkSchedule

ROUNDS = 10
"""On Facebook ten rounds match 59 % of all devices."""
PLACES = 8
"""Devices with fewer neighbours propose to each of them as if they had so many. Of edges that are
held back a device has few, whatever its degree."""
NOBODY = -1


def match(
    shard: Shard,
    rows: Ints,
    peers: Ints,
    purpose: str,
    places: int = 1,
    *,
    looking: Flags | None = None,
) -> Program[Ints]:
    """Match hosted devices with one of their candidates, or with one that proposes to them.

    Args:
        rows: [candidates] positions of hosted devices, not decreasing.
        peers: [candidates] ids.
        purpose: names the randomness.
        places: least number of places that a device draws from.
        looking: [hosted] who takes part, everybody by default; all others refuse.

    Returns:
        [hosted] ids of the partners, `NOBODY` where there is none.
    """
    hosted, randomness = len(shard), shard.randomness
    everyone = np.arange(hosted)
    counts = np.bincount(rows, minlength=hosted)
    first = np.cumsum(counts) - counts
    partner = np.full(hosted, NOBODY)
    free = np.ones(hosted, np.bool_) if looking is None else looking.copy()
    for number in range(ROUNDS):
        chance = randomness.uniform(everyone, f"{purpose}/round", number, 3)
        proposing = (chance[:, 0] < 0.5) & free
        place = np.floor(chance[:, 1] * np.maximum(counts, places)).astype(np.int64)
        asking = np.flatnonzero(proposing & (place < counts))
        chosen = peers[first[asking] + place[asking]]
        inbox = yield PROPOSAL.send(shard.ids_of(asking), chosen, 0)
        accepted = _accepted(shard, inbox.receiver, ~proposing & free, chance[:, 2])
        answers = yield REPLY.send(inbox.receiver, inbox.sender, accepted.astype(np.uint8))
        taken = shard.local(inbox.receiver[accepted])
        partner[taken] = inbox.sender[accepted]
        proposers = shard.local(answers.receiver)
        if not np.array_equal(proposers, asking) or not np.array_equal(answers.sender, chosen):
            raise ProtocolError("a proposal was not answered, or an answer was not asked for")
        happy = answers.body.astype(np.bool_)
        partner[proposers[happy]] = answers.sender[happy]
        free &= partner == NOBODY
    return partner


def _accepted(shard: Shard, receiver: Ints, free: Flags, chance: Doubles) -> Flags:
    """[proposals] for each free device one of those that it received, drawn by its random bit.

    Args:
        receiver: [proposals] ids, not decreasing.
        free: [hosted]
        chance: [hosted] in (0, 1).
    """
    rows = shard.local(receiver)
    counts = np.bincount(rows, minlength=len(shard))
    first = np.cumsum(counts) - counts
    place = np.arange(len(rows)) - first[rows]
    chosen: Flags = free[rows] & (place == np.floor(chance[rows] * counts[rows]).astype(np.int64))
    return chosen


# The encoder of `link`: words of devices, and embeddings that are close where devices are linked.
#
# A word is a feature that is not zero; where features may be negative, a negative one is another
# word than a positive one.
#
# Power iteration. z = unit(xᵀE) embeds the weighted words x of a device. A sum of b_u ⊗ z_v + b_v ⊗
# z_u over matched edges (u, v), with few words b of each device, is Bᵀ A Z: next E is its
# orthogonal basis. After a few sums E spans the directions of words that neighbours share most.
# Rare words weigh more: a sum of counts says which are rare. At the end embeddings are whitened
# half way.
#
# Every device computes its own embedding; E and the whitening are public, and carry noise.

COUNTED = 32
"""Words of a device that count in full in the sum of counts; with more, each counts less."""


class TokenRows:
    """Words, and what is made of them at home.

    Args:
        features: [hosted, d].
        signed: whether features may be negative; otherwise negative ones are no words.
    """

    def __init__(self, features: Features, *, signed: bool) -> None:
        given: Any = features
        rows: Any = csr_array(given).astype(np.float64)
        parts = [rows.maximum(0)] + ([(-rows).maximum(0)] if signed else [])
        columns = [csr_array(part).tocoo() for part in parts]
        d = rows.shape[1]
        row = np.concatenate([part.row for part in columns])
        column = np.concatenate([part.col + place * d for place, part in enumerate(columns)])
        width = d * len(parts)
        values = np.concatenate([part.data for part in columns])
        kept = values > 0
        self._values = csr_array(
            (values[kept], (row[kept], column[kept])), shape=(rows.shape[0], width)
        )
        """[hosted, words] positive."""
        self._values.sum_duplicates()
        self.width = width

    def replaced(self, columns: Ints) -> None:
        """Give every word of every device another name: [words] (the control)."""
        self._values = csr_array(
            (self._values.data, columns, self._values.indptr), shape=self._values.shape
        )
        self._values.sum_duplicates()

    @property
    def held(self) -> Ints:
        """[hosted] number of words of each device."""
        return np.diff(self._values.indptr)

    def _presence(self) -> csr_array:
        """[hosted, words] 1 where a device has the word."""
        values = self._values
        return csr_array((np.ones(values.nnz), values.indices, values.indptr), shape=values.shape)

    def shares(self) -> csr_array:
        """[hosted, words] rows of norm at most 1: equal numbers, 1/√`COUNTED` or smaller."""
        scale = 1 / np.sqrt(np.maximum(self.held, COUNTED))
        return csr_array(diags_array(scale) @ self._presence())

    def weighted(self, weights: Doubles) -> csr_array:
        """[hosted, words] rows of norm 1, each word times its weight; empty rows stay empty."""
        rows = csr_array(self._values @ diags_array(weights))
        norms = np.sqrt(rows.power(2).sum(axis=1))
        return csr_array(diags_array(1 / np.maximum(norms, 1e-300)) @ rows)

    def chosen(self, weights: Doubles, most: int) -> csr_array:
        """[hosted, words] 1 for the `most` words of each device that weigh most.

        Words of equal weight are taken in the order of their columns.
        """
        rows = csr_array(self._values @ diags_array(weights))
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        order = np.lexsort((rows.indices, -rows.data, owner))
        place = np.arange(len(order)) - rows.indptr[:-1][owner]
        taken = order[place < most]
        return csr_array(
            (np.ones(len(taken)), (owner[taken], rows.indices[taken])), shape=rows.shape
        )


Z_STEPS = 128
"""Embeddings enter products as multiples of 1/128."""
MIN_COUNT = 40.0
"""Words are taken to have so many holders at least."""
FLATTEN = 0.25
"""Directions are scaled by their variance to the power of -1/4: half way to equal ones."""
MIN_VARIANCE = 0.01
"""Smallest variance of a direction that is used, in those of the largest."""


class LinkEncoder:
    """The encoder of one shard: public matrices, and the hosted devices' words.

    Args:
        words: of the hosted devices.
        schedule: everything public.
        public: public randomness, for the start.
    """

    def __init__(
        self, words: TokenRows, schedule: "LinkSchedule", public: PublicRandomness
    ) -> None:
        self._words = words
        self._most = schedule.strict.tokens
        size = schedule.strict.embedding
        self.basis: Doubles = public.generator("basis").standard_normal((words.width, size))
        """[words, K] E."""
        self.mixing: Doubles = np.eye(size)
        """[K, K] whitening."""
        self._weigh(np.ones(words.width))

    def _weigh(self, weights: Doubles) -> None:
        self.weights = weights
        """[words]"""
        self._rows = self._words.weighted(weights)
        self.chosen: csr_array = self._words.chosen(weights, self._most)
        """[hosted, words] 0 or 1: b."""

    def learn_counts(self, total: Doubles, noise: Noise | None) -> None:
        """Take the sum of counts."""
        spread = 0.0 if noise is None else noise.total
        root = np.sqrt(COUNTED)
        self._weigh(np.maximum(total * root, max(MIN_COUNT, 2 * spread * root)) ** -0.5)

    def learn_products(self, total: Doubles) -> None:
        """Take a sum of products, [words · K]; directions beyond the number of words are 0."""
        found = np.linalg.qr(total.reshape(self.basis.shape))[0]
        self.basis = np.zeros_like(self.basis)
        self.basis[:, : found.shape[1]] = found

    def learn_spread(self, total: Doubles) -> None:
        """Take the sum of `spread`."""
        size = self.basis.shape[1]
        matrix = np.zeros((size, size))
        above = np.triu_indices(size)
        matrix[above] = total / np.where(above[0] == above[1], 1, np.sqrt(2))
        matrix = matrix + matrix.T - np.diag(np.diag(matrix))
        variance, directions = np.linalg.eigh(matrix)
        variance = np.maximum(variance, MIN_VARIANCE * max(float(variance.max()), 1e-12))
        self.mixing = directions * variance**-FLATTEN

    def embeddings(self) -> Doubles:
        """[hosted, K] of norm 1; 0 for a device without words."""
        return unit(row_products(row_products(self._rows, self.basis), self.mixing))

    def integers(self) -> Small:
        """[hosted, K] embeddings as multiples of 1/`Z_STEPS`, never longer than they are."""
        return np.trunc(self.embeddings() * (Z_STEPS - 1)).astype(np.int8)

    def spread(self) -> Doubles:
        """[hosted, K (K + 1) / 2] z zᵀ, the upper half, with the norm of the whole matrix."""
        z = self.embeddings()
        first, second = np.triu_indices(z.shape[1])
        products = z[:, first] * z[:, second] * np.where(first == second, 1, np.sqrt(2))
        return np.ascontiguousarray(products)

    def state_dict(self) -> Arrays:
        """Everything that was learnt."""
        return {"weights": self.weights, "basis": self.basis, "mixing": self.mixing}

    def load_state_dict(self, arrays: Arrays) -> None:
        """Take what was learnt before."""
        self.basis, self.mixing = arrays["basis"], arrays["mixing"]
        self._weigh(arrays["weights"])


def unit(rows: Doubles) -> Doubles:
    """Rows of norm 1; rows of zeros stay."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    scaled: Doubles = rows / np.maximum(norms, 1e-12)
    return scaled

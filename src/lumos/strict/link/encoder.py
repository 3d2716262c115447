"""The encoder of tokens, and the random matching of held-back edges.

**Encoder.** A token is a feature that is not zero; if features may be negative, a negative value is
another token than a positive one. A sum of x ⊗ s over all devices, of their weighted tokens x and
neighbourhood sketches s (`levels`), is XᵀS: what each token tells of the neighbourhood that a
device is in. z = unit(xᵀE) embeds a device by its tokens, where E is that sum: the sketch that a
device with these tokens is expected to have. Rare tokens have larger weights, by a sum of counts.
At the end embeddings are whitened half way. Every device computes its own embedding; E and the
whitening are public, and carry noise.

**Matching.** Every device has at most one partner for calibration. In each round a device without
one draws a random bit. Heads: it proposes to one of its candidates. Tails: it accepts one of the
proposals that it receives. Every proposal gets a reply; silence is a no. A device learns that a
candidate proposed to it, and a proposer whether it was accepted: one bit each, through the door
`control`.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, diags_array

from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.ldp.bounds import Features
from lumos.secagg.noise import Noise
from lumos.strict.features import row_products
from lumos.strict.messages import PROPOSAL, REPLY
from lumos.typing import Arrays, Doubles, Flags, Ints

if TYPE_CHECKING:
    from lumos.strict.link.stages import LinkSchedule

ROUNDS = 10
"""Rounds of proposals."""
NOBODY = -1


def match(shard: Shard, rows: Ints, peers: Ints, purpose: str) -> Program[Ints]:
    """Match hosted devices with one of their candidates, or with one that proposes to them.

    The other end does not know whose candidate it is, so it can refuse no proposal as unfounded.

    Args:
        rows: [candidates] positions of hosted devices, not decreasing.
        peers: [candidates] ids.
        purpose: names the randomness.

    Returns:
        [hosted] ids of the partners, `NOBODY` where there is none.
    """
    hosted = len(shard)
    everyone = np.arange(hosted)
    counts = np.bincount(rows, minlength=hosted)
    first = np.cumsum(counts) - counts
    partner = np.full(hosted, NOBODY)
    free = np.ones(hosted, np.bool_)
    for number in range(ROUNDS):
        chance = shard.randomness.uniform(everyone, f"{purpose}/round", number, 3)
        proposing = (chance[:, 0] < 0.5) & free
        asking = np.flatnonzero(proposing & (counts > 0))
        place = np.floor(chance[asking, 1] * counts[asking]).astype(np.int64)
        chosen = peers[first[asking] + place]
        inbox = yield PROPOSAL.send(shard.ids_of(asking), chosen, 0)
        receiver, sender = inbox.receiver, inbox.sender
        accepted = _accepted(shard, receiver, ~proposing & free, chance[:, 2])
        replies = yield REPLY.send(receiver, sender, accepted.astype(np.uint8))
        partner[shard.local(receiver[accepted])] = sender[accepted]
        # No reply is a no, and a reply without a proposal is none.
        asked = np.full(hosted, NOBODY)
        asked[asking] = chosen
        proposers = shard.local(replies.receiver)
        matched = (replies.sender == asked[proposers]) & replies.body.astype(np.bool_)
        partner[proposers[matched]] = replies.sender[matched]
        free &= partner == NOBODY
    return partner


def _accepted(shard: Shard, receiver: Ints, free: Flags, chance: Doubles) -> Flags:
    """Return [proposals] whether it is the one that its receiver accepts, drawn by `chance`.

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


COUNTED = 32
"""Tokens of a device that have full weight in the sum of counts; with more, each has less."""


class TokenRows:
    """The tokens of the hosted devices.

    Args:
        features: [hosted, d].
        signed: whether features may be negative; otherwise negative values are ignored.
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
        """[hosted, tokens] positive."""
        self._values.sum_duplicates()
        self.width = width

    def replaced(self, columns: Ints) -> None:
        """Replace the column of every token of every device: [tokens] (control run)."""
        self._values = csr_array(
            (self._values.data, columns, self._values.indptr), shape=self._values.shape
        )
        self._values.sum_duplicates()

    @property
    def held(self) -> Ints:
        """[hosted] number of tokens of each device."""
        return np.diff(self._values.indptr)

    def _presence(self) -> csr_array:
        """Return [hosted, tokens] 1 where a device has the token."""
        values = self._values
        return csr_array((np.ones(values.nnz), values.indices, values.indptr), shape=values.shape)

    def shares(self) -> csr_array:
        """Return [hosted, tokens] rows of norm at most 1, with equal values up to 1/√`COUNTED`."""
        scale = 1 / np.sqrt(np.maximum(self.held, COUNTED))
        return csr_array(diags_array(scale) @ self._presence())

    def weighted(self, weights: Doubles) -> csr_array:
        """Return [hosted, tokens] weighted rows of norm 1; empty rows stay empty."""
        rows = csr_array(self._values @ diags_array(weights))
        norms = np.sqrt(rows.power(2).sum(axis=1))
        return csr_array(diags_array(1 / np.maximum(norms, 1e-300)) @ rows)


AT_ONCE = 1 << 18
"""Tokens of devices whose products are computed at a time."""
MIN_COUNT = 40.0
"""Smallest number of holders that a token is assumed to have."""
FLATTEN = 0.25
"""Exponent of whitening: directions are scaled by variance^-1/4, half way to equal variances."""
MIN_VARIANCE = 0.01
"""Smallest variance of a direction, relative to the largest."""


class LinkEncoder:
    """The encoder of one shard: public matrices, and the hosted devices' tokens.

    Args:
        tokens: the tokens of the hosted devices.
        schedule: everything public.
    """

    def __init__(self, tokens: TokenRows, schedule: "LinkSchedule") -> None:
        self._tokens = tokens
        size = schedule.random_marks
        self.basis: Doubles = np.zeros((tokens.width, size))
        """[tokens, K] the association of each token with each random mark."""
        self.mixing: Doubles = np.eye(size)
        """[K, K] the whitening matrix."""
        self._weigh(np.ones(tokens.width))

    def _weigh(self, weights: Doubles) -> None:
        self.weights = weights
        """[tokens]"""
        self._rows = self._tokens.weighted(weights)

    def learn_counts(self, total: Doubles, noise: Noise | None) -> None:
        """Learn the weights of tokens from the sum of counts."""
        spread = 0.0 if noise is None else noise.total
        root = np.sqrt(COUNTED)
        self._weigh(np.maximum(total * root, max(MIN_COUNT, 2 * spread * root)) ** -0.5)

    def learn_associations(self, total: Doubles, noise: Noise | None) -> None:
        """Learn the basis from the sum of `associations`.

        Rows are shrunk by the positive-part James-Stein estimator: the row of a rare token is
        mostly noise, and becomes 0.
        """
        rows = total.reshape(self.basis.shape)
        if noise is not None:
            energy = (rows * rows).sum(axis=1, keepdims=True)
            expected = self.basis.shape[1] * noise.total**2
            rows = rows * np.maximum(0.0, 1 - expected / np.maximum(energy, expected))
        self.basis = rows

    def learn_spread(self, total: Doubles) -> None:
        """Learn the whitening from the sum of `spread`."""
        size = self.basis.shape[1]
        matrix = np.zeros((size, size))
        above = np.triu_indices(size)
        matrix[above] = total / np.where(above[0] == above[1], 1, np.sqrt(2))
        matrix = matrix + matrix.T - np.diag(np.diag(matrix))
        variance, directions = np.linalg.eigh(matrix)
        largest = np.abs(directions).argmax(axis=0)
        directions = directions * np.sign(directions[largest, np.arange(size)])  # on any processor
        variance = np.maximum(variance, MIN_VARIANCE * max(float(variance.max()), 1e-12))
        self.mixing = directions * variance**-FLATTEN

    def embeddings(self) -> Doubles:
        """Return [hosted, K] unit embeddings; 0 for a device without tokens."""
        return unit(row_products(row_products(self._rows, self.basis), self.mixing))

    def associations(self, sketch: Doubles, fraction_bits: int, *, each: bool) -> Doubles:
        """Return [hosted, tokens · K] x ⊗ s of each device, or their sum.

        Numbers are rounded towards 0 to the fixed point, so that no norm exceeds 1.

        Args:
            sketch: [hosted, K] s, of norm at most 1.
        """
        rows, steps = self._rows, 2.0**fraction_bits
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))

        def products(some: slice) -> Doubles:
            numbers: Doubles = np.trunc(rows.data[some, None] * sketch[owner[some]] * steps) / steps
            return numbers

        if each:
            of_devices = np.zeros((*rows.shape, sketch.shape[1]))
            of_devices[owner, rows.indices] = products(slice(None))
            return of_devices.reshape(len(sketch), rows.shape[1] * sketch.shape[1])
        total = np.zeros((rows.shape[1], sketch.shape[1]))
        for start in range(0, len(owner), AT_ONCE):
            tokens = rows.indices[start : start + AT_ONCE]
            places = (np.ones(len(tokens)), (tokens, np.arange(len(tokens))))
            chosen = csr_array(places, shape=(len(total), len(tokens)))
            total += np.asarray(chosen @ products(slice(start, start + AT_ONCE)))
        return total.ravel()

    def spread(self) -> Doubles:
        """Return [hosted, K (K + 1) / 2] the upper half of z zᵀ, with the norm of z zᵀ."""
        z = self.embeddings()
        first, second = np.triu_indices(z.shape[1])
        products = z[:, first] * z[:, second] * np.where(first == second, 1, np.sqrt(2))
        return np.ascontiguousarray(products)

    def state_dict(self) -> Arrays:
        """Return everything that was learnt."""
        return {"weights": self.weights, "basis": self.basis, "mixing": self.mixing}

    def load_state_dict(self, arrays: Arrays) -> None:
        """Load everything that was learnt before."""
        self.basis, self.mixing = arrays["basis"], arrays["mixing"]
        self._weigh(arrays["weights"])


def unit(rows: Doubles) -> Doubles:
    """Return rows of norm 1; rows of zeros stay."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    scaled: Doubles = rows / np.maximum(norms, 1e-12)
    return scaled

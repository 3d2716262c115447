"""The vectors that two devices compare, the buckets of their score, and their calibration.

**Score buckets.** A device has three vectors: of its tokens, of its neighbourhood sketch, and of
both. Each is rounded to small integers, so that two devices can compute the bucket (in code, the
level) of their product together (`lumos.twoparty.score`). Noisy histograms count the buckets of
held-back edges and of non-neighbours. They choose the vector that separates edges from
non-neighbours best, the thresholds, and the evidence of each bucket. Where devices are few, all
calibrate the vector of both: a third of them would tell too little. If no vector separates edges
from non-neighbours, the asker's own degree alone scores a pair.

**Neighbourhood sketch.** Every device draws a random mark and sends it to its neighbours. Then, a
few times, it sends them the random mark that it received most often over the edges that it uses: a
propagated label, randomized and the same for all of them. So random marks gather in neighbourhoods,
and two devices with common neighbours receive the same random marks. The sketch is the number of
times that each random mark was received, over all edges, less the expected number for as many
messages: otherwise its direction would reveal the degree. Earlier rounds count less. It is scaled
to norm 1.
"""

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import InputError
from lumos.ldp.mechanisms import Mechanism
from lumos.strict.link.encoder import unit
from lumos.strict.messages import preferred, randomized, uses_edge
from lumos.twoparty.score import LevelSpec
from lumos.typing import Arrays, Bytes, Doubles, Ints, Small

TOKENS, SKETCH, BOTH = "tokens", "sketch", "both"
WAYS = (TOKENS, SKETCH, BOTH)
"""Vectors that two devices may compare; calibration chooses one, or none."""
ALONE = "degree"
"""The choice if no vector helps: the asker's own degree."""
BITS = 3
"""Bits of one element of a vector."""
RING_BITS = 8
"""Bits of the ring in which products are computed."""
CLIP = 2.5
"""Largest element of a unit vector, in elements of a unit vector with equal ones; more if the ring
would be too small."""
MIN_STEPS = math.sqrt(10)
"""Smallest norm of a unit vector in integer steps, so that no two thresholds of calibration, which
are 0.1 apart, are the same whole number."""
SKETCH_WEIGHT = {1: 1.5, len(WAYS): 0.7}
"""By the number of vectors that are tested: norm of the neighbourhood sketch beside tokens of norm
1, in the vector of both. A single vector is that of few devices, whose tokens noise hides."""
COSINES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65)
"""Thresholds of calibration, of which a run uses 1, 3 or 7."""
SURE = {1: 1.0, len(WAYS): 1.5}
"""By the number of vectors that are tested: standard errors by which one must separate edges from
non-neighbours to be used. Evidence from chance then costs 0.003 of AUC at most, by simulation; at 3
small graphs lose up to 0.06 that they could gain (tests/strict/test_link_levels.py)."""
ROOM = 1.5
"""Largest squared norm of an integer vector, in those of a unit vector."""


def combined(tokens: Doubles, sketch: Doubles, tested: int) -> dict[str, Doubles]:
    """Return [hosted, width] unit vectors by name of `WAYS`, if `tested` of them are tested."""
    both = np.concatenate([tokens, SKETCH_WEIGHT[tested] * sketch], axis=1)
    return {TOKENS: tokens, SKETCH: sketch, BOTH: unit(both)}


def spec_for(width: int, cosines: tuple[float, ...] = COSINES) -> LevelSpec:
    """Return the public form of scores of vectors, with thresholds at these cosines."""
    thresholds = tuple(round(cosine * _steps(width) ** 2) for cosine in cosines)
    return LevelSpec(width=width, bits=BITS, ring_bits=RING_BITS, thresholds=thresholds)


def _steps(width: int) -> float:
    """Return the norm of a unit vector in integer steps."""
    most = math.sqrt(((1 << (RING_BITS - 1)) - 1) / ROOM)
    return max(min(math.sqrt(width) * ((1 << (BITS - 1)) - 1) / CLIP, most), MIN_STEPS)


def integers(vectors: Doubles) -> Small:
    """Return [hosted, width] vectors as integers of `BITS` bits, as `LevelSpec` takes them."""
    spec = spec_for(vectors.shape[1])
    scaled = vectors * _steps(vectors.shape[1])
    whole = _whole(scaled)
    while (long := (whole * whole).sum(axis=1) > spec.largest_norm).any():
        scaled[long] *= 0.98
        whole = _whole(scaled)
    return whole.astype(np.int8)


def _whole(scaled: Doubles) -> Ints:
    half = 2 ** (BITS - 1)
    return np.clip(np.rint(scaled), -half, half - 1).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The public result of calibration."""

    way: str
    """One of `WAYS`, or `ALONE`."""
    kept: tuple[int, ...]
    """Positions of the thresholds that are used."""
    evidence: Doubles = field(repr=False)
    """[buckets] log-likelihood ratio of an edge against a non-neighbour."""
    separation: dict[str, float] = field(default_factory=dict)
    """AUC of the score buckets by vector, from the noisy histograms."""
    error: dict[str, float] = field(default_factory=dict)
    """Standard error of the AUC by vector."""

    @property
    def cosines(self) -> tuple[float, ...]:
        """The thresholds that are used."""
        return tuple(COSINES[place] for place in self.kept)

    def arrays(self) -> Arrays:
        """Return the arrays of a run folder."""
        return {
            "levels/way": np.array(self.way),
            "levels/kept": np.array(self.kept, np.int64),
            "levels/evidence": self.evidence,
            "levels/tested": np.array(list(self.separation)),
            "levels/separation": np.array(list(self.separation.values())),
            "levels/error": np.array([self.error[way] for way in self.separation]),
        }

    @staticmethod
    def of(arrays: Arrays, bits: int) -> "Reading":
        """Restore the reading from its arrays.

        Args:
            bits: of a score query.

        Raises:
            InputError: an array is missing, or has another shape or type.
        """
        tested = tuple(arrays.get("levels/tested", np.empty(0)).ravel().tolist())
        shapes: dict[str, tuple[Any, ...]] = {
            "way": ("U",),
            "kept": ("i", 2**bits - 1),
            "evidence": ("f", 2**bits),
            "tested": ("U", len(tested)),
            "separation": ("f", len(tested)),
            "error": ("f", len(tested)),
        }
        for name, (kind, *shape) in shapes.items():
            array = arrays.get(f"levels/{name}")
            good = array is not None and array.dtype.kind == kind and array.shape == tuple(shape)
            if array is None or not good or (kind == "f" and not np.isfinite(array).all()):
                raise InputError(f"model.npz: levels/{name} does not match this run; train again")
        kept = arrays["levels/kept"].tolist()
        known = str(arrays["levels/way"]) in (*tested, ALONE) and set(tested) <= set(WAYS)
        if not known or kept != sorted(set(kept) & set(range(len(COSINES)))):
            raise InputError("model.npz: its score buckets do not match this run; train again")
        by_way = {
            name: dict(zip(tested, arrays[f"levels/{name}"].tolist(), strict=True))
            for name in ("separation", "error")
        }
        return Reading(
            way=str(arrays["levels/way"]),
            kept=tuple(kept),
            evidence=arrays["levels/evidence"],
            separation=by_way["separation"],
            error=by_way["error"],
        )


def read_levels(
    total: Doubles, spread: float, bits: int, tested: tuple[str, ...] = WAYS
) -> Reading:
    """Choose vector and thresholds by noisy histograms.

    Args:
        total: [tested, 2, buckets of calibration] of edges, then of non-neighbours.
        spread: standard deviation of the noise in each number.
        bits: of a score query.
        tested: all of `WAYS`, or one of them.
    """
    separation, error = {}, {}
    for way, counts in zip(tested, total, strict=True):
        separation[way] = _separation(*_positive(counts, spread))
        error[way] = _error(counts, spread)
    sure = SURE[len(tested)]
    passed = [way for way in tested if separation[way] - 0.5 > sure * error[way]]
    # In doubt, the vector that uses everything.
    way = max(passed or tested, key=lambda name: separation[name] + (name == BOTH) * error[name])
    edges, non_neighbours = _positive(total[tested.index(way)], spread)
    kept = max(
        combinations(range(len(COSINES)), 2**bits - 1),
        key=lambda some: _separation(_merged(edges, some), _merged(non_neighbours, some)),
    )
    shares = [
        counts / counts.sum() for counts in (_merged(edges, kept), _merged(non_neighbours, kept))
    ]
    # Evidence a little above chance counts little, and evidence that may be chance not at all.
    doubt = sure * error[way] / (separation[way] - 0.5) if passed else 1.0
    evidence: Doubles = (1 - doubt**2) * (np.log(shares[0]) - np.log(shares[1]))
    if not passed:
        way = ALONE
    return Reading(way=way, kept=kept, evidence=evidence, separation=separation, error=error)


def _positive(counts: Doubles, spread: float) -> Doubles:
    """Return noisy counts, raised to the noise or 1: smaller ones cannot be told from 0."""
    positive: Doubles = np.maximum(counts, max(1.0, spread))
    return positive


def _merged(counts: Doubles, kept: tuple[int, ...]) -> Doubles:
    """Return [buckets] counts between the thresholds that are kept."""
    merged: Doubles = np.add.reduceat(counts, [0, *(place + 1 for place in kept)])
    return merged


def _separation(edges: Doubles, non_neighbours: Doubles) -> float:
    """Return the AUC of the score buckets."""
    below = np.cumsum(non_neighbours) - non_neighbours
    return float((edges * (below + non_neighbours / 2)).sum() / edges.sum() / non_neighbours.sum())


def _error(counts: Doubles, spread: float) -> float:
    """Return the standard error of an AUC from two noisy histograms, for equal distributions."""
    square = 0.0
    for of_kind in counts:
        many = max(float(of_kind.sum()), 1.0)
        square += (many + len(of_kind) * spread**2) / (12 * many**2)
    return float(np.sqrt(square))


FADE = 0.5
"""Weight of a round of random marks beside the next one, in a sketch."""
CROWD = 16
"""Number of receivers from which on a device's random mark has full weight."""


class NeighbourhoodSketch:
    """Random marks that the hosted devices sent and received, round by round.

    Args:
        shard: the hosted devices.
        mechanism: randomizes propagated labels.
    """

    def __init__(self, shard: Shard, mechanism: Mechanism) -> None:
        self._shard = shard
        self._mechanism = mechanism
        self._size = mechanism.size
        everyone = np.arange(len(shard))
        chance = shard.randomness.uniform(everyone, "colour", 0)[:, 0]
        self._own: Ints = np.floor(chance * self._size).astype(np.int64)
        """[hosted] the device's random mark, then its propagated label before randomization."""
        self._sent = self._own.astype(np.uint8)
        self._uses = uses_edge(shard.ids_of(shard.owner), shard.neighbours)
        self._received = np.zeros((len(shard), self._size))
        """[hosted, random marks] of the last round."""
        self._used = self._received
        """The same over the edges that a device uses."""
        self._earlier = self._received
        """[hosted, random marks] of the rounds before the last, faded."""
        self._faded = 0
        """Number of the rounds in `_earlier`."""
        self.usual: list[Doubles] = []
        """[random marks] frequencies among all messages, for each round."""

    def message(self, number: int) -> Bytes:
        """Return [hosted, 1] the messages of a round: random marks, then propagated labels."""
        if number:
            self._prefer(number)
            self._sent = randomized(self._shard, self._own, self._mechanism, number)[:, 0]
        return self._sent[:, None]

    def _prefer(self, number: int) -> None:
        """Choose the propagated label of a round by the one before."""
        if self._faded < number:
            self._earlier, self._faded = self._memory(), number
        self._own = preferred(self._shard, self._above_usual(number - 1, self._used), number)

    def repeat(self, number: int, sent: Bytes) -> None:
        """Repeat a round of a finished run.

        Args:
            sent: [hosted] messages of the round.
        """
        if number:
            self._prefer(number)
        else:
            self._own = sent.astype(np.int64)
        self._sent = sent

    def receive(self, receiver: Ints, slot: Ints, random_marks: Ints) -> None:
        """Count the messages of a round.

        Args:
            receiver: [messages] positions.
            slot: [messages].
            random_marks: [messages].
        """
        places, used = receiver * self._size + random_marks, self._uses[slot]
        self._received, self._used = (
            np.bincount(some, minlength=self._received.size)
            .reshape(self._received.shape)
            .astype(np.float64)
            for some in (places, places[used])
        )

    def sent_weights(self) -> Doubles:
        """Return [hosted, random marks] what each device sent, weighted by its receivers."""
        rows = np.zeros((len(self._sent), self._size))
        crowd = np.minimum(self._shard.degree, CROWD) / CROWD
        rows[np.arange(len(rows)), self._sent] = crowd
        return rows

    def learn_usual(self, total: Doubles) -> None:
        """Learn the frequencies of random marks from the sum of `sent_weights`."""
        positive = np.maximum(total, 1e-3)
        self.usual = [*self.usual, positive / positive.sum()]

    def _above_usual(self, number: int, received: Doubles) -> Doubles:
        """Return [hosted, random marks] received and own ones of a round, less expected numbers."""
        marks = received + np.eye(self._size)[self._own]
        above: Doubles = marks - marks.sum(axis=1, keepdims=True) * self.usual[number]
        return above

    def _memory(self) -> Doubles:
        """Return [hosted, random marks] the last round and, faded, those before it."""
        faded: Doubles = FADE * self._earlier
        return self._above_usual(self._faded, self._received) + faded

    def vectors(self) -> Doubles:
        """Return [hosted, random marks] the sketches: unit vectors."""
        return unit(self._memory())

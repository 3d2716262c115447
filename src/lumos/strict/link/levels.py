"""From two devices' vectors to a level of their score, and what a level says.

A device has up to three vectors: of its words, of its neighbourhood sketch, of both. Each is
written as small integers, so that two devices can compute the level of their product together
(`lumos.twoparty.score`). Levels of held-back edges and of non-neighbours are added up in noisy
histograms: they choose the vector that tells edges from non-neighbours best, the thresholds, and
how much evidence each level is. Where no vector does, the asker's own degree alone scores a pair.

Neighbourhood sketch: what a device hears from its neighbours, as a vector to compare with others'.

Every device draws a random mark at random and tells its neighbours. Then, a few times, it tells
them the random mark that it heard most often: a propagated label, randomized, the same for all of
them (`propagated_labels`). So random marks gather in neighbourhoods, and two devices that know the
same people hear the same random marks.

The vector is the number of times that each random mark was heard in the last round, less what is
usual for so many messages: otherwise its direction would tell the degree. Scaled to norm 1.
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
from lumos.strict.messages import preferred, randomized
from lumos.twoparty.score import LevelSpec
from lumos.typing import Arrays, Bytes, Doubles, Ints, Small

WORDS, SKETCH, BOTH = "words", "sketch", "both"
WAYS = (WORDS, SKETCH, BOTH)
"""How two devices may know one another; calibration chooses one, or none."""
ALONE = "degree"
"""What is chosen where none of them helps: the asker's own degree."""
BITS = 3
"""Of one number of a vector."""
RING_BITS = 8
"""Of the ring in which products are computed."""
CLIP = 2.5
"""Largest number of a vector, in those of a vector of norm 1 with equal numbers; more where the
ring would be too small."""
MIN_STEPS = math.sqrt(10)
"""Norm of a vector of norm 1, in steps of its integers, at least: so that no two thresholds of
calibration, which are 0.1 apart, are the same whole number."""
SKETCH_WEIGHT = 0.7
"""Norm of the neighbourhood sketch beside words of norm 1, in the vector of both."""
COSINES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65)
"""Thresholds of calibration, of which a run keeps 1, 3 or 7."""
SURE = 3.0
"""Standard errors by which a way must separate edges from non-neighbours to be used."""
ROOM = 1.5
"""Square of the largest norm that vectors of integers may have, in that of a vector of norm 1."""


def combined(words: Doubles, sketch: Doubles) -> dict[str, Doubles]:
    """By way, [hosted, width] vectors of norm 1."""
    both = np.concatenate([words, SKETCH_WEIGHT * sketch], axis=1)
    return {WORDS: words, SKETCH: sketch, BOTH: unit(both)}


def spec_for(width: int, cosines: tuple[float, ...] = COSINES) -> LevelSpec:
    """The public form of scores of vectors of some width, with thresholds at these cosines."""
    thresholds = tuple(round(cosine * _steps(width) ** 2) for cosine in cosines)
    return LevelSpec(width=width, bits=BITS, ring_bits=RING_BITS, thresholds=thresholds)


def _steps(width: int) -> float:
    """Norm of a vector of norm 1, in steps of its integers."""
    most = math.sqrt(((1 << (RING_BITS - 1)) - 1) / ROOM)
    return max(min(math.sqrt(width) * ((1 << (BITS - 1)) - 1) / CLIP, most), MIN_STEPS)


def integers(vectors: Doubles) -> Small:
    """[hosted, width] vectors as integers of `BITS` bits, as `LevelSpec` takes them."""
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
    """What calibration learnt: all of it public."""

    way: str
    """One of `WAYS`, or `ALONE`."""
    kept: tuple[int, ...]
    """Which of the thresholds of calibration are used."""
    evidence: Doubles = field(repr=False)
    """[levels] log-likelihood ratio of an edge against a non-neighbour."""
    separation: dict[str, float] = field(default_factory=dict)
    """By way, the AUC of its levels, as the noisy histograms say."""
    error: dict[str, float] = field(default_factory=dict)
    """By way, its standard error."""

    @property
    def cosines(self) -> tuple[float, ...]:
        """The thresholds that are used."""
        return tuple(COSINES[place] for place in self.kept)

    def arrays(self) -> Arrays:
        """As a run folder keeps it."""
        return {
            "levels/way": np.array(self.way),
            "levels/kept": np.array(self.kept, np.int64),
            "levels/evidence": self.evidence,
            "levels/separation": np.array([self.separation[way] for way in WAYS]),
            "levels/error": np.array([self.error[way] for way in WAYS]),
        }

    @staticmethod
    def of(arrays: Arrays, bits: int) -> "Reading":
        """From what `arrays` gave.

        Args:
            bits: of an answer.

        Raises:
            InputError: an array is missing, or is of another shape or kind.
        """
        shapes: dict[str, tuple[Any, ...]] = {
            "way": ("U",),
            "kept": ("i", 2**bits - 1),
            "evidence": ("f", 2**bits),
            "separation": ("f", len(WAYS)),
            "error": ("f", len(WAYS)),
        }
        for name, (kind, *shape) in shapes.items():
            array = arrays.get(f"levels/{name}")
            good = array is not None and array.dtype.kind == kind and array.shape == tuple(shape)
            if array is None or not good or (kind == "f" and not np.isfinite(array).all()):
                raise InputError(f"model.npz: levels/{name} is not of this run; train again")
        kept = arrays["levels/kept"].tolist()
        known = str(arrays["levels/way"]) in (*WAYS, ALONE)
        if not known or kept != sorted(set(kept) & set(range(len(COSINES)))):
            raise InputError("model.npz: its levels are not of this run; train again")
        by_way = {
            name: dict(zip(WAYS, arrays[f"levels/{name}"].tolist(), strict=True))
            for name in ("separation", "error")
        }
        return Reading(
            way=str(arrays["levels/way"]),
            kept=tuple(kept),
            evidence=arrays["levels/evidence"],
            separation=by_way["separation"],
            error=by_way["error"],
        )


def read_levels(total: Doubles, spread: float, bits: int) -> Reading:
    """Choose way and thresholds by noisy histograms.

    Args:
        total: [ways, 2, levels of calibration] of edges, then of non-neighbours.
        spread: standard deviation of the noise in each number.
        bits: of an answer.
    """
    separation, error = {}, {}
    for way, counts in zip(WAYS, total, strict=True):
        separation[way] = _separation(*_positive(counts, spread))
        error[way] = _error(counts, spread)
    # In doubt the way that uses everything.
    bonus = {BOTH: error[BOTH]}
    way = max(WAYS, key=lambda name: separation[name] + bonus.get(name, 0.0))
    edges, non_neighbours = _positive(total[WAYS.index(way)], spread)
    kept = max(
        combinations(range(len(COSINES)), 2**bits - 1),
        key=lambda some: _separation(_merged(edges, some), _merged(non_neighbours, some)),
    )
    shares = [
        counts / counts.sum() for counts in (_merged(edges, kept), _merged(non_neighbours, kept))
    ]
    # Evidence hardly above chance counts for little, and what may be chance for nothing.
    doubt = min(1.0, SURE * error[way] / max(separation[way] - 0.5, 1e-12))
    evidence: Doubles = (1 - doubt**2) * (np.log(shares[0]) - np.log(shares[1]))
    if doubt == 1:
        way = ALONE
    return Reading(way=way, kept=kept, evidence=evidence, separation=separation, error=error)


def _positive(counts: Doubles, spread: float) -> Doubles:
    """Noisy counts, none below the noise or 1: less is as good as none."""
    positive: Doubles = np.maximum(counts, max(1.0, spread))
    return positive


def _merged(counts: Doubles, kept: tuple[int, ...]) -> Doubles:
    """[levels] counts, where only some thresholds are kept."""
    merged: Doubles = np.add.reduceat(counts, [0, *(place + 1 for place in kept)])
    return merged


def _separation(edges: Doubles, non_neighbours: Doubles) -> float:
    """AUC of the levels."""
    below = np.cumsum(non_neighbours) - non_neighbours
    return float((edges * (below + non_neighbours / 2)).sum() / edges.sum() / non_neighbours.sum())


def _error(counts: Doubles, spread: float) -> float:
    """Standard error of an AUC from two noisy histograms, for equal distributions."""
    square = 0.0
    for of_kind in counts:
        many = max(float(of_kind.sum()), 1.0)
        square += (many + len(of_kind) * spread**2) / (12 * many**2)
    return float(np.sqrt(square))


CROWD = 16
"""Neighbours up to which a device's random mark weighs more the more of them hear it."""


class NeighbourhoodSketch:
    """Random marks that the hosted devices sent and heard, round by round.

    Args:
        shard: the hosted devices.
        mechanism: how a propagated label on random marks is randomized.
    """

    def __init__(self, shard: Shard, mechanism: Mechanism) -> None:
        self._shard = shard
        self._mechanism = mechanism
        self._size = mechanism.size
        everyone = np.arange(len(shard))
        chance = shard.randomness.uniform(everyone, "colour", 0)[:, 0]
        self._own: Ints = np.floor(chance * self._size).astype(np.int64)
        """[hosted] what the device takes for its own: its random mark, then its propagated label as
        it was."""
        self._sent = self._own.astype(np.uint8)
        self._heard = np.zeros((len(shard), self._size))
        self.usual: list[Doubles] = []
        """For each round [random marks], the frequency of each random mark among all messages."""

    def message(self, number: int) -> Bytes:
        """[hosted, 1] what each device sends in a round: its random mark, then propagated labels."""
        if number:
            self._own = preferred(self._shard, self._above_usual(number - 1), number)
            self._sent = randomized(self._shard, self._own, self._mechanism, number)[:, 0]
        return self._sent[:, None]

    def repeat(self, number: int, sent: Bytes) -> None:
        """Go through a round of a finished run again, in which devices sent this.

        Args:
            sent: [hosted] as neighbours received it.
        """
        if number:
            self._own = preferred(self._shard, self._above_usual(number - 1), number)
        else:
            self._own = sent.astype(np.int64)
        self._sent = sent

    def hear(self, receiver: Ints, random_marks: Ints) -> None:
        """Take the messages of a round.

        Args:
            receiver: [messages] positions.
            random marks: [messages].
        """
        places = receiver * self._size + random_marks
        counts = np.bincount(places, minlength=self._heard.size)
        self._heard = counts.reshape(self._heard.shape).astype(np.float64)

    def sent_weights(self) -> Doubles:
        """[hosted, random marks] what each device sent, by how many heard it, up to a crowd."""
        rows = np.zeros((len(self._sent), self._size))
        crowd = np.minimum(self._shard.degree, CROWD) / CROWD
        rows[np.arange(len(rows)), self._sent] = crowd
        return rows

    def learn_usual(self, total: Doubles) -> None:
        """Take the sum of `sent_weights`."""
        positive = np.maximum(total, 1e-3)
        self.usual = [*self.usual, positive / positive.sum()]

    def _above_usual(self, number: int) -> Doubles:
        """[hosted, random marks] heard in a round, and one's own, less what is usual."""
        messages = self._shard.degree + 1
        own = np.eye(self._size)[self._own]
        above: Doubles = self._heard + own - messages[:, None] * self.usual[number]
        return above

    def vectors(self) -> Doubles:
        """[hosted, random marks] of norm 1, of the last round."""
        return unit(self._above_usual(len(self.usual) - 1))

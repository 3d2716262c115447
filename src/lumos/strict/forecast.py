"""A forecast of what strict classification gains from neighbours: a simulation without data.

It draws a federation that fits assumed numbers, and passes it through the real stages: randomized
labels, their counts and matrices, propagated labels, evidence weights and model selection, with the
noise of the sums of all devices. Only the local classifier is not trained: its logits are drawn.

Every class has a community, and every device belongs to one. The two scenarios have the same
homophily for different reasons:

    independent  Every device belongs to the community of its class, and edges leave the community
                 at random. Generated graphs are like this.
    clustered    Edges stay within the community, most of them within a circle of `CIRCLE` devices,
                 and some devices belong to a community of another class. Their features are those
                 of that community, as far as the assumed accuracy permits: own features and
                 neighbours err about the same devices. Degrees vary more. Real graphs are closer to
                 this.

At most `MAX_SIMULATED` devices are drawn. More of them only scale the sums, whose noise is that of
the whole federation. Small federations are drawn several times.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from lumos.device.randomness import PrivateRandomness, PublicRandomness, simulated_secrets
from lumos.device.shard import Shard
from lumos.graph.arrays import neighbour_lists
from lumos.ldp.mechanisms import one_hot
from lumos.strict.classify.evidence import (
    EVIDENCE_WEIGHTS_RATE,
    EvidenceWeights,
    MessageCounts,
    Selection,
    selection_vectors,
)
from lumos.strict.classify.labels import NoisyLabels, draw_labels
from lumos.strict.classify.stages import (
    EVIDENCE_WEIGHTS,
    PROPAGATED,
    RANDOMIZED,
    SELECTION,
    ClassifySchedule,
)
from lumos.strict.messages import propagated_labels
from lumos.strict.settings import EVIDENCE_WEIGHTS_EPOCHS
from lumos.training.config import Config
from lumos.training.profile import STRICT, Expected, Forecast, Population
from lumos.training.split import Role, split_vertices
from lumos.training.trainer import Adam
from lumos.typing import Doubles, Flags, Ints

CIRCLE = 40
"""Number of devices of one circle: friends of friends are often friends."""
MAX_CERTAIN = 0.98
"""Largest accuracy of features about the class that they come from."""


class Scenario(NamedTuple):
    """The reason why a federation deviates from full homophily."""

    misplaced: bool
    """True if devices belong to communities of other classes, instead of edges leaving theirs."""
    spread: float
    """Standard deviation of the logarithm of expected degrees."""
    local: float
    """Share of edges within a community that stay within a circle."""


CLUSTERED, INDEPENDENT = Scenario(True, 1.2, 0.8), Scenario(False, 0.7, 0.0)
"""The spread of degrees is that of Facebook, LastFM and Twitch, and that of the demo graph."""


class DrawnFederation(NamedTuple):
    """A federation that was drawn."""

    truth: Ints
    """[devices] true classes."""
    own: Doubles
    """[devices, k] logits by own features."""
    pairs: Ints
    """[edges, 2] edges, with repetitions and self-loops."""


def draw_federation(
    population: Population, scenario: Scenario, size: int, generator: np.random.Generator
) -> DrawnFederation:
    """Draw a federation of `size` devices."""
    classes = population.classes
    misplaced, within = mixing(population, scenario)
    truth = generator.integers(0, classes, size)
    moved = generator.random(size) < misplaced
    home = (truth + moved * generator.integers(1, classes, size)) % classes
    looks, accuracy = looking_like_home(population, misplaced)
    seen = np.where(generator.random(size) < looks, home, truth)
    own = calibrated_logits(seen, classes, accuracy, generator)
    weight = np.exp(scenario.spread * generator.standard_normal(size))
    edges = max(1, round(population.degree * size / 2))
    shares = within, scenario.local
    return DrawnFederation(truth, own, _draw_edges(home, classes, shares, weight, edges, generator))


def mixing(population: Population, scenario: Scenario) -> tuple[float, float]:
    """Return the share m of misplaced devices, and the share of edges within a community.

    Two devices of one community have the same class with probability (1 - m)² + m²/(k - 1). For
    this to be the homophily h,

        m = (1 - 1/k) · (1 - √(1 - (1 - h)/(1 - 1/k))).

    With h ≤ 1/k, neighbours of the own class are rarer than by chance: nobody is misplaced.
    """
    other = 1 - 1 / population.classes
    if not scenario.misplaced or population.homophily <= 1 / population.classes:
        return 0.0, population.homophily
    return other * (1 - math.sqrt(1 - (1 - population.homophily) / other)), 1.0


def looking_like_home(population: Population, misplaced: float) -> tuple[float, float]:
    """Return the share f of devices with features of their community, and their accuracy a.

    Own features are right with (1 - m·f)·a + m·f·(1 - a)/(k - 1), which is as assumed; f is 1, or
    as large as a ≤ `MAX_CERTAIN` permits.
    """
    others, wanted = population.classes - 1, population.own_accuracy
    most = max(MAX_CERTAIN, wanted)
    lost = misplaced * (most - (1 - most) / others)
    looks = 1.0 if lost <= most - wanted else (most - wanted) / lost
    apart = misplaced * looks
    accuracy = (wanted - apart / others) / (1 - apart - apart / others)
    return looks, min(most, max(1 / population.classes, accuracy))


def _draw_edges(
    home: Ints,
    classes: int,
    shares: tuple[float, float],
    weight: Doubles,
    edges: int,
    generator: np.random.Generator,
) -> Ints:
    """Return [edges, 2] ends in proportion to `weight`, the second in a community of the first.

    Args:
        shares: of edges within the community, and of those within the circle.
    """
    within, local = shares
    order = np.argsort(home, kind="stable")  # a community is an interval, and so is a circle
    bounds = np.searchsorted(home[order], np.arange(classes + 1))
    reach = np.concatenate([[0.0], np.cumsum(weight[order])])
    first = _device_at(generator.random(edges) * reach[-1], reach)
    community = home[order][first]
    stays = generator.random(edges) < within
    other = (community + generator.integers(1, classes, edges)) % classes
    chosen = np.where(stays, community, other)
    begin, end = bounds[chosen], bounds[chosen + 1]
    near = stays & (generator.random(edges) < local)
    begin = np.where(near, first - (first - begin) % CIRCLE, begin)
    end = np.where(near, np.minimum(begin + CIRCLE, end), end)
    second = _device_at(reach[begin] + generator.random(edges) * (reach[end] - reach[begin]), reach)
    pairs: Ints = order[np.stack([first, second], axis=1)]
    return pairs


def _device_at(position: Doubles, reach: Doubles) -> Ints:
    """Return [positions] the device i with reach[i] ≤ position < reach[i + 1]."""
    return np.clip(np.searchsorted(reach, position, side="right") - 1, 0, len(reach) - 2)


def calibrated_logits(
    classes_seen: Ints, classes: int, accuracy: float, generator: np.random.Generator
) -> Doubles:
    """Return [devices, k] log-likelihoods of normal scores with the given accuracy.

    Every class has a score of variance 1, the one that is seen with mean s; its log-likelihood is
    s times the score.
    """
    mean = signal(accuracy, classes)
    scores = generator.standard_normal((len(classes_seen), classes))
    scores[np.arange(len(classes_seen)), classes_seen] += mean
    return mean * scores


@cache
def signal(accuracy: float, classes: int) -> float:
    """Return s for which a normal score with mean s is the largest of k with this probability."""
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if largest_chance(middle, classes) < accuracy else (low, middle)
    return high


def largest_chance(mean: float, classes: int) -> float:
    """Return ∫ φ(x - s) Φ(x)^(k - 1) dx: the chance that the score with mean s is the largest."""
    offset = np.linspace(-9, 9, 2001)
    density = np.exp(-(offset**2) / 2) / math.sqrt(2 * math.pi)
    return float((density * ndtr(offset + mean) ** (classes - 1)).sum() * (offset[1] - offset[0]))


MAX_SIMULATED = 12_000
"""Largest number of simulated devices, and about that of all draws together."""
MAX_DRAWS = 8
WORK = 400_000
"""Bound on the number of simulated devices times the work of one."""
MIN_OF_A_ROW = 30
"""Least number of validation devices for each row of a matrix, if not all devices are simulated:
fewer would overfit their own labels."""


def forecast(population: Population, **settings: Any) -> Forecast | None:
    """Simulate `classify` with these settings; the result is deterministic.

    Return None if there are too many classes to simulate enough devices in seconds.

    Args:
        population: what is assumed about the devices.
        settings: of the strict profile, by name.

    Raises:
        UsageError: a setting has no effect, or its value is refused.
    """
    schedule = ClassifySchedule(
        config=Config.asked(profile=STRICT, **settings),
        devices=population.devices,
        training=population.devices // 2,
        validation=population.devices // 4,
        classes=population.classes,
        signed=False,
    )
    size = min(population.devices, MAX_SIMULATED, WORK // _work(schedule, population))
    needed = 4 * MIN_OF_A_ROW * schedule.label_form.alphabet
    if size < min(population.devices, needed):
        return None
    return Forecast(
        _expected(schedule, population, CLUSTERED, size),
        _expected(schedule, population, INDEPENDENT, size),
        f"{population.classes} classes of equal size, {population.homophily:.0%} of edges within a "
        f"class, {population.own_accuracy:.0%} right by own features, half of the devices train "
        "and a quarter validate",
    )


def _expected(
    schedule: ClassifySchedule, population: Population, scenario: Scenario, size: int
) -> Expected:
    draws = min(MAX_DRAWS, max(2, MAX_SIMULATED // size))
    scores = np.array(
        [_Federation(schedule, population, scenario, size, n).scores() for n in range(draws)]
    )
    error = (scores[:, 2] - scores[:, 0]).std(ddof=1) / math.sqrt(draws)
    own, neighbours, together = map(float, scores.mean(axis=0))
    return Expected(own, neighbours, together, float(error))


def _work(schedule: ClassifySchedule, population: Population) -> int:
    """Return the work of one simulated device: its neighbours, classes, and matrices."""
    matrix = schedule.label_form.alphabet * schedule.propagated_label_mechanism.alphabet
    return math.ceil(population.degree + population.classes / 4 + matrix / 25)


class _Federation:
    """One simulated federation.

    Args:
        schedule: of the whole federation; its noise is used.
        size: number of simulated devices.
        seed: of everything drawn.
    """

    def __init__(
        self,
        schedule: ClassifySchedule,
        population: Population,
        scenario: Scenario,
        size: int,
        seed: int,
    ) -> None:
        self._schedule = schedule
        self._generator = np.random.default_rng(seed)
        self._scale = population.devices / size
        drawn = draw_federation(population, scenario, size, self._generator)
        self._truth, self._own = drawn.truth, drawn.own
        lists, public = neighbour_lists(drawn.pairs, size), PublicRandomness(seed)
        everyone = np.arange(size)
        randomness = PrivateRandomness(simulated_secrets(seed, everyone, "forecast"))
        self._shard = Shard(everyone, size, lists.offsets, lists.neighbours, randomness, public)
        self._roles = split_vertices(self._truth, public)

    def scores(self) -> tuple[float, float, float]:
        """Return the accuracy by own features, by neighbours, and of the selected model."""
        schedule = self._schedule
        trains, validates = (self._roles == role for role in (Role.TRAIN, Role.VALIDATION))
        labels = draw_labels(self._shard, self._truth, schedule, None, trains | validates)
        validating = np.flatnonzero(validates)
        evidence = self._evidence(labels, trains, validating)
        evidence_weights = EvidenceWeights(self._own, evidence)
        weights = self._fitted_weights(evidence_weights, labels, validating)
        together = evidence_weights.logits(weights)
        alone = EvidenceWeights(np.zeros_like(self._own), evidence).logits(weights)
        selection = self._sum(
            selection_vectors([self._own, together], labels, validating), SELECTION
        )
        chosen = together if Selection.of(selection, schedule).choice else self._own
        return self._accuracy(self._own), self._accuracy(alone), self._accuracy(chosen)

    def _evidence(self, labels: NoisyLabels, trains: Flags, validating: Ints) -> list[Doubles]:
        """Return the evidence of randomized labels, then of each propagated label: [devices, k]."""
        shard, form = self._shard, labels.form
        mechanism = self._schedule.propagated_label_mechanism
        slots = np.flatnonzero(trains[shard.neighbours])  # whose neighbour trains
        bodies = form.messages(np.maximum(labels.randomized_labels, 0))
        support = one_hot(bodies[shard.neighbours[slots]], form.alphabet)
        counts = MessageCounts(support, shard.owner[slots], len(shard))
        both = np.union1d(np.flatnonzero(trains), validating)
        matrix = self._sum(counts.matrix_vectors(labels, both), RANDOMIZED)
        evidence = [counts.evidence(matrix, form)]
        for number in range(1, 1 + self._schedule.strict.propagated_labels):
            sent = propagated_labels(shard, np.sum(evidence, axis=0), mechanism, number)
            support = mechanism.read(sent[shard.neighbours])
            counts = MessageCounts(support, shard.owner, len(shard))
            matrix = self._sum(counts.matrix_vectors(labels, validating), PROPAGATED)
            evidence.append(counts.evidence(matrix, form))
        return evidence

    def _fitted_weights(
        self, evidence_weights: EvidenceWeights, labels: NoisyLabels, validating: Ints
    ) -> Doubles:
        schedule, classes = self._schedule, self._own.shape[1]
        adam = Adam(
            EvidenceWeights.start(2 + schedule.strict.propagated_labels, classes),
            EVIDENCE_WEIGHTS_RATE,
        )
        clip = schedule[EVIDENCE_WEIGHTS].limit(len(adam.weights) + 1)
        for _ in range(EVIDENCE_WEIGHTS_EPOCHS):
            total = self._sum(
                evidence_weights.update(adam.weights, labels, validating, clip), EVIDENCE_WEIGHTS
            )
            adam.step(total[:-1] / max(1, schedule.validation))
        return adam.weights

    def _sum(self, vectors: Doubles, stage: str) -> Doubles:
        """Return the sum of the vectors of the whole federation, with its noise."""
        spread = self._schedule[stage].spread()
        total: Doubles = self._scale * vectors.sum(axis=0)
        return total + spread * self._generator.standard_normal(vectors.shape[1])

    def _accuracy(self, logits: Doubles) -> float:
        tested = self._roles == Role.TEST
        return float((logits[tested].argmax(axis=1) == self._truth[tested]).mean())

"""A federation drawn from assumed numbers: classes, edges, and what own features say.

Every class has a community, and every device lives in one. The two scenarios reach the same
homophily in different ways:

    independent  Everybody lives in the community of its class, edges leave the community at random.
                 Generated graphs are like this.
    clustered    Edges stay within the community, most of them within a circle of `CIRCLE` devices,
                 and some devices live in a community of another class. Their features are those of
                 that community, as far as the assumed accuracy permits: own features and neighbours
                 err about the same devices. Degrees vary more. Real graphs are closer to this.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lumos.training.profile import Population
from lumos.typing import Doubles, Ints

CIRCLE = 40
"""Devices of one circle: friends of friends are often friends."""
MOST_CERTAIN = 0.98
"""Largest accuracy of what features say about the class that they belong to."""


class Scenario(NamedTuple):
    """How a federation deviates from full homophily."""

    misplaced: bool
    """Whether devices live in communities of other classes, instead of edges leaving theirs."""
    spread: float
    """Standard deviation of the logarithm of expected degrees."""
    local: float
    """Share of edges within a community that stay within a circle."""


CLUSTERED, INDEPENDENT = Scenario(True, 1.2, 0.8), Scenario(False, 0.7, 0.0)
"""The spread of degrees is that of Facebook, LastFM and Twitch, and that of the demo graph."""


class DrawnFederation(NamedTuple):
    """What was drawn."""

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
    """Share m of misplaced devices, and share of edges within a community.

    Two devices of one community have the same class with (1 - m)² + m²/(k - 1). Where this is to be
    the homophily h,

        m = (1 - 1/k) · (1 - √(1 - (1 - h)/(1 - 1/k))).

    With h ≤ 1/k, neighbours of the own class are rarer than by chance: nobody is misplaced.
    """
    other = 1 - 1 / population.classes
    if not scenario.misplaced or population.homophily <= 1 / population.classes:
        return 0.0, population.homophily
    return other * (1 - math.sqrt(1 - (1 - population.homophily) / other)), 1.0


def looking_like_home(population: Population, misplaced: float) -> tuple[float, float]:
    """Share f of devices with features of their community, and accuracy a of features about it.

    Own features are right with (1 - m·f)·a + m·f·(1 - a)/(k - 1), which is as assumed; f is 1, or
    as large as a ≤ `MOST_CERTAIN` permits.
    """
    others, wanted = population.classes - 1, population.own_accuracy
    most = max(MOST_CERTAIN, wanted)
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
    """[edges, 2] both ends in proportion to `weight`, the second one where the first one looks.

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
    """[positions] the device i with reach[i] ≤ position < reach[i + 1]."""
    return np.clip(np.searchsorted(reach, position, side="right") - 1, 0, len(reach) - 2)


def calibrated_logits(
    classes_seen: Ints, classes: int, accuracy: float, generator: np.random.Generator
) -> Doubles:
    """[devices, k] log-likelihoods of normal scores, right with the given probability.

    Every class has a score of variance 1, the one that is seen with mean s; its log-likelihood is
    s times the score.
    """
    mean = signal(accuracy, classes)
    scores = generator.standard_normal((len(classes_seen), classes))
    scores[np.arange(len(classes_seen)), classes_seen] += mean
    return mean * scores


@cache
def signal(accuracy: float, classes: int) -> float:
    """s for which a normal score with mean s is the largest of k with this probability."""
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if largest_chance(middle, classes) < accuracy else (low, middle)
    return high


def largest_chance(mean: float, classes: int) -> float:
    """∫ φ(x - s) Φ(x)^(k - 1) dx: the chance that the score with mean s is the largest of k."""
    offset = np.linspace(-9, 9, 2001)
    density = np.exp(-(offset**2) / 2) / math.sqrt(2 * math.pi)
    return float((density * ndtr(offset + mean) ** (classes - 1)).sum() * (offset[1] - offset[0]))

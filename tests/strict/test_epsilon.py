"""ε tested, not computed: how well neighbours can tell two inputs of a device apart.

One run has thousands of equal stars, each with randomness of its own: as many independent releases.
All that the neighbours of a centre receive is one transcript. For inputs A and B and any set of
transcripts, P(set | A) ≤ e^ε P(set | B) must hold. The set that breaks it most is looked for in one
half of the stars and tested on the other, so no transcript has to be known in advance.
"""

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta
from tests.narrow import present
from tests.runs.running import Wire, listening
from tests.strict.strictly import started, the_same_randomness

from lumos.device.randomness import PrivateRandomness, simulated_secrets, system_secrets
from lumos.graph import Graph
from lumos.ldp.labels import LabelDraws, LabelForm

STARS, LEAVES, CLASSES = 6000, 2, 3
SIZE = LEAVES + 1
FORM = LabelForm(CLASSES, 1, CLASSES)
RISK = 1e-7
"""Chance that a sound mechanism fails one test."""


def stars(label: int) -> Graph:
    """Star i has devices 3i (the centre, with this label) … 3i + 2."""
    centres = np.arange(0, STARS * SIZE, SIZE)
    edges = np.concatenate([np.stack([centres, centres + leaf], 1) for leaf in (1, 2)])
    labels = np.arange(STARS * SIZE) % CLASSES
    labels[centres] = label
    features = np.ones((STARS * SIZE, 1), np.float32)
    return Graph.from_edges(edges, devices=STARS * SIZE, features=features, labels=labels)


def transcripts(
    label: int, *, releases: int = 1, anew: bool = False, seed: int = 0, **settings: Any
) -> list[Any]:
    """[stars] everything sent to the neighbours of each centre: its randomized label, then an
    propagated label.

    Args:
        anew: the broken twin draws the label again for every release.
    """
    graph = stars(label)
    made = started(graph, seed=seed, **{"propagated_labels": 1, **settings})
    (trainer,) = made.trainers
    form, everyone = trainer.labels.form, np.arange(graph.devices)
    with listening() as wire:
        for _ in range(releases):
            if anew:
                randomness = PrivateRandomness(system_secrets(everyone))
                draws = LabelDraws.first(form, present(graph.labels), randomness, everyone)
                trainer._randomized_labels = draws.at(settings["label_epsilon"])[0]
            made.run(lambda trainer: trainer.release())
        trainer.matrices = [10 + 90 * np.eye(form.alphabet).ravel()]
        made.run(lambda trainer: trainer.tell_propagated_label(1, 1))
    return by_star(wire)


def by_star(wire: Wire) -> list[Any]:
    found: dict[int, list[Any]] = defaultdict(list)
    for number, (topic, messages) in enumerate(wire.rounds):
        for message in messages:
            if message.receiver % SIZE:  # a leaf, and its only neighbour is the centre
                row = (number, topic, message.receiver % SIZE, message.body)
                found[message.receiver // SIZE].append(row)
    return [tuple(found[star]) for star in range(STARS)]


def bounds(hits: int, tries: int) -> tuple[float, float]:
    """Clopper and Pearson's, each wrong with probability RISK / 2."""
    low = 0.0 if hits == 0 else float(beta.ppf(RISK / 2, hits, tries - hits + 1))
    high = 1.0 if hits == tries else float(beta.ppf(1 - RISK / 2, hits + 1, tries - hits))
    return low, high


def least_ratio(one: list[Any], other: list[Any], epsilon: float) -> float:
    """A number that the largest ratio P(set | one) / P(set | other) surely exceeds."""
    half = len(one) // 2
    for_one, for_other = Counter(one[:half]), Counter(other[:half])
    limit = math.exp(epsilon)
    suspects = {seen for seen in for_one if for_one[seen] > limit * for_other[seen]}
    if not suspects:  # then the most telling ones
        suspects = {max(for_one, key=lambda seen: for_one[seen] / (for_other[seen] + 1))}
    low, _ = bounds(sum(seen in suspects for seen in one[half:]), len(one) - half)
    _, high = bounds(sum(seen in suspects for seen in other[half:]), len(other) - half)
    return low / high


@pytest.mark.parametrize(
    "settings",
    [
        {"label_epsilon": 1.0},
        {"label_epsilon": 1.0, "propagated_epsilon": 8.0},
        {"label_epsilon": 1.0, "mechanism": "digits"},
    ],
)
def test_all_that_neighbours_receive_stays_within_epsilon(settings: dict[str, Any]) -> None:
    epsilon = settings["label_epsilon"]
    one, other = (
        transcripts(randomized_label, randomness="system", **settings)
        for randomized_label in (0, 1)
    )
    assert least_ratio(one, other, epsilon) <= math.exp(epsilon)
    assert least_ratio(other, one, epsilon) <= math.exp(epsilon)


def test_the_test_has_teeth() -> None:
    """At ε = 1, half of it is proven to be used, and ε = 0.5 is seen to be broken."""
    one, other = (
        transcripts(randomized_label, randomness="system", label_epsilon=1.0)
        for randomized_label in (0, 1)
    )
    assert math.exp(0.5) < least_ratio(one, other, 0.5) <= math.exp(1.0)


def test_a_label_that_is_drawn_again_is_caught() -> None:
    """The twin draws twice and pays once: every message alone is fine, both are not."""
    one, other = (
        transcripts(s, releases=2, anew=True, randomness="system", label_epsilon=1.0)
        for s in (0, 1)
    )
    assert least_ratio(one, other, 1.0) > math.exp(1.0)


def test_a_second_release_says_nothing_new() -> None:
    one, other = (
        transcripts(s, releases=2, randomness="system", label_epsilon=1.0) for s in (0, 1)
    )
    assert least_ratio(one, other, 1.0) <= math.exp(1.0)
    randomized_labels = {len({row[3] for row in star if row[1] == "strict/symbol"}) for star in one}
    assert randomized_labels == {1}


def inverted(found: list[Any], seed: int, epsilon: float) -> np.ndarray:
    """What a receiver who knows the run seed takes the labels of the centres to be."""
    everyone = np.arange(STARS * SIZE)
    randomness = PrivateRandomness(simulated_secrets(seed, everyone))
    draws = LabelDraws.first(FORM, np.zeros_like(everyone), randomness, everyone)
    shift = draws.at(epsilon)[0][::SIZE]
    released = np.array([star[0][3][0] for star in found], np.int64)
    return (released - shift) % CLASSES


@pytest.mark.parametrize("randomized_label", [0, 2])
def test_randomness_from_the_run_seed_is_caught(randomized_label: int) -> None:
    """The twin's randomness comes from the seed, which every receiver knows: it inverts the
    release."""
    with the_same_randomness():  # of the seed alone: as if he knew the graph and all settings, too
        twin = transcripts(randomized_label, randomness="seeded", seed=5, label_epsilon=1.0)
    assert (inverted(twin, 5, 1.0) == randomized_label).all()
    ours = transcripts(randomized_label, randomness="system", seed=5, label_epsilon=1.0)
    share = (inverted(ours, 5, 1.0) == randomized_label).mean()
    # He is right where two independent releases happen to shift alike.
    truth, other = FORM.table(1.0)[0, :2]
    chance = truth**2 + (CLASSES - 1) * other**2
    assert share == pytest.approx(chance, abs=6 * 0.5 / math.sqrt(STARS))
    assert chance < truth  # worse than to believe the randomized label


def test_given_the_seed_the_twin_breaks_any_epsilon() -> None:
    """The same by the estimated ratio: the transcript and what the seed gives, together."""
    for randomness, broken in (("seeded", True), ("system", False)):
        with (
            the_same_randomness()
        ):  # of the seed alone: as if he knew the graph and all settings, too
            found = [
                transcripts(s, randomness=randomness, seed=5, label_epsilon=1.0) for s in (0, 1)
            ]
        one, other = (list(inverted(some, 5, 1.0)) for some in found)
        assert (least_ratio(one, other, 1.0) > math.e) == broken

"""ε tested, not computed: how well neighbours can tell two inputs of a device apart.

One run has thousands of equal stars, each with coins of its own: as many independent releases. All
that the neighbours of a centre receive is one transcript. For inputs A and B and any set of
transcripts, P(set | A) ≤ e^ε P(set | B) must hold. The set that breaks it most is looked for in one
half of the stars and tested on the other, so no transcript has to be known in advance.
"""

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta
from tests.runs.running import Wire, listening
from tests.strict.strictly import started, the_same_coins

from lumos.device.coins import PrivateCoins, simulated_secrets
from lumos.encode.mechanisms import COIN, make_mechanism
from lumos.graph import Graph
from lumos.training.split import Role

STARS, LEAVES, CLASSES = 6000, 2, 3
SIZE = LEAVES + 1
RISK = 1e-7
"""Chance that a sound mechanism fails one test."""


def stars(symbol: int) -> Graph:
    """Star i has devices 3i (the centre) … 3i + 2. The feature of a centre is its answer."""
    centres = np.arange(0, STARS * SIZE, SIZE)
    edges = np.concatenate([np.stack([centres, centres + leaf], 1) for leaf in (1, 2)])
    features = np.zeros((STARS * SIZE, CLASSES), np.float32)
    features[:, 0] = 1
    features[centres] = np.eye(CLASSES)[symbol]
    return Graph.from_edges(
        edges, devices=STARS * SIZE, features=features, labels=np.arange(STARS * SIZE) % CLASSES
    )


def transcripts(symbol: int, *, releases: int = 1, seed: int = 0, **settings: Any) -> list[Any]:
    """[stars] everything sent to the neighbours of each centre."""
    graph = stars(symbol)
    made = started(graph, np.full(graph.devices, Role.TEST), seed=seed, **settings)
    # Weights that are fixed: the feature that is 1 is the answer.
    weights = np.concatenate([np.eye(CLASSES), np.zeros((1, CLASSES))])
    with listening() as wire:
        for trainer in made.trainers:
            trainer.optimisers["encoder"].weights = weights.ravel()
        for _ in range(releases):
            made.run(lambda trainer: trainer.release())
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
        {"epsilon": 1.0},
        {"epsilon": 1.0, "mechanism": "oue"},
        {"epsilon": 1.0, "mechanism": "digits"},
        {"epsilon": 1.0, "relay": 3},
        {"epsilon": 0.3, "mechanism": "oue", "relay": 2},
    ],
)
def test_all_that_neighbours_receive_stays_within_epsilon(settings: dict[str, Any]) -> None:
    epsilon = settings["epsilon"]
    one, other = (transcripts(symbol, coins="system", **settings) for symbol in (0, 1))
    assert least_ratio(one, other, epsilon) <= math.exp(epsilon)
    assert least_ratio(other, one, epsilon) <= math.exp(epsilon)


def test_the_test_has_teeth() -> None:
    """At ε = 1, half of it is proven to be used, and ε = 0.5 is seen to be broken."""
    one, other = (transcripts(symbol, coins="system", epsilon=1.0) for symbol in (0, 1))
    assert math.exp(0.5) < least_ratio(one, other, 0.5) <= math.exp(1.0)


def test_a_second_release_from_fresh_coins_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin releases twice and pays once: every message alone is fine, both are not."""
    original, number = PrivateCoins.words, [0]

    def fresh(self: PrivateCoins, rows: Any, purpose: str, step: int, count: int) -> Any:
        if purpose == "symbol":
            number[0] += 1
            step = number[0]
        return original(self, rows, purpose, step, count)

    monkeypatch.setattr(PrivateCoins, "words", fresh)
    one, other = (transcripts(s, releases=2, coins="system", epsilon=1.0) for s in (0, 1))
    assert least_ratio(one, other, 1.0) > math.exp(1.0)


def test_a_second_release_from_the_same_coins_says_nothing_new() -> None:
    one, other = (transcripts(s, releases=2, coins="system", epsilon=1.0) for s in (0, 1))
    assert least_ratio(one, other, 1.0) <= math.exp(1.0)
    symbols = {len({row[3] for row in star}) for star in one}
    assert symbols == {1}


def inverted(found: list[Any], seed: int, epsilon: float) -> np.ndarray:
    """What a receiver who knows the run seed takes the symbols of the centres to be."""
    mechanism = make_mechanism(CLASSES, epsilon, "krr")
    everyone = np.arange(STARS * SIZE)
    coins = PrivateCoins(simulated_secrets(seed, everyone))
    words = coins.words(everyone, "symbol", 0, 1)[::SIZE]
    shift = mechanism.read(mechanism.release(np.zeros(STARS, np.int64), words)).argmax(axis=1)
    released = np.array([star[0][3][0] for star in found], np.int64)
    return (released - shift) % CLASSES


@pytest.mark.parametrize("symbol", [0, 2])
def test_coins_from_the_run_seed_are_caught(symbol: int) -> None:
    """The twin's coins come from the seed, which every receiver knows: it inverts the release."""
    with the_same_coins():  # of the seed alone: as if he knew the graph and all settings, too
        twin = transcripts(symbol, coins="simulated", seed=5, epsilon=1.0)
    assert (inverted(twin, 5, 1.0) == symbol).all()
    ours = transcripts(symbol, coins="system", seed=5, epsilon=1.0)
    share = (inverted(ours, 5, 1.0) == symbol).mean()
    # He is right where two independent releases happen to shift alike.
    mechanism = make_mechanism(CLASSES, 1.0)
    truth, other = mechanism.truth / COIN, mechanism.other / COIN
    chance = truth**2 + (CLASSES - 1) * other**2
    assert share == pytest.approx(chance, abs=6 * 0.5 / math.sqrt(STARS))
    assert chance < truth  # worse than to believe the symbol


def test_given_the_seed_the_twin_breaks_any_epsilon() -> None:
    """The same by the estimated ratio: the transcript and what the seed gives, together."""
    for coins, broken in (("simulated", True), ("system", False)):
        with the_same_coins():  # of the seed alone: as if he knew the graph and all settings, too
            found = [transcripts(s, coins=coins, seed=5, epsilon=1.0) for s in (0, 1)]
        one, other = (list(inverted(some, 5, 1.0)) for some in found)
        assert (least_ratio(one, other, 1.0) > math.e) == broken

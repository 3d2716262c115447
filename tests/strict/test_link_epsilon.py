"""ε of `link`, exactly: with weights fixed, all messages of a run given each input of one device.

The coins of a device's symbol fall into two intervals, the truth and the lie, so two coins stand
for all 2^32 of them. Every other coin of every device is fixed. For each input and each coin the
real protocol runs, and everything that anybody sends is one transcript; its probability given the
input is a whole number over 2^32. No ratio may exceed e^ε, for any transcript and whatever the
other coins are: more than any coalition sees, and nothing is estimated.
"""

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.narrow import present
from tests.runs.running import listening
from tests.strict.linking import started
from tests.strict.strictly import the_same_coins

from lumos.device.coins import PrivateCoins, simulated_secrets
from lumos.encode.mechanisms import COIN, make_mechanism
from lumos.graph import Graph
from lumos.strict import answer_samples as module
from lumos.strict.link_trainer import StrictLinker

pytestmark = pytest.mark.usefixtures("short")

DEVICE = 1
EDGES = [(0, 1), (1, 2), (0, 2), (2, 3), (4, 5)]
DEVICES = 6
SIZE = 2


def world(entry: int) -> Graph:
    """A triangle with a tail, and a pair; what feature a device has is its entry."""
    code = np.array([0, entry, 1, 0, 1, 0])
    features = np.eye(SIZE, dtype=np.float32)[code]
    return Graph.from_edges(EDGES, devices=DEVICES, features=features)


def transcript(entry: int, coin: dict[int, int], seed: int, **settings: Any) -> Any:
    """Everything that passes from the release on.

    Args:
        coin: by step, the coin of the device's symbol.
    """
    words = PrivateCoins.words

    def chosen(self: PrivateCoins, rows: Any, purpose: str, step: int, count: int) -> Any:
        found = words(self, rows, purpose, step, count)
        if purpose == "symbol":
            found[np.asarray(rows) == DEVICE] = coin[step]
        return found

    with pytest.MonkeyPatch.context() as patch, the_same_coins():
        made = started(world(entry), [(1, 4), (0, 3)], seed, codebook=SIZE, **settings)
        patch.setattr(PrivateCoins, "words", chosen)
        for trainer in made.trainers:  # weights that are fixed
            trainer._codebook.weights = np.ones(SIZE)
            trainer._codebook.entries = np.eye(SIZE)
        with listening() as wire:
            made.run(lambda trainer: trainer.release())
            made.run(lambda trainer: trainer._prepare_inputs())
    assert made.trainers[0]._codebook.nearest()[DEVICE] == entry
    return tuple((topic, tuple(messages)) for topic, messages in wire.rounds)


def largest_ratio(epsilon: float, seed: int, releases: int = 1, **settings: Any) -> float:
    """The largest P(transcript | entry) / P(transcript | other entry), exactly."""
    mechanism = make_mechanism(SIZE, epsilon, "krr")
    coins = {0: mechanism.other, COIN - 1: COIN - mechanism.other}  # a lie, the truth: how many
    given: list[Counter[Any]] = []
    for entry in range(SIZE):
        chances: Counter[Any] = Counter()
        for several in product(coins, repeat=releases):
            weight = math.prod(coins[coin] for coin in several)
            seen = transcript(entry, dict(enumerate(several)), seed, epsilon=epsilon, **settings)
            chances[seen] += weight
        assert sum(chances.values()) == COIN**releases
        given.append(chances)
    ratios = [math.inf]
    for one, other in (given, given[::-1]):
        if one.keys() <= other.keys():
            ratios.append(float(max(Fraction(one[seen], other[seen]) for seen in one)))
        else:
            return math.inf
    return max(ratios[1:])


SETTINGS = [
    {"relay": 4, "answer": 2},
    {"relay": "none", "answer": 1, "colours": "none"},
    {"relay": 2, "answer": 8, "colours": 256},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_that_ever_passes_stays_within_epsilon(
    epsilon: float, seed: int, settings: dict[str, Any]
) -> None:
    ratio = largest_ratio(epsilon, seed, **settings)
    assert ratio <= math.exp(epsilon)
    assert ratio > math.exp(epsilon) * (1 - 1e-6)  # and all of it is used


def test_one_symbol_is_all_that_depends_on_the_input() -> None:
    """Given the released symbols, the two inputs give the same transcript, bit by bit."""
    settings = {"epsilon": 1.0, "relay": 3, "answer": 4}
    lie, truth = {0: 0}, {0: COIN - 1}
    for seed in range(3):
        assert transcript(0, lie, seed, **settings) == transcript(1, truth, seed, **settings)
        assert transcript(0, truth, seed, **settings) == transcript(1, lie, seed, **settings)
        assert transcript(0, lie, seed, **settings) != transcript(0, truth, seed, **settings)


class TestBrokenTwins:
    """Each says a little more, and is seen to."""

    def test_a_second_symbol_from_fresh_coins_in_the_answer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = StrictLinker._prepare_inputs

        def again(self: StrictLinker) -> Any:
            everyone = np.arange(len(self.shard))
            words = self.shard.coins.words(everyone, "symbol", 1, 1)
            self.released = self.released.copy()
            self.released[:, :1] = self._symbols.release(present(self._codebook).nearest(), words)
            yield from original(self)

        monkeypatch.setattr(StrictLinker, "_prepare_inputs", again)
        ratio = largest_ratio(1.0, 0, releases=2, relay="none", answer=1)
        assert ratio == pytest.approx(math.exp(2.0), rel=1e-6)

    def test_the_entry_itself_in_the_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original = StrictLinker._prepare_inputs

        def honest(self: StrictLinker) -> Any:
            self.released = self.released.copy()
            self.released[:, 0] = present(self._codebook).nearest()
            yield from original(self)

        monkeypatch.setattr(StrictLinker, "_prepare_inputs", honest)
        assert largest_ratio(1.0, 0, relay="none", answer=1) == math.inf

    def test_a_colour_that_depends_on_features(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original = StrictLinker._drawn

        def telling(self: StrictLinker, rows: Any, purpose: str, step: int, size: int) -> Any:
            found = original(self, rows, purpose, step, size)
            return (found + present(self._codebook).nearest()[rows]).astype(np.uint8) % size

        monkeypatch.setattr(StrictLinker, "_drawn", telling)
        assert largest_ratio(1.0, 0, relay="none", answer=1, colours=2) == math.inf

    def test_draws_that_depend_on_features(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of two samples the one that suits it: each symbol is honest, the choice is not."""
        original = StrictLinker._prepare_inputs

        def choosy(self: StrictLinker) -> Any:
            sample: Any = module.sample
            hop = int(present(self._codebook).nearest()[DEVICE])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    module, "sample", lambda *args: sample(*args[:-1], args[-1] + 7 * hop)
                )
                yield from original(self)

        monkeypatch.setattr(StrictLinker, "_prepare_inputs", choosy)
        found = [largest_ratio(1.0, seed, relay="none", answer=2) for seed in range(2)]
        assert max(found) == math.inf


STARS = 500


def releases(entry: int, coins: str) -> tuple[np.ndarray, np.ndarray]:
    """The symbols of many devices of one entry, and their shifts by the run seed."""
    pairs = np.arange(2 * STARS).reshape(-1, 2)
    features = np.eye(SIZE, dtype=np.float32)[np.full(2 * STARS, entry)]
    graph = Graph.from_edges(pairs, features=features)
    with the_same_coins():  # of the seed alone: as if he knew the graph and all settings, too
        made = started(graph, seed=5, codebook=SIZE, epsilon=1.0, coins=coins, relay="none")
    trainer = made.trainers[0]
    trainer._codebook.weights, trainer._codebook.entries = np.ones(SIZE), np.eye(SIZE)
    made.run(lambda trainer: trainer.release())
    known = PrivateCoins(simulated_secrets(5, np.arange(2 * STARS)))
    words = known.words(np.arange(2 * STARS), "symbol", 0, 1)
    shift = make_mechanism(SIZE, 1.0, "krr").release(np.zeros(2 * STARS, np.int64), words)
    return trainer.released[:, 0], shift[:, 0]


@pytest.mark.parametrize("entry", [0, 1])
def test_coins_from_the_run_seed_are_caught(entry: int) -> None:
    """Whoever knows the seed of the twin reads every entry; of ours, what a symbol tells."""
    released, shift = releases(entry, "simulated")
    assert ((released - shift) % SIZE == entry).all()
    released, shift = releases(entry, "system")
    right = ((released - shift) % SIZE == entry).mean()
    truth = math.e / (math.e + 1)
    chance = truth**2 + (1 - truth) ** 2
    assert right == pytest.approx(chance, abs=6 * 0.5 / math.sqrt(2 * STARS))
    assert chance < truth  # worse than to believe the symbol

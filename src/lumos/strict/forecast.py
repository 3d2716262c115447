"""What strict classification would gain from neighbours: a simulation without data.

Draws a federation that fits the assumed numbers (`assumed_graph`), and passes it through the real
stages: randomized labels, their counts and matrices, opinions, trust and the vote, with the noise
that the sums of so many devices have. Only the own encoder is not trained: its logits are drawn.

At most `LARGEST` devices are drawn. More of them only scale the sums, whose noise is that of the
whole federation. Small federations are drawn several times.
"""

import math
from typing import Any

import numpy as np

from lumos.device.coins import PrivateCoins, PublicCoins, simulated_secrets
from lumos.device.shard import Shard
from lumos.encode.number_bytes import one_hot
from lumos.graph.neighbour_lists import neighbour_lists
from lumos.strict.assumed_graph import CLUSTERED, INDEPENDENT, Scenario, draw_federation
from lumos.strict.classify.stages import OPINIONS, SYMBOLS, TRUST, VOTE, ClassifySchedule
from lumos.strict.neighbour_evidence import MessageCounts
from lumos.strict.noisy_labels import NoisyLabels, draw_labels
from lumos.strict.opinions import opinions
from lumos.strict.settings import TRUST_EPOCHS
from lumos.strict.trust import RATE, Trust
from lumos.strict.vote import Vote, vote_vectors
from lumos.training.adam import Adam
from lumos.training.config import Config
from lumos.training.expectation import Expected, Forecast, Population
from lumos.training.profiles import STRICT
from lumos.training.split import Role, split_vertices
from lumos.typing import Doubles, Flags, Ints

LARGEST = 12_000
"""Most devices that are simulated at once, and about as many in all draws together."""
MOST_DRAWS = 8
WORK = 400_000
"""Bounds simulated devices times the work of one."""
LEAST_OF_A_ROW = 30
"""Validation devices for each row of a matrix, where not all devices are simulated: so few of them
would fit their own labels."""


def forecast(population: Population, **settings: Any) -> Forecast | None:
    """Simulate `classify` with these settings; the same result every time.

    None with so many classes that too few devices can be simulated in seconds.

    Args:
        population: what is assumed about the devices.
        settings: of the strict profile, by name.

    Raises:
        UsageError: a setting has no meaning, or its value is refused.
    """
    schedule = ClassifySchedule(
        config=Config.asked(profile=STRICT, **settings),
        devices=population.devices,
        training=population.devices // 2,
        validation=population.devices // 4,
        classes=population.classes,
        signed=False,
    )
    size = min(population.devices, LARGEST, WORK // _work(schedule, population))
    needed = 4 * LEAST_OF_A_ROW * schedule.label_form.alphabet
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
    draws = min(MOST_DRAWS, max(2, LARGEST // size))
    scores = np.array(
        [_Federation(schedule, population, scenario, size, n).scores() for n in range(draws)]
    )
    error = (scores[:, 2] - scores[:, 0]).std(ddof=1) / math.sqrt(draws)
    own, neighbours, together = map(float, scores.mean(axis=0))
    return Expected(own, neighbours, together, float(error))


def _work(schedule: ClassifySchedule, population: Population) -> int:
    """The work of one simulated device: its neighbours, classes, and matrices."""
    matrix = schedule.label_form.alphabet * schedule.opinion_mechanism.alphabet
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
        lists, public = neighbour_lists(drawn.pairs, size), PublicCoins(seed)
        everyone = np.arange(size)
        coins = PrivateCoins(simulated_secrets(seed, everyone, "forecast"))
        self._shard = Shard(everyone, size, lists.offsets, lists.neighbours, coins, public)
        self._roles = split_vertices(self._truth, public)

    def scores(self) -> tuple[float, float, float]:
        """Accuracy by own features, by neighbours, and by what the vote chooses."""
        schedule = self._schedule
        trains, validates = (self._roles == role for role in (Role.TRAIN, Role.VALIDATION))
        labels = draw_labels(self._shard, self._truth, schedule, None, trains | validates)
        judges = np.flatnonzero(validates)
        evidence = self._evidence(labels, trains, judges)
        trust = Trust(self._own, evidence)
        weights = self._trust_weights(trust, labels, judges)
        together = trust.logits(weights)
        alone = Trust(np.zeros_like(self._own), evidence).logits(weights)
        vote = self._sum(vote_vectors([self._own, together], labels, judges), VOTE)
        chosen = together if Vote.of(vote, schedule).choice else self._own
        return self._accuracy(self._own), self._accuracy(alone), self._accuracy(chosen)

    def _evidence(self, labels: NoisyLabels, trains: Flags, judges: Ints) -> list[Doubles]:
        """Of symbols, then of each opinion: [devices, k] each."""
        shard, form = self._shard, labels.form
        mechanism = self._schedule.opinion_mechanism
        slots = np.flatnonzero(trains[shard.neighbours])  # whose neighbour trains
        bodies = form.messages(np.maximum(labels.symbols, 0))
        support = one_hot(bodies[shard.neighbours[slots]], form.alphabet)
        counts = MessageCounts(support, shard.owner[slots], len(shard))
        both = np.union1d(np.flatnonzero(trains), judges)
        matrix = self._sum(counts.matrix_vectors(labels, both), SYMBOLS)
        evidence = [counts.evidence(matrix, form)]
        for number in range(1, 1 + self._schedule.strict.opinions):
            sent = opinions(shard, np.sum(evidence, axis=0), mechanism, number)
            support = mechanism.read(sent[shard.neighbours])
            counts = MessageCounts(support, shard.owner, len(shard))
            matrix = self._sum(counts.matrix_vectors(labels, judges), OPINIONS)
            evidence.append(counts.evidence(matrix, form))
        return evidence

    def _trust_weights(self, trust: Trust, labels: NoisyLabels, judges: Ints) -> Doubles:
        schedule, classes = self._schedule, self._own.shape[1]
        adam = Adam(Trust.start(2 + schedule.strict.opinions, classes), RATE)
        clip = schedule[TRUST].limit(len(adam.weights) + 1)
        for _ in range(TRUST_EPOCHS):
            total = self._sum(trust.update(adam.weights, labels, judges, clip), TRUST)
            adam.step(total[:-1] / max(1, schedule.validation))
        return adam.weights

    def _sum(self, vectors: Doubles, stage: str) -> Doubles:
        """The sum of the vectors of the whole federation, with its noise."""
        spread = self._schedule[stage].spread()
        total: Doubles = self._scale * vectors.sum(axis=0)
        return total + spread * self._generator.standard_normal(vectors.shape[1])

    def _accuracy(self, logits: Doubles) -> float:
        tested = self._roles == Role.TEST
        return float((logits[tested].argmax(axis=1) == self._truth[tested]).mean())

"""A whole strict run, every vector in it, and the same run again with other data.

The second run is given the sums and the opinions of the first: an observer asks what other data
would have added to the same sums. Coins are the same, so labels are drawn alike. Given the
transcript, a vector depends on its own device only; so one replay can change all devices at once,
and each is a pair of its own.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.narrow import present
from tests.strict.strictly import epochs, federation, the_same_coins

from lumos.aggregate.noise import Noise
from lumos.device.coins import PublicCoins
from lumos.graph import Graph
from lumos.strict.classify_schedule import ClassifySchedule
from lumos.strict.noisy_labels import NoisyLabels, draw_labels
from lumos.strict.noisy_sums import NoisySums
from lumos.strict.opinions import opinions
from lumos.training.split import Role, split_vertices

CLASSES, WORDS = 4, 40


@dataclass
class Transcript:
    """Everything that left the devices in a run, and what each of them added to it."""

    roles: np.ndarray
    seed: int
    schedule: ClassifySchedule | None = None
    labels: NoisyLabels | None = None
    totals: dict[int, np.ndarray] = field(default_factory=dict)
    """By step: the opened sums."""
    vectors: dict[int, np.ndarray] = field(default_factory=dict)
    """By step: [devices, width] as the sum encodes them."""
    noises: dict[int, Noise | None] = field(default_factory=dict)
    opinions: dict[int, np.ndarray] = field(default_factory=dict)
    """By number: [devices, bytes]."""
    evidence: dict[int, np.ndarray] = field(default_factory=dict)
    """By number of the opinion: [devices, k] what it was made of; it stays on the device."""
    symbols: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def of(self) -> ClassifySchedule:
        """The schedule."""
        return present(self.schedule)

    @property
    def drawn(self) -> NoisyLabels:
        """The randomized labels."""
        return present(self.labels)

    def is_same(self, other: "Transcript") -> bool:
        """Whether all vectors, sums, symbols and opinions are the same bit by bit."""
        parts = (
            (self.vectors, other.vectors),
            (self.totals, other.totals),
            (self.opinions, other.opinions),
            ({0: self.symbols}, {0: other.symbols}),
        )
        return all(
            one.keys() == two.keys() and all(np.array_equal(one[key], two[key]) for key in one)
            for one, two in parts
        )


def little_graph(seed: int, devices: int = 120, *, signed: bool = False) -> Graph:
    """Classes that words and edges point to; `signed` features are Gaussian."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, devices)
    ends = generator.integers(0, devices, (8 * devices, 2))
    alike = labels[ends[:, 0]] == labels[ends[:, 1]]
    edges = ends[(ends[:, 0] != ends[:, 1]) & (alike | (generator.random(len(ends)) < 0.2))]
    features = generator.standard_normal((devices, WORDS))
    if not signed:
        likely = np.arange(WORDS) % CLASSES == labels[:, None]
        features = (generator.random((devices, WORDS)) < np.where(likely, 0.4, 0.08)).astype(float)
    return Graph.from_edges(
        edges, devices=devices, features=features.astype(np.float32), labels=labels
    )


def changed(graph: Graph, *, features: Any = None, labels: Any = None, edges: Any = None) -> Graph:
    """The same graph with other data."""
    return Graph.from_edges(
        graph.edge_list() if edges is None else edges,
        devices=graph.devices,
        features=graph.features if features is None else features,
        labels=graph.labels if labels is None else labels,
        classes=graph.classes,
    )


def whole_run(
    graph: Graph,
    seed: int = 0,
    *,
    roles: np.ndarray | None = None,
    given: Transcript | None = None,
    labels: NoisyLabels | None = None,
    **settings: Any,
) -> Transcript:
    """Run everything, from the draw of labels to the vote.

    Args:
        given: whose roles, seed, sums and opinions the devices receive.
        labels: randomized labels instead of drawn ones.
    """
    if given is not None:
        roles, seed = given.roles, given.seed
    if roles is None:
        roles = split_vertices(present(graph.labels), PublicCoins(seed))
    transcript = Transcript(roles, seed)
    with the_same_coins(), _recording(transcript, given, labels):
        made: Any = federation(
            graph, roles, seed, **{"encoder_epochs": 16, "epochs": 61} | settings
        )
        made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
        trainer = made.trainers[0]
        transcript.schedule = trainer.schedule
        epochs(made, 0, trainer.schedule.config.train.epochs)
        made.finish()
    transcript.symbols = trainer._symbols
    return transcript


@contextmanager
def _recording(
    transcript: Transcript, given: Transcript | None, labels: NoisyLabels | None
) -> Iterator[None]:
    original_sum = NoisySums.sum

    def add_up(self: NoisySums, update: Any, noise: Noise | None, step: int) -> Any:
        transcript.vectors[step] = self.rounded(update(True))
        transcript.noises[step] = noise
        total = yield from original_sum(self, update, noise, step)
        transcript.totals[step] = total if given is None else given.totals[step]
        return transcript.totals[step]

    def draw(*args: Any) -> NoisyLabels:
        transcript.labels = draw_labels(*args) if labels is None else labels
        return transcript.labels

    def tell(shard: Any, evidence: Any, mechanism: Any, number: int) -> Any:
        transcript.evidence[number] = evidence
        sent = opinions(shard, evidence, mechanism, number)
        transcript.opinions[number] = sent if given is None else given.opinions[number]
        return transcript.opinions[number]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisySums, "sum", add_up)
        patch.setattr("lumos.strict.classify_trainer.draw_labels", draw)
        patch.setattr("lumos.strict.classify_trainer.opinions", tell)
        yield


def moved(one: Transcript, two: Transcript, groups: list[np.ndarray] | None = None) -> np.ndarray:
    """[devices or groups] μ of all sums for the question whether `one` or `two` was there.

    Args:
        groups: devices that change together; by default each changes alone.
    """
    squares: Any = 0.0
    for step, noise in one.noises.items():
        change = one.vectors[step] - two.vectors[step]
        if groups is not None:
            change = np.stack([change[group].sum(axis=0) for group in groups])
        squares += ((change / (present(noise).sigma * present(noise).clip)) ** 2).sum(axis=1)
    return np.sqrt(squares)


def mu_of(transcript: Transcript, question: str) -> np.ndarray:
    """[devices] the account's μ, by role."""
    mu = {role: transcript.of.mu(role, question) for role in Role}
    return np.array([mu[Role(role)] for role in transcript.roles])


def log_likelihood(real: Transcript, other: Transcript) -> np.ndarray:
    """[devices] of all opened sums, if this device alone had added what it adds in `other`."""
    found = np.zeros(len(real.roles))
    for step, total in real.totals.items():
        noise = real.noises[step]
        scale = 1e-6 if noise is None else noise.total  # of exact sums: rounding
        rest = total - real.vectors[step].sum(axis=0)
        residual = rest + real.vectors[step] - other.vectors[step]
        found -= (residual**2).sum(axis=1) / (2 * scale**2)
    return found


def truth_probability(epsilon: float, classes: int) -> float:
    """p of randomized response."""
    return math.exp(epsilon) / (math.exp(epsilon) + classes - 1)

"""Replay of a recorded strict run of `classify`: what other data would have added to its sums.

The trainer runs again, and is given the sums, randomized labels and propagated labels of the
recording in place of its own. Given these, a device's vectors depend on its own data only: so one
replay can change all devices at once, and each of them is a case of its own.

Whoever replays is *informed*: it knows the data of all other devices and how their labels were
drawn. No neighbour and no coordinator knows that much, so what it finds is more than what they can.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.audit.harness import Recorded, opened_on, sent_messages
from lumos.audit.table import Proportion
from lumos.device.shard import Shard, cut
from lumos.exchange.endpoint import Endpoint, Program, idle_program
from lumos.exchange.tape import Tape
from lumos.exchange.transports import TRANSPORTS
from lumos.graph import Graph
from lumos.graph.facts import GraphPart, parts_of
from lumos.runs.loop import IDEAL_TOPICS, Federation
from lumos.secagg.noise import Bound, Noise, Update
from lumos.secagg.parameters import FixedPoint
from lumos.strict.classify.labels import NoisyLabels
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.classify.trainer import ONE, StrictClassifier
from lumos.strict.features import OuterVectors
from lumos.strict.messages import propagated_labels
from lumos.strict.stages import Stage
from lumos.training.config import Config
from lumos.training.problem import Problem
from lumos.training.split import Role
from lumos.training.sums import RunSums
from lumos.typing import Bytes, Doubles, Flags, Ints

EXACT = 1e-6
"""Standard deviation that takes the place of noise in exact sums: that of rounding."""


class Seen(NamedTuple):
    """Messages of a run: sums that everybody received, and what neighbours received."""

    totals: Sequence[Doubles]
    """In the order of the sums."""
    randomized_labels: Ints
    """[devices] -1 where a device sent no randomized label."""
    propagated_labels: Sequence[Bytes]
    """For each propagated label [devices, bytes]."""
    predicted_labels: Bytes
    """[devices, bytes]; no bytes if no device sent one."""


def seen_on(tape: Tape, schedule: ClassifySchedule, devices: int) -> Seen:
    """Return what passed on the last transport of a tape."""
    bodies, senders = sent_messages(tape, "strict/symbol", devices)
    randomized_labels = np.full(devices, -1)
    randomized_labels[senders] = schedule.label_form.values(bodies[senders])
    numbers = range(schedule.num_propagated)
    sent = [sent_messages(tape, "strict/opinion", devices, number)[0] for number in numbers]
    predicted_labels = np.empty((devices, 0), np.uint8)
    if schedule.all_take_part:
        predicted_labels = sent_messages(tape, "strict/prediction", devices)[0]
    return Seen(
        opened_on(tape, FixedPoint.of(schedule.config.updates, devices)),
        randomized_labels,
        sent,
        predicted_labels,
    )


class Summands(NamedTuple):
    """Vectors that devices added to one sum; all others added nothing."""

    stage: str
    devices: Ints
    vectors: Doubles | OuterVectors


@dataclass(frozen=True, kw_only=True, eq=False)
class Transcript:
    """A run: its messages, and what each device added to its sums with some data."""

    graph: Graph = field(repr=False)
    roles: Ints = field(repr=False)
    schedule: ClassifySchedule
    seen: Seen = field(repr=False)
    labels: NoisyLabels = field(repr=False)
    parts: list[Summands] = field(repr=False)
    """In the order of the sums."""
    sums: list[Doubles] = field(repr=False)
    """Sums of all devices' vectors, without noise."""
    noises: list[Noise | None] = field(repr=False)
    evidence: list[Doubles] = field(repr=False)
    """[devices, k] the evidence behind each propagated label."""
    predictions: Ints = field(repr=False)
    """[devices] the class behind each predicted label; empty without them."""
    rows: Any = field(repr=False)
    """[devices, d] features as the encoder uses them, weighted by the counts."""

    def noise_of(self, number: int) -> Doubles:
        """Return the noise in a sum, which whoever knows all vectors can compute."""
        return self.seen.totals[number] - self.sums[number]


class GivenSums(RunSums):
    """Sums whose totals are known before; arguments as those of `RunSums`, and the totals."""

    def __init__(
        self, shard: Shard, endpoint: Endpoint, config: Config, totals: Sequence[Doubles]
    ) -> None:
        super().__init__(shard, endpoint, config)
        self._totals = iter(totals)
        self.added: list[Doubles] = []
        self.noises: list[Noise | None] = []

    def setup(self) -> Program[None]:
        """Do nothing: nobody has to agree on anything."""
        yield from ()

    def sum(
        self,
        update: Update,
        noise: Noise | None,
        step: int,
        drop_stage: npt.NDArray[np.int8] | None = None,
        bound: Bound | None = None,
    ) -> Program[Doubles]:
        """Return the next total, whatever the devices add."""
        yield from ()
        self.added.append(update(False))
        self.noises.append(noise)
        return next(self._totals)


class ReplayedClassifier(StrictClassifier):
    """The strict trainer of all devices, with the messages and sums of another run."""

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        part: GraphPart,
        schedule: ClassifySchedule,
        seen: Seen,
        labels: NoisyLabels | None,
    ) -> None:
        super().__init__(shard, endpoint, part, schedule)
        self._own_draws = labels is None
        self.labels = self.labels if labels is None else labels
        self._randomized_labels = seen.randomized_labels
        self._seen = seen
        self.given = self.sums = GivenSums(shard, endpoint, schedule.config, seen.totals)
        self.parts: list[Summands] = []
        self.evidence: list[Doubles] = []
        self.predictions: Ints = np.empty(0, np.int64)

    def whole(self) -> Program[None]:
        """Run all parts of a training."""
        yield from self.setup()
        yield from self.epochs(0, self.schedule.config.train.epochs)
        yield from self.finish()

    def weighted_rows(self) -> Any:
        """Return [devices, d] features as the encoder uses them."""
        return self.encoder.rows

    def tell_propagated_label(self, number: int, kind: int) -> Program[None]:
        """Send what was sent in the recording; devices without neighbours draw theirs again."""
        evidence = np.sum(self._evidence(kind, ONE), axis=0)
        self.evidence.append(evidence)
        sent = self._seen.propagated_labels[number - 1]
        if self._own_draws:
            alone = self.shard.degree == 0
            mechanism = self.schedule.propagated_label_mechanism
            sent[alone] = propagated_labels(self.shard, evidence, mechanism, number)[alone]
        self._sent = [*self._sent[: number - 1], sent]
        yield from self._exchange_propagated_labels(number, kind, None)

    def tell_predicted_label(self, kind: int) -> Program[None]:
        """Send what was sent in the recording."""
        self.predictions = self._own().argmax(axis=1)
        self._predicted = self._seen.predicted_labels
        yield from self._exchange_predicted_labels(kind, None)

    def _sum(self, stage: Stage, step: int, randomness: int) -> Program[Doubles]:
        vectors = stage.vectors(self)
        if not isinstance(vectors, OuterVectors):
            vectors = self.sums.rounded(vectors)
        self.parts.append(Summands(stage.name, stage.participants(self), vectors))
        return (yield from super()._sum(stage, step, randomness))


def replay_of(recorded: Recorded) -> Transcript:
    """Replay the run itself: what its devices added to its sums.

    Labels are drawn again, with the devices' randomness: those of the run, if it was simulated.
    """
    seed = recorded.run.about.seed
    return replay_run(recorded.graph, recorded.roles, recorded.config, seed, recorded.tape)


def replay_run(graph: Graph, roles: Ints, config: Config, seed: int, tape: Tape) -> Transcript:
    """Replay a run that was made without `lumos.train`."""
    problem = Problem.of(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=roles,
        held_back=np.empty((0, 2), np.int64),
        classes=graph.class_count,
        seed=seed,
        shards=1,
    )
    federation: Federation[Any] = Federation(problem, config)
    (trainer,) = federation.trainers
    if not isinstance(trainer, StrictClassifier):
        raise TypeError("only runs of the strict profile that classify are replayed")
    seen = seen_on(tape, trainer.schedule, graph.devices)
    return _replayed(graph, roles, federation.shards[0], trainer.schedule, seen, None)


def replay(
    run: Transcript, *, graph: Graph | None = None, labels: NoisyLabels | None = None
) -> Transcript:
    """Return what devices with other data would have added to the same sums.

    Args:
        graph: with other features or edges.
        labels: other randomized labels.
    """
    graph = run.graph if graph is None else graph
    shard = cut(graph, 1, 0)[0]  # no random bit is used: draws and noise are those of the run
    labels = run.labels if labels is None else labels
    return _replayed(graph, run.roles, shard, run.schedule, run.seen, labels)


def _replayed(
    graph: Graph,
    roles: Ints,
    shard: Shard,
    schedule: ClassifySchedule,
    seen: Seen,
    labels: NoisyLabels | None,
) -> Transcript:
    transport = TRANSPORTS["loopback"]([shard], schedule.config.profile.doors, IDEAL_TOPICS)
    (part,) = parts_of(graph, [shard.devices], roles)
    trainer = ReplayedClassifier(shard, transport.endpoints[0], part, schedule, seen, labels)
    transport.run(lambda shard, endpoint: trainer.whole(), lambda endpoint: idle_program())
    return Transcript(
        graph=graph,
        roles=roles,
        schedule=schedule,
        seen=seen,
        labels=trainer.labels,
        parts=trainer.parts,
        sums=trainer.given.added,
        noises=trainer.given.noises,
        predictions=trainer.predictions,
        evidence=trainer.evidence,
        rows=trainer.weighted_rows(),
    )


def changed(graph: Graph, *, features: Any = None, labels: Any = None, edges: Any = None) -> Graph:
    """Return the same graph with other data."""
    return Graph.from_edges(
        graph.edge_list() if edges is None else edges,
        devices=graph.devices,
        features=graph.features if features is None else features,
        labels=graph.labels if labels is None else labels,
        classes=graph.classes,
    )


def moved(one: Transcript, two: Transcript, pairs: Ints | None = None) -> Doubles:
    """Return [devices or pairs] μ of all sums for the question whether `one` or `two` was there.

    Args:
        pairs: [pairs, 2] devices that change together; by default each changes alone.
    """
    squares = np.zeros(len(one.roles) if pairs is None else len(pairs))
    for square, _, noise in _changes(one, two, pairs):
        squares += square / (EXACT if noise is None else noise.sigma * noise.clip) ** 2
    return np.sqrt(squares)


def log_likelihood(run: Transcript, other: Transcript, pairs: Ints | None = None) -> Doubles:
    """Return [devices or pairs] log-likelihoods of all opened sums, if each alone were of `other`.

    Relative to `run`, which has 0: with noise z of the sums and the change c of a vector the
    logarithm is (|z|² - |z + c|²)/(2σ²).
    """
    found = np.zeros(len(run.roles) if pairs is None else len(pairs))
    for square, product, noise in _changes(run, other, pairs):
        scale = EXACT if noise is None else noise.total
        found -= (square + 2 * product) / (2 * scale**2)
    return found


def _changes(
    one: Transcript, two: Transcript, pairs: Ints | None
) -> Iterator[tuple[Doubles, Doubles, Noise | None]]:
    """Yield for each sum |c|² and ⟨z, c⟩ of c = one - two, and the noise that z was drawn from."""
    devices = len(one.roles)
    for number, (first, second) in enumerate(zip(one.parts, two.parts, strict=True)):
        rest = one.noise_of(number)
        a, b = first.vectors, second.vectors
        if isinstance(a, OuterVectors) and isinstance(b, OuterVectors) and pairs is None:
            square, product = np.zeros((2, devices))
            square[first.devices] = a.squared_distance(b)
            product[first.devices] = a.inner(rest) - b.inner(rest)
        elif _equal(a, b):
            square, product = np.zeros((2, devices if pairs is None else len(pairs)))
        else:
            change = np.zeros((devices, len(rest)))
            change[first.devices] = _written_out(a) - _written_out(b)
            if pairs is not None:
                change = change[pairs].sum(axis=1)
            square, product = (change**2).sum(axis=1), change @ rest
        yield square, product, one.noises[number]


def _equal(one: Doubles | OuterVectors, two: Doubles | OuterVectors) -> bool:
    """Return whether outer products are the same; those of no edge are, and they are wide."""
    if not isinstance(one, OuterVectors) or not isinstance(two, OuterVectors):
        return False
    difference: Any = one.rows - two.rows
    return (
        np.array_equal(one.slope, two.slope)
        and np.array_equal(one.rest, two.rest)
        and not abs(difference).max()
    )


def _written_out(vectors: Doubles | OuterVectors) -> Doubles:
    return vectors.dense() if isinstance(vectors, OuterVectors) else vectors


def independent_cases(one: Transcript, two: Transcript, cases: Ints) -> int:
    """Return the number of independent cases that these are worth: all share one run's noise.

    The noise that decides a case is that along its change c, in units of the noise. Cases u, w have
    the correlation of their c; the variance of a mean over n cases grows by the factor n |Σ ĉ|²/n²,
    with ĉ the changes at length 1.

    Args:
        cases: devices that change alone, or [pairs, 2] devices that change together; no device is
            in two cases.
    """
    pairs = cases if cases.ndim == 2 else None
    squares = np.zeros(len(one.roles) if pairs is None else len(pairs))
    for square, _, noise in _changes(one, two, pairs):
        squares += square / (EXACT if noise is None else noise.total) ** 2
    length = np.sqrt(squares if pairs is not None else squares[cases])
    chosen = length > 0
    by_case = np.where(chosen, 1 / np.where(chosen, length, 1.0), 0.0)
    weights = np.zeros(len(one.roles))
    weights[cases] = by_case if pairs is None else by_case[:, None]
    together = 0.0
    for first, second, noise in zip(one.parts, two.parts, one.noises, strict=True):
        by_device = weights[first.devices]
        total = _weighted(first.vectors, by_device) - _weighted(second.vectors, by_device)
        together += float((total**2).sum()) / (EXACT if noise is None else noise.total) ** 2
    many = int(chosen.sum())
    return max(1, min(many, int(many**2 / max(together, 1e-300)))) if many else 0


def _weighted(vectors: Doubles | OuterVectors, weights: Doubles) -> Doubles:
    """Return the sum of all vectors, each times a weight."""
    if not isinstance(vectors, OuterVectors):
        return weights @ vectors
    table = np.asarray(vectors.rows.T @ (vectors.slope * weights[:, None]))
    return np.concatenate([table.ravel(), weights @ vectors.rest])


def share_of(right: Flags, cases: int) -> Proportion:
    """Return the share of right guesses, over a number of independent cases."""
    return Proportion(float(right.mean()) * cases, cases)


def mu_of(run: Transcript, question: str) -> Doubles:
    """Return [devices] the account's μ, by role."""
    mu = {role: run.schedule.mu(question, role) for role in Role}
    return np.array([mu[Role(role)] for role in run.roles])

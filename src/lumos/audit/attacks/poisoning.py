"""Devices that lie: strict runs of `classify` with forged summands and messages, and their rows.

A simulation replaces what some training devices add and send. They act together, and know
everything: all data, all draws, and each sum of the honest devices' vectors before its noise. No
real liar knows that much, so what they do is more than what real ones can.

With proofs, a device whose summand is longer than what is proved (`Stage.proved_bound`) is excluded
from this and all later sums, as a lost device; a shorter one counts. Without proofs every summand
counts: devices are assumed to be semi-honest. The simulation excludes by that rule; that real
devices catch a long summand is tested with the proofs themselves. Noise of ideal sums is that of
all devices, liars included.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lumos.audit.attacks import attack
from lumos.audit.harness import Scene
from lumos.audit.table import AuditRow, Exactly, finding
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import Shard, shard_of
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.transports import TRANSPORTS
from lumos.graph import Graph
from lumos.graph.facts import GraphPart
from lumos.ldp.labels import LabelForm
from lumos.ldp.mechanisms import Digits, RandomizedResponse
from lumos.runs.loop import IDEAL_TOPICS
from lumos.strict.classify.encoder import BIAS
from lumos.strict.classify.labels import forward_slopes
from lumos.strict.classify.stages import (
    COUNTS,
    ENCODER,
    EVIDENCE_WEIGHTS,
    SELECTION,
    ClassifySchedule,
    RandomizedLabels,
)
from lumos.strict.classify.trainer import ClassifyResult, StrictClassifier
from lumos.strict.features import OuterVectors
from lumos.strict.profile import PROFILE, classify_schedule
from lumos.strict.settings import settings_of
from lumos.strict.stages import Stage
from lumos.strict.sums import StrictCoordinator
from lumos.training.config import Config
from lumos.training.given_split import GivenSplit, vertex_split
from lumos.training.problem import Problem
from lumos.training.split import Role
from lumos.typing import Doubles, Ints

_ROWS = 256  # vectors of liars written out at a time


class Told(NamedTuple):
    """Everything that liars know when they choose a summand."""

    trainer: "LyingClassifier"
    """State of all devices: data, draws, weights."""
    stage: Stage
    step: int
    honest: Doubles
    """[width] the sum of the honest devices' vectors, without noise."""
    reach: float
    """Norm of all liars' summands together that is not noticed."""


Lie = Callable[[Told], Doubles | None]
"""From what liars know to what they add together, [width]; each adds an equal part. None: they
follow the protocol in this stage."""


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """The strategy of liars.

    Args:
        lies: what they add to sums, tried in order; the first that is not None counts.
        relabel: they take part with a wrong label, and otherwise follow the protocol.
        messages: they release and send the class that does most harm, without randomization.
        within: they keep each summand as short as what is proved; otherwise nothing limits them.
    """

    lies: Sequence[Lie] = ()
    relabel: bool = False
    messages: bool = False
    within: bool = True


@dataclass(frozen=True, kw_only=True)
class LiedRun:
    """The result of a run with liars."""

    accuracy: float
    """Share of test devices that are correctly classified."""
    estimate: float
    """Accuracy as the run itself estimates it; NaN if it does not."""
    choice: str
    """Name of the chosen candidate."""
    excluded: int
    """Liars that were excluded."""
    left_out: list[str]
    """Names of the stages of sums that were left out, as honest devices cannot add up to them."""


class LyingClassifier(StrictClassifier):
    """The strict trainer of all devices, some of which lie.

    Args:
        liars: [liars] positions.
        strategy: what they do.
        proofs: exclude devices whose summands are too long.
        others: as those of `StrictClassifier`.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        part: GraphPart,
        schedule: ClassifySchedule,
        *,
        liars: Ints,
        strategy: Strategy,
        proofs: bool,
    ) -> None:
        self.truth = part.labels
        """[devices] true labels."""
        if strategy.relabel:
            labels = part.labels.copy()
            labels[liars] = (labels[liars] + 1) % schedule.classes
            part = replace(part, labels=labels)
        super().__init__(shard, endpoint, part, schedule)
        self._strategy, self._proofs = strategy, proofs
        self._lying = liars
        self.liars, self.barred = len(liars), 0
        """Numbers of liars that are in sums, and that were excluded."""
        self.roles = part.roles

    def whole(self) -> Program[ClassifyResult]:
        """Run all parts of a training."""
        yield from self.setup()
        yield from self.epochs(0, self.schedule.config.train.epochs)
        return (yield from self.finish())

    def _sum(self, stage: Stage, step: int, randomness: int) -> Program[Doubles]:
        update = partial(self._with_lies, stage, step)
        total: Doubles = yield from self.sums.sum(update, stage.noise(step), randomness)
        return total

    def _with_lies(self, stage: Stage, step: int, each: bool) -> Doubles:
        """Return the sum of all devices' vectors, those of liars forged."""
        if each:
            raise TypeError("liars are simulated in ideal sums only")
        whole = stage.update(self, False)
        own = self._own_sum(stage, len(whole))
        honest: Doubles = whole - own
        bound = stage.proved_bound(step, len(whole))
        reach = self.liars * (bound if self._strategy.within else math.inf)
        told = Told(self, stage, step, honest, reach)
        found = (lie(told) for lie in self._strategy.lies if self.liars)
        lie = next((one for one in found if one is not None), None)
        if lie is None:
            return whole if self.liars else honest
        length = float(np.linalg.norm(lie))
        if self._strategy.within and length > reach:
            lie = lie * (reach / length)
        if self._proofs and float(np.linalg.norm(lie)) > self.liars * bound * (1 + 1e-12):
            self.barred, self.liars = self.liars, 0
            return honest
        return honest + lie

    def _own_sum(self, stage: Stage, width: int) -> Doubles:
        """Return [width] what the liars would add together if they followed the protocol."""
        rows, vectors = stage.participants(self), stage.vectors(self)
        chosen = np.flatnonzero(np.isin(rows, self._lying))
        total = np.zeros(width)
        for start in range(0, len(chosen), _ROWS):
            here = chosen[start : start + _ROWS]
            if isinstance(vectors, OuterVectors):
                some = OuterVectors(*(part[here] for part in vectors)).dense()
            else:
                some = vectors[here]
            total += self.sums.rounded(some).sum(axis=0)
        return total

    # Messages to neighbours.

    def _harmful(self) -> Ints:
        """Return [liars] the class after the most frequent one among a liar's neighbours."""
        shard, classes = self.shard, self.schedule.classes
        theirs = self.truth[shard.neighbours]
        known = theirs >= 0
        places = shard.owner[known] * classes + theirs[known]
        counts = np.bincount(places, minlength=len(shard) * classes).reshape(-1, classes)
        chosen: Ints = (counts[self._lying].argmax(axis=1) + 1) % classes
        return chosen

    def _forged(self, form: LabelForm) -> Ints:
        return form.at(self._harmful(), np.zeros(len(self._lying), np.int64))

    def release(self) -> Program[None]:
        """Have training devices send their randomized label; liars send what they like."""
        if self._strategy.messages:
            sends = self._randomized_labels[self._lying] >= 0
            forged = self._forged(self.schedule.label_form)
            self._randomized_labels[self._lying[sends]] = forged[sends]
        yield from super().release()

    def _exchange_propagated_labels(
        self, number: int, kind: int, slots: Ints | None
    ) -> Program[None]:
        mechanism = self.schedule.propagated_label_mechanism
        if self._strategy.messages and isinstance(mechanism, RandomizedResponse | Digits):
            form = LabelForm.of(mechanism)
            sent = self._sent[number - 1].copy()
            sent[self._lying] = form.messages(self._forged(form))
            self._sent = [*self._sent[: number - 1], sent]
        yield from super()._exchange_propagated_labels(number, kind, slots)


# Lies.


def _at_length(direction: Doubles, length: float) -> Doubles:
    norm = float(np.linalg.norm(direction))
    return direction * (length / norm) if norm else direction


def any_numbers(told: Told) -> Doubles:
    """Return numbers far beyond anything that honest devices send."""
    generator = np.random.default_rng([told.step, len(told.honest)])
    numbers: Doubles = 1e4 * told.stage.clip * generator.standard_normal(len(told.honest))
    return numbers


def passing_numbers(told: Told) -> Doubles:
    """Return the opposite of the honest sum, as large as the free checks of a sum allow."""
    most = told.stage.adding * told.stage.clip
    least = told.stage.least * most
    spread = float(np.abs(told.honest).max(initial=0.0)) or 1.0
    wanted = least + most - told.honest if told.stage.least == 0 else -told.honest * (most / spread)
    numbers: Doubles = np.clip(wanted, least, most) - told.honest
    return numbers


def against_encoder(told: Told) -> Doubles | None:
    """Return minus the honest sum of gradients."""
    if told.stage.name != ENCODER:
        return None
    return _at_length(-told.honest, told.reach)


def to_wrong_classes(told: Told) -> Doubles | None:
    """Return the gradient that moves test devices to their most likely wrong class."""
    if told.stage.name != ENCODER:
        return None
    trainer, encoder = told.trainer, told.trainer.encoder
    logits, rows = encoder.logits(), np.flatnonzero(trainer.roles == Role.TEST)
    truth = trainer.truth[rows]
    logits = logits[rows]
    wrong = logits.copy()
    wrong[np.arange(len(rows)), truth] = -np.inf
    likelihood = np.zeros_like(logits)
    likelihood[np.arange(len(rows)), wrong.argmax(axis=1)] = 1.0
    slope, _ = forward_slopes(logits, likelihood)
    table = np.asarray(encoder.rows[rows].T @ slope)
    return _at_length(np.concatenate([table.ravel(), BIAS * slope.sum(axis=0), [0.0]]), told.reach)


def to_next_class(told: Told) -> Doubles | None:
    """Return the gradient of all devices' loss, if the label of each were the next class."""
    if told.stage.name != ENCODER:
        return None
    trainer, encoder = told.trainer, told.trainer.encoder
    rows = np.flatnonzero(trainer.truth >= 0)
    likelihood = np.eye(encoder.classes)[(trainer.truth[rows] + 1) % encoder.classes]
    slope, _ = forward_slopes(encoder.logits()[rows], likelihood)
    table = np.asarray(encoder.rows[rows].T @ slope)
    return _at_length(np.concatenate([table.ravel(), BIAS * slope.sum(axis=0), [0.0]]), told.reach)


def to_one_class(told: Told) -> Doubles | None:
    """Return the gradient that raises the bias of the first class."""
    if told.stage.name != ENCODER:
        return None
    gradient = np.zeros(len(told.honest))
    classes = told.trainer.schedule.classes
    gradient[-1 - classes : -1] = 1 / classes - np.eye(classes)[0]
    return _at_length(gradient, told.reach)


def against_counts(told: Told) -> Doubles | None:
    """Return counts of the features that tell classes apart: they lose their weight."""
    if told.stage.name != COUNTS:
        return None
    trainer = told.trainer
    rows, classes = np.flatnonzero(trainer.truth >= 0), trainer.schedule.classes
    by_class = np.eye(classes)[trainer.truth[rows]]
    means = np.asarray(trainer.encoder.rows[rows].T @ by_class) / by_class.sum(axis=0)
    return _at_length(means.std(axis=1), told.reach)


def against_matrices(told: Told) -> Doubles | None:
    """Return what moves each matrix towards that of messages that name another class."""
    stage = told.stage
    if not isinstance(stage, RandomizedLabels):
        return None
    matrix = told.honest.reshape(told.trainer.schedule.label_form.alphabet, -1)
    change = (np.roll(matrix, 1, axis=1) - matrix).ravel()
    return change * min(1.0, told.reach / max(1e-300, float(np.linalg.norm(change))))


def against_weights(told: Told) -> Doubles | None:
    """Return the gradient that lowers the weights of own features and of all messages."""
    if told.stage.name != EVIDENCE_WEIGHTS:
        return None
    gradient = np.zeros(len(told.honest))
    gradient[: 1 + len(told.trainer.schedule.messages)] = 1.0
    return _at_length(gradient, told.reach)


def worst_candidate(told: Told) -> Doubles | None:
    """Return counts that have the candidate chosen that is wrong about most test devices."""
    if told.stage.name != SELECTION:
        return None
    trainer = told.trainer
    rows = np.flatnonzero(trainer.roles == Role.TEST)
    right = [
        float((logits[rows].argmax(axis=1) == trainer.truth[rows]).mean())
        for logits in trainer.candidates()
    ]
    worst = int(np.argmin(right))
    vector = np.zeros(len(told.honest))
    vector[1::2], vector[2::2] = -1.0, 1.0
    if worst:
        vector[2 * worst - 1 : 2 * worst + 1] = 1.0, -1.0
    return _at_length(vector, told.reach)


SUMS: tuple[Lie, ...] = (against_counts, against_matrices, against_weights, worst_candidate)
"""Lies in all sums but those of the encoder."""
STRATEGIES: dict[str, Strategy] = {
    "labels": Strategy(relabel=True),
    "messages": Strategy(messages=True),
    "reverse": Strategy(lies=[against_encoder]),
    "wrong class": Strategy(lies=[to_wrong_classes]),
    "next class": Strategy(lies=[to_next_class]),
    "one class": Strategy(lies=[to_one_class]),
    "counts": Strategy(lies=[against_counts]),
    "matrices": Strategy(lies=[against_matrices]),
    "weights": Strategy(lies=[against_weights]),
    "selection": Strategy(lies=[worst_candidate]),
    "all, reverse": Strategy(lies=[against_encoder, *SUMS], messages=True),
    "all, wrong class": Strategy(lies=[to_wrong_classes, *SUMS], messages=True),
    "all, next class": Strategy(lies=[to_next_class, *SUMS], messages=True),
}
"""Strategies of liars whose summands are as short as what is proved."""
POISON: dict[str, Strategy] = {
    "any numbers": Strategy(lies=[any_numbers], within=False),
    "numbers that pass the free checks": Strategy(lies=[passing_numbers], within=False),
}
"""Strategies without proofs: numbers of one's choice in every sum."""


def run_with_liars(
    graph: Graph,
    config: Config,
    strategy: Strategy,
    liars: int,
    *,
    proofs: bool,
    seed: int = 0,
    split: GivenSplit = None,
    trainer_type: type[LyingClassifier] = LyingClassifier,
) -> LiedRun:
    """Run a strict simulation of `classify` in which some devices lie.

    Without liars it is the run that `lumos.train` makes.

    Args:
        config: settings of a strict run that classifies, with ideal sums.
        liars: their number: training devices with the most neighbours.
        proofs: exclude devices whose summands are longer than what is proved.
        trainer_type: the trainer, where an experiment adds up otherwise.
    """
    config = config.for_devices(graph.devices)
    public = PublicRandomness(seed)
    problem = Problem.of(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=vertex_split(graph, split, public).roles,
        held_back=np.empty((0, 2), np.int64),
        classes=graph.class_count,
        seed=seed,
        shards=1,
    )
    (part,) = problem.parts
    name = PROFILE.randomness(problem, config, control=False)
    shard = shard_of(part, seed, config.train.randomness, name)
    transport = TRANSPORTS["loopback"]([shard], PROFILE.doors, IDEAL_TOPICS)
    schedule = classify_schedule(problem, config)
    chosen = most_connected(graph, part.roles, liars)
    trainer = trainer_type(
        shard,
        transport.endpoints[0],
        part,
        schedule,
        liars=chosen,
        strategy=strategy,
        proofs=proofs,
    )
    features = problem.facts.feature_count
    coordinator = StrictCoordinator(schedule, public, transport.coordinator, features, name)
    (result,), _ = transport.run(
        lambda shard, endpoint: trainer.whole(), lambda endpoint: _coordinated(coordinator, config)
    )
    test = np.flatnonzero(part.roles == Role.TEST)
    right = result.logits[test].argmax(axis=1) == part.labels[test]
    return LiedRun(
        accuracy=float(right.mean()),
        estimate=trainer.selection.estimates().get("selected_accuracy", math.nan),
        choice=schedule.candidates[trainer.choice],
        excluded=trainer.barred,
        left_out=trainer.left_out,
    )


def _coordinated(coordinator: StrictCoordinator, config: Config) -> Program[None]:
    yield from coordinator.setup()
    yield from coordinator.epochs(0, config.train.epochs)
    yield from coordinator.finish()


def most_connected(graph: Graph, roles: Ints, number: int) -> Ints:
    """Return the training devices with the most neighbours, increasing."""
    training = np.flatnonzero(roles == Role.TRAIN)
    order = np.argsort(-graph.degrees[training], kind="stable")
    return np.sort(training[order[:number]])


# Rows of an audit.

LIARS = (1, 5, 20, 100)
"""Numbers of liars that are tried, up to a tenth of all devices."""
ONE_LIAR = "one device that lies in every sum"
ONE_POINT = (1.0, "a device whose summand is too long is excluded (docs/liars.md)")


def strategies_of(graph: Graph, config: Config, number: int, **given: Any) -> dict[str, LiedRun]:
    """Return a run for each strategy of `number` liars who stay within what is proved."""
    return {
        name: run_with_liars(graph, config, strategy, number, proofs=True, **given)
        for name, strategy in STRATEGIES.items()
    }


def _scene(scene: Scene) -> tuple[Config, dict[str, Any]]:
    """Return the settings of a simulation, and the other arguments of `run_with_liars`."""
    config = scene.config("classify", aggregate="ideal", randomness="seeded", account=None)
    return config, {"seed": scene.seed, "split": scene.split}


def _lost(before: LiedRun, after: LiedRun) -> float:
    """Return the points of test accuracy that are lost; 0 if there are none."""
    return max(0.0, 100 * (before.accuracy - after.accuracy))


@attack("poisoning", "numbers of one's choice in sums", "strict", "classify")
def attack_poisoning(scene: Scene) -> Iterator[AuditRow]:
    """Yield the rows of one device that sends any numbers, then of liars within the bound."""
    config, given = _scene(scene)
    if settings_of(config).protect != "noise":
        return  # vectors of exact sums have no bound
    graph = scene.graph
    honest = run_with_liars(graph, config, Strategy(), 0, proofs=True, **given)
    for name, strategy in POISON.items():
        scene.say(f"one device sends {name}")
        proved, trusted = (
            run_with_liars(graph, config, strategy, 1, proofs=proofs, **given)
            for proofs in (True, False)
        )
        yield finding(
            ONE_LIAR,
            f"test accuracy lost to {name} in every sum",
            "points",
            Exactly(_lost(honest, proved)),
            bound=ONE_POINT,
            undefended=_lost(honest, trusted),
            note="Without the defence: no proofs; what the free checks refuse is left out.",
        )
    for number in LIARS:
        if number <= max(1, graph.devices // 10):
            scene.say(f"{number} liars within what is proved")
            yield _worst(
                f"{number:,} {'device that lies' if number == 1 else 'devices that lie'}",
                honest,
                strategies_of(graph, config, number, **given),
            )


def _worst(who: str, honest: LiedRun, runs: Mapping[str, LiedRun]) -> AuditRow:
    """Return the row of the strategy that costs most."""
    name = min(runs, key=lambda name: runs[name].accuracy)
    return finding(
        f"{who} within what is proved",
        f"test accuracy lost, by the worst of {len(runs)} strategies",
        "points",
        Exactly(_lost(honest, runs[name])),
        note=f"The worst strategy was {name!r}. The bound limits summands; no accuracy follows "
        "from it.",
    )


@attack("sybils", "one owner of a tenth of all devices", "strict", "classify")
def attack_sybils(scene: Scene) -> Iterator[AuditRow]:
    """Yield the rows of an owner that enrolled as many devices as may collude."""
    config, given = _scene(scene)
    if settings_of(config).protect != "noise":
        return
    graph = scene.graph
    number = int(config.updates.corrupt * graph.devices)
    who = f"one owner of {number:,} devices"
    honest = run_with_liars(graph, config, Strategy(), 0, proofs=True, **given)
    scene.say(f"{number} sybils")
    for name, strategy in POISON.items():
        proved, trusted = (
            run_with_liars(graph, config, strategy, number, proofs=proofs, **given)
            for proofs in (True, False)
        )
        yield finding(
            who,
            f"test accuracy lost to {name} in every sum",
            "points",
            Exactly(_lost(honest, proved)),
            undefended=_lost(honest, trusted),
            note="All of them are excluded, and the simulation goes on without them. A real run "
            f"ends where more than {config.updates.dropped:.0%} of the devices are missing.",
        )
    yield _worst(who, honest, strategies_of(graph, config, number, **given))

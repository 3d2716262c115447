"""Real masked sums: a canary that their noise must hide, and colluders who choose themselves.

**Canary.** Federations of real devices with real shares (`aggregate='secure'`): every device draws
its share of noise, and vectors are masked, opened and added up as in a run, by the noise of a run's
schedule. As many devices as it tolerates collude, and as many fall silent after they shared their
masks. The adversary is the coordinator with the colluders: it sees the opened sums and subtracts
the colluders' shares of noise. It knows who the canary is and both candidates, and everything else:
all other devices add zero.

Two questions, those of the table: the canary's vectors or zeros (*membership*), and its vectors or
those as far away as the stage allows (*replacement*). The statistic is the likelihood ratio: every
sum's number, by change over variance. Noise is independent in every number, so each number is a
trial of its own; the canary is another device in each, there or not by a random bit. Two more
attackers look for noise that is not what it should be: one learns the weights of the sums from half
of the trials, and so finds noise that returns from sum to sum; one rehearses, with a federation of
its own under the same public seed, and subtracts the noise that it saw there.

μ̂ is the difference of both means by the deviation; its bound is the account's μ.

**Colluders.** Whoever knows the mask graph before enrolment picks the mask neighbours of one
device. t of them hold t shares of both of its secrets, and with the coordinator's copy of its
message they have its vector (a test computes it). A coordinator that lies needs 2t - k of them.
With the draw of `lumos.secagg.mask_graph` a coalition is chosen before the graph, and succeeds with
the probabilities of `lumos.secagg.parameters` only (`surrounded`, `parted`). The audit makes two
draws by the real protocol, with randomness from the operating system, and reads from its messages
who agreed on a key with whom. For every device the attacker picks t mask neighbours that it had in
the first draw, or as many as may collude, and is given those that it has in the second.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy.special import ndtr

from lumos.audit.attacks import attack
from lumos.audit.harness import COLUMNS, Scene, printed
from lumos.audit.table import CONFIDENCE, AuditRow, CertifiedEpsilon, Exactly, Mean, finding
from lumos.device.shard import Shard, cut
from lumos.exchange.endpoint import EVERY_DOOR, Endpoint, Program
from lumos.exchange.tape import recording
from lumos.exchange.transports import TRANSPORTS
from lumos.graph import Graph
from lumos.graph.facts import facts_of
from lumos.secagg import AggregateSettings, SecureAggregator, mask_parameters
from lumos.secagg.coordinator import SecureCoordinator
from lumos.secagg.noise import Noise
from lumos.secagg.topics import Stage
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.features import feature_form
from lumos.strict.guarantees import SUMS
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.settings import settings_of
from lumos.strict.stages import Schedule
from lumos.training.config import Config
from lumos.training.guarantees import CONTRIBUTION_ZEROED, FEATURES_REPLACED
from lumos.training.split import Role
from lumos.training.sums import RunSums
from lumos.typing import Doubles, Flags, Ints

DEVICES = 80
TRIALS = 5000
"""Numbers of a sum: half of them have the canary, the others do not."""
JITTER = 1e-9
NO_NOISE = 1e-18
"""A variance that stands for none."""


class CanarySum(NamedTuple):
    """One sum that a canary is in."""

    noise: Noise
    norm: float
    """Norm of the canary's vector."""
    change: float
    """Distance to the vector in its place."""


@dataclass(frozen=True, kw_only=True)
class CanaryQuestion:
    """A question about the canary, and the cell that guarantees the answer."""

    about: str
    sums: list[CanarySum]
    mu: float
    """The account's μ."""
    row: str
    """Row of the table of guarantees, by relation."""
    column: str
    task: str


@attack("canary", "a canary at the clip in real masked sums", "strict")
def attack_canary(scene: Scene) -> Iterator[AuditRow]:
    """Yield rows for all questions whose sums carry noise."""
    for task in scene.tasks:
        config = scene.config(task, aggregate="secure", randomness="system", account=None)
        if settings_of(config).protect != "noise":
            continue
        roles = scene.recorded(task).roles if task == "classify" else np.empty(0, np.int64)
        for number, question in enumerate(questions(scene.graph, config, roles=roles)):
            scene.say(f"{question.about}, {len(question.sums)} sums")
            view = seen_by(question, config, scene.seed)
            yield from rows(scene, question, view.by_account())
            if number == 0:  # once
                yield mu_row(question, view.by_learnt_weights(), "weights learnt")
                rehearsed = seen_by(question, config, scene.seed, rehearsed=True)
                yield mu_row(question, rehearsed.by_account(), "noise of a rehearsal subtracted")
                alone = seen_by(question, config, scene.seed, tolerated=False)
                yield mu_row(question, alone.by_account(), "nobody colludes, nobody is absent")


def rows(scene: Scene, question: CanaryQuestion, found: "CanaryTest") -> Iterator[AuditRow]:
    """Yield μ̂ beside the account, and the certified ε beside the printed one."""
    yield mu_row(question, found)
    cell = printed(scene.recorded(question.task).run, question.row, question.column)
    if cell is not None:
        epsilon, delta = cell
        yield replace(
            mu_row(question, found, "ε that is certified"),
            measure="ε",
            estimate=found.certified(question.mu, delta),
            bound=epsilon,
            bound_is=f"{question.row}, {question.column}: ({epsilon:g}, {delta:g})",
        )


def mu_row(question: CanaryQuestion, found: "CanaryTest", how: str = "") -> AuditRow:
    """Return μ̂ beside the account."""
    return finding(
        "the coordinator with colluders" if found.colluding else "the coordinator",
        (
            f"{question.about}: canary at the clip in {len(question.sums)} masked sums"
            + f", {how}" * bool(how)
        ),
        "μ",
        found.mu(),
        bound=(question.mu, "the account of the sums"),
        knows_mechanism=True,
        note=f"{question.sums[0].noise.devices} devices, {found.colluding} collude, "
        f"{found.absent} are absent, real shares",
    )


def questions(
    graph: Graph, config: Config, devices: int = DEVICES, *, roles: Ints | None = None
) -> Iterator[CanaryQuestion]:
    """Yield the questions of the table of guarantees of a task.

    Args:
        devices: number of devices of the canary's federation.
        roles: [devices of the graph] of the run whose table it is: shares of its budget depend on
            their numbers.
    """
    form = feature_form(facts_of(graph), settings_of(config))
    task = config.train.task
    asked: list[tuple[Role, str, str]]
    if task == "link":
        schedule: Schedule = LinkSchedule(config=config, devices=devices, **form)
        asked = [(Role.NOBODY, SUMS, "")]
    else:
        schedule = _as_in_run(
            ClassifySchedule(
                config=config,
                devices=graph.devices,
                training=0 if roles is None else int((roles == Role.TRAIN).sum()),
                validation=0 if roles is None else int((roles == Role.VALIDATION).sum()),
                classes=max(2, graph.class_count),
                **form,
            ),
            devices,
        )
        asked = [(role, column, f", {column}") for role, column in COLUMNS.items()]
    for role, column, where in asked:
        for relation, change in ((FEATURES_REPLACED, "features"), (CONTRIBUTION_ZEROED, "norm")):
            yield CanaryQuestion(
                about=f"{task}{where}: {relation}",
                sums=_canary_sums(schedule, change, role),
                mu=schedule.mu(change, role),
                row=relation,
                column=column,
                task=task,
            )


def _as_in_run(whole: ClassifySchedule, devices: int) -> ClassifySchedule:
    """Return a schedule of fewer devices with the stages and shares of the whole one."""
    settings = dataclasses.replace(
        whole.strict,
        propagated_labels=whole.num_propagated,
        participation="all" if whole.all_take_part else "labelled",
    )
    config = dataclasses.replace(whole.config, profile_settings=settings)
    return dataclasses.replace(whole, config=config, devices=devices)


def _canary_sums(schedule: Schedule, field: str, role: Role = Role.NOBODY) -> list[CanarySum]:
    """Return the sums that a device of some role can change, for a field of `Sensitivity`."""
    return [
        CanarySum(_present(stage.noise(step)), part * stage.sensitivity.norm, part * change)
        for stage in schedule.stages_of(role)
        if (change := getattr(stage.sensitivity, field)) and (part := stage.part(role))
        for step in range(stage.num_sums)
    ]


def _present(noise: Noise | None) -> Noise:
    if noise is None:
        raise ValueError("sums without noise have no account")
    return noise


@dataclass(frozen=True, kw_only=True, eq=False)
class CanaryTest:
    """The statistic of every trial."""

    statistic: Doubles = field(repr=False)
    there: Flags = field(repr=False)
    """[trials] True where it was the canary's own vector."""
    colluding: int
    absent: int

    def mu(self) -> Mean:
        """Return μ̂ = difference of both means / deviation."""
        one, other = self.statistic[self.there], self.statistic[~self.there]
        n, m = len(one), len(other)
        variance = (one.var(ddof=1) * (n - 1) + other.var(ddof=1) * (m - 1)) / (n + m - 2)
        mu = float((one.mean() - other.mean()) / math.sqrt(max(variance, NO_NOISE)))
        # Delta method: the means, and the deviation, which N numbers give to 1/√(2N).
        return Mean(mu, math.sqrt(1 / n + 1 / m + mu**2 / (2 * (n + m))), n + m)

    def certified(self, mu: float, delta: float) -> CertifiedEpsilon:
        """Return ε by the threshold that certifies most for this μ, whatever the data are.

        The statistic is that of `CanaryView.by_account`: its means are 0 and μ, its deviation is 1.
        The threshold is below μ, so that less noise than there should be certifies more.
        """
        n, m = int(self.there.sum()), int((~self.there).sum())

        def test(hits: int, false_hits: int) -> CertifiedEpsilon:
            return CertifiedEpsilon(hits, n, false_hits, m, delta)

        expected = {
            float(t): test(round(n * float(ndtr(mu - t))), round(m * float(ndtr(-t))))
            for t in np.arange(-1.0, mu - 0.2, 0.05)
        }
        best = max(expected, key=lambda t: expected[t].interval(CONFIDENCE)[0])
        raised = self.statistic > best
        return test(int((raised & self.there).sum()), int((raised & ~self.there).sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class CanaryView:
    """View of the adversary, in deviations that the account assumes for each sum."""

    seen: Doubles = field(repr=False)
    """[sums, trials] 0 in the mean where the other vector is there."""
    change: Doubles
    """[sums] the mean where the canary's own is."""
    there: Flags = field(repr=False)
    colluding: int
    absent: int

    def by_account(self) -> CanaryTest:
        """Return the likelihood ratio for noise as the account assumes it."""
        return self._weighted(self.change / float(np.linalg.norm(self.change)), 0)

    def by_learnt_weights(self) -> CanaryTest:
        """Learn the best weights for the noise of half of the trials, and evaluate the rest."""
        half = len(self.there) // 2
        noise = self.seen[:, :half] - self.change[:, None] * self.there[:half]
        # Noise that was used twice makes it singular: far above what rounding makes of it.
        covariance = noise @ noise.T / half + JITTER * np.eye(len(noise))
        weights: Doubles = np.linalg.solve(covariance, self.change).astype(np.float64)
        return self._weighted(weights, half)

    def _weighted(self, weights: Doubles, first: int) -> CanaryTest:
        return CanaryTest(
            statistic=weights @ self.seen[:, first:],
            there=self.there[first:],
            colluding=self.colluding,
            absent=self.absent,
        )


def seen_by(
    question: CanaryQuestion,
    config: Config,
    seed: int = 0,
    *,
    trials: int = TRIALS,
    tolerated: bool = True,
    rehearsed: bool = False,
) -> CanaryView:
    """Add up all sums of a question, and subtract what the adversary knows.

    Args:
        tolerated: as many colluders and absent devices as the noise is made for; otherwise none.
        rehearsed: subtract the sums of another federation, whose devices add zero.
    """
    devices, updates = question.sums[0].noise.devices, config.updates
    rng = np.random.default_rng(seed)
    order = rng.permutation(devices)
    many = math.ceil(updates.corrupt * devices) * tolerated
    gone = math.ceil(updates.dropped * devices) * tolerated
    colluding, absent, honest = np.split(order, [many, many + gone])
    there = rng.random(trials) < 0.5
    canary = honest[np.arange(trials) % len(honest)]

    def with_canary(one: CanarySum) -> Doubles:
        return _vectors(devices, canary, np.where(there, one.norm, one.norm - one.change))

    def without(one: CanarySum) -> Doubles:
        return np.zeros((devices, trials))

    opened, known = add_up(question.sums, config, seed, with_canary, colluding, absent)
    if rehearsed:
        before, shares = add_up(question.sums, config, seed, without, colluding, absent)
        known = [one + total - own for one, total, own in zip(known, before, shares, strict=True)]
    scales = [one.noise.sigma * one.noise.clip for one in question.sums]
    places = zip(question.sums, opened, known, scales, strict=True)
    return CanaryView(
        seen=np.stack(
            [(total - own - (one.norm - one.change)) / scale for one, total, own, scale in places]
        ),
        change=np.array(
            [one.change / scale for one, scale in zip(question.sums, scales, strict=True)]
        ),
        there=there,
        colluding=many,
        absent=gone,
    )


def _vectors(devices: int, canary: Ints, values: Doubles) -> Doubles:
    """Return [devices, trials] zeros, and the canary's number in each trial."""
    vectors = np.zeros((devices, len(values)))
    vectors[canary, np.arange(len(values))] = values
    return vectors


def add_up(
    sums: list[CanarySum],
    config: Config,
    seed: int,
    vectors: Callable[[CanarySum], Doubles],
    colluding: Ints,
    absent: Ints,
) -> tuple[list[Doubles], list[Doubles]]:
    """Return what the coordinator opens, sum by sum, and the noise that colluders know.

    Args:
        vectors: for a sum, [devices, width].
    """
    devices = sums[0].noise.devices
    nobody = Graph.from_edges(np.empty((0, 2), np.int64), devices=devices)
    shards = cut(nobody, 1, seed, config.train.randomness)
    silent = np.full(devices, Stage.NEVER, np.int8)
    silent[absent] = Stage.MASKED
    known: list[Doubles] = []

    def devices_program(shard: Shard, endpoint: Endpoint) -> Program[None]:
        noisy = RunSums(shard, endpoint, config)
        yield from noisy.setup()
        for step, one in enumerate(sums):
            rows = vectors(one)
            yield from noisy.sum(_update(rows), one.noise, step, silent)
            shares = noisy.rounded(one.noise.shares(shard.randomness, devices, rows.shape[1], step))
            known.append(shares[colluding].sum(axis=0))

    def coordinator_program(endpoint: Endpoint) -> Program[list[Doubles]]:
        coordinator = SecureCoordinator(devices, endpoint, config.updates)
        yield from coordinator.setup()
        opened = []
        for one in sums:
            total = yield from coordinator.sum(vectors(one).shape[1])
            if total is None:
                raise ValueError("a sum was not opened")
            opened.append(total)
        return opened

    transport = TRANSPORTS["loopback"](shards, config.profile.doors, frozenset())
    _, opened = transport.run(devices_program, coordinator_program)
    return opened, known


def _update(rows: Doubles) -> Callable[[bool], Doubles]:
    return lambda each: rows if each else rows.sum(axis=0)


# Colluders who choose themselves.


MAX_DEVICES = 1000
"""Devices of the drawn federation, at most."""


def agreed_pairs(devices: int, settings: AggregateSettings) -> Flags:
    """Return [devices, devices] who sent whom a key in the setup of a run."""
    nobody = Graph.from_edges(np.empty((0, 2), np.int64), devices=devices)
    shards = cut(nobody, 1, 0, "system")
    with recording(lambda topic, batch: None) as tape:
        transport = TRANSPORTS["recording"](shards, EVERY_DOOR, ())
        transport.run(
            lambda shard, endpoint: SecureAggregator(shard, endpoint, settings).setup(),
            lambda endpoint: SecureCoordinator(devices, endpoint, settings).setup(),
        )
    (traffic,) = (t for t in tape.traffic if t.topic.name == "aggregate/keys")
    joined = np.zeros((devices, devices), np.bool_)
    joined[traffic.pairs // (devices + 1), traffic.pairs % (devices + 1)] = True
    return joined


def caught(before: Flags, after: Flags, many: int) -> Ints:
    """Return [devices] how many of `many` neighbours by one draw are neighbours in another."""
    chosen = before & (np.cumsum(before, axis=1) <= many)
    found: Ints = np.count_nonzero(chosen & after, axis=1)
    return found


@attack("colluders", "colluders who choose themselves")
def attack_chosen_colluders(scene: Scene) -> Iterator[AuditRow]:
    """Yield rows for two draws, and the computed failure bound of the audited federation."""
    settings = scene.config(scene.tasks[0]).updates
    devices = min(MAX_DEVICES, scene.graph.devices)
    parameters = mask_parameters(settings, devices)
    scene.say(f"drawing mask graphs of {devices:,} devices")
    before, after = (agreed_pairs(devices, settings) for _ in range(2))
    tolerated = math.ceil(settings.corrupt * devices)
    chosen = min(parameters.threshold, tolerated)  # nothing is guaranteed against more
    held = caught(before, after, chosen)
    needed = 2 * parameters.threshold - parameters.neighbours
    yield finding(
        "the coordinator with chosen devices",
        f"devices whose vector {chosen} colluders open, chosen for each device "
        "by everything before the draw",
        "devices",
        Exactly(float((held >= needed).sum()), devices),
        bound=(0.0, "10 % may collude, chosen before the draw (docs/protocols.md)")
        if parameters.neighbours < devices - 1
        else None,
        knows_mechanism=True,
        note=f"at most {held.max()} of them are mask neighbours of their device; a coordinator "
        f"that lies needs {needed}",
    )
    whole = mask_parameters(settings, scene.graph.devices)
    failure = whole.draws * (whole.surrounded + whole.parted)
    yield finding(
        "the coordinator with chosen devices",
        f"that {settings.corrupt:.0%} of {scene.graph.devices:,} devices, chosen before the "
        f"draw, open some vector: computed probability, in 2^-{settings.security_bits}",
        "probability",
        Exactly(failure * 2.0**settings.security_bits),
        bound=(1.0, f"2^-{settings.security_bits} over a run (lumos.secagg.parameters)"),
    )

"""A canary at the clip in real masked sums: does their noise hide it as the account says?

Federations of real devices with real shares (`aggregate='secure'`): every device draws its share of
noise, and vectors are masked, opened and added up as in a run, by the noise of a run's schedule. As
many devices as it tolerates collude, and as many fall silent after they shared their masks. The
adversary is the coordinator with the colluders: it sees the opened sums and subtracts the
colluders' shares of noise. It knows who the canary is and both candidates, and everything else:
all other devices add zero.

Two questions, those of the table: the canary's vectors or zeros (*membership*), and its vectors or
those as far away as the stage allows (*replacement*). The statistic is the likelihood ratio: every
sum's number, by change over variance. Noise is independent in every number, so each number is a
trial of its own; the canary is another device in each, there or not by a coin.

μ̂ is the difference of both means by the deviation; its bound is the account's μ. Sums of products
enter as plain sums with their noise: their shares of noise are drawn in the same way.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lumos.aggregate.coordinator import SecureCoordinator
from lumos.aggregate.noise import Noise
from lumos.aggregate.topics import Stage
from lumos.audit.attacks import Attack
from lumos.audit.audit_row import CONFIDENCE, AuditRow
from lumos.audit.estimates import CertifiedEpsilon, Mean
from lumos.audit.printed import printed
from lumos.audit.scene import Scene
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard, cut
from lumos.exchange.carrier import CARRIERS
from lumos.exchange.endpoint import Endpoint, Program
from lumos.graph import Graph
from lumos.strict.classify_schedule import ClassifySchedule
from lumos.strict.link_promises import SUMS
from lumos.strict.link_schedule import LEVELS, MARGIN, LinkSchedule
from lumos.strict.noisy_sums import NoisySums
from lumos.strict.profile import may_be_negative
from lumos.strict.settings import settings_of
from lumos.training.config import Config
from lumos.training.split import Role
from lumos.typing import Doubles, Flags, Ints

DEVICES = 80
TRIALS = 6000
"""Numbers of a sum: half of them have the canary, the others do not."""
IN_OUT = "label, features, membership"
IN_OUT_LINK = "features: in the sums"
OTHERS = "features: these or others"


class CanarySum(NamedTuple):
    """One sum that a canary is in."""

    noise: Noise
    norm: float
    """Of the canary's vector."""
    change: float
    """To the vector in its place."""


@dataclass(frozen=True, kw_only=True)
class CanaryQuestion:
    """What is asked about the canary, and where the answer is promised."""

    about: str
    sums: list[CanarySum]
    mu: float
    """The account's."""
    row: str
    """Of the table of promises: how it begins."""
    column: str
    task: str


def run(scene: Scene) -> Iterator[AuditRow]:
    """All questions whose sums carry noise."""
    for task in scene.tasks:
        config = scene.config(task, aggregate="secure", coins="system", book=None)
        if settings_of(config).protect != "noise":
            continue
        for number, question in enumerate(questions(scene.graph, config)):
            scene.say(f"{question.about}, {len(question.sums)} sums")
            yield from rows(scene, question, judged(question, config, scene.seed))
            if number == 0:  # once, for comparison: without colluders there is more noise
                alone = judged(question, config, scene.seed, tolerated=False)
                yield from rows(scene, question, alone)


def rows(scene: Scene, question: CanaryQuestion, found: "CanaryTest") -> Iterator[AuditRow]:
    """μ̂ beside the account, and the ε that is certified beside the printed one."""
    who = "the coordinator with colluders" if found.colluding else "the coordinator"
    about = f"{question.about}: canary at the clip in {len(question.sums)} masked sums"
    note = (
        f"{DEVICES} devices, {found.colluding} collude, {found.absent} are absent, real shares; "
        f"{found.trials:,} trials"
    )
    yield AuditRow(
        attack=ATTACK.name,
        adversary=who,
        about=about,
        measure="μ",
        estimate=found.mu(),
        bound=question.mu,
        bound_is="the account of the sums",
        knows_mechanism=True,
        note=note,
    )
    cell = printed(scene.recorded(question.task).run, question.row, question.column)
    if cell is None or not found.colluding:
        return
    epsilon, delta = cell
    yield AuditRow(
        attack=ATTACK.name,
        adversary=who,
        about=f"{about}, ε that is certified",
        measure="ε",
        estimate=found.certified(question.mu, delta),
        bound=epsilon,
        bound_is=f"{question.row} …, {question.column}: ({epsilon:g}, {delta:g})",
        knows_mechanism=True,
        note=note,
    )


def questions(graph: Graph, config: Config, devices: int = DEVICES) -> Iterator[CanaryQuestion]:
    """Those of the table of promises of a task."""
    signed = may_be_negative(graph, settings_of(config))
    if config.train.task == "link":
        links = LinkSchedule(config=config, devices=devices, signed=signed)
        for about, field, row in (
            ("words, these or others", "features", OTHERS),
            ("in the sums or not", "norm", IN_OUT_LINK),
        ):
            yield CanaryQuestion(
                about=f"link: {about}",
                sums=[
                    CanarySum(
                        _present(links.noise(stage, step)),
                        links.reach(stage).norm * (1 + MARGIN),
                        getattr(links.reach(stage), field) * (1 + MARGIN),
                    )
                    for stage, many in {**links.sums, LEVELS: 1}.items()
                    for step in range(many)
                    if getattr(links.reach(stage), field)
                ],
                mu=links.mu(field),
                row=row,
                column=SUMS,
                task="link",
            )
        return
    classify = ClassifySchedule(
        config=config, devices=devices, classes=max(2, graph.class_count), signed=signed
    )
    for role, column in ((Role.TRAIN, "training devices"), (Role.VALIDATION, "validation devices")):
        for about, field, row in (
            ("features, these or others", "features", OTHERS),
            ("in the sums or not", "norm", IN_OUT),
        ):
            yield CanaryQuestion(
                about=f"classify, {column}: {about}",
                sums=[
                    CanarySum(
                        _present(classify.noise(stage, step)),
                        classify.reach(stage).norm,
                        getattr(classify.reach(stage), field),
                    )
                    for stage in classify.stages_of(role)
                    for step in range(classify.sums.get(stage, 1))
                    if getattr(classify.reach(stage), field)
                ],
                mu=classify.mu(role, field),
                row=row,
                column=column,
                task="classify",
            )


def _present(noise: Noise | None) -> Noise:
    if noise is None:
        raise ValueError("sums without noise have no account")
    return noise


@dataclass(frozen=True, kw_only=True)
class CanaryTest:
    """The statistic of every trial, scaled to the deviation that the account assumes."""

    statistic: Doubles
    there: Flags
    """Whether it was the canary's own vector."""
    colluding: int
    absent: int

    @property
    def trials(self) -> int:
        """In both worlds."""
        return len(self.there)

    def mu(self) -> Mean:
        """μ̂ = difference of both means / deviation."""
        one, other = self.statistic[self.there], self.statistic[~self.there]
        n, m = len(one), len(other)
        variance = (one.var(ddof=1) * (n - 1) + other.var(ddof=1) * (m - 1)) / (n + m - 2)
        mu = float((one.mean() - other.mean()) / math.sqrt(variance))
        # Delta method: the means, and the deviation, which N numbers give to 1/√(2N).
        return Mean(mu, math.sqrt(1 / n + 1 / m + mu**2 / (2 * (n + m))), n + m)

    def certified(self, mu: float, delta: float) -> CertifiedEpsilon:
        """By the threshold that promises most for this μ; the data have no part in it."""
        n, m = int(self.there.sum()), int((~self.there).sum())

        def test(hits: int, false_hits: int) -> CertifiedEpsilon:
            return CertifiedEpsilon(hits, n, false_hits, m, delta)

        # Means are μ and 0, the deviation is 1.
        expected = {
            float(t): test(round(n * float(ndtr(mu - t))), round(m * float(ndtr(-t))))
            for t in np.arange(-1.0, mu + 3.5, 0.05)
        }
        best = max(expected, key=lambda t: expected[t].interval(CONFIDENCE)[0])
        raised = self.statistic > best
        return test(int((raised & self.there).sum()), int((raised & ~self.there).sum()))


def judged(
    question: CanaryQuestion,
    config: Config,
    seed: int = 0,
    *,
    trials: int = TRIALS,
    tolerated: bool = True,
) -> CanaryTest:
    """Add up all sums of a question, and compute the statistic of the adversary.

    Args:
        tolerated: as many colluders and absent devices as the noise is made for; otherwise none.
    """
    devices, updates = question.sums[0].noise.devices, config.updates
    rng = np.random.default_rng(seed)
    order = rng.permutation(devices)
    many = math.ceil(updates.corrupt * devices) * tolerated
    gone = math.ceil(updates.dropped * devices) * tolerated
    colluding, absent, honest = np.split(order, [many, many + gone])
    there = rng.random(trials) < 0.5
    canary = honest[np.arange(trials) % len(honest)]
    opened, known = add_up(
        question.sums,
        config,
        seed,
        lambda norm, change: _vectors(devices, canary, np.where(there, norm, norm - change)),
        colluding,
        absent,
    )
    statistic = np.zeros(trials)
    for one, total, shares in zip(question.sums, opened, known, strict=True):
        variance = (one.noise.sigma * one.noise.clip) ** 2
        # Where the other vector is there, the sum has norm - change in its mean.
        statistic += one.change * (total - shares - (one.norm - one.change)) / variance
    return CanaryTest(statistic=statistic / question.mu, there=there, colluding=many, absent=gone)


def _vectors(devices: int, canary: Ints, values: Doubles) -> Doubles:
    """[devices, trials] zeros, and the canary's number in each trial."""
    vectors = np.zeros((devices, len(values)))
    vectors[canary, np.arange(len(values))] = values
    return vectors


def add_up(
    sums: list[CanarySum],
    config: Config,
    seed: int,
    vectors: Callable[[float, float], Doubles],
    colluding: Ints,
    absent: Ints,
) -> tuple[list[Doubles], list[Doubles]]:
    """What the coordinator opens, sum by sum, and the shares of noise that colluders know.

    Args:
        vectors: for a norm and a change, [devices, width].
    """
    devices = sums[0].noise.devices
    nobody = Graph.from_edges(np.empty((0, 2), np.int64), devices=devices)
    shards = cut(nobody, 1, seed, config.train.coins)
    silent = np.full(devices, Stage.NEVER, np.int8)
    silent[absent] = Stage.MASKED
    known: list[Doubles] = []

    def devices_program(shard: Shard, endpoint: Endpoint) -> Program[None]:
        noisy = NoisySums(shard, endpoint, config)
        yield from noisy.setup()
        for step, one in enumerate(sums):
            rows = vectors(one.norm, one.change)
            yield from noisy.sum(_update(rows), one.noise, step, silent)
            shares = noisy.rounded(one.noise.shares(shard.coins, devices, rows.shape[1], step))
            known.append(shares[colluding].sum(axis=0))

    def coordinator_program(endpoint: Endpoint) -> Program[list[Doubles]]:
        coordinator = SecureCoordinator(devices, PublicCoins(seed), endpoint, config.updates)
        opened = []
        for one in sums:
            total = yield from coordinator.sum(vectors(one.norm, one.change).shape[1])
            if total is None:
                raise ValueError("a sum was not opened")
            opened.append(total)
        return opened

    carrier = CARRIERS["loopback"](shards, config.profile.doors, frozenset())
    _, opened = carrier.run(devices_program, coordinator_program)
    return opened, known


def _update(rows: Doubles) -> Callable[[bool], Doubles]:
    return lambda each: rows if each else rows.sum(axis=0)


ATTACK = Attack(
    name="canary",
    title="a canary at the clip in real masked sums",
    run=run,
    profiles=frozenset({"strict"}),
)

"""What the noisy sums of strict links tell: one device has these words or others.

Small federations with real sums, and a planted worst case: much changes with the words of one
device, the canary. The attacker knows everything but them: all other data, who is matched with
whom, and both candidates. It sees every opened sum. The sums without noise under the other words
are those of a second run, which is given the sums of the first (`replayed`): so the likelihood
ratio is exact, and adaptive as the run is.

- *μ*: largest distance of both candidates in any run, by the noise that is left when the tolerated
  colluders are subtracted and the tolerated devices are absent. Bound: the account;
- *noise that was found* in the opened sums of each stage, beside that of the account;
- *guesses*: how often the likelihood ratio of the opened sums, all noise unknown, names these
  words. Bound: two Gaussians at a distance μ are told apart in Φ(μ/2) of cases, and no better.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from lumos.aggregate.fixed_point import FixedPoint
from lumos.aggregate.noise import Noise, epsilon_for
from lumos.audit.attacks import Attack
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Exactly, NoiseRatio, Proportion
from lumos.audit.noise_row import noise_row, noise_square
from lumos.audit.printed import printed
from lumos.audit.scene import Scene
from lumos.audit.views import exact_on, opened_on
from lumos.exchange.tape import Tape, recording
from lumos.graph import Graph
from lumos.graph.facts import facts_of
from lumos.runs.federation import Federation
from lumos.strict.features import feature_form
from lumos.strict.link.guarantees import SUMS
from lumos.strict.link.stages import COLOURS, LinkSchedule
from lumos.strict.settings import settings_of
from lumos.strict.stages import Stage
from lumos.training.config import Config
from lumos.training.problem import Problem
from lumos.training.split import Role
from lumos.typing import Doubles

DEVICES, WORDS, HELD = 120, 96, 32
CANARY = 0
RUNS = 40
ALL = "all sums"
QUESTION = "features: these or others"


def run(scene: Scene) -> Iterator[AuditRow]:
    """By stage, and of all sums together; nothing where sums have no noise."""
    config = scene.config("link", aggregate="ideal", coins="simulated", book=None)
    strict = settings_of(config)
    if strict.protect != "noise":
        return
    # Planted features are scaled as those of the graph are.
    scaling = feature_form(facts_of(scene.graph), strict)["scaling"]
    config = replace(config, profile_settings=replace(strict, scaling=scaling))
    scene.say(f"{RUNS} planted federations")
    found = guesses(RUNS, config)
    for stage, one in found.items():
        if stage == COLOURS:
            continue  # they depend on no words
        yield AuditRow(
            attack=ATTACK.name,
            adversary="the coordinator with colluders, who knows all else",
            about=f"words of one device, these or others, by {stage}: largest distance",
            measure="μ",
            estimate=Exactly(one.largest, RUNS),
            bound=one.account,
            bound_is="the account of the sums",
            knows_mechanism=True,
            note=f"planted worst case, {DEVICES} devices",
        )
    for stage, one in found.items():
        if stage != ALL:
            adversary = "the coordinator, who knows all else"
            yield noise_row(ATTACK.name, adversary, f"{stage} (links)", one.noise)
    whole = found[ALL]
    cell = printed(scene.recorded("link").run, QUESTION, SUMS)
    if cell is not None:
        yield AuditRow(
            attack=ATTACK.name,
            adversary="the coordinator with colluders, who knows all else",
            about="the same, all sums, as ε",
            measure="ε",
            estimate=Exactly(epsilon_for(whole.largest, cell[1]), RUNS),
            bound=cell[0],
            bound_is=f"{QUESTION}, {SUMS}: ({cell[0]:g}, {cell[1]:g})",
            knows_mechanism=True,
        )
    yield AuditRow(
        attack=ATTACK.name,
        adversary="the coordinator, who knows all else",
        about="words of one device, these or others, guessed from all opened sums",
        measure="accuracy",
        estimate=Proportion(round(whole.right), RUNS),
        chance=0.5,
        chance_is="a coin",
        bound=float(ndtr(whole.account / 2)),
        bound_is="Φ(μ/2) of the account",
        knows_mechanism=True,
        note=f"by all noise it should be {whole.expected:.3f}",
    )


class StageGuesses(NamedTuple):
    """What the sums of one stage, or all of them, tell in some runs."""

    account: float
    """μ."""
    largest: float
    """μ of any run, exact."""
    noise: NoiseRatio
    """That of the account by the one that was found."""
    right: float
    """How often the likelihood ratio names these words; half a time where both are as likely."""
    expected: float
    """How often it should, as a share."""


def guesses(runs: int, config: Config) -> dict[str, StageGuesses]:
    """By stage, and of all together, over some planted federations."""
    found: dict[str, list[_OneSum]] = {}
    schedule = schedule_of(config)
    for seed in range(runs):
        words, other, edges, held_back = planted(seed)
        first = whole_run(words, edges, held_back, seed, config)
        second = whole_run(other, edges, held_back, seed, config, replayed=first)
        fixed = FixedPoint.of(config.updates, DEVICES)
        sums = zip(
            opened_on(first, fixed), exact_on(first, fixed), exact_on(second, fixed), strict=True
        )
        of_run: dict[str, list[_OneSum]] = {}
        for (stage, step), (total, exact, counter) in zip(schedule.sums, sums, strict=True):
            noise = stage.noise(step)
            if noise is None:
                raise ValueError("sums without noise have no account")
            of_run.setdefault(stage.name, []).append(_of_sum(total, exact, counter, noise))
        of_run[ALL] = [each for some in of_run.values() for each in some]
        for name, some in of_run.items():
            found.setdefault(name, []).append(_OneSum(*np.sum(some, axis=0)))
    return {name: _of_stage(schedule, name, some) for name, some in found.items()}


def schedule_of(config: Config) -> LinkSchedule:
    """The schedule of the planted federations, which scale features if they are asked to."""
    words, _, edges, _ = planted(0)
    graph = Graph.from_edges(edges, devices=DEVICES, features=words)
    form = feature_form(facts_of(graph), settings_of(config))
    return LinkSchedule(config=config, devices=DEVICES, **form)


def _of_stage(schedule: LinkSchedule, stage: str, some: "list[_OneSum]") -> StageGuesses:
    far, whole_far, better, square, numbers = np.array(some).T
    return StageGuesses(
        account=schedule.mu("features") if stage == ALL else stage_mu(schedule[stage]),
        largest=float(np.sqrt(far.max())),
        noise=NoiseRatio(float(square.sum()), int(numbers.sum())),
        right=float((better > 0).sum() + (better == 0).sum() / 2),
        expected=float(ndtr(np.sqrt(whole_far) / 2).mean()),
    )


class _OneSum(NamedTuple):
    """What one sum, or several together, say of these words or others."""

    far: float
    """μ², by the noise that is left when colluders' shares are known and some are absent."""
    whole_far: float
    """The same by all noise."""
    better: float
    """Twice the log-likelihood ratio."""
    square: float
    """Σ of squares of the noise that was found, in those that it should have."""
    numbers: float


def _of_sum(total: Doubles, exact: Doubles, other: Doubles, noise: Noise) -> _OneSum:
    moved = float(((exact - other) ** 2).sum())
    found = total - exact
    better = float(((total - other) ** 2).sum() - (found**2).sum())
    left = (noise.sigma * noise.clip) ** 2
    whole_noise = left * noise.devices / (noise.devices - noise.absent)
    square = noise_square(found, noise)
    return _OneSum(moved / left, moved / whole_noise, better / whole_noise, square, len(found))


def stage_mu(stage: Stage) -> float:
    """Return μ of all sums of a stage, for other features."""
    change = stage.sensitivity.features
    noises = [stage.noise(step) for step in range(stage.num_sums)]
    square = sum(
        (change / (noise.sigma * noise.clip)) ** 2 for noise in noises if noise is not None
    )
    return float(np.sqrt(square))


def whole_run(
    words: Any,
    edges: Any,
    held_back: Any,
    seed: int,
    config: Config,
    *,
    replayed: Tape | None = None,
) -> Tape:
    """Train and calibrate a federation of all edges; everything that passed.

    Args:
        replayed: whose sums the devices get.
    """
    with recording(replayed=replayed) as tape:
        train(federation(words, edges, held_back, seed, config))
    return tape


def federation(
    words: Any, edges: Any, held_back: Any, seed: int, config: Config
) -> "Federation[Any]":
    """A small one, of all edges. Coins are the same for any words: matching and colours too."""
    graph = Graph.from_edges(edges, devices=len(words), features=words)
    problem = Problem.of(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=np.full(graph.devices, Role.NOBODY),
        held_back=held_back,
        classes=0,
        seed=seed,
        shards=1,
    )
    return Federation(problem, config, carrier="recording", coins="/audit")


def train(made: "Federation[Any]") -> None:
    """Train, and calibrate."""
    epochs = made.config.train.epochs
    made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    made.run(lambda trainer: trainer.epochs(0, epochs), lambda program: program.epochs(0, epochs))
    made.run(lambda trainer: trainer.finish(), lambda program: program.finish())


def planted(seed: int) -> tuple[Any, Any, Any, Any]:
    """Words of all devices, twice: the canary and everybody has the first third or the second.

    Its neighbours, and those with whom it is compared, have its words, so that much changes.
    """
    rng = np.random.default_rng(seed)
    words = (rng.random((DEVICES, WORDS)) < 0.25).astype(np.float32)
    words[1:, :HELD] = rng.random((DEVICES - 1, HELD)) < 0.6
    other = words.copy()
    words[CANARY], other[CANARY] = 0, 0
    words[CANARY, :HELD] = 1
    other[CANARY, HELD : 2 * HELD] = 1
    edges = np.stack([np.arange(DEVICES - 1), np.arange(1, DEVICES)], axis=1)
    more = rng.integers(0, DEVICES, (3 * DEVICES, 2))
    edges = np.unique(np.sort(np.concatenate([edges, more[more[:, 0] != more[:, 1]]])), axis=0)
    held_back = np.stack([np.arange(0, DEVICES, 2), np.arange(1, DEVICES, 2)], axis=1)
    return words, other, edges, held_back


ATTACK = Attack(
    name="link-sums",
    title="words from noisy sums of links",
    run=run,
    profiles=frozenset({"strict"}),
    tasks=frozenset({"link"}),
)

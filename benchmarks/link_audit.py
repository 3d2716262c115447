"""An audit of the noisy sums of strict links: one device has these words or others.

Small federations with real sums. The attacker knows everything but the words of one device: all
other data, who is matched with whom, and both candidates. It sees every noisy sum. The sums without
noise under the other words are those of a second run, which is given the sums of the first: so the
likelihood ratio is exact, and adaptive as the run is.

- *account*: μ of the stage for "these or others", with the tolerated colluders and absent devices;
- *exact*: largest distance of both candidates in any run, by the same noise;
- *measured*: the same by the noise that was found in the opened sums, less the shares above;
- *guesses*: how often the likelihood ratio of the opened sums, all noise unknown, names these
  words, and how often it should: Φ(μ/2).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

import lumos
from lumos.aggregate.noise import Noise
from lumos.runs.federation import Federation
from lumos.strict import profile
from lumos.strict.link_schedule import LEVELS, MARGIN
from lumos.strict.noisy_sums import NoisySums
from lumos.training.config import Config
from lumos.training.profile import Problem
from lumos.training.split import Role
from lumos.typing import Doubles

DEVICES, WORDS, HELD = 120, 96, 32
CANARY = 0


class Opened(NamedTuple):
    """One sum: without noise, as it was opened, and its noise."""

    exact: Doubles
    total: Doubles
    noise: Noise


@contextmanager
def sums(given: dict[int, Opened] | None = None) -> Iterator[dict[int, Opened]]:
    """Every sum of a single shard by its step; with `given`, trainers get those totals instead."""
    opened: dict[int, Opened] = {}
    plain, paired = NoisySums.sum, NoisySums.sum_products

    def kept(step: int, exact: Doubles, total: Doubles, noise: Any) -> Doubles:
        opened[step] = Opened(exact, total, noise)
        return total if given is None else given[step].total

    def sum_(self: Any, update: Any, noise: Any, step: int) -> Any:
        exact = np.asarray(update(True)).sum(axis=0)
        return kept(step, exact, (yield from plain(self, update, noise, step)), noise)

    def products(self: Any, vectors: Any, words: int, noise: Any, step: int) -> Any:
        of = self._pairs._products
        partners = vectors[of._partner[of._paired]].astype(np.float64)
        exact = np.asarray(of._by_word @ partners).ravel() / 128
        return kept(step, exact, (yield from paired(self, vectors, words, noise, step)), noise)

    def name(problem: Problem, config: Config, *, control: bool) -> str:
        return "/audit"  # the same matching and colours for any words

    module: Any = profile
    coin_name = module.coin_name
    NoisySums.sum, NoisySums.sum_products = sum_, products  # type: ignore[method-assign]
    module.coin_name = name
    try:
        yield opened
    finally:
        NoisySums.sum, NoisySums.sum_products = plain, paired  # type: ignore[method-assign]
        module.coin_name = coin_name


def federation(words: Any, edges: Any, held_back: Any, seed: int, **settings: Any) -> Any:
    """A small one, of all edges."""
    graph = lumos.Graph.from_edges(edges, devices=len(words), features=words)
    problem = Problem(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=np.full(graph.devices, Role.NOBODY),
        held_back=held_back,
        classes=0,
        seed=seed,
        shards=1,
    )
    return Federation(problem, Config.of(profile="strict", task="link", **settings))


def whole(made: Any) -> None:
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


def audit(runs: int, **settings: Any) -> list[dict[str, str | float]]:
    """One row for each stage, and one of all together."""
    found: dict[str, list[Guess]] = {}
    schedule: Any = None
    for seed in range(runs):
        words, other, edges, held_back = planted(seed)
        with sums() as opened:
            made = federation(words, edges, held_back, seed, **settings)
            whole(made)
        with sums(opened) as counter:
            whole(federation(other, edges, held_back, seed, **settings))
        schedule = made.trainers[0].schedule
        of_run: dict[str, list[Guess]] = {}
        for step, one in opened.items():
            last = step >= schedule.config.train.epochs
            stage = LEVELS if last else schedule.stage(step)
            of_run.setdefault(stage, []).append(guess(one, counter[step].exact))
        of_run["all"] = [each for some in of_run.values() for each in some]
        for stage, some in of_run.items():
            found.setdefault(stage, []).append(Guess(*np.sum(some, axis=0)))
    rows: list[dict[str, str | float]] = []
    for stage, some in found.items():
        far, whole_far, better, square, numbers = np.array(some).T
        noise = np.sqrt(square.sum() / numbers.sum())
        promised = schedule.mu("features") if stage == "all" else stage_mu(schedule, stage)
        rows.append(
            {
                "stage": stage,
                "account": promised,
                "exact, largest": float(np.sqrt(far.max())),
                "measured": float(np.sqrt(far.max()) / noise),
                "guesses": float((better > 0).mean() + (better == 0).mean() / 2),
                "expected": float(ndtr(np.sqrt(whole_far) / 2).mean()),
            }
        )
    return rows


class Guess(NamedTuple):
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


def guess(one: Opened, other: Doubles) -> Guess:
    """Of one sum."""
    noise = one.noise
    moved = float(((one.exact - other) ** 2).sum())
    found = one.total - one.exact
    better = float(((one.total - other) ** 2).sum() - (found**2).sum())
    left = (noise.sigma * noise.clip) ** 2
    whole_noise = left * noise.devices / (noise.devices - noise.absent)
    square = float((found**2).sum()) / whole_noise
    return Guess(moved / left, moved / whole_noise, better / whole_noise, square, len(found))


def stage_mu(schedule: Any, stage: str) -> float:
    """μ of all sums of a stage, for other features."""
    reach = schedule.reach(stage).features * (1 + MARGIN)
    many = schedule.sums.get(stage, 1)
    noises = [schedule.noise(stage, step) for step in range(many)]
    return float(np.sqrt(sum((reach / (noise.sigma * noise.clip)) ** 2 for noise in noises)))

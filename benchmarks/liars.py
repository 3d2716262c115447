"""Devices that lie in strict runs of `classify`, in simulation: docs/results/liars.json.

    python benchmarks/liars.py                 # everything, some minutes
    python benchmarks/liars.py --part bounds   # one part; the others stay as they are

Liars are those of `lumos.audit.attacks.poisoning`: they act together and know everything. Parts:

    bounds     norm of a summand that honest devices may have, and the one that is proved, in clips
    poisoner   one device that sends numbers of its choice in every sum, without and with proofs
    liars      k liars who stay within what is proved, strategy by strategy
    defences   the worst strategy, and honest runs, under defences that were not adopted
    medians    five groups, and the median of their sums in place of proofs
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.special import ndtri

import lumos
from lumos.audit.attacks.poisoning import (
    LIARS,
    POISON,
    STRATEGIES,
    LyingClassifier,
    Strategy,
    run_with_liars,
    strategies_of,
)
from lumos.device.randomness import PublicRandomness
from lumos.exchange.endpoint import Program
from lumos.secagg.noise import Noise
from lumos.strict.classify import encoder, evidence
from lumos.strict.classify.stages import SELECTION, EvidenceWeightsStage
from lumos.strict.features import OuterVectors
from lumos.strict.profile import classify_schedule
from lumos.strict.stages import Stage
from lumos.training.config import Config
from lumos.training.given_split import vertex_split
from lumos.training.problem import Problem
from lumos.typing import Doubles

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "liars.json"
SEEDS = {"demo": (0, 1, 2), "facebook": (0, 1)}
SIZES = ("demo:60", "demo:200", "demo", "facebook")
SMALL = {"demo:60": range(10), "demo:200": range(5), "demo:600": range(3), "demo": range(3)}
"""Seeds of small federations: few test devices need more of them."""
GROUPS = 5
MEDIAN_NOISE = 2.679
"""Standard deviation of 5 times the median of 5 normal numbers of deviation 1; their sum has √5."""
CONFIG = Config.of(profile="strict")


def percent(values: Any) -> list[float]:
    return [round(100 * value, 2) for value in values]


def accuracies(
    name: str, strategy: Strategy, liars: int, seeds: Any, config: Config = CONFIG, **more: Any
) -> list[float]:
    """Return test accuracy in percent, seed by seed."""
    graph, given = lumos.load(name), {"proofs": True, **more}
    return percent(
        run_with_liars(graph, config, strategy, liars, seed=seed, **given).accuracy
        for seed in seeds
    )


def bounds() -> dict[str, Any]:
    """Return bounds in clips, by graph and stage: of the first and of the last sum."""
    found: dict[str, Any] = {}
    for name in SIZES:
        graph = lumos.load(name)
        problem = Problem.of(
            graph=graph,
            keep=np.zeros(len(graph.neighbours), np.bool_),
            roles=vertex_split(graph, None, PublicRandomness(0)).roles,
            held_back=np.empty((0, 2), np.int64),
            classes=graph.class_count,
            seed=0,
            shards=1,
        )
        schedule = classify_schedule(problem, CONFIG.for_devices(graph.devices))
        found[name] = {"devices": graph.devices, "stages": {}, "gain": gain(schedule[SELECTION])}
        for stage in schedule.stages:
            if stage.num_sums:
                width = stage.width(problem.facts.feature_count)
                steps = (0, stage.num_sums - 1)
                found[name]["stages"][stage.name] = {
                    "width": width,
                    "honest": [round(stage.summand_bound(s, width) / stage.clip, 2) for s in steps],
                    "proved": [round(stage.proved_bound(s, width) / stage.clip, 2) for s in steps],
                }
    return found


def gain(stage: Stage) -> dict[str, float]:
    """Return how far one liar moves the difference of two counts in model selection.

    By the norm that is proved, or if each count with its noise were proved to be in its range.
    """
    noise = stage.noise()
    tail = 0.0 if noise is None else -float(ndtri(2.0**-59)) * noise.share
    return {"norm": 2**0.5 * stage.proved_bound(0, stage.width(1)), "ranges": 1 + 2 * tail}


def poisoner() -> dict[str, Any]:
    """Return accuracy with one device that sends numbers of its choice."""
    found: dict[str, Any] = {}
    for name, seeds in SEEDS.items():
        graph = lumos.load(name)
        found[name] = {"undisturbed": accuracies(name, Strategy(), 0, seeds)}
        for title, strategy in POISON.items():
            for proofs in (False, True):
                runs = [
                    run_with_liars(graph, CONFIG, strategy, 1, proofs=proofs, seed=seed)
                    for seed in seeds
                ]
                found[name][f"{title}, {'proofs' if proofs else 'no proofs'}"] = {
                    "accuracy": percent(run.accuracy for run in runs),
                    "estimate": [
                        None if np.isnan(run.estimate) else round(100 * run.estimate, 2)
                        for run in runs
                    ],
                    "excluded": [run.excluded for run in runs],
                    "left out": [len(run.left_out) for run in runs],
                }
    return found


def liars() -> dict[str, Any]:
    """Return accuracy by graph, number of liars and strategy; also a tenth, and small graphs."""
    found: dict[str, Any] = {}
    small = {name: seeds for name, seeds in SMALL.items() if name != "demo"}
    for name, seeds in {**SEEDS, **small}.items():
        graph = lumos.load(name)
        numbers = [1, 2] if name in small else [*LIARS, graph.devices // 10]
        found[name] = {
            "devices": graph.devices,
            "undisturbed": accuracies(name, Strategy(), 0, seeds),
            "liars": {},
        }
        for number in numbers:
            runs = [strategies_of(graph, CONFIG, number, seed=seed) for seed in seeds]
            found[name]["liars"][str(number)] = {
                strategy: percent(run[strategy].accuracy for run in runs) for strategy in STRATEGIES
            }
            print(name, number, found[name]["liars"][str(number)], flush=True)
    return found


# Defences that were measured and not adopted.


def going_back() -> list[Any]:
    """Return to the best weights of the local classifier where the loss in a sum has risen."""
    original = encoder.Encoder.learn

    def learn(self: Any, total: Doubles, step: int) -> None:
        schedule = self._schedule
        loss, noise = total[-1], schedule["encoder"].spread(step)
        best = getattr(self, "best", None)
        if best is None or loss < best[0]:
            self.best = (loss, noise, self.weights.copy())
        elif loss > best[0] + 4 * np.hypot(noise, best[1]):
            self.weights, self.velocity = best[2].copy(), np.zeros_like(self.velocity)
            return
        original(self, total, step)

    return [patch.object(encoder.Encoder, "learn", learn)]


def limited_weights() -> list[Any]:
    """Keep evidence weights near their start; choose the local classifier only by a wide margin."""
    original, choose = EvidenceWeightsStage.learn, evidence.Selection.of

    def learn(self: Any, state: Any, total: Doubles, step: int) -> float:
        loss = original(self, state, total, step)
        adam, start = state.optimisers[self.name], self.schedule.start_weights()
        near = np.where(start > 0, start, 0.5)
        adam.weights = np.clip(adam.weights, np.where(start > 0, near / 2, -near), 2 * near)
        return loss

    def of(total: Doubles, schedule: Any) -> evidence.Selection:
        chosen = choose(total, schedule)
        stage = schedule["selection"]
        margin = 0.02 * schedule.devices * stage.summand_bound(0, len(total)) / 2**0.5
        return chosen if chosen.gain[0] <= -margin else chosen._replace(choice=1)

    return [
        patch.object(EvidenceWeightsStage, "learn", learn),
        patch.object(evidence.Selection, "of", staticmethod(of)),
    ]


def proved(of: Callable[[Stage, int, int], float]) -> list[Any]:
    """Replace the bound that is proved."""
    return [patch.object(Stage, "proved_bound", of)]


DEFENCES: dict[str, tuple[Callable[[], list[Any]], Config]] = {
    "none": (list, CONFIG),
    "proof of the honest bound": (lambda: proved(Stage.summand_bound), CONFIG),
    "proof of the clip, without noise": (lambda: proved(lambda stage, *_: stage.clip), CONFIG),
    "steps half as long": (lambda: [patch.object(encoder, "RATE", encoder.RATE / 2)], CONFIG),
    "4 encoder epochs": (list, Config.of(profile="strict", encoder_epochs=4)),
    "go back when the loss rises": (going_back, CONFIG),
    "evidence weights near their start": (limited_weights, CONFIG),
}
"""By name: patches, and settings. The second and the third are no defences that exist: they tell
what a stricter proof would be worth."""


@contextmanager
def applied(patches: list[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


def defences() -> dict[str, Any]:
    """Return accuracy without liars and by the worst strategy, defence by defence."""
    found: dict[str, Any] = {}
    for name, numbers, honest in (("demo", (5, 20), range(10)), ("facebook", (20, 100), (0, 1, 2))):
        graph, seeds = lumos.load(name), SEEDS[name] if name == "demo" else (0,)
        for title, (made, config) in DEFENCES.items():
            with applied(made()):
                row: dict[str, Any] = {
                    "undisturbed": accuracies(name, Strategy(), 0, honest, config)
                }
                for number in numbers:
                    runs = [strategies_of(graph, config, number, seed=s) for s in seeds]
                    means = {
                        strategy: float(np.mean([run[strategy].accuracy for run in runs]))
                        for strategy in STRATEGIES
                    }
                    worst = min(means, key=lambda strategy: means[strategy])
                    row[str(number)] = {
                        "strategy": worst,
                        "accuracy": percent(run[worst].accuracy for run in runs),
                    }
            found.setdefault(name, {})[title] = row
            print(name, title, row, flush=True)
    return found


# Medians of group sums.


class MedianClassifier(LyingClassifier):
    """Adds up five groups, each with the noise of a whole sum; liars spoil the sums of theirs."""

    def _sum(self, stage: Stage, step: int, randomness: int) -> Program[Doubles]:
        total = yield from super()._sum(stage, step, randomness)  # the ideal sum: not used
        vectors: Any = stage.vectors(self)
        vectors = vectors.dense() if isinstance(vectors, OuterVectors) else vectors
        group = stage.participants(self) % GROUPS
        sums = np.stack([vectors[group == one].sum(axis=0) for one in range(GROUPS)])
        noise = stage.noise(step)
        generator = np.random.default_rng([randomness, len(self.shard)])
        spread = 0.0 if noise is None else noise.total / MEDIAN_NOISE
        sums += spread * generator.standard_normal((GROUPS, len(total)))
        for liar in range(len(self._lying)):
            sums[liar] += 1e4 * generator.standard_normal(len(total))
        median: Doubles = GROUPS * np.median(sums, axis=0)
        return median


def medians() -> dict[str, Any]:
    """Return accuracy of medians, with as much noise as each group needs, and of single sums."""
    original = Stage.noise

    def louder(self: Stage, step: int = 0) -> Noise | None:
        noise = original(self, step)
        return None if noise is None else replace(noise, sigma=MEDIAN_NOISE * noise.sigma)

    found: dict[str, Any] = {}
    for name, seeds in SMALL.items():
        found[name] = {"sums": accuracies(name, Strategy(), 0, seeds)}
        with patch.object(Stage, "noise", louder):
            for number in (0, 1, 2):
                found[name][f"medians, {number} liars"] = accuracies(
                    name, Strategy(), number, seeds, trainer_type=MedianClassifier
                )
        print(name, found[name], flush=True)
    return found


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "bounds": bounds,
    "poisoner": poisoner,
    "liars": liars,
    "defences": defences,
    "medians": medians,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--part", choices=PARTS, action="append", help="all by default")
    chosen = parser.parse_args().part or list(PARTS)
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    for part in chosen:
        results[part] = PARTS[part]()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

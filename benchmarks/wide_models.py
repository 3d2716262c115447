"""Cheaper sums of wide models in the paper's profile: words of 32 bits, and local steps.

Words of 32 and 64 bits: their error, and its effect on scores. Every device's vector is rounded as
in a masked sum, and added up without masks, so that thousands of devices can be simulated;
`tests/paper/test_updates.py` shows that masked sums are the same. The error is that of the summed
gradients against those of unrounded ones, in the norm, as a share of it. `--devices` rounds as in a
run with more devices than the graph has.

With `--local-steps`, instead: scores by epoch for each number of local steps, and the epochs and
bytes of a device until the best validation score of the first number is reached.

    python benchmarks/wide_models.py [--graphs demo:300 facebook:300] [--tasks classify link]
        [--backbones gcn gat] [--epochs 60] [--seeds 2] [--devices 22470] [--local-steps 1 2 4]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import lumos
from lumos.device.shard import Shard
from lumos.exchange import TRANSPORTS, Endpoint, Program
from lumos.exchange.transports.loopback import Loopback
from lumos.paper.profile import NARROW_UPDATES, PaperProfile
from lumos.paper.trainer import Weights
from lumos.paper.updates import SumLayout
from lumos.secagg import AGGREGATORS, COORDINATORS, IdealAggregator, IdealCoordinator
from lumos.secagg.ideal import IDEAL_TOPICS
from lumos.secagg.parameters import AggregateSettings, FixedPoint
from lumos.training.config import UPDATES

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.paper_devices import graph_file

COMMON: dict[str, Any] = {"profile": "paper", "balancer": "greedy", "floor": False}
AT_ONCE = 50
"""Devices of a shard: the vectors of one shard are in memory at a time."""


class Rounded:
    """Sums of single devices' vectors, rounded each, in the place of masked sums."""

    def __init__(self, shard: Shard, endpoint: Endpoint, settings: AggregateSettings) -> None:
        self._ideal = IdealAggregator(shard, endpoint, settings)
        self.setup = self._ideal.setup

    def sum_updates(self, update: Any, *_: Any) -> Program[Any]:
        """Sum an update; the vectors are forgotten before the first message."""
        words, ideal = self._words(update(True)), self._ideal
        return ideal._sum(ideal._clear.encode_sum(words))

    def _words(self, vectors: np.ndarray) -> np.ndarray:
        fixed = self._ideal.fixed
        return fixed.decode(fixed.encode(vectors).sum(axis=0, dtype=fixed.dtype))


class Permissive(Loopback):
    """Permits sums in the clear, whatever the run asks for."""

    def __init__(self, shards: Any, doors: Any, ideal: Any) -> None:
        super().__init__(shards, doors, {*ideal, *IDEAL_TOPICS})


class Errors:
    """Relative errors of all sums of a run, and its layout."""

    def __init__(self) -> None:
        self.exact: Any = 0.0
        self.relative: list[float] = []
        self.layout: SumLayout

    def vectors(self, layout: SumLayout, gradients: np.ndarray, statistics: np.ndarray) -> Any:
        """Add the unrounded gradients up on the way."""
        self.exact = self.exact + gradients.sum(axis=0)
        return VECTORS(layout, gradients, statistics)

    def learn(self, weights: Weights, total: np.ndarray, epoch: int, *, select: bool) -> Any:
        """Compare with them what was read from the sum."""
        if epoch > len(self.relative):  # all shards read the same sum
            gradient, _ = deepcopy(weights.layout).read(total)
            off = np.linalg.norm(gradient - self.exact) / np.linalg.norm(self.exact)
            self.relative.append(float(off))
            self.exact, self.layout = 0.0, weights.layout
        return LEARN(weights, total, epoch, select=select)


VECTORS, LEARN = SumLayout.vectors, Weights.learn


@contextmanager
def rounding(settings: AggregateSettings) -> Iterator[Errors]:
    """Round vectors as masked sums with these settings do."""
    errors = Errors()
    with (
        mock.patch.object(PaperProfile, "updates", return_value=settings),
        mock.patch.dict(TRANSPORTS._loaded, loopback=Permissive),
        mock.patch.dict(AGGREGATORS, secure=Rounded),
        mock.patch.dict(COORDINATORS, secure=IdealCoordinator),
        mock.patch.object(SumLayout, "vectors", lambda *given: errors.vectors(*given)),
        mock.patch.object(Weights, "learn", lambda *given, **named: errors.learn(*given, **named)),
    ):
        yield errors


def score(run: Any) -> float:
    """Test accuracy or AUC in percent."""
    return 100 * next(value for name, value in run.metrics.items() if name.startswith("test"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=["demo:300", "facebook:300"])
    parser.add_argument("--tasks", nargs="+", default=["classify"])
    parser.add_argument("--backbones", nargs="+", default=["gcn"])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--devices", type=int, default=22470)
    parser.add_argument("--local-steps", type=int, nargs="+", default=[])
    asked = parser.parse_args()
    cases = [(g, t, b) for g in asked.graphs for t in asked.tasks for b in asked.backbones]
    for name, task, backbone in cases:
        with tempfile.TemporaryDirectory() as folder:
            graph = lumos.load(graph_file(name, Path(folder)) if ":" in name else name)
        settings = {"task": task, "backbone": backbone, "epochs": asked.epochs}
        if asked.local_steps:
            compare_steps(f"{name:14s} {task:8s} {backbone}", graph, asked, settings)
        else:
            compare_words(f"{name:14s} {task:8s} {backbone}", graph, asked, settings)


def compare_steps(title: str, graph: Any, asked: Any, settings: dict[str, Any]) -> None:
    """Print scores by epoch, and epochs and bytes until the best score of one step."""
    best = np.full(asked.seeds, np.inf)
    for steps in asked.local_steps:
        tests, reached, by_epoch, start = [], [], [], time.process_time()
        for seed in range(asked.seeds):
            run = lumos.train(graph, **COMMON, **settings, seed=seed, local_steps=steps)
            scores = np.array([event.score for event in run.history], float)
            if np.isinf(best[seed]):
                best[seed] = scores.max()
            there = np.flatnonzero(scores >= best[seed])
            reached.append(there[0] + 1 if len(there) else np.nan)
            tests.append(score(run))
            by_epoch.append(scores)
        each = sum(run.model.per_epoch[f"bytes_{way}_mean"] for way in ("sent", "received"))
        marks = [mark for mark in (5, 10, 20, 40, 60, 100) if mark <= asked.epochs]
        curve = ", ".join(f"{np.mean([s[mark - 1] for s in by_epoch]):.3f}" for mark in marks)
        epochs = np.mean(reached)
        print(
            f"{title} {steps} local steps: validation {curve} after {marks} epochs; the best of "
            f"{asked.local_steps[0]} after {epochs:.0f} epochs, {epochs * each / 1e3:,.0f} kB of a "
            f"device; test {np.mean(tests):.2f} ± {np.std(tests):.2f} of {asked.seeds} seeds; "
            f"{time.process_time() - start:,.0f} s of processor time",
            flush=True,
        )


def compare_words(title: str, graph: Any, asked: Any, common: dict[str, Any]) -> None:
    """Print errors of sums and scores, by the words of sums."""
    fewer = FixedPoint.of(NARROW_UPDATES, asked.devices).fraction_bits
    words = {
        "64 bits": UPDATES,
        "32 bits": NARROW_UPDATES,
        f"32 bits as for {asked.devices:,} devices": replace(NARROW_UPDATES, fraction_bits=fewer),
    }
    for text, settings in words.items():
        scores, worst, median, clipped, start = [], 0.0, [], 0, time.process_time()
        for seed in range(asked.seeds):
            with rounding(settings) as errors:
                run = lumos.train(
                    graph,
                    **COMMON,
                    **common,
                    aggregate="secure",
                    seed=seed,
                    shards=-(-graph.devices // AT_ONCE),
                )
            scores.append(score(run))
            worst = max(worst, *errors.relative)
            median.append(np.median(errors.relative))
            clipped += errors.layout.clipped_epochs
        fixed = FixedPoint.of(settings, graph.devices)
        print(
            f"{title} {text:28s}: {fixed.fraction_bits} fraction bits, "
            f"{errors.layout.width * fixed.wire / 1e3:,.0f} kB a vector; sums off by "
            f"{np.median(median):.1e} (median), {worst:.1e} (worst epoch); test "
            f"{np.mean(scores):.2f} ± {np.std(scores):.2f} of {asked.seeds} seeds; "
            f"{clipped} epochs with clipped gradients; {time.process_time() - start:,.0f} s "
            "of processor time",
            flush=True,
        )


if __name__ == "__main__":
    main()

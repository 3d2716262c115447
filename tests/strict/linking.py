"""Short strict runs of `link`, everything that passed in them, and federations of one's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.runs.running import Wire, listening

from lumos.aggregate.noise import Noise
from lumos.graph import Graph
from lumos.runs.federation import Federation
from lumos.runs.run import Run
from lumos.runs.train import train
from lumos.strict.noisy_sums import NoisySums
from lumos.training.config import Config
from lumos.training.profile import Problem
from lumos.training.split import Role

SHORT = {"profile": "strict", "task": "link", "epochs": 15}
"""9 epochs of the codebook, 4 of trust (with the fixture `short`), 2 of trees."""


def linked(graph: Any, **settings: Any) -> Run:
    """A short run; keywords are `train`'s and those of `Config.of`."""
    return train(graph, **{**SHORT, **settings})


def run_with_wire(graph: Any, **settings: Any) -> tuple[Run, Wire]:
    """A short run, and everything that passed."""
    with listening() as wire:
        result = linked(graph, **settings)
    return result, wire


def started(graph: Graph, held_back: Any = (), seed: int = 0, **settings: Any) -> Any:
    """A federation after setup, of all edges of a graph, with validation pairs of one's own.

    Not typed, because tests look at private parts of its trainers.
    """
    control, shards = settings.pop("control", False), settings.pop("shards", 1)
    problem = Problem(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=np.full(graph.devices, Role.NOBODY),
        held_back=np.asarray(held_back, np.int64).reshape(-1, 2),
        classes=0,
        seed=seed,
        shards=shards,
    )
    made: Federation[Any] = Federation(problem, Config.of(**{**SHORT, **settings}), control=control)
    made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    return made


class Opened(NamedTuple):
    """One sum: its step and noise, the vectors of all devices, their total."""

    step: int
    noise: Noise | None
    vectors: np.ndarray
    total: np.ndarray


@contextmanager
def sums() -> Iterator[list[Opened]]:
    """Every sum that the trainer of a single shard opened."""
    opened: list[Opened] = []
    original = NoisySums.sum

    def recording(self: NoisySums, update: Any, noise: Any, step: int) -> Any:
        vectors = update(True)
        total = yield from original(self, update, noise, step)
        opened.append(Opened(step, noise, vectors, total))
        return total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisySums, "sum", recording)
        yield opened


def losses(result: Run) -> np.ndarray:
    """The training loss of every epoch; nan for those of the codebook, which has none."""
    return np.array([record.loss for record in result.history], np.float64)

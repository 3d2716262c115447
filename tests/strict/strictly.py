"""Short strict runs, everything that passed in them, and every sum that was opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.narrow import present
from tests.runs.running import Wire, findings, listening

from lumos.graph import Graph
from lumos.runs.loop import Federation
from lumos.runs.run import Run
from lumos.runs.train import train
from lumos.training.config import Config
from lumos.training.problem import Problem
from lumos.training.split import Role
from lumos.training.sums import RunSums

QUICK = {"profile": "strict", "participation": "labelled", "encoder_epochs": 2, "epochs": 10}
"""Settings of a run of a fraction of a second: 1 epoch of counts, 3 of matrices (with two
propagated labels), 2 of the encoder, 4 of evidence weights."""
ALL_TAKE_PART = {"participation": "all", "propagated_labels": 2}
"""Settings with which it also has 1 epoch of agreement and 1 more matrix, and 3 of weights."""


def strict(graph: Any, **settings: Any) -> Run:
    """A short run; keywords are `train`'s and those of `Config.of`."""
    return train(graph, **{**QUICK, **settings})


def run_with_wire(graph: Any, **settings: Any) -> tuple[Run, Wire]:
    """A short run, and everything that passed."""
    with listening() as wire:
        result = strict(graph, **settings)
    return result, wire


def federation(graph: Graph, roles: Any = None, seed: int = 0, **settings: Any) -> Federation:
    """A federation that has not started, with roles of one's own."""
    if roles is None:
        roles = np.full(graph.devices, Role.TRAIN)
    control, shards = settings.pop("control", False), settings.pop("shards", 1)
    transport = settings.pop("transport", "loopback")
    problem = Problem.of(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=np.asarray(roles, np.int64),
        held_back=np.empty((0, 2), np.int64),
        classes=graph.class_count,
        seed=seed,
        shards=shards,
    )
    config = Config.of(**{**QUICK, **settings})
    return Federation(problem, config, control=control, transport=transport)


def started(*args: Any, **settings: Any) -> Any:
    """The same after setup; not typed, because tests look at private parts of its trainers."""
    made = federation(*args, **settings)
    made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    return made


def epochs(made: Federation, first: int, last: int) -> None:
    """Run some epochs."""
    made.run(
        lambda trainer: trainer.epochs(first, last), lambda program: program.epochs(first, last)
    )


@contextmanager
def sums() -> Iterator[list[tuple[int, np.ndarray]]]:
    """Every (step, sum) that the first trainer to run opened."""
    opened: list[tuple[int, np.ndarray]] = []
    original = RunSums.sum
    first: list[RunSums] = []

    def recording(self: RunSums, update: Any, noise: Any, step: int, **named: Any) -> Any:
        total = yield from original(self, update, noise, step, **named)
        first.append(self)
        if self is first[0]:
            opened.append((step, total))
        return total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunSums, "sum", recording)
        yield opened


@contextmanager
def the_same_randomness() -> Iterator[None]:
    """Runs of one seed toss the same randomness, whatever they differ in; the control its own.

    In truth runs that differ in anything share no random bit. A test that varies one thing, and
    says what may not change with it, has to keep the randomness.
    """

    def name(problem: Any, config: Any, *, control: bool, drawn: str = "") -> str:
        return "/control" if control else ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumos.strict.profile.randomness_name", name)
        patch.setattr("lumos.strict.profile.name_with_account", lambda name, state: name)
        yield


def losses(result: Run) -> np.ndarray:
    """The training loss of every epoch that has one: a codebook has none."""
    return np.array([record.loss for record in result.history if record.loss is not None])


def identical(one: Run, other: Run) -> None:
    """Two runs are the same bit by bit: what was learnt, sent, chosen and predicted."""
    pairs = ((one.model.weights, other.model.weights), (one.model.kept, other.model.kept))
    for arrays, others in pairs:
        assert arrays.keys() == others.keys()
        for name, values in arrays.items():
            assert values.tobytes() == others[name].tobytes(), name
    assert present(one.model.logits).tobytes() == present(other.model.logits).tobytes()
    assert losses(one).tobytes() == losses(other).tobytes()
    assert one.scores == other.scores
    assert findings(one) == findings(other)
    assert one.guarantees == other.guarantees


def small(
    devices: int = 40,
    classes: int = 4,
    *,
    edges: int = 80,
    unknown: float = 0.0,
    signed: bool = False,
    seed: int = 0,
) -> Graph:
    """A graph with a dozen dense features that tell the class; the last five have no neighbour."""
    rng = np.random.default_rng(seed)
    labels = np.arange(devices) % classes
    features = rng.normal(size=(devices, 12)) if signed else rng.random((devices, 12))
    features[np.arange(devices), labels % 12] += 2
    return Graph.from_edges(
        rng.integers(0, devices - 5, (edges, 2)),
        devices=devices,
        features=features.astype(np.float32),
        labels=np.where(rng.random(devices) < unknown, -1, labels),
        classes=[str(name) for name in range(classes)],
    )

"""Short strict runs of `link`, everything that passed in them, and federations of one's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.runs.running import Wire, findings, listening

from lumos.device.shard import Shard, cut
from lumos.exchange import Endpoint, LedgerReport, Program
from lumos.exchange.endpoint import idle_program
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph
from lumos.runs.loop import Federation
from lumos.runs.predict import trained_links
from lumos.runs.run import Run
from lumos.runs.train import train
from lumos.secagg.noise import Noise
from lumos.strict.link.prediction import LinkResult
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.profile import PROFILE
from lumos.training.config import Config
from lumos.training.problem import Problem
from lumos.training.split import Role
from lumos.training.sums import RunSums
from lumos.twoparty.score import IDEAL_TOPICS

LINKS = {"profile": "strict", "task": "link"}


def linked(graph: Any, **settings: Any) -> Run:
    """A run; keywords are `train`'s and those of `Config.of`."""
    return train(graph, **{**LINKS, **settings})


def run_with_wire(graph: Any, **settings: Any) -> tuple[Run, Wire]:
    """A run, and everything that passed."""
    with listening() as wire:
        result = linked(graph, **settings)
    return result, wire


def schedule(
    devices: int = 1000, *, signed: bool = False, scaling: Any = "none", **settings: Any
) -> LinkSchedule:
    """A schedule by itself."""
    config = Config.of(**{**LINKS, **settings})
    return LinkSchedule(config=config, devices=devices, signed=signed, scaling=scaling)


def town(
    devices: int = 200,
    groups: int = 4,
    *,
    within: float = 0.5,
    words: int = 10,
    seed: int = 0,
    touched: int | None = None,
) -> Graph:
    """A graph in which words tell who knows whom: groups that share words and edges.

    Every device has some words of its group, and one of any. The words of device `touched` are
    those of another group.
    """
    rng = np.random.default_rng(seed)
    group = np.arange(devices) % groups
    chance = np.where(group[:, None] == group, within, 0.01)
    edges = np.argwhere(np.triu(rng.random((devices, devices)) < chance, 1))
    features = np.zeros((devices, groups * words), np.float32)
    for device in range(devices):
        home = (group[device] + (device == touched)) % groups
        features[device, home * words + rng.permutation(words)[: words // 2]] = 1
        features[device, rng.integers(groups * words)] = 1
    return Graph.from_edges(edges, devices=devices, features=features)


def started(graph: Graph, held_back: Any = (), seed: int = 0, **settings: Any) -> Any:
    """A federation after setup, of all edges of a graph, with validation pairs of one's own.

    Not typed, because tests look at private parts of its trainers.
    """
    control, shards = settings.pop("control", False), settings.pop("shards", 1)
    problem = Problem.of(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=np.full(graph.devices, Role.NOBODY),
        held_back=np.asarray(held_back, np.int64).reshape(-1, 2),
        classes=0,
        seed=seed,
        shards=shards,
    )
    config = Config.of(**{**LINKS, **settings})
    made: Federation[Any] = Federation(problem, config, control=control)
    made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    return made


def on_shards(
    graph: Graph, program: Callable[[Shard, Endpoint], Program[Any]], shards: int = 1, seed: int = 0
) -> tuple[list[tuple[Shard, Any]], LedgerReport]:
    """The results of a program of the devices, shard by shard, and the ledger."""
    parts = cut(graph, shards, seed=seed)
    transport = Loopback(parts, ideal=IDEAL_TOPICS)
    results, _ = transport.run(program, lambda _: idle_program())
    return list(zip(parts, results, strict=True)), transport.ledger()


def whole(parts: list[tuple[Shard, Any]]) -> np.ndarray:
    """[devices, …] of results by hosted device."""
    devices = np.concatenate([shard.devices for shard, _ in parts])
    values: np.ndarray = np.concatenate([result for _, result in parts])[np.argsort(devices)]
    return values


class Opened(NamedTuple):
    """One sum: its step and noise, and the total."""

    step: int
    noise: Noise | None
    total: np.ndarray


@contextmanager
def sums() -> Iterator[list[Opened]]:
    """Every sum that the first trainer to run opened."""
    opened: list[Opened] = []
    original = RunSums.sum
    first: list[RunSums] = []

    def sum_(self: RunSums, update: Any, noise: Any, step: int, **named: Any) -> Any:
        total = yield from original(self, update, noise, step, **named)
        first.append(self)
        if self is first[0]:
            opened.append(Opened(step, noise, total))
        return total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunSums, "sum", sum_)
        yield opened


def at_home(run: Run) -> LinkResult:
    """What the devices of a finished run hold: their vectors and degrees."""
    return PROFILE.link_result(trained_links(run))


def identical(one: Run, other: Run) -> None:
    """Two runs are the same bit by bit: what was learnt, chosen, told and predicted."""
    pairs = ((one.model.weights, other.model.weights), (one.model.kept, other.model.kept))
    for arrays, others in pairs:
        assert arrays.keys() == others.keys()
        for name, values in arrays.items():
            if name.startswith("account/"):  # an account is another with every path
                continue
            assert values.tobytes() == others[name].tobytes(), name
    assert one.embeddings.tobytes() == other.embeddings.tobytes()
    assert one.scores == other.scores
    assert findings(one) == findings(other)
    assert one.guarantees == other.guarantees

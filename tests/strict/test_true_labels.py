"""Labels are randomized once, and the true ones are never read again: nothing can reach them."""

import gc
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.narrow import present
from tests.strict.strictly import federation, small, sums

from lumos import Graph
from lumos.runs.loop import Federation
from lumos.strict.classify import trainer as classify_trainer
from lumos.strict.classify.labels import draw_labels
from lumos.training.split import Role

pytestmark = pytest.mark.usefixtures("short")

GARBAGE = -987_654
SETTINGS: list[dict[str, Any]] = [
    {},
    {"tree_network": True, "epochs": 13, "propagated_labels": 3},
    {"mechanism": "digits"},
    {"control": True},
    {"aggregate": "secure"},
]


def graph_of(devices: int = 60) -> Graph:
    return small(devices, classes=6)


def roles_of(devices: int) -> np.ndarray:
    return np.array([Role.TRAIN, Role.VALIDATION, Role.TEST])[np.arange(devices) % 3]


ROLES = roles_of(60)
MANY = 600
"""Devices, so many that no draw is the true label of all that train, or of all that validate."""


def with_random_labels() -> tuple[Graph, np.ndarray]:
    labels, graph = np.random.default_rng(0).integers(0, 6, MANY), graph_of(MANY)
    edges, features, classes = graph.edge_list(), graph.features, graph.classes
    return (
        Graph.from_edges(edges, devices=MANY, features=features, labels=labels, classes=classes),
        labels,
    )


def run_out(made: Federation[Any]) -> tuple[Any, dict[str, np.ndarray]]:
    """All of a run after its trainers were made: the outcome and the weights."""
    last = made.config.train.epochs
    made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    made.run(lambda trainer: trainer.epochs(0, last), lambda program: program.epochs(0, last))
    outcome = made.finish()
    return outcome, made.first_trainer.state_dict("model")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The arrays of true labels that trainers were given."""
    given: list[np.ndarray] = []

    def watched(shard: Any, labels: np.ndarray, *others: Any) -> Any:
        given.append(labels)
        return draw_labels(shard, labels, *others)

    monkeypatch.setattr(classify_trainer, "draw_labels", watched)
    return given


@pytest.mark.parametrize(
    ("settings", "shards"),
    [
        pytest.param(
            settings,
            shards,
            marks=pytest.mark.long if shards > 1 and settings != SETTINGS[0] else (),
        )
        for settings in SETTINGS
        for shards in (1, 7)
    ],
    ids=str,
)
def test_true_labels_may_be_garbage_after_the_draw(
    settings: dict[str, Any], shards: int, seen: list[np.ndarray]
) -> None:
    """The devices' own labels, and those that the observer has, are overwritten."""
    with sums() as opened:
        expected, weights = run_out(federation(graph_of(), ROLES, shards=shards, **settings))
    seen.clear()
    graph = graph_of()
    poisoned = federation(graph, ROLES, shards=shards, **settings)
    assert len(seen) == shards
    for labels in [*seen, present(graph.labels)]:
        labels.flags.writeable = True
        labels[:] = GARBAGE
    with sums() as opened_again:
        found, poisoned_weights = run_out(poisoned)
    assert (present(graph.labels) == GARBAGE).all()
    assert found.logits.tobytes() == expected.logits.tobytes()
    assert found.choice == expected.choice
    assert found.estimates == expected.estimates
    for arrays, others in ((found.kept, expected.kept), (poisoned_weights, weights)):
        assert arrays.keys() == others.keys()
        assert all(arrays[name].tobytes() == others[name].tobytes() for name in arrays)
    assert len(opened) == len(opened_again) >= 12
    for (step, one), (again, other) in zip(opened, opened_again, strict=True):
        assert (step, one.tobytes()) == (again, other.tobytes())


def test_the_poison_works() -> None:
    """Other labels before the draw are another run."""
    graph = graph_of()
    expected, _ = run_out(federation(graph, ROLES))
    other = Graph.from_edges(
        graph.edge_list(),
        devices=60,
        features=graph.features,
        labels=(present(graph.labels) + 1) % 6,
        classes=graph.classes,
    )
    found, _ = run_out(federation(other, ROLES))
    assert (found.logits != expected.logits).any()


def reachable(start: Any) -> Iterator[np.ndarray]:
    """Every array that can be reached from an object: by attributes, closures, views.

    Not by classes and modules: what a program could import is not what an object holds.
    """
    seen, waiting = {id(start)}, [start]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, np.ndarray):
            yield thing
            others = [thing.base, *(thing.tolist() if thing.dtype == object else ())]
        elif isinstance(thing, FunctionType):
            others = [thing.__closure__, thing.__defaults__, thing.__kwdefaults__]
        elif isinstance(thing, MethodType):
            others = [thing.__self__]
        else:
            others = gc.get_referents(thing)
        for other in others:
            if isinstance(other, type | ModuleType) or id(other) in seen:
                continue
            seen.add(id(other))
            waiting.append(other)


def holds(start: Any, labels: np.ndarray) -> bool:
    """Whether some array that can be reached has the true labels in it, in the order of devices.

    Those of all devices, or of those that train, validate, or do either.
    """
    train, validate = (roles_of(MANY) == role for role in (Role.TRAIN, Role.VALIDATION))
    wanted = [labels[train], labels[validate]]  # parts of all others, too
    for array in reachable(start):
        if array.dtype.kind not in "iufSV" or array.size < min(map(len, wanted)):
            continue
        flat = array.ravel() if array.dtype.kind in "iuf" else array.ravel().view(np.uint8)
        candidates = [flat]
        if len(flat) == len(labels):
            candidates += [flat[train], flat[validate]]
        for candidate in candidates:
            for part in wanted:
                if len(candidate) >= len(part):
                    windows = np.lib.stride_tricks.sliding_window_view(candidate, len(part))
                    if (windows == part).all(axis=1).any():
                        return True
    return False


def after(made: Federation[Any], epochs: int) -> Any:
    """The trainer after setup and some epochs; -1 for as it was made."""
    if epochs >= 0:
        made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
        made.run(
            lambda trainer: trainer.epochs(0, epochs), lambda program: program.epochs(0, epochs)
        )
    return made.first_trainer


@pytest.mark.parametrize("epochs", [-1, 0, 5, 10])
@pytest.mark.parametrize("settings", [{}, {"mechanism": "digits"}], ids=str)
def test_no_trainer_holds_a_true_label(settings: dict[str, Any], epochs: int) -> None:
    """Nothing that can be reached from a trainer does, at any time after it was made."""
    graph, labels = with_random_labels()
    made = federation(graph, roles_of(MANY), **settings)
    assert holds(made.problem, labels)  # whoever looks at the observer's data finds them
    assert not holds(after(made, epochs), labels)


def test_labels_of_devices_that_only_test_are_not_even_drawn() -> None:
    trainer: Any = federation(graph_of(), ROLES).first_trainer
    drawn = trainer.labels
    assert_array_equal(drawn.values >= 0, ROLES != Role.TEST)

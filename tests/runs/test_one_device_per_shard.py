"""One device per shard: many shards then have nobody who trains, validates or has a neighbour."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import lumos
from lumos.graph import Graph
from lumos.runs.run import Run

DEVICES = 12
PROTECT: dict[str, dict[str, Any]] = {
    "noise": {},
    "none": {},
}
CLASSIFY = {"epochs": 6, "encoder_epochs": 1, "propagated_labels": 1}
STRICT = [
    pytest.param(
        {"task": task, "aggregate": aggregate, "protect": protect, **settings},
        marks=pytest.mark.long if aggregate == "secure" and protect != "noise" else (),
    )
    for task, aggregate, (protect, settings) in product(
        ("classify", "link"), ("ideal", "secure"), PROTECT.items()
    )
]
PAPER = [
    pytest.param(
        {"task": task, "aggregate": aggregate, "epochs": 2, "balancer": "none"},
        marks=pytest.mark.long if (task == "link") == (aggregate == "secure") else (),
    )
    for task, aggregate in product(("classify", "link"), ("ideal", "secure"))
]


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Small, and the last device has no neighbour."""
    demo = lumos.load(f"demo:{DEVICES}")
    edges = demo.edge_list()
    return Graph.from_edges(
        edges[(edges < DEVICES - 1).all(axis=1)],
        devices=DEVICES,
        features=demo.features,
        labels=demo.labels,
        classes=demo.classes,
    )


def both(graph: Graph, settings: dict[str, Any]) -> tuple[Run, Run]:
    """The run on one shard, and on as many as there are devices."""
    one, many = (lumos.train(graph, shards=shards, **settings) for shards in (1, DEVICES))
    return one, many


def assert_same_ledger(one: Run, many: Run) -> None:
    assert one.ledger.totals() == many.ledger.totals()
    for name, values in vars(one.ledger).items():
        if isinstance(values, np.ndarray):
            assert_array_equal(values, getattr(many.ledger, name), err_msg=name)


@pytest.mark.parametrize("settings", STRICT, ids=lambda chosen: "-".join(list(chosen.values())[:3]))
def test_strict_runs_are_the_same_bit_by_bit(graph: Graph, settings: dict[str, Any]) -> None:
    classify = CLASSIFY if settings["task"] == "classify" else {}
    one, many = both(graph, {"profile": "strict", **classify, **settings})
    for name, weights in one.model.weights.items():
        assert_array_equal(weights, many.model.weights[name], err_msg=name)
    assert_array_equal(one.model.embeddings, many.model.embeddings)
    assert_same_ledger(one, many)


@pytest.mark.parametrize("settings", PAPER, ids=lambda chosen: "-".join(list(chosen.values())[:2]))
def test_paper_runs_are_the_same_up_to_rounding(graph: Graph, settings: dict[str, Any]) -> None:
    one, many = both(graph, {"profile": "paper", **settings})
    losses = [
        np.array([event.loss for event in run.histories["run"]], np.float64) for run in (one, many)
    ]
    assert_allclose(losses[0], losses[1], rtol=0, atol=1e-5)
    assert_same_ledger(one, many)


def test_a_control_of_devices_that_receive_nothing(graph: Graph) -> None:
    settings = {"profile": "strict", "control": True, "mechanism": "digits", **CLASSIFY}
    one, many = both(graph, settings)
    assert repr(one.scores) == repr(many.scores)

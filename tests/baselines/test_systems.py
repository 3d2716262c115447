"""The registry of systems: its own entries, and one of another package."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lumos.baselines
from lumos.baselines import BASELINES, BaselineSettings, System, baseline
from lumos.baselines.network import Arcs, goal_of
from lumos.baselines.systems import TRAINING, Received, ServerProblem
from lumos.cli.main import run
from lumos.errors import UsageError
from lumos.graph import Graph
from lumos.ldp.bounds import raw_rows
from lumos.training.problem import features_of

torch.set_num_threads(1)


class EdgesOnly(System):
    """A user's own system: the server knows the edges and which devices have features."""

    without_links = "edges-only cannot predict links: its server knows every edge"

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        return {"backbone": "sage", "epochs": 7}

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        graph = problem.graph
        edges = graph.edge_list()
        rows = np.zeros((graph.devices, graph.feature_count), np.float32)
        rows[:, 0] = np.asarray(raw_rows(features_of(graph)).sum(axis=1)).ravel() > 0
        return Received(
            rows=rows,
            arcs=Arcs.of(edges, graph.devices),
            goal=goal_of(problem, graph.labels, edges),
            disclosed=["The server knows every edge."],
        )


@pytest.fixture
def edges_only() -> Iterator[None]:
    BASELINES.register("edges-only", EdgesOnly())
    yield
    BASELINES.remove("edges-only")


@pytest.mark.usefixtures("edges_only")
def test_a_registered_system_runs_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    measured = baseline("demo:60", system="edges-only")
    assert (len(measured.history), measured.settings.backbone) == (7, "sage")
    assert measured.notes == ["The server knows every edge."]
    assert measured.settings.hidden == TRAINING["hidden"]
    with pytest.raises(UsageError, match="`feature_epsilon` has no effect for edges-only"):
        BaselineSettings(system="edges-only", feature_epsilon=1.0)
    with pytest.raises(UsageError, match="edges-only cannot predict links"):
        BaselineSettings(system="edges-only", task="link")
    assert run(["baseline", "edges-only", "demo:60", "--epochs", "2"]) == 0
    assert "edges-only" in capsys.readouterr().out


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(UsageError, match="lpgnn-blink, gap, got 'edges-only'"):
        BaselineSettings(system="edges-only")


@pytest.mark.parametrize("form", ["name", "pyg", "networkx"])
def test_a_graph_in_any_form(form: str, sixty: Graph) -> None:
    graph = {"name": "demo:60", "pyg": sixty.to_pyg(), "networkx": sixty.to_networkx()}[form]
    measured = baseline(graph, system="centralized", epochs=3)
    expected = baseline(sixty, system="centralized", epochs=3)
    for name in ("test_accuracy", "val_accuracy", "test_confusion", "test_per_class"):
        assert measured.metrics[name] == expected.metrics[name]
    assert measured.metrics["val_calibration_error"] == pytest.approx(
        expected.metrics["val_calibration_error"], rel=1e-6
    )
    np.testing.assert_allclose(measured.outputs, expected.outputs, atol=1e-5)


@pytest.mark.parametrize("system", BASELINES.names())
def test_every_default_is_a_setting(system: str) -> None:
    settings = BaselineSettings(system=system)
    known = {*BASELINES[system].defaults(settings), *TRAINING, "system", "task"}
    assert known == set(settings.plain())


def test_baselines_know_nothing_of_runs_and_profiles() -> None:
    folder = Path(lumos.baselines.__path__[0])
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                above = ("lumos.runs", "lumos.paper", "lumos.strict")
                assert not (node.module or "").startswith(above), (file.name, node.module)

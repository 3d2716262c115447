"""The ceiling: one server holds raw features, labels and edges."""

from typing import Any

from lumos.baselines.arcs import Arcs
from lumos.baselines.goals import goal_of
from lumos.baselines.server_features import server_rows
from lumos.baselines.settings import BaselineSettings
from lumos.baselines.systems.system import Received, ServerProblem, System
from lumos.training.problem import features_of


class Centralized(System):
    """A graph network at a server that holds everything."""

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Chosen on validation, seed 0, Facebook (docs/baselines.md)."""
        link = given.task == "link"
        return {
            "backbone": "gcn",
            "dropout": 0.0 if link else 0.5,
            "weight_decay": 0.0 if link else 5e-4,
            "normalise": False,
        }

    def protects(self, settings: BaselineSettings) -> str:
        """Nothing."""
        return "nothing: one server holds all features, labels and edges"

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """All of it, in the clear."""
        graph = problem.graph
        edges = graph.edge_list()
        return Received(
            rows=server_rows(features_of(graph), unit=settings.normalise),
            arcs=Arcs.of(edges, graph.devices),
            goal=goal_of(problem, graph.labels, edges),
            disclosed=["One server holds all raw features, labels and edges; nothing is private."],
        )


CENTRALIZED = Centralized()

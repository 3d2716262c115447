"""The floor: every device predicts from its own features; no neighbour takes part."""

from typing import Any

from lumos.baselines.arcs import Arcs
from lumos.baselines.goals import goal_of
from lumos.baselines.server_features import server_rows
from lumos.baselines.settings import BaselineSettings
from lumos.baselines.systems.system import Received, ServerProblem, System
from lumos.training.problem import features_of


class Own(System):
    """A perceptron that all devices share, trained without noise; it has no backbone."""

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Chosen on validation, seed 0, Facebook (docs/baselines.md)."""
        link = given.task == "link"
        return {"dropout": 0.0 if link else 0.5, "normalise": not link}

    def protects(self, settings: BaselineSettings) -> str:
        """Nothing; for classify no edge is used."""
        edges = "edges are the targets" if settings.task == "link" else "edges: not used"
        return f"no promise: weights are trained without noise; {edges}"

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """Raw features and no edge; for link, training edges are targets."""
        graph = problem.graph
        edges = graph.edge_list()
        return Received(
            rows=server_rows(features_of(graph), unit=settings.normalise),
            arcs=Arcs.of(edges[:0], graph.devices),
            goal=goal_of(problem, graph.labels, edges),
            disclosed=[
                "Each device predicts from its own raw features; no neighbour tells it anything, "
                "and the shared weights are trained without noise."
            ],
        )


OWN = Own()

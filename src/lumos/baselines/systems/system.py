"""What a system is: the settings it has, what its server receives, and what that discloses."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lumos.device.coins import PublicCoins
from lumos.graph import Graph
from lumos.typing import Ints

if TYPE_CHECKING:  # torch takes a second to import, and settings are checked without it
    from lumos.baselines.arcs import Arcs
    from lumos.baselines.goals import Goal
    from lumos.baselines.server_network import Rows
    from lumos.baselines.settings import BaselineSettings
    from lumos.training.split import EdgeSplit

TRAINING: dict[str, Any] = {
    "epochs": 300,
    "patience": 0,
    "learning_rate": 0.01,
    "weight_decay": 0.0,
    "dropout": 0.0,
    "hidden": 16,
}
"""Training that every system has, by default the Lumos paper's (section VIII-B); dropout and weight
decay are each system's own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerProblem:
    """The graph and its split; for link, `graph` has the training edges only."""

    graph: Graph
    roles: Ints = field(repr=False)
    """[devices] for classify; nobody has one for link."""
    split: "EdgeSplit | None" = field(repr=False)
    """For link."""
    public: PublicCoins


@dataclass(frozen=True, kw_only=True, eq=False)
class Received:
    """What a server holds when training begins."""

    rows: "Rows" = field(repr=False)
    """[devices, d] features as it knows them."""
    arcs: "Arcs" = field(repr=False)
    """The edges that it knows or believes in."""
    goal: "Goal" = field(repr=False)
    disclosed: list[str]
    """Who learns what, one plain sentence each."""


class System(ABC):
    """One system that Lumos is compared with."""

    without_links: str = ""
    """Why the system cannot predict links; empty where it can."""

    @abstractmethod
    def defaults(self, given: "BaselineSettings") -> dict[str, Any]:
        """The settings that the system has beside those of `TRAINING`, or instead, by default.

        Any other setting is refused.

        Args:
            given: the settings as the caller gave them, None where they were not given. A default
                may depend on the task, or on another setting.
        """

    @abstractmethod
    def receive(self, problem: ServerProblem, settings: "BaselineSettings") -> Received:
        """Everything that devices send, as the server receives it."""

    def protects(self, settings: "BaselineSettings") -> str:
        """What protects label, features and edges, in one short line."""
        return "see its notes"

    def attempts(self, settings: "BaselineSettings") -> "list[BaselineSettings]":
        """The settings to train with, of which the best validation score chooses one."""
        return [settings]

    def chosen(self, attempts: "list[BaselineSettings]", best: int) -> list[str]:
        """What to note about that choice, one plain sentence each."""
        return []

"""What a system is: the settings it has, what its server receives, and what that discloses."""

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from lumos.device.randomness import PublicRandomness
from lumos.errors import UsageError, one_of
from lumos.graph import Graph
from lumos.registry import Registry
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.baselines.goals import Goal
    from lumos.baselines.network import Arcs, Rows
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
    public: PublicRandomness


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


# The systems that Lumos is compared with: a registry with one file per system.
#
#     centralized   a server holds everything in the clear
#     own           every device predicts from its own features
#     lpgnn         the server knows the edges; features and labels are noised
#     naive         the server holds a noised copy of every ego network
#
# A system of your own is a subclass of `System` and one line, `BASELINES.register("mine", Mine())`.

__all__ = ["BASELINES", "System"]

BASELINES: Registry[System] = Registry(
    "system",
    {
        "centralized": "lumos.baselines.centralized:CENTRALIZED",
        "own": "lumos.baselines.centralized:OWN",
        "lpgnn": "lumos.baselines.lpgnn:LPGNN",
        "naive": "lumos.baselines.naive:NAIVE",
    },
)


# Settings of a baseline: which system, which task, and what its server does.
#
# A setting that is not given takes the system's own default (`System.defaults`), chosen on
# validation devices or edges (docs/baselines.md). A setting that the system does not have is
# refused.

Task = Literal["classify", "link"]
Backbone = Literal["gcn", "gat", "sage"]

_OWN_DEFAULT: Any = None
"""Replaced by the system's default when the settings are made."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What a server does; which of these settings have a meaning depends on the system."""

    task: Task = "classify"
    """classify: predict labels; link: predict edges."""
    backbone: Backbone = _OWN_DEFAULT
    """gcn, gat or sage: two layers of it at the server."""
    epsilon: float = _OWN_DEFAULT
    """ε of a device's features (naive: and, once more, of its neighbour list); inf: no noise."""
    label_epsilon: float = _OWN_DEFAULT
    """ε of a device's label; inf: no noise."""
    delta: float = _OWN_DEFAULT
    """δ of the Gaussian mechanism for features."""
    low: float = _OWN_DEFAULT
    """Public lower bound of every feature."""
    high: float = _OWN_DEFAULT
    """Public upper bound of every feature."""
    one_bit: bool = _OWN_DEFAULT
    """Release a bit of every feature instead of m = max(1, ⌊ε/2.18⌋) of them."""
    steps: int = _OWN_DEFAULT
    """K_x: steps of KProp for features."""
    label_steps: int | Literal["auto"] = _OWN_DEFAULT
    """K_y: steps of KProp for labels (Drop); auto trains with 0 and with 4, and keeps what the
    noisy validation labels prefer."""
    edge_sample: int = _OWN_DEFAULT
    """Keep this many noisy edges, drawn once, with weights that make up for the rest; 0 keeps
    all."""
    epochs: int = _OWN_DEFAULT
    """Passes over all devices."""
    patience: int = _OWN_DEFAULT
    """Stop after so many epochs without a better validation score; 0: never."""
    learning_rate: float = _OWN_DEFAULT
    """Of Adam."""
    weight_decay: float = _OWN_DEFAULT
    """L2 regularisation: so much of each weight is added to its gradient."""
    dropout: float = _OWN_DEFAULT
    """Share of hidden numbers that are set to 0 in training."""
    hidden: int = _OWN_DEFAULT
    """Width of both layers; the first layer of gat has four heads of this width."""
    normalise: bool = _OWN_DEFAULT
    """Divide each device's raw features by their Euclidean norm."""


@dataclass(frozen=True, kw_only=True)
class BaselineSettings(ServerSettings):
    """One system that Lumos is compared with, and its settings."""

    system: str = "centralized"
    """A name in `BASELINES`. centralized: a server holds everything. own: no neighbour at all.
    lpgnn: the server knows the edges, features and labels are noised. naive: noised ego
    networks."""

    def __post_init__(self) -> None:
        system = BASELINES[self.system]
        one_of("task", self.task, get_args(Task))
        if self.task == "link" and system.without_links:
            raise UsageError(system.without_links)
        if self.backbone is not None:
            one_of("backbone", self.backbone, get_args(Backbone))
        defaults = {"system": None, "task": None, **TRAINING, **system.defaults(self)}
        for name, hint in get_type_hints(BaselineSettings).items():
            value = getattr(self, name)
            if value is None and name in defaults:
                value = defaults[name]
            elif value is not None and name not in defaults:
                raise UsageError(
                    f"`{name}` has no effect for {self.system} with `task='{self.task}'`; "
                    "leave it out"
                )
            if hint is float and isinstance(value, int):
                value = float(value)  # 2 and 2.0 are one setting
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        for name in ("epsilon", "label_epsilon"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"`{name}` must be above 0 (or inf), got {value}")
        if self.delta is not None and not 0 < self.delta < 1:
            raise UsageError(f"`delta` must be between 0 and 1, got {self.delta}")
        if self.low is not None and not (
            math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high
        ):
            raise UsageError(f"bounds must be finite, low < high, got [{self.low}, {self.high}]")
        for name in ("steps", "label_steps", "edge_sample", "patience"):
            value = getattr(self, name)
            if value is not None and value != "auto" and value < 0:
                raise UsageError(f"`{name}` must be 0 or more, got {value}")
        for name in ("epochs", "hidden"):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be 1 or more, got {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise UsageError(f"`learning_rate` must be above 0, got {self.learning_rate}")
        if not 0 <= self.weight_decay < math.inf:
            raise UsageError(f"`weight_decay` must be 0 or more, got {self.weight_decay}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"`dropout` must be at least 0 and below 1, got {self.dropout}")

    def plain(self) -> dict[str, Any]:
        """The settings that this system has, by name; infinity as text, for JSON."""
        return {
            name: "inf" if value == math.inf else value
            for name, value in dataclasses.asdict(self).items()
            if value is not None
        }

    def ignored(self, name: str) -> str:
        """With which of these settings another one has no effect; empty where it has one."""
        if name in ("delta", "one_bit") and self.epsilon == math.inf:
            return "`epsilon=inf`, only with a finite `epsilon`"
        return ""


def asked(**settings: Any) -> BaselineSettings:
    """Settings by name.

    Raises:
        UsageError: there is no such setting, its value is refused, or it cannot have an effect.
    """
    known = BaselineSettings.__dataclass_fields__
    for name in settings:
        if name not in known:
            raise UsageError(f"there is no setting {name!r}; there are {', '.join(known)}")
    made = BaselineSettings(**settings)
    for name in settings:
        if reason := made.ignored(name):
            raise UsageError(f"`{name}` has no effect with {reason}; leave it out")
    return made

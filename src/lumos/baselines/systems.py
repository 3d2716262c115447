"""Systems that Lumos is compared with: their interface, registry and settings.

    centralized   a server holds everything in the clear
    own           every device predicts from its own features
    lpgnn         the server knows the edges; features and labels are noised
    lpgnn-own     the same without edges: its local model
    naive         the server holds a noised copy of every ego network
    blink         the server knows features and labels, and rebuilds edges from noisy reports
    lpgnn-blink   lpgnn on edges that were rebuilt so: features, labels and edges are noised
    gap           a trusted curator adds noise to sums over neighbours

A system of your own is a subclass of `System` and one line, `BASELINES.register("mine", Mine())`.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from lumos.device.randomness import PublicRandomness
from lumos.errors import UsageError, one_of
from lumos.graph import Graph
from lumos.registry import Registry
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.baselines.network import Arcs, Goal, Rows
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
    """[devices] roles for classify; nobody has one for link."""
    split: "EdgeSplit | None" = field(repr=False)
    """The split of edges, for link."""
    public: PublicRandomness


@dataclass(frozen=True, kw_only=True, eq=False)
class Received:
    """Everything that a server holds when training begins."""

    rows: "Rows" = field(repr=False)
    """[devices, d] features as it knows them."""
    arcs: "Arcs" = field(repr=False)
    """The edges that it knows or believes in."""
    goal: "Goal" = field(repr=False)
    disclosed: list[str]
    """Disclosures, one plain sentence each."""


class System(ABC):
    """One system that Lumos is compared with."""

    local: str = ""
    """Name of the local model under the same protection, if it is a system too; empty otherwise."""
    without_links: str = ""
    """Reason why the system cannot predict links; empty where it can."""

    @abstractmethod
    def defaults(self, given: "BaselineSettings") -> dict[str, Any]:
        """Return the settings that the system has beside those of `TRAINING`, or instead.

        Any other setting is refused.

        Args:
            given: the settings as the caller gave them, None where they were not given. A default
                may depend on the task, or on another setting.
        """

    @abstractmethod
    def receive(self, problem: ServerProblem, settings: "BaselineSettings") -> Received:
        """Return everything that devices send, as the server receives it."""

    def protects(self, settings: "BaselineSettings") -> str:
        """Return in one short line what protects label, features and edges."""
        return "see its notes"

    def attempts(self, settings: "BaselineSettings") -> "list[BaselineSettings]":
        """Return settings to train with, of which the best validation score chooses one."""
        return [settings]

    def chosen(self, attempts: "list[BaselineSettings]", best: int) -> list[str]:
        """Return notes about that choice, one plain sentence each."""
        return []


BASELINES: Registry[System] = Registry(
    "system",
    {
        "centralized": "lumos.baselines.centralized:CENTRALIZED",
        "own": "lumos.baselines.centralized:OWN",
        "lpgnn": "lumos.baselines.lpgnn:LPGNN",
        "lpgnn-own": "lumos.baselines.lpgnn:LPGNN_OWN",
        "naive": "lumos.baselines.naive:NAIVE",
        "blink": "lumos.baselines.blink:BLINK",
        "lpgnn-blink": "lumos.baselines.blink:LPGNN_BLINK",
        "gap": "lumos.baselines.centralized:GAP",
    },
)


Task = Literal["classify", "link"]
Backbone = Literal["gcn", "gat", "sage"]
Variant = Literal["hard", "hybrid", "auto"]
_Range = tuple[Callable[[Any], bool], str]

_OWN_DEFAULT: Any = None
"""Replaced by the system's default when the settings are made."""


_BUDGET: _Range = (lambda value: value > 0, "above 0 (or inf)")
_COUNT: _Range = (lambda value: value >= 0, "0 or more")
_SIZE: _Range = (lambda value: value >= 1, "1 or more")
_RANGES: dict[str, _Range] = {
    **dict.fromkeys(("feature_epsilon", "label_epsilon", "edge_epsilon"), _BUDGET),
    "delta": (lambda value: 0 < value < 1, "between 0 and 1"),
    **dict.fromkeys(("steps", "label_steps", "edge_sample", "patience"), _COUNT),
    **dict.fromkeys(("epochs", "hidden"), _SIZE),
    "learning_rate": (lambda value: 0 < value < math.inf, "above 0"),
    "weight_decay": (lambda value: 0 <= value < math.inf, "0 or more"),
    "dropout": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
}
"""By setting: whether a value is valid, and what it must be."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a server; the system decides which of them have an effect.

    A setting that is not given takes the system's own default (`System.defaults`), chosen on
    validation devices or edges (docs/baselines.md). A setting that the system does not have is
    refused.
    """

    task: Task = "classify"
    """classify: predict labels; link: predict edges."""
    backbone: Backbone = _OWN_DEFAULT
    """gcn, gat or sage: two layers of it at the server."""
    feature_epsilon: float = _OWN_DEFAULT
    """ε of a device's features; inf: no noise."""
    label_epsilon: float = _OWN_DEFAULT
    """ε of a device's label; inf: no noise."""
    edge_epsilon: float = _OWN_DEFAULT
    """ε of one undirected edge, present or not; inf: no noise."""
    delta: float = _OWN_DEFAULT
    """δ of the Gaussian mechanism: for features, in gap for edges."""
    variant: Variant = _OWN_DEFAULT
    """Edges that blink's server keeps. hard: pairs likelier an edge than not; hybrid: the expected
    number of the likeliest pairs, weighted by their probability; auto: the better one on
    validation."""
    low: float = _OWN_DEFAULT
    """Public lower bound of every feature."""
    high: float = _OWN_DEFAULT
    """Public upper bound of every feature."""
    one_bit: bool = _OWN_DEFAULT
    """Release a bit of every feature instead of m = max(1, ⌊ε/2.18⌋) of them."""
    steps: int = _OWN_DEFAULT
    """K_x: steps of KProp for features; in gap, noisy sums over neighbours in sequence."""
    label_steps: int | Literal["auto"] = _OWN_DEFAULT
    """K_y: steps of KProp for labels (Drop); auto trains with 0 and with 4, and keeps what the
    noisy validation labels prefer."""
    edge_sample: int = _OWN_DEFAULT
    """Keep this many noisy edges, drawn once, with weights that make up for the rest; 0 keeps
    all."""
    epochs: int = _OWN_DEFAULT
    """Passes over all devices."""
    patience: int = _OWN_DEFAULT
    """Number of epochs without a better validation score after which to stop; 0: never."""
    learning_rate: float = _OWN_DEFAULT
    """Learning rate of Adam."""
    weight_decay: float = _OWN_DEFAULT
    """L2 regularisation: this share of each weight is added to its gradient."""
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
    networks. blink: edges rebuilt from noisy reports. lpgnn-blink: lpgnn on such edges. gap: noisy
    sums by a trusted curator."""

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
        for name, (valid, wanted) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and value != "auto" and not valid(value):
                raise UsageError(f"`{name}` must be {wanted}, got {value}")
        if self.variant is not None:
            one_of("variant", self.variant, get_args(Variant))
            if self.variant != "hard" and self.backbone == "gat":
                raise UsageError("`variant` must be hard for gat, which takes no weights of edges")
        if self.low is not None and not (
            math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high
        ):
            raise UsageError(f"bounds must be finite, low < high, got [{self.low}, {self.high}]")

    def plain(self) -> dict[str, Any]:
        """Return the settings that this system has, by name; infinity as text, for JSON."""
        return {
            name: "inf" if value == math.inf else value
            for name, value in dataclasses.asdict(self).items()
            if value is not None
        }

    def ignored(self, name: str) -> str:
        """Return the settings with which another one has no effect; empty where it has one."""
        noise = "edge_epsilon" if self.feature_epsilon is None else "feature_epsilon"
        if name in ("delta", "one_bit", "variant") and getattr(self, noise) == math.inf:
            return f"`{noise}=inf`, only with a finite `{noise}`"
        return ""


def asked(**settings: Any) -> BaselineSettings:
    """Return settings by name.

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

"""Settings of a baseline: which system, which task, and what its server does.

A setting that is not given takes the system's own default (`DEFAULTS`), chosen on validation
devices or edges (docs/baselines.md). A setting that the system does not have is refused.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from lumos.errors import UsageError, one_of

System = Literal["centralized", "own", "lpgnn", "naive"]
Task = Literal["classify", "link"]
Backbone = Literal["gcn", "gat", "sage"]

_OWN_DEFAULT: Any = None
"""Replaced by the system's default when the settings are made."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What a server is told to do; which of it has a meaning depends on the system."""

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

    system: System = "centralized"
    """centralized: a server holds everything. own: no neighbour at all. lpgnn: the server knows the
    edges, features and labels are noised. naive: noised ego networks."""

    def __post_init__(self) -> None:
        one_of("system", self.system, get_args(System))
        one_of("task", self.task, get_args(Task))
        if self.system == "lpgnn" and self.task == "link":
            raise UsageError(
                "lpgnn cannot predict links: its server knows every edge, so there is nothing to "
                "predict; centralized, own and naive can"
            )
        if self.backbone is not None:
            one_of("backbone", self.backbone, get_args(Backbone))
        defaults = _defaults(self)
        for name, hint in get_type_hints(BaselineSettings).items():
            value = getattr(self, name)
            if value is None and name in defaults:
                value = defaults[name]
            elif value is not None and name not in defaults:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} has no meaning for {_called(self)}; leave it out")
            if hint is float and isinstance(value, int):
                value = float(value)  # 2 and 2.0 are one setting
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        for name in ("epsilon", "label_epsilon"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} must be above 0 (or inf), got {value}")
        if self.delta is not None and not 0 < self.delta < 1:
            raise UsageError(f"--delta must be between 0 and 1, got {self.delta}")
        if self.low is not None and not (
            math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high
        ):
            raise UsageError(f"bounds must be finite, low < high, got [{self.low}, {self.high}]")
        for name, least in (
            ("steps", 0),
            ("label_steps", 0),
            ("edge_sample", 0),
            ("patience", 0),
        ):
            value = getattr(self, name)
            if value is not None and value != "auto" and value < least:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} must be {least} or more, got {value}")
        if self.epochs < 1:
            raise UsageError(f"--epochs must be 1 or more, got {self.epochs}")
        if self.hidden < 1:
            raise UsageError(f"--hidden must be 1 or more, got {self.hidden}")
        if not 0 < self.learning_rate < math.inf:
            raise UsageError(f"--learning-rate must be above 0, got {self.learning_rate}")
        if not 0 <= self.weight_decay < math.inf:
            raise UsageError(f"--weight-decay must be 0 or more, got {self.weight_decay}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"--dropout must be at least 0 and below 1, got {self.dropout}")

    def tries(self) -> "list[BaselineSettings]":
        """These settings, or one for each K_y that `auto` stands for."""
        if self.label_steps != "auto":
            return [self]
        return [dataclasses.replace(self, label_steps=steps) for steps in LABEL_STEPS]

    def plain(self) -> dict[str, Any]:
        """The settings that this system has, by name; infinity as text, for JSON."""
        return {
            name: "inf" if value == math.inf else value
            for name, value in dataclasses.asdict(self).items()
            if value is not None
        }


def _called(settings: BaselineSettings) -> str:
    return f"{settings.system} --task {settings.task}"


LABEL_STEPS = (0, 4)
"""What `auto` tries for K_y: graphs differ in how far labels carry."""

TRAINING: dict[str, Any] = {
    "epochs": 300,
    "patience": 0,
    "learning_rate": 0.01,
    "weight_decay": 0.0,
    "hidden": 16,
}
"""The Lumos paper's training (section VIII-B); dropout and weight decay are each system's own."""


def _defaults(asked: BaselineSettings) -> dict[str, Any]:
    """Every setting that the system has, with its default.

    Those of training were chosen on validation, seed 0, Facebook (docs/baselines.md).
    """
    system, link = asked.system, asked.task == "link"
    found: dict[str, Any] = {"system": None, "task": None, **TRAINING}
    found["dropout"] = 0.0 if link or system == "naive" else 0.5
    if system != "own":
        found["backbone"] = "gcn"
    if system == "centralized":
        return found | {"normalise": False, "weight_decay": 0.0 if link else 5e-4}
    if system == "own":
        return found | {"normalise": not link}
    found |= {"epsilon": 2.0, "low": 0.0, "high": 1.0}
    if system == "lpgnn":
        clean = asked.label_epsilon == math.inf
        found |= {"label_epsilon": 1.0, "label_steps": 0 if clean else "auto"}
        return found | {"one_bit": False, "steps": 4, "weight_decay": 1e-3 if clean else 0.0}
    found |= {"delta": 1e-5, "edge_sample": 0}
    if not link:
        found["label_epsilon"] = asked.epsilon if asked.epsilon is not None else 2.0
    return found

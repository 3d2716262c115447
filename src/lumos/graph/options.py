"""What may be lost when a graph that Lumos does not model is read anyway."""

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

from lumos.errors import UsageError

NOT_ASKED = "features absent: not asked for"
"""Note of a graph that was loaded without its features on purpose."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Explicit permissions to convert a graph; without them it is refused.

    A Lumos graph is undirected, unweighted and has at most one label per device.
    """

    directed: Literal["refuse", "symmetrise"] = "refuse"
    """A graph that says it is directed: refuse it, or read each arc as an undirected edge."""
    weights: Literal["refuse", "drop"] = "refuse"
    """Edge weights or edge attributes: refuse them, or drop them."""
    multilabel: Literal["refuse", "first"] = "refuse"
    """Several labels for one device: refuse them, or keep the first."""
    missing_labels: Literal["refuse", "unknown"] = "refuse"
    """A device without a row among the labels: refuse it, or call its label unknown."""

    def __post_init__(self) -> None:
        kinds = get_type_hints(ReadOptions)
        for field in fields(self):
            value, allowed = getattr(self, field.name), get_args(kinds[field.name])
            if value not in allowed:
                raise UsageError(f"{field.name} must be one of {', '.join(allowed)}; got {value!r}")

    @classmethod
    def of(cls, options: dict[str, str]) -> "ReadOptions":
        """Options from keyword arguments; a wrong name lists the right ones."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise UsageError(f"no option {name!r} for reading a graph; use {', '.join(known)}")
        return cls(**options)  # type: ignore[arg-type]  # __post_init__ checks the values

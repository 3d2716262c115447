"""Readers of graph files and of graphs of other libraries, and the ways back."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

import numpy as np

from lumos.errors import InputError, UsageError, nearest
from lumos.typing import Ints

NO_LABELS = "none"
"""As `label_column`: read no labels."""
NOT_ASKED = "features absent: not asked for"
"""Note of a graph that was loaded without its features on purpose."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Choice of columns of a source, and explicit permissions to convert it.

    A Lumos graph is undirected, unweighted and has at most one label per device. Columns are named,
    or numbered as errors count them: those of a text table from 1, those of an array from 0.
    """

    directed: Literal["refuse", "symmetrise"] = "refuse"
    """Directed graphs: refuse them, or read each directed edge as an undirected one."""
    weights: Literal["refuse", "drop"] = "refuse"
    """Edge weights or edge attributes: refuse them, or drop them."""
    multilabel: Literal["refuse", "first"] = "refuse"
    """Several labels for one device: refuse them, or keep the first."""
    missing_labels: Literal["refuse", "unknown"] = "refuse"
    """Devices that are missing from the labels: refuse them, or treat their label as unknown."""
    label_column: str | None = None
    """The label: a column of the label file, array of the npz, or attribute; `none`: no labels."""
    label_bins: int | None = None
    """Divide numeric labels into this number of classes of about equal size."""
    masks: Literal["use", "ignore"] = "use"
    """train_mask, val_mask and test_mask of the source: use them as the split, or ignore them."""
    categorical: str = ""
    """Columns of features that hold categories, separated by commas; they become one-hot."""
    feature_bounds: str = ""
    """Public bounds of features: LOW,HIGH or a CSV with a row per column; they map to 0 … 1."""
    header: Literal["auto", "yes", "no"] = "auto"
    """The first line of each text table names its columns: yes, no, or decide by its cells."""

    def __post_init__(self) -> None:
        # As Python callers write them: label_column=3, categorical=["color", 4], (low, high).
        column: Any = self.label_column
        if isinstance(column, int) and not isinstance(column, bool):
            object.__setattr__(self, "label_column", str(column))
        value: Any
        for name in ("categorical", "feature_bounds"):
            value = getattr(self, name)
            if value is None:
                object.__setattr__(self, name, "")
            elif not isinstance(value, str | os.PathLike):
                object.__setattr__(self, name, _joined(name, value))
        for name, hint in get_type_hints(ReadOptions).items():
            value, allowed = getattr(self, name), get_args(hint)
            if get_origin(hint) is Literal and value not in allowed:
                raise UsageError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
        if self.label_column is not None and not isinstance(self.label_column, str):
            raise UsageError(f"`label_column` is a name or a number; got {self.label_column!r}")
        if self.label_bins is not None and (
            isinstance(self.label_bins, bool)
            or not isinstance(self.label_bins, int)
            or self.label_bins < 2
        ):
            raise UsageError(f"`label_bins` must be a whole number >= 2; got {self.label_bins!r}")
        object.__setattr__(self, "feature_bounds", _findable(self.feature_bounds))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "ReadOptions":
        """Make options from keyword arguments; refuse a wrong name with the right ones."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                instead = nearest(name, known) or f"use {', '.join(known)}"
                raise UsageError(f"no option {name!r} for reading a graph; {instead}")
        return cls(**options)

    @property
    def no_labels(self) -> bool:
        """True if labels are left out, as for links where they are no classes."""
        return self.label_column == NO_LABELS

    @property
    def categorical_columns(self) -> tuple[str, ...]:
        """The columns that `categorical` lists."""
        return tuple(part.strip() for part in self.categorical.split(",") if part.strip())


class ReadKeywords(TypedDict, total=False):
    """The fields of `ReadOptions` as callers write them, and the attributes of NetworkX graphs.

    They have no defaults: those of `ReadOptions` and of `from_networkx` are the only ones.
    """

    directed: Literal["refuse", "symmetrise"]
    weights: Literal["refuse", "drop"]
    multilabel: Literal["refuse", "first"]
    missing_labels: Literal["refuse", "unknown"]
    label_column: str | int | None
    label_bins: int | None
    masks: Literal["use", "ignore"]
    categorical: str | Sequence[str | int]
    feature_bounds: str | os.PathLike[str] | Sequence[float]
    header: Literal["auto", "yes", "no"]
    features: str | Sequence[str] | None
    labels: str | None


def take_reading(keywords: dict[str, Any]) -> dict[str, Any]:
    """Remove the keywords of `ReadKeywords` from those of a call, and return them."""
    known = get_type_hints(ReadKeywords)
    return {name: keywords.pop(name) for name in list(keywords) if name in known}


NETWORKX = ("features", "labels")
"""Keywords that name node attributes of a NetworkX graph."""


def scalar_bounds(text: str) -> tuple[float, float] | None:
    """Return `LOW,HIGH` as two numbers; None where the text is something else, a file."""
    parts = text.split(",")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        return None
    return low, high


def weighted(what: str) -> InputError:
    """Return the error for a source with edge weights; `what` names one of them."""
    return InputError(f"{what}, and Lumos has none; drop weights with `weights='drop'`")


def directed(what: str) -> InputError:
    """Return the error for a source that says that it is directed; `what` names the place."""
    return InputError(f"{what}; read each arc as an undirected edge with `directed='symmetrise'`")


def refuse_one_way(u: Ints, v: Ints, what: str) -> None:
    """Refuse arcs u → v [arcs] of which one has no counterpart.

    Raises:
        InputError: the graph is directed.
    """
    size = int(max(u.max(initial=0), v.max(initial=0))) + 1
    alone = np.setdiff1d(u * size + v, v * size + u)
    if len(alone):
        one, other = divmod(int(alone[0]), size)
        raise directed(
            f"{what}: {one} → {other} has no counterpart {other} → {one}, so the graph is directed"
        )


def _joined(name: str, value: Any) -> str:
    parts = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(part, bool) or not isinstance(part, str | int | float) for part in parts):
        raise UsageError(f"`{name}` is text or a list of names and numbers; got {value!r}")
    return ",".join(map(str, parts))


def _findable(bounds: str | os.PathLike[str]) -> str:
    """Return bounds as a run folder keeps them: a file by its whole path."""
    text = os.fspath(bounds)
    if not text or scalar_bounds(text) is not None:
        return text
    return os.path.abspath(os.path.expanduser(text))

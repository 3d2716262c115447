"""The graph: who is whose neighbour, and what each device knows of itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import (
    Ids,
    finite_features,
    freeze,
    integer_labels,
    neighbour_lists,
    pairs_of,
    refuse_long,
    refuse_width,
    same_devices,
    stored_features,
)
from lumos.graph.features import BOUNDS_NOTE, bounded, checked_bounds
from lumos.graph.labels import checked_roles, given_labels
from lumos.typing import Floats, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    Features: TypeAlias = Floats | csr_array[np.float32, tuple[int, int]]

LARGEST = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Graph:
    """An immutable undirected graph; every vertex is a device.

    Devices are numbered 0 … devices - 1; `ids` remembers what they were called. The arrays are
    write-protected: a graph can be shared between shards without copying.
    """

    offsets: Ints
    """[devices + 1]: the neighbours of u are neighbours[offsets[u] : offsets[u + 1]]."""
    neighbours: Ints
    """[2 · edges]: ascending within each device, symmetric, without self-loops or duplicates."""
    ids: Ids
    """[devices]: the original ids, integers or text."""
    features: "Features | None" = None
    """[devices, feature_count]: dense or sparse float32; None when the source has none. A large
    dense matrix of mostly zeros is kept sparse, which trains faster."""
    labels: Ints | None = None
    """[devices]: the index of the class, -1 where it is unknown; None when there are none."""
    classes: tuple[str, ...] = ()
    """The names of the classes, in the order of their index."""
    class_values: NDArray[Any] | None = None
    """[classes]: the labels as the source has them, numbers or text, in the order of `classes`; the
    names by default. Predictions are such values."""
    roles: Ints | None = None
    """[devices]: 0 trains, 1 validates, 2 tests, -1 none of them; None when the source gives no
    split."""
    name: str = ""
    """Name of the graph in tables."""
    dropped_self_loops: int = 0
    """Rows of the source that joined a device to itself."""
    dropped_duplicates: int = 0
    """Rows of the source that repeated an edge."""
    notes: tuple[str, ...] = ()
    """Facts about this graph for readers of results, one sentence each."""

    def __post_init__(self) -> None:
        self._check_structure()
        for field in ("offsets", "neighbours"):
            object.__setattr__(self, field, freeze(getattr(self, field), np.int64))
        if isinstance(self.ids, np.ndarray):
            object.__setattr__(self, "ids", freeze(self.ids, np.int64))
        if len(self.ids) != self.devices:
            raise InputError(f"ids: {len(self.ids)} ids for {self.devices} devices")
        refuse_long(self.ids)
        if self.features is not None:
            features = finite_features(self.features, self.devices, "features")
            object.__setattr__(self, "features", stored_features(features))
        if self.labels is not None:
            labels = integer_labels(self.labels, self.devices, "labels")
            count = int(labels.max(initial=-1)) + 1
            if not self.classes:
                refuse_width(count, self.devices, "labels: number of classes")
            classes = tuple(self.classes) or tuple(str(index) for index in range(count))
            if count > len(classes):
                raise InputError(f"labels: class {count - 1} has no name among {len(classes)}")
            object.__setattr__(self, "labels", freeze(labels, np.int64))
            object.__setattr__(self, "classes", classes)
        values = None if self.labels is None else _class_values(self.class_values, self.classes)
        object.__setattr__(self, "class_values", values)
        if self.roles is not None:
            roles = checked_roles(self.roles, self.devices)
            object.__setattr__(self, "roles", freeze(roles, np.int64))

    @classmethod
    def from_edges(
        cls,
        edges: ArrayLike,
        *,
        devices: int | None = None,
        features: Any = None,
        labels: ArrayLike | Sequence[object] | None = None,
        classes: Sequence[str] = (),
        class_values: ArrayLike | None = None,
        label_bins: int | None = None,
        roles: ArrayLike | None = None,
        ids: ArrayLike | Sequence[str] | None = None,
        name: str = "",
        notes: Sequence[str] = (),
        both_directions: bool = False,
    ) -> "Graph":
        """Build a graph from a list of edges [rows, 2].

        A row is an unordered pair. Self-loops and repetitions (in either direction) are dropped
        and counted; devices without edges are kept.

        Args:
            edges: pairs of ids if `ids` is given; of indices 0 … devices - 1 if `devices`,
                `features` or `labels` say how many devices there are; otherwise the devices are
                the distinct ids that occur, in ascending order.
            devices: how many devices there are.
            features: [devices, feature_count], an array or a scipy sparse array; finite.
            labels: [devices] whole numbers, -1 or NaN where unknown, or text, None or "" where
                unknown. With `classes`, numbers are indices into them and text is one of them.
                Without, numbers that look like ids or measurements are refused.
            classes: names of the classes.
            class_values: [classes] the label that predictions return for each class. By default
                labels as they are given, and names where `classes` are given.
            label_bins: cut numbers into this number of classes of about equal size.
            roles: [devices] 0 trains, 1 validates, 2 tests, -1 none of them.
            ids: [devices] distinct ids, non-negative integers or text.
            name: what the graph is called.
            notes: sentences to keep with the graph.
            both_directions: if the list holds every edge as (u, v) and (v, u), as PyG's
                `edge_index` does, do not count the second direction as a duplicate.
        """
        known = same_devices(devices=devices, features=features, labels=labels, ids=ids)
        if labels is not None:
            given = given_labels(labels, classes, label_bins, ids)
            labels, classes, notes = given.labels, given.classes, (*notes, *given.notes)
            class_values = given.values if class_values is None else class_values
        if known is not None and features is None and labels is None and ids is None:
            refuse_width(known, int(np.size(edges)), "devices")
        original, pairs = pairs_of(edges, known, ids)
        count = len(original)
        if count == 0:
            raise InputError("edges: the graph is empty; it needs at least one device")
        if count > LARGEST:
            raise UsageError(f"devices: {count} is more than the {LARGEST} that Lumos can number")
        return cls.from_indices(
            pairs,
            original,
            features=features,
            labels=labels,
            classes=classes,
            class_values=class_values,
            roles=roles,
            name=name,
            notes=notes,
            both_directions=both_directions,
        )

    @classmethod
    def from_indices(
        cls,
        pairs: Ints,
        ids: Ids,
        *,
        features: Any = None,
        labels: ArrayLike | None = None,
        classes: Sequence[str] = (),
        class_values: ArrayLike | None = None,
        roles: ArrayLike | None = None,
        name: str = "",
        notes: Sequence[str] = (),
        both_directions: bool = False,
    ) -> "Graph":
        """Build a graph from `pairs` [rows, 2] of indices into `ids`; see `from_edges`."""
        clean = neighbour_lists(pairs, len(ids))
        twice = both_directions and 2 * clean.both_ways == len(clean.neighbours)
        return cls(
            offsets=freeze(clean.offsets, np.int64, own=True),
            neighbours=freeze(clean.neighbours, np.int64, own=True),
            ids=ids,
            features=features,
            labels=None if labels is None else np.asarray(labels),
            classes=tuple(classes),
            class_values=None if class_values is None else np.asarray(class_values),
            roles=None if roles is None else np.asarray(roles),
            name=name,
            dropped_self_loops=clean.self_loops,
            dropped_duplicates=clean.repeats + (0 if twice else clean.both_ways),
            notes=tuple(notes),
        )

    @classmethod
    def from_networkx(cls, graph: Any, **settings: Any) -> "Graph":
        """Convert a NetworkX graph; see `lumos.graph.io.networkx.from_networkx`."""
        from lumos.graph.io.networkx import from_networkx

        return from_networkx(graph, **settings)

    @classmethod
    def from_pyg(cls, data: Any, **settings: Any) -> "Graph":
        """Convert a PyTorch Geometric `Data`; see `lumos.graph.io.pyg.from_pyg`."""
        from lumos.graph.io.pyg import from_pyg

        return from_pyg(data, **settings)

    def to_networkx(self, **settings: Any) -> Any:
        """Convert to a NetworkX graph; see `lumos.graph.io.networkx.to_networkx`."""
        from lumos.graph.io.networkx import to_networkx

        return to_networkx(self, **settings)

    def to_pyg(self) -> Any:
        """Convert to a PyTorch Geometric `Data`; see `lumos.graph.io.pyg.to_pyg`."""
        from lumos.graph.io.pyg import to_pyg

        return to_pyg(self)

    def with_bounds(self, low: ArrayLike, high: ArrayLike) -> "Graph":
        """The same graph with features mapped to (x - low) / (high - low), clipped to 0 … 1.

        The bounds are public: every device maps its own values, and nobody tells any. A new device
        maps its features in the same way.

        Args:
            low: a number, or [feature_count].
            high: a number, or [feature_count]; above `low`.

        Raises:
            UsageError: there are no features, or these are no bounds.
        """
        if self.features is None:
            raise UsageError("with_bounds: the graph has no features")
        lower, upper = checked_bounds(low, high, width=self.feature_count)
        features = bounded(self.features, lower, upper)
        return replace(self, features=features, notes=(*self.notes, BOUNDS_NOTE))

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    @property
    def edges(self) -> int:
        """Number of undirected edges."""
        return len(self.neighbours) // 2

    @cached_property
    def degrees(self) -> Ints:
        """[devices]: the number of neighbours of each device."""
        return freeze(np.diff(self.offsets), np.int64, own=True)

    @property
    def feature_count(self) -> int:
        """Width of the features; 0 without features."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def class_count(self) -> int:
        """Number of classes; 0 without labels."""
        return len(self.classes)

    def ids_as_text(self) -> list[str]:
        """[devices] the original ids, as text."""
        texts: list[str] = np.asarray(self.ids).astype(np.str_).tolist()
        return texts

    def edge_list(self) -> Ints:
        """[edges, 2]: each edge once, as (u, v) with u < v, in ascending order."""
        owner = np.repeat(np.arange(self.devices, dtype=np.int64), self.degrees)
        once = owner < self.neighbours
        return np.stack([owner[once], self.neighbours[once]], axis=1)

    def __repr__(self) -> str:
        parts = [f"{self.devices:,} devices", f"{self.edges:,} edges"]
        parts.append(f"{self.feature_count:,} features" if self.feature_count else "no features")
        parts.append(f"{self.class_count} classes" if self.class_count else "no labels")
        return f"Graph({self.name + ': ' if self.name else ''}{', '.join(parts)})"

    def _check_structure(self) -> None:
        """Refuse arrays that are not the neighbour lists of a simple undirected graph."""
        offsets, neighbours = np.asarray(self.offsets), np.asarray(self.neighbours)
        for name, array in (("offsets", offsets), ("neighbours", neighbours)):
            if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
                raise InputError(f"{name}: a list of integers is needed; got {_kind(array)}")
        devices = len(offsets) - 1
        if devices < 0 or offsets[0] != 0 or offsets[-1] != len(neighbours):
            raise InputError("offsets: they must start at 0 and end at the number of neighbours")
        degrees = np.diff(offsets)
        if np.any(degrees < 0):
            raise InputError("offsets: they must not decrease")
        if len(neighbours) and (neighbours.min() < 0 or neighbours.max() >= devices):
            raise InputError(f"neighbours: they must lie in 0 … {devices - 1}")
        owner = np.repeat(np.arange(devices, dtype=np.int64), degrees)
        arcs = owner * devices + neighbours
        if np.any(owner == neighbours) or np.any(arcs[1:] <= arcs[:-1]):
            raise InputError("neighbours: a device must list each other device once, ascending")
        if not np.array_equal(np.sort(neighbours * devices + owner), arcs):
            raise InputError("neighbours: if u lists v, then v must list u")


def _class_values(values: Any, classes: Sequence[str]) -> NDArray[Any]:
    """Return [classes] the labels, write-protected: `values`, or the names where there are none."""
    array = np.array(classes, np.str_) if values is None else np.array(values)
    if array.shape != (len(classes),) or array.dtype.kind not in "biufU":
        raise InputError(f"class_values: {_kind(array)} for {len(classes)} classes; give one each")
    array.setflags(write=False)
    return array


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {list(array.shape)}"

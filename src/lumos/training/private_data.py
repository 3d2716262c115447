"""What hosted devices know and nobody else: features, labels, roles, kept neighbours."""

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.encode.bounds import Features
from lumos.errors import InputError
from lumos.graph import Graph
from lumos.graph.facts import GraphFacts, GraphPart
from lumos.typing import Flags, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateData:
    """Private data of a shard's devices, in the order of its devices and slots."""

    features: Features = field(repr=False)
    """[hosted, d]"""
    labels: Ints = field(repr=False)
    """[hosted] class, -1 where unknown."""
    roles: Ints = field(repr=False)
    """[hosted] `Role` of each device."""
    keep: Flags = field(repr=False)
    """[slots] whether the device carries the edge."""
    leaves: Flags = field(repr=False)
    """[slots] whether the neighbour has a leaf in the device's tree: as `keep`, or nowhere."""
    held_back: Ints = field(repr=False)
    """[pairs, 2] position of a hosted device and id of a neighbour, kept out of training (link)."""

    @staticmethod
    def of(part: GraphPart, keep: Flags, *, alone: bool = False) -> "PrivateData":
        """Of the devices of a part.

        Args:
            keep: [slots]
            alone: trees without any neighbour.
        """
        return PrivateData(
            features=rows_of(part.features),
            labels=part.labels,
            roles=part.roles,
            keep=keep,
            leaves=np.zeros_like(keep) if alone else keep,
            held_back=part.held_back,
        )


def rows_of(features: "Features | None") -> Features:
    """Features as CSR or dense rows, as trainers take them."""
    if features is None:
        raise InputError("devices have no features, and training needs them")
    return csr_array(features) if issparse(features) else np.asarray(features, np.float32)


def features_of(graph: Graph) -> Features:
    """The features of a graph, as CSR or dense rows.

    Raises:
        InputError: there are none.
    """
    need_features(graph)
    return rows_of(graph.features)


def need_features(facts: GraphFacts | Graph) -> None:
    """Raise `InputError` where a graph has no features."""
    if facts.feature_count == 0:
        reasons = [note for note in facts.notes if note.startswith("features absent")]
        why = "".join(f" ({note})" for note in reasons[:1])
        raise InputError(
            f"{facts.name or 'the graph'} has no features, and training needs them{why}; "
            "`lumos trees` works without"
        )

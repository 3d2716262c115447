"""What hosted devices know and nobody else: features, labels, roles, kept neighbours."""

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.device.shard import Shard
from lumos.encode.bounds import Features
from lumos.errors import InputError
from lumos.graph import Graph
from lumos.graph.neighbour_lists import spans
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


def split_private_data(
    graph: Graph,
    shards: list[Shard],
    keep: Flags,
    roles: Ints,
    held_back: Ints,
    *,
    alone: bool = False,
) -> list[PrivateData]:
    """Give every shard what its devices own; arrays are copies.

    Args:
        graph: the training graph.
        keep: [2 · edges] over the graph's neighbour array.
        roles: [devices].
        held_back: [pairs, 2] ids; the pair goes to its first end.
        alone: trees without any neighbour.
    """
    features = features_of(graph)
    labels = graph.labels if graph.labels is not None else np.full(graph.devices, -1)
    parts = []
    for shard in shards:
        at_first = np.isin(held_back[:, 0], shard.devices)
        mine = held_back[at_first]
        kept = keep[spans(graph.offsets[shard.devices], shard.degree)]
        parts.append(
            PrivateData(
                features=features[shard.devices],
                labels=labels[shard.devices],
                roles=roles[shard.devices],
                keep=kept,
                leaves=np.zeros_like(kept) if alone else kept,
                held_back=np.stack([shard.local(mine[:, 0]), mine[:, 1]], axis=1),
            )
        )
    return parts


def features_of(graph: Graph) -> Features:
    """The features of a graph, as CSR or dense rows.

    Raises:
        InputError: there are none.
    """
    if graph.features is None or graph.feature_count == 0:
        reasons = [note for note in graph.notes if note.startswith("features absent")]
        why = "".join(f" ({note})" for note in reasons[:1])
        raise InputError(
            f"{graph.name or 'the graph'} has no features, and training needs them{why}; "
            "`lumos trees` works without"
        )
    if issparse(graph.features):
        return csr_array(graph.features)
    return np.asarray(graph.features, np.float32)

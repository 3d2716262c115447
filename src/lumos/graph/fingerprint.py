"""A short digest that tells one graph from another."""

from hashlib import blake2b
from typing import Any

import numpy as np

from lumos.graph.arrays import is_sparse
from lumos.graph.graph import Graph


def fingerprint(graph: Graph) -> str:
    """16 hexadecimal digits that tell this graph, with features, labels and roles, from others."""
    digest = blake2b(digest_size=8)
    parts: list[Any] = [graph.offsets, graph.neighbours]
    if graph.labels is not None:
        parts.append(graph.labels)
    if graph.roles is not None:
        parts.append(graph.roles)
    features: Any = graph.features
    if is_sparse(features):
        from scipy.sparse import csr_array

        matrix = csr_array(features)
        parts += [matrix.indptr, matrix.indices, matrix.data]
        if matrix.shape[1] != int(matrix.indices.max(initial=-1)) + 1:  # nobody has the last ones
            parts.append(np.array(matrix.shape[1]))
    elif features is not None:
        parts.append(features)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()

"""Fingerprints: every part of a graph counts, and digests stay what they were."""

import numpy as np
import pytest
from scipy.sparse import csr_array, hstack
from tests.narrow import sparse

from lumos.graph import Graph, load
from lumos.graph.facts import fingerprint


def test_a_fingerprint_knows_every_part_of_a_graph(sixty: Graph) -> None:
    edges, features, labels = sixty.edge_list(), sparse(sixty.features), sixty.labels
    assert fingerprint(load("demo:60")) == fingerprint(sixty)
    empty = csr_array(np.zeros((60, 1), features.dtype))  # a feature that nobody has
    others = [
        Graph.from_edges(edges, features=features),
        Graph.from_edges(edges, features=features.toarray(), labels=labels),
        Graph.from_edges(edges, labels=labels),
        Graph.from_edges(edges[:-1], features=features, labels=labels),
        Graph.from_edges(edges, features=hstack([features, empty]).tocsr(), labels=labels),
    ]
    assert len({fingerprint(graph) for graph in [sixty, *others]}) == 6


@pytest.mark.parametrize(
    ("spec", "features", "digest"),
    [
        ("demo:60", True, "95606da3aa1b63cb"),
        ("demo:2000", True, "b256a8e450318b11"),
        ("demo:60", False, "2334639a939f86b2"),
    ],
)
def test_digests_of_known_graphs(spec: str, features: bool, digest: str) -> None:
    """Kept results and run folders are found by them."""
    assert fingerprint(load(spec, features=features)) == digest


def test_dense_features_have_a_digest_of_their_own(sixty: Graph) -> None:
    dense = Graph.from_edges(
        sixty.edge_list(),
        features=np.asarray(sixty.features.toarray()),  # type: ignore[union-attr]
        labels=sixty.labels,
    )
    assert fingerprint(dense) == "fb63e4ab87ff0900"

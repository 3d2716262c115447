"""Splits into training, validation and test: of devices for `classify`, of edges for `link`.

Splits are a matter of experiments and come from public randomness. For `link` the graph is split
before anything else happens: the federation is cut from the training edges alone, so no tree, no
release and no loss can know of another edge (errata 8).
"""

from dataclasses import dataclass, field

import numpy as np

from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError
from lumos.graph import Graph
from lumos.graph.arrays import neighbour_lists
from lumos.graph.labels import Role as Role
from lumos.typing import Ints

VERTICES = (0.50, 0.25, 0.25)
EDGES = (0.80, 0.05, 0.15)


Shares = tuple[float, float, float]
"""Shares of training, validation and test."""


def split_vertices(labels: Ints, randomness: PublicRandomness, shares: Shares = VERTICES) -> Ints:
    """[devices] roles: by default 50 % of the labelled devices train, 25 % validate, 25 % test.

    Raises:
        InputError: fewer than four devices have labels, or all labels are the same.
    """
    known = np.flatnonzero(labels >= 0)
    if len(known) < 4:
        raise InputError(
            f"labels: {len(known)} devices have one; classify needs at least 4, "
            "two to train, one to validate and one to test"
        )
    several_classes(labels[known])
    order = randomness.generator("split/vertices").permutation(known)
    roles = np.full(len(labels), Role.NOBODY, np.int64)
    train, validation, test = _ends(len(known), shares)
    roles[order[:train]] = Role.TRAIN
    roles[order[train:validation]] = Role.VALIDATION
    roles[order[validation:test]] = Role.TEST
    return roles


def several_classes(labels: Ints) -> None:
    """Raise `InputError` where all labels are the same."""
    if len(np.unique(labels)) < 2:
        raise InputError("labels: all are of one class; there is nothing to classify")


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSplit:
    """A split into training, validation and test: rows of devices, or edges as pairs of rows."""

    train: Ints = field(repr=False)
    """[devices], or [edges, 2]"""
    validation: Ints = field(repr=False)
    test: Ints = field(repr=False)
    origin: str
    """Origin of the split, in one sentence."""

    @staticmethod
    def of_roles(roles: Ints, origin: str) -> "DataSplit":
        """Return the split of devices by their roles."""
        train, validation, test = (
            np.flatnonzero(roles == role) for role in (Role.TRAIN, Role.VALIDATION, Role.TEST)
        )
        return DataSplit(train=train, validation=validation, test=test, origin=origin)


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeSplit:
    """Edges for training, validation and test, and as many pairs that are no edges to test on."""

    training: Graph = field(repr=False)
    """The graph with the training edges only, and no other trace of the rest."""
    validation: Ints = field(repr=False)
    """[edges, 2] held back by their devices to choose between weights."""
    test: Ints = field(repr=False)
    """[edges, 2] known to the observer alone."""
    validation_non_neighbours: Ints = field(repr=False)
    """[edges, 2] pairs that are no edges of the whole graph, for the observer's validation AUC."""
    test_non_neighbours: Ints = field(repr=False)

    def edges(self, origin: str) -> DataSplit:
        """The edges alone."""
        return DataSplit(
            train=self.training.edge_list(),
            validation=self.validation,
            test=self.test,
            origin=origin,
        )


def split_edges(graph: Graph, randomness: PublicRandomness, shares: Shares = EDGES) -> EdgeSplit:
    """By default 80 % of the edges train, 5 % validate, 15 % test.

    Raises:
        InputError: too few edges, or too few pairs that are none.
    """
    edges = graph.edge_list()
    if len(edges) < 5:
        raise InputError(f"edges: {len(edges)}; link prediction needs at least 5")
    order = randomness.generator("split/edges").permutation(len(edges))
    train, validation, test = _ends(len(edges), shares)
    return hold_out(
        graph,
        edges[np.sort(order[:train])],
        edges[np.sort(order[train:validation])],
        edges[np.sort(order[validation:test])],
        randomness,
    )


def hold_out(
    graph: Graph, training: Ints, validation: Ints, test: Ints, randomness: PublicRandomness
) -> EdgeSplit:
    """A split into these edges, [edges, 2] each; the pairs that are none are drawn.

    Raises:
        InputError: too few pairs are none.
    """
    edges = np.unique(np.concatenate([graph.edge_list(), validation, test]), axis=0)
    non_neighbours = pairs_without_edge(
        edges, graph.devices, len(validation) + len(test), randomness.generator("split/strangers")
    )
    return EdgeSplit(
        training=only_edges(graph, training),
        validation=validation,
        test=test,
        validation_non_neighbours=non_neighbours[: len(validation)],
        test_non_neighbours=non_neighbours[len(validation) :],
    )


def edges_left(graph: Graph, *held_out: Ints) -> Ints:
    """[edges, 2] of the graph that are not among those held out, [edges, 2] each, as u < v."""
    edges, out = graph.edge_list(), np.concatenate(held_out)
    taken = np.isin(pair_keys(edges, graph.devices), pair_keys(out, graph.devices))
    left: Ints = edges[~taken]
    return left


def pair_keys(pairs: Ints, devices: int) -> Ints:
    """[pairs] one number for each pair of rows."""
    return pairs[:, 0] * devices + pairs[:, 1]


def only_edges(graph: Graph, edges: Ints) -> Graph:
    """The same devices with these edges [edges, 2], and no trace of any other."""
    clean = neighbour_lists(edges, graph.devices)
    return Graph(
        offsets=clean.offsets,
        neighbours=clean.neighbours,
        ids=graph.ids,
        features=graph.features,
        labels=graph.labels,
        classes=graph.classes,
        name=graph.name,
        notes=graph.notes,
    )


def pairs_without_edge(
    edges: Ints, devices: int, count: int, generator: np.random.Generator
) -> Ints:
    """[count, 2] distinct pairs u < v that are not among `edges`, drawn uniformly.

    O(count log edges) expected, as long as at most half of all pairs are taken.
    """
    possible = devices * (devices - 1) // 2
    if len(edges) + count > possible / 2:
        raise InputError(
            f"edges: {len(edges)} of {possible} pairs are edges; too few are left to test on"
        )
    taken = np.sort(pair_keys(edges, devices))
    drawn = np.empty(0, np.int64)
    while len(drawn) < count:
        ends = generator.integers(0, devices, (2 * count, 2))
        low, high = ends.min(axis=1), ends.max(axis=1)
        keys = (low * devices + high)[low < high]
        places = np.minimum(np.searchsorted(taken, keys), len(taken) - 1)
        keys = np.concatenate([drawn, keys[taken[places] != keys]])
        _, first = np.unique(keys, return_index=True)
        drawn = keys[np.sort(first)]  # in the order drawn, so that cutting is unbiased
    drawn = drawn[:count]
    return np.stack([drawn // devices, drawn % devices], axis=1)


def _ends(count: int, shares: Shares) -> tuple[int, int, int]:
    """Return the ends of training, validation and test; each part has at least one member.

    Training has what the others leave, where the shares are of everything.
    """
    validation, test = (max(1, round(share * count)) for share in shares[1:])
    train = count - validation - test
    if sum(shares) < 1 - 1e-9:
        train = min(train, max(1, round(shares[0] * count)))
    return train, train + validation, train + validation + test

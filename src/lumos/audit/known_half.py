"""What attackers know beside messages: the truth about one half of all devices, to learn from."""

from dataclasses import dataclass, field

import numpy as np

from lumos.audit.views import slots_of
from lumos.graph import Graph
from lumos.typing import Flags, Ints

MOST = 40_000
"""Edges of each half, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownHalf:
    """Who is known, who is judged, and pairs within each half."""

    half: Flags = field(repr=False)
    """[devices] known to the attackers."""
    judged: Flags = field(repr=False)
    """[devices] all others, without the attackers themselves."""
    known: tuple[Ints, Flags] = field(repr=False)
    """[pairs, 2] of two known devices, and which are edges: as many as are not."""
    asked: tuple[Ints, Flags] = field(repr=False)
    """The same of two others."""

    @staticmethod
    def of(graph: Graph, attackers: Ints, seed: int = 0, most: int = MOST) -> "KnownHalf":
        """Half of the devices at random, and edges and as many random pairs within each half."""
        rng, many = np.random.default_rng(seed), graph.devices
        half = rng.random(many) < 0.5
        out = np.zeros(many, np.bool_)
        out[attackers] = True
        edges = graph.edge_list()
        sides = []
        for side in (half & ~out, ~half & ~out):
            inside = edges[side[edges].all(axis=1)]
            inside = inside[rng.permutation(len(inside))[:most]]
            far = rng.choice(np.flatnonzero(side), (2 * len(inside) + 10, 2))
            far = far[(far[:, 0] != far[:, 1]) & ~linked(graph, far)][: len(inside)]
            pairs = np.concatenate([inside, far])
            sides.append((pairs, np.arange(len(pairs)) < len(inside)))
        return KnownHalf(half=half & ~out, judged=~half & ~out, known=sides[0], asked=sides[1])


def linked(graph: Graph, pairs: Ints) -> Flags:
    """[pairs] whether they are edges."""
    found: Flags = slots_of(graph, pairs[:, 0], pairs[:, 1]) >= 0
    return found

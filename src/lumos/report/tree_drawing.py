"""A drawing of one device's tree. Vertices are named by what they are, never by an id."""

import numpy as np

from lumos.report.svg import COLOURS, INK, MUTED, WIDTH, Canvas
from lumos.typing import Ints

_PREFERRED = 5
"""Most branches of the tree that is drawn, where a device has no more."""
MAX_BRANCHES = 7
"""Branches that are drawn; how many more there are is written."""

_BLUE, _RED, _WHITE = COLOURS[0], COLOURS[1], "#ffffff"
_ROOT, _PARENTS, _LEAVES = 30.0, 105.0, 185.0
"""Heights of the three levels."""


def tree(branches: int, own: str, other: str, *, virtual_nodes: bool = True) -> str:
    """The tree of a device that has so many branches (figure 2 of the paper), or its star.

    Args:
        own: what stands on the leaves of the device itself.
        other: what stands on the leaves of its neighbours.
        virtual_nodes: the paper's tree; a star otherwise.
    """
    canvas = Canvas()
    if not branches:
        bottom = _draw_alone(canvas)
    else:
        drawn = min(branches, MAX_BRANCHES)
        more = branches - drawn
        slots = drawn + bool(more)
        gap = (WIDTH - 40) / slots
        across = [20 + gap * (slot + 0.5) for slot in range(slots)]
        if virtual_nodes:
            bottom = _draw_tree(canvas, across[:drawn], min(gap / 4, 22))
        else:
            bottom = _draw_star(canvas, across[:drawn])
        if more:
            _draw_more(canvas, across[-1], more)
    _draw_legend(canvas, bottom, own, other if branches else "", virtual_nodes)
    shape = "A root joins" if virtual_nodes else "The device is joined to"
    parts = (
        "branches, each with a leaf of the device and one of a neighbour"
        if virtual_nodes
        else "neighbours"
    )
    return canvas.svg(
        "The tree of a sample device",
        f"{shape} {branches:,} {parts}.",
        bottom + (54 + 24 * virtual_nodes if branches else 26),
    )


def _draw_alone(canvas: Canvas) -> float:
    """A device without any neighbour; returns where the drawing ends, as do the next two."""
    canvas.circle(WIDTH / 2, _ROOT, 13, _BLUE)
    canvas.text(WIDTH / 2 + 22, _ROOT + 5, "the device alone: nobody is in its tree")
    return _ROOT + 30


def _draw_tree(canvas: Canvas, across: list[float], half: float) -> float:
    """Root, parents and leaves; `half`: from a parent to one of its two leaves."""
    for x in across:
        canvas.line(WIDTH / 2, _ROOT, x, _PARENTS, MUTED, width=1.5)
        for leaf in (x - half, x + half):
            canvas.line(x, _PARENTS, leaf, _LEAVES, MUTED, width=1.5)
    for x in across:
        canvas.circle(x, _PARENTS, 9, _WHITE, stroke=MUTED, dash="3 2")
        canvas.circle(x - half, _LEAVES, 10, _BLUE)
        canvas.box(x + half - 9, _LEAVES - 9, 18, 18, _RED)
    canvas.circle(WIDTH / 2, _ROOT, 12, _WHITE, stroke=MUTED, dash="3 2")
    return _LEAVES + 30


def _draw_star(canvas: Canvas, across: list[float]) -> float:
    """The device and its neighbours."""
    for x in across:
        canvas.line(WIDTH / 2, _ROOT, x, _PARENTS, MUTED, width=1.5)
    for x in across:
        canvas.box(x - 9, _PARENTS - 9, 18, 18, _RED)
    canvas.circle(WIDTH / 2, _ROOT, 13, _BLUE)
    return _PARENTS + 30


def _draw_more(canvas: Canvas, x: float, more: int) -> None:
    """How many branches are not drawn."""
    canvas.line(WIDTH / 2, _ROOT, x, _PARENTS, MUTED, width=1.5, dash="3 3")
    canvas.text(x, _PARENTS + 24, f"{more:,} more", anchor="middle", size=13, fill=MUTED)


def _draw_legend(canvas: Canvas, y: float, own: str, other: str, virtual_nodes: bool) -> None:
    """What the shapes stand for; `other` is empty where no neighbour is drawn."""
    canvas.circle(10, y + 12, 8, _BLUE)
    canvas.text(26, y + 17, f"the device: {own}", fill=INK)
    if not other:
        return
    canvas.box(2, y + 28, 16, 16, _RED)
    canvas.text(26, y + 41, f"one of its neighbours: {other}", fill=INK)
    if virtual_nodes:
        canvas.circle(10, y + 60, 8, _WHITE, stroke=MUTED, dash="3 2")
        canvas.text(26, y + 65, "nobody: a root, and a parent for each branch")


def moderate(workload: Ints) -> tuple[int, int]:
    """Branches of a moderate tree that some device has, and how many devices have as many.

    The size nearest to the median of devices that have a branch, but to 5 at most so that it can be
    drawn; of two as near, the smaller. Without any branch: 0, and all devices.
    """
    sizes, counts = np.unique(workload[workload > 0], return_counts=True)
    if not len(sizes):
        return 0, len(workload)
    wanted = min(float(np.median(workload[workload > 0])), _PREFERRED)
    nearest = int(np.argmin(np.abs(sizes - wanted)))
    return int(sizes[nearest]), int(counts[nearest])

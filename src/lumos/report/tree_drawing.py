"""A drawing of one device's tree. Vertices are named by what they are, never by an id."""

import numpy as np

from lumos.report.svg import COLOURS, INK, SOFT, WIDTH, Canvas
from lumos.typing import Ints

_DRAWN = 5
"""Most branches of the tree that is drawn, where a device has no more."""
MOST = 7
"""Branches that are drawn; more of them are said."""


def tree(branches: int, own: str, other: str, *, virtual_nodes: bool = True) -> str:
    """The tree of a device that has so many branches (figure 2 of the paper), or its star.

    Args:
        own: what stands on the leaves of the device itself.
        other: what stands on the leaves of its neighbours.
        virtual_nodes: the paper's tree; a star otherwise.
    """
    drawn = min(branches, MOST)
    more = branches - drawn
    canvas = Canvas()
    blue, red = COLOURS[0], COLOURS[1]
    slots = drawn + bool(more)
    gap = (WIDTH - 40) / max(slots, 1)
    x = [20 + gap * (place + 0.5) for place in range(slots)]
    middle, top = WIDTH / 2, 30.0
    level = 105.0, 185.0
    if not branches:
        canvas.circle(middle, top, 13, blue)
        canvas.text(middle + 22, top + 5, "the device alone: nobody is in its tree")
        foot = top + 30
    elif virtual_nodes:
        half = min(gap / 4, 22)
        for place in x[:drawn]:
            canvas.line(middle, top, place, level[0], SOFT, width=1.5)
            for leaf in (place - half, place + half):
                canvas.line(place, level[0], leaf, level[1], SOFT, width=1.5)
        for place in x[:drawn]:
            canvas.circle(place, level[0], 9, "#ffffff", stroke=SOFT, dash="3 2")
            canvas.circle(place - half, level[1], 10, blue)
            canvas.box(place + half - 9, level[1] - 9, 18, 18, red)
        canvas.circle(middle, top, 12, "#ffffff", stroke=SOFT, dash="3 2")
        foot = level[1] + 30
    else:
        for place in x[:drawn]:
            canvas.line(middle, top, place, level[0], SOFT, width=1.5)
        for place in x[:drawn]:
            canvas.box(place - 9, level[0] - 9, 18, 18, red)
        canvas.circle(middle, top, 13, blue)
        foot = level[0] + 30
    if more:
        canvas.line(middle, top, x[-1], level[0], SOFT, width=1.5, dash="3 3")
        canvas.text(x[-1], level[0] + 24, f"{more:,} more", anchor="middle", size=13, fill=SOFT)
    canvas.circle(10, foot + 12, 8, blue)
    canvas.text(26, foot + 17, f"the device: {own}", fill=INK)
    if branches:
        canvas.box(2, foot + 28, 16, 16, red)
        canvas.text(26, foot + 41, f"one of its neighbours: {other}", fill=INK)
    if branches and virtual_nodes:
        canvas.circle(10, foot + 60, 8, "#ffffff", stroke=SOFT, dash="3 2")
        canvas.text(26, foot + 65, "nobody: a root, and a parent for each branch")
    shape = "A root joins" if virtual_nodes else "The device is joined to"
    each = (
        "branches, each with a leaf of the device and one of a neighbour" if virtual_nodes else ""
    )
    return canvas.svg(
        "The tree of a sample device",
        f"{shape} {branches:,} {each or 'neighbours'}.",
        foot + (54 + 24 * virtual_nodes if branches else 26),
    )


def moderate(workload: Ints) -> tuple[int, int]:
    """Branches of a moderate tree that some device has, and how many devices have as many.

    The size nearest to the median of devices that have a branch, but to 5 at most so that it can be
    drawn; of two as near, the smaller. Without any branch: 0, and all devices.
    """
    sizes, counts = np.unique(workload[workload > 0], return_counts=True)
    if not len(sizes):
        return 0, len(workload)
    wanted = min(float(np.median(workload[workload > 0])), _DRAWN)
    nearest = int(np.argmin(np.abs(sizes - wanted)))
    return int(sizes[nearest]), int(counts[nearest])

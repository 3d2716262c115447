"""The nodes of all trees by kind, as a layer sees them: what is equal or zero is not repeated.

In a tree, `own` holds one row per device as long as a device's own leaves are all equal (up to
and including the first layer's output: the parents they hear from are still zero), and one row
per branch afterwards. `parent` and `root` are None while they are zero, and where nothing that
follows needs them: a parent reaches a leaf in one layer, a root in two.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from lumos.model.tree_tensors import Trees


@dataclass(frozen=True, eq=False)
class TreeNodes:
    """Rows of every kind of node."""

    own: Tensor
    """[devices, width] if they are `shared`, else [branches, width]."""
    shared: bool
    """Whether all own leaves of a device are equal, and `own` has one row for each device."""
    neighbour: Tensor
    """[branches, width]"""
    lone: Tensor
    """[lone, width] leaves of devices that keep nobody: their trees are one leaf."""
    parent: Tensor | None = None
    """[branches, width]"""
    root: Tensor | None = None
    """[devices, width]; rows of lone devices mean nothing."""

    def each(self, change: Callable[[Tensor, str], Tensor]) -> "TreeNodes":
        """The nodes with every kind changed by `change(rows, kind)`."""
        return TreeNodes(
            change(self.own, "own"),
            self.shared,
            change(self.neighbour, "neighbour"),
            change(self.lone, "lone"),
            None if self.parent is None else change(self.parent, "parent"),
            None if self.root is None else change(self.root, "root"),
        )

    def own_rows(self, trees: Trees) -> Tensor:
        """[branches, width] own leaves, one for each branch."""
        return trees.to_branches(self.own) if self.shared else self.own


@dataclass(frozen=True, eq=False)
class StarNodes:
    """Rows of the two kinds of node of a star."""

    centre: Tensor
    """[devices, width]"""
    leaf: Tensor
    """[branches, width]"""

    def each(self, change: Callable[[Tensor, str], Tensor]) -> "StarNodes":
        """The nodes with both kinds changed by `change(rows, kind)`."""
        return StarNodes(change(self.centre, "centre"), change(self.leaf, "leaf"))

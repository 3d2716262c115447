r"""Graph convolution on trees, H' = D̂^(-1/2) (A + I) D̂^(-1/2) H W + b, by kind of node.

With self-loops a leaf has degree 2, a parent 4, a root workload + 1, a lone leaf 1. So

    leaf'   = leaf/2 + parent/√8
    parent' = parent/4 + (own + neighbour)/√8 + root/(2√(w + 1))
    root'   = root/(w + 1) + Σ parent/(2√(w + 1))

and in the star, centre' = centre/(w + 1) + Σ leaf/√(2(w + 1)), leaf' = leaf/2 + centre/√(2(w + 1)).
Time and memory O(branches · width) per layer, after the products with W.
"""

import torch
from torch import Tensor

from lumos.model.nodes import StarNodes, TreeNodes
from lumos.model.tree_tensors import Trees

EIGHTH = 8.0**-0.5


class TreeGCN(torch.nn.Module):
    """One layer. Parameters in this order: `weight` [in, out], `bias` [out].

    PyG's `GCNConv` calls them `lin.weight` = weightᵀ and `bias`.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.width = outputs
        self.weight = torch.nn.Parameter(torch.empty(inputs, outputs))
        self.bias = torch.nn.Parameter(torch.empty(outputs))

    def table(self) -> Tensor:
        """[in, out] what rows are multiplied with."""
        return self.weight

    def tree(self, z: TreeNodes, trees: Trees, remaining: int) -> TreeNodes:
        """One step on trees. `remaining`: layers that follow, which decide what is needed."""
        lone, shared = z.lone + self.bias, z.shared and z.parent is None
        if z.parent is None:
            own = torch.add(self.bias, z.own, alpha=0.5)
            neighbour = torch.add(self.bias, z.neighbour, alpha=0.5)
        else:
            up = torch.add(self.bias, z.parent, alpha=EIGHTH)
            own = torch.add(up, z.own_rows(trees), alpha=0.5)
            neighbour = torch.add(up, z.neighbour, alpha=0.5)
        parent = self._parent(z, trees) if remaining >= 1 else None
        root = self._root(z, trees) if remaining >= 2 else None
        return TreeNodes(own, shared, neighbour, lone, parent, root)

    def _parent(self, z: TreeNodes, trees: Trees) -> Tensor:
        parent = torch.add(self.bias, z.own_rows(trees) + z.neighbour, alpha=EIGHTH)
        if z.parent is not None:
            parent = torch.add(parent, z.parent, alpha=0.25)
        if z.root is not None:
            parent = parent + trees.to_branches(z.root / (2 * trees.degree.sqrt()))
        return parent

    def _root(self, z: TreeNodes, trees: Trees) -> Tensor:
        root = self.bias.expand(trees.devices, -1)
        if z.parent is not None:
            root = root + trees.to_devices(z.parent) / (2 * trees.degree.sqrt())
        if z.root is not None:
            root = root + z.root / trees.degree
        return root

    def star(self, z: StarNodes, trees: Trees) -> StarNodes:
        """One step on stars."""
        pair = (2 * trees.degree).rsqrt()
        centre = z.centre / trees.degree + trees.to_devices(z.leaf) * pair + self.bias
        leaf = z.leaf * 0.5 + trees.to_branches(z.centre * pair + self.bias)
        return StarNodes(centre, leaf)

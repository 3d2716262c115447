"""The trees themselves (figure 2 of the paper), for all devices of a shard at once.

Device u with kept neighbours v1 … vb has b branches. Branch i has two leaves, one for u and one
for vi, joined by a parent; the root joins the parents. Without virtual nodes the tree is the star
of u and its kept neighbours. A device that keeps nobody has a tree of one leaf, itself.

Nodes are numbered by kind, so that a kind is a slice of any array over nodes:

    own leaves [branches] · neighbour leaves [branches] · parents [branches] · roots · lone leaves
    centres [devices] · neighbour leaves [branches]                                  (the star)
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lumos.errors import UsageError
from lumos.typing import Ints

if TYPE_CHECKING:
    from torch_geometric.data import Data


VIRTUAL = -1
"""Vertex of a node that stands for no device: a parent or a root."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Forest:
    """Trees of some devices.

    Args:
        devices: [devices] ids.
        owner: [branches] position in `devices` of the tree that the branch belongs to.
        neighbour: [branches] id of the kept neighbour.
        virtual_nodes: trees as in the paper, or stars.
    """

    devices: Ints = field(repr=False)
    owner: Ints = field(repr=False)
    neighbour: Ints = field(repr=False)
    virtual_nodes: bool = True

    @staticmethod
    def grow(
        devices: Ints,
        offsets: Ints,
        neighbours: Ints,
        keep: npt.NDArray[np.bool_],
        *,
        virtual_nodes: bool = True,
    ) -> "Forest":
        """Trees from neighbour lists and what is kept of them.

        Args:
            offsets: [devices + 1] as in `Shard` and `Graph`; neighbours, keep: [slots].
        """
        owner = np.repeat(np.arange(len(devices)), np.diff(offsets))
        return Forest(
            devices=devices,
            owner=owner[keep],
            neighbour=neighbours[keep],
            virtual_nodes=virtual_nodes,
        )

    def __repr__(self) -> str:
        return f"Forest(devices={len(self.devices)}, branches={self.branches}, nodes={self.nodes})"

    @property
    def branches(self) -> int:
        """Number of branches: kept neighbours over all trees."""
        return len(self.owner)

    @property
    def workload(self) -> Ints:
        """[devices] branches of each tree."""
        return np.bincount(self.owner, minlength=len(self.devices))

    @property
    def roots(self) -> Ints:
        """[trees with branches] positions of the devices that have a root."""
        return np.flatnonzero(self.workload > 0)

    @property
    def lone(self) -> Ints:
        """Positions of the devices that keep nobody."""
        return np.flatnonzero(self.workload == 0)

    @property
    def nodes(self) -> int:
        """Number of nodes: 3 for each branch, a root or a lone leaf for each device."""
        return (3 if self.virtual_nodes else 1) * self.branches + len(self.devices)

    def vertex(self) -> Ints:
        """[nodes] id of the device that a leaf stands for, or `VIRTUAL`."""
        own = self.devices[self.owner]
        if not self.virtual_nodes:
            return np.concatenate([self.devices, self.neighbour])
        virtual = np.full(self.branches + len(self.roots), VIRTUAL)
        return np.concatenate([own, self.neighbour, virtual, self.devices[self.lone]])

    def tree(self) -> Ints:
        """[nodes] position of the device whose tree a node belongs to."""
        if not self.virtual_nodes:
            return np.concatenate([np.arange(len(self.devices)), self.owner])
        return np.concatenate([self.owner, self.owner, self.owner, self.roots, self.lone])

    def edge_index(self) -> Ints:
        """[2, 2 · tree edges] in both directions, as PyG has it: all trees as one graph."""
        branch = np.arange(self.branches)
        if self.virtual_nodes:
            parent = 2 * self.branches + branch
            number_of_root = np.full(len(self.devices), -1)
            number_of_root[self.roots] = 3 * self.branches + np.arange(len(self.roots))
            root = number_of_root[self.owner]
            up = np.concatenate([branch, self.branches + branch, parent])
            down = np.concatenate([parent, parent, root])
        else:
            up, down = len(self.devices) + branch, self.owner
        return np.stack([np.concatenate([up, down]), np.concatenate([down, up])])

    def of(self, device: int) -> "Forest":
        """The tree of one device."""
        position = np.flatnonzero(self.devices == device)
        if not len(position):
            raise UsageError(f"device {device} has no tree here")
        mine = self.owner == position[0]
        return Forest(
            devices=self.devices[position],
            owner=np.zeros(int(mine.sum()), np.int64),
            neighbour=self.neighbour[mine],
            virtual_nodes=self.virtual_nodes,
        )

    def to_pyg(self) -> "Data":
        """As a PyG `Data` with `edge_index`, `vertex` and `tree`."""
        import torch
        from torch_geometric.data import Data

        def tensor(array: Ints) -> Any:
            return torch.from_numpy(np.array(array, np.int64))

        return Data(
            edge_index=tensor(self.edge_index()),
            vertex=tensor(self.vertex()),
            tree=tensor(self.tree()),
            num_nodes=self.nodes,
        )

"""The table of all leaves that a tree can have where leaves carry symbols.

With two layers a leaf depends on the two leaves of its branch only (errata 8d). Here both carry
symbols, so there are k² different branches; the weights are public, and a device already has its
neighbours' symbols. It computes every leaf that stands for it locally, whoever carries the edge:
POOL needs no message, and nobody needs to know who carries an edge.

Training sums the gradient of the *table*; every device then propagates it back through the tree
network, which is post-processing.
"""

import numpy as np
import torch
from torch import Tensor

from lumos.model.network import TreeNetwork
from lumos.model.settings import ModelSettings
from lumos.model.tree_tensors import Trees
from lumos.typing import Doubles


class LeafTable:
    """The tree network on pairs of symbols; its parameters as one vector.

    Args:
        settings: backbone and widths; two layers.
        symbols: k, number of a device's own symbols.
        alphabet: number of symbols that a neighbour may release; usually the same.
        generator: public coins for the start.
    """

    def __init__(
        self,
        settings: ModelSettings,
        symbols: int,
        alphabet: int,
        generator: np.random.Generator,
    ) -> None:
        self.shape = (symbols, alphabet, settings.output)
        self._network = TreeNetwork(settings, max(symbols, alphabet))
        self._network.initialise(generator)
        pair = torch.arange(symbols * alphabet)
        eye = torch.eye(max(symbols, alphabet))
        self._trees = Trees(
            owner=pair, workload=torch.ones(len(pair), dtype=torch.int64), virtual_nodes=True
        )
        self._inputs = eye[pair // alphabet].contiguous(), eye[pair % alphabet].contiguous()

    @property
    def width(self) -> int:
        """Numbers in a leaf."""
        return self.shape[2]

    @property
    def size(self) -> int:
        """Numbers in the table."""
        return int(np.prod(self.shape))

    def vector(self) -> Doubles:
        """[weights] of the tree network."""
        flat = torch.nn.utils.parameters_to_vector(self._network.parameters())
        return flat.detach().numpy().astype(np.float64)

    def load(self, vector: Doubles) -> None:
        """Set all weights."""
        flat = torch.from_numpy(vector.astype(np.float32))
        torch.nn.utils.vector_to_parameters(flat, self._network.parameters())

    def table(self) -> Doubles:
        """[k, alphabet, width] the leaf of a device, for its own symbol and its neighbour's."""
        with torch.no_grad():
            leaves = self._leaves().numpy().astype(np.float64)
        return leaves.reshape(self.shape)

    def backward(self, total: Doubles) -> Doubles:
        """[weights] gradient of the weights, from that of the table."""
        table = self._leaves()
        slope = torch.from_numpy(total.astype(np.float32)).view_as(table)
        parameters = list(self._network.parameters())
        gradients = torch.autograd.grad(
            table, parameters, slope, allow_unused=True, materialize_grads=True
        )
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()
        return flat.astype(np.float64)

    def _leaves(self) -> Tensor:
        leaves: Tensor = self._network(self._trees, *self._inputs).own
        return leaves

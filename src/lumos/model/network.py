"""The network that every device runs on its tree, for all devices of a shard at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lumos.device.coins import PrivateCoins
from lumos.model.arena import Memory
from lumos.model.dropout import Activation, Drops, sites
from lumos.model.feature_products import Features, checked, project
from lumos.model.gat import TreeGAT
from lumos.model.gcn import TreeGCN
from lumos.model.generic import FAST, generic_layers, generic_leaves
from lumos.model.settings import ModelSettings
from lumos.model.tree_pass import TreePass
from lumos.model.tree_tensors import Trees


class Leaves(NamedTuple):
    """Leaf embeddings after the last layer: what POOL needs and nothing else."""

    own: Tensor
    """[own leaves, output]: of the device itself, leaf i of device `Trees.own_device[i]`; in a
    tree one for each branch, then those of lone devices; in a star one for each device."""
    neighbour: Tensor
    """[branches, output]: of the kept neighbours, to be sent to them."""


class TreeNetwork(torch.nn.Module):
    """l layers on trees or stars (section VI-B), ReLU and dropout after each.

    The layers gcn and gat use the shape of the tree: a device's own leaves are computed once
    as long as they are equal, virtual nodes are skipped while they are zero and where no leaf will
    hear of them, and features are multiplied in whatever sparse form they came. Time and memory
    O(branches · width) per layer, after the first product.
    Any other PyG layer runs on all nodes of the trees as one graph.

    Parameters stand layer by layer in the order that `TreeGCN` and `TreeGAT` document, so
    `torch.nn.utils.parameters_to_vector(network.parameters())` is the vector to aggregate.
    """

    def __init__(self, settings: ModelSettings, features: int) -> None:
        super().__init__()
        self.settings = settings
        self.features = features
        last = settings.layers - 1
        wide = settings.hidden * (settings.heads if settings.backbone == "gat" else 1)
        self.widths = [wide] * last + [settings.output]
        """[layers] width of each layer's output."""
        inputs = [features, *self.widths[:-1]]
        layers: Sequence[torch.nn.Module]
        if settings.backbone == "gcn":
            layers = [TreeGCN(*pair) for pair in zip(inputs, self.widths, strict=True)]
        elif settings.backbone == "gat":
            layers = [TreeGAT(size, settings.hidden, settings.heads) for size in inputs[:-1]]
            layers += [TreeGAT(inputs[-1], settings.output, 1)]
        else:
            layers = generic_layers(settings.backbone, inputs, self.widths)
        self.layers = torch.nn.ModuleList(layers)
        self._memory = Memory()

    def initialise(self, generator: np.random.Generator) -> None:
        """Weights from public coins: Glorot's uniform distribution, biases 0.

        Of a generic layer, every matrix is drawn so, and vectors are 0.
        """
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() < 2:
                    parameter.zero_()
                    continue
                reach = float(np.sqrt(6 / (parameter.shape[-1] + parameter.shape[-2])))
                values = generator.uniform(-reach, reach, tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))

    def drops(self, trees: Trees, coins: PrivateCoins, step: int) -> Drops | None:
        """What falls in epoch `step`, from the devices' private coins; None at dropout 0."""
        if self.settings.dropout == 0:
            return None
        expanded = self.settings.backbone not in FAST
        found = sites(trees, self.widths, expanded=expanded)
        return Drops.draw(found, self.settings.dropout, coins, step, expanded=expanded)

    def forward(
        self, trees: Trees, own: Features, neighbour: Features, drops: Drops | None = None
    ) -> Leaves:
        """Leaf embeddings.

        Args:
            trees: the trees of the devices.
            own: [devices, d] features of the devices themselves.
            neighbour: [branches, d] what is known of the kept neighbours' features.
            drops: what falls, see `drops`; None in evaluation.
        """
        if self.settings.backbone not in FAST:
            last = self.settings.activate_last
            return Leaves(
                *generic_leaves(self.layers, trees, own, neighbour, drops, activate_last=last)
            )
        layers = self._fast
        activations = [self._activation(number, drops) for number in range(len(layers))]
        pairs = list(zip(layers, activations, strict=True))
        tables = [layer.table(activation) for layer, activation in pairs]
        biases = [layer.bias * activation.factor for layer, activation in pairs]
        scores = [layer.scores() for layer in layers]
        dense = isinstance(own, Tensor) and isinstance(neighbour, Tensor)
        plan = TreePass(layers, self._activation, trees, drops, not dense, self._memory)
        # Products of features in another form are made for all trees at once, before the pass.
        rows = [
            one if isinstance(one, Tensor) and dense else project(one, tables[0])
            for one in (checked(own, self.features), checked(neighbour, self.features))
        ]
        return Leaves(*plan.run(rows[0], rows[1], tables, biases, scores))

    @property
    def _fast(self) -> list[TreeGCN | TreeGAT]:
        return [layer for layer in self.layers if isinstance(layer, TreeGCN | TreeGAT)]

    def _activation(self, layer: int, drops: Drops | None) -> Activation:
        last = layer == len(self.layers) - 1
        return Activation(layer, drops, relu=not last or self.settings.activate_last)

"""Layers and models as somebody who knows PyG writes them."""

import warnings
from typing import Any

import torch
from torch import Tensor

with warnings.catch_warnings():  # PyG still scripts a few classes with torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.nn as pyg


class MyConv(pyg.MessagePassing):  # type: ignore[misc]
    """Mean of messages, LayerNorm, dropout inside."""

    def __init__(self, before: int, after: int, drop: float = 0.3) -> None:
        super().__init__(aggr="mean")
        self.lin = torch.nn.Linear(2 * before, after)
        self.norm = torch.nn.LayerNorm(after)
        self.drop = torch.nn.Dropout(drop)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """As PyG calls a layer."""
        mean = self.propagate(edge_index, x=x)
        out: Tensor = self.norm(self.lin(self.drop(torch.cat([x, mean], dim=1))))
        return out


class MyModel(torch.nn.Module):
    """A whole model that also looks at each tree by `batch`."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first, self.second = MyConv(before, 8), MyConv(16, after)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """As `lumos.train(model=…)` calls a model."""
        h = torch.relu(self.first(x, edge_index))
        tree = pyg.global_mean_pool(h, batch)
        out: Tensor = self.second(torch.cat([h, tree[batch]], dim=1), edge_index)
        return out


class Centred(torch.nn.Module):
    """A layer that mixes devices without the name of any known one."""

    def __init__(self, before: int, after: int, share: float = 1.0) -> None:
        super().__init__()
        self.lin, self.share = torch.nn.Linear(before, after), share

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Subtract the mean over all nodes of all trees."""
        out: Tensor = self.lin(x)
        return out - self.share * out.mean(dim=0)


def gin(before: int, after: int, eps: float = 0.25) -> Any:
    """GIN with one linear layer."""
    return pyg.GINConv(torch.nn.Linear(before, after), eps=eps)

"""What a server trains: two layers of PyG's GCN, GAT or SAGE, or a perceptron without a graph.

The layers compute what `torch_geometric.nn.GCNConv`, `GATConv` and `SAGEConv` compute, from weights
of the same names and shapes (a test compares them), but on `Arcs`, so that neither sparse words nor
tens of millions of noisy edges are ever made dense.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout

from lumos.baselines.arcs import Arcs
from lumos.baselines.attention import attend
from lumos.baselines.settings import Backbone, BaselineSettings
from lumos.encode.bounds import Sparse
from lumos.model import feature_products
from lumos.typing import Floats

HEADS = 4
"""Of the first layer of gat; the second has one."""

Rows: TypeAlias = "Tensor | Floats | Sparse | Smoothed"


@dataclass(frozen=True, eq=False, kw_only=True)
class Smoothed:
    """KProp without its dense result: (D^-½ A D^-½)^K (matrix + plus), no self-loops.

    A layer multiplies it with a narrow table W, and P^K (X W) = (P^K X) W.
    """

    matrix: "Floats | Sparse" = field(repr=False)
    """[devices, d]"""
    plus: float
    """What is added to every entry: the midpoint of the bounds."""
    arcs: Arcs = field(repr=False)
    steps: int
    """K"""

    @property
    def shape(self) -> tuple[int, int]:
        """(devices, d), as the other forms of rows have it."""
        devices, width = self.matrix.shape
        return devices, width

    def project(self, table: Tensor) -> Tensor:
        """[devices, width] its product with table [d, width]."""
        rows = project(self.matrix, table) + self.plus * table.sum(dim=0)
        for _ in range(self.steps):
            rows = self.arcs.smooth(rows)
        return rows


class Layer(nn.Module):
    """[devices, inputs] to [devices, outputs] over the edges that the server believes in."""

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """The layer's answer, before any activation."""
        raise NotImplementedError


class Gcn(Layer):
    """(D + I)^-½ (A + I) (D + I)^-½ X W + b (Kipf and Welling 2017)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = _glorot(inputs, outputs)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """As the formula says, from the right."""
        return arcs.smooth_with_self(project(rows, self.weight)) + self.bias


class Sage(Layer):
    """mean over neighbours · W + b + X · R (Hamilton et al. 2017)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.root = _glorot(inputs, outputs), _glorot(inputs, outputs)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """As the formula says."""
        both = project(rows, torch.cat([self.weight, self.root], dim=1))
        theirs, own = both.chunk(2, dim=1)
        return arcs.mean(theirs) + self.bias + own


class Gat(Layer):
    """Attention over neighbours and oneself (Veličković et al. 2018); heads side by side."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.weight = _glorot(inputs, heads * outputs)
        self.mine, self.theirs = _glorot(heads, outputs), _glorot(heads, outputs)
        self.bias = nn.Parameter(torch.zeros(heads * outputs))

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """See `lumos.baselines.attention`."""
        values = project(rows, self.weight).view(arcs.devices, self.heads, -1)
        mine, theirs = ((values * part).sum(dim=2) for part in (self.mine, self.theirs))
        return attend(arcs, values, mine, theirs).flatten(1) + self.bias


class Alone(Layer):
    """X W + b: no neighbour."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = _glorot(inputs, outputs)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """The arcs are not looked at."""
        return project(rows, self.weight) + self.bias


class Network(nn.Module):
    """Two layers with ReLU and dropout, and a linear head where there are classes.

    A system without a backbone has a perceptron.

    Args:
        classes: 0 for link: the embeddings are then not cut off at 0.
    """

    def __init__(self, settings: BaselineSettings, inputs: int, classes: int) -> None:
        super().__init__()
        width, self._dropout = settings.hidden, settings.dropout
        self.layers = nn.ModuleList(_layers(settings.backbone, inputs, width))
        self.head = nn.Linear(width, classes) if classes else None

    def forward(self, rows: Rows, arcs: Arcs) -> Tensor:
        """[devices, classes] logits, or [devices, hidden] embeddings."""
        return self.rest(self.first(rows, arcs), arcs)

    def first(self, rows: Rows, arcs: Arcs) -> Tensor:
        """The first layer, before activation and dropout: the same in training and in use."""
        hidden: Tensor = self.layers[0](rows, arcs)
        return hidden

    def rest(self, first: Tensor, arcs: Arcs) -> Tensor:
        """What follows the first layer."""
        embedding: Tensor = self.layers[1](self._drop(torch.relu(first)), arcs)
        if self.head is None:
            return embedding
        logits: Tensor = self.head(self._drop(torch.relu(embedding)))
        return logits

    def _drop(self, rows: Tensor) -> Tensor:
        return dropout(rows, self._dropout, self.training)


def _layers(backbone: Backbone | None, inputs: int, width: int) -> list[Layer]:
    if backbone is None:
        return [Alone(inputs, width), Alone(width, width)]
    if backbone == "gat":
        return [Gat(inputs, width, HEADS), Gat(HEADS * width, width, 1)]
    kind = Gcn if backbone == "gcn" else Sage
    return [kind(inputs, width), kind(width, width)]


def project(rows: Rows, table: Tensor) -> Tensor:
    """[devices, width] rows times table; differentiable with respect to the table.

    Rows that a server received are constants, dense or sparse; hidden rows are tensors.
    """
    if isinstance(rows, Smoothed):
        return rows.project(table)
    if isinstance(rows, np.ndarray):
        product: Tensor = _ConstantProduct.apply(torch.from_numpy(rows), table)  # type: ignore[no-untyped-call]
        return product
    return feature_products.project(rows, table)


class _ConstantProduct(torch.autograd.Function):
    """X W for a constant X; its gradient as (Gᵀ X)ᵀ, which reads X row by row."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, table: Tensor) -> Tensor:
        ctx.rows = rows
        return rows @ table

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, (gradient.T @ ctx.rows).T


def _glorot(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))

"""The network on trees: fast GCN and GAT layers, any layer or module of your own, and POOL.

`network` runs on the trees of a whole shard (`tree_tensors`), with POOL and the gradients of each
device apart; `layers` are its fast layers, `tree_pass` runs them forward and backward, `dropout` is
a part of it. `custom` has all other layers, models and optimizers, and the checks of them. The
settings below can be imported without torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from lumos.errors import UsageError
from lumos.registry import part_name

Pooling = Literal["average", "sum", "max", "attention"]
POOLINGS: tuple[Pooling, ...] = ("average", "sum", "max", "attention")
FAST = ("gcn", "gat")
"""Backbones that have fast layers for trees."""
ModuleFactory = Callable[..., Any]
"""A class or function `(in, out) -> torch.nn.Module`; where a model is taken, also a module."""
OF_LAYERS = ("backbone", "layers", "hidden", "heads", "dropout", "activate_last")
"""Settings of layers, which a whole model does not have."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The network that every device runs on its tree (section VIII-B, errata 9)."""

    backbone: str | ModuleFactory = "gcn"
    """The layer. gcn and gat have fast layers for trees; other PyG layers go by name, as `sage`, or
    as a class or factory `(in, out) -> torch.nn.Module`, called with `x` and `edge_index`."""
    model: ModuleFactory | str | None = None
    """A whole model instead of layers: a `torch.nn.Module`, or a factory `(in, out) -> Module`. It
    is called with `x`, `edge_index` and, if it has this argument, `batch`: the tree of each
    node."""
    projection: int = 0
    """Width to which a linear layer maps features before the first layer of your own, or before
    `model`; 0: none. With many features it saves memory: the map reads them in sparse form."""
    layers: int = 2
    """l, the number of layers. Each is followed by ReLU and dropout."""
    hidden: int = 16
    """Width of every layer but the last; of one head, where there are several."""
    output: int = 16
    """Width of the last layer: of a leaf embedding."""
    heads: int = 4
    """Attention heads (gat), concatenated in every layer but the last, which has one."""
    dropout: float = 0.01
    """Chance that an element of a layer's output is dropped in training."""
    activate_last: bool = True
    """True if ReLU and dropout also follow the last layer, as in the paper."""
    device: str = "cpu"
    """The torch device that layers or models of your own run on, as `cuda`."""
    pool: Pooling = "average"
    """The rule by which the embeddings of a vertex's leaves become one."""

    def __post_init__(self) -> None:
        for name in ("backbone", "model"):
            if not (isinstance(part := getattr(self, name), str | None) or callable(part)):
                raise UsageError(
                    f"`{name}` must be a name, a class or a factory (in, out) -> torch.nn.Module, "
                    f"got {part!r}"
                )
        if self.projection < 0:
            raise UsageError(f"`projection` must be 0 or more, got {self.projection}")
        for name in ("layers", "hidden", "output", "heads"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.pool not in POOLINGS:
            raise UsageError(f"pool must be one of {', '.join(POOLINGS)}, got {self.pool!r}")

    @property
    def fast(self) -> bool:
        """True if the network has fast layers for trees."""
        return self.model is None and self.backbone in FAST

    @property
    def network(self) -> str:
        """The name of the network in texts and files."""
        return part_name(self.backbone if self.model is None else self.model)

    def ignored(self, name: str) -> str:
        """Name the settings with which another one has no effect; empty where it has one."""
        if self.model is not None and name in OF_LAYERS:
            return "`model`, only with a `backbone`"
        if name == "heads" and self.backbone != "gat":
            return f"`backbone='{part_name(self.backbone)}'`, only with `backbone='gat'`"
        if name in ("projection", "device") and self.fast:
            return f"`backbone='{self.backbone}'`, only with a layer or `model` of your own"
        if name in ("hidden", "heads") and self.layers == 1:
            return "`layers=1`, only with more layers"
        return ""

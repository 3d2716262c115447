"""The network on trees: fast GCN and GAT layers, any PyG layer by name, and POOL.

`network` runs on the trees of a whole shard (`tree_tensors`), with POOL and the gradients of each
device apart; `layers` are its layers, `tree_pass` runs them forward and backward, `dropout` and
`feature_products` are parts of it. The settings below can be imported without torch.
"""

from dataclasses import dataclass
from typing import Literal

from lumos.errors import UsageError

Pooling = Literal["average", "sum", "max", "attention"]
POOLINGS: tuple[Pooling, ...] = ("average", "sum", "max", "attention")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The network that every device runs on its tree (section VIII-B, errata 9)."""

    backbone: str = "gcn"
    """gcn and gat have fast layers for trees; any other PyG layer goes by its name, as `sage`."""
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
    pool: Pooling = "average"
    """The rule by which the embeddings of a vertex's leaves become one."""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "output", "heads"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.pool not in POOLINGS:
            raise UsageError(f"pool must be one of {', '.join(POOLINGS)}, got {self.pool!r}")

    def ignored(self, name: str) -> str:
        """Name the settings with which another one has no effect; empty where it has one."""
        if name == "heads" and self.backbone != "gat":
            return f"`backbone='{self.backbone}'`, only with `backbone='gat'`"
        if name in ("hidden", "heads") and self.layers == 1:
            return "`layers=1`, only with more layers"
        return ""

"""The network on trees: fast GCN and GAT layers, any PyG layer by name, and POOL."""

from lumos.model.by_device import device_gradients
from lumos.model.dropout import Drops
from lumos.model.network import Leaves, TreeNetwork
from lumos.model.pool import Pooled, pool, pool_backward
from lumos.model.settings import ModelSettings
from lumos.model.tree_tensors import Trees

__all__ = [
    "Drops",
    "Leaves",
    "ModelSettings",
    "Pooled",
    "TreeNetwork",
    "Trees",
    "device_gradients",
    "pool",
    "pool_backward",
]

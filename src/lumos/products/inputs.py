"""What the products of a shard are made of: a matching, chosen words, vectors of small numbers."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.device.shard import Shard, within
from lumos.errors import InputError, UsageError
from lumos.exchange.endpoint import Program
from lumos.typing import Ints


class PairProducts(Protocol):
    """Products of matched devices: `SecureProducts` and `IdealProducts`."""

    def setup(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Once per run. `partner`: [hosted] id or -1; `chosen`: [hosted, words] 0 or 1."""
        ...

    def multiply(self, vectors: npt.NDArray[np.int8], step: int, attempt: int) -> Program[object]:
        """Shares of the products, or what the ideal backend has in their place."""
        ...


def check_pairs(shard: Shard, partner: Ints, chosen: csr_array) -> None:
    """Raise `UsageError` or `InputError` unless these are partners and choices of the devices."""
    if partner.shape != (len(shard),) or not within(partner, -1, shard.total):
        raise UsageError(f"`partner` must be [{len(shard)}] ids, or -1 for no partner")
    if (partner == shard.devices).any():
        raise UsageError("`partner`: a device is matched with itself")
    if chosen.ndim != 2 or len(shard) != chosen.shape[0] or not chosen.shape[1]:
        raise UsageError(f"`chosen` must be [{len(shard)}, words], got {list(chosen.shape)}")
    if not chosen.has_canonical_format or (chosen.data != 1).any():
        raise InputError("`chosen` must hold ones, each stored once")


def check_vectors(shard: Shard, vectors: npt.NDArray[np.int8]) -> None:
    """Raise `UsageError` or `InputError` unless these are the devices' vectors."""
    if vectors.ndim != 2 or len(vectors) != len(shard) or vectors.dtype != np.int8:
        raise UsageError(
            f"vectors must be int8[{len(shard)}, width], got {vectors.dtype}{list(vectors.shape)}"
        )
    if (vectors == -128).any():
        raise InputError("a number of a product lies beyond ±127")

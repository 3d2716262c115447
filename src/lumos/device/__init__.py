"""Devices: the shard that hosts them, and their randomness."""

from lumos.device.randomness import (
    PrivateRandomness,
    PublicRandomness,
    simulated_secrets,
    system_secrets,
)
from lumos.device.shard import COORDINATOR, Shard, cut

__all__ = [
    "COORDINATOR",
    "PrivateRandomness",
    "PublicRandomness",
    "Shard",
    "cut",
    "simulated_secrets",
    "system_secrets",
]

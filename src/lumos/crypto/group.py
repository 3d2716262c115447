"""The prime-order groups of the oblivious transfers, behind five methods.

| group | library | point | time depends on secrets |
|---|---|---|---|
| `ed25519` | libsodium through PyNaCl | 32 bytes | no |
| `secp256k1` | libsecp256k1 through coincurve | 33 bytes | yes: for simulations |

Points are bytes of fixed length. `multiply` is the only method that takes a received point, and it
refuses what is not in the group. `add` and `subtract` check next to nothing, so they are given only
points that passed `multiply` or were computed here.
"""

from typing import Protocol

from lumos.errors import ProtocolError, one_of
from lumos.registry import Registry

AUTO = "auto"
"""The choice that depends on where coins come from."""
NO_GROUP = "none"
"""In reports: no point was sent, nor booked."""


class BadPoint(ProtocolError):
    """A received point is not in the group, or its encoding is not canonical."""


class Group(Protocol):
    """A group of prime order with generator G, its elements as bytes of fixed length."""

    name: str
    """As it is registered in `GROUPS`."""
    point_bytes: int
    """Bytes of a point."""
    identity: bytes
    """The neutral element. It is never sent."""

    def key(self) -> tuple[bytes, bytes, bytes]:
        """A fresh scalar a with A = aG and T = aA."""

    def pair(self) -> tuple[bytes, bytes]:
        """A fresh scalar b with bG."""

    def multiply(self, scalar: bytes, point: bytes) -> bytes:
        """The scalar times a received point, which is checked; raises `BadPoint`."""

    def add(self, left: bytes, right: bytes) -> bytes:
        """The sum of two points that are known to be good."""

    def subtract(self, left: bytes, right: bytes, times: int) -> list[bytes]:
        """Left minus right, minus 2·right, … minus `times`·right, of points known to be good."""


GROUPS: Registry[Group] = Registry(
    "group",
    {
        "ed25519": "lumos.crypto.ed25519:ED25519",
        "secp256k1": "lumos.crypto.secp256k1:SECP256K1",
    },
)
"""The groups by name, imported when they are first asked for."""


def check_group(name: str) -> None:
    """Raise `UsageError` unless `name` is that of a group, or `auto`."""
    one_of("group", name, (AUTO, *GROUPS.names()))


def choose_group(name: str, *, simulated: bool) -> Group:
    """The group of a run.

    Args:
        name: of `GROUPS`; or `auto`: the quick one where devices are simulated, so that all secrets
            are in one process anyway, the one in constant time where devices are real.
        simulated: whether device secrets come from the run seed.
    """
    check_group(name)
    if name == AUTO:
        name = "secp256k1" if simulated else "ed25519"
    return GROUPS[name]

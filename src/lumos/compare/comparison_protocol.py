"""Comparisons as workers serve them: one value of 64 bits for each party."""

from collections.abc import Iterator

import msgspec
import numpy as np

from lumos.compare.receiver import Receiver
from lumos.compare.sender import Sender
from lumos.compare.spec import Kind, Spec
from lumos.crypto.group import Group
from lumos.typing import Ints


class ComparisonProtocol:
    """Opens senders and receivers; every comparison is revealed to both."""

    def open(self, me: int, peer: int, group: Group) -> Sender | Receiver:
        """The end with the smaller id is the sender."""
        return (Sender if me < peer else Receiver)(me, peer, group=group)

    def encode(self, spec: Spec, values: Ints) -> tuple[bytes, bytes]:
        """A spec, and [parties] values, as `items` reads them."""
        return (
            msgspec.msgpack.encode((spec.bits, spec.kind.value)),
            values.astype(np.int64).tobytes(),
        )

    def items(self, spec: bytes, values: bytes, count: int) -> Iterator[tuple[Spec, int]]:
        """(spec, own value) of each party."""
        bits, kind = msgspec.msgpack.decode(spec, type=tuple[int, str])
        decoded = Spec(bits, Kind(kind))
        return ((decoded, value) for value in np.frombuffer(values, np.int64, count).tolist())


PROTOCOL = ComparisonProtocol()

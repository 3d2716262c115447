"""Two ends of a pair in one test: how they talk, and broken twins of what they say."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lumos.crypto.groups import ED25519, Group
from lumos.secagg import FixedPoint
from lumos.twoparty.products import PairSession

LONG = FixedPoint(1024.0, 32, 8, False)
SHORT = FixedPoint(64.0, 14, 4, False)
Tamper = Callable[[str, int, bytes], bytes]


class Pair:
    """Devices 3 and 8, every message of theirs, and a way to change it on its way."""

    def __init__(
        self,
        chosen: tuple[np.ndarray, np.ndarray],
        fixed: FixedPoint = LONG,
        *,
        group: Group = ED25519,
        tamper: Tamper = lambda _, __, message: message,
        kind: type[PairSession] = PairSession,
    ) -> None:
        self.ends = [
            kind(me, peer, own, fixed, group=group)
            for (me, peer), own in zip(((3, 8), (8, 3)), chosen, strict=True)
        ]
        self.sent: dict[str, list[bytes]] = {}
        self._tamper = tamper
        said = self.swap("opening", [end.opening() for end in self.ends])
        said = self.swap("points", [e.points(m) for e, m in zip(self.ends, said, strict=True)])
        said = self.swap("columns", [e.columns(m) for e, m in zip(self.ends, said, strict=True)])
        for end, message in zip(self.ends, said, strict=True):
            end.extend(message)

    def swap(self, name: str, messages: list[bytes]) -> list[bytes]:
        """What each end receives."""
        self.sent[name] = messages
        one, two = (self._tamper(name, end, message) for end, message in enumerate(messages))
        return [two, one]

    def multiply(self, numbers: Any, step: int = 0, attempt: int = 0) -> list[np.ndarray]:
        """The shares of both ends."""
        said = self.swap(
            f"correction {step} {attempt}",
            [e.correction(z, step, attempt) for e, z in zip(self.ends, numbers, strict=True)],
        )
        return [e.share(m, step, attempt) for e, m in zip(self.ends, said, strict=True)]


def random_inputs(words: int, width: int, seed: int = 0) -> tuple[Any, Any]:
    """Choices of both ends, and numbers of both ends."""
    randomness = np.random.default_rng(seed)
    chosen = tuple(randomness.random(words) < 0.4 for _ in range(2))
    numbers = tuple(randomness.integers(-127, 128, width).astype(np.int8) for _ in range(2))
    return chosen, numbers


def product(chosen: Any, numbers: Any, fixed: FixedPoint) -> np.ndarray:
    """The oracle: (b_u ⊗ Z_v + b_v ⊗ Z_u) · 2^(f - 7), in Python's whole numbers."""
    b_u, b_v = (bits.astype(object) for bits in chosen)
    z_u, z_v = (z.astype(object) for z in numbers)
    scale = 2 ** (fixed.fraction_bits - 7)
    whole = (np.outer(b_u, z_v) + np.outer(b_v, z_u)) * scale % 2 ** (8 * fixed.word)
    return whole.astype(fixed.dtype)

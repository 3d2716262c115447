"""The settings of masked sums: the only source of their defaults."""

from dataclasses import dataclass

from lumos.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class AggregateSettings:
    """How vectors are summed. All of it is public, and the same at every party.

    Args:
        limit: largest absolute value of one number of one device's vector.
        least_limit: where sums over so many devices do not fit 64 bits, the limit is halved until
            they do, down to this; None: such sums are refused.
        fraction_bits: numbers are rounded to multiples of 2^-fraction_bits.
        clip: clip numbers beyond the limit instead of refusing the vector.
        corrupt: fraction of devices that may collude with the coordinator; they may choose
            themselves, before the mask graph is drawn.
        dropped: fraction of devices that may fall silent in a round without stopping it.
        security_bits: colluders learn more than the sum with probability ≤ 2^-security_bits a run.
        liveness_bits: tolerated dropouts stop a round with probability ≤ 2^-liveness_bits.
        neighbours: k, mask partners of each device; None: as few as the statements above allow.
        threshold: t, shares that open a secret; None: as few as `corrupt` allows.
        minimum: survivors below which nothing is opened; None: what `dropped` leaves, at least 3.
    """

    limit: float = 1024.0
    least_limit: float | None = None
    fraction_bits: int = 32
    clip: bool = False
    corrupt: float = 0.10
    dropped: float = 0.05
    security_bits: int = 40
    liveness_bits: int = 20
    neighbours: int | None = None
    threshold: int | None = None
    minimum: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.limit < float("inf"):
            raise UsageError(f"limit must be positive and finite, got {self.limit}")
        if self.least_limit is not None and not self.least_limit > 0:
            raise UsageError(f"least_limit must be above 0, got {self.least_limit}")
        if not 0 <= self.fraction_bits <= 52:
            raise UsageError(f"fraction_bits must be 0 to 52, got {self.fraction_bits}")
        for name in ("corrupt", "dropped"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} must be >= 0 and < 1, got {getattr(self, name)}")
        for name in ("security_bits", "liveness_bits"):
            if not 1 <= getattr(self, name) <= 256:
                raise UsageError(f"{name} must be 1 to 256, got {getattr(self, name)}")
        if self.minimum is not None and self.minimum < 2:
            raise UsageError(
                f"minimum must be >= 2, got {self.minimum}: a sum over one device is its vector"
            )

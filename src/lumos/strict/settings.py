"""Settings of the strict profile: what is released, and how updates are protected."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from lumos.errors import UsageError, one_of

LARGEST_EPSILON = 1000.0
LEAST_CLIP = 0.05
"""So that rounding a million weights to the fixed point stays within the margin of clipping."""

Mechanism = Literal["auto", "krr", "oue"]
Says = Literal["label", "prediction"]
Protection = Literal["noise", "holders", "projection", "none"]


@dataclass(frozen=True, kw_only=True)
class StrictSettings:
    """The strict profile (docs/strict.md)."""

    mechanism: Mechanism = "auto"
    """How the one symbol is released: krr, randomized response; oue, unary encoding; auto: the one
    that keeps more for the number of classes and ε."""
    trainers_say: Says = "label"
    """What training devices release: their label, or what their encoder says, as all others do."""
    book: Path | None = None
    """The devices' book of releases, kept across runs: what was released is said again for nothing,
    anything new pays. Without one, a run knows of no other."""
    lifetime_epsilon: float = 4.0
    """Most ε that a device may spend on releases in its life (with a book)."""
    relay: int | Literal["none"] = "none"
    """none: devices use what their neighbours released. 2, 3, 4: symbols travel so many hops, one
    draw for each neighbour and hop; no further ε, but a hint at degrees and edges."""
    protect: Protection = "noise"
    """How updates are protected. noise: clipped, with noise inside the sum, (ε, δ) accounted;
    holders: exact sums, features with few holders left out; projection: exact sums, features mixed
    by a public random matrix; none: exact sums (for comparison only)."""
    update_epsilon: float = 8.0
    """ε of all updates together (protect noise)."""
    update_delta: float = 1e-5
    """δ of all updates together (protect noise)."""
    min_holders: int = 5
    """Fewest training devices that must share a feature (protect holders)."""
    projection: int = 1024
    """Width of the public random projection (protect projection)."""
    encoder_epochs: int = 100
    """Of the epochs, so many train the own encoder before anything is released."""
    encoder_rate: float = 0.09
    """Learning rate of the own encoder."""
    clip: float = 0.3
    """Largest norm of one device's update (protect noise)."""

    @property
    def hops(self) -> int:
        """How far symbols travel."""
        return 1 if self.relay == "none" else int(self.relay)

    def __post_init__(self) -> None:
        one_of("mechanism", self.mechanism, get_args(Mechanism))
        one_of("trainers-say", self.trainers_say, get_args(Says))
        one_of("protect", self.protect, get_args(Protection))
        if self.relay != "none" and self.relay not in range(2, 9):
            raise UsageError(f"--relay must be none or 2 to 8, got {self.relay}")
        if not self.lifetime_epsilon > 0:
            raise UsageError(f"--lifetime-epsilon must be above 0, got {self.lifetime_epsilon}")
        if not 0 < self.update_epsilon <= LARGEST_EPSILON:
            raise UsageError(
                f"--update-epsilon must be above 0 and at most {LARGEST_EPSILON:g}, got "
                f"{self.update_epsilon}; --protect none has no noise at all"
            )
        if not 0 < self.update_delta < 1:
            raise UsageError(f"--update-delta must be between 0 and 1, got {self.update_delta}")
        for name in ("min_holders", "projection", "encoder_epochs"):
            if getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} must be 1 or more, got {getattr(self, name)}")
        if not 0 < self.encoder_rate < float("inf"):
            raise UsageError(f"--encoder-rate must be above 0, got {self.encoder_rate}")
        if not LEAST_CLIP <= self.clip < float("inf"):
            raise UsageError(f"--clip must be {LEAST_CLIP} or more, got {self.clip}")

"""Settings that every profile has: task, epochs, optimiser, sums of updates, arms beside a run."""

from dataclasses import dataclass
from typing import Literal, get_args

from lumos.aggregate.settings import AggregateSettings
from lumos.device.coins import CoinSource
from lumos.errors import UsageError, one_of
from lumos.training.profiles import PROFILES, STRICT

Task = Literal["classify", "link"]
Aggregate = Literal["ideal", "secure"]

UPDATES = AggregateSettings(limit=float(1 << 18), least_limit=1024.0, fraction_bits=24)
"""How updates are summed: numbers up to 262,144 in steps of 2^-24, for up to two million devices.

Beyond that the range is narrower, down to 1,024 for half a billion devices.

Gradients are sums over a device's leaves, and recovered features reach thousands at a small ε, so
the range is wide; a mean over n devices is off by at most 2^-25.
"""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model is trained (section VIII-B, errata 9)."""

    task: Task = "classify"
    """classify: predict labels, supervised; link: predict edges, unsupervised."""
    profile: str = STRICT
    """strict: one randomized symbol per device, and sums; the door `open` is shut. paper: the
    paper's messages, most of them unprotected."""
    epochs: int = 300
    """Passes over all devices."""
    learning_rate: float = 0.01
    """Learning rate of Adam."""
    weight_decay: float = 0.0
    """L2 regularisation: this fraction of each weight is added to its gradient."""
    aggregate: Aggregate = "ideal"
    """How updates are added: ideal computes the sum in the clear (simulation only, labelled so),
    secure by masked sums."""
    coins: CoinSource = "simulated"
    """Device secrets from the run seed (a run can be repeated) or from the operating system."""
    control: bool = False
    """Also train with releases that carry no information, to measure what releases contribute."""
    floor: bool = True
    """Also train on own features only, without neighbours."""
    checkpoint_every: int = 25
    """Epochs between checkpoints, where there is a run folder."""

    def __post_init__(self) -> None:
        one_of("task", self.task, get_args(Task))
        one_of("profile", self.profile, PROFILES.names())
        one_of("aggregate", self.aggregate, get_args(Aggregate))
        one_of("coins", self.coins, get_args(CoinSource))
        for name in ("epochs", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be 1 or more, got {getattr(self, name)}")
        if not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"`learning_rate` must be above 0, got {self.learning_rate}")
        if not 0 <= self.weight_decay < float("inf"):
            raise UsageError(f"`weight_decay` must be 0 or more, got {self.weight_decay}")

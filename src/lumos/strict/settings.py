"""Settings of the strict profile: what is released, and how updates are protected."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from lumos.encode.mechanisms import AUTO, check_name
from lumos.errors import UsageError, one_of

if TYPE_CHECKING:
    from lumos.training.config import Config

LARGEST_EPSILON = 1000.0
LEAST_CLIP = 0.05
"""So that rounding a million weights to the fixed point stays within the margin of clipping."""

Says = Literal["label", "prediction"]
SymbolOf = Literal["answer", "codebook"]
Protection = Literal["noise", "holders", "projection", "none"]

NOT_USED = frozenset({"pool", "activate_last"})
"""Settings of the model that the networks of this profile do not have."""


@dataclass(frozen=True, kw_only=True)
class StrictSettings:
    """The strict profile (docs/strict.md)."""

    epsilon: float = 2.0
    """ε of the one symbol that a device releases; the same for all receivers, however many
    collude."""
    mechanism: str = AUTO
    """How the one symbol is released: krr, randomized response; digits, the same on one digit of
    its number; oue, unary encoding; multibit, for comparison; auto: krr or digits, whichever
    keeps more bits for the number of classes and ε."""
    symbol: SymbolOf = "answer"
    """What a device's symbol stands for. answer: the class that its encoder predicts; codebook: the
    nearest entry of a learnt codebook, which may have fewer entries than there are classes
    (classify; link always uses a codebook)."""
    trainers_say: Says = "label"
    """What training devices release: their label, or their encoder's prediction, as others do."""
    book: Path | None = None
    """The devices' book of releases, kept across runs: reusing an earlier release costs no further
    ε; a new one is charged. Without a book, a run knows of no other run."""
    lifetime_epsilon: float = 4.0
    """Most ε that a device may spend on releases over all runs (with a book)."""
    relay: int | Literal["auto", "none"] = "auto"
    """none: devices use what their neighbours released. 2 to 8: symbols are forwarded over so many
    hops, one draw for each neighbour and hop; no further ε, but it discloses something about
    degrees and edges. auto: none for classify, 4 for link."""
    codebook: int = 8
    """Number of entries of the learnt codebook, one of which is a device's symbol (link, and
    classify with symbol codebook)."""
    colours: int | Literal["auto", "none"] = "auto"
    """Number of colours: random marks that depend on no data and that many devices share. Pairs
    detect common neighbours by them. 2 to 256, or none; auto: so many that 64 devices share one,
    at most 256 (link)."""
    answer: int = 8
    """How many draws of each hop are in a device's answer, whatever its degree (link)."""
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
    """How many of the epochs train the own encoder, before anything is released."""
    encoder_rate: float = 0.09
    """Learning rate of the own encoder."""
    clip: float = 0.3
    """Largest norm of one device's update (protect noise)."""

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise UsageError(f"`epsilon` must be above 0, got {self.epsilon}")
        check_name(self.mechanism)
        one_of("symbol", self.symbol, get_args(SymbolOf))
        one_of("trainers_say", self.trainers_say, get_args(Says))
        one_of("protect", self.protect, get_args(Protection))
        if self.relay not in ("auto", "none", *range(2, 9)):
            raise UsageError(f"`relay` must be auto, none or 2 to 8, got {self.relay}")
        if self.colours not in ("auto", "none", *range(2, 257)):
            raise UsageError(f"`colours` must be auto, none or 2 to 256, got {self.colours}")
        if not 2 <= self.codebook <= 256:
            raise UsageError(f"`codebook` must be 2 to 256, got {self.codebook}")
        if not 1 <= self.answer <= 64:
            raise UsageError(f"`answer` must be 1 to 64, got {self.answer}")
        if not self.lifetime_epsilon > 0:
            raise UsageError(f"`lifetime_epsilon` must be above 0, got {self.lifetime_epsilon}")
        if not 0 < self.update_epsilon <= LARGEST_EPSILON:
            raise UsageError(
                f"`update_epsilon` must be above 0 and at most {LARGEST_EPSILON:g}, got "
                f"{self.update_epsilon}; `protect='none'` has no noise at all"
            )
        if not 0 < self.update_delta < 1:
            raise UsageError(f"`update_delta` must be between 0 and 1, got {self.update_delta}")
        for name in ("min_holders", "projection", "encoder_epochs"):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be 1 or more, got {getattr(self, name)}")
        if not 0 < self.encoder_rate < float("inf"):
            raise UsageError(f"`encoder_rate` must be above 0, got {self.encoder_rate}")
        if not LEAST_CLIP <= self.clip < float("inf"):
            raise UsageError(f"`clip` must be {LEAST_CLIP} or more, got {self.clip}")


def default_epochs(task: str, given: Mapping[str, Any]) -> int:
    """Epochs where none are given, with these strict settings.

    100 of the own encoder or 9 of the codebook, 60 of trust, 60 or 40 of the backbone.
    """
    if task == "link":
        return 109
    return 229 if given.get("symbol") == "codebook" else 220


def has_no_meaning(name: str, task: str, strict: StrictSettings) -> bool:
    """Whether a setting of the strict profile is for another task, or for another symbol."""
    if task == "link":
        return name in ("symbol", "trainers_say", "encoder_epochs", "encoder_rate")
    entries = strict.symbol == "codebook"
    return name in ("colours", "answer", "trainers_say" if entries else "codebook")


def settings_of(config: "Config") -> StrictSettings:
    """The settings of this profile."""
    return config.settings_as(StrictSettings)

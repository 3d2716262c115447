"""Settings of the strict profile: what is released, and how updates are protected."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from lumos.encode.mechanisms import AUTO, check_name
from lumos.errors import UsageError, one_of
from lumos.model.settings import ModelSettings

if TYPE_CHECKING:
    from lumos.training.config import Config

LARGEST_EPSILON = 1000.0
LEAST_CLIP = 0.05
"""So that rounding a million weights to the fixed point stays within the margin of clipping."""
ENCODER_EPOCHS, TRUST_EPOCHS, TREE_EPOCHS = 16, 40, 60
LINK_EPSILON = 2.0
"""ε of the symbol of `link`, where none is given."""

Protection = Literal["noise", "holders", "projection", "none"]
Signs = Literal["auto", "nonnegative", "signed"]

NOT_USED = frozenset({"pool", "activate_last"})
"""Settings of the model that the networks of this profile do not have."""

OF_TREES = frozenset(
    {setting.name for setting in fields(ModelSettings)} | {"learning_rate", "weight_decay"}
)
"""Settings of the tree network, which classify has by choice."""

CLASSIFY_ONLY = frozenset(
    {
        "label_epsilon",
        "opinions",
        "opinion_epsilon",
        "lifetime_opinion_epsilon",
        "tree_network",
        "signs",
        "encoder_epochs",
    }
)
LINK_ONLY = frozenset({"relay", "codebook", "colours", "answer"})


@dataclass(frozen=True, kw_only=True)
class StrictSettings:
    """The strict profile (docs/strict.md)."""

    epsilon: float = 3.0
    """ε of the one symbol that a device releases, the same for all receivers. classify: of the
    label of a training device; link: of the features' entry in a codebook, 2 by default."""
    label_epsilon: float | None = None
    """ε of the label that sums use, epsilon or more: the label is randomized once, and the released
    symbol is made from it. By default the same as epsilon. inf: true labels, protected by the noise
    of the sums only (classify)."""
    mechanism: str = AUTO
    """How a symbol or an opinion is randomized: krr, randomized response; digits, the same on one
    digit of its number; auto: whichever keeps more bits for the number of classes and ε. Others
    (oue, multibit) are for opinions only."""
    opinions: int = 2
    """How many opinions a device tells its neighbours: the class that what it received points to,
    randomized, the same for all of them; 0 to 3 (classify)."""
    opinion_epsilon: float = 4.0
    """ε of one opinion. It is about edges and degrees: an opinion is made of what a device
    received, not of its own features or label (classify)."""
    tree_network: bool = False
    """Also train a tree network (`backbone`) on symbols and opinions, as one more candidate for the
    validation devices' vote (classify)."""
    book: Path | None = None
    """The devices' book of releases, kept across runs: reusing an earlier release costs no further
    ε; a new one is charged. Without a book, a run knows of no other run."""
    lifetime_epsilon: float = 4.0
    """Most ε that a device may spend on releases over all runs (with a book)."""
    lifetime_opinion_epsilon: float = 64.0
    """Most ε that a device may spend on opinions over all runs (with a book; classify)."""
    relay: int | Literal["auto", "none"] = "auto"
    """none: devices use what their neighbours released. 2 to 8: symbols are forwarded over so many
    hops, one draw for each neighbour and hop; no further ε, but it discloses something about
    degrees and edges. auto: 4 (link)."""
    codebook: int = 8
    """Number of entries of the learnt codebook, one of which is a device's symbol (link)."""
    colours: int | Literal["auto", "none"] = "auto"
    """Number of colours: random marks that depend on no data and that many devices share. Pairs
    detect common neighbours by them. 2 to 256, or none; auto: so many that 64 devices share one,
    at most 256 (link)."""
    answer: int = 8
    """How many draws of each hop are in a device's answer, whatever its degree (link)."""
    signs: Signs = "auto"
    """Whether features may be negative. nonnegative: every device sets negative values to 0, and
    the same promise needs less noise; auto: nonnegative if no feature of the graph is negative,
    which is then public (classify)."""
    protect: Protection = "noise"
    """How updates are protected. noise: clipped, with noise inside the sum, (ε, δ) accounted;
    holders: exact sums, features with few holders left out; projection: exact sums, features mixed
    by a public random matrix; none: exact sums (for comparison only)."""
    update_epsilon: float = 8.0
    """ε of all updates together (protect noise). classify: for these features or any others in
    their place; link: for a device's data in the sums or nothing in their place."""
    update_delta: float = 1e-5
    """δ of all updates together (protect noise)."""
    min_holders: int = 5
    """Fewest training devices that must share a feature (protect holders)."""
    projection: int = 1024
    """Width of the public random projection (protect projection)."""
    encoder_epochs: int = ENCODER_EPOCHS
    """How many sums train the own encoder, before anything is released (classify)."""
    clip: float = 0.3
    """Largest norm of one device's update (protect noise)."""

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise UsageError(f"`epsilon` must be above 0, got {self.epsilon}")
        if self.label_epsilon is not None and not self.label_epsilon >= self.epsilon:
            raise UsageError(
                f"`label_epsilon` must be `epsilon` ({self.epsilon:g}) or more, got "
                f"{self.label_epsilon:g}: the symbol is made from the label that sums use"
            )
        check_name(self.mechanism)
        one_of("protect", self.protect, get_args(Protection))
        one_of("signs", self.signs, get_args(Signs))
        if self.opinions not in range(4):
            raise UsageError(f"`opinions` must be 0 to 3, got {self.opinions}")
        if not 0 < self.opinion_epsilon < float("inf"):
            raise UsageError(
                f"`opinion_epsilon` must be above 0 and finite, got {self.opinion_epsilon}"
            )
        if self.relay not in ("auto", "none", *range(2, 9)):
            raise UsageError(f"`relay` must be auto, none or 2 to 8, got {self.relay}")
        if self.colours not in ("auto", "none", *range(2, 257)):
            raise UsageError(f"`colours` must be auto, none or 2 to 256, got {self.colours}")
        if not 2 <= self.codebook <= 256:
            raise UsageError(f"`codebook` must be 2 to 256, got {self.codebook}")
        if not 1 <= self.answer <= 64:
            raise UsageError(f"`answer` must be 1 to 64, got {self.answer}")
        for name in ("lifetime_epsilon", "lifetime_opinion_epsilon"):
            if not getattr(self, name) > 0:
                raise UsageError(f"`{name}` must be above 0, got {getattr(self, name)}")
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
        if not LEAST_CLIP <= self.clip < float("inf"):
            raise UsageError(f"`clip` must be {LEAST_CLIP} or more, got {self.clip}")

    @property
    def sums_epsilon(self) -> float:
        """ε of the label that sums use."""
        return self.epsilon if self.label_epsilon is None else self.label_epsilon


def default_epochs(task: str, given: Mapping[str, Any]) -> int:
    """Epochs where none are given, with these strict settings: every sum is one.

    classify: one of counts, 16 of the own encoder, one of its scale, one of each matrix, 40 of
    trust, and 60 of a tree network. link: 9 of the codebook, 60 of trust, 40 of the backbone.
    """
    if task == "link":
        return 109
    opinions = given.get("opinions", StrictSettings.opinions)
    encoder = given.get("encoder_epochs", ENCODER_EPOCHS)
    trees = TREE_EPOCHS if given.get("tree_network", StrictSettings.tree_network) else 0
    return int(1 + encoder + 2 + opinions + TRUST_EPOCHS + trees)


def has_no_meaning(name: str, task: str) -> bool:
    """Whether a setting of the strict profile is for another task."""
    return name in (CLASSIFY_ONLY if task == "link" else LINK_ONLY)


def settings_of(config: "Config") -> StrictSettings:
    """The settings of this profile."""
    return config.settings_as(StrictSettings)

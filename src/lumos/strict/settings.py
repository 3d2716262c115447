"""Settings of the strict profile: what is released, and how updates are protected."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from lumos.errors import UsageError, one_of
from lumos.ldp.mechanisms import AUTO, check_name
from lumos.model import ModelSettings
from lumos.strict.features import Scaling
from lumos.trees.balancers import TreeSettings

if TYPE_CHECKING:
    from lumos.training.config import Config

MAX_EPSILON = 1000.0
MIN_CLIP = 0.05
"""So that rounding a million weights to the fixed point stays within the margin of clipping."""
ENCODER_EPOCHS, EVIDENCE_WEIGHTS_EPOCHS, TREE_EPOCHS = 16, 40, 60
LINK_SUMS, LINK_PROPAGATED = 4, 3
"""Sums of products that train the encoder of `link`, and propagated labels that its devices tell.
"""
ANSWERS_OF_CALIBRATION = 2
"""Answers that a device gives in training: about one edge that is held back, and one non-neighbour.
"""

Protection = Literal["noise", "none"]
Signs = Literal["auto", "nonnegative", "signed"]

NOT_USED = frozenset({"pool", "activate_last"})
"""Settings of the model that the networks of this profile do not have."""

OF_BALANCING = frozenset({setting.name for setting in fields(TreeSettings)} - {"balancer", "group"})
"""Settings of a balancer, and there is none: nobody carries an edge for another."""

OF_TREES = frozenset(
    {setting.name for setting in fields(ModelSettings)} | {"learning_rate", "weight_decay"}
)
"""Settings of the tree network, which classify has by choice."""

CLASSIFY_ONLY = frozenset(
    {
        "epsilon",
        "label_epsilon",
        "mechanism",
        "lifetime_epsilon",
        "tree_network",
        "encoder_epochs",
        "clip",
    }
)
LINK_ONLY = frozenset(
    {
        "embedding",
        "tokens",
        "random_marks",
        "query_bits",
        "score_queries",
        "query_epsilon",
        "group",
    }
)


OF_NOISE = frozenset({"update_epsilon", "update_delta", "clip"})
"""Settings of sums that carry noise."""


@dataclass(frozen=True, kw_only=True)
class StrictSettings:
    """The strict profile (docs/strict.md)."""

    epsilon: float = 3.0
    """ε of the one randomized label that a training device releases, its randomized label, the same
    for all receivers (classify)."""
    label_epsilon: float | None = None
    """ε of the label that sums use, epsilon or more: the label is randomized once, and the released
    randomized label is made from it. By default the same as epsilon. inf: true labels, protected by
    the noise of the sums only (classify)."""
    mechanism: str = AUTO
    """How a randomized label or a propagated label is randomized: krr, randomized response;
    digits, the same on one digit of its number; auto: whichever keeps more bits for the number of
    classes and ε (classify)."""
    propagated_labels: int = 2
    """How many propagated labels a device tells its neighbours, the same to all of them,
    randomized; 0 to 3.
    classify: the class that what it received points to; link: the random mark that it received
    most, 3 by default."""
    propagated_epsilon: float = 4.0
    """ε of one propagated label. It is about edges and degrees: a propagated label is made of what
    a device received, not of its own features or label."""
    tree_network: bool = False
    """Also train a tree network (`backbone`) on randomized labels and propagated labels, as one
    more candidate for the validation devices' model selection (classify)."""
    book: Path | None = None
    """The devices' book of releases, kept across runs: reusing an earlier release costs no further
    ε; a new one is charged. Without a book, a run knows of no other run."""
    lifetime_epsilon: float = 4.0
    """Most ε that a device may spend on releases over all runs (with a book)."""
    lifetime_propagated_epsilon: float = 64.0
    """Most ε that a device may spend on propagated labels over all runs (with a book)."""
    lifetime_update_epsilon: float = 31.0
    """Most ε that the sums of all runs together may cost a device, at update_delta: for another
    record in place of its own, and for one of its edges (with a book). Eight runs at the defaults
    come to 30.5."""
    embedding: int = 24
    """Numbers in the embedding of a device's words, 2 to 64 (link)."""
    tokens: int = 8
    """How many of its rarest words a device uses in the sums of products (link)."""
    random_marks: int = 16
    """Number of random marks, 2 to 32: a device draws one at random, and propagated labels spread
    them, so that devices of one neighbourhood hear the same ones. They depend on no features
    (link)."""
    query_bits: int = 2
    """Bits of one answer: two devices learn one of 2, 4 or 8 levels of their score (link)."""
    score_queries: int = 16
    """Most answers that a device gives in its life (over all runs with a book, otherwise in this
    one): two for calibration, half of the rest to questions of its own, half to those of others.
    0: no limit, for measuring only (link)."""
    query_epsilon: float = float("inf")
    """ε of randomized response on every answer; inf: answers are exact (link)."""
    signs: Signs = "auto"
    """Whether features may be negative. nonnegative: every device sets negative values to 0, and
    the same guarantee needs less noise (classify), or there are half as many words (link); auto:
    nonnegative if no feature of the graph is negative, which is then public."""
    scaling: Scaling = "auto"
    """How features are brought to one scale. none: they are used as they are; size: each is divided
    by its size, and zeros stay zero; standard: each is also shifted to its centre, and may then be
    negative. Sizes and centres are learnt by noisy sums, within update_epsilon. auto: none if all
    features lie between -1 and 1, which is then public; otherwise size for sparse features and
    standard for dense ones."""
    protect: Protection = "noise"
    """How updates are protected. noise: clipped, with noise inside the sum, (ε, δ) accounted;
    none: exact sums (for comparison only)."""
    update_epsilon: float = 8.0
    """ε of all updates together, for these features or any others in their place (protect
    noise)."""
    update_delta: float = 1e-5
    """δ of all updates together (protect noise)."""
    encoder_epochs: int = ENCODER_EPOCHS
    """How many sums train the own encoder, before anything is released (classify)."""
    clip: float = 0.3
    """Largest norm of one device's update (protect noise; classify)."""

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise UsageError(f"`epsilon` must be above 0, got {self.epsilon}")
        if self.label_epsilon is not None and not self.label_epsilon >= self.epsilon:
            raise UsageError(
                f"`label_epsilon` must be `epsilon` ({self.epsilon:g}) or more, got "
                f"{self.label_epsilon:g}: the randomized label is made from the label that sums use"
            )
        check_name(self.mechanism)
        one_of("protect", self.protect, get_args(Protection))
        one_of("signs", self.signs, get_args(Signs))
        one_of("scaling", self.scaling, get_args(Scaling))
        if self.propagated_labels not in range(4):
            raise UsageError(f"`propagated_labels` must be 0 to 3, got {self.propagated_labels}")
        if not 0 < self.propagated_epsilon < float("inf"):
            raise UsageError(
                f"`propagated_epsilon` must be above 0 and finite, got {self.propagated_epsilon}"
            )
        for name, least, most in (("embedding", 2, 64), ("tokens", 1, 64), ("random_marks", 2, 32)):
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"`{name}` must be {least} to {most}, got {getattr(self, name)}")
        if self.query_bits not in (1, 2, 3):
            raise UsageError(f"`query_bits` must be 1, 2 or 3, got {self.query_bits}")
        if self.score_queries != 0 and self.score_queries <= ANSWERS_OF_CALIBRATION:
            raise UsageError(
                f"`score_queries` must be above {ANSWERS_OF_CALIBRATION}, those of calibration, or 0 for "
                f"no limit; got {self.score_queries}"
            )
        if not self.query_epsilon > 0:
            raise UsageError(f"`query_epsilon` must be above 0, got {self.query_epsilon}")
        for name in ("lifetime_epsilon", "lifetime_propagated_epsilon", "lifetime_update_epsilon"):
            if not getattr(self, name) > 0:
                raise UsageError(f"`{name}` must be above 0, got {getattr(self, name)}")
        if not 0 < self.update_epsilon <= MAX_EPSILON:
            raise UsageError(
                f"`update_epsilon` must be above 0 and at most {MAX_EPSILON:g}, got "
                f"{self.update_epsilon}; `protect='none'` has no noise at all"
            )
        if not 0 < self.update_delta < 1:
            raise UsageError(f"`update_delta` must be between 0 and 1, got {self.update_delta}")
        if self.encoder_epochs < 1:
            raise UsageError(f"`encoder_epochs` must be 1 or more, got {self.encoder_epochs}")
        if not MIN_CLIP <= self.clip < float("inf"):
            raise UsageError(f"`clip` must be {MIN_CLIP} or more, got {self.clip}")

    def ignored(self, name: str) -> str:
        """With which of these settings another one has no effect; empty where it has one."""
        if name in OF_NOISE and self.protect != "noise":
            return f"`protect='{self.protect}'`, only with `protect='noise'`"
        if name == "propagated_epsilon" and not self.propagated_labels:
            return "`propagated_labels=0`, only with propagated labels"
        if name.startswith("lifetime_") and self.book is None:
            return "a run on its own, only with `book`"
        return ""

    @property
    def sums_epsilon(self) -> float:
        """ε of the label that sums use."""
        return self.epsilon if self.label_epsilon is None else self.label_epsilon


def default_epochs(task: str, given: Mapping[str, Any]) -> int:
    """Epochs where none are given, with these strict settings: every sum is one.

    classify: one of counts, 16 of the own encoder, one of its scale, one of each matrix, 40 of
    evidence weights, and 60 of a tree network. link: one of counts, 4 of products, one of
    whitening, and one of random marks and of each propagated label.
    """
    if task == "link":
        return 1 + LINK_SUMS + 2 + int(given.get("propagated_labels", LINK_PROPAGATED))
    propagated_labels = given.get("propagated_labels", StrictSettings.propagated_labels)
    encoder = given.get("encoder_epochs", ENCODER_EPOCHS)
    trees = TREE_EPOCHS if given.get("tree_network", StrictSettings.tree_network) else 0
    return int(1 + encoder + 2 + propagated_labels + EVIDENCE_WEIGHTS_EPOCHS + trees)


def has_no_meaning(name: str, task: str) -> bool:
    """Whether a setting of the strict profile is for another task."""
    return name in (CLASSIFY_ONLY if task == "link" else LINK_ONLY)


def settings_of(config: "Config") -> StrictSettings:
    """The settings of this profile."""
    return config.settings_as(StrictSettings)

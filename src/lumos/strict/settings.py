"""Settings of the strict profile: what is released, and how updates are protected."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from lumos.errors import UsageError, one_of
from lumos.ldp.account import AccountLimits
from lumos.ldp.mechanisms import AUTO, check_name
from lumos.model import ModelSettings
from lumos.strict.features import Scaling
from lumos.trees.balancers import TreeSettings

if TYPE_CHECKING:
    from lumos.training.config import Config

MAX_EPSILON = 1000.0
MIN_CLIP = 0.05
"""Smallest clipping norm: the rounding error of a million weights stays within its margin."""
ENCODER_EPOCHS, EVIDENCE_WEIGHTS_EPOCHS, TREE_EPOCHS = 16, 40, 60
PROPAGATED, MANY_PER_CLASS = 2, 2000
"""Default number of propagated labels of `classify`: one less from this number of devices per class
on."""
LINK_PROPAGATED = 3
"""Propagated labels that devices send in `link`."""
CALIBRATION_QUERIES = 2
"""Score queries of a device in training: one held-back edge, and one non-neighbour."""
CALIBRATION_BITS = 3
"""Bits that both ends learn in each of them."""

Protection = Literal["noise", "none"]
Signs = Literal["auto", "nonnegative", "signed"]
Participation = Literal["auto", "labelled", "all"]

NOT_USED = frozenset({"pool", "activate_last", "model", "projection", "device", "optimizer"})
"""Settings of the model and its training that this profile does not have."""

OF_BALANCING = frozenset({setting.name for setting in fields(TreeSettings)} - {"balancer", "group"})
"""Settings of a balancer. This profile has none: each device handles all of its own edges."""

OF_TREES = frozenset(
    {setting.name for setting in fields(ModelSettings)} | {"learning_rate", "weight_decay"}
)
"""Settings of the tree network, which is optional in `classify`."""

CLASSIFY_ONLY = frozenset(
    {
        "label_epsilon",
        "mechanism",
        "lifetime_epsilon",
        "participation",
        "tree_network",
        "encoder_epochs",
        "clip",
    }
)
LINK_ONLY = frozenset(
    {
        "random_marks",
        "query_bits",
        "score_queries",
        "query_epsilon",
        "group",
    }
)


_RANGES = {
    "propagated_labels": (0, 3),
    "random_marks": (2, 32),
}
_LIFETIME = ("lifetime_epsilon", "lifetime_propagated_epsilon", "lifetime_feature_epsilon")

OF_NOISE = frozenset({"feature_epsilon", "delta", "clip", "proofs"})
"""Settings that only noisy sums use."""


DELTA = 1e-5


def default_delta(devices: int) -> float:
    """Return min(1e-5, 10^⌊log₁₀(1/n)⌋): a δ above 1/n would permit publishing one record."""
    return min(DELTA, float(f"1e-{len(str(devices - 1))}"))


@dataclass(frozen=True, kw_only=True)
class StrictSettings:
    """The strict profile (docs/strict.md)."""

    label_epsilon: float = 3.0
    """ε of a device's label. It is randomized once; neighbours receive the randomized label, the
    same one each, and sums use it (classify)."""
    mechanism: str = AUTO
    """Mechanism that randomizes labels and propagated labels. krr: k-ary randomized response;
    digits: randomized response on one digit of the class number; auto: the one that keeps more
    information for the number of classes and ε (classify)."""
    propagated_labels: int | None = None
    """Number of propagated labels that a device sends to its neighbours, randomized and the same to
    all of them; 0 to 3. classify: the class that received messages point to; by default 1 from
    two thousand devices per class on, otherwise 2, and one more if all devices take part. link: the
    random mark received most often, 3 by default."""
    propagated_epsilon: float = 4.0
    """ε of one propagated label. It protects edges and degrees: a propagated label depends on the
    messages of the edges that a device uses, not on its own features or label."""
    participation: Participation = "auto"
    """Devices whose features are used in training. labelled: those of training and validation
    devices; all: also those of devices without a label. Each then sends its neighbours one
    randomized prediction of its own features, at half of feature_epsilon, and adds to the sums of
    the local classifier, with its own propagated label in place of a label. auto: all if labels are
    few; a randomized label of strength r counts as r² labels, and few are less than a fifth of
    the devices and less than a thousand per class (classify)."""
    tree_network: bool = False
    """Also train a tree network (`backbone`) on randomized and propagated labels, as one more
    candidate for the private model selection by validation devices (classify)."""
    account: Path | None = None
    """Folder with the devices' privacy account across runs: labels are randomized once for life,
    everything else is charged in every run. Without it, a run is accounted for by itself. Real
    devices have one each (`lumos device --account`)."""
    lifetime_epsilon: float = AccountLimits.lifetime_epsilon
    """Largest total ε of a device's randomized labels over all runs (with an account)."""
    lifetime_propagated_epsilon: float = AccountLimits.lifetime_propagated_epsilon
    """Largest total ε of a device's propagated labels over all runs (with an account)."""
    lifetime_feature_epsilon: float = AccountLimits.lifetime_feature_epsilon
    """Largest total ε of a device's sums over all runs, at delta: for replacing its record,
    and for one of its edges (with an account). Eight runs with default settings cost 30.5."""
    random_marks: int | None = None
    """Number of different random marks, 2 to 32, and of the numbers in an embedding; by default 24,
    and 32 from ten thousand devices on. Each device draws one, and propagated labels spread them,
    so that devices of one neighbourhood receive the same ones. They depend on no features
    (link)."""
    query_bits: int = 2
    """Bits of one score query, 1 to 3: two devices learn one of 2, 4 or 8 score buckets (link)."""
    score_queries: int = 16
    """Largest number of score queries that involve a device, over all runs with an account,
    otherwise in this run: two for calibration, half of the rest for its own queries, half for those
    of others. 0: no limit, for measurements only (link)."""
    query_epsilon: float = float("inf")
    """ε of randomized response on each score query; inf: exact score buckets (link)."""
    signs: Signs = "auto"
    """Signs of the features. nonnegative: every device sets negative values to 0, so the same
    guarantee needs less noise (classify) or there are half as many tokens (link); signed: values
    are used as they are; auto: nonnegative if no feature of the graph is negative, which then
    becomes public."""
    scaling: Scaling = "auto"
    """Scaling of the features. none: use them as they are; size: divide each by its size, so that
    zeros stay zero; standard: also subtract its centre, so that it may become negative. Noisy sums
    learn sizes and centres, within feature_epsilon. auto: none if all features lie between -1 and
    1, which then becomes public; otherwise size for sparse features and standard for dense ones."""
    protect: Protection = "noise"
    """Protection of the sums. noise: vectors are clipped, devices add noise, and (ε, δ) is
    accounted for; none: exact sums, for comparison only."""
    feature_epsilon: float = 8.0
    """ε of a device's features, for replacing them by any others, over all sums (protect noise)."""
    delta: float = DELTA
    """δ of all sums together (protect noise). By default 1e-5, or where that is above 1/n for n
    devices, the largest power of ten that is not."""
    encoder_epochs: int = ENCODER_EPOCHS
    """Number of sums that train the local classifier, before anything is released (classify)."""
    clip: float = 0.3
    """Largest norm of one device's vector in a sum (protect noise; classify)."""
    proofs: bool = False
    """Devices prove that what they add to noisy sums is short, and those that lie are excluded.
    Without proofs devices are assumed to follow the protocol. Real devices prove by default; a
    simulation has no liars (protect noise)."""

    def __post_init__(self) -> None:
        check_name(self.mechanism)
        one_of("protect", self.protect, get_args(Protection))
        one_of("participation", self.participation, get_args(Participation))
        one_of("signs", self.signs, get_args(Signs))
        one_of("scaling", self.scaling, get_args(Scaling))
        for name in ("label_epsilon", "propagated_epsilon"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"`{name}` must be above 0 and finite, got {getattr(self, name)}")
        for name, (least, most) in _RANGES.items():
            number = getattr(self, name)
            if number is not None and number not in range(least, most + 1):
                raise UsageError(f"`{name}` must be {least} to {most}, got {number}")
        if self.query_bits not in (1, 2, 3):
            raise UsageError(f"`query_bits` must be 1, 2 or 3, got {self.query_bits}")
        for name in ("query_epsilon", *_LIFETIME):
            if not getattr(self, name) > 0:
                raise UsageError(f"`{name}` must be above 0, got {getattr(self, name)}")
        if self.score_queries != 0 and self.score_queries <= CALIBRATION_QUERIES:
            raise UsageError(
                f"`score_queries` must be above {CALIBRATION_QUERIES}, those of calibration, or 0 "
                f"for no limit; got {self.score_queries}"
            )
        if not 0 < self.feature_epsilon <= MAX_EPSILON:
            raise UsageError(
                f"`feature_epsilon` must be above 0 and at most {MAX_EPSILON:g}, got "
                f"{self.feature_epsilon}; use `protect='none'` for sums without noise"
            )
        if not 0 < self.delta < 1:
            raise UsageError(f"`delta` must be between 0 and 1, got {self.delta}")
        if self.encoder_epochs < 1:
            raise UsageError(f"`encoder_epochs` must be 1 or more, got {self.encoder_epochs}")
        if not MIN_CLIP <= self.clip < float("inf"):
            raise UsageError(f"`clip` must be {MIN_CLIP} or more, got {self.clip}")

    def ignored(self, name: str) -> str:
        """Return the condition under which a setting has no effect; empty if it has one."""
        if name in OF_NOISE and self.protect != "noise":
            return f"`protect='{self.protect}'`, only with `protect='noise'`"
        if name == "propagated_epsilon" and self.propagated_labels == 0:
            return "`propagated_labels=0`, only with propagated labels"
        if name.startswith("lifetime_") and self.account is None:
            return "a run on its own, only with `account`"
        return ""

    def for_devices(self, devices: int, given: Collection[str]) -> "StrictSettings":
        """Return the same with the default δ for this number of devices, unless one was given."""
        if "delta" in given or self.delta != DELTA:
            return self
        return replace(self, delta=default_delta(devices))

    def num_propagated(self, devices: int, classes: int) -> int:
        """Return the number of propagated labels in `classify`; it depends on public numbers only.

        Where devices per class are few, noise leaves the local classifier little, and more of a
        prediction comes from neighbours: by default there is then a second propagated label.
        """
        if self.propagated_labels is not None:
            return self.propagated_labels
        return PROPAGATED - (devices >= MANY_PER_CLASS * classes)

    @property
    def epsilon(self) -> float:
        """ε of one release, as every profile names it: that of the label."""
        return self.label_epsilon


def default_epochs(task: str, given: Mapping[str, Any]) -> int:
    """Return the default number of epochs under the given settings: one for each sum.

    classify: one for counts, 16 for the local classifier, one for each matrix, 60 for a tree
    network, and at least 40 for evidence weights, which have what is left. link: one for counts,
    one for random marks and for each propagated label, one for associations, one for whitening.
    """
    if task == "link":
        return 4 + int(given.get("propagated_labels", LINK_PROPAGATED))
    propagated_labels = max(PROPAGATED, given.get("propagated_labels") or 0)
    encoder = given.get("encoder_epochs", ENCODER_EPOCHS)
    trees = TREE_EPOCHS if given.get("tree_network", StrictSettings.tree_network) else 0
    return int(1 + encoder + 2 + propagated_labels + EVIDENCE_WEIGHTS_EPOCHS + trees)


def has_no_meaning(name: str, task: str) -> bool:
    """Return whether a setting of the strict profile belongs to the other task."""
    return name in (CLASSIFY_ONLY if task == "link" else LINK_ONLY)


def settings_of(config: "Config") -> StrictSettings:
    """Return the settings of this profile."""
    return config.settings_as(StrictSettings)

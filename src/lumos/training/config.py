"""The settings of a run: those that every profile has, and all of them together as `Config`."""

import dataclasses
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_args, get_type_hints

from lumos.device.randomness import RandomnessSource
from lumos.errors import UsageError, nearest, one_of, typed
from lumos.graph.io import ReadKeywords, ReadOptions
from lumos.model import ModelSettings, ModuleFactory, Pooling
from lumos.registry import imported_part
from lumos.secagg.parameters import AggregateSettings
from lumos.training.profile import PROFILES, STRICT, Profile, ProfileSettings
from lumos.trees.balancers import Compare, TreeSettings

Task = Literal["classify", "link"]
Aggregate = Literal["ideal", "secure"]
OptimizerFactory = Callable[..., Any]

UPDATES = AggregateSettings(limit=float(1 << 18), least_limit=1024.0, fraction_bits=24)
"""Encoding of summed updates: up to 262,144 in steps of 2^-24, for up to two million devices.

Beyond that the range is narrower, down to 1,024 for half a billion devices.

Gradients are sums over a device's leaves, and recovered features reach thousands at a small ε, so
the range is wide; a mean over n devices is off by at most 2^-25.
"""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of training (section VIII-B, errata 9)."""

    task: Task = "classify"
    """classify: predict labels, supervised; link: predict edges, unsupervised."""
    profile: str = STRICT
    """strict: randomized labels and noisy sums, with differential-privacy guarantees. paper: the
    paper's messages, most of them unprotected."""
    epochs: int = 300
    """Passes over all devices."""
    learning_rate: float = 0.01
    """Learning rate of Adam."""
    weight_decay: float = 0.0
    """L2 regularisation: this fraction of each weight is added to its gradient."""
    optimizer: OptimizerFactory | str | None = None
    """A torch optimizer instead of Adam: a class or factory `(params) -> torch.optim.Optimizer`, as
    `functools.partial(torch.optim.SGD, lr=0.1)`. Every device steps from the same sums."""
    aggregate: Aggregate = "ideal"
    """Sum of updates. ideal: computed in the clear (simulation only, labelled so); secure: by
    masked sums."""
    randomness: RandomnessSource = "seeded"
    """Device secrets from the run seed (a run can be repeated) or from the operating system."""
    control: bool = False
    """Also train with releases that carry no information, to measure what releases contribute."""
    floor: bool = True
    """Also train the local model, without neighbours."""
    checkpoint_every: int = 25
    """Epochs between checkpoints, where there is a run folder."""

    def __post_init__(self) -> None:
        one_of("task", self.task, get_args(Task))
        one_of("profile", self.profile, PROFILES.names())
        one_of("aggregate", self.aggregate, get_args(Aggregate))
        one_of("randomness", self.randomness, get_args(RandomnessSource))
        if not (isinstance(self.optimizer, str | None) or callable(self.optimizer)):
            raise UsageError(
                "`optimizer` must be a class or a factory (params) -> torch.optim.Optimizer, got "
                f"{self.optimizer!r}"
            )
        for name in ("epochs", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be 1 or more, got {getattr(self, name)}")
        if not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"`learning_rate` must be above 0, got {self.learning_rate}")
        if not 0 <= self.weight_decay < float("inf"):
            raise UsageError(f"`weight_decay` must be 0 or more, got {self.weight_decay}")

    def ignored(self, name: str) -> str:
        """Name the settings with which another one has no effect; empty where it has one."""
        if name in ("learning_rate", "weight_decay") and self.optimizer is not None:
            return "`optimizer`, only without it: it has its own"
        return ""


Settings = TypeVar("Settings")

COMMON: dict[str, type[Any]] = {
    "train": TrainSettings,
    "trees": TreeSettings,
    "model": ModelSettings,
}
"""Groups of settings that every profile has."""
PARTS = ("backbone", "model", "optimizer")
"""Settings that may be Python objects; files record their names."""
TRAIN_OPTIONS = (
    # of ReadOptions
    "directed",
    "weights",
    "missing_labels",
    "label_column",
    "label_bins",
    "categorical",
    "feature_bounds",
    "header",
    # of a run
    "task",
    "profile",
    "literal",
    "label_epsilon",
    "feature_epsilon",
    "delta",
    "propagated_labels",
    "propagated_epsilon",
    "participation",
    "proofs",
    "epsilon",
    "score_queries",
    "account",
    "aggregate",
    "randomness",
    "epochs",
    "local_steps",
    "encoder_epochs",
    "backbone",
    "tree_network",
    "balancer",
    "iterations",
    "compare",
    "control",
    "floor",
    "checkpoint_every",
)
"""Settings that `lumos train`, `audit` and `up` have as options; all others are for Python."""


class RunSettings(TypedDict, total=False):
    """The settings of a run by name, for type checkers and editors.

    The dataclasses of the groups have the defaults and descriptions; a test holds names and types
    equal to theirs.
    """

    # of TrainSettings
    task: Task
    profile: str
    epochs: int
    learning_rate: float
    weight_decay: float
    optimizer: OptimizerFactory | str | None
    aggregate: Aggregate
    randomness: RandomnessSource
    control: bool
    floor: bool
    checkpoint_every: int
    # of TreeSettings
    balancer: str
    iterations: int
    compare: Compare
    comparison_budget: float | None
    group: str
    workers: int | None
    # of ModelSettings
    backbone: str | ModuleFactory
    model: ModuleFactory | str | None
    projection: int
    layers: int
    hidden: int
    output: int
    heads: int
    dropout: float
    activate_last: bool
    device: str
    pool: Pooling
    # of the profiles
    label_epsilon: float
    mechanism: str
    propagated_labels: int | None
    propagated_epsilon: float
    participation: Literal["auto", "labelled", "all"]
    tree_network: bool
    account: str | Path | None
    lifetime_epsilon: float
    lifetime_propagated_epsilon: float
    lifetime_feature_epsilon: float
    random_marks: int | None
    query_bits: int
    score_queries: int
    query_epsilon: float
    signs: Literal["auto", "nonnegative", "signed"]
    scaling: Literal["auto", "none", "size", "standard"]
    protect: Literal["noise", "none"]
    feature_epsilon: float
    delta: float
    encoder_epochs: int
    clip: float
    proofs: bool
    epsilon: float
    low: float
    high: float
    bins: bool
    encoder: str
    literal: bool
    recovery: Literal["shrunk", "literal"]
    virtual_nodes: bool
    select: Literal["validation", "last"]
    patience: int
    local_steps: int


class TrainKeywords(RunSettings, ReadKeywords, total=False):
    """The keywords of `lumos.train`: the settings of a run, and how its graph is read."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a run in groups; `Config.of` makes one from single settings by name.

    `Config()` has all defaults.
    """

    train: TrainSettings = field(default_factory=lambda: Config.of().train)
    trees: TreeSettings = field(default_factory=lambda: Config.of().trees)
    model: ModelSettings = field(default_factory=lambda: Config.of().model)
    profile_settings: ProfileSettings = field(default_factory=lambda: Config.of().profile_settings)
    """Settings that only the profile has: an instance of its own dataclass."""
    updates: AggregateSettings = field(default=UPDATES)
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """Names of the settings that were given; the default of another may depend on the graph."""

    def __post_init__(self) -> None:
        if not isinstance(self.profile_settings, self.profile.settings):
            raise UsageError(
                f"`profile_settings` are not those of `profile='{self.train.profile}'`; "
                "`Config.of(profile=…)` chooses them"
            )

    @property
    def profile(self) -> Profile[Any]:
        """The profile that `train.profile` names."""
        return PROFILES[self.train.profile]

    def settings_as(self, kind: type[Settings]) -> Settings:
        """`profile_settings`, as the profile's own dataclass.

        Raises:
            TypeError: they are of another profile.
        """
        if not isinstance(self.profile_settings, kind):
            raise TypeError(f"these are settings of the profile {self.train.profile!r}")
        return self.profile_settings

    @staticmethod
    def of(**settings: Unpack[RunSettings]) -> "Config":
        """A configuration from single settings by name, `Config.of(task="link", delta=1e-6)`.

        Settings that are not given have the defaults of their dataclass, or the profile's.

        Raises:
            UsageError: there is no such setting, or its value is refused.
        """
        given: dict[str, Any] = {**settings}
        profile = PROFILES[typed("profile", given.get("profile", TrainSettings.profile), str)]
        groups = {**COMMON, "profile_settings": profile.settings}
        home = {
            setting.name: group
            for group, kind in groups.items()
            for setting in dataclasses.fields(kind)
        }
        chosen: dict[str, dict[str, Any]] = {group: {} for group in groups}
        for name, value in given.items():
            if name not in home:
                raise UsageError(_unknown(name, profile, home))
            given[name] = typed(name, value, get_type_hints(groups[home[name]])[name])
        for name, value in {**profile.defaults(given), **given}.items():
            chosen[home[name]][name] = value
        made: dict[str, Any] = {group: kind(**chosen[group]) for group, kind in groups.items()}
        config = Config(**made, given=frozenset(settings))
        encoding = getattr(profile, "updates", None)
        return config if encoding is None else dataclasses.replace(config, updates=encoding(config))

    @staticmethod
    def asked(**settings: Any) -> "Config":
        """As `of`, but refuses settings that the profile or task ignores.

        A part at `package.module:Class` is imported.
        """
        for name in PARTS:
            if isinstance(place := settings.get(name), str) and ":" in place:
                settings[name] = imported_part(name, place)
        config = Config.of(**settings)
        for name in settings:
            reason = config.profile.ignores(name, config)
            if reason:
                raise UsageError(f"`{name}` has no effect with {reason}; leave it out")
        return config

    def for_devices(self, devices: int) -> "Config":
        """The same with the defaults of a profile that depend on the number of devices."""
        fit = getattr(self.profile_settings, "for_devices", None)
        if fit is None:
            return self
        return dataclasses.replace(self, profile_settings=fit(devices, self.given))

    def flat(self) -> dict[str, Any]:
        """The settings by name, as `of` takes them."""
        groups = (*COMMON, "profile_settings")
        return {
            field.name: getattr(getattr(self, group), field.name)
            for group in groups
            for field in dataclasses.fields(getattr(self, group))
        }

    def paths(self) -> set[str]:
        """Names of the settings that say where something lies on this machine."""
        groups = (*COMMON, "profile_settings")
        return {
            name
            for group in groups
            for name, hint in get_type_hints(type(getattr(self, group))).items()
            if Path in (hint, *get_args(hint))
        }

    def improvements(self) -> list[str]:
        """Return the departures from the letter of the paper, one sentence each."""
        return self.profile.improvements(self)


def _unknown(name: str, profile: Profile[Any], known: Mapping[str, str]) -> str:
    """Why there is no such setting: it is another profile's, or nobody's."""
    similar = [f"`{of}_{name}`" for of in ("label", "feature") if f"{of}_{name}" in known]
    instead = f"; there are {' and '.join(similar)}" if similar else "; leave it out"
    for other in PROFILES:
        if name in {setting.name for setting in dataclasses.fields(PROFILES[other].settings)}:
            return (
                f"`{name}` has no effect with `profile='{profile.name}'`, only with "
                f"`profile='{other}'`{instead}"
            )
    instead = nearest(name, {*known, *get_type_hints(TrainKeywords)})
    return f"there is no setting {name!r}; {instead or '`help(lumos.train)` lists all'}"


# Descriptions of settings, for `help(lumos.train)`, the command line and reports.


def descriptions(group: type[Any]) -> dict[str, str]:
    """Return the text below each field of a dataclass, or of those that it extends, by name."""
    from docstring_parser import parse_from_object

    words: dict[str, str] = {}
    for kind in reversed(group.__mro__):
        for part in parse_from_object(kind).params if dataclasses.is_dataclass(kind) else ():
            words[part.arg_name] = " ".join((part.description or "").split())
    return words


PROFILE_DEFAULTS = ("propagated_labels", "balancer", "epochs")
"""Settings whose defaults depend on profile and task."""


def default_by_profile(setting: str) -> str:
    """Return the default of a setting for each profile that has it, and for links if it differs."""
    words = []
    for name in PROFILES.built_in():
        both = [Config.of(profile=name, task=task).flat() for task in get_args(Task)]
        if setting in both[0]:
            labels, links = (
                f"{value:g}" if isinstance(value, float) else "auto" if value is None else value
                for value in (settings[setting] for settings in both)
            )
            words.append(f"{labels} for {name}" + f" ({links} for link)" * (links != labels))
    return "; ".join(words)


def settings_help() -> str:
    """Return every keyword of `lumos.train` beyond its arguments: name, default, description."""
    groups: dict[str, list[type[Any]]] = {
        "Settings of every profile": [*COMMON.values()],
        **{
            f"Settings of `profile={name!r}`": [PROFILES[name].settings]
            for name in PROFILES.built_in()
        },
        "Reading of the graph": [ReadOptions],
    }
    lines: list[str] = []
    for title, kinds in groups.items():
        lines += ["", f"    {title}:"]
        for kind in kinds:
            texts = descriptions(kind)
            for setting in dataclasses.fields(kind):
                value = repr(setting.default)
                if setting.name in PROFILE_DEFAULTS:
                    value = default_by_profile(setting.name)
                words = f"{setting.name} (default {value}): {texts.get(setting.name, '')}"
                lines += textwrap.wrap(
                    words, 100, initial_indent=" " * 8, subsequent_indent=" " * 12
                )
    lines.append(
        "        features, labels: node attributes of a NetworkX graph, x and y by default."
    )
    return "\n".join(lines)

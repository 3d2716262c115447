"""Settings of training: profiles, and every group of settings that a run needs, in one object."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from lumos.aggregate.settings import AggregateSettings
from lumos.device.coins import CoinSource
from lumos.encode.one_bit import EncoderSettings
from lumos.errors import UsageError, one_of
from lumos.exchange.topic import Door
from lumos.model.settings import ModelSettings
from lumos.strict.settings import StrictSettings, has_no_meaning, usual_epochs
from lumos.trees.settings import Balancer, TreeSettings

Task = Literal["classify", "link"]
ProfileName = Literal["paper", "strict"]
Aggregate = Literal["ideal", "secure"]
Selection = Literal["validation", "last"]
Recovery = Literal["shrunk", "letter"]


@dataclass(frozen=True)
class Profile:
    """What a profile allows, and where it starts from."""

    doors: frozenset[Door]
    balancer: Balancer


PROFILES: dict[ProfileName, Profile] = {
    "paper": Profile(frozenset(Door), "mcmc"),
    "strict": Profile(frozenset(Door) - {Door.OPEN}, "none"),
}
"""paper: the paper's algorithms and every door. strict: the door `open` is shut, and nobody needs
to know who carries an edge, so nothing is compared."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model is trained (section VIII-B, errata 9)."""

    task: Task = "classify"
    """classify: predict labels, supervised; link: predict edges, unsupervised."""
    profile: ProfileName = "strict"
    """strict: one randomized symbol per device, and sums; the door `open` is shut. paper: the
    paper's messages, most of them unprotected."""
    epochs: int = 300
    """Passes over all devices."""
    patience: int = 0
    """Stop after so many epochs without a better validation score; 0: never. The score is in every
    epoch's sum, so all devices stop at the same epoch without another message."""
    learning_rate: float = 0.01
    """Of Adam."""
    weight_decay: float = 0.0
    """L2 regularisation: so much of each weight is added to its gradient."""
    select: Selection = "validation"
    """validation: keep the weights that scored best on validation devices or edges; last: the
    paper's, those of the last epoch."""
    recovery: Recovery = "shrunk"
    """What receivers put on a leaf. letter: the paper's unbiased features, midpoint where nothing
    came. shrunk: the same, less the midpoint, times their reliability tanh(ε'/2)²."""
    virtual_nodes: bool = True
    """Trees as in the paper; without virtual nodes, stars."""
    aggregate: Aggregate = "ideal"
    """How updates are added: ideal computes the sum in the clear (simulation only, labelled so),
    secure by masked sums."""
    coins: CoinSource = "simulated"
    """Device secrets from the run seed (a run can be repeated) or from the operating system."""
    control: bool = False
    """Also train with releases that know nothing of the features, to see what they are worth."""
    floor: bool = True
    """Also train on own features only, without any neighbour."""
    checkpoint_every: int = 25
    """Epochs between checkpoints, where there is a run folder."""

    def __post_init__(self) -> None:
        one_of("task", self.task, get_args(Task))
        one_of("profile", self.profile, get_args(ProfileName))
        one_of("select", self.select, get_args(Selection))
        one_of("recovery", self.recovery, get_args(Recovery))
        one_of("coins", self.coins, get_args(CoinSource))
        one_of("aggregate", self.aggregate, get_args(Aggregate))
        if self.epochs < 1:
            raise UsageError(f"--epochs must be 1 or more, got {self.epochs}")
        if self.patience < 0:
            raise UsageError(f"--patience must be 0 or more, got {self.patience}")
        if self.patience and self.select == "last":
            raise UsageError("--patience goes by the validation score; leave out --select last")
        if not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"--learning-rate must be above 0, got {self.learning_rate}")
        if not 0 <= self.weight_decay < float("inf"):
            raise UsageError(f"--weight-decay must be 0 or more, got {self.weight_decay}")
        if self.checkpoint_every < 1:
            raise UsageError(f"--checkpoint-every must be 1 or more, got {self.checkpoint_every}")


UPDATES = AggregateSettings(limit=float(1 << 18), fraction_bits=24)
"""How updates are summed: numbers up to 262,144 in steps of 2^-24, for up to two million devices.

Gradients are sums over a device's leaves, and recovered features reach thousands at a small ε, so
the range is wide; a mean over n devices is off by at most 2^-25.
"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run depends on, apart from the graph, the seed and the shards."""

    train: TrainSettings = field(
        default_factory=lambda: TrainSettings(epochs=usual_epochs("classify", {}))
    )
    trees: TreeSettings = field(default_factory=lambda: TreeSettings(balancer="none"))
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    strict: StrictSettings = field(default_factory=StrictSettings)
    updates: AggregateSettings = UPDATES

    @staticmethod
    def of(**settings: Any) -> "Config":
        """A configuration from single settings by name, `Config.of(task="link", epsilon=1.0)`.

        Where balancer or epochs are not given, they are the profile's; without a word on
        `activate_last`, embeddings of the task `link` are not cut off at 0, because products of
        numbers that are never negative cannot say "no edge".
        """
        names = {
            field.name: group
            for group, kind in _GROUPS.items()
            for field in dataclasses.fields(kind)
        }
        chosen: dict[str, dict[str, Any]] = {group: {} for group in _GROUPS}
        for name, value in settings.items():
            if name not in names:
                raise UsageError(f"there is no setting {name!r}; there are {', '.join(names)}")
            group = names[name]
            if get_type_hints(_GROUPS[group])[name] is float and isinstance(value, int):
                value = float(value)  # 2 and 2.0 are one setting
            chosen[group][name] = value
        if chosen["train"].get("profile", TrainSettings.profile) == "strict":
            task = chosen["train"].get("task", TrainSettings.task)
            chosen["train"].setdefault("epochs", usual_epochs(task, chosen["strict"]))
        train = TrainSettings(**chosen["train"])
        chosen["trees"].setdefault("balancer", PROFILES[train.profile].balancer)
        chosen["model"].setdefault("activate_last", train.task != "link")
        return Config(
            train=train,
            trees=TreeSettings(**chosen["trees"]),
            encoder=EncoderSettings(**chosen["encoder"]),
            model=ModelSettings(**chosen["model"]),
            strict=StrictSettings(**chosen["strict"]),
        )

    @staticmethod
    def asked(**settings: Any) -> "Config":
        """As `of`, but refuses what the profile does not have: nothing is silently ignored."""
        config = Config.of(**settings)
        foreign = {field.name for field in dataclasses.fields(StrictSettings)}
        if config.train.profile == "strict":
            foreign = {"bins", "low", "high", "pool", "recovery", "select", "activate_last"}
            foreign.add("patience")  # its number of epochs is part of its noise
        where = f"--profile {config.train.profile}"
        for name in settings:
            option = name.replace("_", "-")
            if name in foreign:
                raise UsageError(f"--{option} has no meaning in {where}; leave it out")
            task = config.train.task
            if config.train.profile == "strict" and has_no_meaning(name, task, config.strict):
                raise UsageError(
                    f"--{option} has no meaning in {where} --task {task}; leave it out"
                )
        return config

    def flat(self) -> dict[str, Any]:
        """The settings by name, as `of` takes them."""
        return {
            name: value
            for group in _GROUPS
            for name, value in dataclasses.asdict(getattr(self, group)).items()
        }

    def improvements(self) -> list[str]:
        """Where this departs from the letter of the paper, one sentence each."""
        found: list[str] = []
        if self.train.profile == "strict":
            return found  # it does not follow the paper at all
        if self.train.recovery == "shrunk" and self.encoder.noisy:
            found.append(
                "recovered features are centred and shrunk by their reliability "
                "(--recovery letter: as the paper has them)"
            )
        elif self.train.recovery == "shrunk" and self.encoder.bins:
            found.append(
                "features that did not come count as 0, not as the midpoint (--recovery letter)"
            )
        if self.train.select == "validation":
            found.append("weights are those of the best validation score (--select last)")
        if self.train.patience:
            found.append(f"at most {self.train.patience} epochs without a better validation score")
        if self.train.task == "link" and not self.model.activate_last:
            found.append("embeddings are not cut off at 0 (--activate-last)")
        if self.train.weight_decay:
            found.append(f"weight decay {self.train.weight_decay:g}")
        return found


_GROUPS: dict[str, type[Any]] = {
    "train": TrainSettings,
    "trees": TreeSettings,
    "encoder": EncoderSettings,
    "model": ModelSettings,
    "strict": StrictSettings,
}

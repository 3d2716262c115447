"""Settings of the paper's profile: what a device releases, what receivers make of it, the trees."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from lumos.errors import InputError, UsageError, one_of
from lumos.exchange.messages import Door
from lumos.graph.facts import GraphFacts
from lumos.ldp.account import QUESTIONS, UNPROTECTED, PrivacyAccount
from lumos.ldp.bounds import refuse_outside
from lumos.ldp.one_bit import ENCODERS, ONE_BIT, EncoderSettings
from lumos.secagg.parameters import AggregateSettings
from lumos.training.config import UPDATES, Config, TrainSettings
from lumos.training.metrics import dot_products
from lumos.training.problem import Problem
from lumos.training.profile import (
    PAPER,
    PlannedRun,
    ProfileTexts,
    RunSizes,
    SumStage,
    TreeTexts,
)
from lumos.training.trainer import LinkPredictions
from lumos.typing import Arrays

if TYPE_CHECKING:
    from lumos.device.shard import Shard
    from lumos.exchange.endpoint import Endpoint
    from lumos.paper.trainer import PaperResult
    from lumos.training.config import Config
    from lumos.training.trainer import AskedPairs, CoordinatorProgram, TrainedLinks, Trainer

Selection = Literal["validation", "last"]
Recovery = Literal["shrunk", "literal"]

NARROW_UPDATES = replace(
    UPDATES, limit=1.0, least_limit=None, fraction_bits=28, least_fraction_bits=14
)
"""Encoding of gradients as shares of a range (`lumos.paper.updates`): in 32 bits for up to 131,071
devices, with 14 fraction bits or more, and then in 40."""


@dataclass(frozen=True, kw_only=True)
class PaperSettings(EncoderSettings):
    """The paper's profile (section VIII-B, errata 9)."""

    literal: bool = False
    """Train exactly as the paper is printed: decode features without shrinking them, keep the
    weights of the last epoch, and put ReLU after the last layer for links too."""
    recovery: Recovery = "shrunk"
    """Features that receivers put on a leaf. literal: the paper's unbiased features, midpoint where
    nothing was received. shrunk: the same, less the midpoint, times their reliability
    tanh(ε'/2)²."""
    virtual_nodes: bool = True
    """Trees as in the paper; without virtual nodes, stars."""
    select: Selection = "validation"
    """validation: keep the weights that scored best on validation devices or edges; last: the
    paper's, those of the last epoch."""
    patience: int = 0
    """Stop after this many epochs without a better validation score; 0: never. The score is in
    every epoch's sum, so all devices stop at the same epoch without another message."""
    local_steps: int = 1
    """Gradient steps that a device makes on its own between two sums, with the messages of the
    epoch held constant. The sum has the mean of their gradients, and the optimizer makes as many
    steps by it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("recovery", self.recovery, get_args(Recovery))
        one_of("select", self.select, get_args(Selection))
        if self.literal and (self.recovery, self.select) != ("literal", "last"):
            raise UsageError("`literal` sets `recovery` and `select`; leave these out")
        if self.local_steps < 1:
            raise UsageError(f"`local_steps` must be 1 or more, got {self.local_steps}")
        if self.patience < 0:
            raise UsageError(f"`patience` must be 0 or more, got {self.patience}")
        if self.patience and self.select == "last":
            raise UsageError("`patience` goes by the validation score; leave out `select='last'`")

    def ignored(self, name: str) -> str:
        """With which of these settings another one has no effect; empty where it has one."""
        if name == "bins" and self.noisy:
            return "a finite `epsilon`, only with `epsilon=inf`"
        if name == "recovery" and self.encoder != ONE_BIT:
            return f"`encoder='{self.encoder}'`, only with `encoder='{ONE_BIT}'`"
        if name == "recovery" and not self.noisy and not self.bins:
            return "`epsilon=inf`, only with a finite `epsilon` or with `bins`"
        return ""


def settings_of(config: "Config") -> PaperSettings:
    """The settings of this profile."""
    return config.settings_as(PaperSettings)


# The paper's profile: its algorithms, its messages, every door. It reports what it exposes.


class PaperProfile:
    """`lumos.training.profile.Profile`, as the paper has it."""

    name = PAPER
    doors = frozenset(Door)
    settings = PaperSettings
    own_included = False

    def defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the paper's balancer. Embeddings of `link` are not cut off at 0.

        Products of numbers that are never negative cannot say "no edge". With `literal` they are.
        """
        if given.get("literal"):
            return {"balancer": "mcmc", "recovery": "literal", "select": "last"}
        return {
            "balancer": "mcmc",
            "activate_last": given.get("task", TrainSettings.task) != "link",
        }

    def updates(self, config: "Config") -> AggregateSettings:
        """Return the encoding of summed updates, from settings alone.

        It is the wide one where gradients have no known scale: features that are recovered
        literally reach thousands, and other layers than gcn and gat do as they like.
        """
        paper = settings_of(config)
        wide = (paper.recovery == "literal" and paper.noisy) or not config.model.fast
        return UPDATES if wide else NARROW_UPDATES

    def ignores(self, name: str, config: "Config") -> str:
        """With which settings a setting has no effect."""
        groups = (config.train, config.trees, config.model, settings_of(config))
        return next(filter(None, (group.ignored(name) for group in groups)), "")

    def improvements(self, config: "Config") -> list[str]:
        """Return the departures from the letter of the paper, one sentence each."""
        paper, sentences = settings_of(config), []
        if paper.encoder != ONE_BIT:
            sentences.append(f"features are released by encoder {paper.encoder!r}")
        elif paper.recovery == "shrunk" and paper.noisy:
            sentences.append(
                "recovered features are centred and shrunk by their reliability "
                "(`literal`: as in the paper)"
            )
        elif paper.recovery == "shrunk" and paper.bins:
            sentences.append(
                "features that did not arrive count as 0, not as the midpoint "
                "(`literal`: as in the paper)"
            )
        if paper.select == "validation":
            sentences.append(
                "weights are those of the best validation score (`literal`: the last ones)"
            )
        if paper.patience:
            sentences.append(f"at most {paper.patience} epochs without a better validation score")
        if config.train.task == "link" and not config.model.activate_last:
            sentences.append("embeddings are not cut off at 0 (`activate_last`)")
        if paper.local_steps > 1:
            sentences.append(f"{paper.local_steps} local steps of each device between two sums")
        if config.train.weight_decay:
            sentences.append(f"weight decay {config.train.weight_decay:g}")
        return sentences

    def texts(self, config: "Config") -> ProfileTexts:
        """Return the texts of reports about a run."""
        return run_texts(config)

    def check(self, facts: GraphFacts, config: "Config") -> None:
        """Features must lie between the public bounds; an optimizer must step and be saved."""
        if config.train.optimizer is not None:
            if settings_of(config).local_steps > 1:
                raise UsageError(
                    "`local_steps` are steps by `learning_rate`, which `optimizer` replaces; "
                    "leave out one of them"
                )
            from lumos.paper.trainer import check_optimizer  # torch, which settings do without

            check_optimizer(config, facts)
        paper = settings_of(config)
        ENCODERS[paper.encoder].check_declared(facts.feature_count, paper)
        lowest, highest = facts.simulated.lowest, facts.simulated.highest
        if facts.sparse:
            lowest, highest = min(lowest, 0.0), max(highest, 0.0)
        refuse_outside(lowest, highest, paper.low, paper.high)

    def planned(self, problem: Problem, config: "Config", delta: float) -> PlannedRun:
        """Return that nothing is guaranteed, and that sums have no noise."""
        return PlannedRun(dict.fromkeys(QUESTIONS, math.inf), 0.0)

    def randomness(self, problem: Problem, config: "Config", *, control: bool) -> str:
        """The control has randomness of its own."""
        return "/control" if control else ""

    def programs(
        self,
        problem: Problem,
        config: "Config",
        shards: "Sequence[Shard]",
        endpoints: "Sequence[Endpoint]",
        coordinator: "Endpoint",
        *,
        control: bool = False,
        step: int = 0,
        account: PrivacyAccount | None = None,
        follows: bool = False,
        **other: Any,
    ) -> "tuple[list[Trainer[PaperResult]], CoordinatorProgram]":
        """The trainers of all shards, and the coordinator's program.

        Args:
            other: what only profiles with guarantees need.
        """
        from lumos.paper.trainer import PaperCoordinator, PaperTrainer
        from lumos.training.sums import FollowedSums

        common: dict[str, Any] = {
            "alone": problem.alone,
            "control": control,
            "step": step,
            "follows": FollowedSums(
                problem.facts.devices, coordinator, config, shards[0].public.plan
            )
            if follows
            else None,
            "account": account,
        }
        if account is not None:  # before the first message leaves
            account.charge({UNPROTECTED: 1.0}, shards[0].devices)
        trainers = [
            PaperTrainer(*place, config, problem.classes, **common)
            for place in zip(shards, endpoints, problem.parts, problem.keep, strict=True)
        ]
        width = trainers[0].weights.layout.width
        return [*trainers], PaperCoordinator(config, problem.facts.devices, coordinator, width)

    def check_weights(self, config: "Config", features: int, classes: int, state: Arrays) -> None:
        """Refuse weights that do not match the model of the settings."""
        from lumos.paper.trainer import FullModel

        FullModel(config.model, features, classes).take(state)

    def predict_pairs(self, model: "TrainedLinks", asked: "AskedPairs") -> "LinkPredictions":
        """Dot products of embeddings."""
        if model.embeddings is None:
            raise InputError("devices.npz has no embeddings; train again")
        scores = dot_products(model.embeddings, asked.pairs)
        return LinkPredictions(scores=scores, answered=np.ones(len(scores), np.bool_))

    def for_new_devices(self, config: "Config") -> "Config":
        """The settings of the run, which takes no further step: any optimizer will do."""
        return replace(config, train=replace(config.train, optimizer=None))


PROFILE = PaperProfile()


MAX_WORKLOAD = {"facebook": 39.0, "lastfm": 16.0}
"""By graph, the largest workload that the paper reports after tree trimming."""


def run_texts(config: Config) -> ProfileTexts:
    """Return the texts of reports about a run."""
    paper = settings_of(config)
    return ProfileTexts(
        guarantee=lambda *_: [("", _unprotected(config))],
        variant="literal" if paper.literal else "corrected",
        design="this is the paper's own design.",
        trees=TreeTexts(
            workload=(
                "A device's workload is the number of neighbours that it keeps in its tree. Every "
                "edge is kept by at least one of its two ends, and the busiest device sets the "
                "pace."
            ),
            own_leaf="its own features",
            other_leaf="its features, with noise" if paper.noisy else "its features, as they are",
            builder="the device that keeps these edges",
            virtual_nodes=paper.virtual_nodes,
            reported_largest=MAX_WORKLOAD,
        ),
        sums=partial(_sums, config),
        validation=(
            "The weights of the best validation score are kept"
            if paper.select == "validation"
            else ""
        ),
    )


def _sums(config: Config, sizes: RunSizes) -> list[SumStage]:
    """Every epoch is one sum: a gradient, and what loss and validation score are made of."""
    from lumos.paper.updates import SumLayout  # torch, which settings do without

    tensors = [array.size for array in sizes.weights.values()]
    return [
        SumStage(
            name="network",
            learns="all weights of the network, from gradients of training devices",
            first=1,
            last=sizes.epochs,
            numbers=SumLayout(config, sizes.devices, tensors).width,
            loss=(
                "Mean loss over training devices. Where it goes on falling while the validation "
                "score does not rise, the network learns its training devices by heart."
            ),
        )
    ]


def unchecked(paper: PaperSettings) -> str:
    """Return the mark of an ε that is only declared; empty where it is proved or enumerated."""
    if ENCODERS[paper.encoder].checked:
        return ""
    return f" (unchecked: declared by encoder {paper.encoder!r})"


def _unprotected(config: Config) -> str:
    """Return what a run does not protect, in one sentence."""
    paper = settings_of(config)
    told = "labels" if config.train.task == "classify" else "links"
    non_neighbours = " and non-neighbours" * (config.train.task == "link")
    features = (
        f"ε = {paper.epsilon:g}{unchecked(paper)} covers released features alone"
        if paper.noisy
        else "features went to neighbours as they are"
    )
    return (
        f"Nothing is guaranteed: neighbours{non_neighbours} got embeddings of raw features, and "
        f"gradients "
        f"that depend on {told}, without protection; {features}."
    )

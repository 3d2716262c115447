"""The paper's profile: its algorithms, its messages, every door. It reports what it exposes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lumos.encode.bounds import refuse_outside
from lumos.errors import InputError
from lumos.exchange.topic import Door
from lumos.graph.facts import GraphFacts
from lumos.paper.settings import PaperSettings, settings_of
from lumos.paper.texts import texts
from lumos.training.link_questions import PairAnswers
from lumos.training.metrics import dot_products
from lumos.training.profile import Placement, Problem, Programs
from lumos.training.profiles import PAPER
from lumos.training.settings import TrainSettings
from lumos.training.texts import ProfileTexts

if TYPE_CHECKING:
    from lumos.paper.trainer import PaperResult
    from lumos.training.config import Config
    from lumos.training.link_questions import AskedPairs, TrainedLinks


class PaperProfile:
    """`lumos.training.profile.Profile`, as the paper has it."""

    name = PAPER
    doors = frozenset(Door)
    settings = PaperSettings
    own_included = False

    def defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The paper's balancer. Embeddings of `link` are not cut off at 0.

        Products of numbers that are never negative cannot say "no edge".
        """
        return {
            "balancer": "mcmc",
            "activate_last": given.get("task", TrainSettings.task) != "link",
        }

    def ignores(self, name: str, config: "Config") -> str:
        """With which settings a setting has no meaning."""
        groups = (config.trees, config.model, settings_of(config))
        return next(filter(None, (group.ignored(name) for group in groups)), "")

    def improvements(self, config: "Config") -> list[str]:
        """Where a run departs from the letter of the paper, one sentence each."""
        paper, sentences = settings_of(config), []
        if paper.recovery == "shrunk" and paper.noisy:
            sentences.append(
                "recovered features are centred and shrunk by their reliability "
                "(`recovery='letter'`: as in the paper)"
            )
        elif paper.recovery == "shrunk" and paper.bins:
            sentences.append(
                "features that did not arrive count as 0, not as the midpoint (`recovery='letter'`)"
            )
        if paper.select == "validation":
            sentences.append("weights are those of the best validation score (`select='last'`)")
        if paper.patience:
            sentences.append(f"at most {paper.patience} epochs without a better validation score")
        if config.train.task == "link" and not config.model.activate_last:
            sentences.append("embeddings are not cut off at 0 (`activate_last`)")
        if config.train.weight_decay:
            sentences.append(f"weight decay {config.train.weight_decay:g}")
        return sentences

    def texts(self, config: "Config") -> ProfileTexts:
        """What reports say about a run."""
        return texts(config)

    def check(self, facts: GraphFacts, config: "Config") -> None:
        """Features must lie between the public bounds."""
        paper = settings_of(config)
        lowest, highest = facts.simulated.lowest, facts.simulated.highest
        if facts.sparse:
            lowest, highest = min(lowest, 0.0), max(highest, 0.0)
        refuse_outside(lowest, highest, paper.low, paper.high)

    def coins(self, problem: Problem, config: "Config", *, control: bool) -> str:
        """The control has coins of its own."""
        return "/control" if control else ""

    def programs(self, placement: Placement) -> "Programs[PaperResult]":
        """The trainers of all shards, and the coordinator's program."""
        from lumos.paper.coordinator import PaperCoordinator
        from lumos.paper.trainer import PaperTrainer

        problem, config = placement.problem, placement.config
        trainers = [
            PaperTrainer(
                shard,
                endpoint,
                private,
                config,
                problem.classes,
                control=placement.control,
                step=placement.step,
            )
            for shard, endpoint, private in zip(
                placement.shards, placement.endpoints, placement.private, strict=True
            )
        ]
        coordinator = PaperCoordinator(
            config,
            problem.facts.devices,
            placement.coordinator,
            trainers[0].model.weights,
        )
        return Programs(trainers=[*trainers], coordinator=coordinator)

    def predict_pairs(self, model: "TrainedLinks", asked: "AskedPairs") -> "PairAnswers":
        """Dot products of embeddings."""
        if model.embeddings is None:
            raise InputError("devices.npz has no embeddings; train again")
        scores = dot_products(model.embeddings, asked.pairs)
        return PairAnswers(scores=scores, answered=np.ones(len(scores), np.bool_))

    def for_newcomers(self, config: "Config") -> "Config":
        """The settings of the run: every run takes newcomers."""
        return config


PROFILE = PaperProfile()

"""A federation: shards, their trainers, the coordinator and the carrier of one run."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from lumos.aggregate.ideal import IDEAL_TOPICS as IDEAL_SUMS
from lumos.device.coins import PublicCoins
from lumos.device.shard import cut
from lumos.exchange.carrier import CARRIERS
from lumos.exchange.endpoint import Endpoint, Program, no_part
from lumos.exchange.ledger_report import LedgerReport
from lumos.products.ideal import IDEAL_TOPICS as IDEAL_PRODUCTS
from lumos.score.ideal import IDEAL_TOPICS as IDEAL_SCORES
from lumos.training.config import Config
from lumos.training.outcome import Outcome
from lumos.training.private_data import split_private_data
from lumos.training.profile import Placement, Problem, Programs
from lumos.training.trainer import CoordinatorProgram, Result, Trainer
from lumos.typing import Floats, Ints

Answer = TypeVar("Answer")

IDEAL_TOPICS = IDEAL_SUMS | IDEAL_PRODUCTS | IDEAL_SCORES
"""What a carrier has to permit where a simulation computes in the clear."""


class Federation(Generic[Result]):
    """All parties of one run, as the observer of a simulation holds them.

    Args:
        problem: graph, trees, split.
        config: settings.
        control: releases carry no information.
        step: number of the release, where it is a further one.
        carrier: what moves the messages, a name of `CARRIERS`.
        coins: names the coins of simulated devices; by default as the profile does, so that no two
            runs share any.
    """

    def __init__(
        self,
        problem: Problem,
        config: Config,
        *,
        control: bool = False,
        step: int = 0,
        carrier: str = "loopback",
        coins: str | None = None,
    ) -> None:
        profile = config.profile
        self.problem = problem
        self.config = config
        coins = profile.coins(problem, config, control=control) if coins is None else coins
        self.shards = cut(problem.graph, problem.shards, problem.seed, config.train.coins, coins)
        ideal = IDEAL_TOPICS if config.train.aggregate == "ideal" else frozenset()
        self.carrier = CARRIERS[carrier](self.shards, profile.doors, ideal)
        programs: Programs[Result] = profile.programs(
            Placement(
                problem=problem,
                config=config,
                shards=self.shards,
                endpoints=list(self.carrier.endpoints),
                private=split_private_data(
                    problem.graph,
                    self.shards,
                    problem.keep,
                    problem.roles,
                    problem.held_back,
                    alone=problem.alone,
                ),
                coordinator=self.carrier.coordinator,
                public=PublicCoins(problem.seed),
                coins=coins,
                control=control,
                step=step,
            )
        )
        self.trainers, self.coordinator = programs.trainers, programs.coordinator
        self._trainer_of = {
            id(shard): trainer for shard, trainer in zip(self.shards, self.trainers, strict=True)
        }

    @property
    def first_trainer(self) -> Trainer[Result]:
        """The trainer of the first shard: weights are public, so it stands for all."""
        return self.trainers[0]

    def run(
        self,
        devices: Callable[[Trainer[Result]], Program[Answer]],
        coordinator: Callable[[CoordinatorProgram], Program[None]] | None = None,
    ) -> list[Answer]:
        """Run one part of the programs; what each shard returned."""
        answers, _ = self.carrier.run(
            lambda shard, _: devices(self._trainer_of[id(shard)]),
            lambda _: no_part() if coordinator is None else coordinator(self.coordinator),
        )
        return answers

    def finish(self) -> Outcome:
        """Run the last part; what the observer makes of it."""
        parts = self.run(lambda trainer: trainer.finish(), lambda program: program.finish())
        return self.first_trainer.outcome(
            type(parts[0]).joined(parts, self._order()), self.ledger()
        )

    def welcome(self) -> Floats:
        """[devices, classes] logits by weights that were loaded before."""
        parts = self.run(lambda trainer: trainer.welcome())
        logits: Floats = np.concatenate(parts)[self._order()]
        return logits

    def ledger(self) -> LedgerReport:
        """Everything that passed so far."""
        return self.carrier.ledger()

    def endpoints(self) -> Sequence[Endpoint]:
        """Of all shards, then the coordinator's."""
        return [*self.carrier.endpoints, self.carrier.coordinator]

    def _order(self) -> Ints:
        """Puts rows of all shards, one after the other, in the order of the ids."""
        return np.argsort(np.concatenate([shard.devices for shard in self.shards]))

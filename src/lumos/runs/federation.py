"""A federation: shards, their trainers, the coordinator and the carrier of one run."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

import numpy as np

from lumos.aggregate.ideal import IDEAL_TOPICS as IDEAL_SUMS
from lumos.device.coins import PublicCoins
from lumos.device.shard import shard_of
from lumos.errors import InputError, UsageError
from lumos.exchange.carrier import CARRIERS
from lumos.exchange.endpoint import Program, no_part
from lumos.exchange.ledger import ROUND, Ledger
from lumos.exchange.ledger_report import LedgerReport
from lumos.products.ideal import IDEAL_TOPICS as IDEAL_PRODUCTS
from lumos.score.ideal import IDEAL_TOPICS as IDEAL_SCORES
from lumos.storage import part_of
from lumos.training.config import Config
from lumos.training.problem import PrivateData, Problem
from lumos.training.profile import Placement, Programs
from lumos.training.trainer import CoordinatorProgram, Outcome, Result, Trainer
from lumos.typing import Arrays, Floats

Answer = TypeVar("Answer")

IDEAL_TOPICS = IDEAL_SUMS | IDEAL_PRODUCTS | IDEAL_SCORES
"""What a carrier has to permit where a simulation computes in the clear."""


class Federation(Generic[Result]):
    """The parties of one run that this process hosts: all of them, or a rank's own.

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
        self.shards = [
            shard_of(part, problem.seed, config.train.coins, coins) for part in problem.parts
        ]
        ideal = IDEAL_TOPICS if config.train.aggregate == "ideal" else frozenset()
        self.carrier = CARRIERS[carrier](self.shards, profile.doors, ideal)
        self.observer = self.carrier.observer
        programs: Programs[Result] = profile.programs(
            Placement(
                problem=problem,
                config=config,
                shards=self.shards,
                endpoints=list(self.carrier.endpoints),
                private=[
                    PrivateData.of(part, keep, alone=problem.alone)
                    for part, keep in zip(problem.parts, problem.keep, strict=True)
                ],
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

    def finish(self) -> Outcome | None:
        """Run the last part; what the observer makes of it, None elsewhere than at rank 0."""
        results = self.run(lambda trainer: trainer.finish(), lambda program: program.finish())
        ledger = self.ledger()
        rows = self.rows("results", [result.state_dict() for result in results])
        if rows is None:
            return None
        return self.first_trainer.outcome(results[0].load_state_dict(rows), ledger)

    def welcome(self) -> Floats:
        """[devices, classes] logits by weights that were loaded before."""
        parts = self.run(lambda trainer: trainer.welcome())
        rows = self.rows("logits", [{"logits": logits} for logits in parts])
        if rows is None:
            raise UsageError("newcomers are predicted in one process; leave out `ranks`")
        return rows["logits"]

    def rows(self, name: str, parts: Sequence[Arrays]) -> Arrays | None:
        """[devices, …] rows of all shards in the order of the ids; None elsewhere than at rank 0.

        Args:
            name: what is gathered.
            parts: for each shard of this process [hosted, …], by name.
        """
        placed = [
            {**part, "devices": shard.devices}
            for part, shard in zip(parts, self.shards, strict=True)
        ]
        gathered = self.observer.gather(name, placed)
        return in_order(gathered) if self.observer.first else None

    def ledger(self) -> LedgerReport:
        """Everything that passed so far; elsewhere than at rank 0, what this shard did."""
        return self.carrier.ledger()

    def ledger_state(self) -> Arrays:
        """Flows and rounds of all devices, and of the coordinator, for a checkpoint."""
        states = [endpoint.ledger.state_dict() for endpoint in self.carrier.endpoints]
        rounds = {f"ledger/{ROUND}": state.pop(ROUND) for state in states}
        gathered = self.observer.gather(
            "ledgers",
            [
                {**state, "devices": shard.devices}
                for state, shard in zip(states, self.shards, strict=True)
            ],
        )
        if not self.observer.first:
            return {}
        names = sorted({name for part in gathered for name in part} - {"devices"})
        whole: Arrays = {}
        for name in names:
            counts = np.zeros(self.problem.facts.devices, np.int64)
            for part in gathered:
                if name in part:
                    counts[part["devices"]] = part[name]
            whole[f"ledger/{name}"] = counts
        own = self.carrier.coordinator.ledger.state_dict()
        return whole | rounds | {f"coordinator/{name}": counts for name, counts in own.items()}

    def scattered(self, state: Arrays | None) -> list[Arrays] | None:
        """A checkpoint that rank 0 read, for each shard of this process: rows of its devices.

        Raises:
            InputError: its ledgers are of another graph.
        """
        total = self.problem.facts.devices
        hosted = self.observer.gather("hosted", [{"ids": shard.devices} for shard in self.shards])
        parts = None
        if state is not None:
            of_devices = {name for name in state if name.startswith("ledger/")}
            of_devices.discard(f"ledger/{ROUND}")
            known = list(state.items())
            if any(state[name].shape != (total,) for name in of_devices):
                raise InputError("checkpoint.npz is of another ledger; restart without `resume`")
            parts = [
                {name: rows[part["ids"]] if name in of_devices else rows for name, rows in known}
                for part in hosted
            ]
        return self.observer.scatter("checkpoint", parts)

    def fits(self, states: Sequence[Arrays]) -> bool:
        """Whether ledgers of a checkpoint, as `scattered` gave it, are those of this run."""
        return all(ledger.fits(part) for ledger, part in self._ledgers(states))

    def restore_ledgers(self, states: Sequence[Arrays]) -> None:
        """Continue from the ledgers of a checkpoint, however many shards there were then."""
        for ledger, part in self._ledgers(states):
            ledger.load_state_dict(part)

    def _ledgers(self, states: Sequence[Arrays]) -> Iterator[tuple[Ledger, Arrays]]:
        """The ledgers of this process, and the part of a checkpoint that is theirs."""
        for endpoint, state in zip(self.carrier.endpoints, states, strict=True):
            yield endpoint.ledger, part_of(state, "ledger/")
        if self.observer.first:
            yield self.carrier.coordinator.ledger, part_of(states[0], "coordinator/")

    def digest_differs(self) -> bool:
        """Whether shards differ in what is public and must be the same: the trainers' state."""
        digests = {_digest(trainer.state_dict()) for trainer in self.trainers}
        if len(digests) > 1:
            return True
        return self.observer.differs("digest", digests.pop())


def in_order(parts: Sequence[Arrays]) -> Arrays:
    """[devices, …] rows of all parts in the order of the ids; each part has `devices` too."""
    order = np.argsort(np.concatenate([part["devices"] for part in parts]))
    names = [name for name in parts[0] if name != "devices"]
    if len(parts) == 1 and (order[1:] > order[:-1]).all():
        return {name: parts[0][name] for name in names}
    return {name: np.concatenate([part[name] for part in parts])[order] for name in names}


def _digest(arrays: Arrays) -> bytes:
    digest = blake2b(digest_size=32)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()

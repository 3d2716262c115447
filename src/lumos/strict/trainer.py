"""What the strict trainers of both tasks share: sums, one in every epoch, and messages before some.

Nothing leaves a device but releases and summands. Sums are masked (`lumos.aggregate`), and by
default carry noise that the devices draw themselves (`lumos.aggregate.noise`).
"""

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import InputError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.strict.noisy_sums import NoisySums, Update
from lumos.strict.schedule import Schedule
from lumos.training.trainer import EpochRecord, OnEpoch
from lumos.typing import Arrays, Doubles, Ints


class Rows(Protocol):
    """The hosted devices' features, as a trainer uses them."""

    def holders(self) -> Doubles:
        """[hosted, d] 1 where a device has the feature and trains with it."""
        ...

    def holder_counts(self) -> Doubles:
        """[d] the same, summed over the hosted devices."""
        ...

    def keep(self, columns: Ints) -> None:
        """Restrict to these features."""
        ...


class StrictTrainer(ABC):
    """The strict trainer of one shard.

    Args:
        shard: the hosted devices.
        endpoint: whose ledger ideal sums are booked in.
        rows: the devices' features.
        schedule: everything public about the run.
        control: release symbols that depend on no data.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        rows: Rows,
        schedule: Schedule,
        *,
        control: bool = False,
    ) -> None:
        self.shard = shard
        self.schedule = schedule
        self._control = control
        self._rows = rows
        self._sums = NoisySums(shard, endpoint, schedule.config)
        self.columns = np.empty(0, np.int64)
        """Features in use, with `protect='holders'`."""
        self.choice = 0

    def setup(self) -> Program[None]:
        """Agree on keys, and on the features that may be used."""
        yield from self._sums.setup()
        strict, rows = self.schedule.strict, self._rows
        if strict.protect == "holders":
            counts = yield from self._sums.sum(
                lambda each: rows.holders() if each else rows.holder_counts(), None, 0
            )
            self.columns = np.flatnonzero(counts >= strict.min_holders - 0.5)
            if not len(self.columns):
                raise InputError(
                    f"no feature has {strict.min_holders} holders among the training "
                    "devices; lower `min_holders` or choose another `protect`"
                )
        self._prepare()

    def _prepare(self) -> None:
        """Build the models, once the used features are known."""
        if self.schedule.strict.protect == "holders":
            self._rows.keep(self.columns)
        self._begin()

    def epochs(self, first: int, last: int, on_epoch: OnEpoch | None = None) -> Program[None]:
        """Epochs `first` + 1 … `last`, and what devices send one another before them."""
        schedule = self.schedule
        for number in range(first, last):
            yield from self._before(number)
            stage = schedule.stage(number)
            total = yield from self._sum(stage, number)
            loss = self._advance(stage, number, total)
            if on_epoch is not None:
                on_epoch(EpochRecord(number + 1, loss, None))

    def _sum(self, stage: str, number: int) -> Program[Doubles]:
        """The sum of epoch `number`."""
        noise = self.schedule.noise(stage, self.schedule.step(number))
        return (yield from self._sums.sum(self._update(stage, number), noise, number))

    def last_epoch(self) -> int:
        """Fixed: the number of epochs is part of the noise."""
        return self.schedule.config.train.epochs

    @abstractmethod
    def restore(self, state: Arrays) -> None:
        """Go on from a state."""

    @abstractmethod
    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`: repeat the messages before `epoch`. The same coins give the same."""

    @abstractmethod
    def state(self) -> Arrays:
        """Everything that the next epochs depend on."""

    @abstractmethod
    def _begin(self) -> None:
        """Build models and optimisers."""

    @abstractmethod
    def _before(self, number: int) -> Program[None]:
        """What devices send one another right before epoch `number`."""

    @abstractmethod
    def _update(self, stage: str, number: int) -> Update:
        """The devices' vectors in epoch `number`."""

    @abstractmethod
    def _advance(self, stage: str, number: int, total: Doubles) -> float | None:
        """Use the sum of epoch `number`; the mean loss in it, if there is one."""

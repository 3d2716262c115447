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
from lumos.strict.book_file import BookSeal
from lumos.strict.noisy_sums import NoisySums, Update
from lumos.strict.release_book import ReleaseBook
from lumos.strict.run_charges import Charge
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
        book: what devices have told in earlier runs; a control has none.
        control: release symbols that depend on no data.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        rows: Rows,
        schedule: Schedule,
        *,
        book: ReleaseBook | None = None,
        control: bool = False,
    ) -> None:
        self.shard = shard
        self.schedule = schedule
        self._control = control
        # The control is an experiment with coins of its own: it is outside the book.
        self._book = None if control else book
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
        self._charge_sums()
        for number in range(first, last):
            yield from self._before(number)
            stage = schedule.stage(number)
            total = yield from self._sum(stage, number)
            loss = self._advance(stage, number, total)
            if on_epoch is not None:
                on_epoch(EpochRecord(number + 1, loss, None))

    def _charge_sums(self) -> None:
        """Have a book count all sums of this run, once: what it has counted it does not again.

        A run that is resumed after a label has changed, and changed back, is another one.
        """
        if self._book is not None:
            for charge, devices in self._sum_charges():
                self._book.charge(charge, devices)

    def _sum(self, stage: str, number: int) -> Program[Doubles]:
        """The sum of epoch `number`."""
        noise = self.schedule.noise(stage, self.schedule.step(number))
        return (yield from self._sums.sum(self._update(stage, number), noise, number))

    def last_epoch(self) -> int:
        """Fixed: the number of epochs is part of the noise."""
        return self.schedule.config.train.epochs

    def _remembered(self) -> Arrays:
        """What a checkpoint and the finished run know of the book; nothing without one."""
        return {} if self._book is None else self._book.seal().arrays()

    def restore(self, state: Arrays) -> None:
        """Go on from a state.

        Raises:
            InputError: the book is older than the state, or another one.
        """
        if self._book is not None:
            self._book.check_seal(BookSeal.of(state))
        self._charge_sums()
        self._restore(state)

    def state(self) -> Arrays:
        """Everything that the next epochs depend on."""
        return {**self._state(), **self._remembered()}

    @abstractmethod
    def _sum_charges(self) -> list[tuple[Charge, Ints]]:
        """What a book counts for all sums of the run, and which hosted devices it is for."""

    @abstractmethod
    def _restore(self, state: Arrays) -> None:
        """Go on from what `_state` gave."""

    @abstractmethod
    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`: repeat the messages before `epoch`. The same coins give the same."""

    @abstractmethod
    def _state(self) -> Arrays:
        """Everything that the next epochs depend on, apart from the book."""

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

"""What the strict trainers of both tasks share: sums, one in every epoch, and messages before some.

Nothing leaves a device but releases and summands. Sums are masked (`lumos.aggregate`), and by
default carry noise that the devices draw themselves (`lumos.aggregate.noise`).
"""

from abc import ABC, abstractmethod

from lumos.aggregate.opened_sums import OpenedSums
from lumos.device.shard import Shard
from lumos.encode.bounds import Features
from lumos.exchange.endpoint import Endpoint, Program
from lumos.storage import part_of
from lumos.strict.book_file import BookSeal
from lumos.strict.feature_scaling import FeatureScaling, ScalingSums
from lumos.strict.followed_sums import FollowedSums
from lumos.strict.noisy_sums import NoisySums, Update
from lumos.strict.release_book import ReleaseBook
from lumos.strict.run_charges import Charge
from lumos.strict.schedule import Schedule
from lumos.training.trainer import EpochRecord, OnEpoch
from lumos.typing import Arrays, Doubles, Ints


class StrictTrainer(ABC):
    """The strict trainer of one shard.

    Args:
        shard: the hosted devices.
        endpoint: whose ledger ideal sums are booked in.
        features: [hosted, d] of the devices.
        schedule: everything public about the run.
        book: what devices have told in earlier runs; a control has none.
        control: release symbols that depend on no data.
        sums: the part in sums, where it is not that of the hosted devices.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        features: Features,
        schedule: Schedule,
        *,
        book: ReleaseBook | None = None,
        control: bool = False,
        sums: FollowedSums | None = None,
    ) -> None:
        self.shard = shard
        self.schedule = schedule
        self._control = control
        # The control is an experiment with coins of its own: it is outside the book.
        self._book = None if control else book
        self._features = features
        self.scaling: FeatureScaling | None = None
        """How features are scaled, once it is known; None where they are not."""
        self._sums = sums or NoisySums(shard, endpoint, schedule.config)
        self.choice = 0

    def setup(self) -> Program[None]:
        """Before the first epoch."""
        yield from self.enrol()

    def enrol(self) -> Program[None]:
        """Agree on keys, and learn how features are scaled: sums only, and no session."""
        yield from self._sums.setup()
        yield from self._scale_features()
        self._begin()

    def _scale_features(self) -> Program[None]:
        """Learn centre and size of every feature, where they are scaled."""
        schedule = self.schedule
        if not schedule.first_stages:
            return
        self._charge_sums()  # before the first is opened, should the run end right after it
        bits = schedule.config.updates.fraction_bits
        sums = ScalingSums(self._features, *self._scaling_devices(), bits, schedule.scaling)
        for place, stage in enumerate(schedule.first_stages):
            noise = schedule.noise(stage)
            total = yield from self._sums.sum(
                self._scaling_update(sums, stage), noise, schedule.first_coins(place)
            )
            sums.learn(stage, total, 0.0 if noise is None else noise.total)
        self.scaling = sums.scaling()

    def _scaling_update(self, sums: ScalingSums, stage: str) -> Update:
        """The devices' vectors in a sum that scales features."""
        return lambda each: sums.vectors(stage, each=each)

    def _scaling_arrays(self) -> Arrays:
        """How features were scaled, for whoever uses the weights; nothing where they were not."""
        return {} if self.scaling is None else self.scaling.arrays()

    def _scaled_features(self) -> Features:
        """[hosted, d] features as the devices use them."""
        return self._features if self.scaling is None else self.scaling.apply(self._features)

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

    def snapshot(self) -> Arrays:
        """What a party that keeps its secret needs to go on after a restart, once it is set up.

        It holds public state and no key. What the device heard from neighbours is not in it.
        """
        return {
            **_named("trainer/", self.state()),
            **_named("sums/", self._sums.state()),
            **_named("scaling/", self._scaling_arrays()),
        }

    def revive(self, snapshot: Arrays) -> None:
        """Go on from a snapshot, in a trainer that was not set up."""
        scaling = part_of(snapshot, "scaling/")
        if scaling:
            self.scaling = FeatureScaling.of(scaling, int(self._features.shape[1]))
        self._begin()
        self._sums.restore(part_of(snapshot, "sums/"))
        self.restore(part_of(snapshot, "trainer/"))

    def rehear(self, epoch: int) -> Program[None]:
        """After `revive`, instead of the first `epoch` epochs: hear again what was released."""
        yield from self.rejoin(epoch)

    def remember_openings(self, opened: OpenedSums) -> None:
        """Note there what the device gives out shares for."""
        self._sums.remember_openings(opened)

    def compare_told(self) -> Program[None]:
        """After `finish`: compare with others what was told in all sums."""
        yield from self._sums.compare_told()

    def refused(self) -> list[int]:
        """Senders of messages of sums that were dropped since the last call."""
        return self._sums.refused()

    def has_sessions(self, epoch: int) -> bool:
        """Whether sessions of two devices are open in epoch `epoch` + 1, or in `finish`."""
        return False

    def begin_attempt(self, number: int) -> None:
        """What follows is of this attempt: sums of another one have other masks, and sessions are
        opened anew."""
        self._sums.begin_attempt(number)

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
    def _scaling_devices(self) -> tuple[Ints, int]:
        """Positions of the hosted devices that add to sums of features; and their number in all."""

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


def _named(prefix: str, arrays: Arrays) -> Arrays:
    return {prefix + name: array for name, array in arrays.items()}

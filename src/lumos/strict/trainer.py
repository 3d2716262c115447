"""What the strict trainers of both tasks share: one release, and sums. Nothing else leaves.

1. Something is learnt by sums from own features alone: an own encoder (`classify`), a codebook
   (`link`), or both (`classify` with `symbol` codebook).
2. Every device releases one symbol to all its neighbours (`lumos.encode.mechanisms`). Once. With a
   relay, symbols travel further.
3. What symbols mean is learnt by sums (trust), then a tree network on symbols (backbone).
4. Validation chooses, by one sum, whether neighbours count at all: never worse than alone, up to
   one standard error.

Sums are masked (`lumos.aggregate`), and by default carry noise that is drawn by the devices
themselves (`lumos.aggregate.noise`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from lumos.aggregate import IdealAggregator, SecureAggregator
from lumos.aggregate.noise import Noise
from lumos.device.shard import Shard
from lumos.encode.mechanisms import Mechanism
from lumos.errors import InputError, ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.strict.codebook import Codebook
from lumos.strict.encoder import LOSS_SCALE
from lumos.strict.feature_rows import FeatureRows
from lumos.strict.relay import tell_neighbours
from lumos.strict.release_book import ReleaseBook, kind_of
from lumos.strict.schedule import BACKBONE, CODEBOOK, Schedule
from lumos.strict.topics import RELAY, SYMBOL
from lumos.training.adam import Adam
from lumos.training.private_data import PrivateData
from lumos.training.trainer import EpochRecord, OnEpoch
from lumos.typing import Arrays, Bytes, Doubles, Ints

TRUST_RATE = 0.05
Update = Callable[[bool], Doubles]
"""True: the vector of each hosted device; False: their sum."""


class StrictTrainer(ABC):
    """The strict trainer of one shard.

    Args:
        shard: the hosted devices.
        endpoint: where masked sums book, if they are ideal.
        private: what the devices own.
        schedule: everything public.
        symbols: the mechanism of the release.
        book: what the devices have released in earlier runs.
        control: release symbols that say nothing.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        private: PrivateData,
        schedule: Schedule,
        symbols: Mechanism,
        *,
        train: npt.NDArray[np.bool_],
        book: ReleaseBook | None = None,
        control: bool = False,
    ) -> None:
        self.shard = shard
        self.schedule = schedule
        self._book = book
        self._control = control
        self._train = train
        self._rows = FeatureRows(private.features, train)
        kind = SecureAggregator if schedule.config.train.aggregate == "secure" else IdealAggregator
        self._sums = kind(shard, endpoint, schedule.config.updates)
        self._symbols = symbols
        self.columns = np.empty(0, np.int64)
        self.released: Bytes = np.empty((len(shard), 0), np.uint8)
        """[hosted, bytes] what the devices released."""
        self.paid: Doubles = np.empty(0)
        """[hosted] what that cost them in this run."""
        self.optimisers: dict[str, Adam] = {}
        self._codebook: Codebook | None = None
        self.choice = 0

    def setup(self) -> Program[None]:
        """Agree on keys, and on the features that may be used."""
        yield from self._sums.setup()
        strict, rows = self.schedule.strict, self._rows
        if strict.protect == "holders":
            counts = yield from self._sum(
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
        """Once it is settled which features are used."""
        self._protect()
        if self.schedule.coded:
            noise = self.schedule.noise(CODEBOOK)
            spread = 0.0 if noise is None else noise.total
            size, public = self._symbols.size, self.shard.public
            limit = self.schedule.limit(CODEBOOK)
            self._codebook = Codebook(self._rows, size, public, spread, limit)
        self._begin()

    @property
    def codebook(self) -> Codebook:
        """What symbols name entries of."""
        if self._codebook is None:
            raise ProtocolError("a codebook was used before there was one")
        return self._codebook

    def _protect(self) -> None:
        """Use those features that may be used."""
        strict = self.schedule.strict
        if strict.protect == "holders":
            self._rows.keep(self.columns)
        elif strict.protect == "projection":
            self._rows.project(strict.projection, self.shard.public)

    def epochs(self, first: int, last: int, on_epoch: OnEpoch | None = None) -> Program[None]:
        """Epochs `first` + 1 … `last`; before trust, the one release."""
        for number in range(first, last):
            if number == self.schedule.before_release:
                yield from self.release()
                yield from self._learn_meaning(number)
            stage = self.schedule.stage(number)
            total = yield from self._sum(
                self._adds(stage, number), self.schedule.noise(stage), number
            )
            self._advance(stage, number, total)
            if on_epoch is not None:
                on_epoch(EpochRecord(number + 1, self._loss(stage, total), None))

    def last_epoch(self) -> int:
        """Fixed: the number of epochs is part of the noise."""
        return self.schedule.config.train.epochs

    def release(self) -> Program[None]:
        """One symbol to all neighbours. The same coins give the same symbol: it is for life."""
        owner = self.shard.owner
        self.released, self.paid = self._for_life(self._first_release())
        said = yield from tell_neighbours(
            SYMBOL, self.shard, self.released[owner], self.paid[owner]
        )
        self._receive(1, said)
        for hop in range(2, self.schedule.hops + 1):
            free = np.zeros(len(owner))
            said = yield from tell_neighbours(RELAY, self.shard, self._relayed(said, hop), free)
            self._receive(hop, said)

    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`: hear the symbols again, if they were out already. They are the same."""
        if epoch > self.schedule.before_release:
            yield from self.release()
            yield from self._relearn()

    def state(self) -> Arrays:
        """Everything that the next epochs depend on."""
        state: Arrays = {"columns": self.columns, **self._entries_known(), **self._learnt()}
        for stage, adam in self.optimisers.items():
            state |= {
                f"{stage}/weights": adam.weights,
                f"{stage}/mean": adam.mean,
                f"{stage}/square": adam.square,
                f"{stage}/steps": np.array(adam.steps),
            }
        return state

    def restore(self, state: Arrays) -> None:
        """Go on from a state."""
        if self.schedule.coded:
            self.codebook.take(state)
        self._take({name: state[name] for name in self._learnt()})
        for stage, adam in self.optimisers.items():
            adam.weights, adam.mean = state[f"{stage}/weights"], state[f"{stage}/mean"]
            adam.square, adam.steps = state[f"{stage}/square"], int(state[f"{stage}/steps"])

    @property
    @abstractmethod
    def first_width(self) -> int:
        """Numbers in the largest sum before the release."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """The trained weights by name."""

    @abstractmethod
    def _begin(self) -> None:
        """Make what is trained."""

    @abstractmethod
    def _first_release(self) -> Bytes:
        """[hosted, bytes] what the devices would say for the first time."""

    @abstractmethod
    def _relayed(self, said: Bytes, hop: int) -> Bytes:
        """[slots, bytes] what each neighbour is told of what the others said."""

    @abstractmethod
    def _receive(self, hop: int, said: Bytes) -> None:
        """[slots, bytes] what came over each slot."""

    @abstractmethod
    def _learn_meaning(self, number: int) -> Program[None]:
        """What is learnt of the symbols at once, when they are out, before epoch `number`."""

    @abstractmethod
    def _relearn(self) -> Program[None]:
        """The same after `restore`."""

    @abstractmethod
    def _learnt(self) -> Arrays:
        """What the next epochs depend on, beside the optimisers."""

    @abstractmethod
    def _take(self, learnt: Arrays) -> None:
        """Take back what `_learnt` gave."""

    @abstractmethod
    def _update(self, stage: str) -> Update:
        """What the devices add in an epoch of any stage but the codebook's."""

    @abstractmethod
    def _gradient(self, total: Doubles) -> Doubles:
        """[weights] from a sum of the backbone to its gradient."""

    def _adds(self, stage: str, number: int) -> Update:
        """What the devices add in epoch `number`."""
        if stage != CODEBOOK:
            return self._update(stage)
        epoch = self.schedule.codebook_epoch(number)
        return lambda each: self.codebook.update(epoch, each=each)

    def _advance(self, stage: str, number: int, total: Doubles) -> None:
        """Take in the sum of epoch `number`."""
        if stage == CODEBOOK:
            self.codebook.advance(self.schedule.codebook_epoch(number), total)
            return
        slope = self._gradient(total) if stage == BACKBONE else total[:-1]
        self.optimisers[stage].step(slope / self.schedule.trainers)

    def _entries_known(self) -> Arrays:
        """The codebook, where there is one."""
        return self.codebook.arrays() if self.schedule.coded else {}

    def _loss(self, stage: str, total: Doubles) -> float | None:
        """The mean loss, told as the last number of a sum."""
        return None if stage == CODEBOOK else float(total[-1] / LOSS_SCALE / self.schedule.trainers)

    def _for_life(self, said: Bytes) -> tuple[Bytes, Doubles]:
        """What each device says, and what it costs: what it said before, if it did, for nothing."""
        epsilon = self.schedule.strict.epsilon
        if self._book is None or self._control:
            return said, np.full(len(said), epsilon)
        return self._book.settle(self._kind(), self.shard.devices, epsilon, said)

    def _kind(self) -> str:
        """What tells this release from others in the book."""
        symbols, epsilon = self._symbols, self.schedule.strict.epsilon
        if not self.schedule.coded:
            return kind_of(self.schedule.task, symbols.name, symbols.size, epsilon)
        # An entry of a codebook is the same in both tasks; it is another where features are used in
        # another form.
        kept = blake2b(self.columns.astype("<i8").tobytes(), digest_size=8).hexdigest()
        form = {"projection": f"projection {self.shard.public.seed}", "holders": f"holders {kept}"}
        kind = kind_of("link", symbols.name, symbols.size, epsilon)
        return f"{kind} {form.get(self.schedule.strict.protect, '')} {self._rows.width}"

    def _entries(self) -> Ints:
        """[hosted] the nearest entries. A symbol for life names one of the codebook of its time."""
        codebook = self.codebook
        if self._book is not None and not self._control:
            codebook.take(self._book.public(self._kind(), codebook.arrays()))
        return codebook.nearest()

    def _sum(self, update: Update, noise: Noise | None, step: int) -> Program[Doubles]:
        """The sum over all devices, with noise in it."""
        if isinstance(self._sums, IdealAggregator):
            total = yield from self._sums.sum_fused(update(False))  # the coordinator adds noise
        else:
            vectors = update(True)
            if noise is not None:
                hosted, width = vectors.shape
                shares = noise.shares(self.shard.coins, hosted, width, step)
                # Rounded apart: noise must not depend on the data, not even in its rounding.
                vectors = self._sums.fixed.rounded(vectors) + self._sums.fixed.rounded(shares)
            total = yield from self._sums.sum(vectors)
        if total is None:
            raise ProtocolError("a sum was not opened: too few devices were present")
        return total

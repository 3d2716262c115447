"""What the strict trainers of both tasks share: one release, and sums. Nothing else leaves.

1. Something is learnt by sums from own features alone: an own encoder (`classify`), a codebook
   (`link`), or both (`classify` with `symbol` codebook).
2. Every device releases one symbol to all its neighbours (`lumos.encode.symbols`). Once. With a
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
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.aggregate import (
    IdealAggregator,
    IdealCoordinator,
    SecureAggregator,
    SecureCoordinator,
)
from lumos.aggregate.noise import Noise
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.encode.symbols import Symbols
from lumos.errors import InputError, ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.strict.codebook import Codebook
from lumos.strict.codebook import widths as codebook_widths
from lumos.strict.encoder import LOSS_SCALE
from lumos.strict.feature_rows import FeatureRows
from lumos.strict.relay import tell_neighbours
from lumos.strict.release_book import ReleaseBook, kind_of
from lumos.strict.schedule import BACKBONE, CHOICE, CODEBOOK, MATRIX, Schedule
from lumos.strict.topics import RELAY, SYMBOL
from lumos.training.adam import Adam
from lumos.training.epoch import EpochRecord
from lumos.training.private_data import PrivateData
from lumos.typing import Arrays, Bytes, Doubles, Ints

TRUST_RATE = 0.05
Update = Callable[[bool], Doubles]
"""True: the vector of each hosted device; False: their sum."""
Widths = Callable[[str, int], int]
"""Numbers in the sum of a stage, in an epoch."""


class StrictTrainer(ABC):
    """The strict trainer of one shard.

    Args:
        shard: the hosted devices.
        endpoint: where masked sums book, if they are ideal.
        home: what the devices own.
        plan: everything public.
        symbols: the mechanism of the release.
        book: what the devices have released in earlier runs.
        control: release symbols that say nothing.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        home: PrivateData,
        plan: Schedule,
        symbols: Symbols,
        *,
        train: npt.NDArray[np.bool_],
        book: ReleaseBook | None = None,
        control: bool = False,
    ) -> None:
        self.shard = shard
        self.plan = plan
        self._book = book
        self._control = control
        self._train = train
        self._rows = FeatureRows(home.features, train)
        kind = SecureAggregator if plan.config.train.aggregate == "secure" else IdealAggregator
        self._sums = kind(shard, endpoint, plan.config.updates)
        self._symbols = symbols
        self.columns = np.empty(0, np.int64)
        self.said: Bytes = np.empty((len(shard), 0), np.uint8)
        """[hosted, bytes] what the devices released."""
        self.paid: Doubles = np.empty(0)
        """[hosted] what that cost them in this run."""
        self.optimisers: dict[str, Adam] = {}
        self._codebook: Codebook | None = None
        self.choice = 0

    def setup(self) -> Program[None]:
        """Agree on keys, and on the features that may be used."""
        yield from self._sums.setup()
        strict, rows = self.plan.strict, self._rows
        if strict.protect == "holders":
            counts = yield from self._sum(
                lambda each: rows.holders() if each else rows.holder_counts(), None, 0
            )
            self.columns = np.flatnonzero(counts >= strict.min_holders - 0.5)
            if not len(self.columns):
                raise InputError(
                    f"no feature has {strict.min_holders} holders among the training "
                    "devices; lower --min-holders or choose another --protect"
                )
        self._prepare()

    def _prepare(self) -> None:
        """Once it is settled which features are used."""
        self._protect()
        if self.plan.coded:
            noise = self.plan.noise(CODEBOOK)
            spread = 0.0 if noise is None else noise.total
            size, public = self._symbols.size, self.shard.public
            limit = self.plan.limit(CODEBOOK)
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
        strict = self.plan.strict
        if strict.protect == "holders":
            self._rows.keep(self.columns)
        elif strict.protect == "projection":
            self._rows.project(strict.projection, self.shard.public)

    def epochs(
        self, first: int, last: int, told: Callable[[EpochRecord], None] | None = None
    ) -> Program[None]:
        """Epochs `first` + 1 … `last`; before trust, the one release."""
        for number in range(first, last):
            if number == self.plan.before_release:
                yield from self.release()
                yield from self._learn_meaning(number)
            stage = self.plan.stage(number)
            total = yield from self._sum(self._adds(stage, number), self.plan.noise(stage), number)
            self._advance(stage, number, total)
            if told is not None:
                told(EpochRecord(number + 1, self._loss(stage, total), None))

    def release(self) -> Program[None]:
        """One symbol to all neighbours. The same coins give the same symbol: it is for life."""
        owner = self.shard.owner
        self.said, self.paid = self._for_life(self._released())
        said = yield from tell_neighbours(SYMBOL, self.shard, self.said[owner], self.paid[owner])
        self._hear(1, said)
        for hop in range(2, self.plan.hops + 1):
            free = np.zeros(len(owner))
            said = yield from tell_neighbours(RELAY, self.shard, self._relayed(said, hop), free)
            self._hear(hop, said)

    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`: hear the symbols again, if they were out already. They are the same."""
        if epoch > self.plan.before_release:
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
        if self.plan.coded:
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
    def finish(self) -> Program[Any]:
        """Let validation choose; return what the observer may see."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """The trained weights by name."""

    @abstractmethod
    def _begin(self) -> None:
        """Make what is trained."""

    @abstractmethod
    def _released(self) -> Bytes:
        """[hosted, bytes] what the devices would say for the first time."""

    @abstractmethod
    def _relayed(self, said: Bytes, hop: int) -> Bytes:
        """[slots, bytes] what each neighbour is told of what the others said."""

    @abstractmethod
    def _hear(self, hop: int, said: Bytes) -> None:
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
        epoch = self.plan.codebook_epoch(number)
        return lambda each: self.codebook.update(epoch, each=each)

    def _advance(self, stage: str, number: int, total: Doubles) -> None:
        """Take in the sum of epoch `number`."""
        if stage == CODEBOOK:
            self.codebook.advance(self.plan.codebook_epoch(number), total)
            return
        slope = self._gradient(total) if stage == BACKBONE else total[:-1]
        self.optimisers[stage].step(slope / self.plan.trainers)

    def _entries_known(self) -> Arrays:
        """The codebook, where there is one."""
        return self.codebook.arrays() if self.plan.coded else {}

    def _loss(self, stage: str, total: Doubles) -> float | None:
        """The mean loss, told as the last number of a sum."""
        return None if stage == CODEBOOK else float(total[-1] / LOSS_SCALE / self.plan.trainers)

    def _for_life(self, said: Bytes) -> tuple[Bytes, Doubles]:
        """What each device says, and what it costs: what it said before, if it did, for nothing."""
        epsilon = self.plan.config.encoder.epsilon
        if self._book is None or self._control:
            return said, np.full(len(said), epsilon)
        return self._book.settle(self._kind(), self.shard.devices, epsilon, said)

    def _kind(self) -> str:
        """What tells this release from others in the book."""
        symbols, epsilon = self._symbols, self.plan.config.encoder.epsilon
        if not self.plan.coded:
            return kind_of(self.plan.task, symbols.mechanism, symbols.size, epsilon)
        # An entry of a codebook is the same in both tasks; it is another where features are used in
        # another form.
        kept = blake2b(self.columns.astype("<i8").tobytes(), digest_size=8).hexdigest()
        form = {"projection": f"projection {self.shard.public.seed}", "holders": f"holders {kept}"}
        kind = kind_of("link", symbols.mechanism, symbols.size, epsilon)
        return f"{kind} {form.get(self.plan.strict.protect, '')} {self._rows.width}"

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


def with_codebook(known: dict[str, int], plan: Schedule, used: int, size: int) -> Widths:
    """Numbers in every sum: those known, and of the codebook, whose first sum is a narrow one."""
    first, further = codebook_widths(used, size)

    def width(stage: str, epoch: int) -> int:
        if stage != CODEBOOK:
            return known[stage]
        return further if plan.codebook_epoch(epoch) else first

    return width


class StrictCoordinator:
    """The coordinator's part: it adds up, and in an ideal sum stands for the devices' noise.

    Args:
        plan: everything public.
        public: public coins.
        endpoint: where masked sums book, if they are ideal.
        features: d.
        widths: made from the number of features that are used.
        arm: whose coins an ideal sum tosses.
    """

    def __init__(
        self,
        plan: Schedule,
        public: PublicCoins,
        endpoint: Endpoint,
        features: int,
        widths: Callable[[int], Widths],
        arm: str = "",
    ) -> None:
        self._plan = plan
        self._noise = f"ideal noise{arm}"
        self._public = public
        self._features = features
        kind = SecureCoordinator if plan.config.train.aggregate == "secure" else IdealCoordinator
        self._sums = kind(plan.devices, public, endpoint, plan.config.updates)
        self._widths_of = widths
        self._widths = widths(features)

    def setup(self) -> Program[None]:
        """Count holders, where they are counted."""
        protect = self._plan.strict.protect
        used = self._features
        if protect == "holders":
            counts = yield from self._sums.sum(self._features)
            if counts is not None:
                used = int((counts >= self._plan.strict.min_holders - 0.5).sum())
        elif protect == "projection":
            used = self._plan.strict.projection
        self._widths = self._widths_of(used)

    def epochs(self, first: int, last: int) -> Program[None]:
        """One sum per epoch, and one for what symbols mean."""
        for number in range(first, last):
            if number == self._plan.before_release:
                yield from self._sum(MATRIX, -1 - number)
            yield from self._sum(self._plan.stage(number), number)

    def finish(self) -> Program[None]:
        """The sum of votes."""
        yield from self._sum(CHOICE, self._plan.config.train.epochs)

    def _sum(self, stage: str, step: int) -> Program[None]:
        width, noise = self._widths(stage, step), self._plan.noise(stage)
        if isinstance(self._sums, IdealCoordinator) and noise is not None:
            generator = self._public.generator(self._noise, step)
            if self._plan.config.train.coins == "system":
                generator = np.random.default_rng()  # from the operating system
            drawn = generator.standard_normal(width)
            yield from self._sums.sum(width, noise.total * drawn)
        else:
            yield from self._sums.sum(width)

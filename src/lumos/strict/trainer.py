"""What the strict trainers of both tasks share: one release, and sums. Nothing else leaves.

1. Sums over own features alone train an own encoder (`classify`), a codebook (`link`), or both
   (`classify` with `symbol='codebook'`).
2. Every device releases one symbol to all its neighbours (`lumos.encode.mechanisms`). Once. With a
   relay, symbols travel further.
3. Sums train a few weights on the neighbours' symbols (trust), then a tree network on symbols
   (backbone).
4. Validation chooses, by one sum, whether neighbours count at all: never worse than own features
   only, up to one standard error.

Sums are masked (`lumos.aggregate`), and by default carry noise that the devices draw themselves
(`lumos.aggregate.noise`).
"""

from abc import ABC, abstractmethod
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from lumos.device.shard import Shard
from lumos.encode.mechanisms import Mechanism
from lumos.errors import InputError, ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.strict.codebook import Codebook
from lumos.strict.feature_rows import FeatureRows
from lumos.strict.noisy_sums import NoisySums, Update
from lumos.strict.own_classifier import LOSS_SCALE
from lumos.strict.relay import send_to_neighbours
from lumos.strict.release_book import ReleaseBook, kind_of
from lumos.strict.schedule import BACKBONE, CODEBOOK, Schedule
from lumos.strict.topics import RELAY, SYMBOL
from lumos.training.adam import Adam
from lumos.training.private_data import PrivateData
from lumos.training.trainer import EpochRecord, OnEpoch
from lumos.typing import Arrays, Bytes, Doubles, Ints

TRUST_RATE = 0.05


class StrictTrainer(ABC):
    """The strict trainer of one shard.

    Args:
        shard: the hosted devices.
        endpoint: whose ledger ideal sums are booked in.
        private: private data of the devices.
        schedule: everything public about the run.
        symbols: the mechanism of the release.
        train: [hosted] whether the features of the device enter sums.
        book: the releases of earlier runs.
        control: release symbols that depend on no data.
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
        self._sums = NoisySums(shard, endpoint, schedule.config)
        self._symbols = symbols
        self.columns = np.empty(0, np.int64)
        self.released: Bytes = np.empty((len(shard), 0), np.uint8)
        """[hosted, bytes]"""
        self.paid: Doubles = np.empty(0)
        """[hosted] ε that the release costs in this run."""
        self.optimisers: dict[str, Adam] = {}
        self._codebook: Codebook | None = None
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
        """The codebook that symbols index."""
        if self._codebook is None:
            raise ProtocolError("the codebook was used before it was made")
        return self._codebook

    def _protect(self) -> None:
        """Restrict or project the features, as `protect` says."""
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
                yield from self._learn_symbols(number)
            stage = self.schedule.stage(number)
            total = yield from self._sums.sum(
                self._stage_update(stage, number), self.schedule.noise(stage), number
            )
            self._advance(stage, number, total)
            if on_epoch is not None:
                on_epoch(EpochRecord(number + 1, self._loss(stage, total), None))

    def last_epoch(self) -> int:
        """Fixed: the number of epochs is part of the noise."""
        return self.schedule.config.train.epochs

    def release(self) -> Program[None]:
        """Send one symbol to all neighbours, then relay. The same coins give the same symbol."""
        owner = self.shard.owner
        self.released, self.paid = self._settle(self._first_release())
        received = yield from send_to_neighbours(
            SYMBOL, self.shard, self.released[owner], self.paid[owner]
        )
        self._receive(1, received)
        for hop in range(2, self.schedule.hops + 1):
            free = np.zeros(len(owner))
            messages = self._relayed(received, hop)
            received = yield from send_to_neighbours(RELAY, self.shard, messages, free)
            self._receive(hop, received)

    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`: repeat the release, if it was made already. The symbols are the same."""
        if epoch > self.schedule.before_release:
            yield from self.release()
            yield from self._prepare_inputs()

    def state(self) -> Arrays:
        """Everything that the next epochs depend on."""
        state: Arrays = {"columns": self.columns, **self._codebook_arrays(), **self._learnt()}
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
            self.codebook.load(state)
        self._load_learnt({name: state[name] for name in self._learnt()})
        for stage, adam in self.optimisers.items():
            adam.weights, adam.mean = state[f"{stage}/weights"], state[f"{stage}/mean"]
            adam.square, adam.steps = state[f"{stage}/square"], int(state[f"{stage}/steps"])

    @property
    @abstractmethod
    def first_width(self) -> int:
        """Width of the largest sum before the release."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """The trained weights by name."""

    @abstractmethod
    def _begin(self) -> None:
        """Build models and optimisers."""

    @abstractmethod
    def _first_release(self) -> Bytes:
        """[hosted, bytes] the releases of devices that have made none of this kind before."""

    @abstractmethod
    def _relayed(self, received: Bytes, hop: int) -> Bytes:
        """[slots, bytes] messages of a hop, from those received in the hop before."""

    @abstractmethod
    def _receive(self, hop: int, messages: Bytes) -> None:
        """Store the messages [slots, bytes] of a hop."""

    @abstractmethod
    def _learn_symbols(self, number: int) -> Program[None]:
        """The sum over symbols right after the release, before epoch `number`."""

    @abstractmethod
    def _prepare_inputs(self) -> Program[None]:
        """Compute the inputs of trust and backbone, after the release is made or repeated."""

    @abstractmethod
    def _learnt(self) -> Arrays:
        """What the next epochs depend on, beside the codebook and the optimisers."""

    @abstractmethod
    def _load_learnt(self, learnt: Arrays) -> None:
        """Set what `_learnt` returned."""

    @abstractmethod
    def _update(self, stage: str) -> Update:
        """The devices' vectors in an epoch of any stage but the codebook's."""

    @abstractmethod
    def _gradient(self, total: Doubles) -> Doubles:
        """[weights] gradient of the backbone, from a sum of its stage."""

    def _stage_update(self, stage: str, number: int) -> Update:
        """The devices' vectors in epoch `number`."""
        if stage != CODEBOOK:
            return self._update(stage)
        epoch = self.schedule.codebook_epoch(number)
        return lambda each: self.codebook.update(epoch, each=each)

    def _advance(self, stage: str, number: int, total: Doubles) -> None:
        """Update the model of a stage from the sum of epoch `number`."""
        if stage == CODEBOOK:
            self.codebook.advance(self.schedule.codebook_epoch(number), total)
            return
        slope = self._gradient(total) if stage == BACKBONE else total[:-1]
        self.optimisers[stage].step(slope / self.schedule.training_devices)

    def _codebook_arrays(self) -> Arrays:
        """The codebook; empty where there is none."""
        return self.codebook.arrays() if self.schedule.coded else {}

    def _loss(self, stage: str, total: Doubles) -> float | None:
        """The mean loss, which is the last number of a sum."""
        return (
            None
            if stage == CODEBOOK
            else float(total[-1] / LOSS_SCALE / self.schedule.training_devices)
        )

    def _settle(self, first: Bytes) -> tuple[Bytes, Doubles]:
        """[hosted, bytes] releases and [hosted] their ε.

        Reusing an earlier release costs no further ε; a new one is charged.

        Args:
            first: [hosted, bytes] see `_first_release`.
        """
        epsilon = self.schedule.strict.epsilon
        if self._book is None or self._control:
            return first, np.full(len(first), epsilon)
        return self._book.settle(self._kind(), self.shard.devices, epsilon, first)

    def _kind(self) -> str:
        """The kind of this release in the book."""
        symbols, epsilon = self._symbols, self.schedule.strict.epsilon
        if not self.schedule.coded:
            return kind_of(self.schedule.task, symbols.name, symbols.size, epsilon)
        # Both tasks share releases of codebook entries, as long as features are used in one form.
        kept = blake2b(self.columns.astype("<i8").tobytes(), digest_size=8).hexdigest()
        form = {"projection": f"projection {self.shard.public.seed}", "holders": f"holders {kept}"}
        kind = kind_of("link", symbols.name, symbols.size, epsilon)
        return f"{kind} {form.get(self.schedule.strict.protect, '')} {self._rows.width}"

    def _entries(self) -> Ints:
        """[hosted] the nearest entries; with a book, of the codebook that its symbols index."""
        codebook = self.codebook
        if self._book is not None and not self._control:
            codebook.load(self._book.public(self._kind(), codebook.arrays()))
        return codebook.nearest()

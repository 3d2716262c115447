"""Trainers whose symbol is an entry of a codebook: learnt by sums, released once, then relayed."""

from abc import abstractmethod
from hashlib import blake2b

import numpy as np

from lumos.device.shard import Shard
from lumos.encode.mechanisms import Mechanism
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.strict.codebook import Codebook
from lumos.strict.feature_rows import FeatureRows
from lumos.strict.link_schedule import BACKBONE, CODEBOOK, LinkSchedule
from lumos.strict.noisy_sums import Update
from lumos.strict.own_classifier import LOSS_SCALE
from lumos.strict.relay import send_to_neighbours
from lumos.strict.release_book import ReleaseBook, kind_of
from lumos.strict.topics import RELAY, SYMBOL
from lumos.strict.trainer import StrictTrainer
from lumos.training.adam import Adam
from lumos.typing import Arrays, Bytes, Doubles, Ints

TRUST_RATE = 0.05


class CodedTrainer(StrictTrainer):
    """A strict trainer whose devices release entries of a codebook.

    Args:
        symbols: the mechanism of the release.
        book: the releases of earlier runs.
        others: those of `StrictTrainer`.
    """

    schedule: LinkSchedule

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        rows: FeatureRows,
        schedule: LinkSchedule,
        symbols: Mechanism,
        *,
        book: ReleaseBook | None = None,
        control: bool = False,
    ) -> None:
        super().__init__(shard, endpoint, rows, schedule, control=control)
        self._symbols = symbols
        self._book = book
        self.released: Bytes = np.empty((len(shard), 0), np.uint8)
        """[hosted, bytes]"""
        self.paid: Doubles = np.empty(0)
        """[hosted] ε that the release costs in this run."""
        self.optimisers: dict[str, Adam] = {}
        self._codebook: Codebook | None = None

    def _begin(self) -> None:
        noise = self.schedule.noise(CODEBOOK)
        spread = 0.0 if noise is None else noise.total
        limit = self.schedule.limit(CODEBOOK)
        size, public = self._symbols.size, self.shard.public
        self._codebook = Codebook(self._rows, size, public, spread, limit)

    @property
    def codebook(self) -> Codebook:
        """The codebook that symbols index."""
        if self._codebook is None:
            raise ProtocolError("the codebook was used before it was made")
        return self._codebook

    def _before(self, number: int) -> Program[None]:
        if number == self.schedule.before_release:
            yield from self.release()
            yield from self._learn_symbols(number)

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
        state: Arrays = {"columns": self.columns, **self.codebook.arrays(), **self._learnt()}
        for stage, adam in self.optimisers.items():
            state |= adam.state(stage)
        return state

    def restore(self, state: Arrays) -> None:
        """Go on from a state."""
        self.codebook.load(state)
        self._load_learnt({name: state[name] for name in self._learnt()})
        for stage, adam in self.optimisers.items():
            adam.restore(state, stage)

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
    def _stage_update(self, stage: str) -> Update:
        """The devices' vectors in an epoch of any stage but the codebook's."""

    @abstractmethod
    def _gradient(self, total: Doubles) -> Doubles:
        """[weights] gradient of the backbone, from a sum of its stage."""

    def _update(self, stage: str, number: int) -> Update:
        if stage != CODEBOOK:
            return self._stage_update(stage)
        epoch = self.schedule.step(number)
        return lambda each: self.codebook.update(epoch, each=each)

    def _advance(self, stage: str, number: int, total: Doubles) -> float | None:
        if stage == CODEBOOK:
            self.codebook.advance(self.schedule.step(number), total)
            return None
        slope = self._gradient(total) if stage == BACKBONE else total[:-1]
        self.optimisers[stage].step(slope / self.schedule.devices)
        return float(total[-1] / LOSS_SCALE / self.schedule.devices)

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
        """The kind of this release in the book: entries of features used in one form."""
        symbols, epsilon = self._symbols, self.schedule.strict.epsilon
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

"""The strict trainer of one shard: one release, and sums. Nothing else leaves a device.

1. The own encoder is trained (`encoder`): updates enter sums, its answer stays home.
2. Every device releases one symbol to all its neighbours (`lumos.encode.symbols`): its label if it
   trains, what its encoder says otherwise. Once.
3. What the neighbours' symbols mean is learnt by sums (`evidence`), then a tree network on symbols
   (`correction`), computed at home.
4. Validation devices choose, by one sum, whether neighbours count at all: never worse than alone,
   up to one standard error.

Sums are masked (`lumos.aggregate`), and by default carry noise that is drawn by the devices
themselves (`lumos.aggregate.noise`).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

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
from lumos.strict.book import Book, kind_of
from lumos.strict.correction import Correction, Known
from lumos.strict.encoder import LOSS_SCALE, Encoder
from lumos.strict.evidence import DAMPING, Heard, Trust, matrix_update, ratios
from lumos.strict.plan import BACKBONE, CANDIDATES, CHOICE, ENCODER, MATRIX, TRUST, Plan
from lumos.strict.relay import Bits, pads, relayed, tell_neighbours
from lumos.strict.topics import RELAY, SYMBOL
from lumos.training.adam import Adam
from lumos.training.epoch import Epoch
from lumos.training.folder import Arrays
from lumos.training.home import Home
from lumos.training.split import Role

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TRUST_RATE = 0.05
Update = Callable[[bool], Doubles]
"""True: the vector of each hosted device; False: their sum."""


class StrictResult(NamedTuple):
    """What the observer collects from one shard."""

    logits: npt.NDArray[np.float32]
    """[hosted, k] final."""
    own: npt.NDArray[np.float32]
    """[hosted, k] of the own encoder."""


class StrictWorker:
    """The strict trainer of one shard.

    Args:
        shard: the hosted devices.
        endpoint: where masked sums book, if they are ideal.
        home: what the devices own.
        plan: everything public.
        classes: k.
        book: what the devices have released in earlier runs.
        control: release symbols that say nothing.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        home: Home,
        plan: Plan,
        classes: int,
        *,
        book: Book | None = None,
        control: bool = False,
    ) -> None:
        self.shard = shard
        self.plan = plan
        self._book = book
        self.classes = classes
        self._labels = home.labels
        self._train = home.roles == Role.TRAIN
        self._validate = home.roles == Role.VALIDATION
        self._control = control
        self._encoder = Encoder(home.features, home.labels, self._train, classes)
        kind = SecureAggregator if plan.config.train.aggregate == "secure" else IdealAggregator
        self._sums = kind(shard, endpoint, plan.config.updates)
        self._symbols = Symbols.of(classes, plan.config.encoder.epsilon, plan.strict.mechanism)
        generator = shard.public.generator("weights")
        self._correction = Correction(plan.config.model, classes, generator)
        self._heard: list[Heard] = []
        self._trust: Trust | None = None
        self._known: Known | None = None
        self.columns = np.empty(0, np.int64)
        self.optimisers: dict[str, Adam] = {}
        self.matrix = np.zeros(plan.strict.hops * classes * classes)
        self.choice = 0

    @property
    def encoder_width(self) -> int:
        """Number of weights of the own encoder."""
        return self._encoder.weights

    def setup(self) -> Program[None]:
        """Agree on keys, and on the features that the encoder may use."""
        yield from self._sums.setup()
        protect = self.plan.strict.protect
        if protect == "holders":
            encoder = self._encoder
            counts = yield from self._sum(
                lambda each: encoder.holders() if each else encoder.holder_counts(), None, 0
            )
            self.columns = np.flatnonzero(counts >= self.plan.strict.min_holders - 0.5)
            if not len(self.columns):
                raise InputError(
                    f"no feature has {self.plan.strict.min_holders} holders among the training "
                    "devices; lower --min-holders or choose another --protect"
                )
            encoder.keep(self.columns)
        elif protect == "projection":
            self._encoder.project(self.plan.strict.projection, self.shard.public)
        strict, train = self.plan.strict, self.plan.config.train
        self.optimisers = {
            ENCODER: Adam(np.zeros(self._encoder.weights), strict.encoder_rate),
            TRUST: Adam(np.empty(0), TRUST_RATE),
            BACKBONE: Adam(self._correction.vector(), train.learning_rate, train.weight_decay),
        }

    def epochs(
        self, first: int, last: int, told: Callable[[Epoch], None] | None = None
    ) -> Program[None]:
        """Epochs `first` + 1 … `last`; between encoder and trust, the one release."""
        for number in range(first, last):
            stage = self.plan.stage(number)
            if number == self.plan.strict.encoder_epochs:
                yield from self.release()
                yield from self._learn_matrix(number)
            update, advance = self._part(stage)
            total = yield from self._sum(update, self.plan.noise(stage), number)
            optimiser = self.optimisers[stage]
            optimiser.step(advance(total) / self.plan.trainers)
            if told is not None:
                loss = float(total[-1] / LOSS_SCALE / self.plan.trainers)
                told(Epoch(number + 1, loss, None))

    def finish(self) -> Program[StrictResult]:
        """Let validation devices choose; return what the observer may see."""
        own = self._own()
        known = self._knowledge()
        self._correction.load(self.optimisers[BACKBONE].weights)
        candidates = [own, known.own, self._correction.logits(known)]
        right = np.stack([c.argmax(axis=1) == self._labels for c in candidates], axis=1)
        changed = right[:, 1:] != right[:, :1]
        votes = np.concatenate([right, changed], axis=1) * self._validate[:, None]
        votes = votes.astype(np.float64)
        total = yield from self._sum(
            lambda each: votes if each else votes.sum(axis=0),
            self.plan.noise(CHOICE),
            self.plan.config.train.epochs,
        )
        noise = self.plan.noise(CHOICE)
        spread = 0.0 if noise is None else noise.total
        self.choice = choose(total[:CANDIDATES], total[CANDIDATES:], spread)
        return StrictResult(candidates[self.choice].astype(np.float32), own.astype(np.float32))

    def release(self) -> Program[None]:
        """One symbol to all neighbours. The same coins give the same symbol: it is for life."""
        shard = self.shard
        everyone = np.arange(len(shard))
        symbols = self._own().argmax(axis=1)
        if self.plan.strict.trainers_say == "label":
            symbols = np.where(self._train, self._labels, symbols)
        if self._control:
            chance = shard.coins.uniform(everyone, "control", 0)[:, 0]
            symbols = np.floor(chance * self.classes).astype(np.int64)
        coins = shard.coins.words(everyone, "symbol", 0, self._symbols.coins)
        said, paid = self._for_life(self._symbols.release(symbols, coins))
        owner = shard.owner
        said = yield from tell_neighbours(SYMBOL, shard, said[owner], paid[owner])
        self._heard = [self._listen(said)]
        for hop in range(2, self.plan.strict.hops + 1):
            free = np.zeros(len(shard.owner))
            said = yield from tell_neighbours(RELAY, shard, self._relayed(said, hop), free)
            self._heard.append(self._listen(said))

    def _for_life(self, said: Bits) -> tuple[Bits, Doubles]:
        """What each device says, and what it costs: what it said before, if it did, for nothing."""
        epsilon = self.plan.config.encoder.epsilon
        if self._book is None or self._control:
            return said, np.full(len(said), epsilon)
        train, symbols = self.plan.config.train, self._symbols
        kind = kind_of(train.task, symbols.mechanism, symbols.size, epsilon)
        return self._book.settle(kind, self.shard.devices, epsilon, said)

    def _listen(self, said: Bits) -> Heard:
        return Heard(self._symbols.read(said), self.shard.owner, len(self.shard))

    def _relayed(self, said: Bits, hop: int) -> Bits:
        """What each neighbour is told of what the others said: one draw, made once per run.

        Never what came from the receiver itself; `PADS` made-up symbols are in every pool, so a
        device of degree 1 tells nothing but those.
        """
        made = pads(self.shard, self._symbols, hop)
        return relayed(self.shard, said, made, hop)

    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`: hear the symbols again, if they were out already. They are the same."""
        if epoch > self.plan.strict.encoder_epochs:
            yield from self.release()
            self._weigh()

    def state(self) -> Arrays:
        """Everything that the next epochs depend on."""
        state: Arrays = {
            "matrix": self.matrix,
            "columns": self.columns,
        }
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
        self.matrix = state["matrix"]
        for stage, adam in self.optimisers.items():
            adam.weights, adam.mean = state[f"{stage}/weights"], state[f"{stage}/mean"]
            adam.square, adam.steps = state[f"{stage}/square"], int(state[f"{stage}/steps"])

    def arrays(self) -> Arrays:
        """The trained weights by name."""
        return {
            "encoder": self.optimisers[ENCODER].weights.reshape(-1, self.classes),
            "encoder_columns": self.columns,
            "evidence": ratios(self.matrix, self.classes),
            "trust": self.optimisers[TRUST].weights,
            "backbone": self.optimisers[BACKBONE].weights,
            "choice": np.array(self.choice),
        }

    def _own(self) -> Doubles:
        return self._encoder.logits(self.optimisers[ENCODER].weights)

    def _learn_matrix(self, number: int) -> Program[None]:
        shares = np.stack([heard.shares() for heard in self._known_heard()], axis=1)
        self.matrix = yield from self._sum(
            lambda each: matrix_update(shares, self._labels, self._train, each=each),
            self.plan.noise(MATRIX),
            -1 - number,
        )
        self._weigh()
        if self._trust is not None:
            self.optimisers[TRUST] = Adam(self._trust.start(), TRUST_RATE)

    def _weigh(self) -> None:
        self._trust = Trust(self._own(), self._known_heard(), ratios(self.matrix, self.classes))

    def _known_heard(self) -> list[Heard]:
        if not self._heard:
            raise ProtocolError("symbols were used before they were released")
        return self._heard

    def _knowledge(self) -> Known:
        """What the tree network works on; fixed once trust is trained."""
        if self._trust is None:
            raise ProtocolError("evidence was used before it was learnt")
        heard = self._known_heard()[0]
        base = self._trust.logits(self.optimisers[TRUST].weights)
        return Known(base, self._own().argmax(axis=1), heard.shares(), heard.degree)

    def _part(self, stage: str) -> tuple[Update, Callable[[Doubles], Doubles]]:
        """The update of a stage, and how a sum of updates becomes a gradient."""
        weights, clip = self.optimisers[stage].weights, self.plan.limit(stage)
        if stage == ENCODER:
            encoder = self._encoder
            return lambda each: encoder.update(weights, clip, each=each), _without_loss
        labels, train = self._labels, self._train
        if stage == TRUST and self._trust is not None:
            trust = self._trust
            return (
                lambda each: trust.update(weights, labels, train, clip, each=each),
                _without_loss,
            )
        if self._known is None:
            self._known = self._knowledge()
        known, correction = self._known, self._correction
        correction.load(weights)
        return (
            lambda each: correction.update(known, labels, train, clip, each=each),
            correction.gradient,
        )

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


class StrictCoordinator:
    """The coordinator's part: it adds up, and in an ideal sum stands for the devices' noise."""

    def __init__(
        self,
        plan: Plan,
        public: PublicCoins,
        endpoint: Endpoint,
        features: int,
        classes: int,
        arm: str = "",
    ) -> None:
        self._plan = plan
        self._noise = f"ideal noise{arm}"
        self._public = public
        self._features = features
        self._classes = classes
        kind = SecureCoordinator if plan.config.train.aggregate == "secure" else IdealCoordinator
        self._sums = kind(plan.devices, public, endpoint, plan.config.updates)
        backbone = Correction(plan.config.model, classes, public.generator("weights"))
        self._widths = {
            ENCODER: (features + 1) * classes + 1,
            MATRIX: plan.strict.hops * classes**2,
            TRUST: 1 + len(DAMPING) * plan.strict.hops + classes + 1,
            BACKBONE: backbone.width,
            CHOICE: 2 * CANDIDATES - 1,
        }

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
        self._widths[ENCODER] = (used + 1) * self._classes + 1

    def epochs(self, first: int, last: int) -> Program[None]:
        """One sum per epoch, and one for the matrix."""
        for number in range(first, last):
            if number == self._plan.strict.encoder_epochs:
                yield from self._sum(MATRIX, -1 - number)
            yield from self._sum(self._plan.stage(number), number)

    def finish(self) -> Program[None]:
        """The sum of votes."""
        yield from self._sum(CHOICE, self._plan.config.train.epochs)

    def _sum(self, stage: str, step: int) -> Program[None]:
        width, noise = self._widths[stage], self._plan.noise(stage)
        if isinstance(self._sums, IdealCoordinator) and noise is not None:
            generator = self._public.generator(self._noise, step)
            if self._plan.config.trees.coins == "system":
                generator = np.random.default_rng()  # from the operating system
            drawn = generator.standard_normal(width)
            yield from self._sums.sum(width, noise.total * drawn)
        else:
            yield from self._sums.sum(width)


def choose(right: Doubles, changed: Doubles, noise: float = 0.0) -> int:
    """The best candidate, if it beats the own answer by more than one standard error.

    Args:
        right: [candidates] validation devices that are right; the own answer first.
        changed: [candidates - 1] devices for which right and wrong differ from the own answer: the
            difference of two counts has the standard error of their root.
        noise: standard deviation of the noise in each count.
    """
    best = int(np.argmax(right))
    error = math.sqrt(max(1.0, changed[best - 1]) + 2 * noise**2)
    if best and right[best] - right[0] > error:
        return best
    return 0


def _without_loss(total: Doubles) -> Doubles:
    return total[:-1]

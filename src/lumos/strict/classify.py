"""The strict trainer of `classify`.

Training devices release their label, all others what their own encoder says; by choice,
everybody the nearest entry of a codebook (`--symbol codebook`). What neighbours'
symbols say of a class is learnt by sums (`evidence`), then a tree network on symbols
(`correction`), computed at home.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.encode.mechanisms import AUTO, Mechanism, make_mechanism
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger_report import LedgerReport
from lumos.strict.coordinator import Widths, with_codebook
from lumos.strict.encoder import Encoder
from lumos.strict.likelihood import DAMPING, ReceivedSymbols, Trust, matrix_update, ratios
from lumos.strict.promises import CHOICES, caution, promises, reading
from lumos.strict.relay import pads, relayed
from lumos.strict.release_book import ReleaseBook
from lumos.strict.residual_head import ResidualHead, ResidualInput
from lumos.strict.schedule import BACKBONE, CANDIDATES, CHOICE, ENCODER, MATRIX, TRUST, Schedule
from lumos.strict.trainer import TRUST_RATE, StrictTrainer, Update
from lumos.training.adam import Adam
from lumos.training.outcome import MAIN, OWN, Outcome
from lumos.training.private_data import PrivateData
from lumos.training.split import Role
from lumos.typing import Arrays, Bytes, Doubles, Floats, Ints


class ClassifyResult(NamedTuple):
    """What the observer collects from one shard."""

    logits: npt.NDArray[np.float32]
    """[hosted, k] final."""
    own: npt.NDArray[np.float32]
    """[hosted, k] of the own encoder."""
    released: Bytes
    """[hosted, bytes] what the devices released."""

    @classmethod
    def joined(cls, parts: "Sequence[ClassifyResult]", order: Ints) -> "ClassifyResult":
        """Of all shards, in the order of the devices."""
        whole = (np.concatenate(rows)[order] for rows in zip(*parts, strict=True))
        return ClassifyResult(*whole)


class StrictClassifier(StrictTrainer):
    """The strict trainer of one shard, for labels.

    Args:
        classes: k.
        others: those of `StrictTrainer`.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        private: PrivateData,
        schedule: Schedule,
        classes: int,
        *,
        book: ReleaseBook | None = None,
        control: bool = False,
    ) -> None:
        symbols = symbols_of(schedule, classes)
        train = private.roles == Role.TRAIN
        super().__init__(
            shard, endpoint, private, schedule, symbols, train=train, book=book, control=control
        )
        self.classes = classes
        self._labels = private.labels
        self._validate = private.roles == Role.VALIDATION
        generator = shard.public.generator("weights")
        self._correction = ResidualHead(schedule.config.model, classes, symbols.alphabet, generator)
        self._heard: list[ReceivedSymbols] = []
        self._trust: Trust | None = None
        self._known: ResidualInput | None = None
        self._log_ratios: Doubles | None = None
        self._before: Bytes = np.empty((0, symbols.width), np.uint8)
        self.matrix = np.zeros(schedule.hops * classes * symbols.alphabet)

    @property
    def first_width(self) -> int:
        """Number of weights of the own encoder, or of numbers in the codebook if they are more."""
        coded = self.codebook.entries.size if self.schedule.coded else 0
        return max(self._encoder.weights, int(coded))

    def _begin(self) -> None:
        self._encoder = Encoder(self._rows, self._labels, self.classes)
        strict, train = self.schedule.strict, self.schedule.config.train
        self.optimisers = {
            ENCODER: Adam(np.zeros(self._encoder.weights), strict.encoder_rate),
            TRUST: Adam(np.empty(0), TRUST_RATE),
            BACKBONE: Adam(self._correction.vector(), train.learning_rate, train.weight_decay),
        }

    def finish(self) -> Program[ClassifyResult]:
        """Let validation devices choose; return what the observer may see."""
        candidates = self._candidates()
        right = np.stack([c.argmax(axis=1) == self._labels for c in candidates], axis=1)
        changed = right[:, 1:] != right[:, :1]
        votes = np.concatenate([right, changed], axis=1) * self._validate[:, None]
        votes = votes.astype(np.float64)
        total = yield from self._sum(
            lambda each: votes if each else votes.sum(axis=0),
            self.schedule.noise(CHOICE),
            self.schedule.config.train.epochs,
        )
        noise = self.schedule.noise(CHOICE)
        spread = 0.0 if noise is None else noise.total
        self.choice = choose(total[:CANDIDATES], total[CANDIDATES:], spread)
        final = candidates[self.choice].astype(np.float32)
        return ClassifyResult(final, candidates[0].astype(np.float32), self.released)

    def arrays(self) -> Arrays:
        """The trained weights by name."""
        return {
            "encoder": self.optimisers[ENCODER].weights.reshape(-1, self.classes),
            "encoder_columns": self.columns,
            "evidence": self._ratios(),
            "trust": self.optimisers[TRUST].weights,
            "backbone": self.optimisers[BACKBONE].weights,
            "choice": np.array(self.choice),
            **self._entries_known(),
        }

    def outcome(self, result: ClassifyResult, ledger: LedgerReport) -> Outcome:
        """What the observer makes of everybody's answers."""
        return Outcome(
            embeddings=result.logits,
            logits=result.logits,
            judged={MAIN: result.logits, OWN: result.own},
            best_epoch=self.schedule.config.train.epochs,
            exposed=reading(self.schedule),
            promises=promises(self.schedule, ledger),
            choice=CHOICES[self.choice],
            caution=caution(self.schedule, self.first_width),
            kept={"released": result.released},
        )

    def load(self, arrays: Arrays, kept: Arrays) -> None:
        """Take the weights of an earlier run; its devices repeat what they released then."""
        self.columns = arrays["encoder_columns"]
        self._prepare()
        if self.schedule.coded:
            self.codebook.take(arrays)
        self.optimisers[ENCODER].weights = arrays["encoder"].ravel()
        self.optimisers[TRUST].weights = arrays["trust"]
        self.optimisers[BACKBONE].weights = arrays["backbone"]
        self._log_ratios = arrays["evidence"]
        self.choice = int(arrays["choice"])
        self._before = kept["released"]

    def welcome(self) -> Program[Floats]:
        """[hosted, k] logits by the loaded weights, after one more release."""
        yield from self.release()
        self._weigh()
        return self._candidates()[self.choice].astype(np.float32)

    def _candidates(self) -> list[Doubles]:
        """Logits by the own encoder, with evidence, and with the tree network."""
        known = self._knowledge()
        self._correction.load(self.optimisers[BACKBONE].weights)
        return [self._own(), known.own, self._correction.logits(known)]

    def _first_release(self) -> Bytes:
        shard = self.shard
        everyone = np.arange(len(shard))
        symbols = self._entries() if self.schedule.coded else self._own().argmax(axis=1)
        if self.schedule.strict.trainers_say == "label" and not self.schedule.coded:
            symbols = np.where(self._train, self._labels, symbols)
        if self._control:
            chance = shard.coins.uniform(everyone, "control", 0)[:, 0]
            symbols = np.floor(chance * self._symbols.size).astype(np.int64)
        coins = shard.coins.words(everyone, "symbol", 0, self._symbols.coins)
        said = self._symbols.release(symbols, coins)
        old = shard.devices < len(self._before)
        said[old] = self._before[shard.devices[old]]
        return said

    def _relayed(self, said: Bytes, hop: int) -> Bytes:
        """One draw, made once per run, and never what came from the receiver itself.

        `PADS` made-up symbols are in every pool, so a device of degree 1 tells nothing but those.
        """
        made = pads(self.shard, self._symbols, hop)
        return relayed(self.shard, said, made, hop)

    def _receive(self, hop: int, said: Bytes) -> None:
        heard = ReceivedSymbols(self._symbols.read(said), self.shard.owner, len(self.shard))
        self._heard = [*self._heard[: hop - 1], heard]

    def _learnt(self) -> Arrays:
        return {"matrix": self.matrix}

    def _take(self, learnt: Arrays) -> None:
        self.matrix = learnt["matrix"]

    def _own(self) -> Doubles:
        return self._encoder.logits(self.optimisers[ENCODER].weights)

    def _learn_meaning(self, number: int) -> Program[None]:
        shares = np.stack([heard.shares() for heard in self._known_heard()], axis=1)
        self.matrix = yield from self._sum(
            lambda each: matrix_update(shares, self._labels, self._train, self.classes, each=each),
            self.schedule.noise(MATRIX),
            -1 - number,
        )
        trust = self._weigh()
        self.optimisers[TRUST] = Adam(trust.start(), TRUST_RATE)

    def _relearn(self) -> Program[None]:
        yield from ()
        self._weigh()

    def _weigh(self) -> Trust:
        self._trust = Trust(self._own(), self._known_heard(), self._ratios())
        return self._trust

    def _ratios(self) -> Doubles:
        if self._log_ratios is not None:
            return self._log_ratios
        return ratios(self.matrix, self.classes, self._symbols.alphabet)

    def _known_heard(self) -> list[ReceivedSymbols]:
        if not self._heard:
            raise ProtocolError("symbols were used before they were released")
        return self._heard

    def _knowledge(self) -> ResidualInput:
        """What the tree network works on; fixed once trust is trained."""
        if self._trust is None:
            raise ProtocolError("evidence was used before it was learnt")
        heard = self._known_heard()[0]
        base = self._trust.logits(self.optimisers[TRUST].weights)
        return ResidualInput(base, self._own().argmax(axis=1), heard.shares(), heard.degree)

    def _update(self, stage: str) -> Update:
        weights, clip = self.optimisers[stage].weights, self.schedule.limit(stage)
        if stage == ENCODER:
            encoder = self._encoder
            return lambda each: encoder.update(weights, clip, each=each)
        labels, train = self._labels, self._train
        if stage == TRUST and self._trust is not None:
            trust = self._trust
            return lambda each: trust.update(weights, labels, train, clip, each=each)
        if self._known is None:
            self._known = self._knowledge()
        known, correction = self._known, self._correction
        correction.load(weights)
        return lambda each: correction.update(known, labels, train, clip, each=each)

    def _gradient(self, total: Doubles) -> Doubles:
        return self._correction.gradient(total)


def widths(schedule: Schedule, public: PublicCoins, classes: int, used: int) -> Widths:
    """Numbers in every sum, where `used` features are used."""
    symbols = symbols_of(schedule, classes)
    generator = public.generator("weights")
    backbone = ResidualHead(schedule.config.model, classes, symbols.alphabet, generator)
    known = {
        ENCODER: (used + 1) * classes + 1,
        MATRIX: schedule.hops * classes * symbols.alphabet,
        TRUST: 1 + len(DAMPING) * schedule.hops + classes + 1,
        BACKBONE: backbone.width,
        CHOICE: 2 * CANDIDATES - 1,
    }
    return with_codebook(known, schedule, used, symbols.size)


def symbols_of(schedule: Schedule, classes: int) -> Mechanism:
    """The mechanism: of one of the classes, or of one of the entries of a codebook."""
    mechanism, epsilon = schedule.strict.mechanism, schedule.strict.epsilon
    if not schedule.coded:
        return make_mechanism(classes, epsilon, mechanism)
    # As in links, so that what was released in one task serves the other.
    return make_mechanism(
        schedule.strict.codebook, epsilon, "krr" if mechanism == AUTO else mechanism
    )


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

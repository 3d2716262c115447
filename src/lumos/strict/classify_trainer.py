"""The strict trainer of `classify`.

Training devices release their label, all others the class that their own encoder predicts; with
`symbol='codebook'`, every device releases the nearest entry of a codebook. The log-likelihood of a
class given neighbours' symbols is learnt by sums (`neighbour_evidence`), then a tree network on
symbols (`residual_head`). Predictions are computed on the device.
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
from lumos.strict.neighbour_evidence import DAMPING, ReceivedSymbols, Trust, matrix_update, ratios
from lumos.strict.noisy_sums import Update
from lumos.strict.own_classifier import Encoder
from lumos.strict.promises import caution, promises, reading
from lumos.strict.relay import pads, relayed
from lumos.strict.release_book import ReleaseBook
from lumos.strict.residual_head import ResidualHead, ResidualInput
from lumos.strict.schedule import BACKBONE, CANDIDATES, CHOICE, ENCODER, MATRIX, TRUST, Schedule
from lumos.strict.trainer import TRUST_RATE, StrictTrainer
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
    """[hosted, bytes]"""

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
        self._residual = ResidualHead(schedule.config.model, classes, symbols.alphabet, generator)
        self._received: list[ReceivedSymbols] = []
        """For each hop."""
        self._trust: Trust | None = None
        self._residual_input: ResidualInput | None = None
        self._log_ratios: Doubles | None = None
        self._earlier: Bytes = np.empty((0, symbols.width), np.uint8)
        self.matrix = np.zeros(schedule.hops * classes * symbols.alphabet)

    @property
    def first_width(self) -> int:
        """Number of weights of the own encoder, or the size of the codebook where it is larger."""
        coded = self.codebook.entries.size if self.schedule.coded else 0
        return max(self._encoder.weights, int(coded))

    def _begin(self) -> None:
        self._encoder = Encoder(self._rows, self._labels, self.classes)
        strict, train = self.schedule.strict, self.schedule.config.train
        self.optimisers = {
            ENCODER: Adam(np.zeros(self._encoder.weights), strict.encoder_rate),
            TRUST: Adam(np.empty(0), TRUST_RATE),
            BACKBONE: Adam(self._residual.vector(), train.learning_rate, train.weight_decay),
        }

    def finish(self) -> Program[ClassifyResult]:
        """Let validation devices choose a candidate; return the results for the observer."""
        candidates = self._candidates()
        right = np.stack([c.argmax(axis=1) == self._labels for c in candidates], axis=1)
        changed = right[:, 1:] != right[:, :1]
        votes = np.concatenate([right, changed], axis=1) * self._validate[:, None]
        votes = votes.astype(np.float64)
        total = yield from self._sums.sum(
            lambda each: votes if each else votes.sum(axis=0),
            self.schedule.noise(CHOICE),
            self.schedule.config.train.epochs,
        )
        noise = self.schedule.noise(CHOICE)
        spread = 0.0 if noise is None else noise.total
        self.choice = choose(total[: len(CANDIDATES)], total[len(CANDIDATES) :], spread)
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
            **self._codebook_arrays(),
        }

    def outcome(self, result: ClassifyResult, ledger: LedgerReport) -> Outcome:
        """The outcome, from the joined results of all shards."""
        return Outcome(
            embeddings=result.logits,
            logits=result.logits,
            judged={MAIN: result.logits, OWN: result.own},
            best_epoch=self.schedule.config.train.epochs,
            exposed=reading(self.schedule),
            promises=promises(self.schedule, ledger),
            choice=CANDIDATES[self.choice],
            caution=caution(self.schedule, self.first_width),
            kept={"released": result.released},
        )

    def load(self, arrays: Arrays, kept: Arrays) -> None:
        """Take the weights of an earlier run; its devices repeat what they released then."""
        self.columns = arrays["encoder_columns"]
        self._prepare()
        if self.schedule.coded:
            self.codebook.load(arrays)
        self.optimisers[ENCODER].weights = arrays["encoder"].ravel()
        self.optimisers[TRUST].weights = arrays["trust"]
        self.optimisers[BACKBONE].weights = arrays["backbone"]
        self._log_ratios = arrays["evidence"]
        self.choice = int(arrays["choice"])
        self._earlier = kept["released"]

    def welcome(self) -> Program[Floats]:
        """[hosted, k] logits by the loaded weights, after one more release."""
        yield from self.release()
        self._make_trust()
        return self._candidates()[self.choice].astype(np.float32)

    def _candidates(self) -> list[Doubles]:
        """Logits of the candidates: own encoder, with the log-likelihood, with the tree network."""
        inputs = self._make_residual_input()
        self._residual.load(self.optimisers[BACKBONE].weights)
        return [self._own(), inputs.base, self._residual.logits(inputs)]

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
        released = self._symbols.release(symbols, coins)
        old = shard.devices < len(self._earlier)
        released[old] = self._earlier[shard.devices[old]]
        return released

    def _relayed(self, received: Bytes, hop: int) -> Bytes:
        """One draw, made once per run, and never the receiver's own message.

        `PADS` made-up symbols are in every pool, so a device of degree 1 sends only those.
        """
        made = pads(self.shard, self._symbols, hop)
        return relayed(self.shard, received, made, hop)

    def _receive(self, hop: int, messages: Bytes) -> None:
        symbols = self._symbols.read(messages)
        received = ReceivedSymbols(symbols, self.shard.owner, len(self.shard))
        self._received = [*self._received[: hop - 1], received]

    def _learnt(self) -> Arrays:
        return {"matrix": self.matrix}

    def _load_learnt(self, learnt: Arrays) -> None:
        self.matrix = learnt["matrix"]

    def _own(self) -> Doubles:
        return self._encoder.logits(self.optimisers[ENCODER].weights)

    def _learn_symbols(self, number: int) -> Program[None]:
        frequencies = np.stack([hop.frequencies() for hop in self._received_symbols()], axis=1)
        self.matrix = yield from self._sums.sum(
            lambda each: matrix_update(
                frequencies, self._labels, self._train, self.classes, each=each
            ),
            self.schedule.noise(MATRIX),
            -1 - number,
        )
        trust = self._make_trust()
        self.optimisers[TRUST] = Adam(trust.start(), TRUST_RATE)

    def _prepare_inputs(self) -> Program[None]:
        yield from ()
        self._make_trust()

    def _make_trust(self) -> Trust:
        self._trust = Trust(self._own(), self._received_symbols(), self._ratios())
        return self._trust

    def _ratios(self) -> Doubles:
        if self._log_ratios is not None:
            return self._log_ratios
        return ratios(self.matrix, self.classes, self._symbols.alphabet)

    def _received_symbols(self) -> list[ReceivedSymbols]:
        if not self._received:
            raise ProtocolError("symbols were used before they were released")
        return self._received

    def _make_residual_input(self) -> ResidualInput:
        """The inputs of the residual head; fixed once trust is trained."""
        if self._trust is None:
            raise ProtocolError("the log-likelihood was used before it was learnt")
        received = self._received_symbols()[0]
        return ResidualInput(
            base=self._trust.logits(self.optimisers[TRUST].weights),
            predicted=self._own().argmax(axis=1),
            frequencies=received.frequencies(),
            degree=received.degree,
        )

    def _update(self, stage: str) -> Update:
        weights, clip = self.optimisers[stage].weights, self.schedule.limit(stage)
        if stage == ENCODER:
            encoder = self._encoder
            return lambda each: encoder.update(weights, clip, each=each)
        labels, train = self._labels, self._train
        if stage == TRUST and self._trust is not None:
            trust = self._trust
            return lambda each: trust.update(weights, labels, train, clip, each=each)
        if self._residual_input is None:
            self._residual_input = self._make_residual_input()
        inputs, residual = self._residual_input, self._residual
        residual.load(weights)
        return lambda each: residual.update(inputs, labels, train, clip, each=each)

    def _gradient(self, total: Doubles) -> Doubles:
        return self._residual.gradient(total)


def widths(schedule: Schedule, public: PublicCoins, classes: int, used: int) -> Widths:
    """The widths of all sums, where `used` features are used."""
    symbols = symbols_of(schedule, classes)
    generator = public.generator("weights")
    backbone = ResidualHead(schedule.config.model, classes, symbols.alphabet, generator)
    given = {
        ENCODER: (used + 1) * classes + 1,
        MATRIX: schedule.hops * classes * symbols.alphabet,
        TRUST: 1 + len(DAMPING) * schedule.hops + classes + 1,
        BACKBONE: backbone.width,
        CHOICE: 2 * len(CANDIDATES) - 1,
    }
    return with_codebook(given, schedule, used, symbols.size)


def symbols_of(schedule: Schedule, classes: int) -> Mechanism:
    """The mechanism: of one of the classes, or of one of the entries of a codebook."""
    mechanism, epsilon = schedule.strict.mechanism, schedule.strict.epsilon
    if not schedule.coded:
        return make_mechanism(classes, epsilon, mechanism)
    # As in links, so that a release made in one task serves the other.
    return make_mechanism(
        schedule.strict.codebook, epsilon, "krr" if mechanism == AUTO else mechanism
    )


def choose(right: Doubles, changed: Doubles, noise: float = 0.0) -> int:
    """The best candidate, if it beats the own encoder by more than one standard error.

    Args:
        right: [candidates] number of correct validation devices; the own encoder first.
        changed: [candidates - 1] number of devices on which a candidate and the own encoder are not
            both right or both wrong: its root is the standard error of the difference.
        noise: standard deviation of the noise in each count.
    """
    best = int(np.argmax(right))
    error = math.sqrt(max(1.0, changed[best - 1]) + 2 * noise**2)
    if best and right[best] - right[0] > error:
        return best
    return 0

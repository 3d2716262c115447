"""The strict trainer of `classify`: labels randomized once, symbols, opinions, and sums.

1. Devices that train or validate draw their label (`noisy_labels`). It is not read again.
2. Sums train an own encoder on features alone (`own_classifier`).
3. Training devices release their randomized label. All others release nothing of their own.
4. One sum learns what symbols mean (`neighbour_evidence`). Every device then tells its neighbours
   an opinion made of what it received (`opinions`), one sum learns what it means, and so on.
5. Validation devices, whose label never leaves them, fit the weights of everything (`trust`), and a
   tree network if asked to (`residual_head`).
6. They vote whether neighbours count at all, and choose the temperature of what was chosen.

Predictions are computed on the device.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.encode.mechanisms import COIN
from lumos.encode.number_bytes import one_hot
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger_report import LedgerReport
from lumos.strict.classify_promises import caution, promises, reading
from lumos.strict.classify_schedule import (
    COUNTS,
    ENCODER,
    OPINIONS,
    SCALE,
    SCALES,
    SYMBOLS,
    TEMPERATURE,
    TEMPERED,
    TREES,
    TRUST,
    VOTE,
    ClassifySchedule,
)
from lumos.strict.coordinator import Widths
from lumos.strict.feature_rows import FeatureRows
from lumos.strict.loss_choice import loss_vectors
from lumos.strict.neighbour_evidence import MessageCounts
from lumos.strict.neighbour_messages import ReceivedMessages, send_over
from lumos.strict.noisy_labels import draw_labels
from lumos.strict.noisy_sums import Update
from lumos.strict.opinions import opinions
from lumos.strict.own_classifier import LOSS_SCALE, Encoder
from lumos.strict.release_book import ReleaseBook
from lumos.strict.residual_head import ResidualHead, ResidualInput
from lumos.strict.temperature import choose_scale, confidence_vectors
from lumos.strict.topics import OPINION, SYMBOL
from lumos.strict.trainer import StrictTrainer
from lumos.strict.trust import RATE, Trust
from lumos.strict.vote import Vote, vote_vectors
from lumos.training.adam import Adam
from lumos.training.outcome import MAIN, OWN, Outcome
from lumos.training.private_data import PrivateData
from lumos.training.split import Role
from lumos.typing import Arrays, Bytes, Doubles, Floats, Ints


class OpinionCharge(TypedDict):
    """Arguments of `ReleaseBook.charge`."""

    name: str
    epsilon: float
    lifetime: float
    setting: str


class ClassifyResult(NamedTuple):
    """What the observer collects from one shard."""

    logits: Floats
    """[hosted, k] final."""
    own: Floats
    """[hosted, k] of the own encoder."""
    released: Ints
    """[hosted] the symbol of each training device, -1 elsewhere."""
    opinions: Bytes
    """[hosted, opinions, bytes]"""

    @classmethod
    def joined(cls, parts: "Sequence[ClassifyResult]", order: Ints) -> "ClassifyResult":
        """Of all shards, in the order of the devices."""
        whole = (np.concatenate(rows)[order] for rows in zip(*parts, strict=True))
        return ClassifyResult(*whole)


class StrictClassifier(StrictTrainer):
    """The strict trainer of one shard, for labels.

    Args:
        private: private data of the devices; their labels are drawn here, and not kept.
        schedule: everything public about the run.
        book: the releases of earlier runs.
        others: those of `StrictTrainer`.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        private: PrivateData,
        schedule: ClassifySchedule,
        *,
        book: ReleaseBook | None = None,
        control: bool = False,
    ) -> None:
        train, validate = (private.roles == role for role in (Role.TRAIN, Role.VALIDATION))
        rows = FeatureRows(private.features, train, nonnegative=not schedule.signed)
        super().__init__(shard, endpoint, rows, schedule, control=control)
        self.schedule = schedule
        self._training, self._validation = np.flatnonzero(train), np.flatnonzero(validate)
        kept = None if control else book
        self._labels = draw_labels(shard, private.labels, schedule, kept, train | validate)
        self._symbols = np.where(train, self._labels.symbols, -1)
        self._book = kept
        self._sent: list[Bytes] = []
        """For each opinion [hosted, bytes]."""
        self._counts: list[MessageCounts] = []
        """Of symbols, then of each opinion."""
        self.matrices: list[Doubles] = []
        """The same: their noisy sums."""
        self._trust: Trust | None = None
        self._residual_input: ResidualInput | None = None
        self.scale, self.temperature = 1.0, 1.0
        self.vote = Vote.nobody()

    def _begin(self) -> None:
        schedule = self.schedule
        self._encoder = Encoder(self._rows, self._labels, schedule, self._sums.rounded)
        classes = schedule.classes
        start = Trust.start(2 + schedule.strict.opinions, classes)
        self._trust_weights = Adam(start, RATE)
        self._residual = residual_head(schedule, self.shard.public)
        train = schedule.config.train
        self._tree_weights = Adam(self._residual.vector(), train.learning_rate, train.weight_decay)

    def _before(self, number: int) -> Program[None]:
        """Symbols before their matrix, an opinion before each of its own."""
        stage = self.schedule.stage(number)
        if stage == SYMBOLS:
            yield from self._release()
        elif stage == OPINIONS:
            yield from self._tell_opinion(1 + self.schedule.step(number))

    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`: repeat the messages before `epoch`. The same coins give the same."""
        for number in range(epoch):
            yield from self._before(number)

    def _release(self) -> Program[None]:
        """Training devices tell all neighbours their symbol, the same one."""
        if self._control:
            self._symbols = self._drawn_symbols()
        senders = np.flatnonzero(self._symbols >= 0)
        slots = self.shard.slots_of(senders)
        bodies = self.schedule.symbol_form.messages(np.maximum(self._symbols, 0))
        received = yield from send_over(
            SYMBOL, self.shard, slots, *self._along(slots, bodies, self._symbol_epsilon())
        )
        self._count_symbols(received)

    def _symbol_epsilon(self) -> Doubles:
        """[hosted] ε of the symbol, as its receivers see it; 0 where an earlier run has paid."""
        return np.minimum(self._labels.paid, self.schedule.strict.epsilon)

    def _along(self, slots: Ints, bodies: Bytes, epsilon: Doubles) -> tuple[Bytes, Doubles]:
        """What goes over some slots, of what each hosted device sends."""
        owner = self.shard.owner[slots]
        return bodies[owner], epsilon[owner]

    def _count_symbols(self, received: ReceivedMessages) -> None:
        form = self.schedule.symbol_form
        body = received.body
        if self._control:
            body = form.messages(self._drawn_each(received, 0, form.alphabet))
        support = one_hot(body, form.alphabet)
        self._counts = [MessageCounts(support, received.receiver, len(self.shard))]

    def _tell_opinion(self, number: int) -> Program[None]:
        """Every device tells all its neighbours an opinion of what it received so far."""
        shard, mechanism = self.shard, self.schedule.opinion_mechanism
        evidence = np.sum(self._evidence(number), axis=0)
        if self._control:  # of nothing, so every class is as likely
            evidence = np.zeros_like(evidence)
        sent = opinions(shard, evidence, mechanism, number)
        self._sent = [*self._sent[: number - 1], sent]
        if self._book is not None and number == 1:
            senders = shard.devices[shard.degree > 0]
            self._book.charge(**opinion_charge(self.schedule), devices=senders)
        epsilon = self.schedule.strict.opinion_epsilon
        slots = np.arange(len(shard.owner))
        received = yield from send_over(
            OPINION, shard, slots, *self._along(slots, sent, np.full(len(shard), epsilon))
        )
        self._count_opinions(number, received)

    def _count_opinions(self, number: int, received: ReceivedMessages) -> None:
        mechanism = self.schedule.opinion_mechanism
        body = received.body
        if self._control:
            body = self._drawn_opinions(received, number)
        support = mechanism.read(body)
        counts = MessageCounts(support, received.receiver, len(self.shard))
        self._counts = [*self._counts[:number], counts]

    def _drawn_symbols(self) -> Ints:
        """The control's symbols: they depend on no data."""
        everyone = np.arange(len(self.shard))
        chance = self.shard.coins.uniform(everyone, "control symbol", 0)[:, 0]
        drawn = np.floor(chance * self.schedule.symbol_form.alphabet).astype(np.int64)
        return np.where(self._symbols >= 0, drawn, -1)

    def _drawn_each(self, received: ReceivedMessages, step: int, size: int) -> Ints:
        """[messages] the control's values: uniform, and drawn by each receiver for itself.

        A random value that a sender told all its neighbours would be a mark of the sender, and so
        of a community.
        """
        many = np.bincount(received.receiver, minlength=len(self.shard))
        chance = self.shard.coins.uniform_each(many, "control", step)
        return np.floor(chance * size).astype(np.int64)

    def _drawn_opinions(self, received: ReceivedMessages, number: int) -> Bytes:
        """[messages, bytes] the control's opinions: randomized classes that depend on no data."""
        mechanism, steps = self.schedule.opinion_mechanism, 100 * number
        classes = self._drawn_each(received, steps, mechanism.size)
        words = [
            self._drawn_each(received, steps + 1 + word, COIN) for word in range(mechanism.coins)
        ]
        return mechanism.release(classes, np.stack(words, axis=1).astype(np.uint32))

    def _evidence(self, kinds: int) -> list[Doubles]:
        """Of the first `kinds` kinds of messages, [hosted, k] each."""
        if len(self._counts) < kinds or len(self.matrices) < kinds:
            raise ProtocolError("messages were used before they were received")
        both = zip(self._counts[:kinds], self.matrices[:kinds], strict=True)
        return [counts.evidence(matrix, self._labels.form) for counts, matrix in both]

    def _own(self) -> Doubles:
        return self.scale * self._encoder.logits()

    def _update(self, stage: str, number: int) -> Update:
        if stage == COUNTS:
            return lambda each: self._encoder.counts(each=each)
        if stage == ENCODER:
            return lambda each: self._encoder.update(each=each)
        return self._summed(stage, self._vectors(stage, number))

    def _summed(self, stage: str, vectors: Doubles) -> Update:
        """Each device's vector, or the sum of all, every one rounded by itself."""
        rows = self._validation
        if stage == SYMBOLS:
            rows = np.concatenate([self._training, self._validation])
        # All others are zeros, and stay untouched: a tree network's vectors are wide.
        return lambda each: vectors if each else self._sums.rounded(vectors[rows]).sum(axis=0)

    def _vectors(self, stage: str, number: int) -> Doubles:
        """[hosted, width] in a stage with few numbers."""
        labels, judges = self._labels, self._validation
        if stage == SCALE:
            own = self._encoder.logits()
            return loss_vectors(
                own, SCALES, labels, judges, self.schedule.limit(SCALE, len(SCALES))
            )
        if stage == SYMBOLS:
            both = np.concatenate([self._training, judges])
            return self._counts[0].matrix_vectors(labels, both)
        if stage == OPINIONS:
            return self._counts[-1].matrix_vectors(labels, judges)
        if stage == TRUST:
            weights = self._trust_weights.weights
            clip = self.schedule.limit(TRUST, len(weights) + 1)
            return self._make_trust().update(weights, labels, judges, clip)
        self._residual.load(self._tree_weights.weights)
        clip = self.schedule.limit(TREES, self._residual.width)
        return self._residual.update(self._make_residual_input(), labels, judges, clip)

    def _advance(self, stage: str, number: int, total: Doubles) -> float | None:
        if stage == COUNTS:
            self._encoder.learn_counts(total)
        elif stage == ENCODER:
            self._encoder.learn(total, self.schedule.step(number))
            return self._encoder.mean_loss(total)
        elif stage == SCALE:
            self.scale = SCALES[int(np.argmin(total))]
        elif stage in (SYMBOLS, OPINIONS):
            self.matrices = [*self.matrices, total]
        else:
            judges = max(1, self.schedule.validation)
            adam = self._trust_weights if stage == TRUST else self._tree_weights
            slope = total[:-1] if stage == TRUST else self._residual.gradient(total)
            adam.step(slope / judges)
            return float(total[-1] / LOSS_SCALE / judges)
        return None

    def _make_trust(self) -> Trust:
        """The inputs of trust; fixed once all messages are received."""
        if self._trust is None:
            self._trust = Trust(self._own(), self._evidence(1 + self.schedule.strict.opinions))
        return self._trust

    def _make_residual_input(self) -> ResidualInput:
        """The inputs of the residual head; fixed once trust is trained."""
        if self._residual_input is None:
            counts = np.concatenate([kind.counts for kind in self._counts], axis=1)
            received = np.sum([kind.received for kind in self._counts], axis=0)
            self._residual_input = ResidualInput(
                base=self._make_trust().logits(self._trust_weights.weights),
                predicted=self._own().argmax(axis=1),
                frequencies=counts / np.maximum(received, 1)[:, None],
                received=received,
            )
        return self._residual_input

    def _candidates(self) -> list[Doubles]:
        """Logits of the candidates, [hosted, k] each."""
        logits = [self._own(), self._make_trust().logits(self._trust_weights.weights)]
        if self.schedule.strict.tree_network:
            self._residual.load(self._tree_weights.weights)
            logits.append(self._residual.logits(self._make_residual_input()))
        return logits

    def finish(self) -> Program[ClassifyResult]:
        """Let validation devices choose a candidate and its temperature; return the results."""
        candidates = self._candidates()
        total = yield from self._last_sum(
            VOTE, vote_vectors(candidates, self._labels, self._validation)
        )
        self.vote = Vote.of(total, self.schedule)
        self.choice = self.vote.choice
        final = candidates[self.choice]
        total = yield from self._last_sum(
            TEMPERATURE, confidence_vectors(final, TEMPERED, self._validation)
        )
        noise = self.schedule.noise(TEMPERATURE)
        spread = 0.0 if noise is None else noise.total
        judges = self.schedule.validation
        self.temperature = 1 / choose_scale(total, TEMPERED, self.vote, judges, spread)
        empty = np.empty((len(self.shard), 0, self.schedule.opinion_mechanism.width), np.uint8)
        return ClassifyResult(
            (final / self.temperature).astype(np.float32),
            candidates[0].astype(np.float32),
            self._symbols,
            np.stack(self._sent, axis=1) if self._sent else empty,
        )

    def _last_sum(self, stage: str, vectors: Doubles) -> Program[Doubles]:
        place = self.schedule.last_stages.index(stage)
        return (
            yield from self._sums.sum(
                self._summed(stage, vectors),
                self.schedule.noise(stage),
                self.schedule.config.train.epochs + place,
            )
        )

    def outcome(self, result: ClassifyResult, ledger: LedgerReport) -> Outcome:
        """The outcome, from the joined results of all shards."""
        return Outcome(
            embeddings=result.logits,
            logits=result.logits,
            judged={MAIN: result.logits, OWN: result.own},
            best_epoch=self.schedule.config.train.epochs,
            exposed=reading(self.schedule),
            promises=promises(self.schedule),
            choice=self.schedule.candidates[self.choice],
            caution=caution(self.schedule, self._encoder.width, self.vote),
            kept={"released": result.released, "opinions": result.opinions},
            estimates=self.vote.estimates(),
        )

    def state(self) -> Arrays:
        """Everything that the next epochs depend on."""
        return {
            "columns": self.columns,
            **self._encoder.state(),
            **self._learnt(),
            **self._trust_weights.state(TRUST),
            **self._tree_weights.state(TREES),
        }

    def _learnt(self) -> Arrays:
        """Scale and matrices, as far as they are learnt; an empty array where one is not."""
        kinds = 1 + self.schedule.strict.opinions
        known = dict(enumerate(self.matrices))
        matrices = {f"matrix/{kind}": known.get(kind, np.empty(0)) for kind in range(kinds)}
        return {"scale": np.array(self.scale), **matrices}

    def _load(self, state: Arrays) -> None:
        self._encoder.load(state)
        self._load_learnt(state)
        self._trust_weights.restore(state, TRUST)
        self._tree_weights.restore(state, TREES)

    def _load_learnt(self, state: Arrays) -> None:
        self.scale = float(state["scale"])
        kinds = range(1 + self.schedule.strict.opinions)
        matrices = [state[f"matrix/{kind}"] for kind in kinds]
        self.matrices = [matrix for matrix in matrices if matrix.size]

    def arrays(self) -> Arrays:
        """The trained weights by name."""
        encoder = {name: part for name, part in self._encoder.state().items() if name != "velocity"}
        trees = {"trees": self._tree_weights.weights} if self.schedule.strict.tree_network else {}
        return {
            **encoder,
            "encoder_columns": self.columns,
            **self._learnt(),
            "trust": self._trust_weights.weights,
            **trees,
            "choice": np.array(self.choice),
            "temperature": np.array(self.temperature),
        }

    def load(self, arrays: Arrays, kept: Arrays) -> None:
        """Take the weights of an earlier run, and what its devices sent in it."""
        self.columns = arrays["encoder_columns"]
        self._prepare()
        self._encoder.load(arrays)
        self._load_learnt(arrays)
        self._trust_weights.weights = arrays["trust"]
        if self.schedule.strict.tree_network:
            self._tree_weights.weights = arrays["trees"]
        self.choice, self.temperature = int(arrays["choice"]), float(arrays["temperature"])
        self._symbols = self._of_earlier(kept["released"], -1)
        sent = kept["opinions"]
        self._sent = [self._of_earlier(sent[:, number], 0) for number in range(sent.shape[1])]
        self._old = len(kept["released"])

    def _of_earlier(self, rows: npt.NDArray[Any], nothing: int) -> npt.NDArray[Any]:
        """[hosted, …] what devices of the earlier run have, and `nothing` for newcomers."""
        filled = np.full((len(self.shard), *rows.shape[1:]), nothing, rows.dtype)
        old = self.shard.devices < len(rows)
        filled[old] = rows[self.shard.devices[old]]
        return filled

    def welcome(self) -> Program[Floats]:
        """[hosted, k] logits by the loaded weights. Newcomers release nothing.

        Their neighbours send what they sent in the run: the same, so no new ε of their own data.
        """
        shard = self.shard
        to_new = shard.neighbours >= self._old
        from_old = shard.devices[shard.owner] < self._old
        slots = np.flatnonzero(to_new & from_old)
        speaking = slots[self._symbols[shard.owner[slots]] >= 0]
        bodies = self.schedule.symbol_form.messages(np.maximum(self._symbols, 0))
        strict = self.schedule.strict
        epsilon = np.full(len(shard), strict.epsilon)
        received = yield from send_over(
            SYMBOL, shard, speaking, *self._along(speaking, bodies, epsilon)
        )
        self._count_symbols(received)
        for number, sent in enumerate(self._sent, start=1):
            epsilon = np.full(len(shard), strict.opinion_epsilon)
            received = yield from send_over(
                OPINION, shard, slots, *self._along(slots, sent, epsilon)
            )
            self._count_opinions(number, received)
        logits = self._candidates()[self.choice] / self.temperature
        return logits.astype(np.float32)


def opinion_charge(schedule: ClassifySchedule) -> OpinionCharge:
    """What a device that sends opinions is charged for all of them, in every run."""
    strict = schedule.strict
    return {
        "name": "opinions",
        "epsilon": strict.opinions * strict.opinion_epsilon,
        "lifetime": strict.lifetime_opinion_epsilon,
        "setting": "lifetime_opinion_epsilon",
    }


def residual_head(schedule: ClassifySchedule, public: PublicCoins) -> ResidualHead:
    """The tree network on symbols and opinions."""
    values = schedule.symbol_form.alphabet
    values += schedule.strict.opinions * schedule.opinion_mechanism.alphabet
    generator = public.generator("weights")
    return ResidualHead(schedule.config.model, schedule.classes, values, generator)


def widths(schedule: ClassifySchedule, public: PublicCoins, used: int) -> Widths:
    """The widths of all sums, where `used` features are used."""
    classes, form = schedule.classes, schedule.label_form
    given: dict[str, Callable[[], int]] = {
        COUNTS: lambda: used,
        ENCODER: lambda: (used + 1) * classes + 1,
        SCALE: lambda: len(SCALES),
        SYMBOLS: lambda: form.alphabet * schedule.symbol_form.alphabet,
        OPINIONS: lambda: form.alphabet * schedule.opinion_mechanism.alphabet,
        TRUST: lambda: 2 + schedule.strict.opinions + classes + 1,
        TREES: lambda: residual_head(schedule, public).width,
        VOTE: lambda: 2 * len(schedule.candidates) - 1,
        TEMPERATURE: lambda: len(TEMPERED),
    }
    return lambda stage, step: given[stage]()

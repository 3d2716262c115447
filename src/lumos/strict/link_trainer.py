"""The strict trainer of `link`.

1. A codebook is learnt by sums (`codebook`). The index of the entry nearest to a device's features
   stays on the device; randomized, it is the device's symbol.
2. With the symbol goes a *colour*, drawn uniformly by the device: it depends on no data, and many
   devices share it. Both travel `hops` hops (`relay`), drawn independently of each other.
3. Devices answer whoever asks with a fixed number of draws (`answer_samples`, `pair_exchange`).
   Scores are learnt by sums from the similarity of two neighbourhoods (`similarity`,
   `score_models`), computed by the asker.
4. Validation pairs choose, by one sum of histograms, whether neighbours count (`link_choice`).

The control's symbols are drawn afresh for every receiver and hop: a random symbol that stays would
be an id. Its colours are real, so it is the system with ids alone.
"""

from functools import partial

import numpy as np

from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.encode.mechanisms import make_mechanism
from lumos.errors import ProtocolError, UsageError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger_report import LedgerReport
from lumos.strict.answer_samples import draw_answers
from lumos.strict.codebook import widths as codebook_widths
from lumos.strict.coded_release import TRUST_RATE, CodedTrainer
from lumos.strict.coordinator import Widths
from lumos.strict.feature_rows import FeatureRows
from lumos.strict.link_choice import choose, histograms
from lumos.strict.link_promises import caution, promises, reading
from lumos.strict.link_schedule import (
    BACKBONE,
    BINS,
    CANDIDATES,
    CHOICE,
    MATRIX,
    TRUST,
    LinkSchedule,
)
from lumos.strict.noisy_sums import Update
from lumos.strict.pair_exchange import exchange_answers
from lumos.strict.pair_scorer import LinkResult, PairScorer
from lumos.strict.relay import PADS, pads, relayed
from lumos.strict.release_book import ReleaseBook, kind_of
from lumos.strict.score_models import LabelledPairs, TreeScore
from lumos.strict.similarity import ReceivedByHop
from lumos.training.adam import Adam
from lumos.training.outcome import IDS, MAIN, OWN, Judged, Outcome
from lumos.training.private_data import PrivateData
from lumos.typing import Arrays, Bytes, Doubles, Floats, Ints

SYMBOL, COLOUR = 0, 1
"""The kinds of symbols, as columns of a message."""


class StrictLinker(CodedTrainer):
    """The strict trainer of one shard, for links; arguments are those of `CodedTrainer`."""

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        private: PrivateData,
        schedule: LinkSchedule,
        *,
        book: ReleaseBook | None = None,
        control: bool = False,
    ) -> None:
        size = schedule.strict.codebook
        symbols = make_mechanism(size, schedule.strict.epsilon, "krr")
        rows = FeatureRows(private.features, np.ones(len(shard), np.bool_))
        super().__init__(shard, endpoint, rows, schedule, symbols, book=book, control=control)
        self._held_back = private.held_back
        self._sizes = [size] + [schedule.colours] * (schedule.colours > 0)
        self._received: list[Bytes] = []
        """For each hop [slots, kinds]."""
        self.frequencies = np.zeros((schedule.hops, size))
        """[hops, size] of each symbol in all messages of a hop."""
        self._training: LabelledPairs | None = None
        self._validation: LabelledPairs | None = None
        self._answers = np.empty((0, 0), np.uint8)
        self._base: Doubles | None = None

    def _begin(self) -> None:
        super()._begin()
        schedule, public = self.schedule, self.shard.public
        self._linear = PairScorer.linear(schedule.hops, len(self._sizes))
        self._tree = TreeScore(
            schedule.config.model, self._sizes[SYMBOL], public.generator("weights")
        )
        train = schedule.config.train
        self.optimisers = {
            TRUST: Adam(np.zeros(self._linear.weights), TRUST_RATE),
            BACKBONE: Adam(self._tree.vector(), train.learning_rate, train.weight_decay),
        }

    @property
    def first_width(self) -> int:
        """Numbers in the entries of the codebook."""
        return int(self.codebook.entries.size)

    def finish(self) -> Program[LinkResult]:
        """Let validation pairs choose a candidate; return the results for the observer."""
        scorer, hosted = self._scorer(), len(self.shard)
        pairs, edge = _exchanged(self._validation)
        centred = {n: s + np.log(self.schedule.devices) for n, s in scorer.scores(pairs).items()}
        flat = histograms(centred, pairs.rows, edge, hosted).reshape(hosted, -1)
        noise = self.schedule.noise(CHOICE)
        total = yield from self._sums.sum(
            lambda each: flat if each else flat.sum(axis=0),
            noise,
            self.schedule.config.train.epochs,
        )
        by_candidate = total.reshape(len(CANDIDATES), 2, BINS)
        self.choice = choose(by_candidate, 0.0 if noise is None else noise.total)
        received, entries = self._received_symbols(), self.codebook.nearest()
        degree = np.maximum(received[SYMBOL].degree, 1)[:, None]
        frequencies = received[SYMBOL].counts_at(1) / degree
        embeddings = scorer.tree().embeddings(entries, frequencies).astype(np.float32)
        return LinkResult(
            scorer=scorer,
            choice=CANDIDATES[self.choice],
            embeddings=embeddings,
            received=received,
            entries=entries,
            answers=self._answers,
        )

    def outcome(self, result: LinkResult, ledger: LedgerReport) -> Outcome:
        """The outcome, from the joined results of all shards."""
        choice = CANDIDATES[self.choice]
        names = {MAIN: choice, OWN: OWN, **({IDS: IDS} if self.schedule.colours else {})}
        judged: dict[str, Judged] = {
            arm: partial(result.at_both_ends, name) for arm, name in names.items()
        }
        return Outcome(
            embeddings=result.embeddings,
            logits=None,
            judged=judged,
            best_epoch=self.schedule.config.train.epochs,
            exposed=reading(self.schedule),
            promises=promises(self.schedule, ledger),
            choice=choice,
            caution=caution(self.schedule, self.first_width),
            kept=result.arrays(),
        )

    def load(self, weights: Arrays, kept: Arrays) -> None:
        """Refused: see `welcome`."""
        raise UsageError("newcomers are for runs that classify; this one predicts links")

    def welcome(self) -> Program[Floats]:
        """Refused: a newcomer's pairs would need answers that were drawn before it joined."""
        raise UsageError("newcomers are for runs that classify; this one predicts links")

    def arrays(self) -> Arrays:
        """The trained weights by name."""
        return {
            **self.codebook.arrays(),
            "columns": self.columns,
            "trust": self.optimisers[TRUST].weights,
            "backbone": self.optimisers[BACKBONE].weights,
            "choice": np.array(self.choice),
            **{f"usual/{kind}": table for kind, table in enumerate(self._frequencies())},
        }

    def _first_release(self) -> Bytes:
        """Symbol, then colour. Guarantee: ε-LDP for the features, against all who see both."""
        everyone, coins = np.arange(len(self.shard)), self.shard.coins
        entries = self._entries()
        if self._control:
            entries = self._drawn(everyone, "control", 0, self._sizes[SYMBOL]).astype(np.int64)
        words = coins.words(everyone, "symbol", 0, self._symbols.coins)
        released = [self._symbols.release(entries, words)]
        if len(self._sizes) > 1:
            released.append(self._drawn(everyone, "colour", 0, self._sizes[COLOUR])[:, None])
        return np.concatenate(released, axis=1)

    def _settle(self, first: Bytes) -> tuple[Bytes, Doubles]:
        """Symbol and colour are separate kinds in the book: a change of colours costs no ε."""
        symbols, paid = super()._settle(first[:, :1])
        if self._book is None or self._control or len(self._sizes) == 1:
            return np.concatenate([symbols, first[:, 1:]], axis=1), paid
        kind = kind_of("link", "colour", self._sizes[COLOUR], 0.0)
        colours, _ = self._book.settle(kind, self.shard.devices, 0.0, first[:, 1:])
        return np.concatenate([symbols, colours], axis=1), paid

    def _drawn(self, rows: Ints, purpose: str, step: int, size: int) -> Bytes:
        """[rows] uniform below `size`."""
        chance = self.shard.coins.uniform(rows, purpose, step)[:, 0]
        return np.floor(chance * size).astype(np.uint8)

    def _relayed(self, received: Bytes, hop: int) -> Bytes:
        """One independent draw of each kind: symbol and colour are of different devices.

        Drawn once per run, and never the receiver's own message; `PADS` made-up ones are in every
        pool, so a device of degree 1 sends only those.
        """
        shard = self.shard
        messages = [relayed(shard, received[:, :1], pads(shard, self._symbols, hop), hop)]
        if len(self._sizes) > 1:
            everyone = np.arange(len(shard))
            chance = shard.coins.uniform(everyone, f"made-up colours/{hop}", 0, PADS)
            made = np.floor(chance * self._sizes[COLOUR]).astype(np.uint8)[:, :, None]
            messages.append(relayed(shard, received[:, 1:], made, hop, "relay of colours"))
        return np.concatenate(messages, axis=1)

    def _receive(self, hop: int, messages: Bytes) -> None:
        if (messages >= np.array(self._sizes)).any():
            raise ProtocolError("a released symbol is out of range")
        if self._control:
            fresh = self.shard.coins.uniform_each(self.shard.degree, "control", hop)
            messages = messages.copy()
            messages[:, SYMBOL] = np.floor(fresh * self._sizes[SYMBOL]).astype(np.uint8)
        self._received = [*self._received[: hop - 1], messages]

    def _received_symbols(self) -> list[ReceivedByHop]:
        """For each kind, the symbols that answers are compared with."""
        if not self._received:
            raise ProtocolError("symbols were used before they were released")
        similarity = self.codebook.similarity()
        similarity -= similarity.mean(axis=1, keepdims=True)
        similarity /= np.maximum(np.linalg.norm(similarity, axis=1, keepdims=True), 1e-12)
        by_kind = [self._of_kind(SYMBOL, similarity)]
        if len(self._sizes) > 1:
            size = self._sizes[COLOUR]
            marks = np.full((len(self.shard), size), -1 / size)
            marks[np.arange(len(marks)), self.released[:, COLOUR]] += 1
            by_kind.append(self._of_kind(COLOUR, marks))
        return by_kind

    def _of_kind(self, kind: int, own: Doubles) -> ReceivedByHop:
        symbols = [hop[:, kind] for hop in self._received]
        return ReceivedByHop.of(own.astype(np.float32), symbols, self.shard.owner)

    def _frequencies(self) -> list[Doubles]:
        """For each kind [hops, size]; those of colours are known, since they are uniform."""
        uniform = [np.full((self.schedule.hops, size), 1 / size) for size in self._sizes[1:]]
        return [self.frequencies, *uniform]

    def _scorer(self) -> PairScorer:
        return PairScorer(
            settings=self.schedule.config.model,
            devices=self.schedule.devices,
            frequencies=self._frequencies(),
            trust=self.optimisers[TRUST].weights,
            backbone=self.optimisers[BACKBONE].weights,
        )

    def _learn_symbols(self, number: int) -> Program[None]:
        """The frequencies of symbols at each hop, by one sum; then the exchange of answers."""
        received = self._received_symbols()[SYMBOL]
        frequencies = received.counts.toarray() / np.maximum(received.degree, 1)[:, None]
        scaled = frequencies / np.sqrt(self.schedule.hops)  # the norm of all hops is at most 1
        total = yield from self._sums.sum(
            lambda each: scaled if each else scaled.sum(axis=0),
            self.schedule.noise(MATRIX),
            -1 - number,
        )
        table = np.maximum(total.reshape(self.schedule.hops, -1) * np.sqrt(self.schedule.hops), 1.0)
        self.frequencies = table / table.sum(axis=1, keepdims=True)
        yield from self._prepare_inputs()

    def _prepare_inputs(self) -> Program[None]:
        """Exchange answers. They are drawn once per run, so a repetition sends the same."""
        shard, many = self.shard, self.schedule.strict.answer
        frequencies = self._frequencies()
        answers = draw_answers(shard, self.released, self._received, frequencies, many)
        self._answers = answers.for_strangers
        exchanged = yield from exchange_answers(
            shard, answers, self._sizes, self._held_back, self.paid
        )
        received, scorer, entries = (
            self._received_symbols(),
            self._scorer(),
            self.codebook.nearest(),
        )
        own_messages = [
            np.stack([hop[exchanged.slots, kind] for hop in self._received], axis=1)
            for kind in range(len(self._sizes))
        ]
        self._training = LabelledPairs.of(
            scorer.pairs(received, entries, *exchanged.neighbours, own_messages),
            scorer.pairs(received, entries, *exchanged.strangers),
        )
        self._validation = LabelledPairs.of(
            scorer.pairs(received, entries, *exchanged.validation_edges),
            scorer.pairs(received, entries, *exchanged.validation_strangers),
        )

    def _learnt(self) -> Arrays:
        return {"usual": self.frequencies}

    def _load_learnt(self, learnt: Arrays) -> None:
        self.frequencies = learnt["usual"]

    def _stage_update(self, stage: str) -> Update:
        weights, clip = self.optimisers[stage].weights, self.schedule.limit(stage)
        pairs, edge = _exchanged(self._training)
        hosted = len(self.shard)
        if stage == TRUST:
            linear = self._linear
            return lambda each: linear.update(weights, pairs, edge, hosted, clip, each=each)
        if self._base is None:
            self._base = self._linear.scores(self.optimisers[TRUST].weights, pairs.similarity)[-1]
        base, tree = self._base, self._tree
        tree.load(weights)
        return lambda each: tree.update(pairs, base, edge, hosted, clip, each=each)

    def _gradient(self, total: Doubles) -> Doubles:
        return self._tree.gradient(total)


def _exchanged(pairs: LabelledPairs | None) -> LabelledPairs:
    if pairs is None:
        raise ProtocolError("pairs were scored before answers were exchanged")
    return pairs


def widths(schedule: LinkSchedule, public: PublicCoins, used: int) -> Widths:
    """The widths of all sums, where `used` features are used."""
    kinds = 1 + (schedule.colours > 0)
    size = schedule.strict.codebook
    first, further = codebook_widths(used, size)
    given = {
        MATRIX: schedule.hops * size,
        TRUST: PairScorer.linear(schedule.hops, kinds).weights + 1,
        BACKBONE: TreeScore(schedule.config.model, size, public.generator("weights")).width,
        CHOICE: len(CANDIDATES) * 2 * BINS,
    }

    def width(stage: str, step: int) -> int:
        return given.get(stage, further if step else first)

    return width

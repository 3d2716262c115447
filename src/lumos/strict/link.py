"""The strict trainer of `link`.

1. A codebook is learnt by sums (`codebook`). Which of its entries is nearest to a device's features
   stays home; randomized, it is the device's symbol.
2. Beside the symbol goes a *colour*, drawn uniformly by the device: it knows nothing of anybody,
   and many devices have the same. Both travel `hops` hops (`relay`), drawn apart from each other.
3. Devices tell a fixed number of draws to whoever asks (`answers`). Scores are learnt by sums from
   how alike two surroundings are (`likeness`, `scorer`), at the asker's home.
4. Validation pairs choose, by one sum of histograms, whether neighbours count.

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
from lumos.strict.answers import Sample, sample
from lumos.strict.coordinator import Widths, with_codebook
from lumos.strict.pair_scorer import CANDIDATES, LinkResult, PairScorer
from lumos.strict.promises import CHOICES, caution, promises, reading
from lumos.strict.relay import PADS, pads, relayed, tell_neighbours
from lumos.strict.release_book import ReleaseBook, kind_of
from lumos.strict.schedule import BACKBONE, BINS, CHOICE, MATRIX, TRUST, Schedule
from lumos.strict.score_models import PAIRS, ScoredPairs, TreeScore, auc_of_ranges, ranges
from lumos.strict.similarity import ReceivedByHop
from lumos.strict.topics import ANSWER, ASK, NEIGHBOUR_ANSWER
from lumos.strict.trainer import TRUST_RATE, StrictTrainer, Update
from lumos.training.adam import Adam
from lumos.training.outcome import IDS, MAIN, OWN, Judged, Outcome
from lumos.training.private_data import PrivateData
from lumos.training.strangers import Strangers
from lumos.typing import Arrays, Bytes, Doubles, Flags, Floats, Ints

SYMBOL, COLOUR = 0, 1
"""Kinds of what travels."""


class StrictLinker(StrictTrainer):
    """The strict trainer of one shard, for links; arguments are those of `StrictTrainer`."""

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        private: PrivateData,
        schedule: Schedule,
        *,
        book: ReleaseBook | None = None,
        control: bool = False,
    ) -> None:
        size = schedule.strict.codebook
        symbols = make_mechanism(size, schedule.strict.epsilon, "krr")
        everybody = np.ones(len(shard), np.bool_)
        super().__init__(
            shard, endpoint, private, schedule, symbols, train=everybody, book=book, control=control
        )
        self._held = private.held_back
        self._sizes = [size] + [schedule.colours] * (schedule.colours > 0)
        self._said: list[Bytes] = []
        self.usual = np.zeros((schedule.hops, size))
        self._pairs: tuple[ScoredPairs, Flags] | None = None
        self._held_pairs: tuple[ScoredPairs, Flags] | None = None
        self._answers = np.empty((0, 0), np.uint8)
        self._base: Doubles | None = None

    def _begin(self) -> None:
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
        """Let validation pairs choose; return what the observer may see."""
        scorer, hosted = self._scorer(), len(self.shard)
        pairs, edge = self._known(self._held_pairs)
        scores = scorer.scores(pairs)
        votes = np.zeros((hosted, len(CANDIDATES), 2, BINS))
        for number, name in enumerate(CANDIDATES):
            place = ranges(scores[name] + np.log(self.schedule.devices), BINS)
            votes[pairs.rows, number, edge.astype(np.int64), place] = 1
        flat = votes.reshape(hosted, -1)
        noise = self.schedule.noise(CHOICE)
        total = yield from self._sum(
            lambda each: flat if each else flat.sum(axis=0),
            noise,
            self.schedule.config.train.epochs,
        )
        by_candidate = total.reshape(len(CANDIDATES), 2, BINS)
        self.choice = choose(by_candidate, 0.0 if noise is None else noise.total)
        heard = self._heard()
        shares = heard[SYMBOL].counts_at(1) / np.maximum(heard[SYMBOL].degree, 1)[:, None]
        entries = self.codebook.nearest()
        embeddings = scorer.tree().embeddings(entries, shares).astype(np.float32)
        return LinkResult(
            scorer=scorer,
            choice=CANDIDATES[self.choice],
            embeddings=embeddings,
            heard=heard,
            entries=entries,
            answers=self._answers,
        )

    def outcome(self, result: LinkResult, ledger: LedgerReport) -> Outcome:
        """What the observer makes of everybody's knowledge and answers."""
        choice = CHOICES[self.choice]
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
        """Refused: a newcomer's pairs would need answers that were drawn before it came."""
        raise UsageError("newcomers are for runs that classify; this one predicts links")

    def arrays(self) -> Arrays:
        """The trained weights by name."""
        return {
            **self._entries_known(),
            "columns": self.columns,
            "trust": self.optimisers[TRUST].weights,
            "backbone": self.optimisers[BACKBONE].weights,
            "choice": np.array(self.choice),
            **{f"usual/{kind}": usual for kind, usual in enumerate(self._usual())},
        }

    def _first_release(self) -> Bytes:
        """Symbol, then colour. Guarantee: ε-LDP for the features, against all who see both."""
        everyone, coins = np.arange(len(self.shard)), self.shard.coins
        entries = self._entries()
        if self._control:
            entries = self._drawn(everyone, "control", 0, self._sizes[SYMBOL]).astype(np.int64)
        words = coins.words(everyone, "symbol", 0, self._symbols.coins)
        said = [self._symbols.release(entries, words)]
        if len(self._sizes) > 1:
            said.append(self._drawn(everyone, "colour", 0, self._sizes[COLOUR])[:, None])
        return np.concatenate(said, axis=1)

    def _for_life(self, said: Bytes) -> tuple[Bytes, Doubles]:
        """Symbol and colour are kept apart in the book: another number of colours costs nothing."""
        symbols, paid = super()._for_life(said[:, :1])
        if self._book is None or self._control or len(self._sizes) == 1:
            return np.concatenate([symbols, said[:, 1:]], axis=1), paid
        kind = kind_of(self.schedule.task, "colour", self._sizes[COLOUR], 0.0)
        colours, _ = self._book.settle(kind, self.shard.devices, 0.0, said[:, 1:])
        return np.concatenate([symbols, colours], axis=1), paid

    def _drawn(self, rows: Ints, purpose: str, step: int, size: int) -> Bytes:
        """[rows] uniform below `size`."""
        chance = self.shard.coins.uniform(rows, purpose, step)[:, 0]
        return np.floor(chance * size).astype(np.uint8)

    def _relayed(self, said: Bytes, hop: int) -> Bytes:
        """One draw of each kind, apart from each other: a symbol and a colour of different devices.

        Made once per run, and never what came from the receiver itself; `PADS` made-up ones are in
        every pool, so a device of degree 1 tells nothing but those.
        """
        shard = self.shard
        told = [relayed(shard, said[:, :1], pads(shard, self._symbols, hop), hop)]
        if len(self._sizes) > 1:
            everyone = np.arange(len(shard))
            chance = shard.coins.uniform(everyone, f"made-up colours/{hop}", 0, PADS)
            made = np.floor(chance * self._sizes[COLOUR]).astype(np.uint8)[:, :, None]
            told.append(relayed(shard, said[:, 1:], made, hop, "relay of colours"))
        return np.concatenate(told, axis=1)

    def _receive(self, hop: int, said: Bytes) -> None:
        if (said >= np.array(self._sizes)).any():
            raise ProtocolError("a released symbol is out of range")
        if self._control:
            fresh = self.shard.coins.uniform_each(self.shard.degree, "control", hop)
            said = said.copy()
            said[:, SYMBOL] = np.floor(fresh * self._sizes[SYMBOL]).astype(np.uint8)
        self._said = [*self._said[: hop - 1], said]

    def _heard(self) -> list[ReceivedByHop]:
        """What the devices can compare an answer with, for each kind."""
        if not self._said:
            raise ProtocolError("symbols were used before they were released")
        alike = self.codebook.likeness()
        alike -= alike.mean(axis=1, keepdims=True)
        alike /= np.maximum(np.linalg.norm(alike, axis=1, keepdims=True), 1e-12)
        found = [self._of_kind(SYMBOL, alike)]
        if len(self._sizes) > 1:
            size = self._sizes[COLOUR]
            marks = np.full((len(self.shard), size), -1 / size)
            marks[np.arange(len(marks)), self.released[:, COLOUR]] += 1
            found.append(self._of_kind(COLOUR, marks))
        return found

    def _of_kind(self, kind: int, own: Doubles) -> ReceivedByHop:
        said = [hop[:, kind] for hop in self._said]
        return ReceivedByHop.of(own.astype(np.float32), said, self.shard.owner)

    def _usual(self) -> list[Doubles]:
        """What is usually heard; colours are drawn uniformly, so nothing has to be learnt."""
        found = [self.usual]
        for size in self._sizes[1:]:
            found.append(np.full((self.schedule.hops, size), 1 / size))
        return found

    def _scorer(self) -> PairScorer:
        return PairScorer(
            settings=self.schedule.config.model,
            devices=self.schedule.devices,
            usual=self._usual(),
            trust=self.optimisers[TRUST].weights,
            backbone=self.optimisers[BACKBONE].weights,
        )

    def _learn_meaning(self, number: int) -> Program[None]:
        """How often each symbol is heard at each hop, by one sum; then answers are exchanged."""
        heard = self._heard()[SYMBOL]
        shares = heard.counts.toarray() / np.maximum(heard.degree, 1)[:, None]
        mine = shares / np.sqrt(self.schedule.hops)  # the norm of all hops is at most 1
        total = yield from self._sum(
            lambda each: mine if each else mine.sum(axis=0),
            self.schedule.noise(MATRIX),
            -1 - number,
        )
        table = np.maximum(total.reshape(self.schedule.hops, -1) * np.sqrt(self.schedule.hops), 1.0)
        self.usual = table / table.sum(axis=1, keepdims=True)
        yield from self._relearn()

    def _relearn(self) -> Program[None]:
        """Answers to neighbours and to whoever asks; they are drawn once, so they are the same."""
        shard, hops, many = self.shard, self.schedule.hops, self.schedule.strict.answer
        samples = [
            [
                sample(shard, self._said[hop][:, kind], usual[hop], many, f"answer/{kind}", hop)
                for hop in range(hops)
            ]
            for kind, usual in enumerate(self._usual())
        ]
        self._answers = _answers(self.released, samples, None)
        free = np.zeros(len(shard.owner))
        near = yield from tell_neighbours(
            NEIGHBOUR_ANSWER, shard, _answers(self.released, samples, shard.owner), free
        )
        self._check(near)
        slots = _some_slots(shard, PAIRS)
        strangers = Strangers(shard)
        few = np.bincount(shard.owner[slots], minlength=len(shard))
        far_rows, far = strangers.draw(np.full(len(shard), PAIRS), "strangers", 0)
        held_rows, first = np.unique(self._held[:, 0], return_index=True)
        wanted = np.bincount(held_rows, minlength=len(shard))
        asked = [
            (far_rows, far),
            (held_rows, self._held[first, 1]),
            strangers.draw(wanted, "validation strangers", 0),
        ]
        told = yield from self._ask(*(np.concatenate(part) for part in zip(*asked, strict=True)))
        far_told, held_told, other_told = np.split(
            told, np.cumsum([len(rows) for rows, _ in asked])[:-1]
        )
        heard, scorer, entries = self._heard(), self._scorer(), self.codebook.nearest()
        left_out = [
            np.stack([hop[slots, kind] for hop in self._said], axis=1)
            for kind in range(len(self._sizes))
        ]
        even = _rank(far_rows, len(shard)) < few[far_rows]  # as many strangers as neighbours
        parts = [
            scorer.pairs(heard, entries, shard.owner[slots], near[slots], left_out),
            scorer.pairs(heard, entries, far_rows[even], far_told[even]),
        ]
        self._pairs = _merged(parts)
        rows = [part[0] for part in asked[1:]]
        parts = [
            scorer.pairs(heard, entries, rows[0], held_told),
            scorer.pairs(heard, entries, rows[1], other_told),
        ]
        self._held_pairs = _merged(parts)

    def _ask(self, rows: Ints, peers: Ints) -> Program[Bytes]:
        """[pairs, bytes] what the peers tell; each is asked once, however often it is wanted."""
        shard = self.shard
        width = len(self._sizes) * (1 + self.schedule.hops * self.schedule.strict.answer)
        keys, which = np.unique(rows * shard.total + peers, return_inverse=True)
        askers, tellers = shard.ids_of(keys // shard.total), keys % shard.total
        inbox = yield ASK.send(askers, tellers, 0)
        answering = shard.local(inbox.receiver)
        body = self._answers[answering]
        inbox = yield ANSWER.send(
            inbox.receiver,
            inbox.sender,
            body,
            epsilon=self.paid[answering],
            lengths=np.full(len(body), body.shape[1]),
        )
        if not np.array_equal(inbox.receiver, askers) or not np.array_equal(inbox.sender, tellers):
            raise ProtocolError("link: an answer is missing, or one came that nobody asked for")
        lengths = inbox.batch.lengths
        if len(askers) and (lengths is None or (lengths != width).any()):
            raise ProtocolError(f"topic {ANSWER.name!r}: a message has the wrong length")
        told = inbox.body[:, :width] if len(askers) else np.empty((0, width), np.uint8)
        self._check(told)
        return told[which]

    def _check(self, told: Bytes) -> None:
        for part, size in zip(np.split(told, len(self._sizes), axis=1), self._sizes, strict=True):
            if (part >= size).any():
                raise ProtocolError("an answer names a symbol that does not exist")

    def _learnt(self) -> Arrays:
        return {"usual": self.usual}

    def _take(self, learnt: Arrays) -> None:
        self.usual = learnt["usual"]

    def _known(self, pairs: tuple[ScoredPairs, Flags] | None) -> tuple[ScoredPairs, Flags]:
        if pairs is None:
            raise ProtocolError("pairs were scored before answers came")
        return pairs

    def _update(self, stage: str) -> Update:
        weights, clip = self.optimisers[stage].weights, self.schedule.limit(stage)
        pairs, edge = self._known(self._pairs)
        hosted = len(self.shard)
        if stage == TRUST:
            linear = self._linear
            return lambda each: linear.update(weights, pairs, edge, hosted, clip, each=each)
        if self._base is None:
            self._base = self._linear.scores(self.optimisers[TRUST].weights, pairs.likeness)[-1]
        base, tree = self._base, self._tree
        tree.load(weights)
        return lambda each: tree.update(pairs, base, edge, hosted, clip, each=each)

    def _gradient(self, total: Doubles) -> Doubles:
        return self._tree.gradient(total)


def widths(schedule: Schedule, public: PublicCoins, used: int) -> Widths:
    """Numbers in every sum, where `used` features are used."""
    kinds = 1 + (schedule.colours > 0)
    size = schedule.strict.codebook
    known = {
        MATRIX: schedule.hops * size,
        TRUST: PairScorer.linear(schedule.hops, kinds).weights + 1,
        BACKBONE: TreeScore(schedule.config.model, size, public.generator("weights")).width,
        CHOICE: len(CANDIDATES) * 2 * BINS,
    }
    return with_codebook(known, schedule, used, size)


def choose(counts: Doubles, noise: float = 0.0) -> int:
    """The best candidate, if its AUC beats that of own features by more than one standard error.

    Args:
        counts: [candidates, 2, bins] validation pairs by range of score: strangers, then edges.
        noise: standard deviation of the noise in each count.
    """
    found = [auc_of_ranges(edges, strangers, noise) for strangers, edges in counts]
    best = int(np.argmax([area for area, _ in found]))
    return best if found[best][0] - found[0][0] > found[best][1] else 0


def _answers(own: Bytes, samples: list[list[Sample]], owner: Ints | None) -> Bytes:
    """What is told to whoever asks, or, with `owner`, over each slot: kind by kind."""
    parts = []
    for kind, by_hop in enumerate(samples):
        mine = own[:, kind : kind + 1]
        parts.append(mine if owner is None else mine[owner])
        for hop in by_hop:
            parts.append(hop.for_strangers() if owner is None else hop.for_neighbours(owner))
    return np.concatenate(parts, axis=1)


def _some_slots(shard: Shard, many: int) -> Ints:
    """At most `many` slots of each device, drawn once, in order."""
    chance = shard.coins.uniform_each(shard.degree, "pairs", 0)
    order = np.lexsort((chance, shard.owner))
    rank = np.arange(len(order)) - shard.offsets[:-1][shard.owner]
    return np.sort(order[rank < many])


def _rank(rows: Ints, hosted: int) -> Ints:
    """[pairs] how many pairs of the same asker come before; `rows` do not decrease."""
    many = np.bincount(rows, minlength=hosted)
    return np.arange(len(rows)) - (np.cumsum(many) - many)[rows]


def _merged(parts: list[ScoredPairs]) -> tuple[ScoredPairs, Flags]:
    """Edges and strangers, by asker; and which are edges."""
    edge = np.repeat([True, False], [len(part.rows) for part in parts])
    whole = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(whole[0], kind="stable")
    return ScoredPairs(*(column[order] for column in whole)), edge[order]

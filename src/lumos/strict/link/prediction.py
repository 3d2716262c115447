"""Questions about pairs after training, and what devices answer with.

A folder keeps public weights, and the random marks and propagated labels that devices sent: nothing
that is made of raw features, nothing of which neighbours a device has. Vectors and degrees are
computed again, from the graph, when somebody asks about pairs.

Devices need nothing but their vectors and their budgets of answers: the program that asks has no
graph, so a peer is a non-neighbour to it whether it is a neighbour or not.
"""

from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lumos.crypto.groups import Group, choose_group
from lumos.device.randomness import (
    PrivateRandomness,
    PublicRandomness,
    simulated_secrets,
    system_secrets,
)
from lumos.device.shard import Shard, cut
from lumos.errors import InputError
from lumos.exchange.endpoint import Endpoint, Program, idle_program
from lumos.exchange.messages import Door
from lumos.exchange.observer import LedgerReport
from lumos.exchange.transports import TRANSPORTS
from lumos.graph import Graph
from lumos.strict.book import BookSeal, ReleaseBook
from lumos.strict.features import FeatureScaling
from lumos.strict.link.answers import (
    AT_ONCE,
    FILE,
    UNANSWERED,
    AnswerBudget,
    Answerer,
    AnswerRecord,
    AnswersInFile,
    AnswersInMemory,
    AnswerStore,
    AskedOfPeers,
    digest_of,
    pair_keys,
    scores,
)
from lumos.strict.link.encoder import LinkEncoder, TokenRows
from lumos.strict.link.levels import (
    ALONE,
    BOTH,
    NeighbourhoodSketch,
    Reading,
    combined,
    integers,
    spec_for,
)
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.settings import StrictSettings, settings_of
from lumos.training.problem import Problem, features_of
from lumos.training.trainer import ANSWERS, AskedPairs, PairAnswer, PairAnswers, TrainedLinks
from lumos.twoparty.score import IDEAL_TOPICS, make_scorer
from lumos.twoparty.workers import InProcess, make_pool
from lumos.typing import Arrays, Bytes, Doubles, Floats, Ints, Small

if TYPE_CHECKING:
    from lumos.training.config import Config


_ROWS = ("vectors", "embeddings", "degree", "sent")


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkResult:
    """The vectors of all devices, and what calibration learnt."""

    reading: Reading
    vectors: Small = field(repr=False)
    """[devices, width] as scores use them."""
    embeddings: Floats = field(repr=False)
    """[devices, width] the same before they became integers."""
    degree: Ints = field(repr=False)
    """[devices]"""
    sent: Bytes = field(repr=False)
    """[devices, rounds] random marks and propagated labels, as they were sent."""
    budget: AnswerBudget = field(repr=False)
    strict: StrictSettings
    seed: int

    def state_dict(self) -> Arrays:
        """What devices have."""
        own = {name: getattr(self, name) for name in _ROWS}
        return {**own, **self.budget.arrays()}

    def load_state_dict(self, rows: Arrays) -> "LinkResult":
        """Of all devices."""
        own: dict[str, Any] = {name: rows[name] for name in _ROWS}
        return replace(self, **own, budget=AnswerBudget.of(rows))

    def at_both_ends(self, levels: Ints, pairs: Ints) -> Doubles:
        """[2, pairs] scores: as the first ends have them, then the second.

        Args:
            levels: [pairs, 2] as each end learnt it.
        """
        return np.stack([self.scores(levels[:, end], pairs[:, end]) for end in (0, 1)])

    def scores(self, levels: Ints, askers: Ints) -> Doubles:
        """[pairs] logits of being an edge, as the askers have them."""
        degree = self.degree[askers]
        return scores(levels, self.reading.evidence, degree, len(self.degree))

    @property
    def used(self) -> tuple[int, int]:
        """How many questions the devices asked, and how many of others they answered."""
        return int(self.budget.asked.sum()), int(self.budget.answered.sum())

    def resume(self, used: tuple[int, int]) -> None:
        """Count on from `used` of this one device before a restart."""
        for counts, before in zip((self.budget.asked, self.budget.answered), used, strict=True):
            np.maximum(counts, before, out=counts)

    def device_state_dict(self) -> Arrays:
        """What a device needs to answer after a restart: its own rows, and what is public."""
        return {**self.state_dict(), **self.reading.arrays()}

    @staticmethod
    def restored(kept: Arrays, strict: StrictSettings, seed: int) -> "LinkResult":
        """From what `kept` gave.

        Raises:
            InputError: an array is missing, or is of another run.
        """
        try:
            own: dict[str, Any] = {name: kept[name] for name in _ROWS}
            budget, reading = AnswerBudget.of(kept), Reading.of(kept, strict.query_bits)
        except (KeyError, InputError):
            raise InputError("what the device answers with is not of this run") from None
        return LinkResult(reading=reading, **own, budget=budget, strict=strict, seed=seed)

    def question(
        self,
        shard: Shard,
        endpoint: Endpoint,
        group: Group,
        peer: int,
        *,
        asks: bool,
        willing: bool = True,
    ) -> Program[PairAnswer]:
        """One question at one of its two ends; `lumos.training.trainer.AnswersPairs`.

        Randomness are those of the shard: with the same ones, a second answer to the same vector
        tells nothing that the first one did not.
        """
        level = np.array([UNANSWERED])
        if self.reading.way != ALONE and (willing or not asks):
            answerer = Answerer(
                shard=shard,
                scorer=make_scorer(shard, endpoint, InProcess(), group),
                vectors=self.vectors,
                spec=spec_for(self.vectors.shape[1], self.reading.cosines),
                strict=self.strict,
                budget=self.budget,
                willing=willing,
            )
            asked = AskedOfPeers(np.zeros(int(asks), np.int64), np.full(int(asks), peer, np.int64))
            learnt = yield from answerer.ask(asked, 1 + peer, 1)
            level = learnt.levels if asks else np.append(learnt.answered, UNANSWERED)[:1]
        logit = scores(level, self.reading.evidence, self.degree, shard.total)
        return PairAnswer(float(logit[0]), bool(level[0] != UNANSWERED))

    def estimates(self) -> dict[str, float]:
        """What calibration measured of each way: the AUC of its levels, and its error."""
        read = self.reading
        measured = {f"levels_auc_{way}": value for way, value in read.separation.items()}
        return measured | {f"levels_auc_{way}_error": value for way, value in read.error.items()}

    def arrays(self) -> Arrays:
        """What `of` needs beside the weights and the graph: messages, as neighbours have them."""
        return {"sent": self.sent}

    @property
    def name(self) -> str:
        """Names the run in records of answers, by what is public and what was sent.

        Not by vectors: whoever knows all but one could check a guess at it against their digest.
        """
        parts = (self.sent.tobytes(), self.reading.evidence.tobytes(), repr(self.reading.kept))
        named = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
        return blake2b(named, digest_size=16).hexdigest()

    @staticmethod
    def of(
        schedule: LinkSchedule,
        seed: int,
        training: Graph,
        weights: Arrays,
        kept: Arrays,
        *,
        split: str = "",
    ) -> "LinkResult":
        """What the devices of a finished run hold, computed at home once more.

        Bit by bit what they held in training. With `randomness='system'` their secrets are gone:
        one to whom several random marks were equally likely may take another, the same whenever it
        is asked.

        Args:
            training: the graph of the run with its training edges.
            weights: as `Trainer.model_state_dict` gave them.
            kept: as `arrays` gave it.
            split: digest of the split, which the randomness of the run are named by.

        Raises:
            InputError: weights or messages are of another run.
        """
        strict, public = schedule.strict, PublicRandomness(seed)
        (shard,) = cut(
            training, 1, seed, variant=_randomness(training, schedule.config, seed, split)
        )
        features = features_of(training)
        if schedule.first_stages:
            features = FeatureScaling.of(weights, training.feature_count).apply(features)
        words = TokenRows(features, signed=schedule.signed)
        _check(schedule, words.width, weights, kept, len(shard))
        encoder = LinkEncoder(words, schedule, public)
        encoder.load_state_dict(weights)
        sketch = NeighbourhoodSketch(shard, schedule.propagated_label_mechanism)
        sketch.usual = list(weights["usual"])
        for number, sent in enumerate(kept["sent"].T):
            sketch.repeat(number, sent)
            sketch.hear(shard.owner, sent[shard.neighbours].astype(np.int64))
        vectors = combined(encoder.embeddings(), sketch.vectors())
        reading = Reading.of(weights, strict.query_bits)
        used = vectors[BOTH if reading.way == ALONE else reading.way]
        return LinkResult(
            reading=reading,
            vectors=integers(used),
            embeddings=used.astype(np.float32),
            degree=shard.degree,
            sent=kept["sent"],
            budget=AnswerBudget.calibrated_once(len(shard)),
            strict=strict,
            seed=seed,
        )


def _randomness(training: Graph, config: "Config", seed: int, split: str) -> str:
    """The name of the randomness that the run tossed, where they were simulated."""
    problem = Problem.of(
        graph=training,
        keep=None,
        roles=np.empty(0, np.int64),
        held_back=np.empty((0, 2), np.int64),
        classes=0,
        seed=seed,
        shards=1,
        split=split,
    )
    return config.profile.randomness(problem, config, control=False)


def _check(schedule: LinkSchedule, width: int, weights: Arrays, kept: Arrays, devices: int) -> None:
    """Refuse weights or messages that cannot be of this run.

    Raises:
        InputError: an array is missing, or is of another shape or kind.
    """
    strict = schedule.strict
    rounds, size = 1 + strict.propagated_labels, strict.embedding
    shapes = {
        "weights": (width,),
        "basis": (width, size),
        "mixing": (size, size),
        "usual": (rounds, strict.random_marks),
    }
    for name, shape in shapes.items():
        array = weights.get(name)
        good = array is not None and array.shape == shape and array.dtype == np.float64
        if array is None or not good or not np.isfinite(array).all():
            raise InputError(f"model.npz: the array {name!r} is not of this run; train again")
    sent = kept.get("sent")
    if sent is None or sent.shape != (devices, rounds) or sent.dtype != np.uint8:
        raise InputError("devices.npz: what devices sent is not of this run; train again")
    if sent.max(initial=0) >= strict.random_marks:
        raise InputError(
            "devices.npz: a device sent a random mark that does not exist; train again"
        )


RESULT = "result"
"""In the memory of a run: what was computed for earlier questions."""
DOORS = frozenset({Door.COMPARE, Door.CONTROL})
"""All that questions need."""


class Answers(NamedTuple):
    """What was answered."""

    levels: Ints
    """[pairs, 2] as each end learnt it, `UNANSWERED` where a budget was used up."""
    ledger: LedgerReport


def predict_pairs(
    model: TrainedLinks, asked: AskedPairs, at_home: Callable[[], LinkResult]
) -> PairAnswers:
    """Ask within the budgets of devices, and keep what they answered.

    Devices compute their vectors at home: no file has them.

    Args:
        at_home: computes what devices hold.
    """
    strict = settings_of(model.config)
    if RESULT not in model.memory:
        model.memory[RESULT] = at_home()
    result: LinkResult = model.memory[RESULT]
    if result.reading.way == ALONE or not len(asked.pairs):
        levels = np.full(asked.pairs.shape, UNANSWERED)
        return _scored(result, asked.pairs, levels, None)
    fresh = model.config.train.randomness == "system"
    asked = replace(asked, group=model.config.trees.group)
    answers = _store(model, strict, result).update(
        lambda record: ask_new(result, asked, record, fresh=fresh)
    )
    return _scored(result, asked.pairs, answers.levels, answers.ledger)


def ask_new(
    result: LinkResult,
    asked: AskedPairs,
    record: AnswerRecord,
    *,
    fresh: bool = False,
    transport: str = "loopback",
) -> Answers:
    """Ask what was not answered before; `fresh` and `transport` as in `answer`."""
    name = result.name
    levels = record.known(asked.pairs, name)
    open_ = np.flatnonzero(levels[:, 0] == UNANSWERED)
    unknown = replace(asked, pairs=asked.pairs[open_])
    new = answer(result, unknown, record.budget, fresh=fresh, transport=transport)
    levels[open_] = new.levels
    answered = np.flatnonzero(new.levels[:, 0] != UNANSWERED)
    pairs = asked.pairs[open_][answered]
    _, first = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)
    record.add(pairs[first], new.levels[answered][first], name)
    return Answers(levels, new.ledger)


def _scored(
    result: LinkResult, pairs: Ints, levels: Ints, ledger: LedgerReport | None
) -> PairAnswers:
    mine = levels[:, 0]
    return PairAnswers(
        scores=result.scores(mine, pairs[:, 0]), answered=mine != UNANSWERED, ledger=ledger
    )


def _store(model: TrainedLinks, strict: StrictSettings, result: LinkResult) -> AnswerStore:
    """The book, the run folder, or the memory of the run."""
    if strict.book is not None:
        book = ReleaseBook(strict.book, model.ids, strict.lifetime_epsilon, "prediction")
        book.check_seal(BookSeal.of(model.kept))
        return book
    if model.folder is not None:
        return AnswersInFile(model.folder / FILE, result.budget, len(result.reading.evidence))
    store: AnswerStore = model.memory.setdefault(ANSWERS, AnswersInMemory(result.budget))
    return store


def answer(
    result: LinkResult,
    asked: AskedPairs,
    budget: AnswerBudget,
    *,
    both_may_ask: bool = False,
    fresh: bool = False,
    transport: str = "loopback",
) -> Answers:
    """Ask, and count what was answered in `budget`.

    Args:
        both_may_ask: where the first end gets no answer, the second asks.
        fresh: randomness from the operating system, as the run had them.
        transport: what moves the messages, a name of `TRANSPORTS`.
    """
    total = len(result.degree)
    keys = pair_keys(asked.pairs, total)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    unique = asked.pairs[first]
    shard = _lone_devices(total, result.seed, _coin_name(result, unique, budget), fresh=fresh)
    ideal = frozenset() if asked.secure else IDEAL_TOPICS
    moving = TRANSPORTS[transport]([shard], DOORS, ideal)
    group = choose_group(asked.group, simulated=not fresh)
    done = 0

    def count(ends: int) -> None:
        nonlocal done
        done += ends // 2  # both ends are hosted here
        if asked.progress is not None:
            asked.progress(done, len(unique))

    def program(shard: Shard, endpoint: Endpoint) -> Program[Ints]:
        answerer = Answerer(
            shard=shard,
            scorer=make_scorer(shard, endpoint, pool, group),
            vectors=result.vectors,
            spec=spec_for(result.vectors.shape[1], result.reading.cosines),
            strict=result.strict,
            budget=budget,
        )
        levels = np.full(unique.shape, UNANSWERED)
        for wave in range(1 + both_may_ask):
            open_ = np.flatnonzero(levels[:, 0] == UNANSWERED)
            askers, peers = unique[open_, wave], unique[open_, 1 - wave]
            order = np.lexsort((peers, askers))
            questions = AskedOfPeers(shard.local(askers[order]), peers[order])
            batches = max(1, -(-len(open_) // AT_ONCE))
            learnt = yield from answerer.ask(questions, wave, batches, count)
            levels[open_[order], wave] = learnt.levels
            # Those who answered, in the order of the questions.
            told = np.lexsort((learnt.answering, learnt.askers))
            answered = open_[order][learnt.levels != UNANSWERED]
            levels[answered, 1 - wave] = learnt.answered[told]
        return levels

    workers: Any = closing(make_pool(asked.workers)) if asked.secure else nullcontext()
    with workers as pool:
        (levels,), _ = moving.run(program, lambda _: idle_program())
    as_asked = levels[which]
    turned = asked.pairs[:, 0] != unique[which, 0]
    as_asked[turned] = as_asked[turned, ::-1]
    return Answers(as_asked, moving.ledger())


def evaluated(result: LinkResult, pairs: Ints) -> Doubles:
    """[2, pairs] the observer's scores, within the budgets; nothing of it is kept.

    Where the first end of a pair gets no answer, the second asks: both want to know.
    """
    levels = np.full(pairs.shape, UNANSWERED)
    if result.reading.way != ALONE:
        asked = AskedPairs(pairs=pairs)
        levels = answer(result, asked, result.budget.copy(), both_may_ask=True).levels
    return result.at_both_ends(levels, pairs)


def alone(result: LinkResult, pairs: Ints) -> Doubles:
    """The same by the askers' degrees alone."""
    return result.at_both_ends(np.full(pairs.shape, UNANSWERED), pairs)


def _coin_name(result: LinkResult, pairs: Ints, budget: AnswerBudget) -> str:
    """A name for the randomness of questions: other questions, other vectors or settings, other
    randomness.

    Two runs that drew with the same randomness at two ε would reveal more than both together.
    """
    strict = result.strict
    settings = repr((strict.query_epsilon, strict.query_bits, strict.score_queries))
    run = digest_of(result.vectors, result.reading.kept) + settings
    parts = pairs.tobytes() + budget.digest() + run.encode()
    return blake2b(parts, digest_size=16).hexdigest()


def _lone_devices(total: int, seed: int, name: str, *, fresh: bool) -> Shard:
    """All devices, without neighbours. `name` names their randomness, where they are simulated."""
    devices = np.arange(total)
    simulated = partial(simulated_secrets, seed, variant=f"/answers/{name}")
    secrets = (system_secrets if fresh else simulated)(devices)
    nobody = np.empty(0, np.int64)
    return Shard(
        devices,
        total,
        np.zeros(total + 1, np.int64),
        nobody,
        PrivateRandomness(secrets),
        PublicRandomness(seed),
    )

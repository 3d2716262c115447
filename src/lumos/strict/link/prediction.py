"""Score queries about pairs after training.

A run folder has public weights, and the random marks and propagated labels that devices sent:
nothing derived from raw features or from the list of neighbours. Vectors and degrees are computed
again from the graph when pairs are scored.

Devices need only their vectors and their budgets: the program that asks has no graph, so it treats
neighbours and non-neighbours alike.
"""

from collections.abc import Callable, Sequence
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
from lumos.ldp.account import PrivacyAccount, Seal
from lumos.strict.accounting import limits_of
from lumos.strict.features import FeatureScaling
from lumos.strict.link.answers import (
    ANSWER_COUNTS,
    AT_ONCE,
    FILE,
    AnswerBudget,
    Answerer,
    AnswerRecord,
    AnswerStore,
    charged,
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
from lumos.training.trainer import ANSWERS, AskedPairs, LinkPredictions, PairAnswer, TrainedLinks
from lumos.twoparty.score import IDEAL_TOPICS, UNANSWERED, make_scorer
from lumos.twoparty.workers import InProcess, make_pool
from lumos.typing import Arrays, Bytes, Doubles, Floats, Ints, Small, StatePart

if TYPE_CHECKING:
    from lumos.training.config import Config


_ROWS = ("vectors", "embeddings", "degree", "sent")


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkResult:
    """The vectors of all devices, and the result of calibration."""

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

    def state_dict(self, part: StatePart = "run") -> Arrays:
        """Return the arrays of the devices by name; for `device` the reading of buckets too."""
        own = {name: getattr(self, name) for name in _ROWS}
        reading = self.reading.arrays() if part == "device" else {}
        return {**own, **self.budget.arrays(), **reading}

    def load_state_dict(self, rows: Arrays) -> "LinkResult":
        """Return the result of all devices, from their joined rows."""
        own: dict[str, Any] = {name: rows[name] for name in _ROWS}
        return replace(self, **own, budget=AnswerBudget.of(rows))

    def at_both_ends(self, levels: Ints, pairs: Ints) -> Doubles:
        """Return [2, pairs] scores of the first ends, then of the second.

        Args:
            levels: [pairs, 2] the bucket that each end learnt.
        """
        return np.stack([self.scores(levels[:, end], pairs[:, end]) for end in (0, 1)])

    def scores(self, levels: Ints, askers: Ints) -> Doubles:
        """Return [pairs] logits of being an edge, as the askers compute them."""
        degree = self.degree[askers]
        return scores(levels, self.reading.evidence, degree, len(self.degree))

    @property
    def used(self) -> tuple[int, int]:
        """Numbers of queries that the devices asked, and that they answered."""
        return int(self.budget.asked.sum()), int(self.budget.answered.sum())

    def resume(self, used: Sequence[int]) -> None:
        """Restore the counts of this one device: asked, answered, and of calibrations if known."""
        for name, before in zip(ANSWER_COUNTS, used, strict=False):
            counts = getattr(self.budget, name)
            np.maximum(counts, before, out=counts)

    @staticmethod
    def restored(kept: Arrays, strict: StrictSettings, seed: int) -> "LinkResult":
        """Restore the result of a device from the part `device` of its `state_dict`.

        Raises:
            InputError: an array is missing, or belongs to another run.
        """
        try:
            own: dict[str, Any] = {name: kept[name] for name in _ROWS}
            budget, reading = AnswerBudget.of(kept), Reading.of(kept, strict.query_bits)
        except (KeyError, InputError):
            raise InputError("the saved state of the device does not match this run") from None
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
        """Run one query at one of its two ends; `lumos.training.trainer.AnswersPairs`.

        Randomness is that of the shard: a second answer to the same vector with the same randomness
        reveals nothing new.
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
            rows, peers = np.zeros(int(asks), np.int64), np.full(int(asks), peer, np.int64)
            learnt = yield from answerer.ask(rows, peers, 1 + peer, 1)
            level = learnt.levels if asks else np.append(learnt.answered, UNANSWERED)[:1]
        logit = scores(level, self.reading.evidence, self.degree, shard.total)
        return PairAnswer(float(logit[0]), bool(level[0] != UNANSWERED))

    def estimates(self) -> dict[str, float]:
        """Return the AUC of the score buckets by vector, and its error."""
        read = self.reading
        measured = {f"levels_auc_{way}": value for way, value in read.separation.items()}
        return measured | {f"levels_auc_{way}_error": value for way, value in read.error.items()}

    def arrays(self) -> Arrays:
        """Return the messages of training, which `of` needs beside weights and graph."""
        return {"sent": self.sent}

    @property
    def name(self) -> str:
        """Name of the run in records, from public values and messages.

        It does not depend on vectors: whoever knew all but one could check guesses at the last.
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
        """Compute the local results of a finished run again, identical to the last bit.

        With `randomness='system'` secrets are gone: a tie between random marks may then be broken
        differently, but in the same way for every query.

        Args:
            training: the graph of the run with its training edges.
            weights: the part `model` of `Trainer.state_dict`.
            kept: as `arrays` returned them.
            split: digest of the split, which enters the name of the randomness.

        Raises:
            InputError: weights or messages do not match this run.
        """
        strict = schedule.strict
        (shard,) = cut(
            training, 1, seed, variant=_randomness(training, schedule.config, seed, split)
        )
        features = features_of(training)
        if schedule.first_stages:
            features = FeatureScaling.of(weights, training.feature_count).apply(features)
        tokens = TokenRows(features, signed=schedule.signed)
        _check(schedule, tokens.width, weights, kept, len(shard))
        encoder = LinkEncoder(tokens, schedule)
        encoder.load_state_dict(weights)
        sketch = NeighbourhoodSketch(shard, schedule.propagated_label_mechanism)
        sketch.usual = list(weights["usual"])
        for number, sent in enumerate(kept["sent"].T):
            sketch.repeat(number, sent)
            marks = sent[shard.neighbours].astype(np.int64)
            sketch.receive(shard.owner, np.arange(len(marks)), marks)
        vectors = combined(encoder.embeddings(), sketch.vectors(), len(schedule.compared))
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
    """Return the name of the randomness of the run."""
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
    """Refuse weights or messages that do not match this run.

    Raises:
        InputError: an array is missing, or has another shape or type.
    """
    rounds, size = 1 + schedule.num_propagated, schedule.random_marks
    shapes = {
        "weights": (width,),
        "basis": (width, size),
        "mixing": (size, size),
        "usual": (rounds, size),
    }
    for name, shape in shapes.items():
        array = weights.get(name)
        good = array is not None and array.shape == shape and array.dtype == np.float64
        if array is None or not good or not np.isfinite(array).all():
            raise InputError(f"model.npz: the array {name!r} does not match this run; train again")
    sent = kept.get("sent")
    if sent is None or sent.shape != (devices, rounds) or sent.dtype != np.uint8:
        raise InputError("devices.npz: the messages do not match this run; train again")
    if sent.max(initial=0) >= size:
        raise InputError("devices.npz: a device sent an unknown random mark; train again")


RESULT = "result"
"""Key of the local results in the memory of a run."""
DOORS = frozenset({Door.COMPARE, Door.CONTROL})
"""Doors that score queries need."""


class Answers(NamedTuple):
    """The result of score queries."""

    levels: Ints
    """[pairs, 2] the bucket that each end learnt, `UNANSWERED` if a budget was used up."""
    ledger: LedgerReport


def predict_pairs(
    model: TrainedLinks, asked: AskedPairs, at_home: Callable[[], LinkResult]
) -> LinkPredictions:
    """Score pairs by queries within the budgets of devices, and record the answers.

    Devices compute their vectors locally: no file has them.

    Args:
        at_home: computes the local results of devices.
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

    def ask(record: AnswerRecord) -> Answers:
        return ask_new(result, asked, record, fresh=fresh)

    if strict.account is not None:
        account = PrivacyAccount(
            strict.account, model.ids, limits=limits_of(strict), run="prediction"
        )
        account.check_seal(Seal.of(model.kept))
        answers = _store(model, result).update(charged(account, ask))
    else:
        answers = _store(model, result).update(ask)
    return _scored(result, asked.pairs, answers.levels, answers.ledger)


def ask_new(
    result: LinkResult,
    asked: AskedPairs,
    record: AnswerRecord,
    *,
    fresh: bool = False,
    transport: str = "loopback",
) -> Answers:
    """Ask about pairs that were not answered before; `fresh` and `transport` as in `answer`."""
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
) -> LinkPredictions:
    mine = levels[:, 0]
    return LinkPredictions(
        scores=result.scores(mine, pairs[:, 0]), answered=mine != UNANSWERED, ledger=ledger
    )


def _store(model: TrainedLinks, result: LinkResult) -> AnswerStore:
    """Return the storage of the record: the run folder, or the memory of the run."""
    if model.folder is not None:
        return AnswerStore(model.folder / FILE, result.budget, len(result.reading.evidence))
    store: AnswerStore = model.memory.setdefault(ANSWERS, AnswerStore(None, result.budget))
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
    """Ask about pairs, and count the answers in `budget`.

    Args:
        both_may_ask: if the first end gets no answer, the second one asks.
        fresh: draw randomness from the operating system, as the run did.
        transport: what moves the messages, a name of `TRANSPORTS`.
    """
    total = len(result.degree)
    keys = pair_keys(asked.pairs, total)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    unique = asked.pairs[first]
    shard = _lone_devices(total, result.seed, _randomness_name(result, unique, budget), fresh=fresh)
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
            batches = max(1, -(-len(open_) // AT_ONCE))
            learnt = yield from answerer.ask(
                shard.local(askers[order]), peers[order], wave, batches, count
            )
            levels[open_[order], wave] = learnt.levels
            # Devices that answered, in the order of the questions.
            in_order = np.lexsort((learnt.answering, learnt.askers))
            answered = open_[order][learnt.levels != UNANSWERED]
            levels[answered, 1 - wave] = learnt.answered[in_order]
        return levels

    workers: Any = closing(make_pool(asked.workers)) if asked.secure else nullcontext()
    with workers as pool:
        (levels,), _ = moving.run(program, lambda _: idle_program())
    as_asked = levels[which]
    turned = asked.pairs[:, 0] != unique[which, 0]
    as_asked[turned] = as_asked[turned, ::-1]
    return Answers(as_asked, moving.ledger())


def evaluated(result: LinkResult, pairs: Ints) -> Doubles:
    """Return [2, pairs] the observer's scores, within the budgets, without recording them.

    If the first end of a pair gets no answer, the second one asks.
    """
    levels = np.full(pairs.shape, UNANSWERED)
    if result.reading.way != ALONE:
        asked = AskedPairs(pairs=pairs)
        levels = answer(result, asked, result.budget.copy(), both_may_ask=True).levels
    return result.at_both_ends(levels, pairs)


def alone(result: LinkResult, pairs: Ints) -> Doubles:
    """Return [2, pairs] scores by the askers' degrees alone."""
    return result.at_both_ends(np.full(pairs.shape, UNANSWERED), pairs)


def _randomness_name(result: LinkResult, pairs: Ints, budget: AnswerBudget) -> str:
    """Return a name for the randomness of queries; it depends on queries, vectors and settings.

    Two runs with the same randomness at different ε would reveal more than both ε together.
    """
    strict = result.strict
    settings = repr((strict.query_epsilon, strict.query_bits, strict.score_queries))
    run = digest_of(result.vectors, result.reading.kept) + settings
    parts = pairs.tobytes() + budget.digest() + run.encode()
    return blake2b(parts, digest_size=16).hexdigest()


def _lone_devices(total: int, seed: int, name: str, *, fresh: bool) -> Shard:
    """Return a shard of all devices without neighbours; `name` names simulated randomness."""
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

"""Questions about pairs, put to a simulated federation after training.

Devices need nothing but their vectors and their budgets of answers: the program that asks has no
graph, so a peer is a stranger to it whether it is a neighbour or not.
"""

from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from lumos.crypto.group import choose_group
from lumos.device.coins import PrivateCoins, PublicCoins, simulated_secrets, system_secrets
from lumos.device.shard import Shard
from lumos.exchange.carrier import CARRIERS
from lumos.exchange.endpoint import Endpoint, Program, no_part
from lumos.exchange.ledger_report import LedgerReport
from lumos.exchange.topic import Door
from lumos.score import IDEAL_TOPICS, make_scorer
from lumos.session.worker_processes import make_pool
from lumos.strict.answer_budget import AnswerBudget
from lumos.strict.answer_record import (
    FILE,
    AnswerRecord,
    AnswersInFile,
    AnswersInMemory,
    AnswerStore,
    digest_of,
    pair_keys,
)
from lumos.strict.book_file import BookSeal
from lumos.strict.link_answers import AT_ONCE, UNANSWERED, Answerer, AskedOfPeers
from lumos.strict.link_levels import ALONE, spec_for
from lumos.strict.link_result import LinkResult
from lumos.strict.release_book import ReleaseBook
from lumos.strict.settings import StrictSettings, settings_of
from lumos.training.trainer import ANSWERS, AskedPairs, PairAnswers, TrainedLinks
from lumos.typing import Doubles, Ints

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
    fresh = model.config.train.coins == "system"
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
    carrier: str = "loopback",
) -> Answers:
    """Ask what was not answered before; `fresh` and `carrier` as in `answer`."""
    name = result.name
    levels = record.known(asked.pairs, name)
    open_ = np.flatnonzero(levels[:, 0] == UNANSWERED)
    unknown = replace(asked, pairs=asked.pairs[open_])
    new = answer(result, unknown, record.budget, fresh=fresh, carrier=carrier)
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
    carrier: str = "loopback",
) -> Answers:
    """Ask, and count what was answered in `budget`.

    Args:
        both_may_ask: where the first end gets no answer, the second asks.
        fresh: coins from the operating system, as the run had them.
        carrier: what moves the messages, a name of `CARRIERS`.
    """
    total = len(result.degree)
    keys = pair_keys(asked.pairs, total)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    unique = asked.pairs[first]
    shard = _lone_devices(total, result.seed, _coin_name(result, unique, budget), fresh=fresh)
    ideal = frozenset() if asked.secure else IDEAL_TOPICS
    moving = CARRIERS[carrier]([shard], DOORS, ideal)
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
        (levels,), _ = moving.run(program, lambda _: no_part())
    as_asked = levels[which]
    turned = asked.pairs[:, 0] != unique[which, 0]
    as_asked[turned] = as_asked[turned, ::-1]
    return Answers(as_asked, moving.ledger())


def judged(result: LinkResult, pairs: Ints) -> Doubles:
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
    """A name for the coins of questions: other questions, other vectors or settings, other coins.

    Two runs that drew with the same coins at two ε would reveal more than both together.
    """
    strict = result.strict
    settings = repr((strict.answer_epsilon, strict.answer_bits, strict.answers))
    run = digest_of(result.vectors, result.reading.kept) + settings
    parts = pairs.tobytes() + budget.digest() + run.encode()
    return blake2b(parts, digest_size=16).hexdigest()


def _lone_devices(total: int, seed: int, name: str, *, fresh: bool) -> Shard:
    """All devices, without neighbours. `name` names their coins, where they are simulated."""
    devices = np.arange(total)
    simulated = partial(simulated_secrets, seed, arm=f"/answers/{name}")
    secrets = (system_secrets if fresh else simulated)(devices)
    nobody = np.empty(0, np.int64)
    return Shard(
        devices,
        total,
        np.zeros(total + 1, np.int64),
        nobody,
        PrivateCoins(secrets),
        PublicCoins(seed),
    )

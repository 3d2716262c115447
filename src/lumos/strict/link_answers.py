"""Answers about pairs: who may ask, the levels that both ends learn, and the asker's score.

Used by the observer to judge a run, and by `lumos predict`. The program of a shard:

1. Askers ask the other end, within their budgets (`answer_budget`).
2. Pairs that agreed learn the level of their score (`lumos.score`), a few thousand at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.encode.mechanisms import COIN, RandomizedResponse
from lumos.exchange.endpoint import Program
from lumos.score import LevelSpec, Scorer
from lumos.session.pairs import ComparedPairs
from lumos.strict.answer_budget import AnswerBudget, consents
from lumos.strict.settings import StrictSettings
from lumos.typing import Doubles, Ints, Small

UNANSWERED = -1
AT_ONCE = 4096
"""Pairs whose sessions are open at the same time."""

OnEnds = Callable[[int], None]
"""Callback `(ends)`: how many ends of pairs learnt a level since the last call."""


class AskedOfPeers(NamedTuple):
    """Questions from the view of one shard."""

    rows: Ints
    """[questions] positions of hosted askers, not decreasing."""
    peers: Ints
    """[questions] ids, increasing for each asker."""


class Learnt(NamedTuple):
    """What the devices of one shard learnt: with randomized response, each end its own."""

    levels: Ints
    """[questions] of their own."""
    answering: Ints
    """[answers] ids of those that answered others."""
    askers: Ints
    """[answers] ids of the others."""
    answered: Ints
    """[answers] the levels that those who answered learnt."""


def shifts_for(
    shard: Shard, pairs: ComparedPairs, levels: int, epsilon: float, step: int
) -> Ints | None:
    """[pairs] what devices add to the level that the other end learns: randomized response.

    Guarantee: one answer is ε-LDP for the own vector, against the other end. Each end draws its own
    shift, so both are protected. It is drawn once: a pair that is asked again is answered from
    memory.
    """
    if np.isinf(epsilon):
        return None
    counts = np.bincount(pairs.rows, minlength=len(shard))
    coins = np.floor(shard.coins.uniform_each(counts, "answer", step) * COIN).astype(np.uint32)
    # Whole numbers of 2^32 coins, so that the ratio of two shifts is at most e^ε exactly.
    return RandomizedResponse(levels, epsilon).randomize(np.zeros(len(pairs), np.int64), coins)


def levels_of_pairs(
    shard: Shard,
    scorer: Scorer,
    devices: Ints,
    peers: Ints,
    vectors: Small,
    spec: LevelSpec,
    epsilon: float,
    step: int,
) -> Program[Ints]:
    """[pairs] levels, for pairs from the view of hosted devices in any order, none twice.

    Args:
        step: names the coins of randomized response; another for every call.
    """
    order = np.lexsort((peers, devices))
    pairs = ComparedPairs.of_ids(shard, devices[order], peers[order])
    shifts = shifts_for(shard, pairs, spec.levels, epsilon, step)
    learnt = yield from scorer.levels(pairs, vectors, spec, shifts)
    levels = np.empty(len(order), np.int64)
    levels[order] = learnt
    return levels


@dataclass(kw_only=True, eq=False)
class Answerer:
    """The devices of one shard that ask and answer.

    Args:
        vectors: [hosted, width] as `spec` takes them.
        budget: of the hosted devices; it is counted in here.
        willing: whether they answer others, as far as the budget goes.
    """

    shard: Shard
    scorer: Scorer
    vectors: Small = field(repr=False)
    spec: LevelSpec
    strict: StrictSettings
    budget: AnswerBudget = field(repr=False)
    willing: bool = True

    def ask(
        self, asked: AskedOfPeers, step: int, batches: int, on_ends: OnEnds | None = None
    ) -> Program[Learnt]:
        """The levels that hosted devices learn, `UNANSWERED` where a budget was used up.

        Args:
            step: names the coins; another for every call.
            batches: how many batches of pairs all shards go through: a public number.
        """
        shard = self.shard
        asking, others = self.budget.left(self.strict)
        left = (asking, others if self.willing else np.zeros_like(others))
        answered, answering, askers = yield from consents(shard, *asked, left, step)
        mine = np.flatnonzero(answered)
        # Before anybody learns a level: an end that falls silent later has told its own.
        np.add.at(self.budget.asked, asked.rows[mine], 1)
        np.add.at(self.budget.answered, answering, 1)
        rows = np.concatenate([asked.rows[mine], answering])
        peers = np.concatenate([asked.peers[mine], askers])
        devices = shard.ids_of(rows)
        # Both ends of a pair find it in the same batch.
        low, high = np.minimum(devices, peers), np.maximum(devices, peers)
        batch = (low + high) % batches
        levels = np.full(len(asked.rows), UNANSWERED)
        learnt = np.empty(len(rows), np.int64)
        for number in range(batches):
            here = np.flatnonzero(batch == number)
            learnt[here] = yield from levels_of_pairs(
                shard,
                self.scorer,
                devices[here],
                peers[here],
                self.vectors,
                self.spec,
                self.strict.answer_epsilon,
                (step << 32) + number,  # no call has the coins of another, however many batches
            )
            if on_ends is not None:
                on_ends(len(here))
        levels[mine] = learnt[: len(mine)]
        return Learnt(levels, shard.ids_of(answering), askers, learnt[len(mine) :])


def scores(levels: Ints, evidence: Doubles, degree: Ints, devices: int) -> Doubles:
    """[pairs] logits of being an edge, as the asker has them.

    Args:
        levels: [pairs] of the score, or `UNANSWERED`.
        evidence: [levels] of an edge.
        degree: [pairs] of the asker.
        devices: in the federation.
    """
    known = np.where(levels == UNANSWERED, 0.0, evidence[np.maximum(levels, 0)])
    logits: Doubles = known + np.log((degree + 1) / devices)
    return logits

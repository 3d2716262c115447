"""Questions about pairs, put to a simulated federation after training.

Devices need nothing but their vectors and their budgets of answers: the graph is not used, so a
peer is a stranger to the program whether it is a neighbour or not.
"""

from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from lumos.device.coins import PrivateCoins, PublicCoins, simulated_secrets, system_secrets
from lumos.device.shard import Shard
from lumos.exchange.carrier import CARRIERS
from lumos.exchange.endpoint import Endpoint, Program, no_part
from lumos.exchange.ledger_report import LedgerReport
from lumos.exchange.topic import Door
from lumos.score import IDEAL_TOPICS, IdealScorer, Scorer, SecureScorer
from lumos.session.worker_processes import make_pool
from lumos.session.workers import Workers
from lumos.strict.answer_budget import AnswerBudget
from lumos.strict.link_answers import AT_ONCE, UNANSWERED, Answerer, Asked
from lumos.strict.link_levels import spec_for
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.strict.link_result import LinkResult

DOORS = frozenset({Door.COMPARE, Door.CONTROL})
"""All that questions need."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Questions:
    """Pairs to be scored; the first end asks."""

    pairs: Ints = field(repr=False)
    """[pairs, 2] ids; a pair may be there twice, in either order."""
    both_may_ask: bool = False
    """Where the first end gets no answer, the second asks."""
    secure: bool = False
    """Real cryptography between the two ends; otherwise levels are computed in the clear."""
    system_coins: bool = False
    """Coins from the operating system; otherwise from the run seed."""
    workers: int | None = None
    """Processes for the cryptography; None: one per core."""
    progress: Callable[[int, int], None] | None = field(default=None, repr=False)
    """Callback `(pairs answered, pairs to answer)`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What was answered."""

    levels: Ints = field(repr=False)
    """[pairs] of each pair, `UNANSWERED` where a budget was used up."""
    ledger: LedgerReport = field(repr=False)


def answer(result: "LinkResult", questions: Questions, budget: AnswerBudget) -> Answers:
    """Ask, and count what was answered in `budget`."""
    total = len(result.degree)
    low, high = questions.pairs.min(axis=1), questions.pairs.max(axis=1)
    keys, which = np.unique(low * total + high, return_inverse=True)
    _, place = np.unique(which, return_index=True)
    unique = questions.pairs[place]  # as they were asked first
    digest = blake2b(unique.tobytes() + budget.digest(), digest_size=16).hexdigest()
    shard = _lone_devices(total, result.seed, digest, system=questions.system_coins)
    ideal = frozenset() if questions.secure else IDEAL_TOPICS
    carrier = CARRIERS["loopback"]([shard], DOORS, ideal)
    spec = spec_for(result.vectors.shape[1], result.reading.cosines)
    done = 0

    def count(pairs: int) -> None:
        nonlocal done
        done += pairs // 2  # both ends are hosted here
        if questions.progress is not None:
            questions.progress(done, len(unique))

    def program(shard: Shard, endpoint: Endpoint) -> Program[Ints]:
        answerer = Answerer(
            shard=shard,
            scorer=_scorer(shard, endpoint, pool),
            vectors=result.vectors,
            spec=spec,
            strict=result.strict,
            budget=budget,
        )
        levels = np.full(len(unique), UNANSWERED)
        for wave in range(1 + questions.both_may_ask):
            open_ = np.flatnonzero(levels == UNANSWERED)
            askers, peers = unique[open_, wave], unique[open_, 1 - wave]
            order = np.lexsort((peers, askers))
            asked = Asked(shard.local(askers[order]), peers[order])
            batches = max(1, -(-len(open_) // AT_ONCE))
            learnt = yield from answerer.ask(asked, wave, batches, count)
            levels[open_[order]] = learnt
        return levels

    workers: Any = closing(make_pool(questions.workers)) if questions.secure else nullcontext()
    with workers as pool:
        (levels,), _ = carrier.run(program, lambda _: no_part())
    return Answers(levels=levels[which], ledger=carrier.ledger())


def _scorer(shard: Shard, endpoint: Endpoint, pool: Workers | None) -> Scorer:
    if pool is None:
        return IdealScorer(shard, endpoint)
    return SecureScorer(shard, endpoint, pool)


def _lone_devices(total: int, seed: int, name: str, *, system: bool) -> Shard:
    """All devices, without neighbours. `name` names their coins: new questions, new coins."""
    devices = np.arange(total)
    secrets = system_secrets(devices) if system else simulated_secrets(seed, devices, f"/{name}")
    nobody = np.empty(0, np.int64)
    return Shard(
        devices,
        total,
        np.zeros(total + 1, np.int64),
        nobody,
        PrivateCoins(secrets),
        PublicCoins(seed),
    )

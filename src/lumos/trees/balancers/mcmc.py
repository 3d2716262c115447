"""Algorithm 2: Metropolis–Hastings over who carries which edge, from the greedy start."""

from bisect import bisect_left

import numpy as np

from lumos.compare.comparer import (
    Comparer,
    agree_on_length,
    at_least,
    count_objections,
)
from lumos.device.coins import PublicCoins
from lumos.device.shard import COORDINATOR, Shard
from lumos.exchange.batch import Inbox
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import PUBLIC_ID, Door, Topic
from lumos.session.pairs import ComparedPairs
from lumos.trees.balancers import DegreeSums, Observe
from lumos.trees.balancers.greedy import greedy
from lumos.trees.maximum import run_tournament
from lumos.trees.neighbour_workloads import WorkloadOrder
from lumos.trees.proposal import propose
from lumos.trees.settings import TreeSettings
from lumos.trees.tournament import Tournament
from lumos.typing import Flags, Ints

PROPOSE = Topic(
    name="mcmc/propose",
    door=Door.CONTROL,
    vocabulary=("you are the heaviest: propose a step",),
    coordinator="sends",
    learns="a device learns that nobody is heavier; the coordinator chose it",
)
TRANSFER = Topic(
    name="mcmc/transfer",
    door=Door.CONTROL,
    vocabulary=("carry our edge",),
    learns="a neighbour learns that the heaviest device would hand it their edge",
)
JUDGE = Topic(
    name="mcmc/judge",
    door=Door.CONTROL,
    dtype=np.int64,
    vocabulary=PUBLIC_ID,
    coordinator="sends",
    learns="the proposing device and the heaviest one after the step learn of each other",
)
VERDICT = Topic(
    name="mcmc/verdict",
    door=Door.CONTROL,
    vocabulary=("rejected",),
    coordinator="both",
    learns="those who took part in a step learn that it is void; everyone hears whether one is",
)
REVERT = Topic(
    name="mcmc/revert",
    door=Door.CONTROL,
    vocabulary=("my workload is what it was before",),
    learns="those who were told of a change learn that it is void",
)
_NOBODY = -1


def mcmc(
    shard: Shard, comparer: Comparer, iterations: int, observe: Observe | None = None
) -> Program[Flags]:
    """Algorithms 1, 2 and 3. Returns [slots] True where the hosted device keeps the neighbour."""
    keep = yield from greedy(shard, comparer)
    workload: Ints = np.bincount(shard.owner[keep], minlength=len(shard))
    # A workload never exceeds the degree, and f climbs c above its start with a probability of
    # about e^-c. Beyond 2^bits - 2 values saturate: heavier devices look level.
    bits = yield from agree_on_length(shard, np.minimum(shard.degree, workload + 16) + 3)
    order = WorkloadOrder(shard, comparer, workload, bits)
    yield from order.compare_all()
    yield from order.play()
    for iteration in range(iterations):
        inbox = yield PROPOSE.nothing()
        if inbox.quiet:  # a graph without edges has nothing to balance
            break
        proposer = shard.local(inbox.receiver)  # one device of the federation, or none here
        before = workload[proposer]
        limit, offered = 0, np.empty(0, np.int64)
        for row in proposer.tolist():
            if observe is not None:
                observe(iteration, int(workload[row]))
            limit, offered = propose(shard, keep, int(workload[row]), row, iteration)
        inbox = yield TRANSFER.along(shard, offered, 0)
        asked = shard.slots(inbox.receiver, inbox.sender)
        # Who already carries the edge keeps it: one of the two copies goes (errata 4).
        new = asked[~keep[asked]]
        keep[offered], keep[new] = False, True
        workload[proposer] -= len(offered)
        workload[shard.owner[new]] += 1
        changed = np.concatenate([proposer, shard.owner[new]])
        changed.sort()
        yield from order.compare_again(changed)
        yield from order.play()

        inbox = yield JUDGE.nothing()
        if inbox.quiet:  # known answers say that f(X') ≤ f(X): the step stands
            continue
        accepted = yield from _judge(shard, comparer, bits, inbox, proposer, limit, workload)
        # Those who took part are notified of a rejection; silence means that the step stands.
        notified = np.append(shard.neighbours[offered], COORDINATOR)
        if accepted or not proposer.size:
            notified = notified[:0]
        inbox = yield VERDICT.send(np.repeat(shard.devices[proposer], len(notified)), notified, 0)
        if inbox.quiet:
            continue
        rejected = len(notified) > 0 or inbox.sender.size > 0
        contacted = order.contacted if rejected else order.contacted[:0]
        inbox = yield REVERT.along(shard, contacted, 0)
        if rejected or inbox.sender.size:
            # Every device that took part in the step or was notified of it knows that it is void.
            workload[proposer] = before
            workload[shard.owner[new]] -= 1
            keep[offered], keep[new] = True, False
            order.take_back()
    return keep


def mcmc_coordinator(devices: Ints, public: PublicCoins, iterations: int) -> Program[None]:
    """The coordinator's part in Algorithms 2 and 3: flags, matches, and one choice per step."""
    yield from count_objections(devices)
    tournament = Tournament()
    yield from run_tournament(tournament)
    choices = public.generator("which of the heaviest")
    for _ in range(iterations):
        heaviest = tournament.champions()
        if not heaviest:
            yield PROPOSE.nothing()
            break
        chosen = heaviest[int(choices.integers(len(heaviest)))]
        yield PROPOSE.from_coordinator(np.array([chosen]), 0)
        tournament.begin()
        changed = yield from run_tournament(tournament, lighter=chosen)
        before, heaviest = heaviest, tournament.champions()
        judged = heaviest[int(choices.integers(len(heaviest)))]
        if _settled(chosen, changed, before, heaviest):
            yield JUDGE.nothing()
            continue
        both = np.array([chosen, judged])
        yield JUDGE.from_coordinator(both, both[::-1])
        inbox = yield VERDICT.nothing()
        if not inbox.quiet:
            tournament.undo()


def _settled(chosen: int, changed: set[int], before: list[int], heaviest: list[int]) -> bool:
    """Whether f(X') ≤ f(X) follows from known answers, so that the step stands in any case.

    It does when the proposer, which became lighter, is still among the heaviest, or when one that
    was and has not changed still is. `before` and `heaviest`: the heaviest devices, increasing.
    """
    if chosen in heaviest:
        return True
    unchanged = (device for device in heaviest if device not in changed)
    return any(_holds(before, device) for device in unchanged)


def _holds(devices: list[int], device: int) -> bool:
    place = bisect_left(devices, device)
    return place < len(devices) and devices[place] == device


def _judge(
    shard: Shard,
    comparer: Comparer,
    bits: int,
    inbox: Inbox,
    proposer: Ints,
    limit: int,
    workload: Ints,
) -> Program[bool]:
    """One comparison: is the largest workload after the step at most the proposer's threshold?

    Args:
        inbox: the coordinator's message to the proposer and to the heaviest device after the step.

    Returns:
        the verdict in the shard of the proposer, False elsewhere.
    """
    pairs = ComparedPairs.of_ids(shard, inbox.receiver, inbox.body)
    asker = pairs.rows == (proposer[0] if proposer.size else _NOBODY)
    values = np.where(asker, limit, workload[pairs.rows])
    within = yield from at_least(comparer, pairs, values, asker, bits)
    return bool(within[asker].any())


class McmcBalancer:
    """The balancer `mcmc`."""

    compares = True
    iterative = True

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        """Algorithms 1, 2 and 3."""
        return mcmc(shard, comparer, settings.iterations, observe)

    def coordinator_program(
        self, devices: Ints, public: PublicCoins, settings: TreeSettings
    ) -> Program[None]:
        """Finds the heaviest device and chooses who proposes."""
        return mcmc_coordinator(devices, public, settings.iterations)

    def expected_comparisons(self, degrees: DegreeSums, settings: TreeSettings) -> int:
        """Two for each edge, then 4 times the mean degree at an end of an edge in each step.

        Measured on Facebook, LastFM and Twitch (`python -m benchmarks.bench balancers`).
        """
        at_an_end = degrees.squares / max(1, 2 * degrees.edges)
        return int(2 * degrees.edges + 4 * at_an_end * settings.iterations)


MCMC = McmcBalancer()

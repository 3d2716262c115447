"""The balancer `mcmc`: Metropolis–Hastings over who carries which edge (Algorithms 2 and 3).

In the order of the file: the tournament of Algorithm 3, which finds the heaviest candidate by as
few matches as possible, and the coordinator's part in it; the draws of a proposal; the order of
workloads between neighbours; and Algorithm 2 itself, from the greedy start.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lumos.device.randomness import PublicRandomness
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import PUBLIC_ID, Door, Inbox, Topic
from lumos.trees.balancers import DegreeSums, Observe, TreeSettings
from lumos.trees.balancers.greedy import greedy
from lumos.trees.balancers.optimal import union
from lumos.twoparty.comparer import Comparer, Signs, agree_on_length, at_least, count_objections
from lumos.twoparty.workers import ComparedPairs
from lumos.typing import Flags, Ints

_FEW = 8  # so few all meet the first one at once: mostly one round, rarely more matches


class Tournament:
    """The coordinator's record: who lost to whom, as a forest of valid answers.

    A candidate that is no tree's child has not lost yet. One tree is left when the champion is
    found; those level with it hang below it by level answers. When a device changes or leaves,
    what its children and its parent know of each other through it stays true, so they are linked
    directly; only a champion that nobody equalled leaves its children without a parent.
    """

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}
        self._below: dict[int, set[int]] = {}
        self._level_with: dict[int, set[int]] = {}
        self._unbeaten: dict[int, None] = {}
        self._journal: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        self._champions: list[int] | None = None
        self._champions_before: list[int] | None = None

    def begin(self) -> None:
        """Start recording, so that `undo` can bring the present state back."""
        self._journal = []
        self._champions_before = self.champions()

    def undo(self) -> None:
        """Take back everything since `begin`."""
        journal, self._journal = self._journal or [], None
        for take_back, arguments in reversed(journal):
            take_back(*arguments)
        self._champions = self._champions_before

    def update(
        self, devices: Iterable[int], candidate: Iterable[bool], lighter: int | None = None
    ) -> None:
        """Devices that became candidates, ceased to be, or changed their workload.

        Args:
            devices: in increasing order.
            candidate: whether each is a candidate now.
            lighter: the one device whose workload may have fallen; all others can only rise.
        """
        for device, stays in zip(devices, candidate, strict=True):
            if device not in self._below:
                if stays:
                    self._enter(device)
            elif stays and device != lighter:
                self._rise(device)
            else:
                heir = self._pass_children_on(device)
                if stays:
                    self._fall(device, heir)
                else:
                    if device in self._parent:
                        self._unlink(device)
                    self._leave(device)

    def matches(self) -> list[tuple[int, int]]:
        """The next matches, as increasing pairs (smaller id, larger id); none when one is left."""
        unbeaten = list(self._unbeaten)
        if len(unbeaten) <= _FEW:
            pairs = [(unbeaten[0], other) for other in unbeaten[1:]]
        else:
            pairs = list(zip(unbeaten[0::2], unbeaten[1::2], strict=False))
        return sorted((min(pair), max(pair)) for pair in pairs)

    def record(self, first: int, second: int, sign: int) -> None:
        """Result of a match: `sign` of (first's workload - second's)."""
        loser, winner = (first, second) if sign < 0 else (second, first)
        if sign == 0 and loser not in self._unbeaten:
            loser, winner = winner, loser
        if loser in self._unbeaten and self._root(winner) != loser:
            self._link(loser, winner, sign == 0)

    def champions(self) -> list[int]:
        """All devices of largest workload, in increasing order."""
        if self._champions is None:
            champions = list(self._unbeaten)
            for device in champions:  # grows as those level with it are added
                champions.extend(self._level_with[device])
            self._champions = sorted(champions)
        return self._champions

    def _root(self, device: int) -> int:
        while device in self._parent:
            device = self._parent[device]
        return device

    def _rise(self, device: int) -> None:
        """Those below it stay below, those level with it fall below; whom it lost to is open."""
        if device in self._parent:
            self._unlink(device)
        for child in tuple(self._level_with[device]):
            self._unlink(child)
            self._link(child, device, False)

    def _fall(self, device: int, heir: int | None) -> None:
        """It stays below whom it lost to, and falls below whom it was level with."""
        parent = self._parent.get(device)
        if parent is None:
            if heir is not None:
                self._link(device, heir, False)
        elif device in self._level_with[parent]:
            self._unlink(device)
            self._link(device, parent, False)

    def _pass_children_on(self, device: int) -> int | None:
        """Link the children to the parent, or to a child that was level, by transitivity.

        Returns the one that took them, if any; without one they are unbeaten.
        """
        heir, level = self._parent.get(device), True
        if heir is not None:
            level = device in self._level_with[heir]
        elif self._level_with[device]:
            heir = next(iter(self._level_with[device]))
            self._unlink(heir)
        if heir is None:
            for child in tuple(self._below[device]):
                self._unlink(child)
        else:
            self._move(device, heir, self._level_with[device], self._below[device], level)
        return heir

    def _move(
        self, giver: int, taker: int, level: set[int], below: set[int], as_level: bool
    ) -> None:
        """All of `level` and `below` change from `giver` to `taker`, the former as level or not."""
        self._parent.update(dict.fromkeys(level | below, taker))
        (self._level_with if as_level else self._below)[taker] |= level
        self._below[taker] |= below
        self._level_with[giver], self._below[giver] = set(), set()
        self._note(self._move_back, giver, taker, level, below, as_level)

    def _move_back(
        self, giver: int, taker: int, level: set[int], below: set[int], as_level: bool
    ) -> None:
        self._parent.update(dict.fromkeys(level | below, giver))
        (self._level_with if as_level else self._below)[taker] -= level
        self._below[taker] -= below
        self._level_with[giver], self._below[giver] = level, below
        self._champions = None

    def _note(self, take_back: Callable[..., None], *arguments: Any) -> None:
        self._champions = None
        if self._journal is not None:
            self._journal.append((take_back, arguments))

    def _enter(self, device: int) -> None:
        self._below[device], self._level_with[device] = set(), set()
        self._unbeaten[device] = None
        self._note(self._leave, device)

    def _leave(self, device: int) -> None:
        del self._below[device], self._level_with[device], self._unbeaten[device]
        self._note(self._enter, device)

    def _link(self, child: int, parent: int, level: bool) -> None:
        self._parent[child] = parent
        (self._level_with if level else self._below)[parent].add(child)
        del self._unbeaten[child]
        self._note(self._unlink, child)

    def _unlink(self, child: int) -> None:
        parent = self._parent.pop(child)
        level = child in self._level_with[parent]
        (self._level_with if level else self._below)[parent].discard(child)
        self._unbeaten[child] = None
        self._note(self._link, child, parent, level)


# Algorithm 3: find a device of largest workload. The coordinator sees flags and match results.
#
# Neighbours compare first; a device with no strictly heavier neighbour is a candidate. Candidates
# then play a tournament. Every answer is kept until one of the two workloads changes, and an answer
# that became void only because a step was tried is valid again when the step is rejected.

CANDIDATE = Topic(
    name="maximum/candidate",
    door=Door.CONTROL,
    vocabulary=("not a candidate", "a candidate, with a workload not yet matched"),
    coordinator="gathers",
    learns="the coordinator learns that no neighbour of the device is heavier, or that one is",
)
MATCH = Topic(
    name="maximum/match",
    door=Door.CONTROL,
    dtype=np.int64,
    vocabulary=PUBLIC_ID,
    coordinator="sends",
    learns="two candidates learn that they are to compare",
)
RESULT = Topic(
    name="maximum/result",
    door=Door.CONTROL,
    vocabulary=("lighter", "level", "heavier"),
    coordinator="receives",
    learns="the coordinator learns which of two candidates is heavier, or that they are level",
)


def run_tournament(tournament: Tournament, lighter: int | None = None) -> Program[set[int]]:
    """The coordinator's part of Algorithm 3: update the candidates, then match until one is left.

    Args:
        lighter: the one device whose workload may have fallen since the last tournament.

    Returns:
        the devices that became candidates, ceased to be, or changed their workload.
    """
    inbox = yield CANDIDATE.nothing()
    tournament.update(inbox.sender.tolist(), (inbox.body != 0).tolist(), lighter)
    while True:
        matches = tournament.matches()
        if not matches:
            yield MATCH.nothing()
            return set(inbox.sender.tolist())
        both_ways = [*matches, *((second, first) for first, second in matches)]
        pairs = np.array(sorted(both_ways), np.int64)
        yield MATCH.from_coordinator(pairs[:, 0], pairs[:, 1])
        # The smaller id of a match reports; reports arrive in the order of the matches.
        results = yield RESULT.nothing(awaits=np.unique([first for first, _ in matches]))
        for (first, second), code in zip(matches, results.body.tolist(), strict=True):
            tournament.record(first, second, code - 1)


# A proposal of Algorithm 2: the edges to hand over, and the threshold to accept it.


def largest_step(kept: int) -> int:
    """max(1, round(ln |N_u|)) (errata 8c)."""
    return max(1, round(math.log(kept))) if kept else 1


def step_size(kept: int, uniform: float) -> int:
    """k, uniform in 1 … max(1, round(ln |N_u|))."""
    return 1 + int(uniform * largest_step(kept))


def threshold(workload: int, uniform: float) -> int:
    """t = f(X) + ceil(-ln r) - 1: the step is accepted iff f(X') ≤ t (errata 5).

    P(f' ≤ t) = P(-ln r > f' - f) = min(1, e^(f - f')), and only the outcome leaves the device.
    """
    return workload + math.ceil(-math.log(uniform)) - 1


def propose(shard: Shard, keep: Flags, workload: int, row: int, iteration: int) -> tuple[int, Ints]:
    """The proposing device draws r, k and k of its neighbours: (threshold, their slots)."""
    start, end = int(shard.offsets[row]), int(shard.offsets[row + 1])
    kept = keep[start:end].nonzero()[0].tolist()
    most = 2 + largest_step(len(kept))
    randomness = shard.randomness.uniform_of(row, "mcmc", iteration, most)
    size = min(step_size(len(kept), randomness[1]), len(kept))
    for place in range(size):  # the first `size` places of a Fisher–Yates shuffle
        other = place + int(randomness[2 + place] * (len(kept) - place))
        kept[place], kept[other] = kept[other], kept[place]
    offered = np.array(kept[:size], np.int64)
    offered.sort()
    return threshold(workload, randomness[0]), start + offered


# The order of workloads between neighbours: heavier, level or lighter.
#
# The first half of Algorithm 3. Every edge is compared once; after that only where the workload of
# an end changed so that the answer does not follow from the last one. A tried step can be taken
# back without asking again.

CHANGED = Topic(
    name="mcmc/changed",
    door=Door.CONTROL,
    vocabulary=("compare with me again", "I rose above you", "I fell below you"),
    learns="a neighbour learns that a level workload rose or fell, or that it is to compare again",
)
# A movement (+1, -1, or 0 where the sender only asks) as a word, and back; index -1 is the last.
_WORD_OF = np.array([0, 1, 2], np.uint8)
_MOVEMENT_OF = np.array([0, 1, -1], np.int8)
_WORD_OF.flags.writeable = _MOVEMENT_OF.flags.writeable = False  # all shards share them
_UP, _DOWN = _MOVEMENT_OF[1], _MOVEMENT_OF[2]


class WorkloadOrder:
    """The order of workloads between neighbours, in one shard.

    Args:
        workload: [hosted] workloads; the caller changes them and then calls `compare_again`.
        bits: the public ℓ.
    """

    def __init__(self, shard: Shard, comparer: Comparer, workload: Ints, bits: int) -> None:
        self.shard = shard
        self.workload = workload
        self._comparer = comparer
        self._bits = bits
        # [slots] sign of wl(u) - wl(v); [hosted] number of strictly heavier neighbours
        self._sign = np.zeros(len(shard.neighbours), np.int8)
        self._heavier = np.zeros(len(shard), np.int64)
        # [hosted] workloads at the last comparison; [slots] scratch for who moved
        self._compared = workload.copy()
        self._moved = np.zeros(len(shard.neighbours), np.int8)
        self._before: tuple[Ints, Signs, Ints, Ints, Ints, Ints] | None = None

    def compare_all(self) -> Program[None]:
        """Compare every edge and name the candidates to the coordinator."""
        shard = self.shard
        self._sign = yield from self._ask(np.arange(len(shard.neighbours)))
        self._heavier = np.bincount(shard.owner[self._sign < 0], minlength=len(shard))
        # A device without neighbours carries nothing and cannot be the heaviest.
        leads = np.flatnonzero((self._heavier == 0) & (shard.degree > 0))
        yield CANDIDATE.to_coordinator(shard, leads, 1)

    def compare_again(self, changed: Ints) -> Program[None]:
        """Learn the signs anew where the change of an end could alter them.

        A device rises by one, or it is the one that fell. A heavier end that rises and a lighter
        end that falls alter nothing: no message. Level ends send how they moved. A lighter
        end that rises and a heavier end that falls have to ask.

        Args:
            changed: positions, increasing.
        """
        shard = self.shard
        slots = shard.slots_of(changed)
        movement = np.where(self.workload[changed] > self._compared[changed], _UP, _DOWN)
        moved = movement.repeat(shard.degree[changed])
        sign = self._sign[slots]
        concerned = (sign * moved <= 0).nonzero()[0]
        contacted = slots[concerned]
        moved = np.where(sign[concerned] == 0, moved[concerned], 0)
        inbox = yield CHANGED.along(shard, contacted, _WORD_OF[moved], local="stage")
        received = shard.slots(inbox.receiver, inbox.sender)
        if not (changed.size or received.size):  # a device apart, mostly
            self._before = None
            yield from self._ask(received)
            yield CANDIDATE.to_coordinator(shard, received, np.empty(0, np.uint8))
            return
        slots = union(contacted, received)
        # Level ends sent how they moved; both rose by one where the two cancel. The others ask.
        self._moved[contacted] = moved
        self._moved[received] -= _MOVEMENT_OF[inbox.body]
        signs, before = np.sign(self._moved[slots]), self._sign[slots]
        self._moved[slots] = 0
        ask = before != 0
        signs[ask] = yield from self._ask(slots[ask])

        change = (signs < 0).astype(np.int64) - (before < 0)
        altered = change.nonzero()[0]
        owners, change = shard.owner[slots[altered]], change[altered]
        rows = union(owners, changed)
        led = self._heavier[rows] == 0
        self._before = (slots, before, owners, change, changed, self._compared[changed])
        self._sign[slots] = signs
        np.add.at(self._heavier, owners, change)
        self._compared[changed] = self.workload[changed]
        leads = self._heavier[rows] == 0
        announced = led != leads
        # A leader whose workload changed has to be matched afresh.
        own = rows.searchsorted(changed)
        announced[own] |= leads[own]
        yield CANDIDATE.to_coordinator(shard, rows[announced], leads[announced].view(np.uint8))

    def take_back(self) -> None:
        """Forget what was learned since the last `compare_again`: the old answers hold again."""
        if self._before is not None:
            slots, sign, owners, change, changed, compared = self._before
            self._sign[slots], self._compared[changed] = sign, compared
            np.subtract.at(self._heavier, owners, change)
            self._before = None

    def play(self) -> Program[None]:
        """Take part in the candidates' tournament until there are no more matches."""
        shard = self.shard
        while True:
            inbox = yield MATCH.nothing()
            if inbox.quiet:
                return
            # A match message comes from the coordinator; its body is the opponent.
            # Sorted by player, then by opponent.
            pairs = ComparedPairs.of_ids(shard, inbox.receiver, inbox.body, local="known")
            signs = yield from self._comparer.three_way(
                pairs, self.workload[pairs.rows], self._bits
            )
            first = pairs.first
            words = (signs[first] + 1).view(np.uint8)
            reports = bool(np.count_nonzero(first))
            yield RESULT.to_coordinator(shard, pairs.rows[first], words, awaited=reports)

    def _ask(self, slots: Ints) -> Program[Signs]:
        """Compare the two ends of each of `slots`; Algorithm 1 has opened all sessions."""
        pairs = ComparedPairs.of_slots(self.shard, slots, local="stage", opened=True)
        return (yield from self._comparer.three_way(pairs, self.workload[pairs.rows], self._bits))


# Algorithm 2: Metropolis–Hastings over who carries which edge, from the greedy start.

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
    coordinator="receives",
    learns="the coordinator learns whether the step that it had judged is rejected",
)
VOID = Topic(
    name="mcmc/void",
    door=Door.CONTROL,
    vocabulary=("the step is void",),
    coordinator="sends",
    learns="everyone hears whether the step is void; those who took part in it take it back",
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
        inbox = yield TRANSFER.along(shard, offered, 0, local="stage")
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
        if inbox.quiet:  # f(X') ≤ f(X) follows from known answers: the step stands
            continue
        accepted = yield from _judge(shard, comparer, bits, inbox, proposer, limit, workload)
        rejecting = proposer[:0] if accepted else proposer
        yield VERDICT.to_coordinator(shard, rejecting, 0, awaited=proposer.size > 0)
        inbox = yield VOID.nothing()
        if not inbox.quiet:  # the proposer is notified, and everyone hears that somebody is
            workload[proposer] = before
            workload[shard.owner[new]] -= 1
            keep[offered], keep[new] = True, False
            order.take_back()
    return keep


def mcmc_coordinator(devices: Ints, public: PublicRandomness, iterations: int) -> Program[None]:
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
        evaluated = heaviest[int(choices.integers(len(heaviest)))]
        if _settled(chosen, changed, before, heaviest):
            yield JUDGE.nothing()
            continue
        both = np.array([chosen, evaluated])
        yield JUDGE.from_coordinator(both, both[::-1])
        inbox = yield VERDICT.nothing(awaits=both[:1])
        rejected = inbox.sender
        yield VOID.from_coordinator(rejected, 0)
        if rejected.size:
            tournament.undo()


def _settled(chosen: int, changed: set[int], before: list[int], heaviest: list[int]) -> bool:
    """Return whether f(X') ≤ f(X) follows from known answers, so that the step stands.

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
    pairs = ComparedPairs.of_ids(shard, inbox.receiver, inbox.body, local="known")
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
        self, devices: Ints, public: PublicRandomness, settings: TreeSettings
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

"""What each device saw of each neighbour while the trees were balanced, as numbers to learn from.

Everything comes from a tape and from the answers that comparisons gave to the attacker's own end.
Messages of a comparison itself tell no more than its answer, in either backend, and masked numbers
are uniform: both are left out. Nothing here reads the state of a program.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lumos.compare.answers import ComparisonAnswers, recording_answers
from lumos.device.shard import COORDINATOR
from lumos.exchange.tape import Tape, recording
from lumos.exchange.topic import PUBLIC_ID, Door
from lumos.graph import Graph
from lumos.trees.balance import balance
from lumos.trees.balancers.optimal import next_threshold
from lumos.trees.settings import TreeSettings
from lumos.typing import Flags, Floats, Ints

RECENT = 6
"""So many last events of a pair are read one by one."""
NO_VALUE = -(1 << 40)
_LEVELS = 16  # at most so many values of a kind of event have a column of their own


class Events(NamedTuple):
    """What somebody saw of a device, in order of time."""

    viewer: Ints
    """[events] who saw it."""
    seen: Ints
    """[events] the device it is about."""
    kind: Ints
    """[events] number in `kinds`: topic, word and direction; or the answer of a comparison."""
    value: Ints
    """[events] the viewer's own number in a comparison, a public threshold, or `NO_VALUE`."""
    kinds: list[str]


_Seen = tuple[float, Ints, Ints, str, Ints, Ints]
"""Time, viewer, seen, name of the kind, code within it, value."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeRun:
    """A balanced graph, and what passed."""

    graph: Graph = field(repr=False)
    balancer: str
    keep: Flags = field(repr=False)
    workload: Ints = field(repr=False)
    largest: int
    cost: dict[str, float]
    pairs: Events = field(repr=False)
    """What devices saw of devices."""
    coordinator: Events = field(repr=False)
    """What the coordinator saw of devices."""


def record_trees(graph: Graph, settings: TreeSettings, *, seed: int = 0) -> TreeRun:
    """Balance a graph and record what passed."""
    with recording() as tape, recording_answers(tape) as answers:
        trees = balance(graph, settings, seed=seed, carrier="recording")
    ledger, edges = trees.ledger, max(1, graph.edges)
    cost = {
        "largest": float(trees.max_workload),
        "messages": float(ledger.messages),
        "rounds": float(ledger.rounds),
        "comparisons": float(ledger.comparisons),
        "comparison_bits_per_pair": float(ledger.bits_per_pair_mean),
        "comparison_bits_of_a_pair_at_most": float(ledger.bits_per_pair_largest),
        "control_bits_per_edge": ledger.control_bits / edges,
    }
    pairs, coordinator = events_of(tape, answers, graph.devices)
    return TreeRun(
        graph=graph,
        balancer=settings.balancer,
        keep=trees.keep,
        workload=trees.workload,
        largest=trees.max_workload,
        cost=cost,
        pairs=pairs,
        coordinator=coordinator,
    )


def events_of(tape: Tape, answers: ComparisonAnswers, devices: int) -> tuple[Events, Events]:
    """What devices saw of devices, and what the coordinator saw."""
    threshold_in = _public_thresholds(tape, devices)
    found: list[_Seen] = []
    for place, one in enumerate(tape.passed):
        if one.topic.door in (Door.AGGREGATE, Door.COMPARE):
            continue
        batch, name = one.batch, one.topic.name
        word = np.zeros(batch.messages, np.int64)
        if one.topic.door is Door.CONTROL and one.topic.vocabulary is not PUBLIC_ID:
            word = batch.body.astype(np.int64)
        value = np.full(batch.messages, threshold_in.get(one.round, NO_VALUE))
        size = np.zeros(batch.messages, np.int64) if batch.lengths is None else batch.lengths
        code = word + 1000 * size
        found.append((place, batch.receiver, batch.sender, f"got {name}", code, value))
        found.append((place, batch.sender, batch.receiver, f"sent {name}", code, value))
    for entry in answers.entries:
        # S is the end with the smaller id; who asked follows from the messages before.
        code = entry.answer.astype(np.int64) * 2 + (entry.device < entry.peer)
        if entry.ways == 3:
            code = entry.answer.astype(np.int64)
        name = f"{entry.ways}-way answer"
        time = entry.position - 0.5
        found.append((time, entry.device, entry.peer, name, code, entry.value))
    found.sort(key=lambda one: one[0])
    return _gathered(found, by_coordinator=False), _gathered(found, by_coordinator=True)


def _gathered(found: list[_Seen], *, by_coordinator: bool) -> Events:
    none = np.empty(0, np.int64)
    viewers, seens, kinds, values = [none], [none], [none], [none]
    numbers: dict[str, int] = {}
    for _, viewer, seen, name, code, value in found:
        chosen = (viewer == COORDINATOR) == by_coordinator
        chosen &= seen != COORDINATOR
        codes, place = np.unique(code[chosen], return_inverse=True)
        number = np.array(
            [numbers.setdefault(f"{name} {one}", len(numbers)) for one in codes.tolist()], np.int64
        )
        viewers.append(viewer[chosen])
        seens.append(seen[chosen])
        kinds.append(number[place] if len(number) else none)
        values.append(value[chosen])
    joined = [np.concatenate(some) for some in (viewers, seens, kinds, values)]
    return Events(joined[0], joined[1], joined[2], joined[3], list(numbers))


def _public_thresholds(tape: Tape, devices: int) -> dict[int, int]:
    """Round -> the threshold of `optimal` in it: everybody can follow it from quiet rounds."""
    topic = {one.round: one.topic.name for one in tape.passed if one.exchange == tape.last}
    threshold_in: dict[int, int] = {}
    if not any(name == "optimal/search" for name in topic.values()):
        return threshold_in
    impossible, possible, now = -1, devices - 1, 0
    while possible - impossible > 1:
        threshold = next_threshold(impossible, possible)
        start = now
        while topic.get(now) == "optimal/ask":
            now += 2
        now += 1
        above = reversed_ = True
        while above and reversed_:
            above = topic.get(now) == "optimal/search"
            if not above:
                now += 1
                break
            while now in topic or now + 1 in topic:
                now += 2
            now += 2
            reversed_ = topic.get(now) == "optimal/grant"
            while topic.get(now) == "optimal/grant":
                now += 1
            now += 1
        threshold_in.update(dict.fromkeys(range(start, now), threshold))
        if above:
            impossible = threshold
        else:
            possible = threshold
    return threshold_in


def own_numbers(run: TreeRun) -> Floats:
    """[slots, numbers] what a device knows without any message: degree, workload, who carries.

    The first two are what it knew before the run.
    """
    degree = run.graph.degrees
    owner = np.repeat(np.arange(run.graph.devices), degree)
    workload = run.workload[owner]
    return np.column_stack(
        [
            np.log(degree[owner]),
            degree[owner],
            workload,
            np.log1p(workload),
            run.keep,
            _one_hot(np.minimum(workload, 40), 0, 40),
        ]
    ).astype(np.float32)


def slot_events(run: TreeRun) -> tuple[Ints, Events]:
    """The slot (viewer, seen) of each event between neighbours, and these events."""
    graph, events = run.graph, run.pairs
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    keys = owner * graph.devices + graph.neighbours
    wanted = events.viewer * graph.devices + events.seen
    slot = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    near = keys[slot] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
    return slot[near], taken(events, near)


def taken(events: Events, which: Flags) -> Events:
    """Some of the events."""
    some = [one[which] for one in events[:4]]
    return Events(some[0], some[1], some[2], some[3], events.kinds)


class Reader:
    """Turns events into numbers: for each kind how often and the last value, then the last events.

    Args:
        events: all of a run; values of a kind that are many are read as ranges.
    """

    def __init__(self, events: Events) -> None:
        self._kinds = len(events.kinds)
        self._cuts: list[Ints] = []
        for number in range(self._kinds):
            values = events.value[(events.kind == number) & (events.value != NO_VALUE)]
            cuts = np.unique(values)
            if len(cuts) > _LEVELS:
                places = np.linspace(0, 1, _LEVELS)
                cuts = np.unique(np.quantile(values, places, method="lower"))
            self._cuts.append(cuts)

    def numbers(self, rows: Ints, count: int, events: Events, own: Ints) -> Floats:
        """[count, numbers]

        Args:
            rows: [events] which of the `count` views an event belongs to.
            own: [count] the viewer's own workload at the end: values are also read from there.
        """
        columns = [np.zeros((count, 1), np.float32)]
        for number, cuts in enumerate(self._cuts):
            mine = np.flatnonzero(events.kind == number)
            often = np.bincount(rows[mine], minlength=count)
            last = np.full(count, NO_VALUE)
            last[rows[mine]] = events.value[mine]  # of several, the last one stays
            place = np.searchsorted(cuts, last, side="right") - 1
            columns += [
                np.log1p(often)[:, None].astype(np.float32),
                _one_hot(np.minimum(often, 3), 1, 3),
                _one_hot(place, 0, len(cuts) - 1),
                _one_hot(_gap(last, own, 5), -5, 5),
            ]
        order = np.argsort(rows, kind="stable")
        size = np.bincount(rows, minlength=count)
        end = np.cumsum(size)
        for back in range(1, RECENT + 1):
            there = size >= back
            event = order[end[there] - back]
            kind, value = np.full(count, -1), np.full(count, NO_VALUE)
            kind[there], value[there] = events.kind[event], events.value[event]
            columns += [_one_hot(kind, 0, self._kinds - 1), _one_hot(_gap(value, own, 4), -4, 4)]
        numbers: Floats = np.column_stack(columns)
        return numbers


def _gap(value: Ints, own: Ints, most: int) -> Ints:
    """value - own, at most `most` either way; `NO_VALUE` stays."""
    return np.where(value == NO_VALUE, NO_VALUE, np.clip(value - own, -most, most))


def _one_hot(value: Ints, low: int, high: int) -> Floats:
    """[…, high - low + 1]"""
    hot: Floats = (value[:, None] == np.arange(low, high + 1)).astype(np.float32)
    return hot

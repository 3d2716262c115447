"""Degree and workload of a device from what it sent while the trees were balanced.

**Adversaries.** *One neighbour* has all that passed between it and the victim, and the answers of
their comparisons; *pooled neighbours* put what they have together, all of the victim's neighbours
without knowing that they are all (if they knew, they would count themselves: that is the degree,
and the edges that they do not own are the workload); *the coordinator* has what it was sent.
Attackers learn on one half of the devices, whose degree and workload they know, and are evaluated
on the other half. A network gives a distribution over degrees and one over workloads; each question
is answered by the guess that is right with the largest probability. Networks are no bound: a better
one may find more. Beside them stands an exact reading: the values of round(ln degree) that the
answers of pooled neighbours leave possible.

**Views.** Everything comes from a tape and from the answers that comparisons gave to the attacker's
own end. Messages of a comparison itself tell no more than its answer, in either backend, and masked
numbers are uniform: both are left out. Nothing here reads the state of a program.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch.nn import functional

from lumos.audit.attacker_models import train_network
from lumos.audit.attacks import attack
from lumos.audit.harness import Scene, slots_of
from lumos.audit.table import Area, AuditRow, Proportion, finding
from lumos.device.shard import COORDINATOR
from lumos.exchange.messages import PUBLIC_ID, Door
from lumos.exchange.tape import Tape, recording
from lumos.graph import Graph
from lumos.training.metrics import auc
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import TreeSettings
from lumos.trees.balancers.optimal import next_threshold
from lumos.twoparty.comparer import ComparisonAnswers, recording_answers
from lumos.typing import Doubles, Flags, Floats, Ints

RECENT = 6
"""Number of last events of a pair that are read one by one."""
NO_VALUE = -(1 << 40)
_MAX_LEVELS = 16  # values of a kind of event that have a column of their own


class Events(NamedTuple):
    """Events that somebody saw of a device, in order of time."""

    viewer: Ints
    """[events] the device that saw it."""
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
    """A balanced graph, and the messages that passed."""

    graph: Graph = field(repr=False)
    balancer: str
    trees: Balanced = field(repr=False)
    pairs: Events = field(repr=False)
    """Events that devices saw of devices."""
    coordinator: Events = field(repr=False)
    """Events that the coordinator saw of devices."""


def record_trees(graph: Graph, settings: TreeSettings, *, seed: int = 0) -> TreeRun:
    """Balance a graph and record what passed."""
    with recording() as tape, recording_answers(tape) as answers:
        trees = balance(graph, settings, seed=seed, transport="recording")
    pairs, coordinator = events_of(tape, answers, graph.devices)
    return TreeRun(
        graph=graph,
        balancer=settings.balancer,
        trees=trees,
        pairs=pairs,
        coordinator=coordinator,
    )


def events_of(tape: Tape, answers: ComparisonAnswers, devices: int) -> tuple[Events, Events]:
    """Return the events that devices saw of devices, and those that the coordinator saw."""
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
    """Return round -> the threshold of `optimal`, which everybody can follow from quiet rounds."""
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
    """Return [slots, numbers] known without any message: degree, workload, the edge's owner.

    The first two columns are known before the run.
    """
    degree = run.graph.degrees
    owner = np.repeat(np.arange(run.graph.devices), degree)
    workload = run.trees.workload[owner]
    return np.column_stack(
        [
            np.log(degree[owner]),
            degree[owner],
            workload,
            np.log1p(workload),
            run.trees.keep,
            _one_hot(np.minimum(workload, 40), 0, 40),
        ]
    ).astype(np.float32)


def slot_events(run: TreeRun) -> tuple[Ints, Events]:
    """Return the slot (viewer, seen) of each event between neighbours, and these events."""
    slot = slots_of(run.graph, run.pairs.viewer, run.pairs.seen)
    return slot[slot >= 0], taken(run.pairs, slot >= 0)


def taken(events: Events, which: Flags) -> Events:
    """Return some of the events."""
    some = [one[which] for one in events[:4]]
    return Events(some[0], some[1], some[2], some[3], events.kinds)


class Reader:
    """Reader of events as numbers: count and last value of each kind, then the last events.

    Args:
        events: all events of a run; many values of a kind are read as ranges.
    """

    def __init__(self, events: Events) -> None:
        self._kinds = len(events.kinds)
        self._cuts: list[Ints] = []
        for number in range(self._kinds):
            values = events.value[(events.kind == number) & (events.value != NO_VALUE)]
            cuts = np.unique(values)
            if len(cuts) > _MAX_LEVELS:
                places = np.linspace(0, 1, _MAX_LEVELS)
                cuts = np.unique(np.quantile(values, places, method="lower"))
            self._cuts.append(cuts)

    def numbers(self, rows: Ints, count: int, events: Events, own: Ints) -> Floats:
        """Return [count, numbers].

        Args:
            rows: [events] the number of the view that an event belongs to.
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
    """Return value - own, at most `most` either way; `NO_VALUE` stays."""
    return np.where(value == NO_VALUE, NO_VALUE, np.clip(value - own, -most, most))


def _one_hot(value: Ints, low: int, high: int) -> Floats:
    """Return […, high - low + 1] of zeros and ones."""
    hot: Floats = (value[:, None] == np.arange(low, high + 1)).astype(np.float32)
    return hot


Adversary = Literal["one neighbour", "pooled neighbours", "coordinator"]
ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)
Knowledge = Literal["nothing", "own degree", "own numbers", "messages"]
ABOVE = "degree above the median"
TARGETS = (
    "degree",
    "degree within 20 %",
    ABOVE,
    "round(ln degree)",
    "workload",
    "workload within 1",
)
"""Accuracy, but AUC for the median."""
MAX_VIEWS = 60_000
"""Views of one neighbour that are read at most: some neighbours of each victim."""
_DEGREES, _WORKLOADS = 120, 100  # classes; beyond, one for each 2 % of a degree
_HIDDEN, _RATE, _DECAY, _BATCH, _STEPS, _CHECK = 128, 3e-3, 1e-2, 512, 1200, 50
_MAX_WORSE_CHECKS = 4


@dataclass(frozen=True, kw_only=True)
class TreeLeak:
    """Findings of one adversary."""

    balancer: str
    adversary: Adversary
    knowledge: Knowledge
    """Knowledge that it used: messages include its own numbers."""
    found: dict[str, float]
    """For each of `TARGETS`, over victims of the half it did not know, each counting once."""
    victims: int


def tree_leaks(
    run: TreeRun, *, adversaries: Sequence[Adversary] = ADVERSARIES, seed: int = 0
) -> list[TreeLeak]:
    """Run every adversary on one run, beside what it knows without messages.

    Args:
        run: what was recorded.
        adversaries: who attacks.
        seed: draws the half of the devices that they know.
    """
    known = np.random.default_rng(seed).random(run.graph.devices) < 0.5
    leaks = []
    for adversary in adversaries:
        for knowledge, views in _views(run, adversary, seed).items():
            found, victims = _attack(run, views, known)
            leaks.append(
                TreeLeak(
                    balancer=run.balancer,
                    adversary=adversary,
                    knowledge=knowledge,
                    found=found,
                    victims=victims,
                )
            )
    return leaks


def _views(run: TreeRun, adversary: Adversary, seed: int) -> "dict[Knowledge, _Views]":
    if adversary == "one neighbour":
        return _one_neighbour(run, seed)
    return _pooled(run) if adversary == "pooled neighbours" else _coordinator(run)


class _Views:
    """Numbers that an attacker reads, the victim of each row, and the weight of each row."""

    def __init__(self, numbers: Floats, victim: Ints) -> None:
        self.numbers = numbers
        self.victim = victim
        self.weight = 1.0 / np.bincount(victim)[victim]


def _one_neighbour(run: TreeRun, seed: int) -> dict[Knowledge, _Views]:
    graph = run.graph
    slots = _some_slots(run, seed)
    own = own_numbers(run)[slots]
    victim = graph.neighbours[slots]
    seen = _read(run, slots)
    return {
        "own degree": _Views(own[:, :2], victim),
        "own numbers": _Views(own, victim),
        "messages": _Views(np.column_stack([own, seen]), victim),
    }


def _some_slots(run: TreeRun, seed: int) -> Ints:
    """Return slots (viewer, victim), increasing: some viewers of every victim, as many of each."""
    graph = run.graph
    drawn = np.random.default_rng(seed).random(len(graph.neighbours))
    order = np.lexsort((drawn, graph.neighbours))
    start = np.cumsum(graph.degrees) - graph.degrees
    place = np.arange(len(order)) - np.repeat(start, graph.degrees)
    viewers = 1
    while np.minimum(graph.degrees, 2 * viewers).sum() <= MAX_VIEWS and viewers < graph.devices:
        viewers *= 2
    return np.sort(order[place < viewers])


def _read(run: TreeRun, slots: Ints) -> Floats:
    """Return [slots, numbers] what the viewers of `slots` (increasing) got, sent and learnt."""
    slot, events = slot_events(run)
    place = np.full(len(run.graph.neighbours), -1)
    place[slots] = np.arange(len(slots))
    wanted = place[slot] >= 0
    owner = np.repeat(np.arange(run.graph.devices), run.graph.degrees)
    return Reader(events).numbers(
        place[slot[wanted]], len(slots), taken(events, wanted), run.trees.workload[owner[slots]]
    )


def _pooled(run: TreeRun) -> dict[Knowledge, _Views]:
    """Return mean, least and largest of what the neighbours have: nothing that counts them."""
    graph = run.graph
    victims = np.flatnonzero(graph.degrees > 0)
    own_all = own_numbers(run)[:, :5]
    by_victim = np.argsort(graph.neighbours, kind="stable")
    parts: list[tuple[Floats, Floats]] = []
    for some in np.array_split(victims, max(1, len(graph.neighbours) // 20_000)):
        inside = np.zeros(graph.devices, np.bool_)
        inside[some] = True
        slots = by_victim[inside[graph.neighbours[by_victim]]]
        increasing = np.sort(slots)
        seen = _read(run, increasing)[np.searchsorted(increasing, slots)]
        start = np.cumsum(graph.degrees[some]) - graph.degrees[some]
        parts.append((_summary(own_all[slots], start), _summary(seen, start)))
    own, seen = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {
        "own degree": _Views(own[:, [0, 1, 5, 6, 10, 11]], victims),
        "own numbers": _Views(own, victims),
        "messages": _Views(np.column_stack([own, seen]), victims),
    }


def _summary(numbers: Floats, start: Ints) -> Floats:
    size = np.diff(np.append(start, len(numbers)))[:, None].astype(np.float32)
    parts = [np.add.reduceat(numbers, start) / size]
    parts += [one.reduceat(numbers, start) for one in (np.minimum, np.maximum)]
    return np.column_stack(parts)


def _coordinator(run: TreeRun) -> dict[Knowledge, _Views]:
    victims = np.flatnonzero(run.graph.degrees > 0)
    place = np.full(run.graph.devices, -1)
    place[victims] = np.arange(len(victims))
    events = run.coordinator
    events = taken(events, place[events.seen] >= 0)
    nothing = np.zeros((len(victims), 1), np.float32)
    own = np.zeros(len(victims), np.int64)
    seen = Reader(events).numbers(place[events.seen], len(victims), events, own)
    return {"nothing": _Views(nothing, victims), "messages": _Views(seen, victims)}


def _attack(run: TreeRun, views: _Views, known: Flags) -> tuple[dict[str, float], int]:
    """Return accuracies on the victims that are not known, and their number."""
    degree, workload = run.graph.degrees, run.trees.workload
    values = _degree_values(int(degree.max()))
    learn = known[views.victim]
    asked = views.victim[~learn]
    weight = views.weight[~learn]
    weight = weight / weight.sum()
    classes = np.maximum(np.searchsorted(values, degree, side="right") - 1, 0)
    wanted = np.stack([classes, np.minimum(workload, _WORKLOADS)])[:, views.victim[learn]]
    with torch.random.fork_rng():  # the network has a seed of its own
        by_degree, by_workload = _distributions(views, learn, wanted, (len(values), _WORKLOADS + 1))

    true_degree, true_workload = degree[asked], workload[asked]
    found: dict[str, float] = {}
    found["degree"] = weight @ (values[by_degree.argmax(1)] == true_degree)
    near = (values[:, None] >= 0.8 * values) & (values[:, None] <= 1.2 * values)
    # A guess g is right for degrees d with |g - d| ≤ 0.2 d.
    guess = values[(by_degree @ near.T.astype(np.float64)).argmax(1)]
    found["degree within 20 %"] = weight @ (np.abs(guess - true_degree) <= 0.2 * true_degree)
    middle = np.median(degree)
    score = by_degree[:, values > middle].sum(1)
    above = true_degree > middle
    found["degree above the median"] = _weighted_auc(score, above, weight)
    rounded = np.rint(np.log(values)).astype(np.int64)
    logs = by_degree @ (rounded[:, None] == np.arange(rounded.max() + 1))
    found["round(ln degree)"] = weight @ (logs.argmax(1) == np.rint(np.log(true_degree)))
    found["workload"] = weight @ (by_workload.argmax(1) == true_workload)
    within = np.abs(np.subtract.outer(np.arange(_WORKLOADS + 1), np.arange(_WORKLOADS + 1))) <= 1
    guess = (by_workload @ within.astype(np.float64)).argmax(1)
    found["workload within 1"] = weight @ (np.abs(guess - true_workload) <= 1)
    return {name: float(value) for name, value in found.items()}, len(np.unique(asked))


def _degree_values(largest: int) -> Ints:
    """Return the degrees that can be guessed: each up to `_DEGREES`, then every 2 %."""
    values = list(range(1, _DEGREES + 1))
    while values[-1] < largest:
        values.append(int(values[-1] * 1.02) + 1)
    return np.array(values)


def _weighted_auc(score: Doubles, above: Flags, weight: Doubles) -> float:
    """Return the AUC where every victim counts once: views are drawn by their weights."""
    drawn = np.random.default_rng(0).choice(len(score), 4 * len(score), p=weight)
    return auc(score[drawn][above[drawn]], score[drawn][~above[drawn]])


def _distributions(
    views: _Views, learn: Flags, classes: Ints, many: tuple[int, int]
) -> tuple[Doubles, Doubles]:
    """Return [asked, classes] probabilities of degrees and of workloads, by one network.

    Args:
        learn: [views] those of known victims; a fifth of these victims says when to stop.
        classes: [2, known views] the truth.
        many: numbers of classes.
    """
    torch.manual_seed(0)
    numbers = torch.from_numpy(views.numbers)
    inputs, asked = numbers[torch.from_numpy(learn)], numbers[torch.from_numpy(~learn)]
    wanted = torch.from_numpy(classes)
    weight = torch.from_numpy(views.weight[learn]).float()
    mean, spread = inputs.mean(0), inputs.std(0) + 1e-2
    inputs, asked = (inputs - mean) / spread, (asked - mean) / spread
    model = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], _HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(_HIDDEN, sum(many)),
    )

    def loss(some: torch.Tensor) -> torch.Tensor:
        both = model(inputs[some]).split(many, 1)
        each = sum(
            functional.cross_entropy(one, truth, reduction="none")
            for one, truth in zip(both, wanted[:, some], strict=True)
        )
        return (weight[some] * each).sum() / weight[some].sum()

    of = np.unique(views.victim[learn], return_inverse=True)[1]
    back = torch.from_numpy(np.random.default_rng(1).random(int(of.max()) + 1)[of] < 0.2)
    held, used = torch.nonzero(back)[:, 0], torch.nonzero(~back)[:, 0]
    train_network(
        model,
        loss,
        lambda step: used[torch.randint(len(used), (_BATCH,))],
        held,
        steps=_STEPS,
        every=_CHECK,
        rate=_RATE,
        decay=_DECAY,
        patience=_MAX_WORSE_CHECKS,
    )
    with torch.no_grad():
        by_degree, by_workload = model(asked).split(many, 1)
        return (
            functional.softmax(by_degree, 1).numpy().astype(np.float64),
            functional.softmax(by_workload, 1).numpy().astype(np.float64),
        )


@attack("trees", "degrees and workloads from tree messages", "paper")
def attack_tree_messages(scene: Scene) -> Iterator[AuditRow]:
    """Attack the balancer of the run on the whole graph, with the ideal comparison."""
    settings = replace(scene.config(scene.tasks[0]).trees, compare="ideal")
    if settings.balancer == "none":
        return
    leaks = tree_leaks(record_trees(scene.graph, settings, seed=scene.seed), seed=scene.seed)
    alone = {leak.adversary: leak for leak in leaks if leak.knowledge in ("own numbers", "nothing")}
    for leak in leaks:
        if leak.knowledge != "messages":
            continue
        for target in TARGETS:
            found, area = leak.found[target], target == ABOVE
            yield finding(
                leak.adversary,
                f"{target}, while trees are balanced ({leak.balancer})",
                "AUC" if area else "accuracy",
                (
                    Area(found, leak.victims // 2, leak.victims // 2)
                    if area
                    else Proportion(round(found * leak.victims), leak.victims)
                ),
                chance=(
                    alone[leak.adversary].found[target],
                    (
                        "its own degree, workload and edge"
                        if leak.adversary != "coordinator"
                        else "the most frequent value"
                    ),
                ),
            )

"""Degree and workload of a device from what it sent while the trees were balanced.

Adversaries: *one neighbour* has all that passed between it and the victim, and the answers of their
comparisons; *pooled neighbours* put what they have together, all of the victim's neighbours without
knowing that they are all (if they knew, they would count themselves: that is the degree, and those
edges that they do not carry are the workload); *the coordinator* has what it was sent.

Attackers learn on one half of the devices, whose degree and workload they know, and are judged on
the other half. A network gives a distribution over degrees and one over workloads; each question is
answered by the guess that is right with the largest probability. Networks are no bound: a better
one may find more. Beside them stands an exact reading: the values of round(ln degree) that the
answers of pooled neighbours leave possible.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch.nn import functional

from lumos.audit.attacks import Attack
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Area, Proportion
from lumos.audit.scene import Scene
from lumos.audit.tree_events import Reader, TreeRun, own_numbers, record_trees, slot_events, taken
from lumos.training.metrics import auc
from lumos.typing import Doubles, Flags, Floats, Ints

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
MOST_VIEWS = 60_000
"""So many views of one neighbour are read at most: some neighbours of each victim."""
_DEGREES, _WORKLOADS = 120, 100  # classes; beyond, one for each 2 % of a degree
_HIDDEN, _RATE, _DECAY, _BATCH, _STEPS, _CHECK = 128, 3e-3, 1e-2, 512, 1200, 50
_PATIENCE = 4


@dataclass(frozen=True, kw_only=True)
class TreeLeak:
    """What one adversary found out."""

    balancer: str
    adversary: Adversary
    knowledge: Knowledge
    """What it used: messages include its own numbers."""
    found: dict[str, float]
    """For each of `TARGETS`, over victims of the half it did not know, each counting once."""
    victims: int


def tree_leaks(
    run: TreeRun, *, adversaries: Sequence[Adversary] = ADVERSARIES, seed: int = 0
) -> list[TreeLeak]:
    """Every adversary on one run, beside what it knows without messages.

    Args:
        run: what was recorded.
        adversaries: who attacks.
        seed: for which half of the devices is known to them.
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


def determined_classes(run: TreeRun) -> float:
    """Share of devices for which pooled neighbours know round(ln degree) for certain.

    From the first three-way answer on each edge, where a balancer starts by one: own value a, and
    the victim's is below, equal or above.
    """
    slot, events = slot_events(run)
    devices = run.graph.devices
    low, high = np.zeros(devices, np.int64), np.full(devices, int(np.log(max(2, devices))) + 1)
    first = np.zeros(len(slot), np.bool_)
    first[np.unique(slot, return_index=True)[1]] = True
    for sign in (-1, 0, 1):
        name = f"3-way answer {sign}"
        if name in events.kinds:
            mine = first & (events.kind == events.kinds.index(name))
            victim, value = events.seen[mine], events.value[mine]
            if sign <= 0:
                np.maximum.at(low, victim, value - sign)
            if sign >= 0:
                np.minimum.at(high, victim, value - sign)
    there = run.graph.degrees > 0
    return float((low == high)[there].mean())


class _Views:
    """Numbers that an attacker reads, the victim of each row, and how much a row counts."""

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
    """Slots (viewer, victim), increasing: some viewers of every victim, as many of each."""
    graph = run.graph
    coins = np.random.default_rng(seed).random(len(graph.neighbours))
    order = np.lexsort((coins, graph.neighbours))
    start = np.cumsum(graph.degrees) - graph.degrees
    place = np.arange(len(order)) - np.repeat(start, graph.degrees)
    viewers = 1
    while np.minimum(graph.degrees, 2 * viewers).sum() <= MOST_VIEWS and viewers < graph.devices:
        viewers *= 2
    return np.sort(order[place < viewers])


def _read(run: TreeRun, slots: Ints) -> Floats:
    """[slots, numbers] what the viewers of `slots` (increasing) got, sent, and were answered."""
    slot, events = slot_events(run)
    place = np.full(len(run.graph.neighbours), -1)
    place[slots] = np.arange(len(slots))
    wanted = place[slot] >= 0
    owner = np.repeat(np.arange(run.graph.devices), run.graph.degrees)
    return Reader(events).numbers(
        place[slot[wanted]], len(slots), taken(events, wanted), run.workload[owner[slots]]
    )


def _pooled(run: TreeRun) -> dict[Knowledge, _Views]:
    """Mean, least and largest of what the neighbours have: nothing that counts them."""
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
    """Accuracies on the victims that are not known."""
    degree, workload = run.graph.degrees, run.workload
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
    """Degrees that can be guessed: each up to `_DEGREES`, then every 2 %."""
    values = list(range(1, _DEGREES + 1))
    while values[-1] < largest:
        values.append(int(values[-1] * 1.02) + 1)
    return np.array(values)


def _weighted_auc(score: Doubles, above: Flags, weight: Doubles) -> float:
    """AUC where every victim counts once: of one view for each victim, drawn by its weight."""
    coins = np.random.default_rng(0)
    drawn = coins.choice(len(score), 4 * len(score), p=weight)
    return auc(score[drawn][above[drawn]], score[drawn][~above[drawn]])


def _distributions(
    views: _Views, learn: Flags, classes: Ints, many: tuple[int, int]
) -> tuple[Doubles, Doubles]:
    """[asked, classes] probabilities of degrees and of workloads, by one small network.

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
    adam = torch.optim.AdamW(model.parameters(), _RATE, weight_decay=_DECAY)
    best, kept, worse = float("inf"), _copied(model), 0
    for step in range(_STEPS):
        adam.zero_grad()
        of_batch = loss(used[torch.randint(len(used), (_BATCH,))])
        of_batch.backward()  # type: ignore[no-untyped-call]
        adam.step()
        if step % _CHECK == _CHECK - 1:
            model.eval()
            with torch.no_grad():
                now = float(loss(held))
            model.train()
            best, kept, worse = (now, _copied(model), 0) if now < best else (best, kept, worse + 1)
            if worse == _PATIENCE:
                break
    model.load_state_dict(kept)
    model.eval()
    with torch.no_grad():
        by_degree, by_workload = model(asked).split(many, 1)
        return (
            functional.softmax(by_degree, 1).numpy().astype(np.float64),
            functional.softmax(by_workload, 1).numpy().astype(np.float64),
        )


def _copied(model: torch.nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def run(scene: Scene) -> Iterator[AuditRow]:
    """The balancer of the run, on the whole graph, with answers of the ideal comparison."""
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
            yield AuditRow(
                attack=ATTACK.name,
                adversary=leak.adversary,
                about=f"{target}, while trees are balanced ({leak.balancer})",
                measure="AUC" if area else "accuracy",
                estimate=Area(found, leak.victims // 2, leak.victims // 2)
                if area
                else Proportion(round(found * leak.victims), leak.victims),
                chance=alone[leak.adversary].found[target],
                chance_is="its own degree, workload and edge"
                if leak.adversary != "coordinator"
                else "the most frequent value",
            )


ATTACK = Attack(
    name="trees",
    title="degrees and workloads from tree messages",
    run=run,
    profiles=frozenset({"paper"}),
)

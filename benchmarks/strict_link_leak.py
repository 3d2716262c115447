"""What the answers of strict links tell of degrees and edges, to a stranger and to a neighbour.

    python benchmarks/strict_link_leak.py [--graph facebook] [--epsilon 2] [--json]

Codebook, release, relay and answers are those of a run (all edges train; codebook sums with noise).
Every device v is attacked once as a stranger would, who gets one answer, and once as a random
neighbour u would, who gets v's symbol and colour, one relayed of each for every hop, and the
neighbour's answer. AUC 0.5 is chance. Two kinds of attackers:

- *learned*: a network on everything received: how often each symbol came at each hop, its log-ratio
  to a made-up one, and how many colours are equal within and between hops (and to u's own). Colours
  are names without meaning, so nothing else of them can tell. Run on one half of the devices,
  judged on the other. Not a bound: a better network may find more.
- *ratio*, for edges: the likelihood ratio of all draws of hop 1 and of the first relayed ones, with
  the rule of the pools, over the known distribution of degrees. Best possible for what it reads, if
  symbols of v's neighbours are independent given v's.

Degrees: is v's at most 1, at most 5, above the median? Edges: is w, whose symbol and colour the
attacker knows, a neighbour of v, or a random device that is none? The first row of each attacker is
what v's symbol (and w's) tell by themselves.
"""

import argparse
import json
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import lumos
from lumos.device.shard import Shard
from lumos.runs.federation import Federation
from lumos.strict.answer_samples import sample
from lumos.strict.link_trainer import COLOUR, SYMBOL
from lumos.strict.relay import PADS
from lumos.training.config import Config
from lumos.training.metrics import auc
from lumos.training.profile import Problem
from lumos.training.split import Role
from lumos.typing import Doubles, Flags, Ints

HOPS, MOST = 4, 16
DRAWS = 2
"""Answers that the learned attackers train on, drawn anew for each device of their half."""
STEPS, HIDDEN, RATE, DECAY = 150, 32, 0.01, 0.1


class World(NamedTuple):
    """What was released and relayed, and who hears it."""

    shard: Shard
    said: Ints
    """[devices, kinds]"""
    came: Ints
    """[hops, slots, kinds] over each slot."""
    sizes: tuple[int, int]


class Seen(NamedTuple):
    """What one attacker has of every v: for each kind, groups of draws [devices, draws]."""

    symbols: list[Ints]
    colours: list[Ints]
    first: int
    """Which group holds the answer's draws of hop 1."""
    relayed: int | None
    """Which group holds the first relayed one."""


def with_neighbours(graph: lumos.Graph) -> lumos.Graph:
    """The graph without devices that have no neighbour: nobody can be asked about their edges."""
    some = np.flatnonzero(graph.degrees > 0)
    if graph.features is None or len(some) == graph.devices:
        return graph
    edges = np.searchsorted(some, graph.edge_list())
    return lumos.Graph.from_edges(edges, features=graph.features[some])


def world(graph: lumos.Graph, epsilon: float) -> World:
    """Learn the codebook, release, relay."""
    problem = Problem(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=np.full(graph.devices, Role.NOBODY),
        held_back=np.empty((0, 2), np.int64),
        classes=0,
        seed=0,
        shards=1,
    )
    config = Config.of(profile="strict", task="link", epsilon=epsilon, relay=HOPS)
    made: Federation[Any] = Federation(problem, config)
    made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    trainer: Any = made.first_trainer
    before = trainer.schedule.before_release
    made.run(lambda trainer: trainer.epochs(0, before), lambda program: program.epochs(0, before))
    made.run(lambda _: trainer.release())
    came = np.stack(trainer._received).astype(np.int64)
    sizes = trainer.schedule.strict.codebook, trainer.schedule.colours
    return World(made.shards[0], trainer.released.astype(np.int64), came, sizes)


def usual_of(here: World, hop: int, kind: int) -> Doubles:
    """[size] what made-up ones of an answer are drawn from."""
    size = here.sizes[kind]
    if kind == COLOUR:
        return np.full(size, 1 / size)
    shares: Doubles = np.bincount(here.came[hop, :, kind], minlength=size) / here.came.shape[1]
    return shares


Told = dict[tuple[int, bool, int], list[list[Ints]]]


def answers(here: World, many: int, slots: Ints | None, draw: int, known: Told) -> list[list[Ints]]:
    """By kind and hop [devices, many]: what strangers are told, or the neighbour at a slot."""
    key = many, slots is None, draw
    if key in known:
        return known[key]
    found: list[list[Ints]] = []
    for kind in range(len(here.sizes)):
        found.append([])
        for hop in range(HOPS):
            said = here.came[hop, :, kind].astype(np.uint8)
            usual = usual_of(here, hop, kind)
            purpose = f"answer/{kind}" + f"/{draw}" * (draw > 0)
            drawn = sample(here.shard, said, usual, many, purpose, hop)
            told = drawn.for_strangers()
            if slots is not None:
                told = drawn.for_neighbours(here.shard.owner)[slots]
            found[kind].append(told.astype(np.int64))
    known[key] = found
    return found


def seen_by(here: World, many: int, hops: int, slots: Ints | None, draw: int, known: Told) -> Seen:
    """What a stranger has of each device, or its neighbour at `slots` [devices]."""
    told = answers(here, many, slots, draw, known)
    groups: list[list[Ints]] = []
    for kind in (SYMBOL, COLOUR):
        mine = [here.said[:, kind : kind + 1]]
        if slots is not None:  # what it heard from v, and what it is itself
            peer = here.shard.neighbours[slots]
            back = here.shard.slots(peer, np.arange(len(slots)))
            mine += [here.came[hop, back, kind][:, None] for hop in range(1, hops)]
            mine.append(here.said[peer, kind][:, None])
        groups.append(mine + told[kind][:hops])
    relayed = 1 if slots is not None and hops > 1 else None
    return Seen(groups[SYMBOL], groups[COLOUR], len(groups[SYMBOL]) - hops, relayed)


def near(here: World) -> Doubles:
    """[k, k] how often a neighbour of a device that says the row's symbol says the column's."""
    k = here.sizes[SYMBOL]
    table = np.zeros((k, k))
    np.add.at(table, (here.said[here.shard.owner, SYMBOL], here.came[0, :, SYMBOL]), 1)
    shares: Doubles = table / table.sum(axis=1, keepdims=True)
    return shares


def shape(here: World, seen: Seen, colours: bool) -> Doubles:
    """[devices, features] of everything that was received."""
    k, table = here.sizes[SYMBOL], near(here)
    own, made_up = here.said[:, SYMBOL], usual_of(here, 0, SYMBOL)
    columns = [np.eye(k)[own]]
    for group in seen.symbols[1:]:
        counts = np.eye(k)[group].mean(axis=1)
        ratio = np.log(table[own[:, None], group] / made_up[group]).mean(axis=1)
        columns += [counts, (counts**2).sum(axis=1)[:, None], ratio[:, None]]
    if colours:
        for one, other in combinations_with_replacement(seen.colours, 2):
            same = (one[:, :, None] == other[:, None, :]).sum(axis=(1, 2))
            columns.append(np.log1p(same)[:, None])
    return np.concatenate(columns, axis=1)


def pairs_of(here: World, slots: Ints, rng: np.random.Generator) -> tuple[Ints, Flags, Flags]:
    """For each v a device w, whether it is a neighbour, and whether the pair can be judged."""
    shard, many = here.shard, len(here.shard)
    pick = shard.offsets[:-1] + np.floor(rng.random(many) * shard.degree).astype(np.int64)
    near_by = shard.neighbours[np.minimum(pick, len(shard.neighbours) - 1)]
    far = rng.integers(0, many, many)
    edge = rng.random(many) < 0.5
    other = np.where(edge, near_by, far)
    known = shard.slots_or_none(np.arange(many), other) >= 0
    usable = (other != np.arange(many)) & (other != shard.neighbours[slots])
    return other, edge, usable & (known == edge) & (shard.degree > 0)


def edge_ratio(here: World, seen: Seen, other: Ints, slots: Ints | None, colours: bool) -> Doubles:
    """[devices] log-likelihood ratio of w being a neighbour: hop 1, and what was relayed first.

    With p the chance that w's message is among the `many` drawn from a pool, and q that of its
    symbol elsewhere: (1 - p) + p · (share of the draws that equal it) / q.
    """
    table, own = near(here), here.said[:, SYMBOL]
    theirs, colour = here.said[other, SYMBOL], here.said[other, COLOUR]
    usual = np.bincount(own, minlength=len(table)) / len(own)
    degrees, weight = np.unique(here.shard.degree[here.shard.degree > 0], return_counts=True)
    many = seen.symbols[seen.first].shape[1]
    out = int(slots is not None)  # u is not in the pool for u
    real = degrees - out
    total = np.zeros(len(own))
    hits = (seen.symbols[seen.first] == theirs[:, None]).mean(axis=1)
    marks = (seen.colours[seen.first] == colour[:, None]).mean(axis=1)
    made_up = usual_of(here, 0, SYMBOL)[theirs]
    for d, r, share in zip(degrees, real, weight / weight.sum(), strict=True):
        spare = max(PADS, many + 1 - d)
        factors = [(min(1.0, many / (r + spare)), r, spare, made_up, hits, marks)]
        if seen.relayed is not None:
            one, mark = (
                group[seen.relayed][:, 0] == value
                for group, value in ((seen.symbols, theirs), (seen.colours, colour))
            )
            factors.append((1 / (r + PADS), r, PADS, 1 / len(table), one, mark))
        ratio = np.full(len(own), float(share))
        for chance, known, made, blank, symbol, mark in factors:
            chance = chance * (known > 0)
            elsewhere = (known * table[own, theirs] + made * blank) / (known + made)
            ratio *= 1 - chance + chance * symbol / elsewhere
            if colours:
                ratio *= 1 - chance + chance * mark * here.sizes[COLOUR]
        total += ratio
    prior = table[own, theirs] / usual[theirs]
    found: Doubles = np.log(total * prior)
    return found


def pair_shape(here: World, seen: Seen, other: Ints, degree: Doubles, colours: bool) -> Doubles:
    """[devices, features] for a learned attack on edges, with what was made of the degree."""
    columns = [degree]
    for groups, kind in ((seen.symbols, SYMBOL), (seen.colours, COLOUR))[: 1 + colours]:
        value = here.said[other, kind][:, None]
        columns += [(group == value).mean(axis=1)[:, None] for group in groups[1:]]
    return np.concatenate(columns, axis=1)


class Learned:
    """A small network, which starts at 0 and adds to a known base.

    Args:
        train: for each draw [rows, features], [rows, targets] and [rows] base.
    """

    def __init__(self, train: list[tuple[Doubles, Flags, Doubles]]) -> None:
        inputs, truth, known = (np.concatenate(part) for part in zip(*train, strict=True))
        self._mean, self._spread = inputs.mean(axis=0), inputs.std(axis=0) + 1e-6
        x, base = self._ready(inputs, known)
        targets = torch.from_numpy(truth).float()
        torch.manual_seed(0)
        last = torch.nn.Linear(HIDDEN, targets.shape[1])
        torch.nn.init.zeros_(last.weight)
        self._network = torch.nn.Sequential(
            torch.nn.Linear(x.shape[1], HIDDEN), torch.nn.ReLU(), last
        )
        adam = torch.optim.AdamW(self._network.parameters(), lr=RATE, weight_decay=DECAY)
        for step in range(STEPS):
            some = slice(step % 3, None, 3)
            adam.zero_grad()
            found = base[some] + self._network(x[some])
            binary_cross_entropy_with_logits(found, targets[some]).backward()
            adam.step()

    def scores(self, rows: Doubles, base: Doubles) -> Doubles:
        """[rows, targets] logits."""
        x, known = self._ready(rows, base)
        with torch.no_grad():
            return (known + self._network(x)).numpy().astype(np.float64)

    def _ready(self, rows: Doubles, base: Doubles) -> tuple[torch.Tensor, torch.Tensor]:
        even = np.clip((rows - self._mean) / self._spread, -8, 8)
        return torch.from_numpy(even).float(), torch.from_numpy(base).float()[:, None]


def judge(scores: Doubles, truth: Flags) -> float:
    if truth.all() or not truth.any():
        return float("nan")
    return auc(scores[truth], scores[~truth])


def row(
    here: World, who: str, many: int, colours: bool, hops: int, slots: Ints, half: Flags,
    known: Told, alone: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """All attacks of one attacker under one setting."""
    degree = here.shard.degree
    truth = np.stack([degree <= 1, degree <= 5, degree > np.median(degree)], axis=1)
    mine = slots if who == "neighbour" else None
    other, edge, usable = pairs_of(here, slots, np.random.default_rng(1))
    nothing, k, own = np.zeros(len(degree)), here.sizes[SYMBOL], here.said[:, SYMBOL]
    every = [seen_by(here, many, hops, mine, draw, known) for draw in range(DRAWS + 1)]
    shapes = [shape(here, seen, colours) for seen in every]
    ratios = [edge_ratio(here, seen, other, mine, colours) for seen in every]
    if alone:
        shapes, ratios = [rows[:, :k] for rows in shapes], [nothing for _ in every]
    # Draw 0 is that of the run: attackers are judged by it, and learn from the others.
    of_degree = Learned([(rows[half], truth[half], nothing[half]) for rows in shapes[1:]])
    scores = [of_degree.scores(rows, nothing) for rows in shapes]
    pairs = [
        np.eye(k * k)[own * k + own[other]] if alone else pair_shape(here, seen, other, s, colours)
        for seen, s in zip(every, scores, strict=True)
    ]
    pairs = [np.column_stack([ratio, rows]) for ratio, rows in zip(ratios, pairs, strict=True)]
    some, there = half & usable, ~half & usable
    of_edge = Learned(
        [(p[some], edge[some, None], r[some]) for p, r in zip(pairs[1:], ratios[1:], strict=True)]
    )
    by_network = of_edge.scores(pairs[0][there], ratios[0][there])[:, 0]
    names = ("degree <= 1", "degree <= 5", "degree > median")
    return {
        "attacker": who,
        "--answer": "symbol alone" if alone else many,
        "--colours": "" if alone else ("auto" if colours else "none"),
        "--relay": "" if alone else ("none" if hops == 1 else hops),
        **{name: judge(scores[0][~half, n], truth[~half, n]) for n, name in enumerate(names)},
        "edge (ratio)": float("nan") if alone else judge(ratios[0][there], edge[there]),
        "edge (learned)": judge(by_network, edge[there]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    graph = with_neighbours(lumos.load(options.graph))
    here = world(graph, options.epsilon)
    rng = np.random.default_rng(0)
    shard = here.shard
    half = rng.random(len(shard)) < 0.5
    slots = shard.offsets[:-1] + np.floor(rng.random(len(shard)) * shard.degree).astype(np.int64)
    known: Told = {}
    rows = []
    for who in ("stranger", "neighbour"):
        rows.append(row(here, who, 1, False, 1, slots, half, known, alone=True))
        for many, colours, hops in product((1, 8, MOST), (False, True), (1, HOPS)):
            rows.append(row(here, who, many, colours, hops, slots, half, known))
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{options.graph}, ε = {options.epsilon:g}: AUC of attackers (0.5 is chance)\n")
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for cells in rows:
        shown = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in cells.values())
        print("| " + " | ".join(shown).replace("nan", "") + " |")


if __name__ == "__main__":
    main()

"""What strict links tell: attackers over the recorded messages of whole runs.

    python -m benchmarks.strict_link_leak [--graph facebook] [--words] [--quick] [--json FILE]

**Askers.** m non-neighbours put their questions to a device, and pool the levels that they learn.
Runs are real ones (vectors, thresholds, randomized response); questions pass through the protocol
of `lumos predict` and are recorded. Its budget is lifted for the attackers: a device answers 7
questions of others in its life, and learns levels in 16 answers in all, so a row of 16 askers is
more than anybody gets and one of 64 cannot occur. Attackers know the truth of one half of all
devices, with their answers, and are evaluated on the other half: no bound. The attackers are those
of `lumos audit` (`lumos.audit.attacks.link_queries`, `link_neighbours`, `link_sums`), which has one
setting at a time, intervals and bounds.

- *edge*: are two devices linked that both were asked by the same m askers? Neither is an asker.
- *label*: accuracy, beside the share of the most frequent one; *degree*: above the median;
- *words*: mean AUC of the 20 most frequent words, and the largest.

Without an answer, non-neighbours know nothing of a device: AUC 0.5, the most frequent label.

**Liars** choose the vector by which they ask: random ones of full length, or principal directions
of the devices they know. *Tables of one's own* are beyond that: the sender of the protocol fills
its tables as it likes, and learns any function of a linear form with as many values as there are
levels; here, quantiles of principal components.

**Neighbours** have what passes in training: random marks, propagated labels, proposals and replies.

**Coordinator.** Real noisy sums of small federations, one device of which has these words or
others, chosen for the largest change; the attacker knows everything else (`link_sums`).
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import lumos
from lumos.audit.attacks.link_queries import (
    AttackedDevices,
    asked_by,
    devices_of,
    over_sets,
    some_askers,
)
from lumos.audit.attacks.link_training import (
    guesses,
    matching_events,
    one_neighbour,
    sent_by,
    third_parties,
)
from lumos.audit.harness import Recorded, Scene, without_masked_vectors
from lumos.exchange.messages import Batch
from lumos.exchange.tape import recording
from lumos.graph.demo import words_for
from lumos.ldp.mechanisms import COIN, make_mechanism
from lumos.runs.loop import Federation
from lumos.strict.link.levels import ALONE, spec_for
from lumos.strict.link.prediction import LinkResult, answer
from lumos.strict.link.stages import product_kind
from lumos.strict.messages import CONSENT
from lumos.strict.settings import StrictSettings
from lumos.training.config import Config
from lumos.training.metrics import auc
from lumos.training.problem import Problem
from lumos.training.split import EdgeSplit, Role
from lumos.training.trainer import AskedPairs
from lumos.typing import Doubles, Flags, Ints

ASKERS = (1, 4, 16, 64)

Row = dict[str, str | float]


@dataclass
class World:
    """A graph, a recorded run, its devices, and what attackers want to know of them."""

    graph: lumos.Graph
    recorded: Recorded
    result: LinkResult
    split: EdgeSplit = field(repr=False)
    truth: AttackedDevices = field(repr=False)
    askers: Ints = field(repr=False)

    @staticmethod
    def of(graph: lumos.Graph, **settings: Any) -> "World":
        """Of a run with seed 0; edges are those that devices use in training."""
        scene = Scene(graph, settings, tasks=("link",))
        recorded = scene.record(graph, "link", keep=without_masked_vectors)
        assert recorded.split is not None
        askers = some_askers(recorded.graph, max(ASKERS))
        truth = AttackedDevices.of(recorded.graph, askers)
        return World(graph, recorded, devices_of(recorded), recorded.split, truth, askers)

    def levels(self, many: Sequence[int], vectors: Any = None) -> Ints:
        """[devices, askers] that askers learn, with their own vectors or with these."""
        asking = self.askers[: max(many)]
        return asked_by(self.result, asking, None if vectors is None else vectors[: len(asking)])

    def row(self, answers: str, levels: Ints, many: Sequence[int], auc: bool = True) -> list[Row]:
        """One row for each number of askers: means over several sets of them."""
        about: Row = {"answers": answers, "AUC": ""}
        if auc:
            alone = " (alone)" * (self.result.reading.way == ALONE)
            about["AUC"] = f"{self.recorded.run.metrics['test_auc']:.4f}{alone}"
        return [
            {
                **about,
                "m": str(m),
                **{n: one.value for n, one in over_sets(self.truth, levels, m).items()},
            }
            for m in many
            if m <= levels.shape[1]
        ]


def principal(vectors: Any, half: Flags) -> Doubles:
    """[width, width] principal directions of the vectors that attackers know, the largest first."""
    known = vectors[half].astype(np.float64)
    known -= known.mean(axis=0)
    return np.linalg.svd(known, full_matrices=False)[2]


def lying(world: World, how: str) -> Any:
    """[askers, width] vectors within the norm, which askers have no right to."""
    width = world.result.vectors.shape[1]
    largest = spec_for(width).largest_norm
    if how == "random":
        drawn = np.random.default_rng(2).standard_normal((len(world.askers), width))
    else:
        directions = principal(world.result.vectors, world.truth.halves.half)
        signs = np.where(np.arange(len(world.askers)) // width % 2, -1.0, 1.0)
        drawn = signs[:, None] * directions[np.arange(len(world.askers)) % width]
    rows = np.zeros((len(drawn), width), np.int8)
    for row, direction in enumerate(drawn / np.linalg.norm(drawn, axis=1, keepdims=True)):
        for scale in np.arange(0.5, 40, 0.25):  # as long as it may be
            whole = np.clip(np.rint(direction * scale), -4, 3)
            if (whole * whole).sum() <= largest:
                rows[row] = whole
    return rows


def by_tables(world: World, levels: int) -> Ints:
    """[devices, askers] quantiles of linear forms, as a sender with tables of its own gets them."""
    vectors = world.result.vectors.astype(np.float64)
    known = vectors[world.truth.halves.half]
    directions = principal(world.result.vectors, world.truth.halves.half)
    rng, columns = np.random.default_rng(3), []
    for number in range(len(world.askers)):
        form = directions[number] if number < len(directions) else rng.standard_normal(len(known.T))
        form = np.rint(form * 20)  # small whole numbers, as tables have them
        edges = np.quantile(known @ form, np.arange(1, levels) / levels)
        columns.append(np.searchsorted(edges, vectors @ form))
    return np.stack(columns, axis=1)


def all_askers(first: World, quick: bool) -> list[Row]:
    """The table of askers."""
    m = ASKERS[:3] if quick else ASKERS
    rows = []
    for bits in (1, 2, 3):
        world = first if bits == 2 else World.of(first.graph, query_bits=bits)
        rows += world.row(f"{bits} bits", world.levels(m), m)
        if bits == 2:
            for how in ("random", "principal"):
                levels = world.levels(m[:3], lying(world, how))
                rows += world.row(f"2 bits, liars, {how}", levels, m[:3], auc=False)
            levels = by_tables(world, 4)
            rows += world.row("2 bits, tables of one's own", levels, m[:3], auc=False)
    settings: dict[str, dict[str, Any]] = {
        "2 bits, answer ε = 4": {"query_epsilon": 4.0},
        "2 bits, answer ε = 2": {"query_epsilon": 2.0},
    }
    for name, change in settings.items():
        world = World.of(first.graph, **change)
        rows += world.row(name, world.levels(m[:3]), m[:3])
    return rows


def neighbours(world: World, runs: int) -> list[Row]:
    """What neighbours learn of degrees, over the whole of training."""
    training, halves = world.split.training, world.truth.halves
    sent, events = sent_by(world.recorded), matching_events(world.recorded.tape, training)
    found = one_neighbour(training, sent, events, halves)
    pooled = events + sum(matching_of(world, number) for number in range(1, runs))
    again = one_neighbour(training, sent, pooled, halves).seen["proposals and replies"]
    views = {
        "own degree alone": found.own,
        **{f"+ {name}": np.hstack([found.own, seen]) for name, seen in found.seen.items()},
        f"+ proposals of {runs} runs": np.hstack([found.own, again]),
    }
    return [
        {
            "one neighbour": name,
            **{
                question: found.evaluated(seen, is_so).auc
                for question, is_so in found.questions.items()
            },
        }
        for name, seen in views.items()
    ]


def matching_of(world: World, number: int) -> Doubles:
    """[slots, 3] the proposals of another run: setup alone."""
    training = world.split.training
    problem = Problem.of(
        graph=training,
        keep=np.zeros(len(training.neighbours), np.bool_),
        roles=np.full(training.devices, Role.NOBODY, np.int64),
        held_back=world.split.validation,
        classes=0,
        seed=0,
        shards=1,
    )
    config = Config.asked(
        task="link", score_queries=16 + number
    )  # other settings, other randomness
    with recording() as tape:
        made: Federation[Any] = Federation(problem, config, transport="recording")
        made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    return matching_events(tape, training)


def edges(world: World) -> list[Row]:
    """Are two others linked? By neighbours of theirs, from random marks and propagated labels."""
    found = third_parties(world.recorded, sent_by(world.recorded), world.truth.halves)
    return [
        {"attackers": name, "edge": one.auc, "without messages": without}
        for name, (one, without) in found.items()
    ]


def refusals(world: World) -> list[Row]:
    """What a refusal tells, where everybody asks about the pairs that a run is tested on."""
    split, degree = world.split, world.split.training.degrees
    pairs = np.concatenate([split.test, split.test_non_neighbours])
    is_edge = np.arange(len(pairs)) < len(split.test)
    order = np.random.default_rng(6).permutation(len(pairs))
    pairs, is_edge = pairs[order], is_edge[order]
    flip = np.random.default_rng(7).random(len(pairs)) < 0.5
    pairs = np.where(flip[:, None], pairs[:, ::-1], pairs)
    with recording() as tape:
        budget = world.result.budget.copy()
        answer(world.result, AskedPairs(pairs=pairs), budget, transport="recording")
    many = len(degree)
    reply = Batch.joined(tape.messages(CONSENT.name))
    refused = ~reply.body.ravel().astype(np.bool_)
    keys = pairs[:, 0] * many + pairs[:, 1]
    by_key = np.argsort(keys)
    place = by_key[np.searchsorted(keys[by_key], reply.receiver * many + reply.sender)]
    edge = is_edge[place]
    big = degree[reply.sender] > np.median(degree)
    score = refused.astype(np.float64)
    return [
        {
            "questions": f"{len(reply.sender):,} of {len(pairs):,}",
            "answered, edges": float(1 - refused[edge].mean()),
            "answered, non-neighbours": float(1 - refused[~edge].mean()),
            "edge": auc(score[edge], score[~edge]),
            "degree > median": auc(score[big], score[~big]),
        }
    ]


def coordinator(runs: int, devices: int) -> list[Row]:
    """A planted worst case, stage by stage: μ of other words, and guesses.

    Args:
        devices: of the graph; planted federations have the same kind of products.
    """
    kind = product_kind(StrictSettings(), devices)
    found = guesses(runs, Config.asked(task="link", products=kind))
    return [
        {
            "stage": stage,
            "account": one.account,
            "exact, largest": one.largest,
            "measured": one.largest * one.noise.value,
            "guesses": one.right / runs,
            "expected": one.expected,
        }
        for stage, one in found.items()
    ]


def loaded(options: argparse.Namespace) -> lumos.Graph:
    graph = lumos.load(options.graph)
    if options.words:
        words = words_for(np.asarray(graph.labels), np.random.default_rng(0))
        graph = replace(graph, features=words)
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--words", action="store_true", help="generate features from labels")
    parser.add_argument("--quick", action="store_true", help="fewer askers, fewer runs")
    parser.add_argument("--only", nargs="+", metavar="TABLE", help="only these tables")
    parser.add_argument("--json", type=Path, help="write tables to this file, beside those there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    graph = loaded(options)
    world = World.of(graph)
    there = world.truth.halves.evaluated
    base: Row = {"graph": options.graph, "way": world.result.reading.way}
    if world.truth.labels is not None:
        base["majority"] = float(np.bincount(world.truth.labels[there]).max() / there.sum())
        base["randomized label, ε = 2"] = make_mechanism(graph.class_count, 2.0, "krr").truth / COIN
    tables: dict[str, list[Row]] = {}
    if options.json is not None and options.json.exists():
        tables = json.loads(options.json.read_text())
    tables["base"] = [base]
    show(tables["base"], "without answers")
    for name, make in (
        ("askers", lambda: all_askers(world, options.quick)),
        ("neighbours", lambda: neighbours(world, 2 if options.quick else 10)),
        ("third parties", lambda: edges(world)),
        ("refusals", lambda: refusals(world)),
        ("coordinator", lambda: coordinator(4 if options.quick else 20, graph.devices)),
    ):
        if options.only is not None and name not in options.only:
            continue
        tables[name] = make()
        show(tables[name], f"{options.graph}: {name}")
        if options.json is not None:
            options.json.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n")


def show(rows: list[Row], title: str) -> None:
    """Print a table."""
    table = Table(title=title)
    for name in max(rows, key=len):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:.3f}" for v in row.values()))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()

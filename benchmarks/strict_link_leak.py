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

**Neighbours** have what passes in training: random marks and propagated labels.

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
    one_hot,
    over_sets,
    some_askers,
)
from lumos.audit.attacks.link_training import (
    guesses,
    one_neighbour,
    sent_by,
    third_parties,
)
from lumos.audit.harness import Recorded, Scene, without_masked_vectors
from lumos.exchange.messages import Batch
from lumos.exchange.tape import recording
from lumos.graph.demo import words_for
from lumos.ldp.mechanisms import COIN, make_mechanism
from lumos.strict.link.levels import ALONE, spec_for
from lumos.strict.link.prediction import LinkResult, answer
from lumos.strict.messages import CONSENT
from lumos.training.config import Config
from lumos.training.metrics import auc
from lumos.training.split import EdgeSplit
from lumos.training.trainer import AskedPairs
from lumos.twoparty.score import levels_of
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


def later_vectors(world: World, many: Sequence[int]) -> list[Row]:
    """Edges, by m liars that choose the vectors for one device after answers of the other one.

    They ask the first device along principal directions, and estimate its vector from the answers.
    They ask the second device for products with that estimate, of different lengths, so that
    buckets of different products border on one another. A committed vector would prevent it.
    """
    halves, vectors = world.truth.halves, world.result.vectors.astype(np.float64)
    spec = spec_for(vectors.shape[1], world.result.reading.cosines)
    fixed = world.levels(many, lying(world, "principal"))
    rows: list[Row] = []
    for m in many:
        seen = one_hot(fixed[:, :m]).numpy().astype(np.float64)
        known = np.column_stack([seen, np.ones(len(seen))])
        weights = np.linalg.lstsq(known[halves.half], vectors[halves.half], rcond=None)[0]
        estimated = known @ weights
        (_, _), (asked, is_edge) = halves.known, halves.asked
        one, other = asked[:, 0], asked[:, 1]
        buckets = np.zeros(len(asked))
        for part in np.linspace(1, 0.4, m):
            length = part * np.sqrt(spec.largest_norm)
            rows_ = (
                estimated * (length / np.maximum(np.linalg.norm(estimated, axis=1), 1e-9))[:, None]
            )
            whole = np.clip(np.fix(rows_), -4, 3)
            buckets += levels_of((whole[one] * vectors[other]).sum(axis=1).astype(np.int64), spec)
        rows.append(
            {
                "vectors of liars": "chosen after answers",
                "m": str(m),
                "edge": auc(buckets[is_edge], buckets[~is_edge]),
            }
        )
    return rows


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


def neighbours(world: World) -> list[Row]:
    """What neighbours learn of degrees, over the whole of training."""
    halves = world.truth.halves
    found = one_neighbour(world.split.training, sent_by(world.recorded), halves)
    views = {
        "own degree alone": found.own,
        "+ random marks and propagated labels": np.hstack([found.own, found.seen]),
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


def coordinator(runs: int) -> list[Row]:
    """A planted worst case, stage by stage: μ of other words, and guesses."""
    found = guesses(runs, Config.asked(task="link"))
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
        ("neighbours", lambda: neighbours(world)),
        ("third parties", lambda: edges(world)),
        ("later vectors", lambda: later_vectors(world, ASKERS[:3])),
        ("refusals", lambda: refusals(world)),
        ("coordinator", lambda: coordinator(4 if options.quick else 20)),
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

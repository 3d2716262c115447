"""What strict links tell: attackers over the recorded messages of whole runs.

    python -m benchmarks.strict_link_leak [--graph facebook] [--words] [--quick] [--json FILE]

**Askers.** m strangers put their questions to a device, and pool the levels that they learn. Runs
are real ones (vectors, thresholds, randomized response); questions pass through the protocol of
`lumos predict` and are recorded. Its budget is lifted for the attackers: a device answers 7
questions of others in its life, and learns levels in 16 answers in all, so a row of 16 askers is
more than anybody gets and one of 64 cannot occur. Attackers know the truth of one half of all
devices, with their answers (`link_attackers`), and are judged on the other half: no bound.

- *edge*: are two devices linked that both were asked by the same m askers? Neither is an asker.
- *label*: accuracy, beside the share of the most frequent one; *degree*: above the median;
- *words*: mean AUC of the 20 most frequent words, and the largest.

Without an answer, strangers know nothing of a device: AUC 0.5, the most frequent label.

**Liars** choose the vector by which they ask: random ones of full length, or principal directions
of the devices they know. *Tables of one's own* are beyond that: the sender of the protocol fills
its tables as it likes, and learns any function of a linear form with as many values as there are
levels; here, quantiles of principal components.

**Neighbours** have what passes in training: colours, opinions, proposals and replies.

**Coordinator.** Real noisy sums of small federations, one device of which has these words or
others, chosen for the largest change; the attacker knows everything else (`link_audit`).
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.link_attackers import Truth, attack, fitted, truth_of
from benchmarks.link_audit import audit
from rich.console import Console
from rich.table import Table

import lumos
from lumos.device.coins import PublicCoins
from lumos.encode.mechanisms import COIN, make_mechanism
from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.router import Router
from lumos.exchange.topic import Topic
from lumos.graph.demo import words_for
from lumos.runs.federation import Federation
from lumos.strict.link_answers import UNANSWERED
from lumos.strict.link_levels import ALONE, spec_for
from lumos.strict.link_prediction import answer
from lumos.strict.link_result import LinkResult
from lumos.strict.matching import ROUNDS
from lumos.strict.profile import PROFILE
from lumos.strict.settings import settings_of
from lumos.strict.topics import COLOUR, CONSENT, OPINION, PROPOSAL, QUESTION, REPLY
from lumos.training.config import Config
from lumos.training.link_questions import AskedPairs
from lumos.training.metrics import auc
from lumos.training.profile import Problem
from lumos.training.split import EdgeSplit, Role, split_edges
from lumos.typing import Doubles, Flags, Ints

ASKERS = (1, 4, 16, 64)
SETS = {1: 4, 4: 2, 16: 1, 64: 1}
"""Over how many sets of askers a figure is the mean."""
FREQUENT = 20
RECORDED = {topic.name for topic in (COLOUR, OPINION, PROPOSAL, REPLY, QUESTION, CONSENT)}

Row = dict[str, str | float]


@contextmanager
def recording() -> Iterator[dict[str, list[Batch]]]:
    """Every message of the topics above, by topic, one batch for each round."""
    passed: dict[str, list[Batch]] = {name: [] for name in RECORDED}
    route = Router.route

    def heard(self: Router, topic: Topic, outboxes: Sequence[Outbox]) -> list[Inbox]:
        if topic.name in RECORDED:
            passed[topic.name].append(Batch.joined([box.batch for box in outboxes]))
        return route(self, topic, outboxes)

    Router.route = heard  # type: ignore[method-assign]
    try:
        yield passed
    finally:
        Router.route = route  # type: ignore[method-assign]


@dataclass
class Recorded:
    """A run, what passed in it, and its devices as they answer questions."""

    run: lumos.Run
    passed: dict[str, list[Batch]] = field(repr=False)
    result: LinkResult

    @staticmethod
    def of(graph: lumos.Graph, **settings: Any) -> "Recorded":
        """Train, and record."""
        with recording() as passed:
            run = lumos.train(graph, task="link", floor=False, **settings)
        result = PROFILE.link_result(run.trained_links())
        return Recorded(run, passed, result)

    def asked_by(self, askers: Ints, vectors: Any = None) -> Ints:
        """[devices, askers] the levels that askers learn, with their own vectors or with these."""
        result, many = self.result, len(self.result.degree)
        own = result.vectors
        if vectors is not None:
            own = own.copy()
            own[askers] = vectors
        # No budget: see above.
        result = replace(result, vectors=own, strict=replace(result.strict, answers=0))
        targets = np.setdiff1d(np.arange(many), askers)
        pairs = np.stack([np.repeat(askers, len(targets)), np.tile(targets, len(askers))], axis=1)
        told = answer(result, AskedPairs(pairs=pairs), result.budget.copy()).levels[:, 0]
        assert not (told == UNANSWERED).any()
        levels = np.zeros((many, len(askers)), np.int64)
        levels[targets] = told.reshape(len(askers), -1).T
        return levels


@dataclass
class World:
    """A graph, its split, and what attackers want to know of it."""

    graph: lumos.Graph
    split: EdgeSplit = field(repr=False)
    truth: Truth = field(repr=False)
    askers: Ints = field(repr=False)

    @staticmethod
    def of(graph: lumos.Graph) -> "World":
        """Of the run with seed 0; edges are those that devices use in training."""
        split = split_edges(graph, PublicCoins(0))
        askers = np.random.default_rng(1).choice(graph.devices, max(ASKERS), replace=False)
        has: Any = graph.features != 0
        counts = np.asarray(has.sum(axis=0)).ravel()
        frequent = np.argsort(-counts)[:FREQUENT]
        some: Any = has[:, frequent]
        words = np.asarray(some.toarray() if hasattr(some, "toarray") else some, np.float64)
        labels = None if graph.labels is None else np.asarray(graph.labels)
        training = split.training
        truth = truth_of(training.degrees, training.edge_list(), labels, words, askers)
        return World(graph, split, truth, askers)


def askers_rows(world: World, levels: Ints, many: Sequence[int], about: Row) -> list[Row]:
    """One row for each number of askers: means over several sets of them."""
    rows = []
    for m in many:
        sets = [levels[:, n * m : n * m + m] for n in range(SETS[m])]
        found = [attack(part, world.truth) for part in sets]
        mean = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        rows.append({**about, "m": str(m), **mean})
    return rows


def principal(vectors: Any, half: Flags) -> Doubles:
    """[width, width] principal directions of the vectors that attackers know, the largest first."""
    known = vectors[half].astype(np.float64)
    known -= known.mean(axis=0)
    return np.linalg.svd(known, full_matrices=False)[2]


def lying(recorded: Recorded, world: World, how: str) -> Any:
    """[askers, width] vectors within the norm, which askers have no right to."""
    width = recorded.result.vectors.shape[1]
    largest = spec_for(width).largest_norm
    if how == "random":
        drawn = np.random.default_rng(2).standard_normal((len(world.askers), width))
    else:
        directions = principal(recorded.result.vectors, world.truth.half)
        signs = np.where(np.arange(len(world.askers)) // width % 2, -1.0, 1.0)
        drawn = signs[:, None] * directions[np.arange(len(world.askers)) % width]
    rows = np.zeros((len(drawn), width), np.int8)
    for row, direction in enumerate(drawn / np.linalg.norm(drawn, axis=1, keepdims=True)):
        for scale in np.arange(0.5, 40, 0.25):  # as long as it may be
            whole = np.clip(np.rint(direction * scale), -4, 3)
            if (whole * whole).sum() <= largest:
                rows[row] = whole
    return rows


def by_tables(recorded: Recorded, world: World, levels: int) -> Ints:
    """[devices, askers] quantiles of linear forms, as a sender with tables of its own gets them."""
    vectors = recorded.result.vectors.astype(np.float64)
    known = vectors[world.truth.half]
    directions = principal(recorded.result.vectors, world.truth.half)
    rng, columns = np.random.default_rng(3), []
    for number in range(len(world.askers)):
        form = directions[number] if number < len(directions) else rng.standard_normal(len(known.T))
        form = np.rint(form * 20)  # small whole numbers, as tables have them
        edges = np.quantile(known @ form, np.arange(1, levels) / levels)
        columns.append(np.searchsorted(edges, vectors @ form))
    return np.stack(columns, axis=1)


def all_askers(world: World, first: Recorded, quick: bool) -> list[Row]:
    """The table of askers."""
    graph, m = world.graph, ASKERS[:3] if quick else ASKERS
    rows = []
    for bits in (1, 2, 3):
        recorded = first if bits == 2 else Recorded.of(graph, answer_bits=bits)
        rows += askers_rows(
            world,
            recorded.asked_by(world.askers),
            m,
            {"answers": f"{bits} bits", **about(recorded)},
        )
        if bits == 2:
            for how in ("random", "principal"):
                levels = recorded.asked_by(world.askers, lying(recorded, world, how))
                rows += askers_rows(
                    world, levels, m[:3], {"answers": f"2 bits, liars, {how}", "AUC": ""}
                )
            levels = by_tables(recorded, world, 4)
            rows += askers_rows(
                world, levels, m[:3], {"answers": "2 bits, tables of one's own", "AUC": ""}
            )
    for name, settings in (
        ("2 bits, degrees in the score", {"score_degrees": True}),
        ("2 bits, answer ε = 4", {"answer_epsilon": 4.0}),
        ("2 bits, answer ε = 2", {"answer_epsilon": 2.0}),
    ):
        recorded = Recorded.of(graph, **settings)
        levels = recorded.asked_by(world.askers)
        rows += askers_rows(world, levels, m[:3], {"answers": name, **about(recorded)})
    return rows


def about(recorded: Recorded) -> Row:
    """The AUC of the run itself: what its answers are good for."""
    way = recorded.result.reading.way
    return {"AUC": f"{recorded.run.metrics['test_auc']:.4f}" + " (alone)" * (way == ALONE)}


# Neighbours.


def sent(recorded: Recorded, many: int) -> Ints:
    """[devices, rounds] colour and opinions; -1 for devices without neighbours."""
    rounds = recorded.passed[COLOUR.name] + recorded.passed[OPINION.name]
    values = np.full((many, len(rounds)), -1)
    for number, batch in enumerate(rounds):
        values[batch.sender, number] = batch.body[:, 0]
    return values


def proposals(passed: dict[str, list[Batch]], many: int) -> dict[str, dict[int, int]]:
    """By kind of event, how often it passed over (receiver, sender), as the receiver knows it."""
    made: dict[str, dict[int, int]] = {"proposed": {}, "accepted": {}, "refused": {}}
    for batch in passed[PROPOSAL.name][:ROUNDS]:
        for key in (batch.receiver * many + batch.sender).tolist():
            made["proposed"][key] = made["proposed"].get(key, 0) + 1
    for batch in passed[REPLY.name][:ROUNDS]:
        said = batch.body.astype(np.bool_).ravel()
        for key, yes in zip((batch.receiver * many + batch.sender).tolist(), said, strict=True):
            name = "accepted" if yes else "refused"
            made[name][key] = made[name].get(key, 0) + 1
    return made


def event_columns(made: dict[str, dict[int, int]], keys: Ints) -> Doubles:
    """[pairs, events]"""
    return np.array(
        [[events.get(key, 0) for events in made.values()] for key in keys.tolist()], float
    )


def judged_by_network(columns: Doubles, truth: Flags, half: Flags) -> float:
    """AUC of a small network on one half, judged on the other."""
    inputs = torch.from_numpy(columns).float()
    wanted = torch.from_numpy(truth[:, None]).float()
    known = torch.from_numpy(half)
    scores = fitted(inputs[known], wanted[known], inputs[~known])[:, 0].numpy().astype(np.float64)
    real = truth[~half]
    return auc(scores[real], scores[~real])


def message_columns(said: Ints, usual: Doubles, mine: Ints, theirs: Ints) -> Doubles:
    """[pairs, …] which messages of two devices are equal, within and between, and how usual."""
    u, v = said[mine], said[theirs]
    rounds = said.shape[1]
    between = [u[:, i] == v[:, j] for i in range(rounds) for j in range(rounds)]
    within = [x[:, i] == x[:, j] for x in (u, v) for i in range(rounds) for j in range(i)]
    frequent = [np.log(usual[i][v[:, i]]) for i in range(rounds)]
    return np.stack([*between, *within, *frequent], axis=1).astype(np.float64)


def neighbours(world: World, recorded: Recorded, runs: int, most: int = 40_000) -> list[Row]:
    """What neighbours learn of degrees and of third-party edges, over the whole of training."""
    training = world.split.training
    many, degree = training.devices, training.degrees
    rng = np.random.default_rng(4)
    owner = np.repeat(np.arange(many), degree)
    slots = rng.permutation(len(owner))[:most]
    u, v = owner[slots], training.neighbours[slots]  # u attacks its neighbour v
    half = world.truth.half
    ours = half[v]
    said = sent(recorded, many)
    colours = settings_of(recorded.run.config).colours
    usual = np.stack([np.bincount(row[row >= 0], minlength=colours) + 1.0 for row in said.T])
    usual /= usual.sum(axis=1, keepdims=True)
    own = np.log1p(degree[u])[:, None]
    messages = message_columns(said, usual, u, v)
    keys = u * many + v
    events = event_columns(proposals(recorded.passed, many), keys)
    pooled = events.copy()
    for number in range(1, runs):
        pooled += event_columns(proposals(matching_of(world, number), many), keys)
    middle = np.median(degree)
    rows: list[Row] = []
    for name, columns in (
        ("own degree alone", own),
        ("+ colours and opinions", np.hstack([own, messages])),
        ("+ proposals and replies", np.hstack([own, events])),
        ("+ all of them", np.hstack([own, messages, events])),
        (f"+ proposals of {runs} runs", np.hstack([own, pooled])),
    ):
        found: Row = {"one neighbour": name}
        for question, truth in (
            ("degree ≤ 1", degree[v] <= 1),
            ("degree ≤ 5", degree[v] <= 5),
            ("degree > median", degree[v] > middle),
        ):
            found[question] = judged_by_network(columns, truth, ours)
        rows.append(found)
    return rows


def matching_of(world: World, number: int) -> dict[str, list[Batch]]:
    """The proposals of another run: setup alone."""
    problem = Problem(
        graph=world.split.training,
        keep=np.zeros(len(world.split.training.neighbours), np.bool_),
        roles=np.full(world.graph.devices, Role.NOBODY, np.int64),
        held_back=world.split.validation,
        classes=0,
        seed=0,
        shards=1,
    )
    config = Config.asked(task="link", answers=16 + number)  # other settings, other coins
    made: Federation[Any] = Federation(problem, config)
    with recording() as passed:
        made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    return passed


def third_parties(world: World, recorded: Recorded, most: int = 20_000) -> list[Row]:
    """Are v and w linked? By neighbours of theirs, from colours and opinions."""
    training = world.split.training
    many, degree = training.devices, training.degrees
    said = sent(recorded, many)
    colours = settings_of(recorded.run.config).colours
    usual = np.stack([np.bincount(row[row >= 0], minlength=colours) + 1.0 for row in said.T])
    usual /= usual.sum(axis=1, keepdims=True)
    rows: list[Row] = []
    heard_both = degree > 0
    known, asked = (
        (pairs[heard_both[pairs].all(axis=1)], real[heard_both[pairs].all(axis=1)])
        for pairs, real in (world.truth.known, world.truth.asked)
    )
    pairs = np.concatenate([known[0], asked[0]])
    real = np.concatenate([known[1], asked[1]])
    half = np.arange(len(pairs)) < len(known[0])
    columns = message_columns(said, usual, pairs[:, 0], pairs[:, 1])
    rows.append(
        {"attackers": "one neighbour of each", "edge": judged_by_network(columns, real, half)}
    )
    # One neighbour u of both: do two of my neighbours know each other?
    rng = np.random.default_rng(5)
    owner = np.repeat(np.arange(many), degree)
    some = rng.permutation(np.flatnonzero(degree[owner] > 1))[: 2 * most]
    first = training.neighbours[some]
    pick = training.offsets[owner[some]] + (rng.random(len(some)) * degree[owner[some]]).astype(int)
    second = training.neighbours[pick]
    there = first != second
    u, v, w = owner[some][there], first[there], second[there]
    edges = training.edge_list()
    taken = np.sort(edges.min(axis=1) * many + edges.max(axis=1))
    linked = np.isin(np.minimum(v, w) * many + np.maximum(v, w), taken)
    own = np.log1p(degree[u])[:, None]
    shape = np.hstack(
        [own, *(message_columns(said, usual, a, b) for a, b in ((u, v), (u, w), (v, w)))]
    )
    side = world.truth.half[u]
    rows.append(
        {
            "attackers": "one neighbour of both, own degree alone",
            "edge": judged_by_network(own, linked, side),
        }
    )
    rows.append(
        {"attackers": "one neighbour of both", "edge": judged_by_network(shape, linked, side)}
    )
    # All neighbours of v but w, who also know what w said: the exact likelihood ratio.
    pairs, real = asked
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    scores = np.array([all_others(world, recorded, said, v, w) for v, w in pairs[:, :2].tolist()])
    one, other = scores[: len(real)], scores[len(real) :]
    for name, score in (("all neighbours of v", one), ("all neighbours of both", one + other)):
        rows.append({"attackers": name, "edge": auc(score[real], score[~real])})
    return rows


def all_others(world: World, recorded: Recorded, said: Ints, v: int, w: int) -> float:
    """log P(opinions of v | w is its neighbour) / P(… | it is not), for all other neighbours."""
    training = world.split.training
    strict = settings_of(recorded.run.config)
    others = training.neighbours[training.offsets[v] : training.offsets[v + 1]]
    others = others[others != w]
    kept = np.exp(strict.opinion_epsilon)
    total, mine = 0.0, [said[v, 0], said[v, 0]]
    for number in range(1, said.shape[1]):
        usual = recorded.run.model.weights["usual"][number - 1]
        told = said[v, number]
        for side, more in ((0, True), (1, False)):
            counts = np.bincount(said[others, number - 1], minlength=strict.colours).astype(float)
            counts[mine[side]] += 1
            if more:
                counts[said[w, number - 1]] += 1
            above = counts - (len(others) + 1 + more) * usual
            best = np.flatnonzero(above >= above.max() - 1e-9)
            share = (told in best) / len(best)
            chance = (share * kept + (1 - share)) / (kept + strict.colours - 1)
            total += np.log(chance) * (1 if more else -1)
            mine[side] = told if told in best else int(best[0])
    return float(total)


def refusals(world: World, recorded: Recorded) -> list[Row]:
    """What a refusal tells, where everybody asks about the pairs that a run is tested on."""
    split, degree = world.split, world.split.training.degrees
    pairs = np.concatenate([split.test, split.test_strangers])
    is_edge = np.arange(len(pairs)) < len(split.test)
    order = np.random.default_rng(6).permutation(len(pairs))
    pairs, is_edge = pairs[order], is_edge[order]
    flip = np.random.default_rng(7).random(len(pairs)) < 0.5
    pairs = np.where(flip[:, None], pairs[:, ::-1], pairs)
    with recording() as passed:
        answer(recorded.result, AskedPairs(pairs=pairs), recorded.result.budget.copy())
    many = len(degree)
    reply = Batch.joined(passed[CONSENT.name])
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
            "answered, strangers": float(1 - refused[~edge].mean()),
            "edge": auc(score[edge], score[~edge]),
            "degree > median": auc(score[big], score[~big]),
        }
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
    first = Recorded.of(graph)
    there = ~world.truth.half
    base: Row = {"graph": options.graph, "way": first.result.reading.way}
    if world.truth.labels is not None:
        base["majority"] = float(np.bincount(world.truth.labels[there]).max() / there.sum())
        base["symbol, ε = 2"] = make_mechanism(graph.class_count, 2.0, "krr").truth / COIN
    tables: dict[str, list[Row]] = {}
    if options.json is not None and options.json.exists():
        tables = json.loads(options.json.read_text())
    tables["base"] = [base]
    show(tables["base"], "without answers")
    for name, make in (
        ("askers", lambda: all_askers(world, first, options.quick)),
        ("neighbours", lambda: neighbours(world, first, 2 if options.quick else 10)),
        ("third parties", lambda: third_parties(world, first)),
        ("refusals", lambda: refusals(world, first)),
        ("coordinator", lambda: audit(4 if options.quick else 20)),
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

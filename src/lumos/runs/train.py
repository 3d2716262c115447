"""`lumos.train`: the whole job, from a graph to a finished run."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lumos.device.coins import PublicCoins
from lumos.errors import UsageError
from lumos.exchange.observer import AcrossRanks, Observer, OneProcess
from lumos.graph import Graph
from lumos.graph.facts import GraphFacts, facts_of
from lumos.graph.ids import Ids, IdTexts, some_ids
from lumos.graph.parts import PartsFolder, is_parts_folder
from lumos.graph.sources import as_graph, is_named
from lumos.machine import cpu_seconds, peak_rss_mb, threads_for
from lumos.model.network import TreeNetwork
from lumos.progress import ProgressOption, displayed
from lumos.ranks.world import World
from lumos.runs.folder import RunFolder, describe, keeps_device_values
from lumos.runs.loop import RunJob, TrainedArm, costs_of
from lumos.runs.run import Cost, Privacy, Run, TrainedModel, Training
from lumos.runs.schema import About, AboutSplit, OnEpoch, PerEpoch, RankCost, Split, TreeSummary
from lumos.training.config import Config
from lumos.training.given_split import GivenSplit, edge_split, reading_of, vertex_split
from lumos.training.metrics import (
    Scores,
    TestedPairs,
    below_own,
    device_scores,
    dot_products,
    no_better_than_control,
    pair_scores,
    unconverged,
)
from lumos.training.problem import Problem, need_features
from lumos.training.split import DataSplit, EdgeSplit, Role
from lumos.training.trainer import CONTROL, MAIN, OWN, Judged
from lumos.trees.balance import Balanced
from lumos.typing import Arrays, Ints


@dataclass(frozen=True, eq=False)
class Hosting:
    """How a federation is spread over shards and processes.

    Args:
        shards: number of shards in this process, where it is the only one.
        world: the ranks of the run, each with one shard; None for one process.
    """

    shards: int = 1
    world: World | None = None

    def __post_init__(self) -> None:
        if self.world is not None and self.shards != 1:
            raise UsageError("a rank hosts one shard; leave out `shards`, or `ranks`")

    @property
    def count(self) -> int:
        """Number of all shards."""
        return self.shards if self.world is None else self.world.size

    @property
    def carrier(self) -> str:
        """What moves messages between them."""
        return "loopback" if self.world is None else "gloo"

    @property
    def observer(self) -> Observer:
        """How results come together."""
        return OneProcess() if self.world is None else AcrossRanks(self.world)

    def range_of(self, devices: int) -> list[Ints] | None:
        """The ids that this rank hosts, a range; None where one process hosts all of them.

        Raises:
            UsageError: there are more ranks than devices.
        """
        if self.world is None:
            return None
        ranks, rank = self.world.size, self.world.rank
        if ranks > devices:
            raise UsageError(
                f"`ranks` must be at most the number of devices ({devices}), got {ranks}"
            )
        ends = [devices * number // ranks for number in (rank, rank + 1)]
        return [np.arange(*ends, dtype=np.int64)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A run that has not begun."""

    facts: GraphFacts
    """Of the whole graph."""
    problem: Problem
    """Without `keep`: nobody carries an edge yet."""
    split: AboutSplit
    counts: Split | None = None
    """How many train, validate and test, where parts say it; otherwise it is counted."""
    edges: EdgeSplit | None = field(default=None, repr=False)
    """For link, where this process has the graph."""
    held_out: TestedPairs | None = field(default=None, repr=False)
    """For link, at rank 0: the pairs that the observer scores by."""
    graph: Graph | None = field(default=None, repr=False)
    """The whole graph, where this process has it."""
    own_ids: Callable[[], list[Ids]] = field(repr=False)
    """For each part of this process, the original ids of its devices."""


def prepared_graph(
    graph: Graph, config: Config, split: GivenSplit, seed: int, hosting: Hosting
) -> Prepared:
    """Of a graph in memory; every rank has it, and keeps its own part.

    Raises:
        InputError: the graph cannot be split so.
        UsageError: `split` is no split.
    """
    public, facts = PublicCoins(seed), facts_of(graph)
    hosted = hosting.range_of(graph.devices)
    common: dict[str, Any] = {
        "seed": seed,
        "shards": hosting.shards,
        "hosted": hosted,
        "owner": facts.fingerprint,
    }
    nobody = np.full(graph.devices, Role.NOBODY, np.int64)
    edges = None
    if config.train.task == "link":
        held = edge_split(graph, split, public)
        edges = held.split
        about = AboutSplit(origin=held.origin, name=held.name, shares=held.shares)
        problem = Problem.of(
            edges.training,
            keep=None,
            roles=nobody,
            held_back=edges.validation,
            classes=0,
            split=held.name,
            **common,
        )
    else:
        roles, origin, name = vertex_split(graph, split, public)
        about = AboutSplit(origin=origin, name=name)
        problem = Problem.of(
            graph,
            keep=None,
            roles=roles,
            held_back=np.empty((0, 2), np.int64),
            classes=graph.class_count,
            split=name,
            **common,
        )

    def own_ids() -> list[Ids]:
        return [some_ids(graph.ids, part.devices) for part in problem.parts]

    return Prepared(
        facts=facts,
        problem=problem,
        split=about,
        edges=edges,
        held_out=edges,
        graph=graph,
        own_ids=own_ids,
    )


def prepared_parts(
    folder: PartsFolder, config: Config, split: GivenSplit, seed: int, hosting: Hosting
) -> Prepared:
    """Of a graph in parts on disk; every rank opens its own parts and no others.

    Raises:
        UsageError: the parts are not for this task, seed, split, or number of ranks.
        InputError: a file is missing or damaged.
    """
    task, manifest = config.train.task, folder.manifest
    if split is not None:
        raise UsageError(
            f"{folder.path}: its parts have a split already; leave out `split`, or split the graph "
            "again with it"
        )
    if seed != manifest.seed:
        raise UsageError(
            f"{folder.path}: its split was drawn with `seed={manifest.seed}`, not {seed}; train "
            "with that seed, or split the graph again"
        )
    drawn, world = folder.split(task), hosting.world
    if world is None:
        numbers = [folder.range_of(shard, hosting.shards) for shard in range(hosting.shards)]
    else:
        numbers = [folder.range_of(world.rank, world.size)]
    link = task == "link"
    problem = Problem(
        facts=folder.facts(task),
        parts=tuple(folder.part(some, task) for some in numbers),
        keep=(),
        classes=0 if link else manifest.graph.class_count,
        training=0 if link else drawn.train,
        validation=0 if link else drawn.validation,
        seed=seed,
        split=drawn.name,
        owner=manifest.graph.fingerprint,
    )
    return Prepared(
        facts=manifest.graph,
        problem=problem,
        split=AboutSplit(origin=drawn.origin, name=drawn.name, shares=drawn.shares),
        counts=Split(drawn.train, drawn.validation, drawn.test),
        held_out=folder.held_out() if link and hosting.observer.first else None,
        own_ids=lambda: [folder.ids(some) for some in numbers],
    )


def train(
    graph: Any,
    config: Config | None = None,
    *,
    seed: int = 0,
    shards: int = 1,
    carrier: str = "loopback",
    data_dir: Path | None = None,
    source: Mapping[str, Any] | None = None,
    split: GivenSplit = None,
    trees: Balanced | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: ProgressOption = None,
    on_epoch: OnEpoch | None = None,
    **settings: Any,
) -> Run:
    """Train a model over a simulated federation in which every device is one vertex.

    Args:
        graph: a `Graph`, a PyG `Data`, a NetworkX graph, or a name or path as `load` takes it.
        config: all settings; or give single ones by name, as `epsilon=1.0, backbone="gat"`.
        seed: run seed.
        shards: number of shards that share nothing but the exchange; the result is the same.
        carrier: what moves the messages, a name of `lumos.exchange.CARRIERS`.
        data_dir: where named graphs lie.
        source: arguments by which `load` finds the graph again, for newcomers.
        split: who trains, validates and tests. By default masks that the graph has, otherwise a
            random split by the seed: half of the labelled devices train, a quarter validates, a
            quarter tests; 80, 5 and 15 % of the edges for links. Otherwise shares, as
            `(0.6, 0.2, 0.2)`; a mapping of `train`, `val` and `test` to original ids or masks, for
            links of `val` and `test` to pairs of ids; a file with one of them; or `"random"`.
        trees: trees that were balanced before, for the same graph and seed (classify only).
        out: a run folder to write.
        resume: go on with an interrupted run in `out`.
        progress: True shows it: a bar in a terminal or notebook, a line every ten seconds
            elsewhere. Or a callback `(done, total, note)`, called periodically.
        on_epoch: callback `(EpochEvent)`, called after every epoch of every arm.
    """
    run = train_rank(
        graph,
        config,
        seed=seed,
        hosting=Hosting(shards),
        carrier=carrier,
        data_dir=data_dir,
        source=source,
        split=split,
        trees=trees,
        out=out,
        resume=resume,
        progress=progress,
        on_epoch=on_epoch,
        **settings,
    )
    if run is None:
        raise UsageError("this process is no rank, and has no run")
    return run


def train_rank(
    graph: Any,
    config: Config | None = None,
    *,
    seed: int = 0,
    hosting: Hosting,
    carrier: str | None = None,
    data_dir: Path | None = None,
    source: Mapping[str, Any] | None = None,
    split: GivenSplit = None,
    trees: Balanced | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: ProgressOption = None,
    on_epoch: OnEpoch | None = None,
    **settings: Any,
) -> Run | None:
    """The part of one process in a run: all of it, or that of its rank.

    Args:
        hosting: what this process hosts.
        carrier: what moves the messages; by default what `hosting` needs.
        others: as in `train`. Only rank 0 writes to `out` and reports progress.

    Returns:
        The run at rank 0; None elsewhere.
    """
    if config is not None and settings:
        raise UsageError("give a Config or single settings, not both")
    config = config or Config.asked(**settings)
    if resume and out is None:
        raise UsageError("`resume` needs `out`: the folder of the interrupted run")
    start, before = time.perf_counter(), cpu_seconds()
    observer = hosting.observer
    prepared = _prepared(graph, config, split, seed, hosting, data_dir)
    problem, facts = prepared.problem, prepared.facts
    if trees is not None and trees.graph is not problem.graph:
        raise UsageError("trees: they belong to another graph")
    if source is None:
        source = {"spec": findable(graph)} if isinstance(graph, str | Path) else {}
        if isinstance(graph, PartsFolder):
            source = {"spec": findable(graph.path)}
    about = describe(facts, source, config, seed, hosting.count, prepared.split)
    _check_alike(observer, about)
    folder = _folder(out, about, config, resume=resume) if observer.first else None
    carrier = carrier or hosting.carrier
    here = sum(len(part.devices) for part in problem.parts)
    arcs = sum(part.slots for part in problem.parts)
    with (
        threads_for(here, arcs // 2),
        displayed(progress if observer.first else None, "training") as shown,
    ):
        job = RunJob(prepared, config, observer, carrier, folder, shown, on_epoch)
        summary, keep = job.trees(trees)
        problem = replace(problem, keep=keep)
        fitted = job.fit_arms(problem, resume=resume)
    ids, rows = job.gathered()
    costs = costs_of(observer, before)
    if not observer.first or summary is None or rows is None:
        return None
    run = finished_run(prepared, about, config, summary, fitted, ids, rows, costs, start)
    run = replace(run, folder=None if folder is None else folder.path)
    if folder is not None:
        run.write_split(folder)
        run.write_result(folder)
        if not keeps_device_values(config):
            folder.remove_checkpoints()
    return run


def _prepared(
    graph: Any,
    config: Config,
    split: GivenSplit,
    seed: int,
    hosting: Hosting,
    data_dir: Path | None,
) -> Prepared:
    """The problem, from a graph; refused if it cannot be trained, before anything is written."""
    folder = parts_folder(graph)
    if folder is not None:
        _check(folder.facts(config.train.task), config)
        return prepared_parts(folder, config, split, seed, hosting)
    whole = as_graph(graph, data_dir, **reading_of(split))
    _check(facts_of(whole), config)
    return prepared_graph(whole, config, split, seed, hosting)


def findable(graph: str | Path) -> str:
    """A name as it is, whatever lies in this folder; a path so that it is found from any folder."""
    named = is_named(str(graph)) or not Path(graph).exists()
    return str(graph) if named else str(Path(graph).resolve())


def parts_folder(graph: Any) -> PartsFolder | None:
    """The graph in parts on disk that is meant; None for any other graph."""
    if isinstance(graph, PartsFolder):
        return graph
    if isinstance(graph, str | Path) and not is_named(str(graph)) and is_parts_folder(Path(graph)):
        return PartsFolder.open(graph)
    return None


def _check(facts: GraphFacts, config: Config) -> None:
    """Refuse what cannot be trained before anything is written or balanced."""
    need_features(facts)
    TreeNetwork(config.model, facts.feature_count)  # a backbone that exists
    if config.train.control and config.train.coins == "system":
        raise UsageError(
            "`control` is an experiment of simulations; with `coins='system'`, devices are real"
        )
    config.profile.check(facts, config)


def _check_alike(observer: Observer, about: About) -> None:
    """Refuse ranks that were started for different runs, before anything is written.

    Raises:
        UsageError: their graph, seed, settings, split or version differ.
    """
    what = (about.fingerprint, about.seed, about.settings, about.split, about.lumos)
    digest = blake2b(msgspec.json.encode(what, order="sorted"), digest_size=32).digest()
    if observer.differs("the same run", digest):
        raise UsageError(
            "ranks differ in graph, seed, settings, split or version of Lumos; start all of them "
            "with the same command"
        )


def _folder(
    out: Path | str | None, about: About, config: Config, *, resume: bool
) -> RunFolder | None:
    if out is None:
        return None
    if resume:
        repeatable = config.train.coins == "simulated"
        return RunFolder.resume(Path(out), about, repeatable=repeatable)
    return RunFolder.create(Path(out), about)


def finished_run(
    prepared: Prepared,
    about: About,
    config: Config,
    trees: TreeSummary,
    fitted: dict[str, TrainedArm],
    ids: IdTexts,
    rows: Arrays,
    costs: list[RankCost],
    start: float,
) -> Run:
    """The run at rank 0.

    Args:
        fitted: all arms.
        ids: of all devices.
        rows: [devices] labels and roles, by which the observer scores.
        costs: what each process took.
        start: when the run began.
    """
    main = fitted[MAIN]
    outcome = main.outcome
    judged = {arm: of_arm.outcome.judged[MAIN] for arm, of_arm in fitted.items()}
    for arm, part in outcome.judged.items():
        if arm != OWN or config.train.floor:
            judged[arm] = part
    scores = {arm: _scores(prepared, rows, part) for arm, part in judged.items()}
    counts, data = _split(prepared, rows)
    return Run(
        about=about,
        config=config,
        scores=scores,
        histories={arm: of_arm.history for arm, of_arm in fitted.items()},
        training=Training(
            split=counts,
            best_epoch=outcome.best_epoch,
            choice=outcome.choice,
            cautions=[*outcome.cautions, *_cautions(config, main, scores, counts.test)],
            estimates=outcome.estimates,
        ),
        cost=Cost(
            seconds=round(time.perf_counter() - start, 3),
            seconds_per_epoch=round(main.seconds / len(main.history), 4),
            peak_rss_mb=peak_rss_mb(),
            ranks=costs,
            per_epoch=msgspec.convert(main.per_epoch, PerEpoch),
        ),
        privacy=Privacy(exposed=outcome.exposed, promises=outcome.promises),
        model=TrainedModel(
            weights=main.weights,
            embeddings=outcome.embeddings,
            logits=outcome.logits,
            kept=outcome.kept,
        ),
        trees=trees,
        ledger=main.ledger,
        ids=ids,
        graph=prepared.graph,
        _split=data,
        _held_out=_given_pairs(prepared),
    )


def _given_pairs(prepared: Prepared) -> tuple[Ints, Ints] | None:
    """Held-out edges of a split that was given, where the run has no graph to find them in."""
    pairs = prepared.held_out
    if prepared.edges is not None or pairs is None or prepared.split.shares is not None:
        return None
    return pairs.validation, pairs.test


def _split(prepared: Prepared, rows: Arrays) -> tuple[Split, DataSplit | None]:
    """How many train, validate and test, and who; None for edges that no process has together."""
    origin, data = prepared.split.origin, None
    if prepared.edges is not None:
        data = prepared.edges.edges(origin)
    elif prepared.held_out is None:
        data = DataSplit.of_roles(rows["roles"], origin)
    if prepared.counts is not None:
        return prepared.counts, data
    if data is None:
        raise TypeError("a split has neither counts nor devices")
    return Split(len(data.train), len(data.validation), len(data.test)), data


def _cautions(config: Config, main: TrainedArm, scores: dict[str, Scores], cases: int) -> list[str]:
    """What the observer sees: a loss that still falls, own features or a control as good."""
    metric = "auc" if config.train.task == "link" else "accuracy"
    last_stage = max(config.profile.texts(config).stages.values(), default=1)
    finished = main.outcome.best_epoch == len(main.history)
    losses = [event.loss for event in main.history[last_stage - 1 :]] if finished else []
    of = {arm: float(figures[f"test_{metric}"]) for arm, figures in scores.items()}
    return [
        *unconverged(losses, config.train.epochs),
        *below_own(of[MAIN], of.get(OWN), cases, metric),
        *no_better_than_control(of[MAIN], of.get(CONTROL), cases, metric),
    ]


def _scores(prepared: Prepared, rows: Arrays, part: Judged) -> Scores:
    """The observer's scores: of pairs where edges are split, of logits otherwise."""
    pairs = prepared.held_out
    if pairs is not None:
        return pair_scores(part if callable(part) else partial(dot_products, part), pairs)
    if callable(part):
        raise TypeError("pairs are scored where edges are split")
    return device_scores(part, rows["labels"], rows["roles"], prepared.facts.classes)

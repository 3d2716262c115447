"""`lumos.train`: the whole job, from a graph to a finished run."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Unpack
from warnings import warn

import msgspec
import numpy as np

from lumos.device.randomness import PublicRandomness
from lumos.display import ProgressOption, displayed
from lumos.errors import LumosWarning, UsageError, typed
from lumos.exchange.observer import AcrossRanks, Observer, OneProcess
from lumos.graph import Graph
from lumos.graph.arrays import IdTexts, some_ids
from lumos.graph.facts import GraphFacts, facts_of
from lumos.graph.io import take_reading
from lumos.graph.parts import PartsFolder, is_parts_folder
from lumos.graph.sources import as_graph, is_named
from lumos.machine import cpu_seconds, peak_rss_mb, threads_for
from lumos.model.network import check_network
from lumos.ranks.world import World
from lumos.runs.folder import RunFolder, describe, keeps_device_values
from lumos.runs.loop import RunJob, costs_of
from lumos.runs.run import Cost, Run, RunData
from lumos.runs.schema import About, PerEpoch, RankCost, Split, TreeSummary
from lumos.training.config import Config, TrainKeywords, settings_help
from lumos.training.given_split import GivenSplit, edge_split, reading_of, vertex_split
from lumos.training.metrics import (
    Scores,
    below_own,
    device_scores,
    dot_products,
    few_train,
    no_better_than_control,
    no_better_than_majority,
    pair_scores,
    unconverged,
)
from lumos.training.problem import Problem, need_features
from lumos.training.split import DataSplit, EdgeSplit, Role
from lumos.training.trainer import CONTROL, MAIN, OWN, EpochCallback, Evaluated, Outcome
from lumos.trees.balance import Balanced
from lumos.typing import Arrays, Ints


@dataclass(frozen=True, eq=False)
class Hosting:
    """Distribution of a federation over shards and processes.

    Args:
        shards: number of shards in this process, where it is the only one.
        world: the ranks of the run, each with one shard; None for one process.
    """

    shards: int = 1
    world: World | None = None

    def __post_init__(self) -> None:
        typed("shards", self.shards, int)
        if self.world is not None and self.shards != 1:
            raise UsageError("a rank hosts one shard; leave out `shards`")

    @property
    def count(self) -> int:
        """Number of all shards."""
        return self.shards if self.world is None else self.world.size

    @property
    def transport(self) -> str:
        """Name of the transport between the shards."""
        return "loopback" if self.world is None else "gloo"

    @property
    def observer(self) -> Observer:
        """The observer that collects the results."""
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
                f"there are {ranks} ranks for {devices} devices; start at most one for each"
            )
        ends = [devices * number // ranks for number in (rank, rank + 1)]
        return [np.arange(*ends, dtype=np.int64)]


def graph_problem(
    graph: Graph, config: Config, split: GivenSplit, seed: int, hosting: Hosting
) -> Problem:
    """Return the problem of a graph in memory; every rank has it, and keeps its own part.

    Raises:
        InputError: the graph cannot be split so.
        UsageError: `split` is no split.
    """
    public, facts = PublicRandomness(seed), facts_of(graph)
    common: dict[str, Any] = {
        "keep": None,
        "seed": seed,
        "shards": hosting.shards,
        "hosted": hosting.range_of(graph.devices),
        "owner": facts.simulated.fingerprint,
    }
    edges = shares = None
    if config.train.task == "link":
        edges, origin, name, shares = edge_split(graph, split, public)
        roles = np.full(graph.devices, Role.NOBODY, np.int64)
        problem = Problem.of(
            edges.training,
            roles=roles,
            held_back=edges.validation,
            classes=0,
            split=name,
            **common,
        )
    else:
        roles, origin, name = vertex_split(graph, split, public)
        problem = Problem.of(
            graph,
            roles=roles,
            held_back=np.empty((0, 2), np.int64),
            classes=graph.class_count,
            split=name,
            **common,
        )
    return replace(
        problem,
        whole=facts,
        whole_graph=graph,
        ids=lambda: [some_ids(graph.ids, part.devices) for part in problem.parts],
        origin=origin,
        shares=shares,
        held_out=edges,
    )


def parts_problem(
    folder: PartsFolder, config: Config, split: GivenSplit, seed: int, hosting: Hosting
) -> Problem:
    """Return the problem of a graph in parts on disk; every rank opens its own and no others.

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
    return Problem(
        facts=folder.facts(task),
        parts=tuple(folder.part(some, task) for some in numbers),
        keep=(),
        classes=0 if link else manifest.graph.class_count,
        training=0 if link else drawn.train,
        validation=0 if link else drawn.validation,
        seed=seed,
        split=drawn.name,
        owner=manifest.graph.simulated.fingerprint,
        whole=manifest.graph,
        ids=lambda: [folder.ids(some) for some in numbers],
        origin=drawn.origin,
        shares=drawn.shares,
        sizes=(drawn.train, drawn.validation, drawn.test),
        held_out=folder.held_out() if link and hosting.observer.first else None,
    )


def train(
    graph: Any,
    config: Config | None = None,
    *,
    seed: int = 0,
    shards: int = 1,
    transport: str = "loopback",
    data_dir: Path | None = None,
    source: Mapping[str, Any] | None = None,
    split: GivenSplit = None,
    trees: Balanced | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: ProgressOption = None,
    on_epoch: EpochCallback | None = None,
    **settings: Unpack[TrainKeywords],
) -> Run:
    """Train a model over a simulated federation in which every device is one vertex.

    Args:
        graph: a `Graph`, a PyG `Data`, a NetworkX graph, or a name or path as `load` takes it.
        config: all settings of the run; or give single ones by name.
        seed: run seed.
        shards: number of shards that share nothing but the exchange; the result is the same.
        transport: what moves the messages, a name of `lumos.exchange.TRANSPORTS`.
        data_dir: where named graphs lie.
        source: arguments by which `load` finds the graph again, for new devices.
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
        on_epoch: callback `(EpochEvent)`, called after every epoch of every variant.
        settings: settings of the run and of reading the graph by name, as `label_epsilon=2.0,
            task="link", weights="drop"`; all of them are below.

    Warns:
        LumosWarning: each of `Run.warnings`.
    """
    run = train_rank(
        graph,
        config,
        seed=seed,
        hosting=Hosting(shards),
        transport=transport,
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
    for text in run.warnings:
        warn(text, LumosWarning, stacklevel=2)
    return run


train.__doc__ = f"{train.__doc__}{settings_help()}"


def train_rank(
    graph: Any,
    config: Config | None = None,
    *,
    seed: int = 0,
    hosting: Hosting,
    transport: str | None = None,
    data_dir: Path | None = None,
    source: Mapping[str, Any] | None = None,
    split: GivenSplit = None,
    trees: Balanced | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: ProgressOption = None,
    on_epoch: EpochCallback | None = None,
    **settings: Unpack[TrainKeywords],
) -> Run | None:
    """The part of one process in a run: all of it, or that of its rank.

    Args:
        hosting: what this process hosts.
        transport: what moves the messages; by default what `hosting` needs.
        others: as in `train`. Only rank 0 writes to `out` and reports progress.

    Returns:
        The run at rank 0; None elsewhere.
    """
    asked: dict[str, Any] = {**settings}
    reading = take_reading(asked)
    if config is not None and asked:
        raise UsageError("give a Config or single settings, not both")
    config = config or Config.asked(**asked)
    seed = typed("seed", seed, int)
    if resume and out is None:
        raise UsageError("`resume` needs `out`: the folder of the interrupted run")
    start, before = time.perf_counter(), cpu_seconds()
    observer = hosting.observer
    given = read_input(graph, data_dir=data_dir, split=split, reading=reading)
    config = config.for_devices(_devices(given.graph))
    problem = _problem(given.graph, config, split, seed, hosting)
    if trees is not None and trees.graph is not problem.graph:
        raise UsageError("trees: they belong to another graph")
    about = describe(problem, given.source if source is None else source, config, hosting.count)
    _check_alike(observer, about)
    folder = _folder(out, about, config, resume=resume) if observer.first else None
    transport = transport or hosting.transport
    here = sum(len(part.devices) for part in problem.parts)
    arcs = sum(part.slots for part in problem.parts)
    with (
        threads_for(here, arcs // 2),
        displayed(progress if observer.first else None, "training") as shown,
    ):
        job = RunJob(problem, config, observer, transport, folder, shown, on_epoch)
        summary, keep = job.trees(trees)
        fitted = job.fit_variants(keep, resume=resume)
    ids, rows = job.gathered()
    costs = costs_of(observer, before)
    if not observer.first or summary is None or rows is None:
        return None
    run = finished_run(problem, about, config, summary, fitted, ids, rows, costs, start)
    run = replace(run, folder=None if folder is None else folder.path)
    if folder is not None:
        folder.save_run(run)
        if not keeps_device_values(config):
            folder.remove_checkpoints()
    return run


class TrainingInput(NamedTuple):
    """A graph that was read, and where it can be found again."""

    graph: Graph | PartsFolder
    source: dict[str, Any]
    """Arguments of `load`; of a graph in memory only how it was read, without `spec`."""


def read_input(
    graph: Any,
    *,
    data_dir: Path | None = None,
    split: GivenSplit = None,
    reading: Mapping[str, Any] | None = None,
    whole: bool = False,
) -> TrainingInput:
    """Read a graph as `train` takes it; parts on disk are opened, not read.

    Args:
        graph: as `train` takes it, or what this function returned.
        data_dir: folder of named graphs.
        split: as `train` takes it: where one is given, masks of the graph do not matter.
        reading: as `ReadKeywords` has them; parts are then read as one graph.
        whole: read parts as one graph too.
    """
    if isinstance(graph, TrainingInput):
        return graph
    implied, reading = reading_of(split), reading or {}
    options = {**implied, **reading}
    if not isinstance(graph, str | Path | PartsFolder):
        known = {} if isinstance(graph, Graph) else options
        return TrainingInput(as_graph(graph, data_dir, implied=implied, **reading), known)
    place = graph.path if isinstance(graph, PartsFolder) else graph
    parts = graph if isinstance(graph, PartsFolder) else None
    if parts is None and not is_named(str(place)) and is_parts_folder(Path(place)):
        parts = PartsFolder.open(place)
    source = {"spec": findable(place)}
    if parts is not None and not (reading or whole):
        return TrainingInput(parts, source)
    return TrainingInput(as_graph(place, data_dir, **options), {**source, **options})


def _devices(graph: Graph | PartsFolder) -> int:
    return graph.devices if isinstance(graph, Graph) else graph.manifest.graph.devices


def findable(graph: str | Path) -> str:
    """Return a name as it is, whatever lies in this folder, and a path as an absolute one."""
    named = is_named(str(graph)) or not Path(graph).exists()
    return str(graph) if named else str(Path(graph).resolve())


def _problem(
    graph: Graph | PartsFolder, config: Config, split: GivenSplit, seed: int, hosting: Hosting
) -> Problem:
    """Return the problem of a graph; refuse what cannot be trained before anything is written."""
    if isinstance(graph, PartsFolder):
        _check(graph.facts(config.train.task), config)
        return parts_problem(graph, config, split, seed, hosting)
    _check(facts_of(graph), config)
    return graph_problem(graph, config, split, seed, hosting)


def _check(facts: GraphFacts, config: Config) -> None:
    """Refuse what cannot be trained before anything is written or balanced."""
    need_features(facts)
    check_network(config.model, facts.feature_count)
    if config.train.control and config.train.randomness == "system":
        raise UsageError(
            "`control` is an experiment of simulations; with `randomness='system'`, devices are "
            "real"
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
        repeatable = config.train.randomness == "seeded"
        return RunFolder.resume(Path(out), about, repeatable=repeatable)
    return RunFolder.create(Path(out), about)


def finished_run(
    problem: Problem,
    about: About,
    config: Config,
    trees: TreeSummary,
    fitted: dict[str, Outcome],
    ids: IdTexts,
    rows: Arrays,
    costs: list[RankCost],
    start: float,
) -> Run:
    """The run at rank 0.

    Args:
        fitted: all variants.
        ids: of all devices.
        rows: [devices] labels and roles, by which the observer scores.
        costs: what each process took.
        start: when the run began.
    """
    main = fitted[MAIN]
    evaluated = {variant: outcome.evaluated[MAIN] for variant, outcome in fitted.items()}
    for variant, part in main.evaluated.items():
        if variant != OWN or config.train.floor:
            evaluated[variant] = part
    scores = {variant: _scores(problem, rows, part) for variant, part in evaluated.items()}
    sizes, data = _split(problem, rows)
    labelled = int((rows["labels"] >= 0).sum())
    warnings = list(_warnings(config, main, scores, sizes, labelled))
    return Run(
        about=about,
        config=config,
        scores=scores,
        histories={variant: outcome.history for variant, outcome in fitted.items()},
        split_sizes=sizes,
        model=replace(main, warnings=warnings),
        cost=Cost(
            seconds=round(time.perf_counter() - start, 3),
            seconds_per_epoch=round(main.seconds / len(main.history), 4),
            peak_rss_mb=peak_rss_mb(),
            ranks=costs,
            per_epoch=msgspec.convert(main.per_epoch, PerEpoch),
        ),
        trees=trees,
        ids=ids,
        data=RunData(
            about=about, graph=problem.whole_graph, drawn=data, held_out=_given_pairs(problem)
        ),
    )


def _given_pairs(problem: Problem) -> tuple[Ints, Ints] | None:
    """Held-out edges of a split that was given, where the run has no graph to find them in."""
    pairs = problem.held_out
    if isinstance(pairs, EdgeSplit) or pairs is None or problem.shares is not None:
        return None
    return pairs.validation, pairs.test


def _split(problem: Problem, rows: Arrays) -> tuple[Split, DataSplit | None]:
    """Return the sizes of the split, and the split; None for edges that no process has together."""
    data = None
    if isinstance(problem.held_out, EdgeSplit):
        data = problem.held_out.edges(problem.origin)
    elif problem.held_out is None:
        data = DataSplit.of_roles(rows["roles"], problem.origin)
    if problem.sizes is not None:
        return Split(*problem.sizes), data
    if data is None:
        raise TypeError("a split has neither counts nor devices")
    return Split(len(data.train), len(data.validation), len(data.test)), data


def _warnings(
    config: Config, main: Outcome, scores: dict[str, Scores], sizes: Split, labelled: int
) -> Iterator[str]:
    """Return all warnings: those of the profile, few labels, a loss that still falls, and scores
    that a constant answer, the local model or the control reaches too."""
    metric = "auc" if config.train.task == "link" else "accuracy"
    stages = config.profile.texts(config).stages  # of sums that share one budget
    finished = main.best_epoch == len(main.history)
    losses = [event.loss for event in main.history] if finished and not stages else []
    of = {variant: float(figures[f"test_{metric}"]) for variant, figures in scores.items()}
    yield from main.warnings
    if metric == "accuracy":
        confusion = scores[MAIN]["test_confusion"]
        if config.profile_settings.epsilon < float("inf"):
            yield from few_train(sizes.train, labelled, len(confusion))
        yield from no_better_than_majority(of[MAIN], confusion)
    yield from unconverged(losses, config.train.epochs)
    yield from below_own(of[MAIN], of.get(OWN), sizes.test, metric)
    yield from no_better_than_control(of[MAIN], of.get(CONTROL), sizes.test, metric)


def _scores(problem: Problem, rows: Arrays, part: Evaluated) -> Scores:
    """The observer's scores: of pairs where edges are split, of logits otherwise."""
    pairs = problem.held_out
    if pairs is not None:
        return pair_scores(part if callable(part) else partial(dot_products, part), pairs)
    if callable(part):
        raise TypeError("pairs are scored where edges are split")
    return device_scores(
        part, rows["labels"], rows["roles"], (problem.whole or problem.facts).classes
    )

"""`lumos.train`: the whole job, from a graph to a finished run."""

import time
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from lumos.errors import UsageError
from lumos.exchange.observer import Observer
from lumos.graph.facts import GraphFacts, facts_of
from lumos.graph.parts import PartsFolder, is_parts_folder
from lumos.graph.sources import as_graph, is_named
from lumos.memory import cpu_seconds
from lumos.model.network import TreeNetwork
from lumos.progress import ProgressOption, displayed
from lumos.runs.events import OnEpoch
from lumos.runs.finished import finished_run
from lumos.runs.folder import RunFolder, describe, keeps_device_values
from lumos.runs.hosting import Hosting
from lumos.runs.prepared import Prepared, prepared_graph, prepared_parts
from lumos.runs.run import Run
from lumos.runs.run_job import RunJob, costs_of
from lumos.runs.schema import About
from lumos.threads import threads_for
from lumos.training.config import Config
from lumos.training.given_split import GivenSplit, reading_of
from lumos.training.private_data import need_features
from lumos.trees.balance import Balanced


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

"""`lumos.train`: the whole job, from a graph to a finished run."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lumos.device.coins import PublicCoins
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.fingerprint import fingerprint
from lumos.graph.sources import as_graph, is_named
from lumos.memory import peak_rss_mb
from lumos.model.network import TreeNetwork
from lumos.progress import ProgressOption, displayed
from lumos.runs.events import EpochEvent, OnEpoch
from lumos.runs.folder import RunFolder, describe, keeps_device_values
from lumos.runs.loop import TrainedArm, fit
from lumos.runs.run import Cost, Privacy, Run, Scores, TrainedModel, Training
from lumos.runs.schema import About, PerEpoch, Split
from lumos.runs.tree_summary import TreeSummary
from lumos.training.config import Config
from lumos.training.metrics import auc, class_scores, dot_products
from lumos.training.outcome import CONTROL, MAIN, OWN, Judged, PairScores
from lumos.training.private_data import features_of
from lumos.training.profile import Problem
from lumos.training.split import EdgeSplit, Role, split_edges, split_vertices
from lumos.trees.balance import Balanced, balance
from lumos.typing import Ints, Progress


def train(
    graph: Any,
    config: Config | None = None,
    *,
    seed: int = 0,
    shards: int = 1,
    carrier: str = "loopback",
    data_dir: Path | None = None,
    source: Mapping[str, Any] | None = None,
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
        trees: trees that were balanced before, for the same graph and seed (classify only).
        out: a run folder to write.
        resume: go on with an interrupted run in `out`.
        progress: True shows it: a bar in a terminal or notebook, a line every ten seconds
            elsewhere. Or a callback `(done, total, note)`, called periodically.
        on_epoch: callback `(EpochEvent)`, called after every epoch of every arm.
    """
    if config is not None and settings:
        raise UsageError("give a Config or single settings, not both")
    config = config or Config.asked(**settings)
    if resume and out is None:
        raise UsageError("`resume` needs `out`: the folder of the interrupted run")
    start = time.perf_counter()
    whole = as_graph(graph, data_dir)
    _check(whole, config)
    problem, split = _problem(whole, config, seed, shards)
    if trees is not None and trees.graph is not problem.graph:
        raise UsageError("trees: they belong to another graph")
    if source is None:
        source = {"spec": findable(graph)} if isinstance(graph, str | Path) else {}
    about = describe(whole, source, config, seed, shards)
    folder = _folder(out, about, config, resume=resume)
    with displayed(progress, "training") as shown:
        summary = _trees(problem, config, trees, carrier, folder, shown)
        problem = replace(problem, keep=summary.keep)
        fitted = _fit_arms(problem, config, carrier, folder, resume, shown, on_epoch)
    run = _finished(whole, problem, split, about, config, summary, fitted, start)
    run = replace(run, folder=None if folder is None else folder.path)
    if folder is not None:
        run.write_result(folder)
        if not keeps_device_values(config):
            folder.remove_checkpoints()
    return run


def findable(graph: str | Path) -> str:
    """A name as it is, whatever lies in this folder; a path so that it is found from any folder."""
    named = is_named(str(graph)) or not Path(graph).exists()
    return str(graph) if named else str(Path(graph).resolve())


def _check(graph: Graph, config: Config) -> None:
    """Refuse what cannot be trained before anything is written or balanced."""
    features_of(graph)
    TreeNetwork(config.model, graph.feature_count)  # a backbone that exists
    if config.train.control and config.train.coins == "system":
        raise UsageError(
            "`control` is an experiment of simulations; with `coins='system'`, devices are real"
        )
    config.profile.check(graph, config)


def _problem(
    graph: Graph, config: Config, seed: int, shards: int
) -> tuple[Problem, EdgeSplit | None]:
    """What is to be learnt. `keep` is still empty."""
    public = PublicCoins(seed)
    problem = Problem(
        graph=graph,
        keep=np.empty(0, np.bool_),
        roles=np.full(graph.devices, Role.NOBODY, np.int64),
        held_back=np.empty((0, 2), np.int64),
        classes=0,
        seed=seed,
        shards=shards,
        owner=fingerprint(graph),
    )
    if config.train.task == "link":
        split = split_edges(graph, public)
        return replace(problem, graph=split.training, held_back=split.validation), split
    if graph.labels is None:
        raise InputError(
            f"{graph.name or 'the graph'} has no labels; classify needs them, `task='link'` does "
            "not"
        )
    roles = split_vertices(graph.labels, public)
    return replace(problem, roles=roles, classes=graph.class_count), None


def _folder(
    out: Path | str | None, about: About, config: Config, *, resume: bool
) -> RunFolder | None:
    if out is None:
        return None
    if resume:
        repeatable = config.train.coins == "simulated"
        return RunFolder.resume(Path(out), about, repeatable=repeatable)
    return RunFolder.create(Path(out), about)


def _trees(
    problem: Problem,
    config: Config,
    given: Balanced | None,
    carrier: str,
    folder: RunFolder | None,
    progress: Progress | None,
) -> TreeSummary:
    """The trees that were given, that an interrupted run has, or new ones."""
    per_device = keeps_device_values(config)
    saved = None if given is not None or folder is None else folder.trees()
    if folder is not None and saved is not None and per_device:
        if len(saved.keep) != len(problem.graph.neighbours):
            raise InputError(
                f"{folder.path / 'trees.npz'}: is of another graph; restart without `resume`"
            )
        return saved
    if given is None:
        given = balance(
            problem.graph,
            config.trees,
            seed=problem.seed,
            shards=problem.shards,
            coins=config.train.coins,
            carrier=carrier,
            progress=progress,
        )
    summary = TreeSummary.of(given)
    if folder is not None and saved is None:
        folder.save_trees(summary, per_device=per_device)
    return summary


def _fit_arms(
    problem: Problem,
    config: Config,
    carrier: str,
    folder: RunFolder | None,
    resume: bool,
    progress: Progress | None,
    on_epoch: OnEpoch | None,
) -> dict[str, TrainedArm]:
    """Train every arm, the run itself last."""
    arms = [OWN] * (config.train.floor and not config.profile.own_included)
    arms += [CONTROL] * config.train.control + [MAIN]
    epochs = config.train.epochs
    fitted = {}
    for number, arm in enumerate(arms):

        def report(event: EpochEvent, before: int = number) -> None:
            if progress is not None:
                progress(before * epochs + event.epoch, len(arms) * epochs, _note(event))
            if on_epoch is not None:
                on_epoch(event)

        fitted[arm] = fit(
            replace(problem, alone=arm == OWN),
            config,
            arm=arm,
            control=arm == CONTROL,
            carrier=carrier,
            folder=None if folder is None else folder.arm(arm),
            resume=resume,
            on_epoch=report,
        )
    return fitted


def _finished(
    graph: Graph,
    problem: Problem,
    split: EdgeSplit | None,
    about: About,
    config: Config,
    trees: TreeSummary,
    fitted: dict[str, TrainedArm],
    start: float,
) -> Run:
    main = fitted[MAIN]
    outcome = main.outcome
    judged = {arm: of_arm.outcome.judged[MAIN] for arm, of_arm in fitted.items()}
    for arm, part in outcome.judged.items():
        if arm != OWN or config.train.floor:
            judged[arm] = part
    return Run(
        about=about,
        config=config,
        scores={arm: _scores(graph, problem, split, part) for arm, part in judged.items()},
        histories={arm: of_arm.history for arm, of_arm in fitted.items()},
        training=Training(
            split=_sizes(problem, split),
            best_epoch=outcome.best_epoch,
            choice=outcome.choice,
            caution=outcome.caution,
            estimates=outcome.estimates,
        ),
        cost=Cost(
            seconds=round(time.perf_counter() - start, 3),
            seconds_per_epoch=round(main.seconds / len(main.history), 4),
            peak_rss_mb=peak_rss_mb(),
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
        ids=tuple(np.asarray(graph.ids).astype(np.str_).tolist()),
        graph=graph,
    )


def _scores(graph: Graph, problem: Problem, split: EdgeSplit | None, part: Judged) -> Scores:
    """The observer's scores: of pairs where edges are split, of logits otherwise."""
    if split is not None:
        score = part if callable(part) else partial(dot_products, part)
        return {
            "test_auc": _auc(score, split.test, split.test_strangers),
            "val_auc": _auc(score, split.validation, split.validation_strangers),
        }
    if callable(part):
        raise TypeError("pairs are scored where edges are split")
    labels = np.asarray(graph.labels)
    parts = {"test": Role.TEST, "val": Role.VALIDATION}
    by_part = {
        name: class_scores(part, labels, problem.roles, role) for name, role in parts.items()
    }
    return {f"{name}_{score}": value for name, of in by_part.items() for score, value in of.items()}


def _auc(score: PairScores, edges: Ints, strangers: Ints) -> float:
    """AUC of pairs that are scored together: a budget of answers must not know which are edges."""
    scores = score(np.concatenate([edges, strangers]))
    return auc(scores[..., : len(edges)].ravel(), scores[..., len(edges) :].ravel())


def _sizes(problem: Problem, split: EdgeSplit | None) -> Split:
    if split is not None:
        return Split(split.training.edges, len(split.validation), len(split.test))
    train, validation, test = (
        int((problem.roles == role).sum()) for role in (Role.TRAIN, Role.VALIDATION, Role.TEST)
    )
    return Split(train, validation, test)


def _note(event: EpochEvent) -> str:
    score = "" if event.score is None else f" · validation {event.score:.4f}"
    loss = "" if event.loss is None else f" · loss {event.loss:.4f}"
    return f"{event.arm} epoch {event.epoch}{loss}{score}"

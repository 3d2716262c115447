"""`lumos.train`: the whole job, from a graph to a finished run."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from lumos.runs.run import Cost, Privacy, Run, TrainedModel, Training
from lumos.runs.schema import About, AboutSplit, PerEpoch, Split
from lumos.runs.tree_summary import TreeSummary
from lumos.training.cautions import below_own, no_better_than_control, unconverged
from lumos.training.config import Config
from lumos.training.given_split import GivenSplit, edge_split, reading_of, vertex_split
from lumos.training.metrics import Scores, device_scores, dot_products, pair_scores
from lumos.training.outcome import CONTROL, MAIN, OWN, Judged
from lumos.training.private_data import features_of
from lumos.training.profile import Problem
from lumos.training.split import DataSplit, EdgeSplit, Role
from lumos.trees.balance import Balanced, balance
from lumos.typing import Progress


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
    if config is not None and settings:
        raise UsageError("give a Config or single settings, not both")
    config = config or Config.asked(**settings)
    if resume and out is None:
        raise UsageError("`resume` needs `out`: the folder of the interrupted run")
    start = time.perf_counter()
    whole = as_graph(graph, data_dir, **reading_of(split))
    _check(whole, config)
    problem, chosen = _problem(whole, config, split, seed, shards)
    if trees is not None and trees.graph is not problem.graph:
        raise UsageError("trees: they belong to another graph")
    if source is None:
        source = {"spec": findable(graph)} if isinstance(graph, str | Path) else {}
    about = describe(whole, source, config, seed, shards, chosen.about)
    folder = _folder(out, about, config, resume=resume)
    with displayed(progress, "training") as shown:
        summary = _trees(problem, config, trees, carrier, folder, shown)
        problem = replace(problem, keep=summary.keep)
        fitted = _fit_arms(problem, config, carrier, folder, resume, shown, on_epoch)
    run = _finished(whole, problem, chosen, about, config, summary, fitted, start)
    run = replace(run, folder=None if folder is None else folder.path)
    if folder is not None:
        folder.save_split(about.split, run.split, whole.devices)
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


class _Chosen(NamedTuple):
    """The split of a run."""

    about: AboutSplit
    data: DataSplit
    edges: EdgeSplit | None
    """For link."""


def _problem(
    graph: Graph, config: Config, split: GivenSplit, seed: int, shards: int
) -> tuple[Problem, _Chosen]:
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
        held = edge_split(graph, split, public)
        edges = held.split
        chosen = _Chosen(
            AboutSplit(origin=held.origin, name=held.name, shares=held.shares),
            edges.edges(held.origin),
            edges,
        )
        problem = replace(problem, graph=edges.training, held_back=edges.validation)
        return replace(problem, split=held.name), chosen
    roles, origin, name = vertex_split(graph, split, public)
    chosen = _Chosen(AboutSplit(origin=origin, name=name), DataSplit.of_roles(roles, origin), None)
    return replace(problem, roles=roles, classes=graph.class_count, split=name), chosen


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
    split: _Chosen,
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
    scores = {arm: _scores(graph, problem, split.edges, part) for arm, part in judged.items()}
    return Run(
        about=about,
        config=config,
        scores=scores,
        histories={arm: of_arm.history for arm, of_arm in fitted.items()},
        training=Training(
            split=Split(len(split.data.train), len(split.data.validation), len(split.data.test)),
            best_epoch=outcome.best_epoch,
            choice=outcome.choice,
            cautions=[*outcome.cautions, *_cautions(config, main, scores, len(split.data.test))],
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
        _split=split.data,
    )


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


def _scores(graph: Graph, problem: Problem, split: EdgeSplit | None, part: Judged) -> Scores:
    """The observer's scores: of pairs where edges are split, of logits otherwise."""
    if split is not None:
        return pair_scores(part if callable(part) else partial(dot_products, part), split)
    if callable(part):
        raise TypeError("pairs are scored where edges are split")
    return device_scores(part, np.asarray(graph.labels), problem.roles, graph.classes)


def _note(event: EpochEvent) -> str:
    score = "" if event.score is None else f" · validation {event.score:.4f}"
    loss = "" if event.loss is None else f" · loss {event.loss:.4f}"
    return f"{event.arm} epoch {event.epoch}{loss}{score}"

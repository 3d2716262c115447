"""`lumos.train`: the whole job, from a graph to a trained model and an account of what it cost."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from lumos.device.coins import PublicCoins
from lumos.encode.bounds import within
from lumos.errors import InputError, UsageError
from lumos.exchange.ledger import LedgerReport
from lumos.graph import Graph, load
from lumos.graph.sources import is_named
from lumos.memory import peak_rss_mb
from lumos.model import TreeNetwork
from lumos.paper.exposure import exposure
from lumos.runs.federation import Fitted, Problem, fit
from lumos.runs.folder import RunFolder, fingerprint, write_arrays, write_json
from lumos.training.metrics import accuracy, auc, dot_products
from lumos.training.private_data import features_of
from lumos.training.settings import Config
from lumos.training.split import EdgeSplit, Role, split_edges, split_vertices
from lumos.trees.balance import Balanced, balance
from lumos.typing import Arrays, Floats, Ints, Progress

Judged = Floats | Callable[[Ints], npt.NDArray[np.float64]]
"""Logits or embeddings of all devices, or a function that scores pairs."""

MAIN, OWN, CONTROL, IDS = "train", "own", "control", "ids"


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """A finished run. Scores, trees and workloads are the observer's."""

    graph: Graph
    config: Config
    seed: int
    shards: int
    metrics: dict[str, float]
    """`test_accuracy` and `val_accuracy`, or `test_auc` and `val_auc`."""
    own: dict[str, float] | None
    """The same for own features only."""
    control: dict[str, float] | None
    """The same for releases that say nothing."""
    ids: dict[str, float] | None
    """The same by colours alone (strict links)."""
    split: dict[str, int]
    """How many devices (classify) or edges (link) train, validate and test."""
    embeddings: Floats = field(repr=False)
    """[devices, width], in the order of `graph.ids`; in the strict profile, the logits."""
    logits: Floats | None = field(repr=False)
    """[devices, classes], for classify."""
    arrays: Arrays = field(repr=False)
    """The trained weights by name."""
    kept: Arrays = field(repr=False)
    """What else a prediction needs (strict)."""
    trees: Balanced = field(repr=False)
    ledger: LedgerReport = field(repr=False)
    """What passed in training; `trees.ledger` has what passed before."""
    history: list[dict[str, Any]] = field(repr=False)
    """One record per epoch."""
    best_epoch: int
    per_epoch: dict[str, float]
    exposed: str
    """What the run exposed, to whom, in words."""
    promises: list[dict[str, str]] = field(repr=False)
    """The table of promises, row by row (strict)."""
    choice: str
    """What validation devices chose: own, evidence or backbone (strict); empty otherwise."""
    caution: str
    """What a reader of the scores should know."""
    seconds: float
    """From the graph to the result."""
    seconds_per_epoch: float

    def embedding(self, original_id: int | str) -> Floats:
        """The embedding of the device that the source calls `original_id`."""
        row: Floats = self.embeddings[self.graph.index_of(original_id)]
        return row

    def probabilities(self) -> Floats:
        """[devices, classes] what the model believes of every device, unlabelled ones too."""
        if self.logits is None:
            raise UsageError("this run predicts links; it has no classes")
        chances: Floats = torch.softmax(torch.from_numpy(self.logits), dim=1).numpy()
        return chances

    def summary(self) -> dict[str, Any]:
        """Everything that `lumos train --json` prints."""
        train = self.config.train
        beside = {
            f"{name}_{key}": value
            for name, scores in ((OWN, self.own), (IDS, self.ids), (CONTROL, self.control))
            for key, value in (scores or {}).items()
        }
        return {
            "graph": self.graph.name,
            "devices": self.graph.devices,
            "edges": self.graph.edges,
            "task": train.task,
            "profile": train.profile,
            "backbone": self.config.model.backbone,
            "epsilon": _number(self.config.encoder.epsilon),
            "bins": self.config.encoder.noisy or self.config.encoder.bins,
            **self.metrics,
            **beside,
            "split": self.split,
            "epochs": len(self.history),
            "best_epoch": self.best_epoch,
            "final_loss": self.history[-1]["loss"],
            "improvements": self.config.improvements(),
            "balancer": self.config.trees.balancer,
            "compare": self.trees.compare,
            "aggregate": train.aggregate,
            "coins": self.config.train.coins,
            "seed": self.seed,
            "shards": self.shards,
            "max_workload": self.trees.max_workload,
            "weights": sum(array.size for array in self.arrays.values()),
            "seconds": round(self.seconds, 3),
            "seconds_per_epoch": round(self.seconds_per_epoch, 4),
            "peak_rss_mb": peak_rss_mb(),
            "per_epoch": self.per_epoch,
            "ledger": _plain(self.ledger.totals()),
            "tree_ledger": _plain(self.trees.ledger.totals()),
            "exposed": self.exposed,
            "promises": self.promises,
            "choice": self.choice,
            "caution": self.caution,
            "notes": list(self.graph.notes),
        }


def train(
    graph: Any,
    config: Config | None = None,
    *,
    seed: int = 0,
    shards: int = 1,
    data_dir: Path | None = None,
    source: Mapping[str, Any] | None = None,
    trees: Balanced | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    told: Callable[[str, dict[str, Any]], None] | None = None,
    **settings: Any,
) -> Trained:
    """Train a model over a simulated federation in which every device is one vertex.

    Args:
        graph: a `Graph`, a PyG `Data`, a NetworkX graph, or a name or path as `load` takes it.
        config: all settings; or give single ones by name, as `epsilon=1.0, backbone="gat"`.
        seed: run seed.
        shards: number of shards that share nothing but the exchange; the result is the same.
        data_dir: where named graphs lie.
        source: arguments by which `load` finds the graph again, for `predict`.
        trees: trees that were balanced before, for the same graph and seed (classify only).
        out: a run folder to write.
        resume: go on with an interrupted run in `out`.
        progress: told (done, total, note) now and then.
        told: told ("train" | "own" | "control", record) after every epoch.
    """
    if config is not None and settings:
        raise UsageError("give a Config or single settings, not both")
    config = config or Config.asked(**settings)
    if resume and out is None:
        raise UsageError("--resume needs --out: the folder of the interrupted run")
    start = time.perf_counter()
    whole = as_graph(graph, data_dir)
    public = PublicCoins(seed)
    _check(whole, config)
    problem, split = _problem(whole, config, public, seed, shards)
    if trees is not None and trees.graph is not problem.graph:
        raise UsageError("trees: they belong to another graph")
    folder = None
    if out is not None:
        if source is None:
            source = {"spec": findable(graph)} if isinstance(graph, str | Path) else {}
        folder = RunFolder.open(Path(out), whole, source, config, seed, shards, resume=resume)
        trees = trees or folder.trees(problem.graph, config)
    if trees is None:
        trees = balance(
            problem.graph,
            config.trees,
            seed=seed,
            shards=shards,
            coins=config.train.coins,
            progress=progress,
        )
        if folder is not None:
            folder.save_trees(trees)
    problem = replace(problem, keep=trees.keep)

    strict = config.train.profile == "strict"  # there, the own encoder is part of every run
    arms = [OWN] * (config.train.floor and not strict)
    arms += [CONTROL] * config.train.control + [MAIN]
    total = len(arms) * config.train.epochs
    scores: dict[str, dict[str, float]] = {}
    fitted: Fitted
    for number, arm in enumerate(arms):

        def tell(record: dict[str, Any], arm: str = arm, before: int = number) -> None:
            if progress is not None:
                progress(before * config.train.epochs + record["epoch"], total, _note(arm, record))
            if told is not None:
                told(arm, record)

        fitted = fit(
            replace(problem, alone=arm == OWN),
            config,
            control=arm == CONTROL,
            folder=folder if folder is None or arm == MAIN else folder.beside(arm),
            resume=resume,
            told=tell,
        )
        outcome = _outcome(fitted, config)
        scores[arm] = _scores(whole, problem, split, outcome.judged[MAIN])
        for name in outcome.judged.keys() - {MAIN}:
            if arm == MAIN and (name != OWN or config.train.floor):
                scores[name] = _scores(whole, problem, split, outcome.judged[name])
    result = Trained(
        graph=whole,
        config=config,
        seed=seed,
        shards=shards,
        metrics=scores[MAIN],
        own=scores.get(OWN),
        control=scores.get(CONTROL),
        ids=scores.get(IDS),
        split=_sizes(problem, split),
        embeddings=outcome.embeddings,
        logits=outcome.logits,
        arrays=fitted.arrays,
        kept=outcome.kept or {},
        trees=trees,
        ledger=fitted.ledger,
        history=fitted.history,
        best_epoch=outcome.best_epoch,
        per_epoch=fitted.per_epoch,
        exposed=" ".join(filter(None, [exposure(config, fitted.ledger), outcome.reading])),
        promises=outcome.promises,
        choice=outcome.choice,
        caution=outcome.caution,
        seconds=time.perf_counter() - start,
        seconds_per_epoch=fitted.seconds / len(fitted.history),
    )
    if folder is not None:
        _save(folder, result)
    return result


def as_graph(graph: Any, data_dir: Path | None = None) -> Graph:
    """A graph from whatever people hold: ours, PyG's, NetworkX's, or a name or path."""
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str | Path):
        return load(str(graph), data_dir=data_dir)
    if hasattr(graph, "edge_index"):
        return Graph.from_pyg(graph)
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        return Graph.from_networkx(graph)
    raise UsageError(
        f"graph: {type(graph).__name__} is neither a lumos.Graph, a PyG Data, a NetworkX graph, "
        "nor a name or path"
    )


def findable(graph: str | Path) -> str:
    """A name as it is, whatever lies in this folder; a path so that it is found from any folder."""
    named = is_named(str(graph)) or not Path(graph).exists()
    return str(graph) if named else str(Path(graph).resolve())


class _Outcome(NamedTuple):
    """What a run found, whatever its profile."""

    embeddings: Floats
    logits: Floats | None
    judged: dict[str, "Judged"]
    """What is scored: the run, and what is part of it and stands beside it."""
    best_epoch: int
    promises: list[dict[str, str]]
    reading: str
    """How to read them."""
    choice: str = ""
    caution: str = ""
    kept: Arrays | None = None
    """What a prediction needs beside the weights."""


def _outcome(fitted: Fitted, config: Config) -> _Outcome:
    if config.train.profile == "strict":
        return _strict_outcome(fitted, config)
    model = fitted.worker.model
    found = torch.from_numpy(fitted.results)
    logits = None if model.head is None else model.logits(found).numpy()
    judged = {MAIN: fitted.results if logits is None else logits}
    return _Outcome(fitted.results, logits, judged, fitted.worker.weights.best_epoch, [], "")


def _strict_outcome(fitted: Fitted, config: Config) -> _Outcome:
    from lumos.strict.promises import CHOICES, caution, promises, reading

    results, plan = fitted.results, fitted.worker.plan
    about = (config.train.epochs, promises(plan, fitted.ledger), reading(plan))
    choice = CHOICES[fitted.worker.choice]
    drowned = caution(plan, fitted.worker.first_width)
    if config.train.task == "link":
        names = {MAIN: choice, OWN: OWN, **({IDS: IDS} if plan.colours else {})}
        judged: dict[str, Judged] = {
            arm: partial(results.at_both_ends, name) for arm, name in names.items()
        }
        kept = results.arrays()
        return _Outcome(results.embeddings, None, judged, *about, choice, drowned, kept)
    judged = {MAIN: results.logits, OWN: results.own}
    kept = {"said": results.said}
    return _Outcome(results.logits, results.logits, judged, *about, choice, drowned, kept)


def _check(graph: Graph, config: Config) -> None:
    """Refuse what cannot be trained before anything is written or balanced."""
    features = features_of(graph)
    TreeNetwork(config.model, graph.feature_count)  # a backbone that exists
    if config.train.profile == "paper":  # strict never releases features, and needs no bounds
        within(features, config.encoder.low, config.encoder.high)
    if config.train.control and config.train.coins == "system":
        raise UsageError(
            "--control is an experiment of simulations; with --coins system, devices are real"
        )
    if config.train.profile != "strict":
        return
    from lumos.strict.schedule import Schedule

    mechanism = config.strict.mechanism
    if config.train.task == "link" and mechanism not in ("auto", "krr"):
        raise UsageError(
            f"--mechanism {mechanism} is for classify: answers about links carry single symbols "
            "(krr)"
        )
    if not config.encoder.noisy:
        raise UsageError("--profile strict needs a finite --epsilon; --profile paper allows inf")
    plan = Schedule(config, graph.devices, 0)  # enough epochs …
    for stage in plan.stages:
        plan.noise(stage)  # … and noise that the fixed point can carry
    if config.trees.balancer != "none":
        raise UsageError(
            "--profile strict needs no --balancer: nobody carries an edge there, and comparisons "
            "would tell of degrees; leave it out"
        )
    if config.model.layers != 2 or not config.train.virtual_nodes:
        raise UsageError(
            "--profile strict needs --layers 2 and virtual nodes: stars and deeper trees carry the "
            "number of neighbours in their normalisation, and so would show it"
        )


def _problem(
    graph: Graph, config: Config, public: PublicCoins, seed: int, shards: int
) -> tuple[Problem, EdgeSplit | None]:
    """What is to be learnt. `keep` is still empty."""
    nobody = np.full(graph.devices, Role.NOBODY, np.int64)
    no_pairs = np.empty((0, 2), np.int64)
    common: dict[str, Any] = {"keep": np.empty(0, np.bool_), "seed": seed, "shards": shards}
    if config.strict.book is not None:
        common["owner"] = fingerprint(graph)
    if config.train.task == "link":
        split = split_edges(graph, public)
        return (
            Problem(
                graph=split.training,
                roles=nobody,
                held_back=split.validation,
                classes=0,
                **common,
            ),
            split,
        )
    if graph.labels is None:
        raise InputError(
            f"{graph.name or 'the graph'} has no labels; classify needs them, --task link does not"
        )
    roles = split_vertices(graph.labels, public)
    return (
        Problem(graph=graph, roles=roles, held_back=no_pairs, classes=graph.class_count, **common),
        None,
    )


def _scores(
    graph: Graph, problem: Problem, split: EdgeSplit | None, found: Judged
) -> dict[str, float]:
    """The observer's scores: of pairs where edges are split, of logits otherwise."""
    if split is not None:
        score = found if callable(found) else partial(dot_products, found)
        return {
            "test_auc": auc(score(split.test), score(split.test_strangers)),
            "val_auc": auc(score(split.validation), score(split.validation_strangers)),
        }
    if callable(found):
        raise TypeError("pairs are scored where edges are split")
    labels = np.asarray(graph.labels)
    return {
        "test_accuracy": accuracy(found, labels, problem.roles, Role.TEST),
        "val_accuracy": accuracy(found, labels, problem.roles, Role.VALIDATION),
    }


def _sizes(problem: Problem, split: EdgeSplit | None) -> dict[str, int]:
    if split is not None:
        edges = (split.training.edges, len(split.validation), len(split.test))
        return dict(zip(("train", "validation", "test"), edges, strict=True))
    return {
        role.name.lower(): int((problem.roles == role).sum())
        for role in (Role.TRAIN, Role.VALIDATION, Role.TEST)
    }


def _save(folder: RunFolder, result: Trained) -> None:
    write_arrays(folder.path / "model.npz", result.arrays)
    ids = result.graph.ids
    found = {
        "ids": ids if isinstance(ids, np.ndarray) else np.array(ids, np.str_),
        "embeddings": result.embeddings,
        **result.kept,
    }
    if result.logits is not None:
        found["logits"] = result.logits
    write_arrays(folder.path / "embeddings.npz", found)
    write_json(folder.path / "result.json", result.summary())


def _note(arm: str, record: dict[str, Any]) -> str:
    score = record["score"]
    shown = "" if score is None else f" · validation {score:.4f}"
    loss = "" if record["loss"] is None else f" · loss {record['loss']:.4f}"
    return f"{arm} epoch {record['epoch']}{loss}{shown}"


def _number(value: float) -> float | str:
    return value if np.isfinite(value) else "inf"


def _plain(content: Any) -> Any:
    """The same with infinity as text, which JSON cannot carry as a number."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    return _number(content) if isinstance(content, float) else content

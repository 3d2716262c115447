"""The runs behind the figures: their settings, how each is computed, and committed results."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lumos import __version__
from lumos.errors import InputError
from lumos.evaluation.evaluate import run_system
from lumos.evaluation.pool import finite, plain_settings, result_key
from lumos.graph import Graph, load
from lumos.machine import peak_rss_mb
from lumos.runs.train import train
from lumos.storage import write_text
from lumos.training.profile import PAPER, STRICT
from lumos.trees.balance import balance
from lumos.trees.balancers import TreeSettings
from lumos.typing import Ints
from reproduce import settings as frozen
from reproduce.dense import dense_features
from reproduce.device_model import DeviceModel
from reproduce.settings import Dataset, Settings

BALANCERS = ("none", "greedy", "mcmc", "optimal")
LITERAL = "literal"
"""The paper's profile with its literal recovery of features."""
VARIANT_PROFILES = {LITERAL: PAPER}
"""The profile of each variant that is none itself."""
ONE_SCORE = {(STRICT, "link")}
"""Profiles and tasks that have no backbone, and no ε of a release: one score."""
ABLATIONS: dict[str, dict[str, Any]] = {
    "stars": {"virtual_nodes": False},
    "untrimmed": {"balancer": "none"},
}
"""By what is taken away (virtual nodes, trimming): the settings that do so."""
CDF_POINTS = 200
"""Points of a distribution that are stored."""
FIELDS = (
    "devices",
    "edges",
    "epochs",
    "best_epoch",
    "max_workload",
    "per_epoch",
    "seconds",
    "seconds_per_epoch",
    "peak_rss_mb",
    "cpu_seconds",
)
"""Fields of a run's summary that are stored, beside its scores."""


@dataclass(frozen=True)
class Run:
    """One run of one system on one graph with one seed."""

    kind: Literal["train", "baseline", "trees", "cost", "dense"]
    graph: str
    seed: int
    settings: tuple[tuple[str, Any], ...]
    """Sorted by name."""

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings).get(name)

    def key(self, dataset: Dataset, package: str = __version__) -> str:
        """Return the key of the result; without a package, that of a committed result."""
        data = dataset.structure if self.kind == "trees" else dataset.whole
        return result_key(self.kind, plain_settings(dict(self.settings)), self.seed, data, package)

    def describe(self) -> str:
        """Return a line for people."""
        hidden = ("device", "balancers", "compare", "patience", "floor", "iterations")
        words = [f"{name} {value}" for name, value in self.settings if name not in hidden]
        return f"{self.kind} {self.graph}: {', '.join(words)}, seed {self.seed}"


def _run(kind: Any, dataset: Dataset, seed: int = 0, **settings: Any) -> Run:
    return Run(kind, dataset.spec, seed, tuple(sorted(settings.items())))


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The runs of one graph."""

    dataset: Dataset
    settings: Settings

    def train(self, variant: str, task: str, backbone: str, epsilon: float, seed: int) -> Run:
        """Return a run of Lumos; `variant` is a profile, or one of `VARIANT_PROFILES`.

        Those of `ONE_SCORE` are the same run for any backbone and ε.
        """
        profile = VARIANT_PROFILES.get(variant, variant)
        if (profile, task) in ONE_SCORE:
            control = seed < frozen.CONTROL_SEEDS[profile]
            return _run("train", self.dataset, seed, profile=profile, task=task, control=control)
        control = self.settings.control(profile, task, epsilon, seed)
        return self._train(variant, task, backbone, epsilon, seed, control=control)

    def ablated(self, ablation: str, variant: str, task: str, backbone: str, seed: int) -> Run:
        """Return a run of the paper's profile without one of its modules, at ε = 2."""
        changed = ABLATIONS[ablation]
        return self._train(variant, task, backbone, 2.0, seed, control=False, **changed)

    def _train(
        self, variant: str, task: str, backbone: str, epsilon: float, seed: int, **changed: Any
    ) -> Run:
        profile = VARIANT_PROFILES.get(variant, variant)
        settings: dict[str, Any] = {
            "profile": profile,
            "task": task,
            "backbone": backbone,
            "label_epsilon" if profile == STRICT else "epsilon": epsilon,
        }
        if profile == PAPER:
            settings |= {"epochs": self.settings.epochs or frozen.EPOCHS}
            settings |= {"patience": frozen.PATIENCE, "compare": "ideal", "floor": False}
            settings |= {"balancer": "mcmc"} | (
                {"recovery": "literal"} if variant == LITERAL else {}
            )
        if profile == STRICT and task == "classify":  # where a backbone is part of it by choice
            settings["tree_network"] = True
        settings |= changed
        if settings.get("balancer") == "mcmc":
            settings["iterations"] = self.dataset.iterations
        return _run("train", self.dataset, seed, **settings)

    def baseline(
        self, system: str, task: str, backbone: str, seed: int, epsilon: float = 2.0
    ) -> Run:
        """Return a run of a system that Lumos is compared with."""
        settings: dict[str, Any] = {
            "system": system,
            "task": task,
            "epochs": frozen.EPOCHS,
            "patience": frozen.PATIENCE,
        }
        if system != "own":
            settings["backbone"] = backbone
        if system in ("lpgnn", "naive"):
            settings["epsilon"] = epsilon
        if system == "lpgnn":
            settings["label_epsilon"] = frozen.LABEL_EPSILON
        settings |= frozen.BASELINE_SETTINGS.get((system, backbone), {})
        if self.settings.epochs is not None:
            settings["epochs"] = self.settings.epochs
        return _run("baseline", self.dataset, seed, **settings)

    def dense(self, dimension: int, variant: str, epsilon: float) -> Run:
        """Return a run of the paper's profile on dense features; `LITERAL` is `--literal`."""
        settings: dict[str, Any] = {"dimension": dimension, "epsilon": epsilon, "control": True}
        settings |= {"epochs": self.settings.epochs or frozen.EPOCHS, "compare": "ideal"}
        settings |= {"iterations": self.dataset.iterations, "literal": variant == LITERAL}
        if variant != LITERAL:
            settings["patience"] = frozen.PATIENCE
        return _run("dense", self.dataset, **settings)

    def trees(self, balancer: str) -> Run:
        """Return the trees of one balancer."""
        settings: dict[str, Any] = {"balancer": balancer, "compare": "ideal"}
        if balancer == "mcmc":
            settings["iterations"] = self.dataset.iterations
        return _run("trees", self.dataset, **settings)

    def cost(self, task: str) -> Run:
        """Return messages and simulated seconds of an epoch of the paper's profile."""
        return _run(
            "cost",
            self.dataset,
            task=task,
            balancers=BALANCERS,
            iterations=self.dataset.iterations,
            epochs=frozen.COST_EPOCHS,
            device=tuple(sorted(asdict(DeviceModel()).items())),
        )


def compute(run: Run, data_dir: Path | None) -> dict[str, Any]:
    """Return the result of a run, as plain numbers; called in a process of its own."""
    settings = dict(run.settings)
    if run.kind == "baseline" and "epsilon" in settings:  # committed keys have this name
        settings["feature_epsilon"] = settings.pop("epsilon")
    if run.kind == "trees":
        graph = load(run.graph, data_dir=data_dir, features=False)
        return {**measure_trees(graph, seed=run.seed, **settings), "peak_rss_mb": peak_rss_mb()}
    if run.kind == "cost":
        from reproduce.epoch_cost import measure_epoch

        device = DeviceModel(**dict(settings.pop("device")))
        graph = load(run.graph, data_dir=data_dir)
        measured = measure_epoch(graph, seed=run.seed, device=device, **settings)
        return {**measured, "peak_rss_mb": peak_rss_mb()}
    if run.kind == "dense":
        graph = dense_features(load(run.graph, data_dir=data_dir), settings.pop("dimension"))
        floor = not settings["literal"]  # one local model for both
        summary = train(graph, profile=PAPER, seed=run.seed, floor=floor, **settings).summary()
    else:
        summary = run_system(
            kind=run.kind,
            settings=settings,
            seed=run.seed,
            graph=run.graph,
            split=None,
            data_dir=data_dir,
        )
    found = {name: summary[name] for name in FIELDS if name in summary}
    found |= {name: v for name, v in summary.items() if name.endswith(("_accuracy", "_auc"))}
    if run.kind == "baseline":
        return {**found, "notes": summary["notes"]}
    return {**found, "caution": "; ".join(summary["warnings"])}


def measure_trees(graph: Graph, *, seed: int, **settings: Any) -> dict[str, Any]:
    """Build trees by these settings of `TreeSettings`; return figures for JSON."""
    balanced = balance(graph, TreeSettings(**settings), seed=seed)
    values, counts = np.unique(balanced.workload, return_counts=True)
    bound = balanced.lower_bound()
    return {
        "max_workload": balanced.max_workload,
        "mean_workload": round(float(balanced.workload.mean()), 4),
        "lower_bound": bound,
        "optimal": balanced.max_workload == bound,
        "comparisons": balanced.ledger.comparisons,
        "rounds": balanced.ledger.rounds,
        "cdf": cdf_points(values, counts),
        "seconds": round(balanced.seconds, 3),
    }


def cdf_points(values: Ints, counts: Ints) -> list[list[int]]:
    """Return [value, devices with at most so much]: the smallest values, then evenly spaced."""
    up_to, half = np.cumsum(counts), CDF_POINTS // 2
    tail = np.linspace(half, len(values) - 1, half).astype(int) if len(values) > CDF_POINTS else ()
    head = half if len(tail) else len(values)
    chosen = np.unique(np.concatenate([np.arange(head), np.asarray(tail, int)]))
    return [[int(values[place]), int(up_to[place])] for place in chosen.tolist()]


def read_results(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Read committed results: by key without package, the record of the latest version.

    Raises:
        InputError: a file is something else.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        try:
            records = json.loads(path.read_text("utf-8"))
            for record in records:
                known = found.get(record["run"])
                if known is None or _version(known) <= _version(record):
                    found[record["run"]] = {**record, "result": dict(record["result"])}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: is no file that --keep wrote ({error})") from None
    return found


def _version(record: dict[str, Any]) -> float:
    """Return the number that committed results had until 0.1; later ones follow them."""
    return float(record.get("version", math.inf))


def keep(path: Path, results: dict[str, tuple[Run, dict[str, Any]]]) -> None:
    """Add results to a file of committed ones, one line each.

    Args:
        path: the file.
        results: by key without package.
    """
    known = read_results([path]) if path.exists() else {}
    for key, (run, result) in results.items():
        known[key] = {
            "run": key,
            "package": __version__,
            "kind": run.kind,
            "graph": run.graph,
            "seed": run.seed,
            "settings": plain_settings(dict(run.settings)),
            "result": finite(result),
        }
    lines = sorted(
        json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False)
        for record in known.values()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "[\n" + ",\n".join(lines) + "\n]\n")

"""`lumos.evaluate`: Lumos, the local model, the control and other systems on one graph."""

import pickle
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args

from lumos.display import ProgressOption, displayed
from lumos.errors import LumosError, UsageError, one_of
from lumos.evaluation.pool import (
    Job,
    JobEnd,
    ResultCache,
    finite,
    plain_settings,
    processes,
    result_key,
    run_jobs,
)
from lumos.evaluation.result import (
    EvaluatedSystem,
    Evaluation,
    MeanScore,
    SystemRuns,
    chosen_systems,
    mean_of,
    paired_difference,
)
from lumos.graph import Graph
from lumos.graph.facts import fingerprint
from lumos.graph.io import take_reading
from lumos.graph.sources import as_graph
from lumos.storage import private_folder, read_json
from lumos.training.config import Config, Task
from lumos.training.given_split import GivenSplit, reading_of, settled
from lumos.training.metrics import CLASS_SCORES, LINK_SCORES, PARTS
from lumos.training.problem import features_of, need_labels
from lumos.training.trainer import CONTROL, MAIN, OWN
from lumos.typing import Progress

Found = TypeVar("Found")


def evaluate(
    graph: Any,
    *,
    systems: Sequence[str] | None = None,
    seeds: int = 3,
    seed: int = 0,
    task: str = "classify",
    split: GivenSplit = None,
    jobs: int | None = None,
    out: Path | str | None = None,
    data_dir: Path | None = None,
    progress: ProgressOption = None,
    command: str = "",
    **settings: Any,
) -> Evaluation:
    """Compare Lumos with other systems on one graph, over several seeds.

    Every system is run with each of the seeds `seed … seed + seeds - 1`, on the same split, so that
    differences are paired. Runs are finished runs with each system's own defaults. They are run in
    processes of their own, as many as there are cores. A system that fails keeps a row that
    says why.

    Args:
        graph: a `Graph`, a PyG `Data`, a NetworkX graph, a name or path as `load` takes it, or a
            function that returns a `Graph`, called after settings and systems are checked.
        systems: strict, paper, own, control, own-unprotected, centralized, lpgnn, and those that
            are left out by default: naive, or whatever is registered.
        seeds: number of seeds.
        seed: the first of them.
        task: classify or link.
        split: who trains, validates and tests, as `train` takes it; the same for all seeds.
        jobs: processes at a time; as many as cores where None.
        out: folder for results and the page; an interrupted evaluation goes on there.
        data_dir: where named graphs lie.
        progress: True shows it; or a callback `(runs done, runs, note)`, called after every run.
        command: what repeats the evaluation, for the page; this call by default.
        settings: of the systems, by name, as `epsilon=1.0`: each is given to those that have it;
            and how the graph is read, as `train` takes it.

    Raises:
        UsageError: there is no such system or setting, or none of the systems can do the task.
        InputError: the graph has no features, or no labels to classify.
    """
    start = time.perf_counter()
    one_of("task", task, get_args(Task))
    for name, number in (("seeds", seeds), ("jobs", jobs)):
        if number is not None and number < 1:
            raise UsageError(f"`{name}` must be 1 or more, got {number}")
    asked_for, reading = dict(settings), take_reading(settings)
    compared, left_out = chosen_systems(systems, task, settings)
    whole = (
        graph()
        if callable(graph)
        else as_graph(graph, data_dir, implied=reading_of(split), **reading)
    )
    features_of(whole)  # or say that there are none
    if task == "classify":
        need_labels(whole)
    chosen = _Chosen(
        graph=whole,
        systems=compared,
        seeds=range(seed, seed + seeds),
        task=task,
        split=settled(split),
        settings=settings,
    )
    with displayed(progress, "evaluating") as shown, results_folder(out, "evaluate") as folder:
        cache = ResultCache(folder)
        with cache.locked():
            results, reasons, ran, at_once = _run(chosen, cache, jobs, shown)
        asked = {"systems": systems, "seeds": seeds, "seed": seed, "task": task, "split": split}
        evaluation = Evaluation(
            graph=whole.name or "a graph in memory",
            devices=whole.devices,
            edges=whole.edges,
            features=whole.feature_count,
            classes=whole.classes if task == "classify" else (),
            notes=whole.notes,
            task=task,
            seeds=tuple(chosen.seeds),
            settings=dict(settings),
            command=command or _python(graph, asked, asked_for),
            runs=[
                SystemRuns(
                    system=one,
                    results=chosen.by_seed(one, results),
                    reasons=chosen.by_seed(one, reasons),
                )
                for one in compared
            ],
            left_out=left_out,
            seconds=time.perf_counter() - start,
            cpu_seconds=sum(one.get("cpu_seconds", 0.0) for one in results.values()),
            ran=ran,
            known=len(results) + len(reasons) - ran,
            processes=at_once,
        )
        if out is not None:
            evaluation.write(folder)
    return evaluation


def _python(graph: Any, asked: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The call that repeats an evaluation; objects in memory by their names."""
    defaults = {"systems": None, "seed": 0, "task": "classify"}
    named = repr(str(graph)) if isinstance(graph, str | PathLike) else "graph"
    given = {name: value for name, value in asked.items() if name != "split"} | dict(settings)
    words = [
        f"{name}={value!r}"
        for name, value in given.items()
        if name not in defaults or defaults[name] != value
    ]
    words += ["split=split"] * (asked["split"] is not None)
    return f"lumos.evaluate({', '.join([named, *words])})"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Chosen:
    """Systems, seeds and settings of an evaluation."""

    graph: Graph
    systems: list[EvaluatedSystem]
    seeds: range
    task: str
    split: Any = field(repr=False)
    settings: Mapping[str, Any]

    def run_settings(self, system: EvaluatedSystem) -> dict[str, Any]:
        """Return the settings of a system's runs."""
        control = any(one.variant == CONTROL for one in self.systems)
        return system.run_settings(self.settings, control=control)

    def key(self, system: EvaluatedSystem, seed: int) -> str:
        """Return the key of a system's run with a seed; systems may share a run."""
        settings = plain_settings(self.run_settings(system))
        return result_key(system.kind, settings, seed, self.data)

    def by_seed(self, system: EvaluatedSystem, found: Mapping[str, Found]) -> dict[int, Found]:
        """Return what was found of the runs of a system."""
        keys = {seed: self.key(system, seed) for seed in self.seeds}
        return {seed: found[key] for seed, key in keys.items() if key in found}

    @cached_property
    def data(self) -> str:
        """16 hexadecimal digits that tell this graph and split from others."""
        digest = blake2b(fingerprint(self.graph).encode(), digest_size=8)
        roles = getattr(self.graph, "roles", None)
        digest.update(pickle.dumps((self.graph.classes, roles, self.split), protocol=5))
        return digest.hexdigest()


def _run(
    chosen: _Chosen, cache: ResultCache, jobs: int | None, progress: Progress | None
) -> tuple[dict[str, dict[str, Any]], dict[str, str], int, int]:
    """Run what the folder does not have.

    Returns:
        By key of a run, the results and why there is none; runs and processes of now.
    """
    results: dict[str, dict[str, Any]] = {}
    reasons: dict[str, str] = {}
    planned: dict[str, Job] = {}
    names: dict[str, str] = {}
    for one in chosen.systems:
        for seed in chosen.seeds:
            key = chosen.key(one, seed)
            names.setdefault(key, f"{one.name}, seed {seed}")
            known = cache.get(key)
            if known is not None:
                results[key] = known
            elif key not in planned:
                arguments = {
                    "kind": one.kind,
                    "settings": chosen.run_settings(one),
                    "seed": seed,
                    "graph": chosen.graph,
                    "split": chosen.split,
                }
                planned[key] = Job(name=key, call=run_system, arguments=arguments)
    at_once = processes(len(planned), jobs)
    total = len(results) + len(planned)

    def on_end(end: JobEnd, remaining: int) -> None:
        key = end.job.name
        if end.status == 0:
            results[key] = finite(end.result)
            about = {name: end.job.arguments[name] for name in ("kind", "seed")}
            settings = plain_settings(end.job.arguments["settings"])
            cache.put(key, results[key], settings=settings, **about)
        else:
            reasons[key] = end.reason
        if progress is not None:
            progress(total - remaining, total, f"{names[key]}: {end.how}")

    if progress is not None:
        plan = "all of them known"
        if planned:
            before = f"{len(results)} of them known, the others " * bool(results)
            plan = f"{before}in {at_once} process{'es' * (at_once > 1)}"
        progress(len(results), total, f"{total} runs, {plan}")
    run_jobs([*planned.values()], at_once=jobs, logs=cache.folder / "logs", on_end=on_end)
    return results, reasons, len(planned), at_once


def run_system(
    *, kind: str, settings: dict[str, Any], seed: int, graph: Any, split: Any, **loading: Any
) -> dict[str, Any]:
    """Return everything that a run of Lumos or of a baseline says of itself; called in a process.

    Args:
        kind: train or baseline.
        settings: of the run.
        seed: run seed.
        graph: the graph, or its name.
        split: as `lumos.train` takes it.
        loading: further arguments of `lumos.train` and `lumos.baseline`.
    """
    from lumos.baselines import baseline
    from lumos.runs.train import train

    if split is not None:
        loading["split"] = split
    if kind == "baseline":
        result = baseline(graph, seed=seed, **loading, **settings).summary()
    else:
        run = train(graph, config=Config.of(**settings), seed=seed, **loading)
        result = run.summary()
        result["arm_seconds"] = {
            variant: round(sum(event.seconds for event in events), 3)
            for variant, events in run.histories.items()
        }
    return {**result, "cpu_seconds": round(time.process_time(), 3)}


@contextmanager
def results_folder(out: Path | str | None, name: str) -> Iterator[Path]:
    """Open the folder of several runs, or one that is removed again where `out` is None."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix=f"lumos-{name}-") as folder:
            yield Path(folder)
        return
    try:
        private_folder(Path(out))
    except OSError as error:
        raise UsageError(f"{out}: cannot be a folder ({error.strerror})") from None
    yield Path(out)


# Several runs with the same settings and consecutive seeds: `lumos train --seeds`.
#
# Variants are paired: the run, the local model and the control of a seed share its split and
# randomness, so the means of their differences are of the same seeds.


class SeedsFailed(LumosError):
    """Some runs failed; those that finished are in their folders."""


def train_into(graph: Graph, config: Config, *, out: Path, resume: bool, **given: Any) -> None:
    """Train, or go on, and write the run's folder; called in a process of its own."""
    from lumos.runs.train import train

    train(graph, config, out=out, resume=resume and (out / "run.json").exists(), **given)


@dataclass(frozen=True, kw_only=True)
class SeededRuns:
    """Finished runs by seed, as `lumos train --json` prints each."""

    results: dict[int, dict[str, Any]]

    @property
    def first(self) -> dict[str, Any]:
        """The result of the first seed; settings and graph are the same in all."""
        return self.results[min(self.results)]

    @property
    def metrics(self) -> list[str]:
        """Names of the scores, the main one first."""
        names = LINK_SCORES if self.first["task"] == "link" else CLASS_SCORES
        return [f"{part}_{name}" for part in PARTS for name in names]

    @property
    def variants(self) -> list[str]:
        """The run, and what was trained beside it."""
        return [
            variant for variant in (MAIN, OWN, CONTROL) if self.scores(variant, self.metrics[0])
        ]

    def scores(self, variant: str, metric: str) -> dict[int, float]:
        """Return one score of a variant by seed."""
        name = metric if variant == MAIN else f"{variant}_{metric}"
        return {seed: result[name] for seed, result in self.results.items() if name in result}

    def mean(self, variant: str, metric: str) -> MeanScore:
        """Return the mean over seeds."""
        return mean_of(self.scores(variant, metric))

    def difference(self, variant: str, metric: str) -> MeanScore:
        """Return the run minus another variant, paired by seed."""
        return paired_difference(self.scores(MAIN, metric), self.scores(variant, metric))

    def summary(self) -> dict[str, Any]:
        """Return everything that `lumos train --seeds N --json` prints."""
        aggregate: dict[str, Any] = {
            variant: {metric: self.mean(variant, metric).as_json() for metric in self.metrics}
            for variant in self.variants
        }
        for variant in self.variants[1:]:
            aggregate[f"{MAIN}_minus_{variant}"] = {
                metric: self.difference(variant, metric).as_json() for metric in self.metrics
            }
        shared = ("graph", "devices", "edges", "task", "profile", "backbone", "epsilon", "settings")
        return {
            **{name: self.first[name] for name in shared},
            "seeds": sorted(self.results),
            "aggregate": aggregate,
            "runs": [self.results[seed] for seed in sorted(self.results)],
        }


def train_seeds(
    graph: Graph,
    config: Config,
    *,
    seeds: range,
    shards: int = 1,
    source: Mapping[str, Any],
    split: Any = None,
    out: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> SeededRuns:
    """Train with each of some seeds, in processes of their own.

    Args:
        out: run folders are OUT/seed-0, OUT/seed-1, …; none are kept where None.
        resume: go on with interrupted runs in `out`; finished ones are not run again.
        jobs: processes at a time; as many as cores where None.
        progress: callback `(runs done, runs, note)`, called after every run.

    Raises:
        UsageError: no seed, a run is there already, or an account is shared by all of them.
        SeedsFailed: a run failed; the others are finished.
    """
    if not seeds:
        raise UsageError("`seeds` must be 1 or more")
    if config.flat().get("account") is not None:
        raise UsageError(
            "`account` belongs to one life of the devices, and `seeds` are lives of their own; "
            "leave one of them out"
        )
    with results_folder(out, "seeds") as folder:
        folders = {seed: folder / f"seed-{seed}" for seed in seeds}
        missing = {
            seed: path
            for seed, path in folders.items()
            if not (resume and (path / "result.json").exists())
        }
        for path in missing.values():
            if not resume and (path / "run.json").exists():
                raise UsageError(
                    f"{path}: there is a run already; go on with `resume`, or choose another `out`"
                )
        shared = {"graph": graph, "config": config, "shards": shards, "split": split}
        shared |= {"source": source, "resume": resume}
        planned = [
            Job(name=path.name, call=train_into, arguments={**shared, "seed": seed, "out": path})
            for seed, path in missing.items()
        ]
        _seeds_run(planned, len(folders), folder / "logs", jobs, progress)
        return SeededRuns(
            results={seed: read_json(path / "result.json") for seed, path in folders.items()}
        )


def _seeds_run(
    planned: list[Job], total: int, logs: Path, jobs: int | None, progress: Progress | None
) -> None:
    def on_end(end: JobEnd, remaining: int) -> None:
        if progress is not None:
            progress(total - remaining, total, f"seed {end.job.arguments['seed']}: {end.how}")

    ends = run_jobs(planned, at_once=jobs, logs=logs, on_end=on_end)
    failed = [end for end in ends if end.status]
    if failed:
        named = ", ".join(str(end.job.arguments["seed"]) for end in failed)
        error = UsageError if all(end.status == 2 for end in failed) else SeedsFailed
        raise error(f"seed {named}: {failed[0].reason}")

"""`lumos.evaluate`: Lumos, own features, the control and other systems on one graph, one table."""

import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args

from lumos.errors import InputError, UsageError, one_of
from lumos.experiments.cache import Key, ResultCache, key_of
from lumos.experiments.cell import Cell
from lumos.experiments.comparison import Evaluation, SystemRuns
from lumos.experiments.evaluated_systems import EvaluatedSystem, chosen_systems
from lumos.experiments.expected_need import expected_need
from lumos.experiments.scheduler import JobEnd, PlannedJob, Resources, expected_seconds, run_all
from lumos.experiments.sentences import duration
from lumos.experiments.worker import CellJob
from lumos.graph import Graph
from lumos.graph.fingerprint import fingerprint
from lumos.graph.sources import as_graph
from lumos.progress import ProgressOption, displayed
from lumos.storage import private_folder
from lumos.training.config import Task
from lumos.training.given_split import GivenSplit, reading_of, settled
from lumos.training.problem import features_of
from lumos.training.trainer import CONTROL
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
    **settings: Any,
) -> Evaluation:
    """Compare Lumos with other systems on one graph, over several seeds.

    Every system is run with each of the seeds `seed … seed + seeds - 1`, on the same split, so that
    differences are paired. Runs are finished runs with each system's own defaults. They are run in
    processes of their own, as many as cores and memory allow. A system that fails keeps a row that
    says why.

    Args:
        graph: a `Graph`, a PyG `Data`, a NetworkX graph, or a name or path as `load` takes it.
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
        settings: of the systems, by name, as `epsilon=1.0`: each is given to those that have it.

    Raises:
        UsageError: there is no such system or setting, or none of the systems can do the task.
        InputError: the graph has no features, or no labels to classify.
    """
    asked: dict[str, Any] = {
        "systems": systems,
        "seeds": seeds,
        "seed": seed,
        "task": task,
        "split": split,
    }
    with displayed(progress, "evaluating") as shown:
        return evaluate_graph(
            lambda: as_graph(graph, data_dir, **reading_of(split)),
            command=_python(graph, asked, settings),
            jobs=jobs,
            out=out,
            progress=shown,
            settings=settings,
            **asked,
        )


def evaluate_graph(
    graph: Callable[[], Graph],
    *,
    command: str,
    systems: Sequence[str] | None,
    seeds: int,
    seed: int,
    task: str,
    split: Any,
    jobs: int | None,
    out: Path | str | None,
    progress: Progress | None,
    settings: Mapping[str, Any],
) -> Evaluation:
    """`evaluate`, for a caller who loads the graph: after settings and systems are checked.

    Args:
        graph: loads it.
        command: what repeats the evaluation, for the page.
    """
    start = time.perf_counter()
    one_of("task", task, get_args(Task))
    for name, number in (("seeds", seeds), ("jobs", jobs)):
        if number is not None and number < 1:
            raise UsageError(f"`{name}` must be 1 or more, got {number}")
    compared, left_out = chosen_systems(systems, task, settings)
    whole = graph()
    features_of(whole)  # or say that there are none
    if task == "classify" and whole.labels is None:
        raise InputError(
            f"{whole.name or 'the graph'} has no labels; classify needs them, `task='link'` does "
            "not"
        )
    chosen = _Chosen(
        graph=whole,
        systems=compared,
        seeds=range(seed, seed + seeds),
        task=task,
        split=settled(split),
        settings=settings,
    )
    with _folder(out) as folder:
        cache = ResultCache(folder)
        with cache.locked():
            outcome = _run(chosen, cache, jobs, progress)
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
            command=command,
            runs=[
                SystemRuns(
                    system=one,
                    results=chosen.by_seed(one, outcome.results),
                    reasons=chosen.by_seed(one, outcome.reasons),
                )
                for one in compared
            ],
            left_out=left_out,
            seconds=time.perf_counter() - start,
            cpu_seconds=sum(one.get("cpu_seconds", 0.0) for one in outcome.results.values()),
            ran=outcome.ran,
            known=len(outcome.results) + len(outcome.reasons) - outcome.ran,
            processes=outcome.processes,
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
    if asked["split"] is not None:
        words.append("split=split")
    return f"lumos.evaluate({', '.join([named, *words])})"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Chosen:
    """What is to be evaluated."""

    graph: Graph
    systems: list[EvaluatedSystem]
    seeds: range
    task: str
    split: Any = field(repr=False)
    settings: Mapping[str, Any]

    def cell(self, system: EvaluatedSystem, seed: int) -> Cell:
        """The run of a system with a seed."""
        control = any(one.arm == CONTROL for one in self.systems)
        return system.cell(self.graph.name, seed, self.settings, control=control)

    def by_seed(self, system: EvaluatedSystem, found: Mapping[Cell, Found]) -> dict[int, Found]:
        """What was found of the runs of a system."""
        cells = {seed: self.cell(system, seed) for seed in self.seeds}
        return {seed: found[cell] for seed, cell in cells.items() if cell in found}

    def data(self) -> str:
        """16 hexadecimal digits that tell this graph and split from others."""
        digest = blake2b(fingerprint(self.graph).encode(), digest_size=8)
        roles = getattr(self.graph, "roles", None)
        digest.update(pickle.dumps((self.graph.classes, roles, self.split), protocol=5))
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """By cell, the results and why there is none."""

    results: dict[Cell, dict[str, Any]]
    reasons: dict[Cell, str]
    ran: int
    processes: int


def _run(
    chosen: _Chosen, cache: ResultCache, jobs: int | None, progress: Progress | None
) -> _Outcome:
    """Run what the folder does not have."""
    results: dict[Cell, dict[str, Any]] = {}
    reasons: dict[Cell, str] = {}
    planned: dict[Cell, PlannedJob[CellJob]] = {}
    names: dict[Cell, str] = {}
    data = chosen.data()
    for one in chosen.systems:
        for seed in chosen.seeds:
            cell = chosen.cell(one, seed)
            key = key_of(cell, data)
            names.setdefault(cell, one.name)
            known = cache.get(key)
            if known is not None:
                results[cell] = known.result
            elif cell not in planned:
                planned[cell] = _planned(chosen, one, cell, key, cache)
    resources = Resources.available(len(planned), jobs)
    total = len(results) + len(planned)

    def on_end(end: JobEnd[CellJob], remaining: int) -> None:
        cell, result = end.job.cell, None
        if end.status == 0 and (result := cache.get(end.job.key)) is not None:
            results[cell] = result.result
        else:
            reasons[cell] = end.reason
        if progress is not None:
            how = f"{end.seconds:.0f} s" if result is not None else f"failed: {end.reason}"
            progress(total - remaining, total, f"{names[cell]}, seed {cell.seed}: {how}")

    if progress is not None:
        plan = "all of them known"
        if planned:
            expected = expected_seconds([*planned.values()], resources)
            before = f"{len(results)} of them known, the others " * bool(results)
            plan = f"{before}in {resources.jobs} processes, planned {duration(expected)}"
        progress(len(results), total, f"{total} runs, {plan}")
    run_all([*planned.values()], resources, cache.out / "logs", on_end)
    return _Outcome(results=results, reasons=reasons, ran=len(planned), processes=resources.jobs)


def _planned(
    chosen: _Chosen, system: EvaluatedSystem, cell: Cell, key: Key, cache: ResultCache
) -> PlannedJob[CellJob]:
    need = expected_need(system.settings(chosen.settings), chosen.graph)
    job = CellJob(
        cell=cell,
        key=key,
        data_dir=None,
        path=cache.path(key),
        partial=cache.partial(key),
        graph=chosen.graph,
        split=chosen.split,
        whole=True,
    )
    return PlannedJob(job=job, seconds=need.seconds, megabytes=need.megabytes)


@contextmanager
def _folder(out: Path | str | None) -> Iterator[Path]:
    """The folder of the evaluation, or one that is removed again."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="lumos-evaluate-") as folder:
            yield Path(folder)
        return
    try:
        private_folder(Path(out))
    except OSError as error:
        raise UsageError(f"{out}: cannot be a folder ({error.strerror})") from None
    yield Path(out)

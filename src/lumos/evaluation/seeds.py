"""Several runs with the same settings and consecutive seeds: `lumos train --seeds`.

Arms are paired: the run, own features and the control of a seed share its split and coins, so the
means of their differences are of the same seeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumos.errors import LumosError, UsageError
from lumos.evaluation.evaluate import results_folder
from lumos.evaluation.means import MeanScore, mean_of, paired_difference
from lumos.evaluation.process_pool import Job, JobEnd, run_jobs
from lumos.graph import Graph
from lumos.storage import read_json
from lumos.training.config import Config
from lumos.training.metrics import CLASS_SCORES, LINK_SCORES, PARTS
from lumos.training.trainer import CONTROL, MAIN, OWN
from lumos.typing import Progress


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
    def arms(self) -> list[str]:
        """The run, and what was trained beside it."""
        return [arm for arm in (MAIN, OWN, CONTROL) if self.scores(arm, self.metrics[0])]

    def scores(self, arm: str, metric: str) -> dict[int, float]:
        """By seed, one score of an arm."""
        name = metric if arm == MAIN else f"{arm}_{metric}"
        return {seed: result[name] for seed, result in self.results.items() if name in result}

    def mean(self, arm: str, metric: str) -> MeanScore:
        """Over seeds."""
        return mean_of(self.scores(arm, metric))

    def difference(self, arm: str, metric: str) -> MeanScore:
        """The run minus another arm, paired by seed."""
        return paired_difference(self.scores(MAIN, metric), self.scores(arm, metric))

    def summary(self) -> dict[str, Any]:
        """What `lumos train --seeds N --json` prints."""
        aggregate: dict[str, Any] = {
            arm: {metric: self.mean(arm, metric).as_json() for metric in self.metrics}
            for arm in self.arms
        }
        for arm in self.arms[1:]:
            aggregate[f"{MAIN}_minus_{arm}"] = {
                metric: self.difference(arm, metric).as_json() for metric in self.metrics
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
        UsageError: no seed, a run is there already, or a book is shared by all of them.
        SeedsFailed: a run failed; the others are finished.
    """
    if not seeds:
        raise UsageError("`seeds` must be 1 or more")
    if config.flat().get("book") is not None:
        raise UsageError(
            "`book` belongs to one life of the devices, and `seeds` are lives of their own; leave "
            "one of them out"
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
        shared: dict[str, Any] = {
            "graph": graph,
            "config": config,
            "shards": shards,
            "source": source,
            "resume": resume,
            **({} if split is None else {"split": split}),
        }
        planned = [
            Job(name=path.name, call=train_into, arguments={**shared, "seed": seed, "out": path})
            for seed, path in missing.items()
        ]
        _run(planned, len(folders), folder / "logs", jobs, progress)
        return SeededRuns(
            results={seed: read_json(path / "result.json") for seed, path in folders.items()}
        )


def _run(
    planned: list[Job], total: int, logs: Path, jobs: int | None, progress: Progress | None
) -> None:
    def on_end(end: JobEnd, remaining: int) -> None:
        if progress is not None:
            how = f"failed: {end.reason}" if end.status else f"{end.seconds:.0f} s"
            progress(total - remaining, total, f"seed {end.job.arguments['seed']}: {how}")

    ends = run_jobs(planned, at_once=jobs, logs=logs, on_end=on_end)
    failed = [end for end in ends if end.status]
    if failed:
        named = ", ".join(str(end.job.arguments["seed"]) for end in failed)
        error = UsageError if all(end.status == 2 for end in failed) else SeedsFailed
        raise error(f"seed {named}: {failed[0].reason}")

"""Means over seeds: of a score, and of the difference of two scores on the same seeds."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lumos.baselines.systems import BASELINES, BaselineSettings
from lumos.display import frame_of_rows
from lumos.errors import UsageError
from lumos.storage import write_json
from lumos.training.config import Config
from lumos.training.guarantees import (
    DEGREE,
    DEVICE_ABSENT,
    EDGE_ADDED_OR_REMOVED,
    EDGE_REPLACED,
    FEATURES_REPLACED,
    LABEL_REPLACED,
    NO_GUARANTEE,
    RECORD_REPLACED,
    cells_of,
    guarantees_something,
)
from lumos.training.metrics import CLASS_SCORES, LINK_SCORES
from lumos.training.profile import PAPER, PROFILES, STRICT
from lumos.training.trainer import CONTROL, MAIN, OWN
from lumos.typing import Ints

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class MeanScore:
    """Mean and spread of one number over seeds."""

    mean: float | None
    """None where no seed has it."""
    sd: float | None
    """Standard deviation over seeds, with n - 1; from two seeds on."""
    seeds: int

    @property
    def se(self) -> float | None:
        """Standard error of the mean: sd / √n."""
        return None if self.sd is None else self.sd / math.sqrt(self.seeds)

    def as_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {"mean": self.mean, "sd": self.sd, "se": self.se, "seeds": self.seeds}


def mean_of(by_seed: Mapping[int, float]) -> MeanScore:
    """Return the mean over the seeds that have the number."""
    values = list(by_seed.values())
    return MeanScore(
        mean=statistics.fmean(values) if values else None,
        sd=statistics.stdev(values) if len(values) > 1 else None,
        seeds=len(values),
    )


def paired_difference(one: Mapping[int, float], other: Mapping[int, float]) -> MeanScore:
    """Return the mean of one - other over the seeds that both have.

    Both are of the same split and randomness of each seed, so their difference varies less than
    either.
    """
    return mean_of({seed: one[seed] - other[seed] for seed in one if seed in other})


# The systems that `lumos.evaluate` compares: which run each is, and what tables call it.

OWN_UNPROTECTED = "own-unprotected"
"""The baseline `own`: the same features as `own`, and weights trained without noise."""
COMPARED = (
    STRICT,
    OWN,
    CONTROL,
    PAPER,
    "lpgnn-blink",
    "lpgnn",
    "lpgnn-own",
    "blink",
    "gap",
    OWN_UNPROTECTED,
    "centralized",
)
"""Systems that are compared by default."""
SYSTEM_NAMES = {
    PAPER: "Lumos paper",
    STRICT: "Lumos strict",
    "lpgnn": "LPGNN",
    "lpgnn-blink": "LPGNN on Blink's edges",
    "blink": "Blink",
    "gap": "GAP, edge privacy",
    "naive": "naive FedGNN",
}
_NAMES = {
    **SYSTEM_NAMES,
    OWN: f"local model in {STRICT}",
    f"{OWN} link": f"own degree in {STRICT}",  # all that a device knows of a non-neighbour's links
    CONTROL: f"control of {STRICT}",
    "lpgnn-own": "local model in LPGNN",
    OWN_UNPROTECTED: "local model, unprotected",
}
_BASELINES = {OWN_UNPROTECTED: OWN}
_CHOSEN_HERE = (
    "profile",
    "system",
    "control",
    "floor",
    "account",
    "randomness",
    "checkpoint_every",
)
"""Settings that `evaluate` chooses itself."""


@dataclass(frozen=True)
class EvaluatedSystem:
    """One line of the table."""

    key: str
    """As `systems` has it."""
    task: str = "classify"

    @property
    def name(self) -> str:
        """Name in tables."""
        return _NAMES.get(f"{self.key} {self.task}", _NAMES.get(self.key, self.key))

    @property
    def variant(self) -> str:
        """The variant of its run that is scored."""
        return self.key if self.key in (OWN, CONTROL) else MAIN

    @property
    def kind(self) -> Literal["train", "baseline"]:
        """`train` for a run of Lumos, otherwise `baseline`."""
        return "train" if self.profile else "baseline"

    @property
    def profile(self) -> str:
        """The profile of its run; empty for a baseline. Local model and control are of strict."""
        if self.variant != MAIN:
            return STRICT
        return self.key if self.key in PROFILES else ""

    @property
    def baseline(self) -> str:
        """Its name in `BASELINES`, where it is one."""
        return _BASELINES.get(self.key, self.key)

    @property
    def local(self) -> str:
        """Key of the local model under the same protection; empty where it has no line."""
        if self.variant != MAIN:
            return OWN if self.variant == CONTROL else ""
        if self.profile:
            return OWN if self.profile == STRICT else OWN_UNPROTECTED
        local = BASELINES[self.baseline].local
        return next((key for key, name in _BASELINES.items() if name == local), local)

    def without(self) -> str:
        """Why the system cannot do the task; empty where it can."""
        if self.kind == "train" or self.task != "link":
            return ""
        return BASELINES[self.baseline].without_links

    def run_settings(self, given: Mapping[str, Any], *, control: bool) -> dict[str, Any]:
        """Return the settings of the run behind the line; several lines may share it.

        Args:
            given: settings that the user gave; those that the system does not have are left out.
            control: whether the control of the strict profile is compared too.
        """
        settings = {**self._chosen(), **self.applying(given)}
        if self.profile == STRICT and control:
            settings["control"] = True
        return settings

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse wrong settings.

        Raises:
            UsageError: one is refused.
        """
        settings = self.run_settings(given, control=False)
        if self.profile:
            Config.asked(**settings)
        else:
            BaselineSettings(**settings)

    def applying(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the given settings that the system has."""
        return {name: value for name, value in given.items() if self._has(name)}

    def _chosen(self) -> dict[str, Any]:
        """Settings that make the system what it is."""
        if not self.profile:
            return {"system": self.baseline, "task": self.task}
        chosen: dict[str, Any] = {"profile": self.profile, "task": self.task}
        if self.profile != STRICT:
            chosen["floor"] = False  # the local model has a line of its own
        if not Config.of(**chosen).profile.ignores("compare", Config.of(**chosen)):
            chosen["compare"] = "ideal"  # the same trees and counts as by secret comparisons
        return chosen

    def _has(self, name: str) -> bool:
        chosen = self._chosen()
        if not self.profile:
            return getattr(BaselineSettings(**chosen), name, None) is not None
        config = Config.of(**chosen)
        return name in config.flat() and not config.profile.ignores(name, config)


def chosen_systems(
    keys: Sequence[str] | None, task: str, given: Mapping[str, Any]
) -> tuple[list[EvaluatedSystem], dict[str, str]]:
    """The systems to compare, and by name why others are left out.

    Raises:
        UsageError: there is no such system, none is left, or a setting is refused by all.
    """
    known = (*COMPARED, *(name for name in (*PROFILES, *BASELINES) if name not in COMPARED))
    wanted = list(dict.fromkeys(COMPARED if keys is None else keys))
    for key in wanted:
        if key not in known:
            raise UsageError(f"`systems`: there is no {key!r}; there are {', '.join(known)}")
    systems = [EvaluatedSystem(key, task) for key in wanted]
    left_out = {one.name: one.without() for one in systems if one.without()}
    systems = [one for one in systems if one.name not in left_out]
    if not systems:
        reasons = "; ".join(left_out.values())
        raise UsageError(f"`systems`: {reasons or 'at least one is needed'}")
    for name in given:
        if name in _CHOSEN_HERE:
            raise UsageError(f"`{name}` is chosen by evaluate itself; leave it out")
        if not any(one.applying({name: given[name]}) for one in systems):
            raise UsageError(f"`{name}` is a setting of none of these systems; leave it out")
    for one in systems:
        one.check(given)  # before anything is run
    return systems, left_out


# The result of `lumos.evaluate`: scores of several systems on one graph, over several seeds.

_EPSILON = re.compile(r"ε = ([\d.e+]+)|\(([\d.e+]+), ")
_SHOWN = (
    LABEL_REPLACED,
    FEATURES_REPLACED,
    RECORD_REPLACED,
    EDGE_ADDED_OR_REMOVED,
    EDGE_REPLACED,
    DEGREE,
    DEVICE_ABSENT,
)
"""Rows of the table of guarantees that are shown, by relation."""


@dataclass(frozen=True, kw_only=True)
class SystemScore:
    """One score of one system over seeds, and its difference to its local model."""

    system: str
    """Name of the system in tables."""
    key: str
    """As `systems` has it."""
    metric: str
    """As `run.metrics` has it, e.g. `test_accuracy`."""
    mean: float | None
    """None where no seed has a score."""
    sd: float | None
    """Standard deviation over seeds, with n - 1; from two seeds on."""
    seeds: int
    """Number of seeds that have a score."""
    seconds: float | None
    """Mean of a run; None where it is a part of another run."""
    minus_local: float | None
    """Mean of the differences to its local model on the same seeds; None where it has none."""
    minus_local_sd: float | None
    minus_local_se: float | None
    """Standard error of that mean: sd / √n."""
    by_seed: dict[int, float] = field(hash=False)
    protects: str
    """Protection of label, features and edges."""
    reason: str
    """Why seeds have no score; empty where all have one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SystemRuns:
    """The runs of one system."""

    system: EvaluatedSystem
    results: dict[int, dict[str, Any]] = field(repr=False)
    """By seed, what the run or the baseline says of itself."""
    reasons: dict[int, str]
    """By seed, why there is no result."""

    def scores(self, metric: str) -> dict[int, float]:
        """By seed, one score of the system's variant."""
        name = self._name(metric)
        found = {seed: result.get(name) for seed, result in self.results.items()}
        return {seed: float(score) for seed, score in found.items() if score is not None}

    def per_class(self) -> list[dict[str, Any]]:
        """Means over seeds of precision, recall and F1 of each class, and of its devices."""
        tables = [result.get(self._name("test_per_class")) for result in self.results.values()]
        tables = [table for table in tables if table]
        return [
            {
                "class": rows[0]["class"],
                **{
                    name: float(np.mean([row[name] for row in rows]))
                    for name in ("devices", "precision", "recall", "f1")
                },
            }
            for rows in zip(*tables, strict=True)
        ]

    def confusion(self) -> Ints:
        """[classes, classes] devices of all seeds together; row: true class."""
        tables = [result.get(self._name("test_confusion")) for result in self.results.values()]
        found: Ints = np.sum([np.array(table) for table in tables if table], axis=0, dtype=np.int64)
        return found

    def seconds(self) -> float | None:
        """Mean seconds of a run, without a control that was trained beside it."""
        if self.system.variant == OWN or not self.results:
            return None
        return float(np.mean([self._seconds(result) for result in self.results.values()]))

    def _seconds(self, result: dict[str, Any]) -> float:
        control: float = result.get("arm_seconds", {}).get(CONTROL, 0.0)
        return control if self.system.variant == CONTROL else result["seconds"] - control

    def protects(self) -> str:
        """Protection of label, features and edges; empty where no run finished."""
        if not self.results:
            return ""
        result = next(iter(self.results.values()))
        if self.system.variant == MAIN:
            return protection_of(result)
        config = Config.of(profile=result["profile"], task=result["task"])
        texts = config.profile.texts(config)
        if self.system.variant == OWN:
            return f"a part of that run, and protected with it: {texts.own}"
        return f"an experiment: the same with {texts.control}"

    @property
    def reason(self) -> str:
        """Why seeds have no result, each reason once."""
        return "; ".join(dict.fromkeys(self.reasons.values()))

    def _name(self, metric: str) -> str:
        variant = self.system.variant
        return metric if variant == MAIN else f"{variant}_{metric}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Several systems on one graph, with the same seeds and splits.

    evaluation = lumos.evaluate("demo", seeds=3)
    print(evaluation)
    evaluation.frame(), evaluation.report("evaluation.html")
    """

    graph: str
    """Name of the graph."""
    devices: int
    edges: int
    features: int
    classes: tuple[str, ...]
    """None for link."""
    notes: tuple[str, ...]
    """Notes about the graph from when it was read."""
    task: str
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    """Those that were given, by name."""
    command: str
    """Command that repeats the evaluation."""
    runs: list[SystemRuns] = field(repr=False)
    left_out: dict[str, str]
    """By name of a system that cannot do the task: why."""
    seconds: float
    """From the graph to the result."""
    cpu_seconds: float
    """Processor time of all runs, those that were known too."""
    ran: int
    """Runs that were computed now."""
    known: int
    """Runs that the folder had before."""
    processes: int

    @cached_property
    def rows(self) -> list[SystemScore]:
        """A row for each system and metric."""
        by_key = {runs.system.key: runs for runs in self.runs}
        return [
            self._row(runs, by_key.get(runs.system.local), metric)
            for runs in self.runs
            for metric in self.metrics
        ]

    def _row(self, runs: SystemRuns, local: SystemRuns | None, metric: str) -> SystemScore:
        by_seed = runs.scores(metric)
        score = mean_of(by_seed)
        other = {} if local is None else local.scores(metric)
        difference = paired_difference(by_seed, other)
        return SystemScore(
            system=runs.system.name,
            key=runs.system.key,
            metric=metric,
            mean=score.mean,
            sd=score.sd,
            seeds=score.seeds,
            seconds=runs.seconds(),
            minus_local=difference.mean,
            minus_local_sd=difference.sd,
            minus_local_se=difference.se,
            by_seed=by_seed,
            protects=runs.protects(),
            reason=runs.reason,
        )

    @property
    def metrics(self) -> list[str]:
        """Names of the scores, the main one first."""
        names: Sequence[str] = LINK_SCORES if self.task == "link" else CLASS_SCORES
        return [f"test_{name}" for name in names]

    def row(self, system: str, metric: str | None = None) -> SystemScore:
        """The row of a system, as `systems` has it; of the main score by default.

        Raises:
            UsageError: there is none.
        """
        metric = metric or self.metrics[0]
        for row in self.rows:
            if (row.key, row.metric) == (system, metric):
                return row
        raise UsageError(f"there is no row of {system!r} with {metric!r}")

    def frame(self) -> "pandas.DataFrame":
        """The rows as a pandas frame, without the scores of single seeds."""
        columns = [one.name for one in fields(SystemScore) if one.name != "by_seed"]
        return frame_of_rows([asdict(row) for row in self.rows], columns)

    def summary(self) -> dict[str, Any]:
        """Everything that `lumos evaluate --json` prints."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "runs"}
        return {
            **plain,
            **{name: list(plain[name]) for name in ("classes", "notes", "seeds")},
            "rows": [
                {**asdict(row), "by_seed": {str(seed): v for seed, v in row.by_seed.items()}}
                for row in self.rows
            ],
            "per_class": {runs.system.key: runs.per_class() for runs in self.runs}
            if self.classes
            else {},
            "failed": {
                runs.system.key: {str(seed): reason for seed, reason in runs.reasons.items()}
                for runs in self.runs
                if runs.reasons
            },
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
        }

    def report(self, path: Path | str | None = None) -> Path:
        """Write one self-contained page.

        Args:
            path: the file; `lumos-evaluation.html` in the working folder by default.
        """
        from lumos.evaluation.page import page

        return page(self).write(Path(path or "lumos-evaluation.html"))

    def write(self, folder: Path) -> None:
        """Write the page and the summary into a folder."""
        write_json(folder / "evaluation.json", self.summary())
        self.report(folder / "report.html")

    def __repr__(self) -> str:
        from lumos.evaluation.page import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """For notebooks: the table of scores."""
        from lumos.evaluation.page import as_html

        return as_html(self)


def protection(guarantees: Sequence[Mapping[str, Any]]) -> str:
    """The table of guarantees in one line: of every row the weakest guarantee of all its columns.

    Args:
        guarantees: as `run.guarantees` has them.
    """
    parts: dict[str, list[str]] = {}
    for about in _SHOWN:
        row = next((row for row in guarantees if row["about"] == about), None)
        if row is not None:
            parts.setdefault(_weakest(row), []).append(about)
    return "; ".join(f"{', '.join(about)}: {what}" for what, about in parts.items())


def _weakest(row: Mapping[str, Any]) -> str:
    cells = cells_of(row)
    if any(cell == NO_GUARANTEE or cell.startswith(f"{NO_GUARANTEE}:") for cell in cells.values()):
        return NO_GUARANTEE
    limited = [f"{who}, {cell}" for who, cell in cells.items() if cell.startswith(NO_GUARANTEE)]
    figures = {cell: _epsilon(cell) for cell in cells.values() if _epsilon(cell) is not None}
    largest = max(figures, key=lambda cell: figures[cell] or 0.0, default="not used")
    return " and ".join([largest, *limited])


def _epsilon(cell: str) -> float | None:
    found = _EPSILON.match(cell)
    return float(found[1] or found[2]) if found else None


def protection_of(result: Mapping[str, Any]) -> str:
    """Return the protection of a run of Lumos or of a baseline.

    Args:
        result: its summary.
    """
    if "protects" in result:
        return str(result["protects"])
    if guarantees_something(result.get("guarantees", [])):
        return protection(result["guarantees"])
    epsilon = result["epsilon"]
    released = f"; ε = {float(epsilon):g} covers releases alone" * bool(epsilon)
    return f"no guarantee: other messages leave without protection{released}"

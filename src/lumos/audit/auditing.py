"""`lumos.run_audit`: run every attack that applies, and judge what it found."""

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lumos
from lumos.audit.attacks import ATTACKS
from lumos.audit.audit_row import AuditReport, AuditRow
from lumos.audit.scene import Say, Scene
from lumos.errors import UsageError
from lumos.graph.sources import as_graph
from lumos.progress import ProgressOption, displayed
from lumos.runs.predict import split_of
from lumos.runs.run import Run
from lumos.runs.schema import plain
from lumos.training.config import Config
from lumos.training.given_split import given_again
from lumos.typing import Progress

TASKS = ("classify", "link")


def run_audit(
    graph: Any,
    *,
    attacks: Collection[str] = (),
    seed: int = 0,
    data_dir: Path | None = None,
    progress: ProgressOption = None,
    **settings: Any,
) -> AuditReport:
    """Attack a graph under some settings, or a finished run under its own.

    A run is recorded anew: a simulated one repeats itself bit by bit, and one whose coins came
    from the operating system is another run with the same settings.

    Args:
        graph: a `Run`, or a graph as `lumos.train` takes it.
        attacks: names of `ATTACKS`; all that apply by default.
        seed: run seed.
        data_dir: where named graphs lie.
        progress: True shows it; or a callback `(done, total, note)`.
        settings: as `lumos.train` takes them; without `task`, both tasks are audited.
    """
    if isinstance(graph, Run):
        if settings:
            raise UsageError("a run is audited under its own settings; give none")
        settings, seed = _own_settings(graph.config), graph.about.seed
        whole = graph.whole_graph(data_dir)
        # The default split is drawn anew for every seed; any other is kept.
        split = given_again(split_of(graph, data_dir), whole) if graph.about.split.name else None
    else:
        split = None
        whole = as_graph(graph, data_dir)
    task = settings.pop("task", None)
    tasks = [task] if task else [t for t in TASKS if t == "link" or _has_labels(whole.labels)]
    scene = Scene(whole, settings, tasks=tasks, seed=seed, split=split)
    configs = [scene.config(task) for task in tasks]
    _refuse_ignored(settings, configs)
    chosen = _chosen(attacks, scene, configs[0].train.profile)
    rows: list[AuditRow] = []
    seconds: dict[str, float] = {}
    with displayed(progress, "auditing") as shown:
        for number, name in enumerate(chosen):
            start = time.perf_counter()
            scene.say = _say(shown, number, len(chosen), name)
            scene.say(ATTACKS[name].title)
            rows += ATTACKS[name].run(scene)
            seconds[name] = round(time.perf_counter() - start, 2)
        if shown is not None:
            shown(len(chosen), len(chosen), "done")
    return AuditReport(
        graph=whole.name or "graph",
        devices=whole.devices,
        profile=configs[0].train.profile,
        settings=plain(settings),
        seed=seed,
        rows=rows,
        seconds=seconds,
        lumos=lumos.__version__,
    )


def _own_settings(config: Config) -> dict[str, Any]:
    """The settings of a run, as far as they are not the defaults.

    Without its book, which is the devices': an audit must not spend from it.
    """
    train = config.train
    default = Config.of(profile=train.profile, task=train.task).flat()
    kept = {"profile": train.profile, "task": train.task}
    return kept | {
        name: value
        for name, value in config.flat().items()
        if value != default[name]
        and name not in ("book", "checkpoint_every")
        and not name.startswith("lifetime_")  # limits of the book
        and not config.profile.ignores(name, config)
    }


def _has_labels(labels: Any) -> bool:
    return labels is not None and len(np.unique(np.asarray(labels)[np.asarray(labels) >= 0])) > 1


def _refuse_ignored(settings: dict[str, Any], configs: Sequence[Config]) -> None:
    """A setting must have a meaning for one of the tasks at least.

    Raises:
        UsageError: it has none.
    """
    for name in settings:
        reasons = [config.profile.ignores(name, config) for config in configs]
        if all(reasons):
            raise UsageError(f"`{name}` has no meaning with {reasons[0]}; leave it out")


def _chosen(asked: Collection[str], scene: Scene, profile: str) -> list[str]:
    """The attacks to run, in the order of the registry.

    Raises:
        UsageError: there is no such attack, or it has nothing to attack here.
    """
    for name in asked:
        if not ATTACKS[name].applies(scene, profile):
            raise UsageError(
                f"the attack {name!r} has nothing to attack with `profile='{profile}'` and "
                f"{' and '.join(scene.tasks)}"
            )
    return [
        name
        for name in ATTACKS
        if (not asked or name in asked) and ATTACKS[name].applies(scene, profile)
    ]


def _say(progress: Progress | None, done: int = 0, total: int = 1, name: str = "") -> Say:
    def say(text: str) -> None:
        if progress is not None:
            progress(done, total, f"{name}: {text}" if name else text)

    return say

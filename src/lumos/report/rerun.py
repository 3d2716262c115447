"""The command that makes a run again: every setting that is not the profile's default."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from lumos.graph import ReadOptions
from lumos.report.record import Record
from lumos.training.config import Config


def rerun(record: Record, out: str = "DIR") -> str | None:
    """The command, or None where the graph was one in memory.

    Args:
        out: the folder that the command would write.
    """
    source = dict(record.about.source)
    if "spec" not in source:
        return None
    words = ["lumos", "train", str(source.pop("spec"))]
    words += _options(source, dataclasses.asdict(ReadOptions()))
    words += _options(record.config.flat(), _defaults(record.config))
    words += ["--seed", str(record.result.seed)]
    if record.result.shards != 1:
        words += ["--shards", str(record.result.shards)]
    return shlex.join([*words, "--out", out])


def changed(record: Record) -> set[str]:
    """Names of the settings that are not the defaults of the run's profile and task."""
    defaults = _defaults(record.config)
    asked = {"task", "profile"}  # defaults depend on them
    usual = Config().flat()
    return {
        name
        for name, value in record.config.flat().items()
        if value != (usual if name in asked else defaults)[name]
    }


def _defaults(config: Config) -> dict[str, Any]:
    """What the same profile and task start from."""
    flat = Config.of(task=config.train.task, profile=config.train.profile).flat()
    usual = Config().flat()
    return flat | {name: usual[name] for name in ("task", "profile")}


def _options(values: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    words = []
    for name, value in values.items():
        if value == defaults.get(name):
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", written(value)]
    return words


def written(value: Any) -> str:
    """A setting as the command line takes it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value) if isinstance(value, Path | str | int) else repr(value)

"""The command or call that repeats a run: every setting that is not the profile's default."""

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lumos.graph import ReadOptions
from lumos.runs.run import Run
from lumos.training.config import TRAIN_OPTIONS, Config


def rerun_command(run: Run, out: str = "DIR") -> str | None:
    """Return the command, a Python call where settings are no options; None without a source.

    Args:
        out: the folder that the command would write.
    """
    source = dict(run.about.source)
    if "spec" not in source:
        return None
    reading = {name: value for name, value in source.items() if name != "spec"}
    if not {*reading, *changed_settings(run.config)} <= {*TRAIN_OPTIONS}:
        return _in_python(run, reading, out)
    words = ["lumos", "train", str(source.pop("spec"))]
    words += _options(source, dataclasses.asdict(ReadOptions()))
    words += _options(run.config.flat(), _defaults(run.config))
    words += ["--seed", str(run.about.seed)]
    if run.about.shards != 1:
        words += ["--shards", str(run.about.shards)]
    return shlex.join([*words, "--out", out])


def _in_python(run: Run, reading: Mapping[str, Any], out: str) -> str:
    """Return the call that repeats a run with settings that are no options."""
    graph = ", ".join([repr(run.about.source["spec"]), *_keywords(reading)])
    flat = run.config.flat()
    changed = {name: flat[name] for name in flat if name in changed_settings(run.config)}
    words = [f"lumos.load({graph})" if reading else graph, *_keywords(changed)]
    words += _keywords({"seed": run.about.seed})
    words += _keywords({"shards": run.about.shards}) * (run.about.shards != 1)
    return f"lumos.train({', '.join([*words, *_keywords({'out': out})])})"


def _keywords(values: Mapping[str, Any]) -> list[str]:
    texts = {name: str(v) if isinstance(v, Path) else v for name, v in values.items()}
    return [
        f'{name}=float("inf")' if value == float("inf") else f"{name}={value!r}"
        for name, value in texts.items()
    ]


def changed_settings(config: Config) -> set[str]:
    """Names of the settings that are not the defaults of this profile and task."""
    defaults = _defaults(config)
    return {name for name, value in config.flat().items() if value != defaults[name]}


def _defaults(config: Config) -> dict[str, Any]:
    """What `Config.of` gives for this profile and task, which have defaults of their own."""
    chosen = {"task": config.train.task, "profile": config.train.profile}
    usual = Config.of().flat()
    return Config.of(**chosen).flat() | {name: usual[name] for name in chosen}


def _options(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in values.items():
        if value == defaults.get(name):
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif (text := option_value(value)).startswith("-"):
            words.append(f"--{option}={text}")  # else it would be read as an option
        else:
            words += [f"--{option}", text]
    return words


def option_value(value: Any) -> str:
    """A setting as the command line takes it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value) if isinstance(value, Path | str | int) else repr(value)

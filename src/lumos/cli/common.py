"""Shared by every command: common options, their places in the help, JSON, screen, wording.

One line per option in `OPTIONS`: its group and, if `--help` shows it, its short text. An option
without a short text is for experts: only `--help-all` shows it, in full. `COMMANDS` has what a
command shows otherwise. A test fails where an option of any command is missing here.

The library names settings in backticks; `as_options` turns them into options:

    `feature_epsilon` must be above 0   →   --feature-epsilon must be above 0
    `protect='none'` has no noise      →   --protect none has no noise
    `virtual_nodes=False`              →   --no-virtual-nodes
"""

import dataclasses
import json as jsonlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from cyclopts import Group, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lumos.errors import UsageError

DATA = Group("Data", sort_key=1)
TASK = Group("Task", sort_key=2)
PRIVACY = Group("Privacy", sort_key=3)
MODEL = Group("Model", sort_key=4)
TREES = Group("Trees", sort_key=5)
RUN = Group("Run", sort_key=6)
COMMON_GROUP = Group("Every command", sort_key=7)


class Placed(NamedTuple):
    """Place of an option in the help."""

    group: Group
    short: str = ""
    """One line for `--help`; empty: only `--help-all` shows the option."""


OPTIONS: Mapping[str, Placed] = {
    # What is read.
    "graph": Placed(DATA, "demo, demo:60, facebook, twitch-ENGB, …, or a path"),
    "directed": Placed(DATA),
    "weights": Placed(DATA),
    "missing_labels": Placed(DATA),
    "name": Placed(DATA, "a graph of lumos data list"),
    "run": Placed(DATA, "a folder that lumos train --out wrote"),
    "target": Placed(DATA, "a graph, or a folder that lumos train --out wrote"),
    "label_column": Placed(DATA, "column, array or attribute with the labels"),
    "label_bins": Placed(DATA),
    "categorical": Placed(DATA),
    "feature_bounds": Placed(DATA),
    "header": Placed(DATA),
    "folder": Placed(DATA, "a new folder to write"),
    "parts": Placed(DATA, "number of parts, contiguous ranges of devices"),
    "split": Placed(DATA, "a file, or shares such as 60/20/20"),
    # What is learnt, and who does it.
    "task": Placed(TASK, "classify: predict labels; link: predict edges"),
    "profile": Placed(TASK, "strict: with guarantees; paper: the paper's design"),
    "literal": Placed(TASK, "paper: exactly as printed, nothing corrected"),
    "system": Placed(TASK, "centralized, own, lpgnn, blink, gap, naive, …"),
    "systems": Placed(TASK, "strict, paper, own, control, centralized, lpgnn, …"),
    "deployment": Placed(TASK, "attack a federation of real devices, in virtual time"),
    "attack": Placed(TASK, "only this attack; may be repeated"),
    # What leaves a device.
    "label_epsilon": Placed(PRIVACY, "ε of a device's label"),
    "feature_epsilon": Placed(PRIVACY, "ε of a device's features"),
    "edge_epsilon": Placed(PRIVACY, "ε of one undirected edge"),
    "delta": Placed(PRIVACY),
    "epsilon": Placed(PRIVACY, "paper: ε of features towards one receiver"),
    "mechanism": Placed(PRIVACY),
    "propagated_labels": Placed(PRIVACY),
    "propagated_epsilon": Placed(PRIVACY, "ε of one propagated label, about edges"),
    "proofs": Placed(PRIVACY),
    "participation": Placed(PRIVACY, "labelled: devices with a label; all: every device"),
    "account": Placed(PRIVACY, "folder that adds up ε over several runs"),
    "score_queries": Placed(PRIVACY),
    "signs": Placed(PRIVACY),
    "scaling": Placed(PRIVACY),
    "one_bit": Placed(PRIVACY),
    "edge_sample": Placed(PRIVACY),
    "aggregate": Placed(PRIVACY, "ideal: sums in the clear; secure: masked sums"),
    "randomness": Placed(PRIVACY, "seeded: from the run seed; system: as on devices"),
    # The network and its training.
    "epochs": Placed(MODEL, "passes over all devices"),
    "local_steps": Placed(MODEL, "paper: steps of a device between two sums"),
    "backbone": Placed(MODEL, "gcn, gat, another PyG layer, or package.module:Class"),
    "tree_network": Placed(MODEL),
    "encoder_epochs": Placed(MODEL),
    "patience": Placed(MODEL),
    "steps": Placed(MODEL),
    "label_steps": Placed(MODEL),
    "variant": Placed(MODEL),
    # Who owns which edge.
    "balancer": Placed(TREES, "who owns an edge: none, greedy, mcmc or optimal"),
    "iterations": Placed(TREES),
    "compare": Placed(TREES, "paper: secure, or ideal: in the clear, faster"),
    "group": Placed(TREES),
    "comparison_budget": Placed(TREES),
    "workers": Placed(TREES),
    # What a command does with the result.
    "control": Placed(RUN, "also train with releases that carry no information"),
    "floor": Placed(RUN),
    "checkpoint_every": Placed(RUN),
    "out": Placed(RUN, "run folder to write"),
    "resume": Placed(RUN, "continue the interrupted run in --out"),
    "rank_timeout": Placed(RUN),
    "id": Placed(TASK, "only this device; may be repeated"),
    "pairs": Placed(TASK, "links: a file with two ids on each line"),
    "candidates": Placed(TASK, "links: a file with ids; --id asks each of them"),
    "top": Placed(TASK, "how many of the candidates to print"),
    "new_device": Placed(TASK, "a JSON file of devices that join after training"),
    "scores": Placed(PRIVACY),
    "export": Placed(RUN, "file to write the weights to (.npz)"),
    "simulated": Placed(RUN),
    # What `lumos budget` assumes.
    "classes": Placed(DATA, "k, the number of classes"),
    "degree": Placed(DATA, "neighbours of a device"),
    # Several runs.
    "shards": Placed(RUN, "parts of the simulation; the result is the same"),
    "seeds": Placed(RUN, "number of seeds"),
    "jobs": Placed(RUN, "processes at a time"),
    "keep": Placed(RUN),
    # Real devices.
    "pki": Placed(DATA, "a folder of lumos pki init"),
    "plan": Placed(DATA, "a file run.json, which is replaced"),
    "file": Placed(DATA, "a file of evidence"),
    "device": Placed(TASK, "3, or 3,5,8, or a range as 0-59; may be repeated"),
    "coordinator": Placed(TASK, "the coordinator"),
    "broker": Placed(TASK, "the NATS server"),
    "host": Placed(TASK, "name or address of the broker; may be repeated"),
    "request": Placed(TASK, "file of a device that keeps its private keys"),
    "valid": Placed(RUN, "for how long, as 365d or 12h"),
    "listen": Placed(RUN, "address to listen on; 0.0.0.0 for every one"),
    "port": Placed(RUN, "port to listen on"),
    "max_payload": Placed(RUN),
    "deadline": Placed(RUN, "seconds after which a silent device is left out"),
    "stay": Placed(RUN, "devices keep running and answer after training"),
    "status": Placed(RUN, "port of the status page on loopback; 0 for a free one"),
    "prepare": Placed(RUN, "only write the folders of all participants"),
    "with": Placed(TASK, "a real device: score its pair with this one"),
    # What every command has.
    "seed": Placed(COMMON_GROUP, "run seed"),
    "data_dir": Placed(COMMON_GROUP, "folder of the graphs (also LUMOS_DATA)"),
    "json": Placed(COMMON_GROUP, "print one JSON object instead"),
}

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "trees": {
        "iterations": "steps of mcmc",
        "compare": "secure: by cryptography; ideal: in the clear",
        "group": "auto, ed25519 (constant time) or secp256k1 (quick)",
        "comparison_budget": "most bits that a pair may reveal",
    },
    "baseline": {
        "backbone": "gcn, gat or sage",
    },
    "budget": {
        "propagated_labels": "propagated labels that a device sends",
        "mechanism": "auto, krr or digits",
    },
    "predict": {"scores": "links: ideal, or secure by cryptography"},
    "audit": {"out": "JSON file to write"},
    "report": {"out": "file to write"},
    "up": {"out": "a new folder for the result", "keep": "keep the folders of all participants"},
    "device": {"folder": "folder of the device", "broker": "address in place of that in run.json"},
    "coordinator": {
        "folder": "folder of the coordinator",
        "broker": "address in place of that in run.json",
    },
    "pki init": {"pki": "a new folder"},
    "pki request": {"folder": "a folder for the keys", "device": "number of the device"},
    "pki nats-config": {"out": "file to write"},
    "pki check-evidence": {"folder": "folder of any participant of the run"},
    "split": {"task": "classify or link only; by default both"},
    "evaluate": {"out": "folder for the page, the table as JSON, and single runs"},
}
"""By command, short texts in place of those above; an empty one leaves an option to experts."""


def short_text(command: str, option: str) -> str:
    """Return the short text of an option in `--help` of a command; empty where it is not shown."""
    own = COMMANDS.get(command, {})
    return own[option] if option in own else OPTIONS.get(option, Placed(RUN)).short


def rank(option: str) -> int:
    """Return the position of an option in its group; after all others where it is unknown."""
    return [*OPTIONS].index(option) if option in OPTIONS else len(OPTIONS)


def placed(option: str, **more: Any) -> Parameter:
    """Return the annotation of an option: its group, and what else is given.

    Args:
        option: its name as Python has it.
        more: as `cyclopts.Parameter` takes it.
    """
    return (
        Parameter(group=OPTIONS[option].group, **more) if option in OPTIONS else Parameter(**more)
    )


_SETTING = re.compile(r"`([a-z_]+)(?:=('?)([^`']*)\2)?`")
_POSITIONAL = frozenset({"graph", "name", "run", "target", "folder", "pki", "plan"})


def as_options(text: str) -> str:
    """Return the text with settings written as options of the command that was typed."""
    return _SETTING.sub(_as_option, text)


def _as_option(match: re.Match[str]) -> str:
    name, _, value = match.groups()
    if TYPED.get([])[:1] in RUNS and name in python_only():
        return f"{match.group(0)} in Python"
    if name not in OPTIONS.keys() - _POSITIONAL:
        return match.group(0)
    option = "--" + name.replace("_", "-")
    if value in (None, "True"):
        return option
    return "--no-" + option[2:] if value == "False" else f"{option} {value}"


RUNS = (["train"], ["audit"])
"""Commands whose other settings are for Python."""


@cache
def python_only() -> frozenset[str]:
    """Return the names of settings that `lumos.train` and `lumos.load` have, `lumos train` not."""
    from lumos.graph import ReadOptions
    from lumos.training.config import COMMON, TRAIN_OPTIONS
    from lumos.training.profile import PROFILES

    groups = [*COMMON.values(), ReadOptions, *(PROFILES[name].settings for name in PROFILES)]
    return frozenset(field.name for group in groups for field in dataclasses.fields(group)) - {
        *TRAIN_OPTIONS
    }


TYPED: ContextVar[list[str]] = ContextVar("typed")
"""The words of the command line, for a command that starts others like itself."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every command understands."""

    seed: Annotated[int, placed("seed")] = 0
    """Run seed, of public randomness, and in a simulation of the device secrets too."""
    data_dir: Annotated[
        Path | None, placed("data_dir", env_var="LUMOS_DATA", show_env_var=False)
    ] = None
    """Folder of the graphs (also LUMOS_DATA)."""
    json: Annotated[bool, placed("json", negative="", show_default=False)] = False
    """Print one JSON object on standard output, and nothing else there."""

    def refuse_seed(self, because: str) -> None:
        """Refuse a seed where it has no effect.

        Raises:
            UsageError: one was given.
        """
        if self.seed != Common.seed:
            raise UsageError(f"`seed` has no effect here: {because}; leave it out")


@contextmanager
def continued_by(hint: Callable[[], str | None]) -> Iterator[None]:
    """Let Ctrl-C inside print how to continue; nothing where nothing was written."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(*filter(None, [hint()])) from None


def say_runs(done: float, total: float | None, note: str) -> None:
    """Print a line after each finished run."""
    say(f"{done:g} of {total:g}: {note}")


def say(text: str) -> None:
    """Write a line for people: to standard error, so that standard output stays parseable."""
    print(text, file=sys.stderr, flush=True)


def console() -> Console:
    """Return a console on standard output without markup: names may hold anything."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=not sys.stdout.isatty())


def facts_table(rows: Iterable[tuple[str, str]], left: int = 1) -> Table:
    """Return a table of names and texts without headings, indented by `left`."""
    table = Table(show_header=False, box=None, padding=(0, 1, 0, left))
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    return table


def report(result: Mapping[str, Any], common: Common, line: str) -> None:
    """Print the result of a command: as JSON if asked for, otherwise a line."""
    if common.json:
        print_json(result)
    else:
        print(line)


def print_json(result: Mapping[str, Any] | list[Any]) -> None:
    """Print the one JSON object of a command."""
    print(jsonlib.dumps(result, ensure_ascii=False, allow_nan=False))

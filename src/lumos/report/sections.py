"""Sections of a run's page on messages, guarantees, attacks, trees, settings and repetition."""

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lumos.audit.table import FILE, AuditReport, AuditRow
from lumos.errors import InputError
from lumos.exchange import TopicLine
from lumos.exchange.messages import Door
from lumos.graph import ReadOptions
from lumos.graph.catalog import entry_of
from lumos.registry import part_name
from lumos.report.charts import cdf, moderate, tree
from lumos.report.page import Block, Code, Figure, Section, Table, Text
from lumos.runs.run import Run
from lumos.storage import read_json
from lumos.training.config import TRAIN_OPTIONS, Config, descriptions
from lumos.training.guarantees import guarantees_something, shown_cells
from lumos.training.profile import TreeTexts

DOORS = {
    Door.OPEN: ("messages as they are", "nothing"),
    Door.RELEASE: ("output of a randomized mechanism", "differential privacy: ε is counted"),
    Door.COMPARE: (
        "messages of a secret comparison, or of the secret score of a pair",
        "cryptography: both sides learn the declared answer, counted in bits",
    ),
    Door.CONTROL: ("a word of a short public list, or a public id", "its bits are counted"),
    Door.AGGREGATE: ("a masked number or vector", "only the sum over devices becomes visible"),
}
"""By door: what passes, and what protects it; in the order of the page."""


def messages_section(run: Run) -> Section:
    """Return the doors, then the topics of the ledger, the least protected first."""
    order = list(DOORS)
    topics = [*run.trees.ledger.topics.items(), *run.ledger.topics.items()]
    topics.sort(key=lambda topic: order.index(Door(topic[1].door)))
    blocks: list[Block] = [
        Text(
            "Every message that leaves a device passes one of five doors, and the ledger counts it "
            "there. A door says what protects the message. Bytes are those of message bodies."
            + " These are the messages that passed the coordinator."
            * run.about.deployed
        ),
        _doors(run, [line for _, line in topics]),
        Table(
            ["topic", "door", "messages", "bytes", "bytes each", "who learns what"],
            [
                [name, line.door, line.messages, line.bytes, _bytes_each(line), line.learns]
                for name, line in topics
            ],
            "The ledger: every kind of message, before and in training",
            stacked=True,
        ),
    ]
    if any(line.ideal for _, line in topics):
        blocks.append(
            Text(
                "Topics whose name ends in `ideal` were not sent: the simulation computed their "
                "outcome in the clear and booked, by formula, what the real protocol would send."
            )
        )
    of_trees = run.trees.ledger
    if of_trees.comparisons:
        blocks.append(
            Text(
                f"{of_trees.comparisons:,} secret comparisons balanced the trees; their answers "
                f"could tell {of_trees.comparison_bits:,.0f} bits."
            )
        )
    return Section("What left the devices", blocks)


def _bytes_each(line: TopicLine) -> str:
    return f"{line.bytes / line.messages:,.0f}" if line.messages else "–"


def _doors(run: Run, topics: list[TopicLine]) -> Table:
    profile, rows = run.config.profile, []
    for door, (passes, protects) in DOORS.items():
        lines = [line for line in topics if line.door == door]
        if door not in profile.doors:
            protects = f"{protects}; the {profile.name} profile keeps this door shut"
        messages, size = sum(line.messages for line in lines), sum(line.bytes for line in lines)
        rows.append([door.value, passes, protects, messages, size])
    columns = ["door", "what passes", "what protects it", "messages", "bytes"]
    return Table(columns, rows, "The doors", stacked=True)


def protection_section(run: Run) -> Section:
    """Return the table of guarantees, and the run's own words on what it gave away."""
    if not guarantees_something(run.guarantees):
        caption, found = "What is exposed of a device, and to whom", run.guarantees
        table = [_guarantees(found, caption)] if found else []  # runs of earlier versions have none
        return Section("What was exposed", [*table, Text(run.model.exposed)])
    blocks: list[Block] = [
        _guarantees(run.guarantees, "What is guaranteed about a device, and against whom"),
        Text(
            "Told apart: the largest probability of telling apart two equally likely alternatives "
            "that differ as `about` says; 50 % is a coin, and above 90 % is called weak. (ε, δ): "
            "whatever someone sees is at most e^ε times as likely under one alternative as under "
            "the other, up to a probability of δ. Adversaries are curious but follow the "
            "protocol; up to 10 % of the devices may collude with the coordinator, whichever they "
            "are, if they do so before the masks of the run are drawn."
        ),
        Text(run.model.exposed),
    ]
    return Section("What is guaranteed", blocks)


def _guarantees(guarantees: list[dict[str, Any]], caption: str) -> Table:
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in guarantees:  # equal guarantees share a row
        cells = tuple(_unbroken(cell) for cell in shown_cells(row).values())
        alike.setdefault(cells, []).append(row["about"])
    rows = [[", ".join(about), *cells] for cells, about in alike.items()]
    return Table(["about", *shown_cells(guarantees[0])], rows, caption, stacked=True)


def _unbroken(cell: str) -> str:
    """Return a cell in which a pair (ε, δ) stays on one line."""
    return re.sub(r"(\([^\s,()]+,) ([^\s,()]+\))", "\\1\N{NO-BREAK SPACE}\\2", cell)


def audit_section(run: Run) -> Section | None:
    """Return a table for each adversary of `lumos audit`; None where the run was not audited.

    Raises:
        InputError: the file is damaged.
    """
    if run.folder is None or not (path := run.folder / FILE).exists():
        return None
    try:
        report = AuditReport.from_json(read_json(path))
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: is damaged ({error}); type: lumos audit {run.folder}") from None
    blocks: list[Block] = [
        Text(
            "Attackers saw what the protocol gives them in a recorded run with these settings. "
            "Figures are what these attacks found: others may find more, so they refute a claim "
            "or fail to, and prove none. An AUC of 0.5 is chance. Intervals hold for all rows "
            "together with 99.9 % confidence.\n\n"
            f"{len(report.claimed)} of {len(report.rows)} rows have a bound that is claimed; "
            f"{len(report.exceeded)} exceed it. {report.power}"
        )
    ]
    columns = ["target", "measured", "interval", "without these messages", "bound", "verdict"]
    for adversary, rows in report.by_adversary().items():
        cells = [_audit_cells(report, row) for row in rows]
        blocks.append(Table(columns, cells, f"What is inferred by {adversary}", stacked=True))
    blocks += [Text(note) for note in report.notes()]
    return Section("What attacks found", blocks)


def _audit_cells(report: AuditReport, row: AuditRow) -> list[str]:
    measured, interval, without, bound = report.figures(row)
    without += f" ({row.chance_is})" * bool(row.chance_is)
    bound += f" ({row.bound_is})" * bool(row.bound_is)
    return [row.about, measured, interval, without, bound, report.verdict(row)]


def trees_section(run: Run) -> Section | None:
    """Return the distribution of the workload and a tree; None where the run builds no trees."""
    texts = run.config.profile.texts(run.config).trees
    if texts is None:
        return None
    if run.about.deployed:
        return None
    trees, words = run.trees, texts.workload
    balanced = trees.balancer != "none"
    if balanced and trees.degree.any():
        saved = 100 * (1 - trees.workload.sum() / trees.degree.sum())
        words += f" Trimming saves {saved:.1f} % of the leaf messages of an epoch."
    blocks: list[Block] = [Text(words)]
    if len(trees.workload):
        blocks += [_workload(run, texts, balanced), _tree(run, texts)]
    else:
        blocks.append(
            Text(
                f"The largest workload is {trees.max_workload or 0:,}, as the observer of the "
                "simulation counted. The folder of the run keeps no other: workloads are degrees."
            )
        )
    if texts.virtual_nodes:
        blocks.append(
            Text(
                "The network runs along the lines of the tree. Each branch joins a leaf of the "
                "device and a leaf of one neighbour; parents and root stand for nobody and begin "
                "empty. Afterwards the leaves that stand for one device are pooled into its "
                "embedding."
            )
        )
    return Section("Workload and trees", blocks)


def _workload(run: Run, texts: TreeTexts, balanced: bool) -> Figure:
    trees, marks = run.trees, {}
    series = {"every neighbour kept": trees.degree}
    if balanced:
        series[f"after {trees.balancer}"] = trees.workload
        entry = entry_of(str(run.about.source.get("spec", "")))
        if entry and (largest := texts.reported_largest.get(entry.name)) is not None:
            marks[f"paper: largest {largest:g}"] = largest
    return Figure(
        cdf(
            {f"{name}, largest {load.max(initial=0):,}": load for name, load in series.items()},
            title="Workload of the devices",
            x_title="workload: branches of a tree",
            marks=marks,
        ),
        f"Mean {trees.workload.mean():.2f}, largest {trees.max_workload or 0:,}. The observer "
        "of the simulation counted; no device and no coordinator sees this.",
    )


def _tree(run: Run, texts: TreeTexts) -> Figure:
    branches, alike = moderate(run.trees.workload)
    return Figure(
        tree(branches, texts.own_leaf, texts.other_leaf, virtual_nodes=texts.virtual_nodes),
        f"A tree of moderate size: {alike:,} of {run.about.devices:,} devices have one of "
        f"{branches:,} branches, built by {texts.builder}. The observer of the simulation drew it "
        "from the workloads; which device it is and who its neighbours are is left out on purpose.",
    )


def settings_section(run: Run) -> Section:
    """Return the settings that were changed, and the others, each with its meaning."""
    config = run.config
    unused = config.profile.texts(config).unused_settings
    defaults, values = _defaults(config), config.flat()
    rows: dict[bool, list[list[str]]] = {True: [], False: []}
    for group in (config.train, config.profile_settings, config.model, config.trees):
        meanings = descriptions(type(group))
        for name in (field.name for field in dataclasses.fields(group)):
            if name not in unused:
                row = [f"`{name}`", _shown(getattr(group, name)), meanings.get(name, "")]
                rows[values[name] != defaults[name]].append(row)
    captions = {True: "Settings that were given", False: "Settings left at their defaults"}
    blocks: list[Block] = [
        Table(["setting", "value", "meaning"], rows[given], caption, stacked=True)
        for given, caption in captions.items()
        if rows[given]
    ]
    if improvements := config.improvements():
        blocks.append(Text(f"Beyond the letter of the paper: {'; '.join(improvements)}."))
    return Section("Settings", blocks)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not given" if value is None else _option_value(value)


def rerun_section(run: Run) -> Section:
    """Return the command that repeats the run, and what else the figures depend on."""
    about, command = run.about, rerun_command(run)
    in_memory = (
        "This run was made from Python with a graph in memory; `lumos.train(graph, …)` "
        "with the settings above and this seed makes it again."
    )
    if about.deployed:
        in_memory = (
            "Real devices made this run, each with its own data. `lumos up GRAPH` with the "
            "settings above makes such a run on one machine."
        )
    blocks: list[Block] = [
        Text(in_memory)
        if command is None
        else Code(
            command,
            "The command of this run; `DIR` is a new folder, and `lumos report DIR` makes its "
            "page. A graph given by name is looked for in `LUMOS_DATA` or `--data-dir`.",
        )
    ]
    if run.config.train.randomness == "system":
        words = "Randomness came from the operating system: another run gives other figures."
        blocks.append(Text(words))
    rows: list[tuple[str, str]] = [
        ("seed", str(about.seed)),
        ("shards", str(about.shards)),
        *([("fingerprint of the graph", about.fingerprint)] if about.fingerprint else []),
        ("Lumos", about.lumos),
        *about.versions.items(),
    ]
    caption = "What the figures depend on, beside the settings"
    return Section("Run it again", [*blocks, Table(["", "in this run"], rows, caption)])


def rerun_command(run: Run, out: str = "DIR") -> str | None:
    """Return the command that repeats a run; None where the graph was in memory only.

    Where a setting is no option of the command line, it is a call in Python.

    Args:
        out: the folder that the command would write.
    """
    source = dict(run.about.source)
    if "spec" not in source:
        return None
    reading = {name: value for name, value in source.items() if name != "spec"}
    usual = _defaults(run.config)
    changed = {name: value for name, value in run.config.flat().items() if value != usual[name]}
    if not {*reading, *changed} <= {*TRAIN_OPTIONS}:
        return _python_call(run, reading, changed, out)
    words = ["lumos", "train", str(source.pop("spec"))]
    words += _options(source, dataclasses.asdict(ReadOptions()))
    words += _options(run.config.flat(), usual)
    words += ["--seed", str(run.about.seed)]
    if run.about.shards != 1:
        words += ["--shards", str(run.about.shards)]
    return shlex.join([*words, "--out", out])


def _python_call(run: Run, reading: Mapping[str, Any], changed: Mapping[str, Any], out: str) -> str:
    """Return the call of `lumos.train` that repeats a run."""
    words = [repr(run.about.source["spec"]), *_keywords(reading), *_keywords(changed)]
    words += _keywords({"seed": run.about.seed})
    words += _keywords({"shards": run.about.shards}) * (run.about.shards != 1)
    return f"lumos.train({', '.join([*words, *_keywords({'out': out})])})"


def _keywords(values: Mapping[str, Any]) -> list[str]:
    texts = {name: str(v) if isinstance(v, Path) else v for name, v in values.items()}
    return [
        f'{name}=float("inf")' if value == float("inf") else f"{name}={_written(value)}"
        for name, value in texts.items()
    ]


def _written(value: Any) -> str:
    """Return a setting as Python takes it; of a layer, model or optimizer the name."""
    recorded = isinstance(value, str) and ":" in value
    return part_name(value) if callable(value) or recorded else repr(value)


def _defaults(config: Config) -> dict[str, Any]:
    """Return what `Config.of` gives for this profile and task, which have their own defaults."""
    chosen: dict[str, Any] = {"task": config.train.task, "profile": config.train.profile}
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
        elif (text := _option_value(value)).startswith("-"):
            words.append(f"--{option}={text}")  # else it would be read as an option
        else:
            words += [f"--{option}", text]
    return words


def _option_value(value: Any) -> str:
    """Return a setting as the command line takes it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if callable(value):
        return part_name(value)
    return str(value) if isinstance(value, Path | str | int) else repr(value)

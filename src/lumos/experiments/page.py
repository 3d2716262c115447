"""The report page: every figure, its table and what to know of it, in one file."""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lumos.exchange.topic import TOPICS
from lumos.experiments import tables
from lumos.experiments.cost import DeviceModel
from lumos.experiments.figures import BACKBONES, MEASURES, Bench, Row
from lumos.experiments.plots import Drawn
from lumos.report import Block, Code, Figure, Page, Section, Table, Text
from lumos.report.sections.messages import DOORS

if TYPE_CHECKING:
    from lumos.experiments.reproduce import RunPlan, Told


def page(
    plan: "RunPlan",
    rows: dict[str, list[Row]],
    drawn: dict[str, Drawn],
    result: "Told",
    about: list[str],
) -> Page:
    """One page for all figures."""
    from lumos.experiments.reproduce import device_words, duration

    asked = plan.asked
    graphs = ", ".join(
        f"{one.name} ({one.devices:,} devices, {one.edges:,} edges)" for one in asked.subjects
    )
    summary = [
        f"The evaluation of the paper on {graphs}, {_profiles(asked.profiles)} beside the paper's "
        "numbers.",
        *headlines(rows),
        *(sentence.replace("**", "") for sentence in about[1:]),
        f"{len(plan.keys)} runs: {result.ran} computed now in {duration(result.seconds)} "
        f"(planned {duration(result.planned_seconds)}), {result.known} known from before.",
    ]
    sections = [
        _section(figure, of, drawn[figure], [device_words()] if figure == "cost" else [])
        for figure, of in rows.items()
    ]
    sections.append(_left(plan))
    if result.failed or result.refused:
        lines = [*(f"failed: {line}" for line in result.failed)]
        lines += [f"refused: {line}" for line in result.refused]
        sections.append(Section("What is missing", [Text("\n\n".join(lines))]))
    sections.append(_settings(plan))
    return Page(
        title="Lumos: the paper's evaluation, reproduced",
        subtitle=f"{asked.frozen.form} form · {', '.join(one.name for one in asked.subjects)}",
        summary=summary,
        sections=sections,
    )


def _profiles(names: Sequence[str]) -> str:
    return "in both profiles" if len(names) > 1 else f"in the {names[0]} profile"


def _left(plan: "RunPlan") -> Section:
    """The ledgers of one training run for each graph, profile and task, with their doors."""
    for module in _TOPICS:
        import_module(module)
    blocks: list[Block] = []
    for subject in plan.asked.subjects:
        ledgers = {
            (profile, task): found
            for profile in plan.asked.profiles
            for task in MEASURES
            if (found := _ledger(plan.bench(subject), profile, task))
        }
        if ledgers:
            blocks += _tables(subject.name, ledgers)
            continue
        trained = any(cell.kind == "train" and cell.graph == subject.spec for cell in plan.found)
        why = (
            "the runs behind these figures were kept without their ledger; --kept none makes anew"
            if trained
            else "no training run at ε = 2 is behind these figures"
        )
        blocks.append(Text(f"{subject.name}: {why}."))
    about = (
        "Every message that leaves a device passes one of five doors, and the ledger counts it "
        "there: messages, and bytes of their bodies, in one whole run at ε = 2. Topics that end in "
        "`ideal` were computed in the clear and booked as the real protocol sends them."
    )
    return Section("What left the devices", [Text(about), *blocks])


Ledgers = Mapping[tuple[str, str], tuple[str, dict[str, Any]]]
"""By profile and task: the backbone, and by topic door, messages and bytes."""


def _tables(name: str, ledgers: Ledgers) -> list[Block]:
    named = {f"{p}, {t} ({backbone})": of for (p, t), (backbone, of) in ledgers.items()}
    by_door = [
        [door.value, passes, protects, *(_passed(of, door) for of in named.values())]
        for door, (passes, protects) in DOORS.items()
    ]
    columns = ["door", "what passes", "what protects it", *named]
    blocks: list[Block] = [Table(columns, by_door, f"{name}: the doors", stacked=True)]
    for profile in dict.fromkeys(profile for profile, _ in ledgers):
        of = {task: ledger for (p, task), (_, ledger) in ledgers.items() if p == profile}
        doors = {topic: line[0] for one in of.values() for topic, line in one.items()}
        ordered = sorted((_ORDER.index(door), topic) for topic, door in doors.items())
        lines = [
            [
                topic,
                doors[topic],
                *(one[topic][1] if topic in one else 0 for one in of.values()),
                TOPICS[topic].learns if topic in TOPICS else "",
            ]
            for _, topic in ordered
        ]
        headings = ["topic", "door", *(f"messages, {task}" for task in of), "who learns what"]
        words = f"{name}: the ledger of the {profile} profile"
        blocks.append(Table(headings, lines, words, stacked=True))
    return blocks


_ORDER = [str(door) for door in DOORS]
"""The least protected first."""
_TOPICS = (
    "lumos.runs.train",
    "lumos.strict.topics",
    "lumos.trees.balance",
    "lumos.trees.balancers.mcmc",
    "lumos.trees.balancers.optimal",
)
"""Modules that know every topic."""


def _ledger(bench: Bench, profile: str, task: str) -> tuple[str, dict[str, Any]] | None:
    """The backbone and the ledger of the first run that has one."""
    for backbone in BACKBONES:
        result = bench.ask(bench.train(profile, task, backbone, 2.0, 0)).result
        if result and "left" in result:
            return backbone.upper(), result["left"]
    return None


def _passed(ledger: dict[str, Any], door: str) -> str:
    lines = [(messages, size) for through, messages, size in ledger.values() if through == door]
    if not lines:
        return "nothing"
    messages, size = (sum(column) for column in zip(*lines, strict=True))
    return f"{messages:,} messages, {size / 1e6:,.1f} MB"


def headlines(rows: dict[str, list[Row]]) -> list[str]:
    """The scores of every graph in a sentence each, and what trimming saves."""
    found = []
    kinds = (
        ("classification", "accuracy, %", "devices whose label is told rightly, in %"),
        ("link-prediction", "ROC-AUC", "how well edges are told from other pairs, ROC-AUC"),
    )
    for figure, measure, what in kinds:
        for name, some in tables.by_graph(rows.get(figure, [])).items():
            scored = [row for row in some if row.measure == measure and row.ours is not None]
            shown = [row for row in scored if row.backbone in ("gcn", "")]
            said = [
                f"{row.system} {tables.number(row.ours, row)}"
                + (f" ({_beside(row)})" if row.over_control is not None else "")
                for row in shown
            ]
            if said:
                seeds = max(row.seeds for row in shown)
                of = "one seed" if seeds == 1 else f"means of up to {seeds} seeds"
                found.append(f"On {name}, {what}, with GCN at ε = 2 ({of}): {', '.join(said)}.")
    for name, some in tables.by_graph(rows.get("workload", [])).items():
        said = [f"{tables.ours(row)} ({row.system})" for row in some if row.ours is not None]
        if said:
            found.append(f"On {name}, most edges that one device carries: {', '.join(said)}.")
    return found


def _beside(row: Row) -> str:
    return f"{row.over_control:+.{row.digits}f} over its control"


def _section(figure: str, rows: list[Row], drawn: Drawn, about: list[str]) -> Section:
    from lumos.experiments.reproduce import caption

    notes = tables.Notes()
    named = caption(figure)
    bodies = {
        f"{name}. {named}": tables.body(some, notes) for name, some in tables.by_graph(rows).items()
    }
    said = "\n\n".join(
        [*about, *(f"{number}. {sentence}" for sentence, number in notes.said.items())]
    )
    blocks: list[Block] = [
        *(Figure(svg, words) for svg, words in drawn.values()),
        *(Table(*body, words, stacked=True) for words, body in bodies.items()),
        *([Text(said)] if said else []),
    ]
    return Section(figure.replace("-", " ").capitalize(), blocks)


def _settings(plan: "RunPlan") -> Section:
    asked = plan.asked
    frozen = asked.frozen
    device = dataclasses.asdict(DeviceModel())
    told: list[tuple[str, str]] = [
        ("form", frozen.form),
        ("seeds at ε = 2", str(frozen.seeds)),
        ("seeds elsewhere", str(frozen.other_seeds)),
        *((f"epochs, {group}", _by(epochs)) for group, epochs in frozen.epochs.items()),
        ("epochs without a better score, at most", str(frozen.patience or "any number")),
        *((f"ε with a control, {who}", _by(at)) for who, at in frozen.control_at.items()),
        *((f"seeds with a control, {who}", _by(n)) for who, n in frozen.control_seeds.items()),
        *((f"{name} settings", _by(given)) for name, given in frozen.baseline.items()),
        *((f"graph {one.name}", f"fingerprint {one.whole}") for one in asked.subjects),
        *((f"device: {name}", f"{value:g}") for name, value in device.items()),
    ]
    codes = sorted({key.code for key in plan.keys.values()})
    told.append(("code versions of the cells", ", ".join(codes)))
    again = Text("Results are kept by settings, graph and code version: nothing runs twice.")
    table = Table(("setting", "value"), told, "Settings", stacked=True)
    return Section("Settings, and how to run it again", [Code(asked.command), again, table])


def _by(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {_said(value)}" for name, value in values.items())


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)

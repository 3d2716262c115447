"""The report page: every figure, its table and what to know of it, in one file."""

import dataclasses
from collections.abc import Mapping, Sequence

from lumos.experiments import row_tables
from lumos.experiments.device_model import DeviceModel
from lumos.experiments.figures.plots import Plots
from lumos.experiments.figures.row import Row
from lumos.experiments.ledger_section import ledger_section
from lumos.experiments.plan import RunPlan
from lumos.experiments.reproduction import Reproduction
from lumos.experiments.result_versions import result_kind
from lumos.experiments.sentences import about_figure, caption, duration
from lumos.report import Block, Code, Figure, Page, Section, Table, Text


def page(
    plan: RunPlan,
    rows: dict[str, list[Row]],
    plots: dict[str, Plots],
    outcome: Reproduction,
    about: list[str],
) -> Page:
    """One page for all figures."""
    request = plan.request
    graphs = ", ".join(
        f"{one.name} ({one.devices:,} devices, {one.edges:,} edges)" for one in request.datasets
    )
    summary = [
        f"The evaluation of the paper on {graphs}, {_profiles(request.profiles)} beside the "
        "paper's numbers.",
        *headlines(rows),
        *(sentence.replace("**", "") for sentence in about[1:]),
        f"{len(plan.keys)} runs: {outcome.ran} computed now in {duration(outcome.seconds)} "
        f"(planned {duration(outcome.planned_seconds)}), {outcome.known} known from before"
        f"{f', {len(outcome.left_out)} left out' * bool(outcome.left_out)}.",
    ]
    sections = [_figure_section(figure, of, plots[figure]) for figure, of in rows.items()]
    sections.append(ledger_section(plan))
    if outcome.failed or outcome.refused:
        lines = [f"failed: {line}" for line in outcome.failed]
        lines += [f"refused: {line}" for line in outcome.refused]
        sections.append(Section("What is missing", [Text("\n\n".join(lines))]))
    if outcome.left_out:
        sections.append(_left_out_section(outcome))
    sections.append(_settings_section(plan))
    return Page(
        title="Lumos: the paper's evaluation, reproduced",
        subtitle=f"{request.settings.form} form{', shortened' * request.settings.shortened} · "
        f"{', '.join(d.name for d in request.datasets)}",
        summary=summary,
        sections=sections,
    )


def _profiles(names: Sequence[str]) -> str:
    return "in both profiles" if len(names) > 1 else f"in the {names[0]} profile"


def headlines(rows: dict[str, list[Row]]) -> list[str]:
    """The scores of every graph in a sentence each, finished runs only; what trimming saves."""
    sentences = []
    kinds = (
        ("classification", "accuracy, %", "devices whose label is predicted rightly, in %"),
        ("link-prediction", "ROC-AUC", "how well edges are separated from other pairs, ROC-AUC"),
    )
    for figure, measure, what in kinds:
        for name, some in row_tables.by_graph(rows.get(figure, [])).items():
            scored = [
                row
                for row in some
                if row.measure == measure
                and row.ours is not None
                and row.backbone in ("gcn", "")
                and not row.cut
            ]
            if scored:
                most = max(row.seeds for row in scored)
                seeds = "one seed" if most == 1 else f"means of up to {most} seeds"
                scores = ", ".join(_score(row) for row in scored)
                sentences.append(f"On {name}, {what}, with GCN at ε = 2 ({seeds}): {scores}.")
    for name, some in row_tables.by_graph(rows.get("workload", [])).items():
        largest = [f"{row_tables.ours(row)} ({row.system})" for row in some if row.ours is not None]
        if largest:
            sentences.append(
                f"On {name}, most edges that one device carries: {', '.join(largest)}."
            )
    return sentences


def _score(row: Row) -> str:
    text = f"{row.system} {row_tables.number(row.ours, row)}"
    if row.over_control is not None:
        text += f" ({row.over_control:+.{row.digits}f} over its control)"
    return text


def _figure_section(figure: str, rows: list[Row], plots: Plots) -> Section:
    notes = row_tables.Notes()
    bodies = {
        f"{name}. {caption(figure)}": row_tables.body(some, notes)
        for name, some in row_tables.tables(rows).items()
    }
    sentences = [f"{number}. {sentence}" for sentence, number in notes.numbers.items()]
    text = "\n\n".join([*about_figure(figure), *sentences, *row_tables.left_out(rows)])
    blocks: list[Block] = [
        *(Figure(plot.svg, plot.caption) for plot in plots.values()),
        *(Table(*body, words, stacked=True) for words, body in bodies.items()),
        *([Text(text)] if text else []),
    ]
    return Section(figure.replace("-", " ").capitalize(), blocks)


def _left_out_section(outcome: Reproduction) -> Section:
    about = (
        "These runs are not expected to finish within the time of the quick form. None was begun: "
        "a run that is cut says nothing about one that finishes. Without --quick they are run."
    )
    lines = [(run, duration(seconds)) for run, seconds in outcome.left_out.items()]
    table = Table(("run", "expected time on one core"), lines, "Left out", stacked=True)
    return Section("What is left out", [Text(about), table])


def _settings_section(plan: RunPlan) -> Section:
    request, settings = plan.request, plan.request.settings
    device = dataclasses.asdict(DeviceModel())
    versions = {result_kind(cell): key.version for cell, key in plan.keys.items()}
    lines: list[tuple[str, str]] = [
        ("form", settings.form),
        ("epochs asked for", str(settings.asked_epochs or "the frozen ones")),
        ("seeds at ε = 2", str(settings.seeds)),
        ("seeds elsewhere", str(settings.other_seeds)),
        *((f"frozen epochs, {group}", _items(epochs)) for group, epochs in settings.epochs.items()),
        ("epochs without a better score, at most", str(settings.patience or "any number")),
        *((f"ε with a control, {who}", _items(at)) for who, at in settings.control_at.items()),
        *((f"seeds with a control, {who}", _items(n)) for who, n in settings.control_seeds.items()),
        *((f"{name} settings", _items(given)) for name, given in settings.baseline.items()),
        *((f"graph {one.name}", f"fingerprint {one.whole}") for one in request.datasets),
        *((f"device: {name}", f"{value:g}") for name, value in device.items()),
        ("result versions of the cells", _items(dict(sorted(versions.items())))),
    ]
    again = Text("Results are kept by settings, graph and result version: nothing runs twice.")
    table = Table(("setting", "value"), lines, "Settings", stacked=True)
    return Section("Settings, and how to run it again", [Code(request.command), again, table])


def _items(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in values.items())


def _value(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)

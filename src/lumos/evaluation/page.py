"""The table of an evaluation: for the terminal, for notebooks and for the page."""

from typing import Any, NamedTuple

from lumos.display import duration
from lumos.evaluation.result import EvaluatedSystem, Evaluation, SystemRuns, SystemScore
from lumos.report import (
    Block,
    Code,
    Fact,
    Facts,
    Figure,
    Page,
    Section,
    Table,
    Text,
    bars,
    confusion_block,
    dots,
    per_class_table,
    seeds_figure,
)
from lumos.report.charts import SYSTEM_STYLES
from lumos.report.display import fragment, listed
from lumos.report.display import table as html_table
from lumos.report.display import title as heading
from lumos.runs.text import aligned
from lumos.training.config import Config
from lumos.training.metrics import HITS
from lumos.training.profile import PAPER, STRICT
from lumos.training.trainer import OWN

NAMES = {
    "test_accuracy": "accuracy",
    "test_macro_f1": "macro-F1",
    "test_balanced_accuracy": "balanced accuracy",
    "test_calibration_error": "calibration error",
    "test_auc": "ROC-AUC",
    "test_average_precision": "average precision",
    **{f"test_hits_at_{most}": f"hits@{most}" for most in HITS},
}
"""Names of metrics in tables."""
SHORT = {"test_balanced_accuracy": "balanced", "test_average_precision": "avg. precision"}
"""Names of metrics in narrow tables."""
SIDELINES = ("test_calibration_error",)
"""Metrics that stand in wide tables only."""


class Body(NamedTuple):
    """A table as text."""

    headings: list[str]
    lines: list[list[str]]


def unit(evaluation: Evaluation) -> tuple[float, int, str]:
    """Factor, decimals and unit of its scores: per cent for classify, shares for link."""
    return (1.0, 3, "") if evaluation.task == "link" else (100.0, 2, "%")


def body(evaluation: Evaluation, *, wide: bool = False) -> Body:
    """System, scores, the paired difference to the local model, seeds, seconds.

    Args:
        wide: with every metric, and its whole name.
    """
    factor, digits, sign = unit(evaluation)
    metrics = [metric for metric in evaluation.metrics if wide or metric not in SIDELINES]
    names = NAMES if wide else {**NAMES, **SHORT}
    compared = any(row.minus_local is not None for row in evaluation.rows)
    headings = ["system", *(f"{names[metric]} {sign}".rstrip() for metric in metrics)]
    headings += [f"{names[metrics[0]]} minus local" if wide else "minus local"] * compared
    same = {len(runs.results) for runs in evaluation.runs} == {len(evaluation.seeds)}
    headings += ["seeds"] * (not same) + ["seconds a run" if wide else "seconds"]
    lines = []
    for runs in evaluation.runs:
        rows = [evaluation.row(runs.system.key, metric) for metric in metrics]
        main = rows[0]
        line = [main.system, *(_score(row, factor, digits) for row in rows)]
        line += [difference(main, factor, digits)] * compared
        line += [str(main.seeds)] * (not same)
        lines.append([*line, "" if main.seconds is None else f"{main.seconds:,.1f}"])
    return Body(headings, lines)


def _score(row: SystemScore, factor: float, digits: int) -> str:
    if row.mean is None:
        return "none"
    text = f"{factor * row.mean:.{digits}f}"
    return text if row.sd is None else f"{text} ± {factor * row.sd:.{digits}f}"


def difference(row: SystemScore, factor: float, digits: int) -> str:
    """Mean ± standard deviation of the paired difference to the local model."""
    if row.minus_local is None:
        return ""
    text, spread = f"{factor * row.minus_local:+.{digits}f}", row.minus_local_sd
    return text if spread is None else f"{text} ± {factor * spread:.{digits}f}"


def title(evaluation: Evaluation) -> str:
    """Graph, task and seeds in a line."""
    count = len(evaluation.seeds)
    seeds = f"seed {evaluation.seeds[0]}"
    if count > 1:
        seeds = f"{count} seeds ({evaluation.seeds[0]} to {evaluation.seeds[-1]})"
    return (
        f"{evaluation.graph}: {evaluation.devices:,} devices, {evaluation.edges:,} edges · "
        f"{evaluation.task} · {seeds}"
    )


def remarks(evaluation: Evaluation) -> list[str]:
    """Return remarks on the table, a sentence each."""
    sentences = ["± is the standard deviation over seeds."] * (len(evaluation.seeds) > 1)
    sentences += budgets(evaluation)
    if any(row.minus_local is not None for row in evaluation.rows):
        sentences.append(
            "minus local: the difference to the local model under the same protection, paired by "
            "seed."
        )
    if evaluation.task == "link":
        sentences += few_negatives(evaluation)
    for runs in evaluation.runs:
        if runs.reasons:
            seeds = ", ".join(map(str, runs.reasons))
            sentences.append(f"{runs.system.name} has no result of seed {seeds}: {runs.reason}")
    sentences += [f"{name} is left out: {why}" for name, why in evaluation.left_out.items()]
    return [*sentences, *(f"note on the graph: {note}" for note in evaluation.notes)]


_BUDGETS = {
    "label_epsilon": "a label",
    "feature_epsilon": "a device's features",
    "edge_epsilon": "one undirected edge",
}


def budgets(evaluation: Evaluation) -> list[str]:
    """Return a sentence on the ε that systems were given, if they were given any."""
    parts = []
    for setting, what in _BUDGETS.items():
        by_value: dict[str, list[str]] = {}
        for runs in evaluation.runs:
            value = next((one["settings"].get(setting) for one in runs.results.values()), None)
            if value is not None and runs.system.applying({setting: 1.0}):
                by_value.setdefault(f"{float(value):g}", []).append(runs.system.name)
        for value, names in by_value.items():
            parts.append(f"ε = {value} for {what}" + f" ({', '.join(names)})" * (len(by_value) > 1))
    if not parts:
        return []
    return [f"Budget of every system that protects it: {'; '.join(parts)}."]


def few_negatives(evaluation: Evaluation) -> list[str]:
    """A sentence where hits@K are 1 by definition."""
    sizes = [
        result["split"]["test"]
        for runs in evaluation.runs
        for result in runs.results.values()
        if "split" in result
    ]
    empty = [f"hits@{most}" for most in HITS if sizes and min(sizes) < most]
    if not empty:
        return []
    return [
        f"{', '.join(empty)} would need as many pairs without an edge, and there are {min(sizes)}: "
        "every score is 1 by definition"
    ]


def protections(evaluation: Evaluation) -> dict[str, str]:
    """By name of a system, what protects label, features and edges."""
    rows = (evaluation.row(runs.system.key) for runs in evaluation.runs)
    return {row.system: row.protects for row in rows if row.protects}


def as_text(evaluation: Evaluation) -> str:
    """The table as plain text, with what protects each system below it."""
    table = body(evaluation)
    lines = [title(evaluation), "", *aligned(table.headings, table.lines, indent="")]
    lines += ["", *remarks(evaluation), "", "What protects label, features and edges:"]
    lines += [f"  {name}: {what}" for name, what in protections(evaluation).items()]
    return "\n".join([*lines, "", work(evaluation)])


def work(evaluation: Evaluation) -> str:
    """Return the number of runs, and their time."""
    known = f"{evaluation.known} runs were known" * bool(evaluation.known)
    processor = f"All together took {duration(evaluation.cpu_seconds)} of processor time."
    if not evaluation.ran:
        return f"All {known}. {processor}"
    now = (
        f"{evaluation.ran} runs in {duration(evaluation.seconds)}, in {evaluation.processes} "
        f"{'process' if evaluation.processes == 1 else 'processes'}"
    )
    return f"{now}; {known}. {processor}" if known else f"{now}. {processor}"


def as_html(evaluation: Evaluation) -> str:
    """The table as HTML; every name is escaped."""
    scores = body(evaluation)
    parts = [heading("Evaluation", title(evaluation)), html_table(scores.headings, scores.lines)]
    return fragment(*parts, listed(remarks(evaluation)))


# The page of `lumos.evaluate`: scores, what neighbours add, single classes, protection, cost.

FACTS = (STRICT, PAPER, OWN, "centralized")
"""Systems whose scores are read first."""
ANSWERED = 2.0
"""Standard errors from which on a difference is called more than noise."""


def page(evaluation: Evaluation) -> Page:
    """One page for one evaluation."""
    sections = [_scores(evaluation), _protection(evaluation)]
    if evaluation.classes:
        sections.append(_classes(evaluation))
    sections += [_cost(evaluation), _settings(evaluation)]
    return Page(
        title=f"{evaluation.graph}: systems compared",
        subtitle=title(evaluation),
        summary=[_facts(evaluation), *_summary(evaluation)],
        sections=sections,
    )


def _main_rows(evaluation: Evaluation) -> list[SystemScore]:
    return [evaluation.row(runs.system.key) for runs in evaluation.runs]


def _facts(evaluation: Evaluation) -> Facts:
    factor, digits, sign = unit(evaluation)
    space = "\N{NO-BREAK SPACE}"
    facts = []
    for row in _main_rows(evaluation):
        if row.mean is None or row.key not in FACTS:
            continue
        spread = f"± {factor * row.sd:.{digits}f} over {row.seeds} seeds" if row.sd else "one seed"
        value = f"{factor * row.mean:.{digits}f}" + f"{space}{sign}" * bool(sign)
        facts.append(Fact(value, row.system, spread, strong=row.key == STRICT))
    return Facts(facts)


def _summary(evaluation: Evaluation) -> list[str]:
    """Return the main results of the table in plain words."""
    metric = NAMES[evaluation.metrics[0]]
    sentences = [
        f"Test {metric} on {evaluation.graph}: every system with the same "
        f"{len(evaluation.seeds)} seeds and splits, finished runs with each system's own defaults. "
        "Scores are the observer's, from true data: no guarantee covers them."
    ]
    rows = {row.key: row for row in _main_rows(evaluation)}
    if STRICT in rows and rows[STRICT].minus_local is not None:
        sentences.append(_added(rows[STRICT], evaluation))
    return sentences


def _added(row: SystemScore, evaluation: Evaluation) -> str:
    factor, digits, sign = unit(evaluation)
    gain, error = factor * (row.minus_local or 0.0), row.minus_local_se
    points = "points" if sign else f"of {NAMES[row.metric]}"
    alone = "the local model" if sign else "what a device knows alone"
    if row.by_seed == evaluation.row(OWN).by_seed:
        return f"Messages add nothing to {alone} under the same protection: scores are the same."
    text = f"Messages add {gain:+.{digits}f} {points} to {alone} under the same protection"
    if error is None:
        return f"{text}, with one seed: more seeds would tell how sure that is."
    error *= factor
    sure = abs(gain) > ANSWERED * error
    verdict = "more than chance explains" if sure else "which may be chance"
    return f"{text}, with a standard error of {error:.{digits}f}: {verdict}."


def _styles(rows: list[SystemScore]) -> dict[str, int]:
    """Return the style of each system in charts, by its name."""
    return {row.system: SYSTEM_STYLES[row.key] for row in rows if row.key in SYSTEM_STYLES}


def _scores(evaluation: Evaluation) -> Section:
    factor, digits, sign = unit(evaluation)
    main = evaluation.metrics[0]
    rows = _main_rows(evaluation)
    styles = _styles(rows)
    blocks: list[Block] = [
        seeds_figure(
            {row.system: [factor * score for score in row.by_seed.values()] for row in rows},
            f"Test {NAMES[main]}",
            unit=sign,
            digits=digits,
            styles=styles,
        )
    ]
    paired = [row for row in rows if row.minus_local is not None]
    if paired:
        blocks.append(
            Figure(
                dots(
                    ["difference"],
                    [row.system for row in paired],
                    [[_times(row.minus_local, factor) for row in paired]],
                    [[_times(row.minus_local_se, factor) for row in paired]],
                    title=f"Test {NAMES[main]} minus local" + ", in points" * bool(sign),
                    digits=digits,
                    styles=styles,
                ),
                "Differences to the local model under the same protection, on the same seeds; here "
                "± is the standard error of the mean.",
            )
        )
    table = body(evaluation)
    blocks.append(Table(table.headings, table.lines, "Test scores"))
    blocks.append(Text(" ".join(_sentence(remark) for remark in remarks(evaluation))))
    return Section("Scores", blocks)


def _protection(evaluation: Evaluation) -> Section:
    about = (
        "A score without its guarantee says half. (ε, δ) is of the whole run: what somebody who "
        "sees every message and the model can tell; of several kinds of devices the weakest counts."
    )
    rows = [[name, what] for name, what in protections(evaluation).items()]
    caption = "What protects label, features and edges"
    return Section(
        "Protection", [Text(about), Table(["system", "protected by"], rows, caption, stacked=True)]
    )


def _classes(evaluation: Evaluation) -> Section:
    """F1 of each class by system; the first system's classes and confusions, beside own's."""
    scored = [runs for runs in evaluation.runs if runs.per_class()]
    if not scored:
        return Section("Single classes", [])
    first, others = scored[0], scored[1:]
    beside = {
        runs.system.key: _rows(runs, evaluation) for runs in others if runs.system.variant == OWN
    }
    beside |= {runs.system.key: _rows(runs, evaluation) for runs in others}
    name = first.system.name
    about = (
        "Precision, recall and F1 are means over seeds, devices of a class too. The matrix has the "
        "test devices of all seeds together."
    )
    return Section(
        "Single classes",
        [
            per_class_table(_rows(first, evaluation), beside, f"{name}: single classes in %"),
            confusion_block(evaluation.classes, first.confusion().tolist(), f"{name}: confusions"),
            Text(about),
        ],
    )


def _rows(runs: SystemRuns, evaluation: Evaluation) -> list[dict[str, Any]]:
    return [
        {**row, "class": name, "devices": round(row["devices"])}
        for name, row in zip(evaluation.classes, runs.per_class(), strict=True)
    ]


def _cost(evaluation: Evaluation) -> Section:
    rows = [row for row in _main_rows(evaluation) if row.seconds is not None]
    blocks: list[Block] = []
    if rows:
        drawing = bars(
            ["seconds"],
            [row.system for row in rows],
            [[row.seconds for row in rows]],
            unit="s",
            title="Seconds of one run",
            digits=1,
            styles=_styles(rows),
        )
        blocks.append(Figure(drawing, "Wall-clock time, while other runs took the other cores."))
    blocks.append(
        Text(
            f"{work(evaluation)} "
            "They are simulations on one machine: a time says nothing of real devices. "
            f"{_sentence(EvaluatedSystem(OWN, evaluation.task).name)[:-1]} is a part of its run "
            "and has no time of its own."
        )
    )
    return Section("Cost", blocks)


def _settings(evaluation: Evaluation) -> Section:
    lines = [
        [runs.system.name, ", ".join(f"{name} {value}" for name, value in _changed(runs).items())]
        for runs in evaluation.runs
        if runs.system.variant != OWN and runs.results
    ]
    caption = "Settings that matter to a score, as they were used"
    blocks: list[Block] = [
        Code(evaluation.command),
        Table(["system", "settings"], lines, caption, stacked=True),
    ]
    return Section("Settings, and how to run it again", blocks)


def _changed(runs: SystemRuns) -> dict[str, object]:
    result = next(iter(runs.results.values()))
    names = ("epochs", "epsilon", "label_epsilon", "feature_epsilon", "delta", "backbone")
    settings, unused = result["settings"], frozenset[str]()
    if runs.system.profile:
        config = Config.of(profile=runs.system.profile, task=result["task"])
        unused = frozenset(name for name in names if config.profile.ignores(name, config))
    found = {name: settings.get(name) for name in names if name not in unused}
    return {name: value for name, value in found.items() if value is not None}


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}".rstrip(".") + "."


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value

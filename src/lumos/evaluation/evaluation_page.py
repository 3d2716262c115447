"""The page of `lumos.evaluate`: scores, what neighbours add, single classes, protection, cost."""

from typing import Any

from lumos.evaluation.evaluated_systems import EvaluatedSystem
from lumos.evaluation.result import Evaluation, SystemRuns, SystemScore
from lumos.evaluation.table import NAMES, body, protections, remarks, title, unit, work
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
from lumos.training.config import Config
from lumos.training.profile import PAPER, STRICT
from lumos.training.trainer import OWN

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
    """What the table says, in plain words."""
    metric = NAMES[evaluation.metrics[0]]
    sentences = [
        f"Test {metric} on {evaluation.graph}: every system with the same "
        f"{len(evaluation.seeds)} seeds and splits, finished runs with each system's own defaults. "
        "Scores are the observer's, from true data: no promise covers them."
    ]
    rows = {row.key: row for row in _main_rows(evaluation)}
    if STRICT in rows and rows[STRICT].minus_own is not None:
        sentences.append(_added(rows[STRICT], evaluation))
    return sentences


def _added(row: SystemScore, evaluation: Evaluation) -> str:
    factor, digits, sign = unit(evaluation)
    gain, error = factor * (row.minus_own or 0.0), row.minus_own_se
    points = "points" if sign else f"of {NAMES[row.metric]}"
    alone = "own features" if sign else "what a device knows alone"
    if row.by_seed == evaluation.row(OWN).by_seed:
        return f"Messages add nothing to {alone} under the same protection: scores are the same."
    text = f"Messages add {gain:+.{digits}f} {points} to {alone} under the same protection"
    if error is None:
        return f"{text}, with one seed: more seeds would tell how sure that is."
    error *= factor
    sure = abs(gain) > ANSWERED * error
    verdict = "more than chance explains" if sure else "which may be chance"
    return f"{text}, with a standard error of {error:.{digits}f}: {verdict}."


def _scores(evaluation: Evaluation) -> Section:
    factor, digits, sign = unit(evaluation)
    main = evaluation.metrics[0]
    rows = _main_rows(evaluation)
    blocks: list[Block] = [
        seeds_figure(
            {row.system: [factor * score for score in row.by_seed.values()] for row in rows},
            f"Test {NAMES[main]}",
            unit=sign,
            digits=digits,
        )
    ]
    paired = [row for row in rows if row.minus_own is not None]
    if paired:
        blocks.append(
            Figure(
                dots(
                    ["difference"],
                    [row.system for row in paired],
                    [[_times(row.minus_own, factor) for row in paired]],
                    [[_times(row.minus_own_se, factor) for row in paired]],
                    title=f"Test {NAMES[main]} minus own" + ", in points" * bool(sign),
                    digits=digits,
                ),
                f"Differences to {EvaluatedSystem(OWN, evaluation.task).name}, on the same seeds; "
                "here ± is the standard error of the mean.",
            )
        )
    table = body(evaluation)
    blocks.append(Table(table.headings, table.lines, "Test scores"))
    blocks.append(Text(" ".join(_sentence(remark) for remark in remarks(evaluation))))
    return Section("Scores", blocks)


def _protection(evaluation: Evaluation) -> Section:
    about = (
        "A score without its promise says half. (ε, δ) is of the whole run: what somebody who sees "
        "every message and the model can tell; of several kinds of devices the weakest counts."
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
    beside = {runs.system.key: _rows(runs, evaluation) for runs in others if runs.system.arm == OWN}
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
        if runs.system.arm != OWN and runs.results
    ]
    caption = "Settings that matter to a score, as they were used"
    blocks: list[Block] = [
        Code(evaluation.command),
        Table(["system", "settings"], lines, caption, stacked=True),
    ]
    return Section("Settings, and how to run it again", blocks)


def _changed(runs: SystemRuns) -> dict[str, object]:
    result = next(iter(runs.results.values()))
    names = ("epochs", "epsilon", "label_epsilon", "update_epsilon", "update_delta", "backbone")
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

"""The scores beside own features and control, and what they were measured on."""

import math

from lumos.report.bar_chart import dots
from lumos.report.page import Block, Figure, Section, Table, Text
from lumos.report.record import Record
from lumos.report.summary import ARMS, deviation, shown

_CHOICES = {
    "own": "what own features say, so neighbours did not count",
    "evidence": "own features together with the evidence of the neighbours' symbols",
    "backbone": "own features together with the tree network",
}


def section(record: Record) -> Section:
    """A figure, the same as a table, the split, and what to know."""
    blocks: list[Block] = [_figure(record), _table(record)]
    blocks += [Text(said) for said in _notes(record)]
    return Section("Scores", blocks)


def _figure(record: Record) -> Figure:
    scale, unit, digits = (1, "", 4) if record.link else (100, "%", 2)
    tests = [scores["test"] for scores in record.scores.values()]
    spread = [scale * deviation(record, score) for score in tests]
    known = not any(math.isnan(half) for half in spread)
    drawn = dots(
        [measure(record)],
        [ARMS[arm] for arm in record.scores],
        [[scale * score for score in tests]],
        [spread] if known else None,
        unit=unit,
        title=f"Test {measure(record)}",
        digits=digits,
    )
    about = (
        "± is one standard deviation over the choice of the test set; it says nothing of other "
        "seeds. "
    )
    return Figure(drawn, about * known + "The axis does not begin at 0.")


def _table(record: Record) -> Table:
    rows = [
        [ARMS[arm], shown(scores["validation"], record), shown(scores["test"], record)]
        for arm, scores in record.scores.items()
    ]
    what = measure(record)
    caption = f"{what[0].upper()}{what[1:]}, measured by the observer of the simulation"
    return Table(["", "validation", "test"], rows, caption, beside=True)


def _notes(record: Record) -> list[str]:
    said = []
    split, result = record.result.split, record.result
    if split:
        kind = "edges" if record.link else "labelled devices"
        after = "Trees, releases and training see training edges only." if record.link else ""
        said.append(
            f"Of the {kind}, {split.train:,} train, {split.validation:,} validate and "
            f"{split.test:,} test; which ones is public. {after}"
        )
    if result.choice:
        meaning = _CHOICES.get(result.choice, result.choice)
        said.append(f"Validation chose `{result.choice}`: {meaning}.")
    if result.caution:
        said.append(f"Note: {result.caution}.")
    return said + [f"Note on the graph: {note}." for note in result.notes]


def measure(record: Record) -> str:
    """What a score is called."""
    return "ROC-AUC" if record.link else "accuracy"

"""Rows as tables: for the terminal, and as Markdown."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from reproduce.evaluation import Row

HEADINGS = (
    "system",
    "task",
    "model",
    "ε",
    "measure",
    "the paper",
    "ours",
    "control",
    "over control",
    "notes",
)


class Notes:
    """Numbers of sentences, in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, *sentences: str) -> str:
        """Return the numbers of some sentences, as "1, 3"."""
        return ", ".join(
            str(self.numbers.setdefault(sentence, len(self.numbers) + 1))
            for sentence in sentences
            if sentence
        )


def by_graph(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each graph, in order."""
    names = dict.fromkeys(row.dataset for row in rows)
    return {name: [row for row in rows if row.dataset == name] for name in names}


def cells(row: Row, notes: Notes) -> tuple[str, ...]:
    """Return one row as text, its notes numbered."""
    return (
        row.system,
        row.task,
        row.backbone.upper(),
        "" if row.epsilon is None else f"{row.epsilon:g}",
        row.measure,
        row.paper_shown,
        ours(row),
        number(row.control, row),
        "" if row.over_control is None else f"{row.over_control:+.{row.digits}f}",
        notes.number(row.why, *row.notes),
    )


def ours(row: Row) -> str:
    """Return mean, spread and seeds."""
    text = number(row.ours, row)
    if row.ours is None:
        return "none"
    if row.spread is not None:
        text += f" ± {row.spread:.{row.digits}f} ({row.seeds} seeds)"
    return text


def number(value: float | None, row: Row) -> str:
    """Return a figure as its row writes it: differences with their sign."""
    if value is None:
        return ""
    sign = "+" if row.measure.startswith(("against", "over")) else ""
    return f"{value:{sign},.{row.digits}f}"


def body(rows: Sequence[Row], notes: Notes) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells; an empty column is left out."""
    lines = [cells(row, notes) for row in rows]
    used = [column for column in range(len(HEADINGS)) if any(line[column] for line in lines)]
    return [HEADINGS[c] for c in used], [[line[c] for c in used] for line in lines]


def terminal_table(rows: Sequence[Row], title: str) -> tuple[Table, list[str]]:
    """Return a table for the terminal, and its notes."""
    notes = Notes()
    table = Table(title=Text(title), title_justify="left", box=None, padding=(0, 1))
    headings, lines = body(rows, notes)
    for heading in headings:
        numeric = heading in ("the paper", "ours", "control", "over control")
        table.add_column(heading, justify="right" if numeric else "left")
    for line in lines:
        table.add_row(*map(Text, line))
    return table, [f"{count}. {sentence}" for sentence, count in notes.numbers.items()]


def markdown(rows: Sequence[Row], title: str, about: Sequence[str] = ()) -> str:
    """Return the same as Markdown."""
    notes = Notes()
    headings, rest = body(rows, notes)
    lines = [f"### {title}", ""]
    for sentence in about:
        lines += [sentence, ""]
    lines.append("| " + " | ".join(headings) + " |")
    lines.append("|" + "|".join("---" for _ in headings) + "|")
    lines += ["| " + " | ".join(_cell(text) for text in line) + " |" for line in rest]
    lines.append("")
    lines += [f"{count}. {sentence}" for sentence, count in notes.numbers.items()]
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")

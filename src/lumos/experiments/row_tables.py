"""Rows as tables: for the terminal, and as Markdown."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from lumos.experiments.figures.row import Row

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
        """The numbers of some sentences, as "1, 3"."""
        return ", ".join(
            str(self.numbers.setdefault(sentence, len(self.numbers) + 1))
            for sentence in sentences
            if sentence
        )


def by_graph(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each graph, in order."""
    names = dict.fromkeys(row.dataset for row in rows)
    return {name: [row for row in rows if row.dataset == name] for name in names}


def tables(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each table, by its name: of each graph, and apart from them cut runs.

    Rows whose runs are left out are in none (`left_out`).
    """
    by_name: dict[str, list[Row]] = {}
    for graph, some in by_graph([row for row in rows if not row.left_out]).items():
        for cut in sorted({row.cut for row in some}):
            name = graph + f", runs cut at {cut} epochs" * bool(cut)
            by_name[name] = [row for row in some if row.cut == cut]
    return by_name


def left_out(rows: Sequence[Row]) -> list[str]:
    """A sentence on rows whose runs are left out, where there are any."""
    count = sum(row.left_out for row in rows)
    if not count:
        return []
    rows_are = "1 row of this figure is" if count == 1 else f"{count} rows of this figure are"
    return [f"{rows_are} not here, for lack of a run that the quick form leaves out."]


def cells(row: Row, notes: Notes) -> tuple[str, ...]:
    """One row as text, its notes numbered."""
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
    """Mean, spread and seeds, and where its runs were cut."""
    text = number(row.ours, row)
    if row.ours is None:
        return "none"
    if row.spread is not None:
        text += f" ± {row.spread:.{row.digits}f} ({row.seeds} seeds)"
    if row.cut:
        text += f", cut at {row.cut} epochs"
    return text


def number(value: float | None, row: Row) -> str:
    """A figure as its row writes it: differences with their sign."""
    if value is None:
        return ""
    sign = "+" if row.measure.startswith(("against", "over")) else ""
    return f"{value:{sign},.{row.digits}f}"


def body(rows: Sequence[Row], notes: Notes) -> tuple[list[str], list[list[str]]]:
    """Headings and cells; an empty column is left out."""
    lines = [cells(row, notes) for row in rows]
    used = [column for column in range(len(HEADINGS)) if any(line[column] for line in lines)]
    return [HEADINGS[c] for c in used], [[line[c] for c in used] for line in lines]


def terminal_table(rows: Sequence[Row], title: str) -> tuple[Table, list[str]]:
    """A table for the terminal, and its notes."""
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
    """The same as Markdown."""
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

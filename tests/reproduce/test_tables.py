"""Tables: the same rows for the terminal and as Markdown, each note once."""

from io import StringIO

from reproduce.evaluation import Row
from reproduce.tables import by_graph, markdown, terminal_table
from rich.console import Console

ROWS = [
    Row(
        figure="classification",
        dataset="facebook",
        system="a | b",
        measure="against centralized, points",
        task="classify",
        paper=-16.29,
        paper_shown="-16.29",
        ours=-4.0,
        spread=0.5,
        seeds=3,
        notes=("first", "second"),
        why="because",
    ),
    Row(figure="x", dataset="lastfm", system="c", measure="accuracy, %", notes=("second",)),
    Row(
        figure="x", dataset="facebook", system="d[/b]", measure="accuracy, %", ours=91.234, digits=1
    ),
]


def test_markdown_row_by_row() -> None:
    assert markdown(ROWS, "title", ["about"]).splitlines() == [
        "### title",
        "",
        "about",
        "",
        "| system | task | measure | the paper | ours | notes |",
        "|---|---|---|---|---|---|",
        "| a \\| b | classify | against centralized, points | -16.29 | -4.00 ± 0.50 (3 seeds) "
        "| 1, 2, 3 |",
        "| c |  | accuracy, % |  | none | 3 |",
        "| d[/b] |  | accuracy, % |  | 91.2 |  |",
        "",
        "1. because",
        "2. first",
        "3. second",
    ]


def test_the_terminal_shows_the_same() -> None:
    table, notes = terminal_table(ROWS, "title")
    out = StringIO()
    Console(file=out, width=160).print(table)
    for text in ("-4.00 ± 0.50 (3 seeds)", "a | b", "d[/b]", "none", "91.2", "1, 2, 3"):
        assert text in out.getvalue()
    assert notes == ["1. because", "2. first", "3. second"]


def test_what_a_run_is_over_its_control() -> None:
    row = Row(figure="x", dataset="g", system="s", measure="accuracy, %", ours=90.83, control=90.48,
              over_control=-0.04)  # fmt: skip
    assert markdown([row], "t").splitlines()[2:5] == [
        "| system | measure | ours | control | over control |",
        "|---|---|---|---|---|",
        "| s | accuracy, % | 90.83 | 90.48 | -0.04 |",
    ]


def test_rows_of_each_graph_in_order() -> None:
    graphs = by_graph(ROWS)
    assert list(graphs) == ["facebook", "lastfm"]
    assert [row.system for row in graphs["facebook"]] == ["a | b", "d[/b]"]

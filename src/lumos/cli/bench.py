"""`lumos bench`: ratios against the other way of doing it, both sides in one run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from lumos.cli.common import console, placed, print_json, say
from lumos.errors import UsageError, one_of

if TYPE_CHECKING:
    from lumos.bench.machine import Machine
    from lumos.bench.rows import BenchRow

WIDTH = 150
"""Of the table where it goes to a file."""


def bench(
    *,
    only: Annotated[str | None, placed("only")] = None,
    quick: Annotated[bool, placed("quick", negative="", show_default=False)] = False,
    full: Annotated[bool, placed("full", negative="", show_default=False)] = False,
    seed: Annotated[int, placed("seed")] = 0,
    data_dir: Annotated[
        Path | None, placed("data_dir", env_var="LUMOS_DATA", show_env_var=False)
    ] = None,
    json: Annotated[bool, placed("json", negative="", show_default=False)] = False,
) -> None:
    """Measure speed against the other way of doing it: one table of ratios.

    Both sides of a row run in one command and take turns where they can. Processor seconds stand
    beside those of the clock, and the last line says what else the machine was doing.

    Parameters
    ----------
    only
        Measurements, separated by commas: layers, balancers, compare, sums, endpoint, ranks, scale.
    quick
        Small sizes, within two minutes on an idle machine; the default.
    full
        The sizes that the documentation quotes: Facebook's trees, and up to a million devices.
    seed
        Run seed of the graphs' runs.
    data_dir
        Folder of the graphs (also LUMOS_DATA); without Facebook, a generated graph stands in.
    json
        Print one JSON object on standard output, and nothing else there.
    """
    from lumos.bench import MEASUREMENTS
    from lumos.bench.machine import MachineWatch
    from lumos.bench.rows import BenchSize

    if quick and full:
        raise UsageError("--quick and --full exclude each other; leave one out")
    names = tuple(MEASUREMENTS) if only is None else tuple(filter(None, only.split(",")))
    if not names:
        raise UsageError(f"--only names nothing; use some of {', '.join(MEASUREMENTS)}")
    for name in names:
        one_of("only", name, MEASUREMENTS.names())
    size = BenchSize(full=full, data_dir=data_dir, seed=seed)
    found: dict[str, list[BenchRow]] = {}
    watch = MachineWatch()
    for name in dict.fromkeys(names):
        say(f"measuring {name} …")
        found[name] = MEASUREMENTS[name](size)
    machine = watch.read()
    if json:
        rows = [{"measurement": name, **asdict(row)} for name in found for row in found[name]]
        print_json({"form": "full" if full else "quick", "rows": rows, "machine": asdict(machine)})
    else:
        _show(found, machine)


def _show(found: "dict[str, list[BenchRow]]", machine: "Machine") -> None:
    screen = console()
    if not screen.is_terminal:
        screen.width = WIDTH
    table = Table(box=None, header_style="", pad_edge=False)
    for title in ("measured", "against"):
        table.add_column(title, overflow="fold")
    for title in ("ours", "theirs", "ratio"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("clock", no_wrap=True)
    table.add_column("note", overflow="fold")
    for rows in found.values():
        for row in rows:
            sides = _number(row.ours), _number(row.peer)
            table.add_row(
                row.name, row.against, *sides, _ratio(row), row.unit, _clock(row), row.note
            )
    screen.print(table)
    screen.print()
    screen.print("ratio: how many times as good we are, median and range of the turns")
    screen.print(machine.sentence())


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int) or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ratio(row: "BenchRow") -> str:
    if row.ratio is None:
        return ""
    middle = f"{row.ratio:,.0f}" if row.ratio >= 100 else f"{row.ratio:.2f}"
    return middle if row.low is None else f"{middle} ({row.low:.2f}–{row.high:.2f})"


def _clock(row: "BenchRow") -> str:
    both = [f"{value:.3g}" for value in (row.ours_clock, row.peer_clock) if value is not None]
    return " / ".join(both) + (" s" if both else "")

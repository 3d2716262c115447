"""Ratios against the other way of doing it, both sides in one run: `make bench`, docs/bench.md.

    python -m benchmarks.bench [MEASUREMENT …] [--full] [--seed 0] [--data-dir DIR] [--json]

Measurements: layers, balancers, compare, sums, proofs, endpoint, features; all by default.
`scale.py` measures whole runs against the number of devices and on ranks.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from statistics import median

from rich.table import Table

from lumos.cli.common import console

MEASUREMENTS = {
    "layers": "benchmarks.bench_layers:layers",
    "balancers": "benchmarks.bench_runs:balancers",
    "compare": "benchmarks.bench_crypto:compare",
    "sums": "benchmarks.bench_crypto:sums",
    "proofs": "benchmarks.bench_proofs:proofs",
    "endpoint": "benchmarks.bench_runs:endpoint",
    "features": "benchmarks.bench_runs:features",
}
"""Functions from `Size` to rows."""
CPU = "CPU s"
"""Seconds of a processor, which other processes lengthen less than those of the clock."""
WIDTH = 150
"""Width of the table where it goes to a file."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The amount of work."""

    full: bool = False
    """Sizes of the documentation's figures, instead of those that take two minutes in all."""
    data_dir: Path | None = None
    """Folder of the graphs."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """Two sides of one measurement."""

    name: str
    ours: float
    peer: float
    ratio: float
    """Theirs over ours (ours over theirs where more is better): above 1, Lumos is better."""
    unit: str
    against: str
    """The other side."""
    low: float | None = None
    """The lowest ratio of any repetition, where sides took turns."""
    high: float | None = None
    note: str = ""


def seconds_of(call: Callable[[], object]) -> float:
    """Return the processor seconds of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def alternated(
    name: str, ours: Callable[[], object], peer: Callable[[], object], turns: int, against: str
) -> Row:
    """Let two sides take turns, after one that warms up, so that a busy machine slows both."""
    pairs = [(seconds_of(ours), seconds_of(peer)) for _ in range(turns + 1)][1:]
    ratios = [theirs / max(mine, 1e-9) for mine, theirs in pairs]
    mine, theirs = (median(side) for side in zip(*pairs, strict=True))
    return Row(
        name=name,
        ours=mine,
        peer=theirs,
        ratio=median(ratios),
        unit=CPU,
        against=against,
        low=min(ratios),
        high=max(ratios),
    )


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("measurements", nargs="*", metavar="MEASUREMENT")
    parser.add_argument("--full", action="store_true", help="the sizes that the pages quote")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("LUMOS_DATA"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(words)
    if unknown := [name for name in given.measurements if name not in MEASUREMENTS]:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(MEASUREMENTS)}")
    data_dir = None if given.data_dir is None else Path(given.data_dir)
    size = Size(full=given.full, data_dir=data_dir, seed=given.seed)
    found: dict[str, list[Row]] = {}
    for name in given.measurements or MEASUREMENTS:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        module, function = MEASUREMENTS[name].split(":")
        found[name] = getattr(import_module(module), function)(size)
    load = os.getloadavg()[0]
    if given.json:
        rows = [{"measurement": name, **asdict(row)} for name in found for row in found[name]]
        print(json.dumps({"rows": rows, "cores": os.cpu_count(), "load_average": load}))
    else:
        show([row for rows in found.values() for row in rows])
        print(f"{os.cpu_count()} cores; load average {load:.1f}")


def show(rows: list[Row]) -> None:
    screen = console()
    if not screen.is_terminal:
        screen.width = WIDTH
    table = Table(box=None, header_style="", pad_edge=False)
    for title in ("measured", "against", "ours", "theirs", "ratio", "unit", "note"):
        numeric = title in ("ours", "theirs", "ratio")
        table.add_column(title, justify="right" if numeric else "left", no_wrap=numeric)
    for row in rows:
        ratio = f"{row.ratio:,.0f}" if row.ratio >= 100 else f"{row.ratio:.2f}"
        if row.low is not None:
            ratio += f" ({row.low:.2f}–{row.high:.2f})"
        sides = (f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in (row.ours, row.peer))
        table.add_row(row.name, row.against, *sides, ratio, row.unit, row.note)
    screen.print(table)
    screen.print("\nratio = theirs / ours: above 1, Lumos is better; median and range of the turns")


if __name__ == "__main__":
    main()

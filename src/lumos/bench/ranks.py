"""Clock, processor time and memory of one training run on 1, 2 and 4 ranks.

Each run is a process of its own, `lumos train demo:N --ranks R --json`, and its `cost` is read. A
ratio is the clock of one rank over that of several: above 1 they pay.
"""

from typing import Any

from lumos.bench.rows import BenchRow, BenchSize, missing
from lumos.bench.subprocesses import CommandFailed, train_alone

RANKS = (1, 2, 4)
AGAINST = "one rank"
_QUICK, _FULL = 5_000, 200_000


def measure(size: BenchSize) -> list[BenchRow]:
    """A row for each number of ranks above one."""
    graph = f"demo:{_FULL if size.full else _QUICK}"
    found: dict[int, dict[str, Any]] = {}
    rows: list[BenchRow] = []
    for ranks in RANKS:
        name = f"{graph} on {ranks} ranks"
        try:
            found[ranks] = train_alone(graph, size.seed, "--ranks", str(ranks))
        except CommandFailed as error:
            return [*rows, missing(name, AGAINST, str(error))]
        if ranks > 1 and 1 in found:
            rows.append(_row(name, found[ranks], found[1]))
    return rows


def _row(name: str, several: dict[str, Any], one: dict[str, Any]) -> BenchRow:
    ours, peer = several["clock"], one["clock"]
    return BenchRow(
        name=name,
        ours=ours,
        peer=peer,
        ratio=peer / ours,
        unit="clock s",
        against=AGAINST,
        note=f"CPU {several['cpu']:.1f} s in all, {one['cpu']:.1f} s on one rank",
    )

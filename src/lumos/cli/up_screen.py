"""What `lumos up` shows: a live table in a terminal, a line now and then elsewhere; the result."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from lumos.cli.common import console, say
from lumos.deploy.status import RunStatus

SECONDS_BETWEEN_LINES = 10.0
_MOST_NAMES = 8


@contextmanager
def shown_status() -> Iterator[Callable[[RunStatus], None]]:
    """A callback that shows how a run goes on, on standard error."""
    if sys.stderr.isatty():
        screen = Console(stderr=True, highlight=False, markup=False, emoji=False)
        with Live(console=screen, transient=True, refresh_per_second=4) as live:
            yield lambda status: live.update(status_table(status))
        return
    said = time.monotonic()

    def line(status: RunStatus) -> None:
        nonlocal said
        if time.monotonic() - said >= SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            say("; ".join(f"{name} {text}" for name, text in status_rows(status)))

    yield line


def status_table(status: RunStatus) -> Table:
    """The live table."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, text in status_rows(status):
        table.add_row(name, text)
    return table


def status_rows(status: RunStatus) -> list[tuple[str, str]]:
    """What people want to know: name and text."""
    sent, received = status.wire_sent, status.wire_received
    return [
        ("online", f"{status.online:,} of {status.devices:,}"),
        ("phase", f"{status.phase} ({status.phase_number}/{status.phases})"),
        ("sums", f"{status.sums:,} in {status.seconds:,.0f} s"),
        ("silent", _names(status.silent)),
        ("left out", _names([lost.device for lost in status.left_out])),
        ("coordinator", f"{sent / 1e6:,.1f} MB sent, {received / 1e6:,.1f} MB received"),
        ("loss", f"{status.losses[-1][1]:.4f}" if status.losses else "-"),
    ]


def _names(devices: list[int]) -> str:
    if not devices:
        return "nobody"
    shown = ", ".join(map(str, devices[:_MOST_NAMES]))
    more = len(devices) - _MOST_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown


def show_result(result: dict[str, Any]) -> None:
    """Print the result for people."""
    screen = console()
    lost = ", ".join(f"{device} ({phase})" for device, phase in result["left_out"].items())
    screen.print(
        f"{result['graph']}: {result['devices']:,} devices in processes of their own, coins: "
        f"{result['coins']}"
    )
    if result["sums"]:
        screen.print(
            f"{result['sums']:,} masked sums in {result['seconds']:,.1f} s, "
            f"{result['seconds_per_sum']:.3f} s each"
        )
    screen.print(f"left out: {lost or 'nobody'}")
    wire, ledger = result["wire_bytes_per_device"], result["ledger_bytes_per_device"]
    weight = result["megabytes_per_device"]
    weighs = "" if weight is None else f"{weight:,.1f} MB of memory of its own, "
    factor = f", {wire / ledger:.1f} times the ledger's" if ledger else ""
    screen.print(f"a device: {weighs}{wire / 1e3:,.0f} kB sent and received{factor}")
    if result["weights_sha256"]:
        screen.print(f"weights, the same at all: sha256 {result['weights_sha256']}")
    else:
        screen.print(f"largest workload: {result['max_workload']:,} edges")
    if "parties" in result:
        screen.print(f"folders of all parties: {result['parties']}")

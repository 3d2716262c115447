"""`lumos up`: a federation of real devices on this machine."""

import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.table import Table

from lumos.cli.common import Common, console, placed, print_json, say
from lumos.cli.options import AS_IT_IS, Reading, given
from lumos.cli.screen import show_guarantees
from lumos.cli.train import run_options
from lumos.deploy.broker import BrokerSettings
from lumos.deploy.local_federation import FederationLayout, LocalFederation, lay_out
from lumos.deploy.plan import DEFAULTS, refuse_settings
from lumos.deploy.status import RunStatus
from lumos.errors import UsageError
from lumos.graph import load
from lumos.graph.arrays import MIN_CONVERTED, frozen_sparse
from lumos.graph.parts.parts_folder import refuse_taken
from lumos.runs.text import estimate_texts
from lumos.storage import private_folder
from lumos.training.config import TRAIN_OPTIONS
from lumos.training.given_split import reading_of

_ASKS = (signal.SIGTERM, signal.SIGHUP)
"""From `kill`, a service manager, or a terminal that is closed."""


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Inside, a signal that asks the process to end raises `SystemExit`, once.

    The exit status is 128 and the number of the signal, as shells have it. A signal that whoever
    started the process wants ignored, as `nohup` does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    handled = [number for number in _ASKS if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for one in handled:
            signal.signal(one, signal.SIG_IGN)  # a second one would interrupt the tidying
        raise SystemExit(128 + number)

    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


if TYPE_CHECKING:
    Options = Any
else:
    _PUBLIC = ("signs", "scaling")  # facts about features that only the operator can state
    Options = run_options(
        "UpOptions", (*TRAIN_OPTIONS, *_PUBLIC), aggregate="secure", randomness="system"
    )

COMMON, NOTHING = Common(), Options()
_POLL = 0.1
MAX_TRIED = 200
"""Devices of the largest federation that was run on one machine."""


def up(
    graph: Annotated[str, placed("graph")],
    /,
    *,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    split: Annotated[str | None, placed("split")] = None,
    deadline: Annotated[float, placed("deadline")] = 60.0,
    out: Annotated[Path | None, placed("out")] = None,
    keep: Annotated[bool, placed("keep", negative="", show_default=False)] = False,
    stay: Annotated[bool, placed("stay", negative="", show_default=False)] = False,
    status: Annotated[int | None, placed("status")] = None,
    prepare: Annotated[str | None, placed("prepare")] = None,
    common: Common = COMMON,
) -> None:
    """Train with real devices on this machine: a process for each, over NATS, with certificates.

    Every participant has a folder with nothing of others in it. Sums are masked, comparisons
    secret. With --randomness seeded, weights are those of lumos train --aggregate secure.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, twitch-ENGB, …, or a path.
    split
        As lumos train takes it.
    deadline
        Seconds after which a device that does not answer is left out.
    out
        A new folder for the run: what its coordinator may know, weights included, for lumos report
        and lumos predict. By default a temporary folder, which is named at the end.
    keep
        Keep the folders of all participants too, in the folder of the run.
    stay
        Devices stay after the training until Ctrl-C, and answer: lumos predict FOLDER/device-17.
    status
        Port of the coordinator's status page, on 127.0.0.1; 0 takes a free one. The address is
        printed.
    prepare
        Name or address of the machine of the NATS server: write the folders of all participants
        to --out, to be copied to their machines, and start nothing.
    """
    settings = given(options)
    account = settings.pop("account", None)
    refuse_settings(settings, deadline=deadline)
    if out is not None:
        refuse_taken(out)
    lay = partial(read_and_lay_out, graph, settings, given(reading), split, common)
    if prepare is not None:
        if account is not None:
            raise UsageError("`account` is for the devices: give it to lumos device")
        _prepare(lay, settings, deadline, prepare, out, stay, common)
        return
    with ended_in_order():
        _run(graph, lay, settings, deadline, out, keep, stay, status, account, common)


def _run(
    graph: str,
    lay: Callable[..., FederationLayout],
    settings: dict[str, Any],
    deadline: float,
    out: Path | None,
    keep: bool,
    stay: bool,
    status: int | None,
    account: Path | None,
    common: Common,
) -> None:
    """Train, and remove the folders that are not kept, however it ends."""
    home = Path(tempfile.mkdtemp(prefix="lumos-up-")) if out is None else out
    private_folder(home)
    place = home / "participants"
    try:
        layout = lay(place)
        if layout.devices > MAX_TRIED:
            say(
                f"starting {layout.devices:,} device processes on this machine; more than "
                f"{MAX_TRIED} were never tried (demo:60 starts 60)"
            )
        federation = LocalFederation(
            layout, settings, deadline, stay=stay, status=status, account=account
        )
        began = time.monotonic()
        with federation:
            task = settings.get("task", "classify")
            result = {"graph": graph, "task": task, **_trained(federation, status)}
            result["seconds_in_all"] = round(time.monotonic() - began, 3)
            federation.save_run(home)
            result["run"] = str(home)
            if keep or stay:
                result["participants"] = str(place)
            if common.json:
                print_json(result)
            else:
                show_result(result)
            if stay:
                say(how_to_ask(place, task, result["devices"]))
            while stay and federation.devices_run():
                time.sleep(_POLL)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
        if out is None and not any(home.iterdir()):
            home.rmdir()


def how_to_ask(place: Path, task: str, devices: int) -> str:
    """Return how to ask devices that stay, and how to end them."""
    last = devices - 1
    question = f"lumos predict {place}/device-{last}" + " --with 0" * (task == "link")
    return (
        f"devices stay and answer, each for itself; ask one from another terminal: {question}\n"
        "Ctrl-C ends them all"
    )


def read_and_lay_out(
    graph: str,
    settings: dict[str, Any],
    reading: dict[str, Any],
    split: str | None,
    common: Common,
    place: Path,
    host: str | None = None,
) -> FederationLayout:
    """Write the folders of all participants."""
    private_folder(place)
    loaded = load(graph, data_dir=common.data_dir, **{**reading_of(split), **reading})
    large = loaded.features is not None and np.prod(loaded.features.shape) >= MIN_CONVERTED
    if large and settings.get("randomness", DEFAULTS["randomness"]) == "system":
        # A graph decides by the number of zeros, which real devices must not tell: how features
        # are stored is public.
        loaded = replace(loaded, features=frozen_sparse(loaded.features))
    task = settings.get("task", "classify")
    return lay_out(loaded, place, seed=common.seed, split=split, task=task, host=host)


def _prepare(
    lay: Callable[..., FederationLayout],
    settings: dict[str, Any],
    deadline: float,
    host: str,
    out: Path | None,
    stay: bool,
    common: Common,
) -> None:
    """Write the folders of all participants, for machines of their own."""
    if out is None:
        raise UsageError("--prepare needs --out: a new folder for those of all participants")
    layout = lay(out, host)
    broker = f"tls://{host}:{BrokerSettings().port}"
    layout.hand_out_plan(settings, deadline=deadline, broker=broker, stay=stay)
    result = {"participants": str(out), "devices": layout.devices, "broker": broker}
    if common.json:
        print_json(result)
        return
    say(
        f"folders of the coordinator and {layout.devices:,} devices: {out}\n"
        f"on {host}, with a copy of {out / 'pki'} without authority.key: "
        "lumos pki nats-config pki --out nats.conf --listen 0.0.0.0; nats-server -c nats.conf\n"
        "on their machines: lumos coordinator coordinator; lumos device device-0; …"
    )


def _trained(federation: LocalFederation, page: int | None) -> dict[str, Any]:
    """Show the progress of the run and return its result; `page` is the port of a status page."""
    with shown_status() as show:
        while federation.is_running():
            if page is not None and (address := federation.page()):
                say(f"status page: {address}")
                page = None
            status = federation.status()
            if status is not None:
                show(status)
            time.sleep(_POLL)
    return federation.result()


SECONDS_BETWEEN_LINES = 10.0
_MAX_NAMES = 8


@contextmanager
def shown_status() -> Iterator[Callable[[RunStatus], None]]:
    """Yield a callback that shows the progress of a run on standard error."""
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
    """Return the live table."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, text in status_rows(status):
        table.add_row(name, text)
    return table


def status_rows(status: RunStatus) -> list[tuple[str, str]]:
    """Return the lines of the live table: name and text."""
    sent, received = status.wire_sent, status.wire_received
    return [
        ("online", f"{status.online:,} of {status.devices:,}"),
        ("phase", f"{status.place} ({status.phase_number}/{status.phases})"),
        ("sums", f"{status.sums:,} in {status.seconds:,.0f} s"),
        ("silent", _names(status.silent)),
        ("left out", _names([lost.device for lost in status.left_out])),
        ("coordinator", f"{sent / 1e6:,.1f} MB sent, {received / 1e6:,.1f} MB received"),
        ("loss", f"{status.losses[-1][1]:.4f}" if status.losses else "-"),
    ]


def _names(devices: list[int]) -> str:
    if not devices:
        return "nobody"
    shown = ", ".join(map(str, devices[:_MAX_NAMES]))
    more = len(devices) - _MAX_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown


def show_result(result: dict[str, Any]) -> None:
    """Print the result for people."""
    screen = console()
    lost = ", ".join(f"{device} ({phase})" for device, phase in result["left_out"].items())
    screen.print(
        f"{result['graph']}: {result['devices']:,} devices in processes of their own, randomness: "
        f"{result['randomness']}"
    )
    between = result["seconds_between_sums"]
    each = "" if between is None else f", {between:.2f} s from one to the next"
    screen.print(f"{result['sums']:,} masked sums; all in {result['seconds']:,.1f} s{each}")
    screen.print(f"left out: {lost or 'nobody'}")
    wire, ledger = result["wire_bytes_per_device"], result["ledger_bytes_per_device"]
    weight = result["megabytes_per_device"]
    weighs = "" if weight is None else f", {weight:,.1f} MB of memory of its own"
    factor = f" ({wire / ledger:.1f} times what its ledger counts)" if ledger else ""
    screen.print(
        f"a device: {wire / 1e3:,.0f} kB sent and received{factor}, "
        f"{result['cpu_seconds_per_device']:.2f} s of processor time{weighs}"
    )
    for line in estimated(result["estimates"]):
        screen.print(line)
    show_guarantees(result)
    if result["max_workload"]:
        screen.print(f"largest workload: {result['max_workload']:,} edges")
    screen.print(f"weights, the same at all participants: sha256 {result['weights_sha256']}")
    if "run" in result:
        screen.print(f"the run: {result['run']} (lumos report {result['run']})")
    if "participants" in result:
        screen.print(f"folders of all participants: {result['participants']}")


_MAX_ERROR = 0.2
"""Standard error of an estimate that still tells something."""


def estimated(estimates: Mapping[str, float]) -> list[str]:
    """Return what noisy sums tell of the scores, each with its standard error, as lines."""
    found = estimate_texts(estimates)
    if not found:
        return []
    errors = [value for name, value in estimates.items() if name.endswith("_error")]
    if max(errors) > _MAX_ERROR:
        return [
            "no estimate of the scores: too few devices for this noise "
            f"(standard error {100 * max(errors):.0f} points)"
        ]
    shown = ", ".join(f"{name} {text}" for name, text in found.items())
    return [f"estimated by noisy sums, ± standard error: {shown}"]

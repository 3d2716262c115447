"""A whole federation on one machine: broker, coordinator and all devices, a process each.

Every participant has a folder, with nothing of others in it:

    pki/                      the authority, and the broker's keys
    operator/                 facts about the whole graph: the operator's own, never handed out
    nats.conf  broker/        configuration and log of the broker
    coordinator/              see `lumos.deploy.plan`
    device-0/  device-1/  …

Devices are forked from one process that has loaded everything and reads no folder, so a device's
keys and data are in its own process only. Processes end with the one that started them, however
that ends (on Linux).
"""

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any

from lumos.crypto import shortness
from lumos.deploy.broker import Broker, BrokerSettings, start_command, write_broker_config
from lumos.deploy.identity import DIRECTORY, described, folder_name
from lumos.deploy.pki import LOOPBACK, FederationAuthority, make_federation
from lumos.deploy.plan import BEAT, ParticipantFolder, handed_out, new_plan, read_plan, write_plan
from lumos.deploy.processes import RUN, STATUS_PAGE, DeviceProcess
from lumos.deploy.protocol.job import SETUP, TREES, TrainingJob
from lumos.deploy.state import RESULT
from lumos.deploy.status import RunStatus, read_status
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, LumosError, ProtocolError, RunFailed, UsageError
from lumos.graph import Graph
from lumos.graph.parts.manifest import MANIFEST, equal_bounds, read_manifest, write_manifest
from lumos.graph.parts.parts_folder import refuse_taken
from lumos.graph.parts.stored_part import part_path
from lumos.ldp.account import AccountLimits
from lumos.storage import one_line, private_folder, read_json
from lumos.training.given_split import GivenSplit
from lumos.training.profile import PROFILES
from lumos.training.write_parts import write_parts

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Let this process be killed when its parent ends; it may have ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def fork(work: Callable[[], int]) -> int:
    """Run a function in a forked child, which ends with this process; return its process id.

    Args:
        work: its result is the exit status.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        end_with(parent)
        status = work()
    except BaseException:  # a defect: nobody above could report it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def children_of(process: int) -> list[int]:
    """Return the ids of a process's children; empty where the system does not list them."""
    try:
        listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    return [int(number) for number in listed.split()]


def private_megabytes(process: int) -> float | None:
    """Return the private memory of a process; None where the system does not report it."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return sum(found) / 1024 if found else None


MAX_DEVICES = 2_000
"""On one machine."""
PKI = "pki"
_MAX_PAYLOAD = 8 << 20
_EVERYWHERE = "0.0.0.0"  # noqa: S104 (every participant shows a certificate)


@dataclass(frozen=True)
class FederationLayout:
    """The folders of a federation."""

    path: Path
    devices: int

    @property
    def broker_config(self) -> Path:
        """Configuration of the broker."""
        return self.path / "nats.conf"

    @property
    def coordinator(self) -> Path:
        """Folder of the coordinator."""
        return self.path / folder_name(COORDINATOR)

    def device(self, number: int) -> Path:
        """Folder of a device."""
        return self.path / folder_name(number)

    def device_folders(self) -> list[Path]:
        """Folders of all devices."""
        return [self.device(number) for number in range(self.devices)]

    @property
    def operator(self) -> Path:
        """Folder of the operator, with a manifest that is computed from all data."""
        return self.path / "operator"

    def hand_out_plan(self, settings: dict[str, Any], **options: Any) -> None:
        """Sign the plan of a run; write it and the manifest into every folder.

        Args:
            settings: as `lumos.train` takes them.
            options: as `new_plan` takes them.

        Raises:
            UsageError: the settings cannot be run by real devices.
        """
        manifest = handed_out(read_manifest(self.operator), settings)
        plan = new_plan(manifest, settings, **options)
        authority = FederationAuthority.open(self.path / PKI)
        for folder in (self.coordinator, *self.device_folders()):
            write_manifest(folder, manifest)
            write_plan(folder, plan, authority)


def lay_out(
    graph: Graph,
    path: Path,
    *,
    seed: int = 0,
    split: GivenSplit = None,
    task: Any = None,
    host: str | None = None,
) -> FederationLayout:
    """Split a graph, one part for each device; make keys for everybody; fill all folders.

    Args:
        graph: the graph.
        path: a new or empty folder.
        seed: run seed.
        split: as `lumos.train` takes it.
        task: the only task that the parts are for.
        host: name or address of the broker's machine; None: everything is on this one.

    Raises:
        UsageError: the folder is not empty, or there are too many devices for one machine.
    """
    devices = graph.devices
    if devices > MAX_DEVICES:
        raise UsageError(
            f"{devices:,} devices are too many processes for one machine; up to {MAX_DEVICES:,} "
            "can be started, more are simulated by lumos train"
        )
    refuse_taken(path)
    private_folder(path)
    layout, parts, pki = FederationLayout(path, devices), path / "parts", path / PKI
    bounds = equal_bounds(devices, devices)
    write_parts(graph, parts, bounds, seed=seed, split=split, task=task)
    make_federation(pki, devices, LOOPBACK if host is None else (host, *LOOPBACK))
    for participant in (COORDINATOR, *range(devices)):
        folder = path / folder_name(participant)
        (pki / folder_name(participant)).rename(folder)
        shutil.copyfile(pki / DIRECTORY, folder / DIRECTORY)
        if participant != COORDINATOR:
            own = part_path(parts, participant)
            own.rename(folder / own.name)
    private_folder(layout.operator)
    (parts / MANIFEST).rename(layout.operator / MANIFEST)
    shutil.rmtree(parts)
    address = BrokerSettings.host if host is None else _EVERYWHERE
    settings = BrokerSettings(host=address, max_payload=_MAX_PAYLOAD)
    write_broker_config(pki, layout.broker_config, settings)
    return layout


INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def run_device(path: Path, broker: str | None = None, account: Path | None = None) -> bool:
    """Run the device of a folder until the run has ended; arguments as in `DeviceProcess`."""
    folder = ParticipantFolder.open(path, coordinator=False)
    name = described(folder.participant)

    def log(line: str) -> None:
        print(f"{name}: {line}", file=sys.stderr, flush=True)

    return DeviceProcess(folder, log, broker=broker, account=account).run()


def load_program(path: Path) -> None:
    """Import all code that devices of a run need; read only public files of the folder."""
    plan, manifest = read_plan(path), read_manifest(path)
    job = TrainingJob(manifest, plan.config, None, None)
    for phase in (TREES, SETUP):
        job.program(phase)  # as the coordinator has it, and not run
    job.trainer.warm_up()
    if plan.config.updates.proofs:
        shortness.warm_up()


def run_devices(
    paths: Sequence[Path], broker: str | None = None, account: Path | None = None
) -> int:
    """Run the devices of several folders, a child process each; return the largest exit status.

    Args:
        account: folder in which each device has a folder of its own for its privacy account.
    """
    load_program(paths[0])
    gc.collect()
    gc.freeze()  # what is shared stays shared

    def run(path: Path) -> int:
        own = None if account is None else account / path.name
        return as_status(partial(run_device, path, broker, own), path)

    children = [fork(partial(run, path)) for path in paths]
    with _passed_on(children):
        return max(_waited(child) for child in children)


def as_status(work: Callable[[], object], path: Path) -> int:
    """Return the exit status of a device's work, and print an error as one line."""
    try:
        work()
    except LumosError as error:
        print(f"lumos: {path.name}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        print(f"lumos: {error.filename or path.name}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _waited(child: int) -> int:
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return 1 if code < 0 else code


@contextmanager
def _passed_on(children: Sequence[int]) -> Iterator[None]:
    """Pass SIGINT and SIGTERM on to the children, inside."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for child in children:
            try:
                os.kill(child, number)
            except ProcessLookupError:
                continue

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


MIN_TICK, TICK_PER_DEVICE = 0.02, 0.001
"""Seconds; see `local_tick`."""


def local_tick(devices: int) -> float:
    """Return the seconds between two ticks of a federation on this machine.

    Clocks are one here, and packets take about a millisecond; devices share the cores, and each
    works at each tick: more devices need longer ones. In the trees devices have nothing to do at
    most ticks, and wait for one two or three times in a step: ticks are half as long there.
    """
    return min(max(MIN_TICK, TICK_PER_DEVICE * devices), BEAT)


COORDINATOR_LOG, DEVICES_LOG = "coordinator.log", "devices.log"
END_SECONDS = 20.0
"""Seconds that devices may take to end after the coordinator, or after a signal."""
_MEMORY_SECONDS = 2.0
_WEIGHED = 8
"""Devices whose memory is measured: the system takes milliseconds for each."""


class LocalFederation:
    """The processes of a federation, inside a `with`; nothing is left running after it.

    Devices are forked from one process that has loaded everything. All processes end with this one,
    also if it is killed (on Linux).

    Args:
        layout: folders of all participants.
        settings: as `lumos.train` takes them.
        deadline: seconds after which a device that does not answer is left out.
        stay: devices stay after the training, and answer.
        status: port of the coordinator's status page; None for no page.
        account: folder with the privacy accounts of all devices; None: they last for this run, and
            have no limits.
    """

    def __init__(
        self,
        layout: FederationLayout,
        settings: dict[str, Any],
        deadline: float,
        *,
        stay: bool = False,
        status: int | None = None,
        account: Path | None = None,
    ) -> None:
        self._layout, self._settings, self._deadline = layout, settings, deadline
        self._account = account
        self._stay, self._status = stay, status
        self._broker = Broker(layout.broker_config, layout.path / "broker")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._megabytes: float | None = None
        self._next_memory = 0.0

    def __enter__(self) -> "LocalFederation":
        try:
            self._broker.start()
            self._layout.hand_out_plan(
                self._settings,
                deadline=self._deadline,
                tick=local_tick(self._layout.devices),
                tree_tick=local_tick(self._layout.devices) / 2,
                broker=self._broker.address,
                stay=self._stay,
            )
            load_program(self._layout.coordinator)  # refuses what does not fit the graph
            folders = [str(folder) for folder in self._layout.device_folders()]
            page = () if self._status is None else ("--status", str(self._status))
            self._start(COORDINATOR_LOG, "coordinator", str(self._layout.coordinator), *page)
            own = () if self._account is None else ("--account", str(self._account))
            if self._account is None:
                for folder in self._layout.device_folders():
                    AccountLimits.none([*PROFILES]).write(folder)
            self._start(DEVICES_LOG, "device", *folders, *own)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def is_running(self) -> bool:
        """Return whether the run is still in progress.

        Raises:
            RunFailed: it has failed, with the reason.
        """
        self._weigh()
        coordinator, devices = self._processes[COORDINATOR_LOG], self._processes[DEVICES_LOG]
        if coordinator.poll() is None:
            if devices.poll() and not self._any_device_finished():
                raise RunFailed(f"no device is left: {self._last_line(DEVICES_LOG, 'device-')}")
            return True
        if coordinator.returncode:
            raise RunFailed(self._last_line(COORDINATOR_LOG))
        return False

    def _any_device_finished(self) -> bool:
        """Return whether a device came to the end: then so does the coordinator, without others."""
        return any((folder / RESULT).exists() for folder in self._layout.device_folders())

    def status(self) -> RunStatus | None:
        """Return the status of the run; None before the coordinator has begun."""
        return read_status(self._layout.coordinator)

    def page(self) -> str | None:
        """Return the address of the coordinator's status page, once it is served."""
        lines = (self._layout.path / COORDINATOR_LOG).read_text("utf-8", "replace").splitlines()
        found = (line.partition(STATUS_PAGE)[2] for line in lines if STATUS_PAGE in line)
        return next(found, None)

    def save_run(self, path: Path) -> None:
        """Move the run folder of the coordinator to a new or empty folder."""
        private_folder(path)
        for file in (self._layout.coordinator / RUN).iterdir():
            shutil.move(file, path / file.name)

    def devices_run(self) -> bool:
        """Return whether a device process is still running."""
        return self._processes[DEVICES_LOG].poll() is None

    def result(self) -> dict[str, Any]:
        """Return the result of the run, once it is over.

        Raises:
            ProtocolError: devices ended with different weights.
            RunFailed: a device did not write its result.
        """
        self._wait_for_devices()
        whole = read_json(self._layout.coordinator / RESULT)
        lost = {int(device) for device in whole["left_out"]}
        results = {
            number: self._device_result(number)
            for number in range(self._layout.devices)
            if number not in lost
        }
        for number, result in results.items():
            if result["weights_sha256"] != whole["weights_sha256"]:
                raise ProtocolError(
                    f"device {number} has ended with other weights than the coordinator"
                )
        ledger, wire = (
            fmean(
                result[book]["bytes_sent"] + result[book]["bytes_received"]
                for result in results.values()
            )
            for book in ("ledger", "wire")
        )
        return {
            "devices": whole["devices"],
            "estimates": whole["estimates"],
            "guarantees": whole["guarantees"],
            "guarantee": whole["guarantee"],
            "lost": sorted(lost),
            "left_out": whole["left_out"],
            "sums": whole["sums"],
            "seconds": whole["seconds"],
            "seconds_per_sum": whole["seconds_per_sum"],
            "seconds_between_sums": whole["seconds_between_sums"],
            "weights_sha256": whole["weights_sha256"],
            "randomness": whole["randomness"],
            "losses": whole["losses"],
            "max_workload": max(len(result["edges_carried"]) for result in results.values()),
            "megabytes_per_device": None if self._megabytes is None else round(self._megabytes, 1),
            "wire_bytes_per_device": round(wire),
            "ledger_bytes_per_device": round(ledger),
            "cpu_seconds_per_device": round(
                fmean(result["cpu_seconds"] for result in results.values()), 3
            ),
        }

    def _start(self, log: str, *arguments: str) -> None:
        with (self._layout.path / log).open("wb") as file:
            command = [sys.executable, "-m", "lumos", *arguments]
            self._processes[log] = start_command(command, file)

    def _weigh(self) -> None:
        """Measure the memory of some devices from time to time; keep the largest mean."""
        now = time.monotonic()
        if now < self._next_memory:
            return
        self._next_memory = now + _MEMORY_SECONDS
        every = children_of(self._processes[DEVICES_LOG].pid)
        children = every[:: -(-len(every) // _WEIGHED) or 1]
        weights = [size for child in children if (size := private_megabytes(child)) is not None]
        if weights:
            self._megabytes = max(self._megabytes or 0.0, fmean(weights))

    def _wait_for_devices(self) -> None:
        if self._stay:
            return  # a device has written its result before it says so to the coordinator
        try:
            self._processes[DEVICES_LOG].wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # one that was left out, and does not know it
            return

    def _device_result(self, number: int) -> dict[str, Any]:
        try:
            result: dict[str, Any] = read_json(self._layout.device(number) / RESULT)
            if "wire" not in result:
                raise InputError("it has not ended")
        except InputError:
            line = self._last_line(DEVICES_LOG)
            raise RunFailed(f"device {number} has no result; last line of all: {line}") from None
        return result

    def _last_line(self, log: str, begins: str = "") -> str:
        """Return the last line of a log; the last that begins so, if there is one."""
        whole = (self._layout.path / log).read_text("utf-8", "replace").strip().splitlines()
        lines = [line.removeprefix("lumos: ") for line in whole]
        lines = [line for line in lines if line.startswith(begins)] or lines
        return one_line(lines[-1]) if lines else "no line in its log"

    def _end(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + END_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()  # its children end with it
                process.wait()
        self._broker.stop()

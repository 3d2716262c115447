"""A whole federation on this machine: broker, coordinator and all devices, a process each."""

import subprocess
import sys
import time
from statistics import fmean
from types import TracebackType
from typing import Any

from lumos.deploy.broker_process import Broker
from lumos.deploy.child_processes import children_of, private_megabytes, start_command
from lumos.deploy.federation_layout import FederationLayout
from lumos.deploy.forked_devices import load_program
from lumos.deploy.run_status import RunStatus, read_status
from lumos.deploy.state import RESULT
from lumos.errors import InputError, ProtocolError, RunFailed
from lumos.storage import one_line, read_json

COORDINATOR_LOG, DEVICES_LOG = "coordinator.log", "devices.log"
END_SECONDS = 20.0
"""How long devices may take to end after the coordinator, or after they were asked to."""
_MEMORY_SECONDS = 2.0


class LocalFederation:
    """The processes of a federation, inside a `with`; nothing is left running after it.

    Devices are forked from one process that has loaded everything. All processes end with this one,
    also if it is killed (on Linux).

    Args:
        layout: folders of all parties.
        settings: as `lumos.train` takes them.
        deadline: seconds after which a device that does not answer is left out.
        stay: devices stay after the training, and answer.
        status: port of the coordinator's status page; None for no page.
    """

    def __init__(
        self,
        layout: FederationLayout,
        settings: dict[str, Any],
        deadline: float,
        *,
        stay: bool = False,
        status: int | None = None,
    ) -> None:
        self._layout, self._settings, self._deadline = layout, settings, deadline
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
                broker=self._broker.address,
                stay=self._stay,
            )
            load_program(self._layout.coordinator)  # refuses what does not fit the graph
            folders = [str(folder) for folder in self._layout.device_folders()]
            page = () if self._status is None else ("--status", str(self._status))
            self._start(COORDINATOR_LOG, "coordinator", str(self._layout.coordinator), *page)
            self._start(DEVICES_LOG, "device", *folders)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def is_running(self) -> bool:
        """Whether the run goes on.

        Raises:
            RunFailed: it has failed, with the reason.
        """
        self._weigh()
        coordinator, devices = self._processes[COORDINATOR_LOG], self._processes[DEVICES_LOG]
        if coordinator.poll() is None:
            if devices.poll():
                raise RunFailed(f"no device is left: {self._last_line(DEVICES_LOG)}")
            return True
        if coordinator.returncode:
            raise RunFailed(self._last_line(COORDINATOR_LOG))
        return False

    def status(self) -> RunStatus | None:
        """How the run goes on; None before the coordinator has begun."""
        return read_status(self._layout.coordinator)

    def devices_run(self) -> bool:
        """Whether a device is still there."""
        return self._processes[DEVICES_LOG].poll() is None

    def result(self) -> dict[str, Any]:
        """What the run ended with, once it is over.

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
            "lost": sorted(lost),
            "left_out": whole["left_out"],
            "sums": whole["sums"],
            "seconds": whole["seconds"],
            "seconds_per_sum": whole["seconds_per_sum"],
            "weights_sha256": whole["weights_sha256"],
            "coins": whole["coins"],
            "losses": whole["losses"],
            "max_workload": max(len(result["edges_carried"]) for result in results.values()),
            "megabytes_per_device": None if self._megabytes is None else round(self._megabytes, 1),
            "wire_bytes_per_device": round(wire),
            "ledger_bytes_per_device": round(ledger),
        }

    def _start(self, log: str, *arguments: str) -> None:
        with (self._layout.path / log).open("wb") as file:
            command = [sys.executable, "-m", "lumos", *arguments]
            self._processes[log] = start_command(command, output=file, errors=file)

    def _weigh(self) -> None:
        """Measure what devices weigh, now and then; the largest mean is kept."""
        now = time.monotonic()
        if now < self._next_memory:
            return
        self._next_memory = now + _MEMORY_SECONDS
        children = children_of(self._processes[DEVICES_LOG].pid)
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

    def _last_line(self, log: str) -> str:
        lines = (self._layout.path / log).read_text("utf-8", "replace").strip().splitlines()
        return one_line(lines[-1].removeprefix("lumos: ")) if lines else "no line in its log"

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

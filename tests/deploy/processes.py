"""A federation of real processes over a real broker, whose parties can be killed and started."""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from lumos.deploy import processes
from lumos.deploy.broker import Broker
from lumos.deploy.local_federation import (
    FederationLayout,
    as_status,
    fork,
    lay_out,
    load_program,
    run_device,
)
from lumos.deploy.nats import LinkFaults
from lumos.deploy.plan import PartyFolder
from lumos.deploy.processes import CoordinatorProcess
from lumos.deploy.protocol.coordinator import CoordinatorParty
from lumos.deploy.status import RunStatus, read_status
from lumos.device.shard import COORDINATOR
from lumos.graph.parts.part_source import chosen_source
from lumos.storage import read_json

MakeFaults = Callable[[int, int], LinkFaults | None]
"""From a party and how often it was started before."""


def laid_out(graph: str, path: Path, **options: Any) -> FederationLayout:
    """The folders of a federation."""
    with chosen_source(
        graph, data_dir=None, features=True, whole=False, scratch=path, options={}
    ) as source:
        return lay_out(source, path, **options)


class UnhurriedCoordinator(CoordinatorParty):
    """Leaves out only devices that the test has declared gone: a busy machine makes nobody late."""

    gone: Path
    """A folder with an empty file for each of them."""

    def advance(self, now: float) -> None:
        for device in self.present():
            if not (self.gone / str(device)).exists():
                self.receive(device, [], now)
        super().advance(now)


class Processes:
    """Broker, coordinator and devices, inside a `with`; nothing is left running after it."""

    def __init__(
        self,
        layout: FederationLayout,
        settings: dict[str, Any],
        *,
        deadline: float = 60.0,
        beat: float = 0.5,
        faults: MakeFaults | None = None,
        stay: bool = False,
    ) -> None:
        self.layout = layout
        self.broker = Broker(layout.broker_config, layout.path / "broker")
        self.broker.start()
        layout.hand_out_plan(
            {"randomness": "seeded", **settings},
            deadline=deadline,
            beat=beat,
            broker=self.broker.address,
            stay=stay,
        )
        self._faults = faults
        self.children: dict[int, int] = {}
        self.statuses: dict[int, int] = {}
        """Exit status of parties that have ended; below 0: they were killed."""
        self.starts: dict[int, int] = {}
        self.log = layout.path / "parties.log"
        self.gone = layout.path / "gone"
        self.gone.mkdir()
        load_program(layout.coordinator)
        gc.collect()
        gc.freeze()  # as where real devices are forked: what is shared stays shared

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.unfreeze()
        for party in list(self.children):
            self.kill(party)
        self.broker.stop()

    def start_all(self) -> None:
        for party in (COORDINATOR, *range(self.layout.devices)):
            self.start(party)

    def start(self, party: int) -> None:
        """Start a party, with what is on its disk."""
        starts = self.starts.get(party, 0)
        self.starts[party] = starts + 1
        faults = None if self._faults is None else self._faults(party, starts)

        def work() -> int:
            errors = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            sys.stderr = sys.stdout = os.fdopen(errors, "w", buffering=1)
            if party == COORDINATOR:
                return as_status(lambda: self._coordinate(faults), self.layout.coordinator)
            folder = self.layout.device(party)
            return as_status(lambda: run_device(folder, faults=faults), folder)

        self.children[party] = fork(work)

    def _coordinate(self, faults: LinkFaults | None) -> None:
        UnhurriedCoordinator.gone = self.gone
        processes.CoordinatorParty = UnhurriedCoordinator  # type: ignore[attr-defined]
        folder = PartyFolder.open(self.layout.coordinator, coordinator=True)
        CoordinatorProcess(folder, lambda line: print(f"coordinator: {line}"), faults=faults).run()

    def kill(self, party: int) -> None:
        """End a party at once, as the loss of power would."""
        child = self.children.pop(party)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def kill_for_good(self, device: int) -> None:
        """End a device that is not started again: only now its deadline counts."""
        self.kill(device)
        (self.gone / str(device)).touch()

    def status(self) -> RunStatus | None:
        return read_status(self.layout.coordinator)

    def phase(self) -> int:
        status = self.status()
        return 0 if status is None else status.phases_done

    def until_phase(self, phase: int, seconds: float) -> None:
        """Wait until the coordinator is in a phase, or after it."""
        self.until(lambda: self.phase() >= phase, seconds)

    def reap(self) -> None:
        """Note who has ended."""
        for party, child in list(self.children.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                del self.children[party]
                self.statuses[party] = os.waitstatus_to_exitcode(status)

    def wait(self, seconds: float) -> None:
        """Wait until all have ended."""
        self.until(lambda: not self.children, seconds)

    def until(self, condition: Callable[[], object], seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            self.reap()
            if condition():
                return
            if time.monotonic() > end:
                raise AssertionError(f"did not happen in time; {self.status()}\n{self.lines()}")
            time.sleep(0.02)

    def lines(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def result(self, party: int) -> dict[str, Any]:
        result: dict[str, Any] = read_json(self._folder(party) / "result.json")
        return result

    def _folder(self, party: int) -> Path:
        return self.layout.coordinator if party == COORDINATOR else self.layout.device(party)

    def weights(self) -> set[str]:
        """The digests of the weights of all parties."""
        parties = (COORDINATOR, *range(self.layout.devices))
        return {self.result(party)["weights_sha256"] for party in parties}

"""A federation of real processes over a real broker; participants can be killed and started."""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.deploy.faults import FaultyLink, LinkFaults

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
from lumos.deploy.plan import ParticipantFolder
from lumos.deploy.processes import CoordinatorProcess
from lumos.deploy.protocol.coordinator import CoordinatorParticipant
from lumos.deploy.status import RunStatus, read_status
from lumos.device.shard import COORDINATOR
from lumos.graph import load
from lumos.ldp.account import AccountLimits
from lumos.storage import read_json
from lumos.training.profile import PROFILES

MakeFaults = Callable[[int, int], LinkFaults | None]
"""From a participant and how often it was started before."""


def laid_out(graph: str, path: Path, **options: Any) -> FederationLayout:
    """The folders of a federation."""
    return lay_out(load(graph), path, **options)


class UnhurriedCoordinator(CoordinatorParticipant):
    """Leaves out nobody: a busy machine makes no device late."""

    def _leave_out_lost(self, now: float) -> None:
        pass


class Participants:
    """Processes of participants whose folders have a plan, all children of this one.

    Nothing is left running after a `with`.
    """

    coordinator: type[CoordinatorParticipant] = UnhurriedCoordinator

    def __init__(self, layout: FederationLayout, faults: MakeFaults | None = None) -> None:
        self.layout = layout
        self._faults = faults
        self.children: dict[int, int] = {}
        self.statuses: dict[int, int] = {}
        """Exit status of participants that have ended; below 0: they were killed."""
        self.starts: dict[int, int] = {}
        self.log = layout.path / "participants.log"

    def __enter__(self) -> "Participants":
        load_program(self.layout.coordinator)
        gc.collect()
        gc.freeze()  # as where real devices are forked: what is shared stays shared
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.unfreeze()
        for participant in list(self.children):
            self.kill(participant)

    def start_all(self) -> None:
        for participant in (COORDINATOR, *range(self.layout.devices)):
            self.start(participant)

    def start(self, participant: int) -> None:
        """Start a participant, with what is on its disk."""
        starts = self.starts.get(participant, 0)
        self.starts[participant] = starts + 1
        faults = None if self._faults is None else self._faults(participant, starts)

        def work() -> int:
            errors = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            sys.stderr = sys.stdout = os.fdopen(errors, "w", buffering=1)
            if faults is not None:
                processes.NatsLink = partial(FaultyLink, faults=faults)  # type: ignore[attr-defined,assignment]
            folder = self.folder(participant)
            run = self._coordinate if participant == COORDINATOR else partial(run_device, folder)
            return as_status(run, folder)

        self.children[participant] = fork(work)

    def _coordinate(self) -> None:
        processes.CoordinatorParticipant = self.coordinator  # type: ignore[attr-defined]
        folder = ParticipantFolder.open(self.layout.coordinator, coordinator=True)
        CoordinatorProcess(folder, lambda line: print(f"coordinator: {line}")).run()

    def kill(self, participant: int) -> None:
        """End a participant at once, as the loss of power would."""
        child = self.children.pop(participant)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def status(self) -> RunStatus | None:
        return read_status(self.layout.coordinator)

    def phase(self) -> int:
        status = self.status()
        return 0 if status is None else status.phases_done

    def reap(self) -> None:
        """Note who has ended."""
        for participant, child in list(self.children.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                del self.children[participant]
                self.statuses[participant] = os.waitstatus_to_exitcode(status)

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
        """What all participants have logged, also those that others started."""
        logs = [self.log, *self.layout.path.glob("*.log")]
        return "\n".join(log.read_text() for log in dict.fromkeys(logs) if log.exists())

    def result(self, participant: int) -> dict[str, Any]:
        result: dict[str, Any] = read_json(self.folder(participant) / "result.json")
        return result

    def folder(self, participant: int) -> Path:
        return (
            self.layout.coordinator
            if participant == COORDINATOR
            else self.layout.device(participant)
        )

    def weights(self) -> set[str]:
        """The digests of the weights of all participants."""
        participants = (COORDINATOR, *range(self.layout.devices))
        return {self.result(participant)["weights_sha256"] for participant in participants}


class Processes(Participants):
    """Broker, coordinator and devices of a new run, inside a `with`."""

    def __init__(
        self,
        layout: FederationLayout,
        settings: dict[str, Any],
        *,
        beat: float = 0.5,
        faults: MakeFaults | None = None,
    ) -> None:
        super().__init__(layout, faults)
        self.broker = Broker(layout.broker_config, layout.path / "broker")
        self._settings, self._beat = settings, beat

    def __enter__(self) -> "Processes":
        self.broker.start()
        settings = {"randomness": "seeded", **self._settings}
        self.layout.hand_out_plan(settings, beat=self._beat, broker=self.broker.address)
        for folder in self.layout.device_folders():
            AccountLimits.none([*PROFILES]).write(folder)  # seeded randomness too
        super().__enter__()
        return self

    def __exit__(self, *ended: Any) -> None:
        super().__exit__(*ended)
        self.broker.stop()

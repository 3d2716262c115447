"""Several devices on one machine: a process each, forked from one that has loaded everything.

The parent reads no folder, so a device's keys and data are in its own process only.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from lumos.deploy.child_processes import fork
from lumos.deploy.device_process import DeviceProcess
from lumos.deploy.nats_link import Faults
from lumos.deploy.parties import described
from lumos.deploy.party_folder import PartyFolder
from lumos.deploy.run_plan import read_plan
from lumos.deploy.training_job import SETUP, TREES, TrainingJob
from lumos.errors import LumosError
from lumos.graph.parts.manifest import read_manifest

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def run_device(path: Path, broker: str | None = None, faults: Faults | None = None) -> bool:
    """Be the device of a folder until the run has ended; see `DeviceProcess.run`."""
    folder = PartyFolder.open(path, coordinator=False)
    name = described(folder.party)

    def log(line: str) -> None:
        print(f"{name}: {line}", file=sys.stderr, flush=True)

    return DeviceProcess(folder, log, broker=broker, faults=faults).run()


def load_program(path: Path) -> None:
    """Import all that devices of a run need; of the folder, only public files are read."""
    plan, manifest = read_plan(path), read_manifest(path)
    job = TrainingJob(manifest, plan.config, None, None)
    for phase in (TREES, SETUP)[: job.last + 1]:
        job.program(phase)  # as the coordinator has it, and not run


def run_devices(paths: Sequence[Path], broker: str | None = None) -> int:
    """Be the devices of several folders, in a child process each; the largest exit status."""
    load_program(paths[0])
    gc.collect()
    gc.freeze()  # what is shared stays shared
    children = [fork(partial(_device_status, path, broker)) for path in paths]
    with _passed_on(children):
        return max(_waited(child) for child in children)


def _device_status(path: Path, broker: str | None) -> int:
    return as_status(lambda: run_device(path, broker), path)


def as_status(work: Callable[[], object], path: Path) -> int:
    """The exit status of a device's work; what went wrong is one line."""
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
    """Inside, SIGINT and SIGTERM are for the children."""

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

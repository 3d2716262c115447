"""What the coordinator keeps on its disk: where the run stands, closed rounds, who is left out.

| file | holds |
|---|---|
| `snapshot.bin` | where the coordinator stood between two phases |
| `rounds.log` | rounds that were closed since then, with the envelopes that were in them |
| `attempts.log` | phases that began again, and without whom |
| `left_out.log` | devices that are left out for good |

A snapshot is replaced first and rounds before it are dropped afterwards: after a crash in between
they are still in the log, and are passed over.
"""

from collections.abc import Collection
from functools import cached_property
from pathlib import Path

import msgspec

from lumos.deploy.begun_attempts import BegunAttempt, BegunAttempts
from lumos.deploy.coordinator_party import CoordinatorRecord
from lumos.deploy.frames import Data, RoundKey
from lumos.deploy.record_log import RecordLog
from lumos.deploy.snapshot_file import read_snapshot, write_snapshot
from lumos.errors import InputError, UsageError
from lumos.storage import private_folder
from lumos.typing import Arrays

SNAPSHOT, ROUNDS = "snapshot.bin", "rounds.log"
ATTEMPTS, LEFT_OUT = "attempts.log", "left_out.log"
_REMEDY = "the run cannot go on; begin a new one with an empty folder"


class _Saved(msgspec.Struct, frozen=True, array_like=True, tag="saved"):
    """Rounds before this phase are in the snapshot."""

    phase: int


class _ClosedRound(msgspec.Struct, frozen=True, array_like=True, tag="closed"):
    key: RoundKey
    envelopes: dict[int, Data]
    """By device."""


class _LeftOut(msgspec.Struct, frozen=True, array_like=True):
    device: int
    phase: str


class CoordinatorFolder:
    """The folder of the coordinator in one run: a `CoordinatorStore`. One process uses it.

    Args:
        path: it is made if it is not there.

    Raises:
        UsageError: it cannot be a folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._snapshot_file = path / SNAPSHOT
        try:
            private_folder(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be a folder ({error.strerror})") from None

    def load(self) -> Arrays | None:
        """The last snapshot; None before the first.

        Raises:
            InputError: it is damaged, missing, or older than the rounds.
        """
        snapshot = read_snapshot(self._snapshot_file, _REMEDY)
        saved = [record.phase for record in self._rounds.records if isinstance(record, _Saved)]
        if saved and (snapshot is None or int(snapshot["phase"]) < max(saved)):
            raise InputError(
                f"{self._snapshot_file}: is missing, or older than {ROUNDS}; {_REMEDY}"
            )
        return snapshot

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot, all or nothing, and forget the rounds before it."""
        write_snapshot(self._snapshot_file, snapshot)
        phase = int(snapshot["phase"])
        self._rounds.replace([_Saved(phase), *self._closed_since(phase)])
        self._attempts.settle(phase)

    def rounds(self) -> CoordinatorRecord:
        """Rounds since the last snapshot."""
        snapshot = self.load()
        phase = 0 if snapshot is None else int(snapshot["phase"])
        return {closed.key: dict(closed.envelopes) for closed in self._closed_since(phase)}

    def add_round(self, key: RoundKey, envelopes: dict[int, Data]) -> None:
        """Keep a round; it is on the disk when this returns."""
        self._rounds.append(_ClosedRound(key, envelopes))

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        """Note that another attempt at a phase begins; it is on the disk when this returns."""
        self._attempts.begin(phase, attempt, absent, ledgers)

    def begun(self, phase: int) -> BegunAttempt | None:
        """The last attempt at a phase; None for the first."""
        return self._attempts.last(phase)

    def left_out(self) -> dict[int, str]:
        """Who is left out, and in which phase."""
        return {record.device: record.phase for record in self._left_out.records}

    def leave_out(self, device: int, phase: str) -> None:
        """Keep that a device is left out; it is on the disk when this returns."""
        self._left_out.append(_LeftOut(device, phase))

    def _closed_since(self, phase: int) -> list[_ClosedRound]:
        return [
            record
            for record in self._rounds.records
            if isinstance(record, _ClosedRound) and record.key.phase >= phase
        ]

    @cached_property
    def _rounds(self) -> RecordLog[_Saved | _ClosedRound]:
        return RecordLog(self.path / ROUNDS, _Saved | _ClosedRound, _REMEDY)

    @cached_property
    def _attempts(self) -> BegunAttempts:
        return BegunAttempts(self.path / ATTEMPTS, _REMEDY)

    @cached_property
    def _left_out(self) -> RecordLog[_LeftOut]:
        return RecordLog(self.path / LEFT_OUT, _LeftOut, _REMEDY)

"""What the coordinator keeps on its disk: where the run stands, closed rounds, who is left out.

| file | holds |
|---|---|
| `snapshot.npz` | where the coordinator stood between two phases |
| `rounds.log` | rounds that were closed since then, with the envelopes that were in them |
| `left_out.log` | devices that are left out for good |

A snapshot is replaced first and rounds before it are dropped afterwards: after a crash in between
they are still in the log, and are passed over.
"""

from functools import cached_property
from pathlib import Path

import msgspec

from lumos.deploy.coordinator_party import CoordinatorRecord
from lumos.deploy.frames import Data, RoundKey
from lumos.deploy.record_log import RecordLog
from lumos.deploy.snapshot_file import read_snapshot, write_snapshot
from lumos.errors import InputError, UsageError
from lumos.storage import private_folder
from lumos.typing import Arrays

SNAPSHOT, ROUNDS, LEFT_OUT = "snapshot.npz", "rounds.log", "left_out.log"
_REMEDY = "the run cannot go on; begin a new one with an empty folder"


class _ClosedRound(msgspec.Struct, frozen=True, array_like=True):
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
        try:
            private_folder(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be a folder ({error.strerror})") from None

    def load(self) -> Arrays | None:
        """The last snapshot; None before the first.

        Raises:
            InputError: it is damaged, or older than the rounds.
        """
        snapshot = read_snapshot(self.path / SNAPSHOT, _REMEDY)
        phase = 0 if snapshot is None else int(snapshot["phase"])
        if any(closed.key.phase > phase for closed in self._rounds.records):
            raise InputError(
                f"{self.path / SNAPSHOT}: is missing, or older than {ROUNDS}; {_REMEDY}"
            )
        return snapshot

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot, all or nothing, and forget the rounds before it."""
        write_snapshot(self.path / SNAPSHOT, snapshot)
        phase = int(snapshot["phase"])
        self._rounds.replace(closed for closed in self._rounds.records if closed.key.phase >= phase)

    def rounds(self) -> CoordinatorRecord:
        """Rounds since the last snapshot."""
        snapshot = self.load()
        phase = 0 if snapshot is None else int(snapshot["phase"])
        return {
            closed.key: dict(closed.envelopes)
            for closed in self._rounds.records
            if closed.key.phase >= phase
        }

    def add_round(self, key: RoundKey, envelopes: dict[int, Data]) -> None:
        """Keep a round; it is on the disk when this returns."""
        self._rounds.append(_ClosedRound(key, envelopes))

    def left_out(self) -> dict[int, str]:
        """Who is left out, and in which phase."""
        return {record.device: record.phase for record in self._left_out.records}

    def leave_out(self, device: int, phase: str) -> None:
        """Keep that a device is left out; it is on the disk when this returns."""
        self._left_out.append(_LeftOut(device, phase))

    @cached_property
    def _rounds(self) -> RecordLog[_ClosedRound]:
        return RecordLog(self.path / ROUNDS, _ClosedRound, _REMEDY)

    @cached_property
    def _left_out(self) -> RecordLog[_LeftOut]:
        return RecordLog(self.path / LEFT_OUT, _LeftOut, _REMEDY)

"""What a device that stays after the training answers with, on its disk.

| file | holds |
|---|---|
| `answers.log` | pairs that it agreed to score, its budget after each, and the scores it learnt |
| `answering.bin` | its own vectors, degree and opinions, and the public reading of levels |

The log is there before the other file. Where it is missing or damaged later, nobody knows how many
answers the device has given: it is refused, and no budget starts anew.
"""

from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from lumos.deploy.answered_pairs import AgreedPair, AnsweredPairs, LearntScore
from lumos.deploy.state import RecordLog, read_snapshot, write_snapshot
from lumos.deploy.training_job import ANSWERS_WITH
from lumos.errors import InputError
from lumos.typing import Arrays

ANSWERS, ANSWERING = "answers.log", "answering.bin"
_REMEDY = (
    "how many answers this device has given is not known, and it answers no more; give it an "
    "empty folder for the next run, and never one from a backup"
)


class _Begun(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """The first record: whose answers these are."""

    run: str
    device: int


class AnsweringFiles:
    """The files of one device in one run.

    Args:
        folder: of the device.
        run: name of the run.
        device: id.
    """

    def __init__(self, folder: Path, run: str, device: int) -> None:
        self._log_file, self._file = folder / ANSWERS, folder / ANSWERING
        self._begun = _Begun(run, device)

    @property
    def exist(self) -> bool:
        """Whether the device has something to answer with."""
        return self._file.exists()

    def begin(self, snapshot: Arrays) -> None:
        """Keep what the device answers with; it is on the disk when this returns.

        Args:
            snapshot: of the end of the training.
        """
        if not self._log.records:
            self._log.append(self._begun)
        self._check_log()
        kept = {name: array for name, array in snapshot.items() if name.startswith(ANSWERS_WITH)}
        about = {"run": np.array(self._begun.run), "device": np.array(self._begun.device)}
        write_snapshot(self._file, {**kept, **about, "absent": snapshot["absent"]})

    def load(self) -> Arrays:
        """What `TrainingJob.restore_answers` takes.

        Raises:
            InputError: a file is missing, damaged, or of another run.
        """
        self._check_log()
        arrays = read_snapshot(self._file, _REMEDY)
        if arrays is None:
            raise InputError(f"{self._file}: is missing; {_REMEDY}")
        if (str(arrays.get("run")), int(arrays.get("device", -1))) != (
            self._begun.run,
            self._begun.device,
        ):
            raise InputError(f"{self._file}: is of another run or device; {_REMEDY}")
        return arrays

    @cached_property
    def pairs(self) -> AnsweredPairs:
        """What the device has answered; every record is on the disk before it counts."""
        if self.exist or self._log.records:
            self._check_log()
        before = [record for record in self._log.records if not isinstance(record, _Begun)]
        return AnsweredPairs(before, self._log.append)

    @cached_property
    def _log(self) -> RecordLog[_Begun | AgreedPair | LearntScore]:
        return RecordLog(self._log_file, _Begun | AgreedPair | LearntScore, _REMEDY)

    def _check_log(self) -> None:
        records = self._log.records
        if not records:
            raise InputError(f"{self._log_file}: is missing or empty; {_REMEDY}")
        if records[0] != self._begun:
            raise InputError(f"{self._log_file}: is of another run or device; {_REMEDY}")

"""The losses of all epochs of a run: eight bytes for each, in memory and in a file.

    file = tag of the run (16 bytes) ‖ loss of epoch 1 (float64) ‖ loss of epoch 2 ‖ …

This, and nothing else that the coordinator keeps, grows with the number of epochs. An epoch that is
repeated after a restart is written to the same place again.
"""

from array import array
from pathlib import Path

import numpy as np

from lumos.deploy.frames import RUN_TAG
from lumos.errors import InputError
from lumos.storage import one_line, sync_file, write_at, write_bytes

NAME = "losses.bin"
_NONE = float("-inf")
"""In place of the loss of an epoch that has none."""
_FORM = np.dtype("<f8")


class EpochLosses:
    """The losses of one run.

    Args:
        run: the run's tag; losses of another run are not continued.
        file: where they are kept; None: in memory only.

    Raises:
        InputError: the file cannot be read.
    """

    def __init__(self, run: bytes, file: Path | None = None) -> None:
        self._run, self._file = run, file
        self._losses = array("d")
        """By epoch; the first is 1."""
        self._begun = file is not None and file.exists() and self._read(file)
        """Whether the file is there, and of this run."""

    def add(self, epoch: int, loss: float | None) -> None:
        """Note the loss of an epoch; it survives the end of this process."""
        first = min(len(self._losses), epoch - 1)
        while len(self._losses) < epoch:
            self._losses.append(_NONE)
        self._losses[epoch - 1] = _NONE if loss is None else loss
        if self._file is not None:
            if not self._begun:
                write_bytes(self._file, self._run, private=True)
                self._begun = True
            fresh = np.array(self._losses[first:epoch], _FORM).tobytes()
            write_at(self._file, fresh, RUN_TAG + first * _FORM.itemsize)

    def sync(self) -> None:
        """Make everything survive a loss of power."""
        if self._file is not None and self._begun:
            sync_file(self._file)

    def items(self) -> list[tuple[int, float]]:
        """(epoch, loss) of every epoch that has one."""
        return [(epoch, loss) for epoch, loss in enumerate(self._losses, 1) if loss != _NONE]

    def values(self) -> list[float]:
        """The losses alone."""
        return [loss for loss in self._losses if loss != _NONE]

    @property
    def last(self) -> float | None:
        """Of the last epoch that has one."""
        return next((loss for loss in reversed(self._losses) if loss != _NONE), None)

    def _read(self, file: Path) -> bool:
        """Take what is in the file; whether it is of this run."""
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({one_line(error)})") from None
        if content[:RUN_TAG] != self._run:
            return False
        whole = (len(content) - RUN_TAG) // _FORM.itemsize
        self._losses.extend(np.frombuffer(content, _FORM, whole, RUN_TAG).tolist())
        return True

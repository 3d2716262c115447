"""What the coordinator saw of its run: losses, who was left out when, how long sums take.

No part of the protocol needs it; people do. It is written to a file, so that the coordinator still
knows it after a restart.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec

from lumos.deploy.coordinator_party import CoordinatorParty
from lumos.deploy.epoch_losses import NAME as LOSSES
from lumos.deploy.epoch_losses import EpochLosses
from lumos.errors import InputError
from lumos.storage import one_line, write_text
from lumos.training.trainer import EpochRecord

RECENT = 50
"""Sums whose seconds are kept."""
MOST_SHOWN = 2000
"""Losses that people are shown: of a longer run every second one, every third, …"""


class HistoryFile(msgspec.Struct, kw_only=True):
    """The content of the file."""

    run: str
    """The run's tag in hexadecimal: the history of another run is not continued."""
    started: float
    """When the run began: seconds since 1970."""
    left_out: dict[int, float] = {}
    """By device, when it was left out: seconds since 1970."""


class RunHistory:
    """The history of one run.

    Args:
        run: the run's tag.
        file: where it is kept, with the losses beside it; None: in memory only.
        wall: the time of day, in seconds since 1970.

    Raises:
        InputError: a file is damaged.
    """

    def __init__(
        self, run: bytes, file: Path | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        self.wall = wall
        self._file = file
        kept = _read(file, run.hex())
        self._kept = kept or HistoryFile(run=run.hex(), started=wall())
        self._written = kept is not None
        self.all_losses = EpochLosses(run, None if file is None else file.with_name(LOSSES))
        """Of every epoch."""
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._sums: int | None = None
        self._opened: float | None = None
        """When the last sum was opened."""

    @property
    def run(self) -> str:
        """The run's tag in hexadecimal."""
        return self._kept.run

    @property
    def started(self) -> float:
        """When the run began: seconds since 1970."""
        return self._kept.started

    @property
    def losses(self) -> list[tuple[int, float]]:
        """(epoch, mean training loss), where there is one; at most `MOST_SHOWN`, the last too."""
        finite = [item for item in self.all_losses.items() if math.isfinite(item[1])]
        step = -(-len(finite) // MOST_SHOWN) or 1
        return finite[::-1][::step][::-1]

    @property
    def recent(self) -> list[tuple[int, float]]:
        """(number of the sum, seconds since the one before it) of the last sums."""
        return list(self._recent)

    @property
    def seconds_per_sum(self) -> float | None:
        """Median of `recent`; None before two sums."""
        return median(seconds for _, seconds in self._recent) if self._recent else None

    def left_out_at(self, device: int) -> float:
        """When a device was left out: seconds since 1970."""
        return self._kept.left_out[device]

    def on_epoch(self, record: EpochRecord) -> None:
        """Note the loss of an epoch: `TrainingJob` calls this."""
        self.all_losses.add(record.epoch, record.loss)
        if not self._written:
            self._write()

    def watch(self, party: CoordinatorParty, now: float) -> None:
        """Note what has changed; call it after every `party.advance(now)`."""
        fresh = party.left_out.keys() - self._kept.left_out.keys()
        if fresh:
            self._kept.left_out |= dict.fromkeys(fresh, self.wall())
            self._write()
        if self._sums is not None and party.sums != self._sums:
            # After a restart several sums are read from the disk at once: nobody measured them.
            if self._opened is not None and party.sums == self._sums + 1:
                self._recent.append((party.sums, now - self._opened))
            self._opened = now
        self._sums = party.sums

    def _write(self) -> None:
        self._written = True
        if self._file is not None:
            write_text(self._file, msgspec.json.encode(self._kept).decode() + "\n")


def _read(file: Path | None, run: str) -> HistoryFile | None:
    """What was kept of this run; None where there is nothing."""
    if file is None or not file.exists():
        return None
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=HistoryFile)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{file}: cannot be read ({one_line(error)}); delete it: only times of the status page "
            "are lost"
        ) from None
    return kept if kept.run == run else None

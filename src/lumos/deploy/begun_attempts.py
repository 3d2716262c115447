"""Attempts at phases after the first, on disk: without whom, and what was counted before.

A party that is restarted goes on with the last of them.
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from lumos.deploy.record_log import RecordLog
from lumos.deploy.snapshot_file import packed, unpacked
from lumos.typing import Arrays


class BegunAttempt(NamedTuple):
    """What a party needs to go on with an attempt, beside the snapshot of its phase."""

    attempt: int
    absent: frozenset[int]
    """Devices that are left out of it."""
    ledgers: Arrays
    """What the party had counted when it began."""


class _Begun(msgspec.Struct, frozen=True, array_like=True):
    phase: int
    attempt: int
    absent: list[int]
    ledgers: bytes


class BegunAttempts:
    """The attempts of one party.

    Args:
        path: the file; it need not exist.
        remedy: what to do where it is damaged.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, path: Path, remedy: str) -> None:
        self._log = RecordLog[_Begun](path, _Begun, remedy)

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        """Note an attempt; it is on the disk when this returns."""
        self._log.append(_Begun(phase, attempt, sorted(absent), packed(ledgers)))

    def last(self, phase: int) -> BegunAttempt | None:
        """The last attempt at a phase; None for the first, which is not noted."""
        of_phase = [begun for begun in self._log.records if begun.phase == phase]
        if not of_phase:
            return None
        last = of_phase[-1]
        return BegunAttempt(last.attempt, frozenset(last.absent), unpacked(last.ledgers))

    def settle(self, phase: int) -> None:
        """Forget attempts at phases before this one."""
        later = [begun for begun in self._log.records if begun.phase >= phase]
        if len(later) < len(self._log.records):
            self._log.replace(later)

"""Attempts at phases that cannot be repeated, on disk: none of them is begun twice."""

from pathlib import Path

import msgspec

from lumos.deploy.record_log import RecordLog


class _Begun(msgspec.Struct, frozen=True, array_like=True):
    phase: int
    attempt: int


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

    def begin(self, phase: int, attempt: int) -> None:
        """Note an attempt; it is on the disk when this returns."""
        self._log.append(_Begun(phase, attempt))

    def least(self, phase: int) -> int:
        """The least attempt at a phase that has not begun."""
        return max(
            (begun.attempt + 1 for begun in self._log.records if begun.phase == phase), default=0
        )

    def settle(self, phase: int) -> None:
        """Forget attempts at phases before this one."""
        later = [begun for begun in self._log.records if begun.phase >= phase]
        if len(later) < len(self._log.records):
            self._log.replace(later)

"""What a device was told in the rounds of its present phase, on disk: replayed after a restart."""

from pathlib import Path

import msgspec

from lumos.deploy.frames import Data, RoundKey
from lumos.deploy.record_log import RecordLog
from lumos.deploy.rounds import RoundRecord


class _Told(msgspec.Struct, frozen=True, array_like=True):
    key: RoundKey
    envelopes: dict[int, Data]
    """By sender."""


class RecordedRounds:
    """The rounds of one device.

    Args:
        path: the file; it need not exist.
        remedy: what to do where it is damaged.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, path: Path, remedy: str) -> None:
        self._log = RecordLog[_Told](path, _Told, remedy)

    def add(self, key: RoundKey, envelopes: dict[int, Data]) -> None:
        """Note a round; it is on the disk when this returns."""
        self._log.append(_Told(key, envelopes))

    def since(self, phase: int) -> RoundRecord:
        """The rounds of this phase and later ones."""
        return {
            told.key: dict(told.envelopes) for told in self._log.records if told.key.phase >= phase
        }

    def settle(self, phase: int) -> None:
        """Forget rounds of phases before this one."""
        later = [told for told in self._log.records if told.key.phase >= phase]
        if len(later) < len(self._log.records):
            self._log.replace(later)

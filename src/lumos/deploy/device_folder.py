"""What a device keeps on its disk: it survives a restart, and only the device's user can read it.

| file | holds |
|---|---|
| `secret.key` | the secret of this run: keys of masked sums and what programs draw follow from it |
| `snapshot.bin` | where the device stood between two phases; no key, mask or share |
| `openings.log` | for which sums it gave out shares since then, and what it was told |
| `rounds.log` | what it was told in each round since then, before anything followed from it |
| `attempts.log` | phases that began again: without whom, and what was counted before |
| `peers.log` | who has sent it something: after a restart it asks them for that again |
| `weights.npz`, `result.json` | the result; the second is written last |

A device that stays after the training has two more files (`answering_files`).

**Never from a backup.** A folder that was copied back has forgotten what the device was told, and
for which sums it gave out shares since then: a coordinator that lies could have them opened twice,
and get two vectors under the same masks. What can be noticed is refused: a snapshot that is
missing, or older than the openings.
"""

from collections.abc import Collection
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from lumos.aggregate.opened_sums import OpenedSums, Opening
from lumos.crypto import entropy
from lumos.crypto.entropy import KEY_BYTES
from lumos.deploy.begun_attempts import BegunAttempt, BegunAttempts
from lumos.deploy.frames import RUN_TAG, Data, RoundKey
from lumos.deploy.key_files import read_private
from lumos.deploy.record_log import RecordLog
from lumos.deploy.recorded_rounds import RecordedRounds
from lumos.deploy.rounds import RoundRecord
from lumos.deploy.snapshot_file import read_snapshot, write_snapshot
from lumos.device.device_keys import DeviceKeys
from lumos.errors import InputError, UsageError
from lumos.storage import (
    NEW,
    overwrite_and_remove,
    private_folder,
    remove,
    sync_folder,
    write_arrays,
    write_bytes,
    write_json,
)
from lumos.typing import Arrays

SECRET, SNAPSHOT = "secret.key", "snapshot.bin"
OPENINGS, ATTEMPTS, ROUNDS = "openings.log", "attempts.log", "rounds.log"
PEERS = "peers.log"
WEIGHTS, RESULT = "weights.npz", "result.json"
SUM_NUMBER = "run/sums/number"
"""In a snapshot: how many masked sums are before it."""
_REMEDY = (
    "this device cannot go on with the run, and is left out after the deadline; give it an empty "
    "folder for the next one, and never one from a backup"
)
_BEGUN = (SNAPSHOT, OPENINGS, ATTEMPTS, ROUNDS, PEERS)
"""Files that a device has once it has begun a run."""
_CHECK = 16


class _Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """Sums before this number are in the snapshot, and never replayed."""

    number: int


class _Opened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """An `Opening`."""

    step: int
    number: int
    told: bytes


class DeviceFolder:
    """The folder of one device in one run: a `DeviceStore`. One process uses it at a time.

    Args:
        path: it is made if it is not there.

    Raises:
        UsageError: it cannot be a folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._snapshot_file = path / SNAPSHOT
        self._phase: int | None = None
        try:
            private_folder(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be a folder ({error.strerror})") from None

    def load(self) -> Arrays | None:
        """The last snapshot; None before the first.

        Raises:
            InputError: it is damaged, missing, or older than what the device has done since.
        """
        snapshot = read_snapshot(self._snapshot_file, _REMEDY)
        settled = self._settled
        if snapshot is None and settled is not None:
            raise InputError(f"{self._snapshot_file}: is missing; {_REMEDY}")
        if snapshot is not None and settled is not None and _sums_before(snapshot) < settled:
            raise InputError(f"{self._snapshot_file}: is older than {OPENINGS}; {_REMEDY}")
        return snapshot

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot, all or nothing, and forget what is not needed after it."""
        write_snapshot(self._snapshot_file, snapshot)
        # From here on a crash leaves records that nobody asks for; the next snapshot drops them.
        number, phase = _sums_before(snapshot), int(snapshot["phase"])
        later = [
            record
            for record in self._openings.records
            if isinstance(record, _Opened) and record.number >= number
        ]
        self._openings.replace([_Settled(number), *later])
        self._opened.settle(number)
        self._attempts.settle(phase)
        self._rounds.settle(phase)
        self._phase = phase

    def rounds(self) -> RoundRecord:
        """What the device was told since the last snapshot."""
        return self._rounds.since(self._present_phase())

    def add_round(self, key: RoundKey, envelopes: dict[int, Data]) -> None:
        """Keep what the device was told in a round; it is on the disk when this returns."""
        self._rounds.add(key, envelopes)

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        """Note that another attempt at a phase begins; it is on the disk when this returns."""
        self._attempts.begin(phase, attempt, absent, ledgers)

    def begun(self, phase: int) -> BegunAttempt | None:
        """The last attempt at a phase; None for the first."""
        return self._attempts.last(phase)

    def peers(self) -> set[int]:
        """Devices whose envelopes have arrived."""
        return set(self._peers.records)

    def add_peer(self, device: int) -> None:
        """Note that an envelope of this device has arrived; it is on the disk when this returns."""
        self._peers.append(device)

    def opened(self) -> OpenedSums:
        """For what the device gave out shares; every opening is on the disk before it returns."""
        return self._opened

    def keys(self, run: bytes) -> DeviceKeys:
        """The device's keys in this run, from a secret that is drawn at first use.

        Args:
            run: the tag of the run.

        Raises:
            InputError: the secret is damaged, of another run, missing in a run that has begun, or
                others may read it.
        """
        if len(run) != RUN_TAG:
            raise ValueError(f"the tag of a run has {RUN_TAG} bytes")
        path = self.path / SECRET
        if not path.exists():
            if any((self.path / name).exists() for name in _BEGUN):
                raise InputError(f"{path}: is missing, and the device has begun a run; {_REMEDY}")
            secret = entropy.draw(KEY_BYTES)
            write_bytes(path, run + secret + _check(run + secret), private=True, durable=True)
        content = read_private(path)
        whole, check = content[: RUN_TAG + KEY_BYTES], content[RUN_TAG + KEY_BYTES :]
        if check != _check(whole):
            raise InputError(f"{path}: is damaged; {_REMEDY}")
        if whole[:RUN_TAG] != run:
            raise InputError(
                f"{path}: is of run {whole[:RUN_TAG].hex()}, not of {run.hex()}; give the device "
                "an empty folder for each run"
            )
        sync_folder(self.path)
        return DeviceKeys(whole[RUN_TAG:])

    def forget_secret(self) -> None:
        """Overwrite and delete the secret: the run is over for this device."""
        for name in (SECRET, SECRET + NEW):
            overwrite_and_remove(self.path / name)

    def write_result(self, weights: Arrays, result: dict[str, Any]) -> None:
        """Keep the result: `result.json` is there only if both files are complete."""
        remove(self.path / RESULT)
        write_arrays(self.path / WEIGHTS, weights, private=True, durable=True)
        write_json(self.path / RESULT, result, private=True, durable=True)

    def _present_phase(self) -> int:
        """Of the last snapshot; 0 before the first."""
        if self._phase is None:
            snapshot = self.load()
            self._phase = 0 if snapshot is None else int(snapshot["phase"])
        return self._phase

    @cached_property
    def _openings(self) -> RecordLog[_Settled | _Opened]:
        return RecordLog(self.path / OPENINGS, _Settled | _Opened, _REMEDY)

    @cached_property
    def _rounds(self) -> RecordedRounds:
        return RecordedRounds(self.path / ROUNDS, _REMEDY)

    @cached_property
    def _peers(self) -> RecordLog[int]:
        return RecordLog(self.path / PEERS, int, _REMEDY)

    @cached_property
    def _attempts(self) -> BegunAttempts:
        return BegunAttempts(self.path / ATTEMPTS, _REMEDY)

    @cached_property
    def _opened(self) -> OpenedSums:
        before = (
            Opening(record.step, record.number, record.told)
            for record in self._openings.records
            if isinstance(record, _Opened)
        )
        return OpenedSums(before, lambda opening: self._openings.append(_Opened(*opening)))

    @property
    def _settled(self) -> int | None:
        """Before which sum the last snapshot was; None while there was none."""
        numbers = [
            record.number for record in self._openings.records if isinstance(record, _Settled)
        ]
        return max(numbers, default=None)


def _sums_before(snapshot: Arrays) -> int:
    return int(snapshot.get(SUM_NUMBER, 0))


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=_CHECK, person=b"lumos secret").digest()

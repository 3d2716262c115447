"""The state of participants on disk: it survives a restart, and only the owner can read it.

| file | of | holds |
|---|---|---|
| `snapshot.bin` | both | the state between two phases; no key, mask or share |
| `rounds.log` | both | the envelopes received in each round since then |
| `attempts.log` | both | phases that began again: devices left out, and counts before that |
| `secret.key` | device | the secret of this run: keys of masked sums and what programs draw |
| `begun.tag` | device | the run that all of these belong to: a new one begins without them |
| `openings.log` | device | the sums it gave out shares for since then, and the messages received |
| `peers.log` | device | senders of envelopes: after a restart it asks them to send again |
| `weights.npz`, `result.json` | both | the result; the second is written last |
| `left_out.log` | coordinator | devices that are left out for good |
| `evidence/` | coordinator | public evidence against devices that lied (`lumos.deploy.evidence`) |

The privacy account of a device (`lumos.ldp.account`) outlives all runs, in the same folder or in
one that its owner names. A device that stays after the training has two more files:

| file | holds |
|---|---|
| `answers.log` | pairs that it agreed to score, its budget after each, and the scores it learnt |
| `answering.bin` | its own vectors, degree and propagated labels, and the public score buckets |

The log is written before the other file. Where it is missing or damaged later, the number of
answers that the device has given is unknown: it is refused, and no budget starts anew.

A snapshot is replaced first, and what came before it is dropped afterwards, on a device with the
next round: until then it is still in the logs, and passed over.

**Never from a backup.** A folder that was copied back lacks the messages that a device received
since then, and the sums that it gave out shares for. A coordinator that lies could have them opened
twice, and get two vectors under the same masks. A snapshot that is missing, or older than the logs,
is refused.

**Logs.** Each record is on the disk before anything follows from it. Records of short rounds of the
trees are in the file before a packet leaves, and on the disk within a beat (`rounds`).

    record = length (8 bytes) ‖ H(position, body) (16) ‖ H(position, length, that) (8) ‖ body

The *position* is how many records are before it, so records cannot change places or be missing in
the middle. A crash can leave the last record incomplete: nothing followed from it, and it is cut
off. Anything else that is wrong is damage, and refused: its length has a checksum of its own, so
a damaged record does not look like one that is merely incomplete.

**Snapshots** are named arrays in one file, replaced all or nothing, and durably:

    file = magic (16 bytes) ‖ length of the head (8) ‖ head ‖ contents of arrays ‖ H(before) (16)

The head says name, type and shape of each array, in the order of their contents. A snapshot is
written after every epoch, so it is one plain buffer: an npz of a hundred small arrays takes longer
than all else in a small epoch.
"""

import math
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.crypto.entropy import KEY_BYTES
from lumos.deploy.identity import folder_name, read_small
from lumos.deploy.protocol.frames import RUN_TAG, Data, RoundKey
from lumos.deploy.protocol.job import ANSWERS_WITH
from lumos.deploy.protocol.questions import AgreedPair, AnsweredPairs, LearntScore
from lumos.deploy.protocol.rounds import BegunAttempt, RoundRecord
from lumos.device.randomness import DeviceKeys
from lumos.errors import InputError, UsageError
from lumos.ldp.account import PrivacyAccount, Seal
from lumos.secagg.openings import OpenedSums, Opening
from lumos.storage import (
    NEW,
    append_bytes,
    overwrite_and_remove,
    private_folder,
    remove,
    sync_file,
    sync_folder,
    write_arrays,
    write_bytes,
    write_json,
)
from lumos.typing import Arrays

SNAPSHOT, ROUNDS, ATTEMPTS = "snapshot.bin", "rounds.log", "attempts.log"
SECRET, OPENINGS, PEERS = "secret.key", "openings.log", "peers.log"
BEGUN = "begun.tag"
LEFT_OUT, EVIDENCE = "left_out.log", "evidence"
ANSWERS, ANSWERING = "answers.log", "answering.bin"
WEIGHTS, RESULT = "weights.npz", "result.json"
SUM_NUMBER = "run/sums/number"
"""In a snapshot: how many masked sums are before it."""
Record = TypeVar("Record")

_LOG_LENGTH, _BODY, _HEAD = 8, 16, 8
_HEADER = Struct(f"<Q{_BODY}s{_HEAD}s")
_ENCODER = msgspec.msgpack.Encoder()


class RecordLog(Generic[Record]):
    """One log, with what it held before this process started.

    Args:
        path: the file; it need not exist. Only its owner may read it.
        kind: the type of records, as msgspec decodes them.
        remedy: what to do where the file is damaged.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, path: Path, kind: Any, remedy: str) -> None:
        self.path = path
        self._decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(kind)
        self._remedy = remedy
        self._size, self._settled, self._synced = 0, False, True
        self._named, self._unwritten = False, b""
        """True once the name of the file is on the disk."""
        self.records: list[Record] = []
        """All that are in the file; to be read only."""
        if path.exists():
            # Another process may have died before it was on the disk, and now we act on it.
            sync_file(path)
            sync_folder(path.parent)
            self._named = True
            self._read(path.read_bytes())

    def append(self, record: Record, *, durable: bool = True) -> None:
        """Add a record; it is on the disk when this returns, or at the next `sync`."""
        if self._settled:
            self.replace([*self.records, record])
            return
        before = self._unwritten
        self._unwritten += _packed(len(self.records), record)
        if durable:
            try:
                self._write(durable=True)
            except BaseException:
                self._unwritten = before
                raise
        self.records.append(record)

    def write(self) -> None:
        """Have all records survive the end of the process."""
        if self._unwritten:
            self._write(durable=False)

    def sync(self) -> None:
        """Have all records survive a loss of power: they are on the disk when this returns."""
        if not self._synced or self._unwritten:
            self._write(durable=True)

    def _write(self, *, durable: bool) -> None:
        append_bytes(self.path, self._unwritten, self._size, durable=durable, new=not self._named)
        self._size += len(self._unwritten)
        self._unwritten, self._synced = b"", durable
        self._named |= durable

    def settle(self, records: Iterable[Record]) -> None:
        """Go on with these records: the others are not needed any more.

        The file is replaced with the next record: until then they are passed over.
        """
        self.records, self._settled = list(records), True

    def replace(self, records: Iterable[Record]) -> None:
        """Replace all records, durably, and all or nothing."""
        records = list(records)
        content = b"".join(_packed(position, record) for position, record in enumerate(records))
        write_bytes(self.path, content, private=True, durable=True)
        self._size, self.records, self._settled = len(content), records, False
        self._synced, self._named, self._unwritten = True, True, b""

    def _read(self, content: bytes) -> None:
        while len(content) - self._size >= _HEADER.size:
            position, start = len(self.records), self._size + _HEADER.size
            length, digest, check = _HEADER.unpack_from(content, self._size)
            if check != _head_check(position, length, digest):
                raise self._damaged()
            body = content[start : start + length]
            if len(body) < length:
                return  # the crash came before all of it was written
            if digest != _digest(position, body):
                raise self._damaged()
            try:
                self.records.append(self._decoder.decode(body))
            except msgspec.MsgspecError:
                raise self._damaged() from None
            self._size = start + length

    def _damaged(self) -> InputError:
        return InputError(f"{self.path}: record {len(self.records) + 1} is damaged; {self._remedy}")


def _packed(position: int, record: Any) -> bytes:
    body = _ENCODER.encode(record)
    digest = _digest(position, body)
    return _HEADER.pack(len(body), digest, _head_check(position, len(body), digest)) + body


def _digest(position: int, body: bytes) -> bytes:
    salt = position.to_bytes(16, "little")
    return blake2b(body, digest_size=_BODY, salt=salt, person=b"lumos log body").digest()


def _head_check(position: int, length: int, digest: bytes) -> bytes:
    whole = length.to_bytes(_LOG_LENGTH, "little") + digest
    salt = position.to_bytes(16, "little")
    return blake2b(whole, digest_size=_HEAD, salt=salt, person=b"lumos log head").digest()


_MAGIC = b"lumos snapshot 1"
_LENGTH, _SNAPSHOT_CHECK = 8, 16
_BEFORE_HEAD = len(_MAGIC) + _LENGTH
_KINDS = "biufSU"
"""Kinds of types that an array may have: numbers and text, never objects."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]


_DECODER = msgspec.msgpack.Decoder(list[_Entry])


def write_snapshot(path: Path, snapshot: Arrays) -> None:
    """Replace a snapshot; it is on the disk when this returns."""
    write_bytes(path, packed(snapshot), private=True, durable=True)


def packed(snapshot: Arrays) -> bytes:
    """Return the content of a file with these arrays."""
    named: Arrays = {name: np.asarray(array) for name, array in snapshot.items()}
    for name, array in named.items():
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"the array {name!r} of a snapshot has the type {array.dtype}")
    head = _ENCODER.encode(
        [_Entry(name, array.dtype.str, array.shape) for name, array in named.items()]
    )
    before = [_MAGIC, len(head).to_bytes(_LENGTH, "little"), head]
    content = b"".join([*before, *(array.tobytes() for array in named.values())])
    return content + _check_of(content)


def read_snapshot(path: Path, remedy: str) -> Arrays | None:
    """Return the snapshot; None where there is none.

    Args:
        remedy: what to do where it is damaged.

    Raises:
        InputError: it is damaged, or cannot be read.
    """
    if not path.exists():
        return None
    try:
        sync_folder(path.parent)  # another process may have died before its name was on the disk
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    try:
        return unpacked(content)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        what = error if type(error) is ValueError else "its head cannot be read"
        raise InputError(f"{path}: is damaged ({what}); {remedy}") from None


def unpacked(content: bytes) -> Arrays:
    """Return the arrays; raise `ValueError`, `TypeError` or `MsgspecError` for damaged content."""
    end = len(content) - _SNAPSHOT_CHECK
    if end < _BEFORE_HEAD or not content.startswith(_MAGIC):
        _refuse("it is no snapshot, or incomplete")
    if content[end:] != _check_of(memoryview(content)[:end]):
        _refuse("its checksum is another one")
    place = _BEFORE_HEAD + int.from_bytes(content[len(_MAGIC) : _BEFORE_HEAD], "little")
    arrays: Arrays = {}
    for entry in _DECODER.decode(memoryview(content)[_BEFORE_HEAD : min(place, end)]):
        dtype = np.dtype(entry.dtype)
        if dtype.kind not in _KINDS or dtype.fields is not None:
            _refuse("an array holds neither numbers nor text")
        size = math.prod(entry.shape) * dtype.itemsize
        if min(entry.shape, default=0) < 0 or size > end - place:
            _refuse("an array is not as large as the head says")
        arrays[entry.name] = _array(content[place : place + size], dtype, entry.shape)
        place += size
    if place != end:
        _refuse("its arrays are not as large as the head says")
    return arrays


def _array(content: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return a writable array."""
    array = np.empty(shape, dtype)
    if content:
        array.reshape(-1)[:] = np.frombuffer(content, dtype)
    return array


def _check_of(content: bytes | memoryview) -> bytes:
    return blake2b(content, digest_size=_SNAPSHOT_CHECK, person=b"lumos snapshot").digest()


def _refuse(why: str) -> NoReturn:
    raise ValueError(why)


class _Saved(msgspec.Struct, frozen=True, array_like=True, tag="saved"):
    """Rounds before this phase are in the snapshot."""

    phase: int


class _ClosedRound(msgspec.Struct, frozen=True, array_like=True, tag="closed"):
    key: RoundKey
    envelopes: dict[int, Data]
    """By sender."""


class _Begun(msgspec.Struct, frozen=True, array_like=True):
    phase: int
    attempt: int
    absent: list[int]
    ledgers: bytes


class ParticipantState:
    """The files of one participant in one run. One process uses them at a time.

    Args:
        path: the folder; it is made if it is not there.

    Raises:
        UsageError: it cannot be a folder.
    """

    remedy: ClassVar[str]
    """Advice for a user whose file is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._snapshot_file = path / SNAPSHOT
        self.before_save: Callable[[Arrays], Arrays] = lambda snapshot: snapshot
        """Called with a snapshot; returns the one that is kept."""
        try:
            private_folder(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be a folder ({error.strerror})") from None

    def load(self) -> Arrays | None:
        """Read the last snapshot; None before the first.

        Raises:
            InputError: it is damaged, missing, or older than what the participant has done since.
        """
        snapshot = read_snapshot(self._snapshot_file, self.remedy)
        self._check_age(snapshot)
        return snapshot

    def _check_age(self, snapshot: Arrays | None) -> None:
        saved = [record.phase for record in self._rounds.records if isinstance(record, _Saved)]
        if saved and (snapshot is None or int(snapshot["phase"]) < max(saved)):
            raise InputError(
                f"{self._snapshot_file}: is missing, or older than {ROUNDS}; {self.remedy}"
            )

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot, all or nothing, and forget what is not needed after it."""
        write_snapshot(self._snapshot_file, self.before_save(snapshot))
        # From here on a crash leaves records that nobody asks for; the next snapshot drops them.
        phase = int(snapshot["phase"])
        self._settle_rounds([_Saved(phase), *self._closed_since(phase)])
        later = [begun for begun in self._attempts.records if begun.phase >= phase]
        if len(later) < len(self._attempts.records):
            self._attempts.replace(later)

    def _settle_rounds(self, records: list[_Saved | _ClosedRound]) -> None:
        self._rounds.replace(records)

    def write_result(self, weights: Arrays, result: dict[str, Any]) -> None:
        """Keep the result: `result.json` is there only if both files are complete."""
        remove(self.path / RESULT)
        write_arrays(self.path / WEIGHTS, weights, private=True, durable=True)
        write_json(self.path / RESULT, result, private=True, durable=True)

    def rounds(self) -> RoundRecord:
        """Return the rounds since the last snapshot, with the envelopes received."""
        snapshot = self.load()
        phase = 0 if snapshot is None else int(snapshot["phase"])
        rounds: RoundRecord = {}
        for closed in self._closed_since(phase):
            rounds.setdefault(closed.key, {}).update(closed.envelopes)
        return rounds

    def add_round(self, key: RoundKey, envelopes: dict[int, Data], *, durable: bool = True) -> None:
        """Record envelopes received in a round.

        Args:
            durable: they are on the disk when this returns; otherwise at the next `sync`.
        """
        self._rounds.append(_ClosedRound(key, envelopes), durable=durable)

    def write(self) -> None:
        """Have all rounds survive the end of the process."""
        self._rounds.write()

    def sync(self) -> None:
        """Have all rounds on the disk."""
        self._rounds.sync()

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        """Note that another attempt at a phase begins; it is on the disk when this returns."""
        self._attempts.append(_Begun(phase, attempt, sorted(absent), packed(ledgers)))

    def begun(self, phase: int) -> BegunAttempt | None:
        """Return the last attempt at a phase; None for the first, which is not noted."""
        of_phase = [begun for begun in self._attempts.records if begun.phase == phase]
        if not of_phase:
            return None
        last = of_phase[-1]
        return BegunAttempt(last.attempt, frozenset(last.absent), unpacked(last.ledgers))

    def _closed_since(self, phase: int) -> list[_ClosedRound]:
        return [
            record
            for record in self._rounds.records
            if isinstance(record, _ClosedRound) and record.key.phase >= phase
        ]

    def _log(self, name: str, kind: Any) -> RecordLog[Any]:
        return RecordLog(self.path / name, kind, self.remedy)

    @cached_property
    def _rounds(self) -> RecordLog[_Saved | _ClosedRound]:
        return self._log(ROUNDS, _Saved | _ClosedRound)

    @cached_property
    def _attempts(self) -> RecordLog[_Begun]:
        return self._log(ATTEMPTS, _Begun)


class _Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """Sums before this number are in the snapshot, and never replayed."""

    number: int


class _Opened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """An `Opening`."""

    step: int
    number: int
    received: bytes


_BEGUN = (SNAPSHOT, OPENINGS, ATTEMPTS, ROUNDS, PEERS)
"""Files that a device has once it has begun a run."""
_SECRET_CHECK = 16


class DeviceFolder(ParticipantState):
    """The folder of one device in one run."""

    remedy = (
        "this device cannot go on with the run, and is left out after the deadline; give it the "
        "plan of the next one, and never a folder from a backup"
    )

    def begin_run(self, run: bytes) -> None:
        """Delete the state of an earlier run, which has ended or failed, and note the new one.

        The first call of a process. What the device has released is in its privacy account.

        Args:
            run: the tag of the run.
        """
        path = self.path / BEGUN
        if path.exists():
            if path.read_bytes() == run:
                return
            self.forget_secret()
            for name in (*_BEGUN, ANSWERS, ANSWERING):
                remove(self.path / name)
        write_bytes(path, run, private=True, durable=True)

    def _check_age(self, snapshot: Arrays | None) -> None:
        settled = [
            record.number for record in self._openings.records if isinstance(record, _Settled)
        ]
        if snapshot is None and settled:
            raise InputError(f"{self._snapshot_file}: is missing; {self.remedy}")
        if snapshot is not None and settled and _sums_before(snapshot) < max(settled):
            raise InputError(f"{self._snapshot_file}: is older than {OPENINGS}; {self.remedy}")
        super()._check_age(snapshot)

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot, all or nothing, and forget what is not needed after it."""
        super().save(snapshot)
        number = _sums_before(snapshot)
        self._openings.replace([_Settled(number), *self._opened_since(number)])
        self._opened.settle(number)

    def _settle_rounds(self, records: list[_Saved | _ClosedRound]) -> None:
        self._rounds.settle(records)  # `openings.log` says how old the snapshot may be

    def _opened_since(self, number: int) -> list[_Settled | _Opened]:
        return [
            record
            for record in self._openings.records
            if isinstance(record, _Opened) and record.number >= number
        ]

    def peers(self) -> set[int]:
        """Return the devices whose envelopes have arrived."""
        return set(self._peers.records)

    def add_peer(self, device: int) -> None:
        """Note that an envelope of this device has arrived; it is on the disk when this returns."""
        self._peers.append(device)

    def opened(self) -> OpenedSums:
        """Return the sums that shares were given out for; each is written before its shares."""
        return self._opened

    def keys(self, run: bytes) -> DeviceKeys:
        """Return the device's keys in this run, from a secret that is drawn at first use.

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
                raise InputError(
                    f"{path}: is missing, and the device has begun a run; {self.remedy}"
                )
            secret = entropy.draw(KEY_BYTES)
            write_bytes(
                path, run + secret + _secret_check(run + secret), private=True, durable=True
            )
        content = read_small(path, private=True)
        whole, check = content[: RUN_TAG + KEY_BYTES], content[RUN_TAG + KEY_BYTES :]
        if check != _secret_check(whole):
            raise InputError(f"{path}: is damaged; {self.remedy}")
        if whole[:RUN_TAG] != run:
            raise InputError(
                f"{path}: is of run {whole[:RUN_TAG].hex()}, not of {run.hex()}; {self.remedy}"
            )
        sync_folder(self.path)
        return DeviceKeys(whole[RUN_TAG:], run)

    def forget_secret(self) -> None:
        """Overwrite and delete the secret: the run is over for this device."""
        for name in (SECRET, SECRET + NEW):
            overwrite_and_remove(self.path / name)

    @cached_property
    def _openings(self) -> RecordLog[_Settled | _Opened]:
        return self._log(OPENINGS, _Settled | _Opened)

    @cached_property
    def _peers(self) -> RecordLog[int]:
        return self._log(PEERS, int)

    @cached_property
    def _opened(self) -> OpenedSums:
        before = (
            Opening(record.step, record.number, record.received)
            for record in self._openings.records
            if isinstance(record, _Opened)
        )
        return OpenedSums(before, lambda opening: self._openings.append(_Opened(*opening)))


def _sums_before(snapshot: Arrays) -> int:
    return int(snapshot.get(SUM_NUMBER, 0))


def _secret_check(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SECRET_CHECK, person=b"lumos secret").digest()


class _LeftOut(msgspec.Struct, frozen=True, array_like=True):
    device: int
    phase: str


def evidence_name(device: int) -> str:
    """Return the name of the file of evidence against a device."""
    return f"{folder_name(device)}.json"


class CoordinatorFolder(ParticipantState):
    """The folder of the coordinator in one run."""

    remedy = "the run cannot go on; begin a new one with an empty folder"

    def left_out(self) -> dict[int, str]:
        """Return the devices that are left out, and the phase of each."""
        return {record.device: record.phase for record in self._left_out.records}

    def leave_out(self, device: int, phase: str) -> None:
        """Record that a device is left out; it is on disk when this returns."""
        self._left_out.append(_LeftOut(device, phase))

    def keep_evidence(self, device: int, content: bytes) -> None:
        """Keep a file of evidence against a device that lied."""
        private_folder(self.path / EVIDENCE)
        path = self.path / EVIDENCE / evidence_name(device)
        write_bytes(path, content, private=True, durable=True)

    @cached_property
    def _left_out(self) -> RecordLog[_LeftOut]:
        return self._log(LEFT_OUT, _LeftOut)


_ANSWERS_REMEDY = (
    "how many answers this device has given is not known, and it answers no more; give it the "
    "plan of another run, and never a folder from a backup"
)


class _BegunAnswers(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """The first record: the run and the device of these answers."""

    run: str
    device: int


class AnsweringFiles:
    """The files of one device in one run.

    Args:
        folder: of the device.
        run: name of the run.
        device: id.
        account: privacy account of the device over all runs; None for none.
    """

    def __init__(
        self, folder: Path, run: str, device: int, account: PrivacyAccount | None = None
    ) -> None:
        self._log_file, self._file = folder / ANSWERS, folder / ANSWERING
        self._account = account
        self._begun = _BegunAnswers(run, device)

    @property
    def exist(self) -> bool:
        """True once the device has something to answer with."""
        return self._file.exists()

    def begin(self, snapshot: Arrays) -> None:
        """Write the arrays that the device answers with; they are on disk when this returns.

        Args:
            snapshot: of the end of the training.
        """
        if not self._log.records:
            self._log.append(self._begun)
        self._check_log()
        kept = {name: array for name, array in snapshot.items() if name.startswith(ANSWERS_WITH)}
        about: Arrays = {"run": np.array(self._begun.run), "device": np.array(self._begun.device)}
        if self._account is not None:
            about |= self._account.seal().arrays()
        write_snapshot(self._file, {**kept, **about, "absent": snapshot["absent"]})

    def load(self) -> Arrays:
        """Return the arrays that `TrainingJob.restore_answers` takes.

        Raises:
            InputError: a file is missing, damaged, or of another run.
        """
        self._check_log()
        arrays = read_snapshot(self._file, _ANSWERS_REMEDY)
        if arrays is None:
            raise InputError(f"{self._file}: is missing; {_ANSWERS_REMEDY}")
        if (str(arrays.get("run")), int(arrays.get("device", -1))) != (
            self._begun.run,
            self._begun.device,
        ):
            raise InputError(f"{self._file}: is of another run or device; {_ANSWERS_REMEDY}")
        if self._account is not None:
            self._account.check_seal(Seal.of(arrays))
        return arrays

    @cached_property
    def pairs(self) -> AnsweredPairs:
        """The pairs that the device has answered; every record is on disk before it counts."""
        if self.exist or self._log.records:
            self._check_log()
        before = [record for record in self._log.records if not isinstance(record, _BegunAnswers)]
        return AnsweredPairs(before, self._log.append, self._account)

    @cached_property
    def _log(self) -> RecordLog[_BegunAnswers | AgreedPair | LearntScore]:
        return RecordLog(self._log_file, _BegunAnswers | AgreedPair | LearntScore, _ANSWERS_REMEDY)

    def _check_log(self) -> None:
        records = self._log.records
        if not records:
            raise InputError(f"{self._log_file}: is missing or empty; {_ANSWERS_REMEDY}")
        if records[0] != self._begun:
            raise InputError(f"{self._log_file}: is of another run or device; {_ANSWERS_REMEDY}")

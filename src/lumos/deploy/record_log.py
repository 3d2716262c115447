"""A file to which records are added, each on the disk before anything follows from it.

    record = length (8 bytes) ‖ H(position, body) (16) ‖ H(position, length, that) (8) ‖ body

The *position* is how many records are before it, so records cannot change places or be missing in
the middle. A crash can leave the last record incomplete: nothing followed from it, and it is cut
off. Anything else that is wrong is damage, and refused: its length has a checksum of its own, so
a damaged record does not look like one that is merely incomplete.
"""

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Any, Generic, TypeVar

import msgspec

from lumos.errors import InputError
from lumos.storage import append_bytes, sync_file, sync_folder, write_bytes

Record = TypeVar("Record")

_LENGTH, _BODY, _HEAD = 8, 16, 8
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
        self._size = 0
        self.records: list[Record] = []
        """All that are in the file; to be read only."""
        if path.exists():
            # Another process may have died before it was on the disk, and now we act on it.
            sync_file(path)
            sync_folder(path.parent)
            self._read(path.read_bytes())

    def append(self, record: Record) -> None:
        """Add a record, durably."""
        content = _packed(len(self.records), record)
        append_bytes(self.path, content, self._size)
        self._size += len(content)
        self.records.append(record)

    def replace(self, records: Iterable[Record]) -> None:
        """Have these records and no others, durably, and all or nothing."""
        records = list(records)
        content = b"".join(_packed(position, record) for position, record in enumerate(records))
        write_bytes(self.path, content, private=True, durable=True)
        self._size, self.records = len(content), records

    def _read(self, content: bytes) -> None:
        while len(content) - self._size >= _HEADER.size:
            position, start = len(self.records), self._size + _HEADER.size
            length, digest, check = _HEADER.unpack_from(content, self._size)
            if check != _check(position, length, digest):
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
    return _HEADER.pack(len(body), digest, _check(position, len(body), digest)) + body


def _digest(position: int, body: bytes) -> bytes:
    salt = position.to_bytes(16, "little")
    return blake2b(body, digest_size=_BODY, salt=salt, person=b"lumos log body").digest()


def _check(position: int, length: int, digest: bytes) -> bytes:
    whole = length.to_bytes(_LENGTH, "little") + digest
    salt = position.to_bytes(16, "little")
    return blake2b(whole, digest_size=_HEAD, salt=salt, person=b"lumos log head").digest()

"""The plain layout of safetensors: written as its description says, and damaged files refused."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos.errors import InputError
from lumos.graph.parts import stored_part
from lumos.graph.parts.stored_part import read_layout, write_layout

ARRAYS: dict[str, Any] = {
    "bytes": np.arange(5, dtype=np.uint8),
    "long": np.array([[1, -2], [3, 1 << 40]], np.int64),
    "none": np.empty((0, 2), np.int32),
    "real": np.array([0.5, -1.25], np.float32),
    "small": np.array([-1, 2, 0], np.int8),
    "words": np.array([7, 65535], np.uint16),
}


@pytest.fixture(params=["read", "mapped"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "mapped":
        monkeypatch.setattr(stored_part, "MAPPED_BYTES", 0)
    write_layout(tmp_path / "file", ARRAYS)
    return tmp_path / "file"


def raw(header: object, buffers: bytes, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + buffers


def entry(kind: str, shape: object, *places: object) -> dict[str, object]:
    return {"dtype": kind, "shape": shape, "data_offsets": [*places]}


def test_arrays_come_back(file: Path) -> None:
    arrays = read_layout(file, "write it again")
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert not array.flags.writeable
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_file_is_what_the_description_says(file: Path) -> None:
    """Read by hand, as any reader of safetensors does."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    types = {"I64": "<i8", "I32": "<i4", "F32": "<f4", "U16": "<u2", "I8": "i1", "U8": "u1"}
    end = 0
    for name, about in header.items():
        start, stop = about["data_offsets"]
        assert start == end  # no holes
        end = stop
        dtype = np.dtype(types[about["dtype"]])
        assert start % dtype.itemsize == 0
        array = np.frombuffer(content[8 + length + start : 8 + length + stop], dtype)
        np.testing.assert_array_equal(array.reshape(about["shape"]), ARRAYS[name])
    assert 8 + length + end == len(content)


def test_a_file_is_never_written_over(file: Path) -> None:
    with pytest.raises(FileExistsError):
        write_layout(file, ARRAYS)


def test_any_cut_is_noticed(file: Path) -> None:
    content = file.read_bytes()
    for length in {*range(0, len(content), 23), 7, 8, len(content) - 1}:
        file.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"file: is damaged .*; write it again") as refused:
            read_layout(file, "write it again")
        assert "\n" not in str(refused.value)
    file.write_bytes(content + b"\0")
    with pytest.raises(InputError, match="is damaged"):
        read_layout(file, "write it again")


@pytest.mark.parametrize(
    "content",
    [
        raw(b"no json at all", b""),
        raw(b"\xff\xfe", b""),
        raw([1, 2], b""),
        raw({"a": 3}, b""),
        raw({"a": {}}, b""),
        raw({"a": entry("I64", [1], 0)}, bytes(8)),
        raw({"a": entry("F16", [4], 0, 8)}, bytes(8)),
        raw({"a": entry("I64", [2], 0, 8)}, bytes(8)),  # too short
        raw({"a": entry("I64", [-1], 0, 8)}, bytes(8)),
        raw({"a": entry("I64", [1.0], 0, 8)}, bytes(8)),
        raw({"a": entry("I64", [True], 0, 8)}, bytes(8)),
        raw({"a": entry("I64", "1", 0, 8)}, bytes(8)),
        raw({"a": entry("I64", [1 << 61, 1 << 61], 0, 8)}, bytes(8)),
        raw({"a": entry("I64", [1], 0, 8), "b": entry("I64", [1], 0, 8)}, bytes(8)),  # overlap
        raw({"a": entry("I64", [1], 0, 8), "b": entry("I64", [1], 4, 12)}, bytes(12)),
        raw({"a": entry("I64", [1], 0, 8), "b": entry("I64", [1], 16, 24)}, bytes(24)),  # a hole
        raw({"a": entry("U8", [3], 0, 3), "b": entry("I64", [1], 3, 11)}, bytes(11)),  # odd place
        raw({"a": entry("I64", [1], 8, 0)}, bytes(8)),
        raw({"a": entry("I64", [1], 0, 8)}, bytes(8), length=1 << 60),
        raw({"a": entry("I64", [1], 0, 8)}, bytes(8), length=3),
        raw(b"[" * 100_000, b""),
    ],
)
def test_headers_that_lie_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match="is damaged") as refused:
        read_layout(tmp_path / "file", "write it again")
    assert "\n" not in str(refused.value)


def test_metadata_is_let_pass(tmp_path: Path) -> None:
    header = {"__metadata__": {"by": "others"}, "a": entry("I8", [1], 0, 1)}
    (tmp_path / "file").write_bytes(raw(header, b"\x05"))
    assert read_layout(tmp_path / "file", "")["a"].tolist() == [5]


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; look again"):
        read_layout(tmp_path / "none", "look again")
    with pytest.raises(InputError, match="look again"):
        read_layout(tmp_path, "look again")

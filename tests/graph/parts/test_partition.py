"""Who is in which part: files as users write them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos.errors import InputError
from lumos.graph.parts.manifest import Partition, read_assignment

IDS = np.array([10, 20, 30, 40])
NAMES = ("a", "b", "c", "10")


@pytest.mark.parametrize(
    "text",
    [
        "id,part\n10,0\n20,1\n30,1\n40,0\n",
        "40,0\n30,1\r\n# a comment\n\n20,1\n10,0",
        '\ufeff"10",0\n"20","1"\n30,1\n 40 , 0 \n',
        "id\tpart\n10\t0\n20\t1\n30\t1\n40\t0\n",
    ],
)
def test_tables(text: str, tmp_path: Path) -> None:
    (tmp_path / "who.csv").write_text(text)
    found = read_assignment(tmp_path / "who.csv", IDS)
    assert found.parts == 2
    assert found.assignment is not None
    assert found.assignment.tolist() == [0, 1, 1, 0]
    assert found.assignment.dtype == np.uint8
    assert [part.tolist() for part in found.hosted()] == [[0, 3], [1, 2]]
    assert found.counts.tolist() == [2, 2]


def test_names_and_arrays(tmp_path: Path) -> None:
    (tmp_path / "who.txt").write_text("a,0\nb,1\nc,2\n10,0\n")
    found = read_assignment(tmp_path / "who.txt", NAMES, 3)
    assert found.part_of(np.arange(4)).tolist() == [0, 1, 2, 0]
    np.save(tmp_path / "who.npy", np.array([0, 1, 2, 0], np.int16))
    again = read_assignment(tmp_path / "who.npy", NAMES)
    assert again.part_of(np.arange(4)).tolist() == [0, 1, 2, 0]


def test_more_than_256_parts_take_two_bytes(tmp_path: Path) -> None:
    np.save(tmp_path / "who.npy", np.arange(300))
    found = read_assignment(tmp_path / "who.npy", np.arange(300))
    assert found.assignment is not None
    assert found.assignment.dtype == np.uint16
    assert [part.tolist() for part in found.hosted()] == [[row] for row in range(300)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it holds no rows; id,part is needed"),
        ("id,part\n", "it holds no rows"),
        ("10,0\n20,1\n30,1\n", "1 devices are in no part, the first is '40'; give each a line"),
        ("10,0\n20,1\n30,1\n40,0\n10,1", "'10' occurs twice; put it into one part"),
        ("10,0\n20,1\n30,1\n40,0\n50,1", "line 5: '50' is not the id of any device"),
        ("10,0\n20,1\nx,1\n40,0\n", "line 3: 'x' is not the id of any device"),
        ("10,0\n20,2\n30,2\n40,0\n", "part 1 has no device; number parts without gaps from 0"),
        ("10,1\n20,1\n30,1\n40,1\n", "part 0 has no device"),
        ("10,0\n20,-1\n30,1\n40,0\n", "line 2: '-1' is no part; parts are numbered from 0"),
        ("10,0\n20,1.0\n30,1\n40,0\n", "line 2: '1.0' is no part"),
        ("10,0\n20,\n30,1\n40,0\n", "line 2: '' is no part"),
        ("10,0\n20\n30,1\n40,0\n", "line 2: 1 columns; id,part is needed"),
        ("10,0,5\n", "line 1: 3 columns"),
        ("10,0\n20,70000\n30,1\n40,0\n", "part 70,000; parts are numbered 0 … 65,535"),
        ("10,0\n20,1\n30,2\n40,0\n", "it names 3 parts, but `parts` is 2"),
    ],
)
def test_wrong_tables_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "who.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        read_assignment(tmp_path / "who.csv", IDS, 2 if "names 3" in message else None)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path / 'who.csv'}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3, int), "a whole number for each device is needed, [4]"),
        (np.zeros((4, 1), int), "a whole number for each device is needed"),
        (np.zeros(4), "float64 of shape [4]; a whole number"),
        (np.array([0, 1, -1, 0]), "row 2 has part -1; parts are numbered from 0"),
        (np.array([0, 1, None, 0]), "it cannot be read"),
        (b"nothing", "it cannot be read"),
    ],
)
def test_wrong_arrays_are_refused(array: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "who.npy"
    path.write_bytes(array) if isinstance(array, bytes) else np.save(path, array)
    with pytest.raises(InputError) as refused:
        read_assignment(path, IDS)
    assert message in str(refused.value)


def test_missing_files_are_refused(tmp_path: Path) -> None:
    for name in ("who.csv", "who.npy"):
        with pytest.raises(InputError, match="no such file; check the path"):
            read_assignment(tmp_path / name, IDS)


def test_contiguous_parts() -> None:
    partition = Partition.equal(10, 3)
    assert [part.tolist() for part in partition.hosted()] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert partition.part_of(np.arange(10)).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]

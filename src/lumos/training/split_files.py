"""Files that hold a split: CSV, JSON or npz.

- CSV: `id,split` for devices, `source,target,split` for edges; `split` is train, val or test, and
  for pairs that are no edges val_negative or test_negative. With or without a header.
- JSON: an object `{"train": [ids], "val": [ids], "test": [ids]}`; for edges lists of pairs.
- npz: arrays of these names; ids, or masks over all devices.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.arrays import shown
from lumos.storage import one_line, read_arrays

SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".npz")
WORDS = ("split", "part", "role", "set", "mask")
"""What the last column of a CSV may be called."""


def read_split(path: Path) -> dict[str, Any]:
    """The parts of a split by name, as the file names them.

    Raises:
        InputError: there is no such file, or it holds no split.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; `split` is a file or shares as 60/20/20")
    if path.suffix.casefold() not in SUFFIXES:
        raise InputError(f"{path}: a split is read from {', '.join(SUFFIXES)}; convert it")
    if path.suffix.casefold() == ".npz":
        return dict(read_arrays(path))
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not readable text ({one_line(error)})") from None
    return _of_json(text, path) if path.suffix.casefold() == ".json" else _of_table(text, path)


def _of_json(text: str, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: it is not valid JSON ({one_line(error)})") from None
    if not isinstance(content, dict):
        raise InputError(f'{path}: an object {{"train": [ids], …}} is needed')
    try:
        return {name: np.asarray(rows) for name, rows in content.items()}
    except ValueError:
        raise InputError(f"{path}: lists of ids, or of pairs of ids, are needed") from None


def _of_table(text: str, path: Path) -> dict[str, Any]:
    rows: dict[str, list[Any]] = {}
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = next((mark for mark in ",\t;" if mark in first), None)
    width = 0
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip().strip('"') for cell in line.split(separator)]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if not width:
            width = len(cells)
            if width not in (2, 3):
                raise InputError(
                    f"{path}, line {number}: {width} columns; id,split or source,target,split is "
                    "needed"
                )
            if cells[-1].casefold() in WORDS:
                continue  # a header
        if len(cells) != width:
            raise InputError(f"{path}, line {number}: {len(cells)} columns, but {width} before")
        ids = [_id(cell) for cell in cells[:-1]]
        if not cells[-1]:
            continue  # a device that is in no part
        if not all(str(name) for name in ids):
            raise InputError(f"{path}, line {number}: {shown(line)} has an empty id")
        rows.setdefault(cells[-1], []).append(ids[0] if width == 2 else ids)
    if not rows:
        raise InputError(f"{path}: it holds no rows; id,split is needed")
    return {name: np.asarray(ids) for name, ids in rows.items()}


def _id(cell: str) -> int | str:
    return int(cell) if cell.isdecimal() and len(cell) < 19 else cell

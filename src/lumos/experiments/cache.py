"""What was computed before: the cells of a folder, and kept collections of them."""

import fcntl
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumos.errors import InputError, UsageError
from lumos.experiments.cell import Cell, Key, plain

FORMAT = 1


@dataclass(frozen=True)
class CachedResult:
    """A result that is there already."""

    result: dict[str, Any]
    code: str
    """Version of the code that made it."""
    other_code: bool = False
    """Whether that is another version than this."""
    kept: str = ""
    """Name of the collection it comes from."""


class ResultCache:
    """The results of one folder, with kept collections behind them.

    Args:
        out: the folder; its cells lie in OUT/cells/KEY.json, each written in one piece.
        kept: files that `keep` wrote.
        any_code: take kept results of another code version too, and say so.
    """

    def __init__(self, out: Path, kept: Iterable[Path] = (), *, any_code: bool = False) -> None:
        self.out = out
        self._any_code = any_code
        self._kept: dict[str, list[tuple[str, dict[str, Any], str]]] = {}
        for path in kept:
            for record in read_kept(path):
                self._kept.setdefault(record["run"], []).append(
                    (record["code"], record["result"], path.name)
                )

    def place(self, key: Key) -> Path:
        """Where a cell is written."""
        return self.out / "cells" / f"{key}.json"

    def partial(self, key: Key) -> Path:
        """The run folder of a cell that is not finished."""
        return self.out / "partial" / str(key)

    def get(self, key: Key) -> CachedResult | None:
        """The result of a cell, if it is there."""
        place = self.place(key)
        if place.exists():
            record = _read(place, remedy="; remove it and start again")
            if isinstance(record, dict) and isinstance(record.get("result"), dict):
                return CachedResult(record["result"], key.code)
            raise InputError(f"{place}: is no cell; remove it and start again")
        kept = self._kept.get(key.run, [])
        for code, result, name in kept:
            if code == key.code:
                return CachedResult(result, code, kept=name)
        if kept and self._any_code:
            code, result, name = kept[-1]
            return CachedResult(result, code, other_code=True, kept=name)
        return None

    def put(self, key: Key, cell: Cell, result: Mapping[str, Any]) -> None:
        """Write a cell, all or nothing."""
        write(self.place(key), json.dumps(record_of(key, cell, result), indent=1) + "\n")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder: two runs in one would compute everything twice."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.out}: cannot be a folder ({error.strerror})") from None
        with (self.out / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"{self.out}: another `lumos reproduce` is at work there; wait for it, or "
                    "choose another --out"
                ) from None
            yield


def record_of(key: Key, cell: Cell, result: Mapping[str, Any]) -> dict[str, Any]:
    """A cell as it is written."""
    return {
        "format": FORMAT,
        "run": key.run,
        "code": key.code,
        "kind": cell.kind,
        "graph": cell.graph,
        "seed": cell.seed,
        "settings": plain(dict(cell.settings)),
        "result": {name: _finite(value) for name, value in result.items()},
    }


def _finite(value: Any) -> Any:
    """What is no number as nothing: JSON has no word for it."""
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def keep(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add cells to a collection, one line each; a run that was in it already is replaced."""
    known = {record["run"]: record for record in (read_kept(path) if path.exists() else ())}
    known |= {record["run"]: dict(record) for record in records}
    lines = sorted(
        json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False)
        for record in known.values()
    )
    write(path, "[\n" + ",\n".join(lines) + "\n]\n")


def write(path: Path, text: str) -> None:
    """Write a file, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path.with_name(path.name + ".new")
    place.write_text(text, "utf-8")
    place.replace(path)


def read_kept(path: Path) -> list[dict[str, Any]]:
    """Read what `keep` wrote.

    Raises:
        InputError: it is something else.
    """
    records = _read(path)
    needed = {"format", "run", "code", "result"}
    if not isinstance(records, list) or not all(
        isinstance(record, dict) and record.keys() >= needed and record["format"] == FORMAT
        for record in records
    ):
        raise InputError(f"{path}: is no collection that `lumos reproduce --keep` wrote")
    return records


def _read(path: Path, remedy: str = "") -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}){remedy}") from None

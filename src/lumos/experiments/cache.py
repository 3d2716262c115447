"""Results that were computed before: the cells of a folder, and kept collections of them."""

import fcntl
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumos.errors import InputError, UsageError
from lumos.experiments.cell import Cell, json_settings, run_id
from lumos.experiments.result_versions import version_of
from lumos.storage import write_json, write_text

FORMAT = 2


@dataclass(frozen=True)
class Key:
    """Where a result is stored: the run, and the version of its result."""

    run: str
    """`run_id` of the cell: kind, settings, seed and graph."""
    version: int
    """Of this kind of result; see `lumos.experiments.result_versions`."""

    def __str__(self) -> str:
        return f"{self.run}-v{self.version}"


def key_of(cell: Cell, fingerprint: str) -> Key:
    """The key of a cell on the graph with this fingerprint, as the present code computes it."""
    return Key(run_id(cell, fingerprint), version_of(cell))


@dataclass(frozen=True)
class CachedResult:
    """A result that was computed before."""

    result: dict[str, Any]
    version: int
    """Version of the result."""
    other_version: bool = False
    """Whether the present code computes another version."""
    collection: str = ""
    """Name of the collection that holds it; empty for a cell of the folder."""


class ResultCache:
    """The results of one folder, with kept collections behind them.

    Args:
        out: the folder; its cells are OUT/cells/KEY.json, each written atomically.
        collections: files that `keep` wrote.
        any_version: also return kept results of another version, marked as such.
    """

    def __init__(
        self, out: Path, collections: Iterable[Path] = (), *, any_version: bool = False
    ) -> None:
        self.out = out
        self._any_version = any_version
        self._kept: dict[str, list[CachedResult]] = {}
        for path in collections:
            for record in read_kept(path):
                kept = CachedResult(record["result"], record["version"], collection=path.name)
                self._kept.setdefault(record["run"], []).append(kept)

    def path(self, key: Key) -> Path:
        """The file of a finished cell."""
        return self.out / "cells" / f"{key}.json"

    def partial(self, key: Key) -> Path:
        """The run folder of an unfinished cell."""
        return self.out / "partial" / str(key)

    def get(self, key: Key) -> CachedResult | None:
        """The result of a cell, or None."""
        path = self.path(key)
        if path.exists():
            record = _read(path, remedy="; remove it and start again")
            if isinstance(record, dict) and isinstance(record.get("result"), dict):
                return CachedResult(record["result"], key.version)
            raise InputError(f"{path}: is no cell; remove it and start again")
        return self.kept(key)

    def kept(self, key: Key) -> CachedResult | None:
        """The result of a cell in the collections, or None."""
        kept = self._kept.get(key.run, [])
        for cached in kept:
            if cached.version == key.version:
                return cached
        if kept and self._any_version:
            last = kept[-1]
            return CachedResult(last.result, last.version, True, last.collection)
        return None

    def put(self, key: Key, cell: Cell, result: Mapping[str, Any]) -> None:
        """Write a cell atomically."""
        write_record(self.path(key), key, cell, result)

    @contextmanager
    def locked(self) -> Iterator[None]:
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
                    f"{self.out}: another `lumos` command is at work there; wait for it, or "
                    "choose another `out`"
                ) from None
            yield


def record_of(key: Key, cell: Cell, result: Mapping[str, Any]) -> dict[str, Any]:
    """A cell as it is written."""
    return {
        "format": FORMAT,
        "run": key.run,
        "version": key.version,
        "kind": cell.kind,
        "graph": cell.graph,
        "seed": cell.seed,
        "settings": json_settings(dict(cell.settings)),
        "result": {name: _finite(value) for name, value in result.items()},
    }


def write_record(path: Path, key: Key, cell: Cell, result: Mapping[str, Any]) -> None:
    """Write a cell atomically; only its owner may read it, as the result of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record_of(key, cell, result), private=True)


def _finite(value: Any) -> Any:
    """NaN and infinity as None: JSON has neither."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def keep(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add cells to a collection, one line each; a run that was in it already is replaced."""
    known = {record["run"]: record for record in (read_kept(path) if path.exists() else ())}
    known |= {record["run"]: dict(record) for record in records}
    lines = sorted(
        json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False)
        for record in known.values()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "[\n" + ",\n".join(lines) + "\n]\n")


def read_kept(path: Path) -> list[dict[str, Any]]:
    """Read what `keep` wrote.

    Raises:
        InputError: it is something else.
    """
    records = _read(path)
    needed = {"format", "run", "version", "result"}
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

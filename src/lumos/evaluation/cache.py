"""Results of runs that were computed before: a folder with one JSON file for each."""

import fcntl
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lumos import __version__
from lumos.errors import InputError, UsageError
from lumos.storage import read_json, write_json


def result_key(
    kind: str, settings: Mapping[str, Any], seed: int, data: str, package: str = __version__
) -> str:
    """Return 16 hexadecimal digits that name a result.

    Args:
        kind: what is computed.
        settings: as JSON can carry them; see `plain_settings`.
        seed: run seed.
        data: fingerprint of the graph, and of what else the run reads.
        package: version of Lumos; left out where empty.
    """
    content: dict[str, Any] = {"kind": kind, "seed": seed, "settings": settings, "graph": data}
    if package:
        content["package"] = package
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON can carry them: infinity as text, whole numbers as integers."""
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if math.isfinite(value) and value == int(value):
        return int(value)
    return f"{value:g}" if math.isinf(value) else value


class ResultCache:
    """The results of one folder: FOLDER/results/KEY.json, each written atomically."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> dict[str, Any] | None:
        """Return a result, or None.

        Raises:
            InputError: its file is damaged.
        """
        path = self._path(key)
        if not path.exists():
            return None
        record = read_json(path)
        if isinstance(record, dict) and isinstance(record.get("result"), dict):
            return dict(record["result"])
        raise InputError(f"{path}: is no result; remove it and start again")

    def put(self, key: str, result: Mapping[str, Any], **about: Any) -> None:
        """Write a result and what it is about; only its owner may read it."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**about, "result": finite(result)}, private=True)

    def _path(self, key: str) -> Path:
        return self.folder / "results" / f"{key}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder: two commands in one would compute everything twice."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be a folder ({error.strerror})") from None
        with (self.folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"{self.folder}: another command is at work there; wait for it, or choose "
                    "another `out`"
                ) from None
            yield


def finite(value: Any) -> Any:
    """Return a value for JSON, which has neither NaN nor infinity: they become None."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

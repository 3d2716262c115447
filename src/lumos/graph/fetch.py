"""Download SNAP's archives and verify what is inside them.

SNAP publishes no checksum of its archives, and we have none: what is verified is every file inside
whose checksum the catalog knows. The archive appears under its name only after that; until then it
is a temporary file, removed whatever happens.
"""

import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from lumos.errors import InputError, MissingData, UsageError
from lumos.graph.catalog import SNAP, Entry
from lumos.graph.files import Folder
from lumos.graph.snap import inside_zip
from lumos.typing import Progress

Status = Literal["ok", "differs", "unknown", "absent"]

BLOCK = 1 << 18
PATIENCE = 30.0


def checksums(entry: Entry, folder: Folder) -> dict[str, Status]:
    """Return, for each file of a known graph, how its checksum compares with the catalog's."""
    present = folder.names()
    result: dict[str, Status] = {}
    for file in entry.files:
        if file not in present:
            result[file] = "absent"
        elif file not in entry.sha256:
            result[file] = "unknown"
        else:
            result[file] = "ok" if folder.sha256(file) == entry.sha256[file] else "differs"
    return result


def refuse_different(entry: Entry, folder: Folder, status: dict[str, Status]) -> None:
    """Raise an error if a file is not the one that the catalog knows."""
    for file, state in status.items():
        if state == "differs":
            raise InputError(
                f"{folder.file(file)}: its SHA-256 is not {entry.sha256[file][:16]}…, the known "
                f"one of {entry.name}; fetch the archive again"
            )


def fetch(
    entry: Entry,
    data_dir: Path,
    *,
    base_url: str | None = None,
    progress: Progress | None = None,
) -> tuple[Path, dict[str, Status]]:
    """Download the archive of a graph into `data_dir`; return its path and what was verified.

    The address is SNAP's, or `base_url`, or LUMOS_SNAP_URL (a mirror).
    """
    base = (base_url or os.environ.get("LUMOS_SNAP_URL") or SNAP).rstrip("/")
    url = f"{base}/{entry.archive}"
    if not url.startswith(("https://", "http://", "file://")):
        raise UsageError(f"{url!r}: an address starts with https://, http:// or file://")
    target = data_dir / entry.archive
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{entry.archive}.", suffix=".part", dir=data_dir)
    except OSError as error:
        raise InputError(
            f"{data_dir}: it cannot be written ({error.strerror}); choose another `data_dir`"
        ) from None
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _download(url, file.write, progress, entry, target)
        folder = inside_zip(part, entry.edges)
        status = checksums(entry, folder)
        refuse_different(entry, folder, status)
        part.chmod(0o644)
        part.replace(target)
    except InputError as error:
        # The temporary name means nothing to the user; the address does.
        raise InputError(str(error).replace(str(part), url)) from None
    finally:
        part.unlink(missing_ok=True)
    return target, status


def _download(
    url: str,
    write: Callable[[bytes], object],
    progress: Progress | None,
    entry: Entry,
    target: Path,
) -> None:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310  # checked above
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            done = 0
            while block := answer.read(BLOCK):
                write(block)
                done += len(block)
                if progress is not None:
                    progress(done, total, f"{done / 1e6:.1f} MB")
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = getattr(error, "reason", None) or error
        raise MissingData(
            f"{url} cannot be had ({' '.join(str(reason).split())}); download {entry.url} in a "
            f"browser, put it at {target}, then type: lumos data check {entry.name} "
            f"--data-dir {target.parent}"
        ) from None
    if total is not None and done < total:
        raise MissingData(f"{url}: the connection ended after {done} of {total} bytes; try again")

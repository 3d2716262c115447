"""The graphs that Lumos knows by name: files, addresses, checksums and sizes; and their download.

Facebook and Twitch: Rozemberczki, Allen and Sarkar, 2021; LastFM: Rozemberczki and Sarkar, 2020.

SNAP publishes no checksum of its archives, and we have none: what is verified is every file inside
whose checksum the catalog knows. A downloaded archive appears under its name only after that; until
then it is a temporary file, removed whatever happens.
"""

import os
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from lumos.errors import InputError, MissingData, UsageError
from lumos.graph.io.folder import Folder
from lumos.typing import Progress

SNAP = "https://snap.stanford.edu/data"
LANGUAGES = ("DE", "ENGB", "ES", "FR", "PTBR", "RU")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One graph of SNAP: where its files lie and what they must hold."""

    name: str
    title: str
    archive: str
    """Name of the zip at SNAP."""
    folders: tuple[str, ...]
    """Folders of its files in the data directory and in the archive; the first that exists."""
    edges: str
    features: str
    labels: str
    id_column: str
    """The column of the label file that the edges and features refer to."""
    label_column: str
    feature_count: int
    devices: int
    edge_count: int
    sha256: dict[str, str] = field(default_factory=dict)
    """Checksums of the files; a file that is not listed has none that we know."""

    @property
    def url(self) -> str:
        """Address of the archive."""
        return f"{SNAP}/{self.archive}"

    def files(self, present: Collection[str]) -> tuple[str, str, str]:
        """Return the three files of the graph, as a folder with the files `present` has them."""
        short = self.features.replace("_features.json", ".json")  # as SNAP has it of Twitch DE
        names = (self.features, short, short.removeprefix("musae_"))
        found = next((name for name in names if name in present), self.features)
        return self.edges, found, self.labels


FACEBOOK = Entry(
    name="facebook",
    title="Facebook pages",
    archive="facebook_large.zip",
    folders=("facebook_large",),
    edges="musae_facebook_edges.csv",
    features="musae_facebook_features.json",
    labels="musae_facebook_target.csv",
    id_column="id",
    label_column="page_type",
    feature_count=4714,
    devices=22470,
    edge_count=170823,
    sha256={
        "musae_facebook_edges.csv": (
            "7c50d8f02a75cc0829577814a1fc14535164daa38d79c3612340c9e9cdbd4022"
        ),
        "musae_facebook_features.json": (
            "ea870537646a93642a0008d38aa9bfeff02018070ba97b1f3f469d9622626436"
        ),
        "musae_facebook_target.csv": (
            "7bd96eafea3c2ca40f44bfa9e73642194696c21e38c7b29ed409c32ad14075cd"
        ),
    },
)

LASTFM = Entry(
    name="lastfm",
    title="LastFM Asia",
    archive="lastfm_asia.zip",
    # The first is SNAP's own spelling.
    folders=("lasftm_asia", "lastfm_asia"),
    edges="lastfm_asia_edges.csv",
    features="lastfm_asia_features.json",
    labels="lastfm_asia_target.csv",
    id_column="id",
    label_column="target",
    feature_count=7842,
    devices=7624,
    edge_count=27806,
    sha256={
        "lastfm_asia_edges.csv": "548eacff61bff564ab5007831fa4a7a30e1a3956075ffd24e43310ed33555842",
        "lastfm_asia_target.csv": (
            "91f19215f6eca8321feec038bd32900cf13fd4f7e041a9976cf202807c72ac16"
        ),
    },
)

TWITCH_SIZES = {
    "DE": (9498, 153138),
    "ENGB": (7126, 35324),
    "ES": (4648, 59382),
    "FR": (6549, 112666),
    "PTBR": (1912, 31299),
    "RU": (4385, 37304),
}

TWITCH_SHA256 = {
    "ENGB": {
        "musae_ENGB_edges.csv": "5ea4d7f7267454e9523577eb2a9b4dcb7a22dd660a548240f01b815d08e0e3cc",
        "musae_ENGB_features.json": (
            "d55948bd911ab28e0a89c4946562d5a8b363b9a7e4216e1a4986f37c74caa777"
        ),
        "musae_ENGB_target.csv": "e9d51399878216d2dd662b0a152b602cccde7b5cbb8452cb91d9379f64114443",
    }
}


def _twitch(language: str) -> Entry:
    devices, edges = TWITCH_SIZES[language]
    return Entry(
        name=f"twitch-{language}",
        title=f"Twitch gamers, {language}",
        archive="twitch.zip",
        folders=(f"twitch/{language}", language),
        edges=f"musae_{language}_edges.csv",
        features=f"musae_{language}_features.json",
        labels=f"musae_{language}_target.csv",
        # `id` is the number at Twitch; edges and features speak of `new_id`.
        id_column="new_id",
        label_column="mature",
        feature_count=3170,
        devices=devices,
        edge_count=edges,
        sha256=TWITCH_SHA256.get(language, {}),
    )


CATALOG = {
    entry.name: entry for entry in (FACEBOOK, LASTFM, *(_twitch(name) for name in LANGUAGES))
}


def entry_of(name: str) -> Entry | None:
    """Return the graph called `name`, in small or capital letters; None if there is none."""
    wanted = name.casefold()
    return next((entry for entry in CATALOG.values() if entry.name.casefold() == wanted), None)


def require_entry(name: str) -> Entry:
    """Return the graph that is called `name`; a wrong name lists the right ones."""
    entry = entry_of(name)
    if entry is None:
        raise UsageError(f"no graph is called {name!r}; choose from {', '.join(CATALOG)}")
    return entry


Status = Literal["ok", "differs", "unknown", "absent"]

BLOCK = 1 << 18
TIMEOUT_SECONDS = 30.0


def find_entry(entry: Entry, data_dir: Path) -> Folder:
    """Return where the files of a known graph lie: unpacked, or else in a zip."""
    for name in entry.folders:
        if (data_dir / name).is_dir():
            return Folder(data_dir / name)
    if (data_dir / entry.edges).is_file():
        return Folder(data_dir)
    for name in (entry.archive, *(f"{PurePosixPath(name).name}.zip" for name in entry.folders)):
        if (data_dir / name).is_file():
            return inside_zip(data_dir / name, entry.edges)
    raise MissingData(
        f"{entry.name}: neither {entry.folders[0]} nor {entry.archive} is in {data_dir}; type: "
        f"lumos data fetch {entry.name} --data-dir {data_dir}, or download {entry.url} into it"
    )


def inside_zip(path: Path, file: str) -> Folder:
    """Return the folder inside a zip that holds `file`."""
    archive = Folder(path)
    if file in archive.names():
        return archive
    for folder in archive.folders():
        inner = Folder(path, folder)
        if file in inner.names():
            return inner
    raise InputError(f"{path}: there is no {file} inside; fetch the archive again")


def checksums(entry: Entry, folder: Folder) -> dict[str, Status]:
    """Return, for each file of a known graph, how its checksum compares with the catalog's."""
    present = folder.names()
    result: dict[str, Status] = {}
    for file in entry.files(present):
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
    import http.client
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310  # checked above
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

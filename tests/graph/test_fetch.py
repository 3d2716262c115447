"""Downloading: verified, atomic, and clear where there is no network."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.graph.writing import write_snap, zip_folder

from lumos.errors import InputError, MissingData, UsageError
from lumos.graph import load
from lumos.graph.catalog import CATALOG, SNAP, Entry, checksums, fetch
from lumos.graph.io.folder import Folder


class Mirror:
    """A web server on this machine that answers every request with `content`."""

    def __init__(self) -> None:
        self.content = b""
        self.guaranteed: int | None = None
        self.status = 200
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(mirror.status)
                length = len(mirror.content) if mirror.guaranteed is None else mirror.guaranteed
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(mirror.content)

            def log_message(self, *parts: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    mirror = Mirror()
    yield mirror
    mirror.close()


@pytest.fixture
def archive(tmp_path: Path) -> tuple[bytes, Entry]:
    """A small archive, and a catalog entry that knows two of its three files."""
    folder = write_snap(tmp_path / "source")
    content = zip_folder(folder, tmp_path / "source" / "a.zip", "facebook_large").read_bytes()
    entry = CATALOG["facebook"]
    known = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in (entry.edges, entry.features)
    }
    return content, replace(entry, sha256=known)


def test_an_archive_arrives_verified_and_loads(
    tmp_path: Path, mirror: Mirror, archive: tuple[bytes, Entry]
) -> None:
    mirror.content, entry = archive
    data = tmp_path / "new" / "data"
    seen: list[tuple[float, float | None]] = []
    path, status = fetch(
        entry,
        data,
        base_url=mirror.url,
        progress=lambda done, total, note: seen.append((done, total)),
    )
    assert path == data / "facebook_large.zip"
    assert path.read_bytes() == mirror.content
    assert status == {entry.edges: "ok", entry.features: "ok", entry.labels: "unknown"}
    done, total = seen[-1]
    assert done == total == len(mirror.content)
    assert load("facebook", data_dir=data).devices == 4


def test_a_mirror_may_be_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: tuple[bytes, Entry]
) -> None:
    content, entry = archive
    (tmp_path / "facebook_large.zip").write_bytes(content)
    monkeypatch.setenv("LUMOS_SNAP_URL", tmp_path.as_uri())
    assert fetch(entry, tmp_path / "data")[0].is_file()


def left_behind(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def test_other_contents_are_refused_and_nothing_is_left(
    tmp_path: Path, mirror: Mirror, archive: tuple[bytes, Entry]
) -> None:
    mirror.content, entry = archive
    other = replace(entry, sha256=entry.sha256 | {entry.features: "0" * 64})
    data = tmp_path / "data"
    with pytest.raises(InputError, match=rf"{mirror.url}.*features.json: its SHA-256 is not 0000"):
        fetch(other, data, base_url=mirror.url)
    assert left_behind(data) == []


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>"])
def test_what_is_no_archive_is_refused_and_nothing_is_left(
    tmp_path: Path, mirror: Mirror, content: bytes, archive: tuple[bytes, Entry]
) -> None:
    mirror.content = content
    with pytest.raises(InputError, match=r"facebook_large.zip: it cannot be read"):
        fetch(archive[1], tmp_path / "data", base_url=mirror.url)
    assert left_behind(tmp_path / "data") == []


def test_a_failed_download_keeps_the_old_file(
    tmp_path: Path, mirror: Mirror, archive: tuple[bytes, Entry]
) -> None:
    content, entry = archive
    (tmp_path / "data").mkdir()
    old = tmp_path / "data" / "facebook_large.zip"
    old.write_bytes(b"old")
    mirror.content, mirror.guaranteed = content[:100], len(content)
    with pytest.raises(MissingData, match=r"cannot be had|the connection ended after"):
        fetch(entry, tmp_path / "data", base_url=mirror.url)
    assert left_behind(tmp_path / "data") == ["facebook_large.zip"]
    assert old.read_bytes() == b"old"


@pytest.mark.parametrize("failure", ["status", "refused", "file"])
def test_without_network_it_says_what_to_do(
    tmp_path: Path, mirror: Mirror, failure: str, archive: tuple[bytes, Entry]
) -> None:
    mirror.status = 503
    url = {
        "status": mirror.url,
        "refused": "http://127.0.0.1:1",
        "file": (tmp_path / "nowhere").as_uri(),
    }[failure]
    data = tmp_path / "data"
    with pytest.raises(MissingData) as caught:
        fetch(archive[1], data, base_url=url)
    line = str(caught.value)
    assert "\n" not in line
    assert f"download {SNAP}/facebook_large.zip in a browser" in line
    assert f"put it at {data / 'facebook_large.zip'}" in line
    assert "lumos data check facebook" in line
    assert left_behind(data) == []


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an address starts with https://"):
        fetch(CATALOG["facebook"], tmp_path, base_url="ftp://x")


def test_a_data_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(InputError, match=r"data: it cannot be written .*`data_dir`"):
        fetch(CATALOG["facebook"], tmp_path / "data")


def test_checksums_tell_the_four_states_apart(tmp_path: Path, archive: tuple[bytes, Entry]) -> None:
    entry = replace(archive[1], sha256=archive[1].sha256 | {archive[1].edges: "0" * 64})
    folder = write_snap(tmp_path / "again")
    assert checksums(entry, Folder(folder)) == {
        entry.edges: "differs",
        entry.features: "ok",
        entry.labels: "unknown",
    }
    (folder / entry.features).unlink()
    assert checksums(entry, Folder(folder))[entry.features] == "absent"

"""A folder with the files of a graph: on disk, or in a zip that is read in place."""

import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lumos.errors import InputError


@dataclass(frozen=True)
class Folder:
    """A directory on disk, or a directory inside a zip, with files to read."""

    path: Path
    """The directory, or the zip."""
    inside: str = ""
    """The directory inside the zip, "" for its top."""

    @property
    def is_zip(self) -> bool:
        """True if the files lie in a zip."""
        return self.path.is_file()

    def file(self, name: str) -> str:
        """Return the path of a file, as errors name it."""
        return str(PurePosixPath(str(self.path), self.inside, name))

    def names(self) -> list[str]:
        """Return the names of the files directly in this folder, sorted."""
        with readable(str(self.path)):
            if not self.is_zip:
                return sorted(child.name for child in self.path.iterdir() if child.is_file())
            return sorted(
                path.name for path in self._members() if str(path.parent) == (self.inside or ".")
            )

    def folders(self) -> list[str]:
        """Return directories below this one that hold files: in a zip, at any depth."""
        with readable(str(self.path)):
            if self.is_zip:
                return sorted({str(path.parent) for path in self._members()} - {"."})
            # One level is enough for every archive that we know, and bounds the walk.
            return sorted(child.name for child in self.path.iterdir() if child.is_dir())

    def _members(self) -> list[PurePosixPath]:
        with zipfile.ZipFile(self.path) as archive:
            return [PurePosixPath(info.filename) for info in _files(archive)]

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with readable(self.file(name)):
            if not self.is_zip:
                return (self.path / name).read_bytes()
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(str(PurePosixPath(self.inside, name)))

    def sha256(self, name: str) -> str:
        """Return the checksum of a file."""
        return hashlib.sha256(self.read(name)).hexdigest()


def _files(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    return [
        info
        for info in archive.infolist()
        if not info.is_dir() and not info.filename.startswith("__MACOSX/")
    ]


@contextmanager
def readable(file: str) -> Iterator[None]:
    """Turn whatever goes wrong while reading `file` into one line about it."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; check the path") from None
    except PermissionError:
        raise InputError(f"{file}: reading it is not permitted; check its access rights") from None
    except MemoryError:
        raise InputError(f"{file}: too large for the memory of this machine") from None
    except (InputError, KeyboardInterrupt):
        raise
    except Exception as error:
        # zipfile and zlib raise a dozen unrelated types for damaged archives.
        reason = " ".join(str(error).split()) or type(error).__name__
        # A damaged archive may name a file with a line break in it; an error is one line.
        name = "".join(literal if literal.isprintable() else "?" for literal in file)
        raise InputError(
            f"{name}: it cannot be read ({reason}); fetch or write the file again"
        ) from None


def text_of(content: bytes, file: str) -> str:
    """Decode a text file as UTF-8, with or without a byte-order mark."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{file}, line {line}: byte {content[error.start]:#04x} is not UTF-8; "
            "save the file as UTF-8"
        ) from None

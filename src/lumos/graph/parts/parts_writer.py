"""Writing a graph in parts: all or nothing.

A folder `unfinished` is there from the first file on until the manifest, the last one, is written.
What stops on the way takes its files with it; what is killed leaves that folder, and the parts are
refused.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.errors import UsageError
from lumos.graph.parts.layout import new_private, write_layout
from lumos.graph.parts.manifest import Manifest, write_manifest
from lumos.graph.parts.partition import FILE, Partition
from lumos.graph.parts.parts_folder import OBSERVER, UNFINISHED
from lumos.graph.parts.stored_part import StoredPart
from lumos.storage import private_folder


@dataclass(frozen=True)
class PartsWriter:
    """Writes the files of a folder of parts. All are for their owner only."""

    path: Path

    @property
    def scratch(self) -> Path:
        """A folder for what is needed on the way."""
        return self.path / UNFINISHED

    def write(self, number: int, part: StoredPart, partition: Partition) -> None:
        """Write one part."""
        part.write(self.path, number, contiguous=partition.bounds is not None)

    def observe(self, pairs: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write what only the observer has: pairs [pairs, 2] by name."""
        narrow = {name: each.astype(np.int32) for name, each in pairs.items()}
        write_layout(self.path / OBSERVER, narrow)

    def finish(self, manifest: Manifest, partition: Partition) -> None:
        """Write who is in which part, and the manifest: the folder is complete."""
        if partition.assignment is not None:
            with new_private(self.path / FILE) as file:
                np.lib.format.write_array(file, partition.assignment, allow_pickle=False)
        write_manifest(self.path, manifest)
        shutil.rmtree(self.scratch)


def refuse_taken(path: Path) -> None:
    """Refuse a place for parts where something is.

    Raises:
        UsageError: it is no folder, or not empty.
    """
    if (path / UNFINISHED).is_dir():
        raise UsageError(f"{path}: writing parts was interrupted there; delete the folder first")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is there already and not empty; choose another folder")


@contextmanager
def new_parts(path: Path) -> Iterator[PartsWriter]:
    """A folder to write parts into; nothing is left of it where that fails.

    Raises:
        UsageError: there is something at this place.
    """
    refuse_taken(path)
    there = path.exists()
    private_folder(path)
    private_folder(path / UNFINISHED)
    try:
        yield PartsWriter(path)
    except BaseException:
        for child in path.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        if not there:
            path.rmdir()
        raise

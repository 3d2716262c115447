"""What every feature file can do, whatever its form."""

from typing import Any, Protocol

from lumos.graph.ids import Ids


class FeatureFile(Protocol):
    """A file that knows the features of devices."""

    file: str

    def ids(self) -> set[Any]:
        """Return the ids of the devices that the file speaks of."""

    def matrix(self, ids: Ids) -> tuple[Any, tuple[str, ...]]:
        """[devices, width] in the order of `ids`, and notes."""

"""Facts of a graph whose parts are contiguous ranges, part after part: never all of it at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.graph.facts import GraphFacts, SimulationFacts, feature_signs
from lumos.graph.graph import Graph
from lumos.graph.parts.layout import read_layout
from lumos.graph.parts.stored_part import REMEDY, part_path
from lumos.graph.roles import Role
from lumos.typing import Arrays, Ints


@dataclass(frozen=True)
class StreamedFacts:
    """Facts from the files of parts, which are contiguous ranges in the order of their numbers."""

    folder: Path
    parts: int
    about: Graph
    """The same graph without its edges and features."""
    edges: int
    width: int
    """Width of the features; 0 without any."""
    index_bytes: int
    """Of the indices of sparse features, if the whole graph were in memory."""

    def facts(self) -> GraphFacts:
        """The same as `facts_of` the whole graph in memory."""
        lowest, highest, sparse = 0.0, 0.0, False
        ends: list[tuple[float, float]] = []
        for arrays in self._files():
            sparse = "values" in arrays
            values = arrays.get("values", arrays.get("features", np.empty(0)))
            if values.size:
                ends.append((float(values.min()), float(values.max())))
        if ends:
            lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
        labels = self.about.labels
        return GraphFacts(
            name=self.about.name,
            devices=self.about.devices,
            feature_count=self.width,
            sparse=sparse,
            **feature_signs(lowest, highest),
            labelled=labels is not None,
            classes=self.about.classes,
            notes=self.about.notes,
            simulation=SimulationFacts(
                edges=self.edges,
                lowest=lowest,
                highest=highest,
                highest_label=-1 if labels is None else int(labels.max(initial=-1)),
                fingerprint=self.fingerprint(),
            ),
        )

    def fingerprint(self, *, training: bool = False) -> str:
        """The same as `lumos.graph.fingerprint` gives for the whole graph, or its training edges.

        It hashes one array of the whole graph after the other, so the parts are read once for each.
        """
        digest = blake2b(digest_size=8)

        def add(array: npt.NDArray[Any]) -> None:
            digest.update(np.ascontiguousarray(array).data)

        add(np.zeros(1, np.int64))
        base = 0
        for arrays in self._files():
            offsets = _offsets(arrays, training)
            add(offsets[1:] + base)
            base += int(offsets[-1])
        for arrays in self._files():
            neighbours = arrays["neighbours"]
            if training:
                neighbours = neighbours[arrays["edge_roles"] == Role.TRAIN]
            add(neighbours.astype(np.int64))
        if self.about.labels is not None:
            add(self.about.labels)
        if self.about.roles is not None and not training:
            add(self.about.roles)
        if self.width:
            self._add_features(add)
        return digest.hexdigest()

    def _add_features(self, add: Any) -> None:
        first = next(self._files())
        if "features" in first:
            for arrays in self._files():
                add(arrays["features"])
            return
        kind = np.int32 if self.index_bytes == 4 else np.int64
        add(np.zeros(1, kind))
        base, highest = 0, -1
        for arrays in self._files():
            add((arrays["indptr"][1:] + base).astype(kind, copy=False))
            base += len(arrays["indices"])
        for arrays in self._files():
            indices = arrays["indices"]
            highest = max(highest, int(indices.max(initial=-1)))
            add(indices.astype(kind, copy=False))
        for arrays in self._files():
            add(arrays["values"])
        if self.width != highest + 1:
            add(np.array(self.width))

    def _files(self) -> Iterator[Arrays]:
        for number in range(self.parts):
            yield read_layout(part_path(self.folder, number), REMEDY)


def _offsets(arrays: Arrays, training: bool) -> Ints:
    offsets = arrays["offsets"]
    if not training:
        return offsets
    before = np.concatenate([[0], np.cumsum(arrays["edge_roles"] == Role.TRAIN)])
    return before[offsets]

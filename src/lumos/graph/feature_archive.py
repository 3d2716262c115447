"""Features as arrays in an npz."""

from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.archive import arrays_of, sparse_of
from lumos.graph.arrays import finite_features
from lumos.graph.ids import Ids, lookup, shown, unique_ids


class FeatureArchive:
    """An npz with `features` [devices, width] and `ids`, or one written by scipy's `save_npz`.

    Without `ids` the rows belong to the ids 0, 1, 2, …
    """

    def __init__(self, content: bytes, file: str, *, integers: bool) -> None:
        self.file = file
        arrays = arrays_of(content, file)
        if "indptr" in arrays:
            self._features = sparse_of(content, file)
        elif "features" in arrays:
            self._features = arrays["features"]
        else:
            has = ", ".join(arrays) or "nothing"
            raise InputError(f"{file}: there is no array 'features' (it has: {has}); add it")
        rows = self._features.shape[0] if self._features.ndim else 0
        named = arrays.get("ids", np.arange(rows, dtype=np.int64))
        if named.shape != (rows,):
            raise InputError(f"{file}: ids: one id per row of features is needed, {rows}")
        try:
            self._ids = unique_ids(named)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        if isinstance(self._ids, tuple) == integers and rows:
            wanted = "integers" if integers else "names"
            raise InputError(f"{file}: ids: {wanted} are needed, as in the edges")

    def ids(self) -> set[Any]:
        """Return the ids of the devices that the file speaks of."""
        return set(self._ids if isinstance(self._ids, tuple) else self._ids.tolist())

    def matrix(self, ids: Ids) -> tuple[Any, tuple[str, ...]]:
        """[devices, width] in the order of `ids`, and notes."""
        features = finite_features(self._features, len(self._ids), f"{self.file}: features")
        unknown = self.ids() - set(ids if isinstance(ids, tuple) else ids.tolist())
        if unknown:
            device = shown(min(unknown))
            raise InputError(f"{self.file}: ids: {device} is not a device of this graph")
        row = lookup(np.asarray(ids), self._ids)
        if np.any(row < 0):
            device = shown(np.asarray(ids)[np.argmin(row)])
            raise InputError(f"{self.file}: device {device} has no row; add one")
        return features[row], ()

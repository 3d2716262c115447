"""Tables as pandas frames. pandas is imported where the first one is made: it takes a while."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


def frame(columns: Mapping[str, Any]) -> "pandas.DataFrame":
    """Return a frame of columns (sequences or arrays of one length), in their order."""
    import pandas

    return pandas.DataFrame(dict(columns))


def frame_of_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "pandas.DataFrame":
    """Return a frame of rows; a cell is None where a row has none of that name."""
    return frame({name: [row.get(name) for row in rows] for name in columns})

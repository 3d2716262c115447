"""Tables as pandas frames, for those who have pandas: it is an extra and never needed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lumos.errors import UsageError

if TYPE_CHECKING:
    import pandas


def frame(columns: Mapping[str, Any]) -> "pandas.DataFrame":
    """A frame from columns (sequences or arrays of one length), in their order.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise UsageError("a frame needs pandas; type: pip install 'lumos[pandas]'") from None
    return pandas.DataFrame(dict(columns))


def frame_of_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "pandas.DataFrame":
    """A frame from rows; a cell is None where a row has none of that name.

    Raises:
        UsageError: pandas is not installed.
    """
    return frame({name: [row.get(name) for row in rows] for name in columns})

"""How results are shown: in notebooks as HTML, and as pandas frames.

Results are made far below the package that draws; each of them has a line of its own:

    def _repr_html_(self) -> str:
        return DISPLAYS["run"](self)
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lumos.errors import UsageError
from lumos.registry import Registry

if TYPE_CHECKING:
    import pandas


DISPLAYS: Registry[Any] = Registry(
    "display",
    {
        "run": "lumos.report.display:show_run",
        "balanced": "lumos.report.display:show_balanced",
        "measured": "lumos.report.display:show_measured",
        "audit": "lumos.report.display:show_audit",
        "ledger": "lumos.report.display:show_ledger",
        "links": "lumos.report.display:show_links",
        "graph": "lumos.report.display:show_graph",
    },
)
"""By kind of result: a function `(result) -> HTML` of a fragment that is complete in itself."""


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

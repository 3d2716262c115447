"""How results are shown in notebooks: a function per kind, imported when it is first shown.

Results are made far below the package that draws; each of them has a line of its own:

    def _repr_html_(self) -> str:
        return DISPLAYS["run"](self)
"""

from typing import Any

from lumos.registry import Registry

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

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
        "run": "lumos.report.display.run_fragment:show_run",
        "balanced": "lumos.report.display.result_fragments:show_balanced",
        "measured": "lumos.report.display.result_fragments:show_measured",
        "audit": "lumos.report.display.result_fragments:show_audit",
        "ledger": "lumos.report.display.result_fragments:show_ledger",
        "links": "lumos.report.display.result_fragments:show_links",
        "graph": "lumos.report.display.result_fragments:show_graph",
    },
)
"""By kind of result: a function `(result) -> HTML` of a fragment that is complete in itself."""

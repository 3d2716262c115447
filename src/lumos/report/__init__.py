"""One self-contained HTML page: blocks of text, tables and figures, without scripts or network.

from lumos.report import Figure, Page, Section, Table, Text, bars

drawn = bars(["facebook"], ["lumos", "own"], [[90.0, 86.8]], marks=[[77.4, None]],
             unit="%", title="Test accuracy")
Page(
    title="A reproduction",
    summary=("On 22,470 devices …",),
    sections=(Section("Accuracy", (Figure(drawn, "Means of three seeds."),)),),
).write(Path("report.html"))
"""

from lumos.report.charts import bars, cdf, confusion, dots, lines
from lumos.report.page import (
    Block,
    Code,
    Fact,
    Facts,
    Figure,
    Page,
    Section,
    Table,
    Text,
    confusion_block,
    per_class_table,
    seeds_figure,
)

__all__ = [
    "Block",
    "Code",
    "Fact",
    "Facts",
    "Figure",
    "Page",
    "Section",
    "Table",
    "Text",
    "bars",
    "cdf",
    "confusion",
    "confusion_block",
    "dots",
    "lines",
    "per_class_table",
    "seeds_figure",
]

"""All rows of an audit as Markdown tables, from what `lumos audit … --out FILE` wrote.

python -m benchmarks.audit_tables docs/results/audit-facebook-strict.json
"""

import json
import sys
from pathlib import Path

from lumos.audit import AuditReport, AuditRow


def cells(report: AuditReport, row: AuditRow) -> list[str]:
    measured, interval, without, bound = report.figures(row)
    return [
        f"`{row.attack}`",
        row.about,
        measured,
        interval,
        without + f" ({row.chance_is})" * bool(row.chance_is),
        bound + f" ({row.bound_is})" * bool(row.bound_is),
        report.verdict(row),
    ]


def tables(report: AuditReport) -> str:
    """One for each adversary, after the number of rows with power."""
    lines = [report.power, ""]
    for adversary, rows in report.by_adversary().items():
        lines += [f"**{adversary[0].upper()}{adversary[1:]}**", ""]
        lines += [
            "| attack | target | measured | interval | without messages | bound | verdict |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += ["| " + " | ".join(cells(report, row)) + " |" for row in rows] + [""]
    return "\n".join(lines)


def main() -> None:
    for path in sys.argv[1:]:
        print(tables(AuditReport.from_json(json.loads(Path(path).read_text("utf-8")))))


if __name__ == "__main__":
    main()

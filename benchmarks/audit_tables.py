"""The tables of docs/audit.md, from what `lumos audit … --out FILE` wrote.

python -m benchmarks.audit_tables docs/results/audit-facebook-strict.json
"""

import json
import sys
from pathlib import Path

from lumos.audit import AuditReport, AuditRow


def cells(report: AuditReport, row: AuditRow) -> list[str]:
    found, without, claimed = report.figures(row)
    return [
        f"`{row.attack}`",
        row.about,
        found,
        without + f" ({row.chance_is})" * bool(row.chance_is),
        claimed + f" ({row.bound_is})" * bool(row.bound_is),
    ]


def tables(report: AuditReport) -> str:
    """One for each adversary."""
    lines = []
    for adversary, rows in report.by_adversary().items():
        lines += [f"**{adversary[0].upper()}{adversary[1:]}**", ""]
        lines += [
            "| attack | about | found (interval) | without | claimed |",
            "|---|---|---|---|---|",
        ]
        lines += ["| " + " | ".join(cells(report, row)) + " |" for row in rows] + [""]
    return "\n".join(lines)


def main() -> None:
    for path in sys.argv[1:]:
        print(tables(AuditReport.from_json(json.loads(Path(path).read_text("utf-8")))))


if __name__ == "__main__":
    main()

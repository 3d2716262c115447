"""All rows of an audit as Markdown tables, from what `lumos audit … --out FILE` wrote.

    python -m benchmarks.audit_tables docs/results/audit-facebook-strict.json
    python -m benchmarks.audit_tables --join docs/results/audit-facebook-strict.json PART ...

`--join` puts audits of single attacks (`lumos audit … --attack NAME --out PART`) in the place of
the same attacks in the first file, which it writes. Attacks that no longer exist are left out.
Intervals and verdicts are made anew, for the number of all rows.
"""

import json
import sys
from pathlib import Path

import msgspec

from lumos.audit import AuditReport, AuditRow
from lumos.audit.attacks import ATTACKS
from lumos.storage import write_json


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


def joined(first: AuditReport, *parts: AuditReport) -> AuditReport:
    """Return an audit with the rows of all attacks, each from the last audit that has it.

    Raises:
        SystemExit: a part is of another run.
    """
    for part in parts:
        for name in ("graph", "devices", "profile", "settings", "seed"):
            if getattr(part, name) != getattr(first, name):
                raise SystemExit(f"{name} differs: {getattr(part, name)}, {getattr(first, name)}")
    last = {attack: one for one in (first, *parts) for attack in one.seconds}
    kept = {attack: last[attack] for attack in ATTACKS.built_in() if attack in last}
    return msgspec.structs.replace(
        first,
        rows=[row for attack, one in kept.items() for row in one.rows if row.attack == attack],
        seconds={attack: one.seconds[attack] for attack, one in kept.items()},
        lumos=[first, *parts][-1].lumos,
    )


def main() -> None:
    join, paths = "--join" in sys.argv, [Path(one) for one in sys.argv[1:] if one != "--join"]
    reports = [AuditReport.from_json(json.loads(path.read_text("utf-8"))) for path in paths]
    if join:
        reports = [joined(*reports)]
        write_json(paths[0], reports[0].to_json())
    for report in reports:
        print(tables(report))


if __name__ == "__main__":
    main()

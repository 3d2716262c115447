"""What the attacks of `lumos audit` found, where the folder of a run has it."""

import msgspec

from lumos.audit.audit_row import FILE, AuditReport, AuditRow
from lumos.errors import InputError
from lumos.report.page import Block, Section, Table, Text
from lumos.runs.run import Run
from lumos.storage import read_json


def has_audit(run: Run) -> bool:
    """Whether the run was audited."""
    return run.folder is not None and (run.folder / FILE).exists()


def section(run: Run) -> Section:
    """One table for each adversary.

    Raises:
        InputError: the file is damaged.
    """
    if run.folder is None:
        raise ValueError("a run without a folder has no audit")
    path = run.folder / FILE
    try:
        report = AuditReport.from_json(read_json(path))
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: is damaged ({error}); type: lumos audit {run.folder}") from None
    claimed = [row for row in report.rows if row.bound is not None]
    blocks: list[Block] = [
        Text(
            "Attackers saw what the protocol gives them in a recorded run with these settings. "
            "Figures are what these attacks found: others may find more, so they refute a claim "
            "or fail to, and prove none. An AUC of 0.5 is chance. Intervals hold for all rows "
            "together with 99.9 % confidence.\n\n"
            f"{len(claimed)} of {len(report.rows)} rows have a bound that is claimed; "
            f"{len(report.exceeded)} exceed it."
        )
    ]
    for adversary, rows in report.by_adversary().items():
        blocks.append(
            Table(
                ["what is inferred", "found", "without these messages", "claimed", "verdict"],
                [_cells(report, row) for row in rows],
                f"What is inferred by {adversary}",
                stacked=True,
            )
        )
    notes = "\n\n".join(report.notes())
    return Section("What attacks found", [*blocks, Text(notes)] if notes else blocks)


def _cells(report: AuditReport, row: AuditRow) -> list[str]:
    found, without, claimed = report.figures(row)
    return [
        row.about,
        found,
        without + f" ({row.chance_is})" * bool(row.chance_is),
        claimed + f" ({row.bound_is})" * bool(row.bound_is),
        report.verdict(row),
    ]

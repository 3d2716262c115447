"""Attacks on Lumos, run by Lumos: figures that adversaries infer from messages of a real run.

    report = lumos.run_audit("facebook", label_epsilon=2.0)
    report.exceeded        # rows whose bound was exceeded; none, or a guarantee is wrong

A run is recorded where its messages travel (`lumos.exchange.tape`). Every attack gets the part of
the recording that the protocol gives its adversary (`harness`), public facts, and what attackers
are assumed to know: for example the truth about one half of all devices. Attacks are in `attacks`,
by what they attack; `table` has the rows of a report. Figures are lower bounds of what can be
inferred: a better attack may find more. So "within the bound" is no proof; the proofs are in
docs/strict-proofs.md, and an attack that exceeds a bound refutes one.
"""

from lumos.audit.attacks import ATTACKS, Attack
from lumos.audit.harness import Recorded, Scene, run_audit
from lumos.audit.table import FILE, AuditReport, AuditRow

__all__ = ["ATTACKS", "FILE", "Attack", "AuditReport", "AuditRow", "Recorded", "Scene", "run_audit"]

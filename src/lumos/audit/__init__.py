"""Attacks on Lumos, run by Lumos: what adversaries infer from the messages of a real run.

    report = lumos.run_audit("facebook", epsilon=2.0)
    report.exceeded        # rows whose bound was exceeded; none, or a guarantee is wrong

A run is recorded where its messages travel (`lumos.exchange.recording`), and every attack gets the
part of the recording that the protocol gives its adversary (`views`), public facts, and what
attackers are assumed to know: for example the truth about one half of all devices. Attacks are in
`attacks`, one file each. Figures are lower bounds of what can be inferred: a better attack may find
more. So "within the bound" is no proof; the proofs are in docs/strict.md, and an attack that
exceeds a bound refutes one.
"""

from lumos.audit.attacks import ATTACKS, Attack
from lumos.audit.harness import Recorded, Scene, run_audit
from lumos.audit.table import FILE, AuditReport, AuditRow

__all__ = ["ATTACKS", "FILE", "Attack", "AuditReport", "AuditRow", "Recorded", "Scene", "run_audit"]

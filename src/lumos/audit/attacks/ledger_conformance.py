"""Bytes on the carrier against bytes in the ledger: does anything pass uncounted?

The tape counts where messages are delivered, the ledger where endpoints let them through; neither
sees the other. On topics of ideal backends real traffic is what the ledger calls clear traffic. A
run has two carriers with a ledger each: that on which trees are balanced, and its own.
"""

from collections.abc import Iterator

import numpy as np

from lumos.audit.attacks import Attack
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Exactly
from lumos.audit.scene import Recorded, Scene
from lumos.exchange.ledger_report import LedgerReport
from lumos.exchange.tape import Tape


def run(scene: Scene) -> Iterator[AuditRow]:
    """Every device's bytes, of every recorded task and on both carriers."""
    for task in scene.tasks:
        recorded = scene.recorded(task)
        for what, wrong in uncounted_bytes(recorded).items():
            yield AuditRow(
                attack=ATTACK.name,
                adversary="the operator",
                about=f"{task}, {what}: bytes that some device sent or received, and the ledger "
                "did not count",
                measure="bytes",
                estimate=Exactly(float(wrong), recorded.graph.devices),
                bound=0.0,
                bound_is="every message is checked and counted (docs/privacy.md)",
            )


def uncounted_bytes(recorded: Recorded) -> dict[str, int]:
    """By carrier: of the run itself, and of its trees if anything passed while they were made.

    A recorded run has no other arm: its trees' carrier is the one before the last.
    """
    tape, run = recorded.tape, recorded.run
    wrong = {"training": difference(tape, tape.last, run.ledger)}
    if any(one.exchange == tape.last - 1 for one in tape.traffic) or run.trees.ledger.bytes:
        wrong["trees"] = difference(tape, tape.last - 1, run.trees.ledger)
    return wrong


def difference(tape: Tape, exchange: int, ledger: LedgerReport) -> int:
    """Σ over devices, directions and topics of |delivered - booked| bytes.

    Per device the ledger of a run with ideal backends has the cost of the secure protocol; there
    the bytes of real topics are compared topic by topic only.
    """
    devices = len(ledger.bytes_sent)
    sent, received = np.zeros((2, devices), np.int64)
    rest = {name: line.bytes for name, line in ledger.topics.items() if not line.ideal}
    clear = {name: line["bytes"] for name, line in ledger.clear_traffic.items()}
    for one in tape.traffic:
        if one.exchange == exchange:
            name, of = one.topic.name, clear if one.clear else rest
            of[name] = of.get(name, 0) - int(one.bytes_received.sum())
            if not one.clear:
                sent += one.bytes_sent[:devices]
                received += one.bytes_received[:devices]
    wrong = sum(abs(bytes_) for bytes_ in (*rest.values(), *clear.values()))
    if not any(line.ideal for line in ledger.topics.values()):
        wrong += int(np.abs(sent - ledger.bytes_sent).sum())
        wrong += int(np.abs(received - ledger.bytes_received).sum())
    return wrong


ATTACK = Attack(name="ledger", title="bytes on the carrier against bytes in the ledger", run=run)

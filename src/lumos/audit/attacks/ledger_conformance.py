"""Bytes on the carrier against bytes in the ledger: does anything pass uncounted?

The tape counts where messages are delivered, the ledger where endpoints let them through; neither
sees the other. On topics of ideal backends real traffic is what the ledger calls clear traffic.
"""

from collections.abc import Iterator

import numpy as np

from lumos.audit.attacks import Attack
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Exactly
from lumos.audit.scene import Recorded, Scene


def run(scene: Scene) -> Iterator[AuditRow]:
    """Every device's bytes, of every recorded task."""
    for task in scene.tasks:
        recorded = scene.recorded(task)
        yield AuditRow(
            attack=ATTACK.name,
            adversary="the operator",
            about=f"{task}: bytes that some device sent or received, and the ledger did not count",
            measure="bytes",
            estimate=Exactly(float(uncounted_bytes(recorded)), recorded.graph.devices),
            bound=0.0,
            bound_is="every message is checked and counted (docs/privacy.md)",
        )


def uncounted_bytes(recorded: Recorded) -> int:
    """Σ over devices and directions of |delivered - booked|, and of topics that were in the clear.

    The ledger of a run is that of its last carrier.
    """
    tape, ledger, devices = recorded.tape, recorded.run.ledger, recorded.graph.devices
    sent, received = np.zeros((2, devices), np.int64)
    clear = {name: line["bytes"] for name, line in ledger.clear_traffic.items()}
    for traffic in tape.traffic:
        if traffic.exchange != tape.last:
            continue
        if traffic.clear:
            name = traffic.topic.name
            clear[name] = clear.get(name, 0) - int(traffic.bytes_received.sum())
        else:
            sent += traffic.bytes_sent[:devices]
            received += traffic.bytes_received[:devices]
    booked_ideal = any(line.ideal for line in ledger.topics.values())
    wrong = sum(abs(rest) for rest in clear.values())
    if booked_ideal:
        # Per device the ledger has the cost of the secure protocol: compare topic by topic.
        real = {name: line.bytes for name, line in ledger.topics.items() if not line.ideal}
        for traffic in tape.traffic:
            if traffic.exchange == tape.last and not traffic.clear:
                name = traffic.topic.name
                real[name] = real.get(name, 0) - int(traffic.bytes_received.sum())
        return wrong + sum(abs(rest) for rest in real.values())
    wrong += int(np.abs(sent - ledger.bytes_sent).sum())
    return wrong + int(np.abs(received - ledger.bytes_received).sum())


ATTACK = Attack(name="ledger", title="bytes on the carrier against bytes in the ledger", run=run)

"""What the ledger of one party says, as plain numbers."""

from typing import Any

from lumos.deploy.training_job import TrainingJob


def ledger_totals(job: TrainingJob) -> dict[str, Any]:
    """Messages and bytes of a party over all phases and attempts, in all and by topic."""
    topics = job.flows()
    total = {
        flow: sum(of_topic.get(flow, 0) for of_topic in topics.values())
        for flow in ("sent", "received", "bytes_sent", "bytes_received")
    }
    return {**total, "topics": topics}

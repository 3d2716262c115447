"""What an epoch costs a device, and what the simulation cost."""

from lumos.report.page import Section, Table, Text
from lumos.runs.run import Run


def section(run: Run) -> Section:
    """A table per device and epoch, and the simulation in a sentence."""
    cost, per_epoch = run.cost, run.cost.per_epoch
    rows = []
    for name in ("messages_sent", "messages_received", "bytes_sent", "bytes_received"):
        mean, largest = (getattr(per_epoch, f"{name}_{which}") for which in ("mean", "largest"))
        rows.append([name.replace("_", " "), f"{mean:,.1f}", f"{largest:,.1f}"])
    weights = sum(array.size for array in run.model.weights.values())
    simulation = (
        f"{len(run.history):,} epochs of {per_epoch.rounds:,.0f} rounds on average; {weights:,} "
        f"weights. The simulation of all devices took {cost.seconds:,.1f} seconds, "
        f"{cost.seconds_per_epoch:.3f} per epoch, and {cost.peak_rss_mb:,.0f} MB at its peak."
    )
    table = Table(["", "mean", "largest"], rows, "What a device sends and receives in one epoch")
    return Section("Cost", [table, Text(simulation)])

"""What an epoch costs a device, and what the simulation cost."""

from lumos.report.page import Section, Table, Text
from lumos.report.record import Record


def section(record: Record) -> Section:
    """A table per device and epoch, and the simulation in a sentence."""
    result, each = record.result, record.result.per_epoch
    rows = []
    for name in ("messages_sent", "messages_received", "bytes_sent", "bytes_received"):
        mean, largest = (getattr(each, f"{name}_{which}") for which in ("mean", "largest"))
        rows.append([name.replace("_", " "), f"{mean:,.1f}", f"{largest:,.1f}"])
    said = (
        f"{result.epochs:,} epochs of {each.rounds:,.0f} rounds on average; {result.weights:,} "
        f"weights. The simulation of all devices took {result.seconds:,.1f} seconds, "
        f"{result.seconds_per_epoch:.3f} per epoch, and {result.peak_rss_mb:,.0f} MB at its peak."
    )
    table = Table(["", "mean", "largest"], rows, "What a device sends and receives in one epoch")
    return Section("Cost", [table, Text(said)])

"""What an epoch costs a device, and what the simulation cost."""

from lumos.report.page import Section, Table, Text
from lumos.report.record import Record


def section(record: Record) -> Section:
    """A table per device and epoch, and the simulation in a sentence."""
    result, each = record.result, record.result.per_epoch
    rows = [
        [
            f"{kind} {way}",
            f"{each[f'{kind}_{way}_mean']:,.1f}",
            f"{each[f'{kind}_{way}_largest']:,.0f}",
        ]
        for kind in ("messages", "bytes")
        for way in ("sent", "received")
    ]
    said = (
        f"{result.epochs:,} epochs of {each['rounds']:,.0f} rounds on average; {result.weights:,} "
        f"weights. The simulation of all devices took {result.seconds:,.1f} seconds, "
        f"{result.seconds_per_epoch:.3f} per epoch, and {result.peak_rss_mb:,.0f} MB at its peak."
    )
    table = Table(["", "mean", "largest"], rows, "What a device sends and receives in one epoch")
    return Section("Cost", [table, Text(said)])

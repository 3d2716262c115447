"""The ledger: every kind of message that left a device, and the door it took."""

from lumos.exchange.topic import Door
from lumos.report.page import Block, Section, Table, Text
from lumos.report.record import Line, Record

DOORS = {
    Door.OPEN: ("messages as they are", "nothing"),
    Door.RELEASE: ("output of a randomized mechanism", "differential privacy: ε is counted"),
    Door.COMPARE: (
        "messages of a secret comparison of two numbers",
        "cryptography: both sides learn the declared answer, counted in bits",
    ),
    Door.CONTROL: ("a word of a short public list, or a public id", "its bits are counted"),
    Door.AGGREGATE: ("a masked number or vector", "only the sum over devices becomes visible"),
}
"""By door: what passes, and what protects it; in the order of the page."""


def section(record: Record) -> Section:
    """The doors, then the topics."""
    topics = in_order(record)
    blocks: list[Block] = [
        Text(
            "Every message that leaves a device passes one of five doors, and the ledger counts it "
            "there. A door says what protects the message. Bytes are those of message bodies."
        ),
        _doors(record, topics),
        Table(
            ["topic", "door", "messages", "bytes", "who learns what"],
            [[n, line.door, line.messages, line.bytes, line.learns] for n, line in topics],
            "The ledger: every kind of message, before and in training",
            stacked=True,
        ),
    ]
    if any(line.ideal for _, line in topics):
        blocks.append(
            Text(
                "Topics whose name ends in `ideal` were not sent: the simulation computed their "
                "outcome in the clear and booked, by formula, what the real protocol would send."
            )
        )
    compared = record.result.tree_ledger
    if compared.comparisons:
        blocks.append(
            Text(
                f"{compared.comparisons:,} secret comparisons balanced the trees; their answers "
                f"could tell {compared.comparison_bits:,.0f} bits."
            )
        )
    return Section("What left the devices", blocks)


def in_order(record: Record) -> list[tuple[str, Line]]:
    """All topics, the least protected first."""
    ledgers = (record.result.tree_ledger, record.result.ledger)
    topics = [topic for ledger in ledgers for topic in ledger.topics.items()]
    order = list(DOORS)
    return sorted(topics, key=lambda topic: order.index(topic[1].door))


def _doors(record: Record, topics: list[tuple[str, Line]]) -> Table:
    rows = []
    for door, (passes, protects) in DOORS.items():
        lines = [line for _, line in topics if line.door == door]
        if door is Door.OPEN and record.strict:
            protects = "nothing; the strict profile keeps this door shut"
        messages, size = (sum(getattr(line, n) for line in lines) for n in ("messages", "bytes"))
        rows.append([door.value, passes, protects, messages, size])
    columns = ["door", "what passes", "what protects it", "messages", "bytes"]
    return Table(columns, rows, "The doors", stacked=True)

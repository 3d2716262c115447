"""The ledger: every kind of message that left a device, and the door it took."""

from lumos.exchange import TopicLine
from lumos.exchange.topic import Door
from lumos.report.page import Block, Section, Table, Text
from lumos.runs.run import Run

DOORS = {
    Door.OPEN: ("messages as they are", "nothing"),
    Door.RELEASE: ("output of a randomized mechanism", "differential privacy: ε is counted"),
    Door.COMPARE: (
        "messages of a secret comparison, or of the secret score of a pair",
        "cryptography: both sides learn the declared answer, counted in bits",
    ),
    Door.CONTROL: ("a word of a short public list, or a public id", "its bits are counted"),
    Door.AGGREGATE: ("a masked number or vector", "only the sum over devices becomes visible"),
}
"""By door: what passes, and what protects it; in the order of the page."""

Topics = list[tuple[str, TopicLine]]


def section(run: Run) -> Section:
    """The doors, then the topics."""
    topics = topics_by_door(run)
    blocks: list[Block] = [
        Text(
            "Every message that leaves a device passes one of five doors, and the ledger counts it "
            "there. A door says what protects the message. Bytes are those of message bodies."
        ),
        _doors(run, topics),
        Table(
            ["topic", "door", "messages", "bytes", "bytes each", "who learns what"],
            [
                [name, line.door, line.messages, line.bytes, _each(line), line.learns]
                for name, line in topics
            ],
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
    of_trees = run.trees.ledger
    if of_trees.comparisons:
        blocks.append(
            Text(
                f"{of_trees.comparisons:,} secret comparisons balanced the trees; their answers "
                f"could tell {of_trees.comparison_bits:,.0f} bits."
            )
        )
    return Section("What left the devices", blocks)


def _each(line: TopicLine) -> str:
    """Bytes of one message, on average."""
    return f"{line.bytes / line.messages:,.0f}" if line.messages else "–"


def topics_by_door(run: Run) -> Topics:
    """All topics, the least protected first."""
    topics = [*run.trees.ledger.topics.items(), *run.ledger.topics.items()]
    order = list(DOORS)
    return sorted(topics, key=lambda topic: order.index(Door(topic[1].door)))


def _doors(run: Run, topics: Topics) -> Table:
    profile, rows = run.config.profile, []
    for door, (passes, protects) in DOORS.items():
        lines = [line for _, line in topics if line.door == door]
        if door not in profile.doors:
            protects = f"{protects}; the {profile.name} profile keeps this door shut"
        messages, size = sum(line.messages for line in lines), sum(line.bytes for line in lines)
        rows.append([door.value, passes, protects, messages, size])
    columns = ["door", "what passes", "what protects it", "messages", "bytes"]
    return Table(columns, rows, "The doors", stacked=True)

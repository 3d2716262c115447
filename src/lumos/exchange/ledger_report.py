"""The observer's report: the ledgers of all parties added up. Simulation only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lumos.device.shard import COORDINATOR
from lumos.display import DISPLAYS
from lumos.errors import UsageError
from lumos.exchange.ledger import Ledger
from lumos.exchange.revealed_bits import ANSWER_BITS
from lumos.exchange.topic import PUBLIC_ID, TOPICS, Door, Topic
from lumos.exchange.traffic import Booking, FlowsByTopic
from lumos.frames import frame_of_rows
from lumos.typing import Doubles, Ints

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, kw_only=True, eq=False)
class TopicLine:
    """One topic of a finished run."""

    door: str
    """The door through which it left."""
    messages: int
    """Messages delivered."""
    bytes: int
    """Bytes of their bodies; a carrier's own headers are not counted."""
    learns: str
    """Who learns what from it."""
    ideal: bool
    """True when an ideal backend booked these messages by formula."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LedgerReport:
    """The ledgers of all parties added up, by the observer of a simulation."""

    messages: int
    """Messages delivered, over all devices and the coordinator."""
    bytes: int
    """Bytes of their bodies."""
    rounds: int
    """Rounds of the federation: how often everybody synchronised."""
    comparisons: int
    """Secret comparisons carried out."""
    scores: int = 0
    """Link scores carried out."""
    comparison_bits: float
    """What answers of comparisons and scores could tell: log2 of the possible ones each."""
    comparison_lengths: tuple[int, ...]
    """Public bit lengths ℓ of the compared values."""
    control_bits: float
    """log2 of the vocabulary per control message, at least 1. Silence is not counted."""
    bits_per_pair_mean: float
    """Mean bits of the answers of a pair, over the pairs that compared or scored at all."""
    bits_per_pair_largest: float
    """Largest bits of the answers of one pair."""
    epsilon_per_receiver: float
    """Largest ε that one device spent on one receiver."""
    epsilon_collusion: float
    """Largest ε that one device spent on all its receivers together."""
    edge_epsilon: float
    """Largest ε that one device spent on its edges: by messages made of what it received."""
    topics: dict[str, TopicLine]
    """By topic."""
    messages_sent: Ints = field(repr=False)
    """[devices] messages sent by each device.

    This and all arrays below are empty where the run was read from a folder that keeps nothing of
    single devices: numbers of messages are degrees in disguise.
    """
    messages_received: Ints = field(repr=False)
    """[devices] messages received by each device."""
    bytes_sent: Ints = field(repr=False)
    """[devices] bytes sent by each device."""
    bytes_received: Ints = field(repr=False)
    """[devices] bytes received by each device."""
    device_rounds: Ints = field(repr=False)
    """[devices] rounds in which each device sent or received something."""
    device_comparison_bits: Doubles = field(repr=False)
    """[devices] bits of answers that each device revealed, over all its peers."""
    pairs: Ints = field(repr=False)
    """[pairs, 2] the pairs that compared or scored, the smaller id first, in increasing order."""
    pair_bits: Doubles = field(repr=False)
    """[pairs] bits of answers that the two revealed to each other."""
    device_epsilon: Doubles = field(repr=False)
    """[devices] largest ε spent on one receiver."""
    device_epsilon_collusion: Doubles = field(repr=False)
    """[devices] ε spent on all receivers together."""
    device_edge_epsilon: Doubles = field(repr=False)
    """[devices] ε spent on its edges, over all receivers together."""
    clear_traffic: dict[str, dict[str, int]] = field(default_factory=dict, repr=False)
    """By ideal topic: `messages` and `bytes` that a simulation really passed in the clear.

    They stand for the booked messages in `topics` and depend on the number of shards.
    """

    def __repr__(self) -> str:
        doors = sorted({line.door for line in self.topics.values() if line.messages})
        return (
            f"LedgerReport({self.messages:,} messages, {self.bytes:,} bytes, {self.rounds:,} "
            f"rounds, {len(self.topics)} topics through {', '.join(doors) or 'no door'})"
        )

    def _repr_html_(self) -> str:
        """For notebooks: every topic."""
        shown: str = DISPLAYS["ledger"](self)
        return shown

    def frame(self) -> "pandas.DataFrame":
        """Topics as a pandas frame: `topic`, `door`, `messages`, `bytes`, `ideal`, `learns`."""
        rows = [{"topic": name, **vars(line)} for name, line in self.topics.items()]
        return frame_of_rows(rows, ("topic", "door", "messages", "bytes", "ideal", "learns"))

    def revealed_by(self, device: int) -> dict[int, float]:
        """To whom a device has revealed bits of answers, and how many.

        Raises:
            UsageError: the run was read from a folder that does not keep it.
        """
        if not len(self.messages_sent):
            raise UsageError(
                "the folder of this run keeps totals only, nothing of single devices; train it "
                "again to see them"
            )
        mine = (self.pairs == device).any(axis=1)
        others = self.pairs[mine].sum(axis=1) - device
        return dict(zip(others.tolist(), self.pair_bits[mine].tolist(), strict=True))

    def totals(self) -> dict[str, Any]:
        """The totals as plain numbers, for JSON."""
        simple = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        topics = {name: vars(line) for name, line in self.topics.items()}
        return {**simple, "comparison_lengths": self.comparison_lengths, "topics": topics}


def add_up(ledgers: Sequence[Ledger], total: int) -> LedgerReport:
    """Add the ledgers of all parties up.

    Args:
        ledgers: one per shard, and the coordinator's.
        total: number of devices.
    """
    flows = {name: np.zeros(total + 1, np.int64) for name in Booking._fields}
    by_topic: dict[str, dict[str, int]] = {}
    clear: dict[str, dict[str, int]] = {}
    for ledger in ledgers:
        place = np.array([COORDINATOR]) if ledger.shard is None else ledger.shard.devices
        of_ledger = ledger.flows()
        for of_topic in of_ledger.values():
            for flow, counts in of_topic.items():
                flows[flow][place] += counts
        _add_totals(by_topic, of_ledger)
        _add_totals(clear, ledger.clear_flows())
    ideal = {topic.name for ledger in ledgers for topic in ledger.ideal}
    topics = {
        name: _line(TOPICS[name], totals, name in ideal)
        for name, totals in sorted(by_topic.items())
    }
    return LedgerReport(
        messages=sum(line.messages for line in topics.values()),
        bytes=sum(line.bytes for line in topics.values()),
        rounds=ledgers[0].round,
        control_bits=sum(
            line.messages * _control_bits(TOPICS[name], total)
            for name, line in topics.items()
            if TOPICS[name].door is Door.CONTROL
        ),
        topics=topics,
        messages_sent=flows["sent"][:total],
        messages_received=flows["received"][:total],
        bytes_sent=flows["bytes_sent"][:total],
        bytes_received=flows["bytes_received"][:total],
        clear_traffic={
            name: {"messages": totals["received"], "bytes": totals["bytes_received"]}
            for name, totals in sorted(clear.items())
        },
        **_of_devices(ledgers, total),
        **_of_pairs(ledgers),
    )


def _of_devices(ledgers: Sequence[Ledger], total: int) -> dict[str, Any]:
    """Rounds, revealed bits and ε of each device."""
    rounds = np.zeros(total, np.int64)
    bits, epsilon, collusion, edges = (np.zeros(total) for _ in range(4))
    for ledger in ledgers:
        if ledger.shard is not None:
            here = ledger.shard.devices
            rounds[here] = ledger.device_rounds
            bits[here] = ledger.answers.device_bits()
            epsilon[here], collusion[here] = ledger.epsilon()
            edges[here] = ledger.edge_epsilon()
    return {
        "device_rounds": rounds,
        "device_comparison_bits": bits,
        "device_epsilon": epsilon,
        "device_epsilon_collusion": collusion,
        "device_edge_epsilon": edges,
        "epsilon_per_receiver": float(epsilon.max(initial=0.0)),
        "epsilon_collusion": float(collusion.max(initial=0.0)),
        "edge_epsilon": float(edges.max(initial=0.0)),
    }


def _of_pairs(ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """What answers revealed. Both ends counted each answer, the smaller id each pair."""
    answers = dict.fromkeys(ANSWER_BITS, 0)
    lengths: set[int] = set()
    pairs: list[Ints] = []
    pair_bits: list[Doubles] = []
    for ledger in ledgers:
        lengths |= ledger.lengths
        for ways, count in ledger.answers.totals().items():
            answers[ways] += count
        of_ledger, bits_of_ledger = ledger.answers.pairs()
        pairs.append(of_ledger)
        pair_bits.append(bits_of_ledger)
    ends, bits = np.concatenate(pairs), np.concatenate(pair_bits)
    scores = sum(ledger.scores for ledger in ledgers) // 2
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    ends, bits = ends[order], bits[order]
    return {
        "comparisons": sum(answers.values()) // 2 - scores,
        "scores": scores,
        "comparison_bits": sum(ANSWER_BITS[ways] * count for ways, count in answers.items()) / 2,
        "comparison_lengths": tuple(sorted(lengths)),
        "bits_per_pair_mean": float(bits.mean()) if len(bits) else 0.0,
        "bits_per_pair_largest": float(bits.max(initial=0.0)),
        "pairs": ends,
        "pair_bits": bits,
    }


def _add_totals(totals: dict[str, dict[str, int]], flows: FlowsByTopic) -> None:
    for name, of_topic in flows.items():
        of_name = totals.setdefault(name, dict.fromkeys(Booking._fields, 0))
        for flow, counts in of_topic.items():
            of_name[flow] += int(counts.sum())


def _control_bits(topic: Topic, total: int) -> float:
    """Bits that one control message can tell; a single word still tells that it was sent."""
    ways = total if topic.vocabulary is PUBLIC_ID else len(topic.vocabulary)
    return max(1.0, math.log2(ways))


def _line(topic: Topic, totals: dict[str, int], ideal: bool) -> TopicLine:
    return TopicLine(
        door=topic.door.value,
        messages=totals["received"],
        bytes=totals["bytes_received"],
        learns=topic.learns,
        ideal=ideal,
    )

"""The observer of a simulation: it gathers results from shards, and adds their ledgers up.

No program has it, and no device could: it is how a simulation writes down its results. Where all
shards live in one process, gathering is nothing; between ranks, rows travel to the first rank, and
nobody else sees what others have. `LedgerReport` is the sum of all ledgers.
"""

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lumos.crypto.groups import NO_GROUP
from lumos.device.shard import COORDINATOR
from lumos.display import frame_of_rows
from lumos.errors import UsageError
from lumos.exchange.counts import ANSWER_BITS, Booking
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import PUBLIC_ID, TOPICS, Door, Topic
from lumos.ranks.world import LANES, NOTHING, Arrived, Sending, SwapKind, World
from lumos.typing import Arrays, Doubles, Ints

if TYPE_CHECKING:
    import pandas


class Observer(Protocol):
    """One interface for everything that is not a message of a program."""

    @property
    def first(self) -> bool:
        """True in the process that gets what is gathered."""
        ...

    def gather(self, name: str, parts: Sequence[Arrays]) -> list[Arrays]:
        """Return the arrays of all shards, in their order; elsewhere than at the first rank, none.

        Args:
            name: what is gathered; the same at all ranks.
            parts: one of each shard that this process hosts.
        """
        ...

    def scatter(self, name: str, parts: Sequence[Arrays] | None) -> list[Arrays] | None:
        """Return what the first rank has for each shard, at the process that hosts it.

        Args:
            name: what is scattered; the same at all ranks.
            parts: one for each shard, in their order, or None; elsewhere than at the first rank it
                does not matter.
        """
        ...

    def add(self, name: str, counts: Ints) -> Ints:
        """Return [n] the sums over all ranks, at every rank."""
        ...

    def differs(self, name: str, digest: bytes) -> bool:
        """Return whether the digests of two ranks differ; the same answer at every rank.

        Args:
            name: what is compared; the same at all ranks.
            digest: as long at all ranks.
        """
        ...


class OneProcess:
    """All shards live in this process."""

    first = True

    def gather(self, name: str, parts: Sequence[Arrays]) -> list[Arrays]:
        """The same."""
        return list(parts)

    def scatter(self, name: str, parts: Sequence[Arrays] | None) -> list[Arrays] | None:
        """The same."""
        return None if parts is None else list(parts)

    def add(self, name: str, counts: Ints) -> Ints:
        """The same."""
        return counts

    def differs(self, name: str, digest: bytes) -> bool:
        """There is one."""
        return False


class AcrossRanks:
    """Every rank hosts one shard."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def first(self) -> bool:
        """True at rank 0."""
        return self._world.first

    def gather(self, name: str, parts: Sequence[Arrays]) -> list[Arrays]:
        """The arrays of all ranks, at the first."""
        (mine,) = parts
        world = self._world
        to_first = NOTHING if world.first else _packed(mine)
        received = _swapped(world, SwapKind.GATHER, name, _only_to(world, 0, to_first))
        if not world.first:
            return []
        others = [_unpacked(lanes[0]) for lanes in (received or [[]])[1:]]
        return [mine, *others]

    def scatter(self, name: str, parts: Sequence[Arrays] | None) -> list[Arrays] | None:
        """The arrays that the first rank has for this one."""
        world = self._world
        sent = [[NOTHING] * LANES for _ in range(world.size)]
        if world.first and parts is not None:
            for rank, part in enumerate(parts[1:], start=1):
                sent[rank][0] = _packed(part)
        received = _swapped(world, SwapKind.SCATTER, name, sent)
        if world.first:
            return None if parts is None else [parts[0]]
        return None if received is None else [_unpacked(received[0][0])]

    def add(self, name: str, counts: Ints) -> Ints:
        """Added up at every rank."""
        world = self._world
        mine = np.asarray(counts, np.int64)
        sending = Sending(len(mine), 8, mine.view(np.uint8))
        received = _swapped(world, SwapKind.ADD, name, [[sending, NOTHING, NOTHING]] * world.size)
        return sum((lanes[0].body.view(np.int64) for lanes in received or []), np.zeros_like(mine))

    def differs(self, name: str, digest: bytes) -> bool:
        """Compare the digests of all ranks, at every rank."""
        world = self._world
        mine = np.frombuffer(digest, np.uint8).copy()
        sending = Sending(len(mine), 1, mine)
        received = _swapped(world, SwapKind.ADD, name, [[sending, NOTHING, NOTHING]] * world.size)
        return len({lanes[0].body.tobytes() for lanes in received or []}) > 1


def _swapped(
    world: World, kind: SwapKind, name: str, sent: Sequence[Sequence[Sending]]
) -> list[list[Arrived]] | None:
    """A swap before which the first rank may have worked alone, for as long as it takes."""
    world.wait_for_first()
    return world.swap(kind, name, sent)


def _only_to(world: World, rank: int, sending: Sending) -> list[list[Sending]]:
    return [
        [sending if to == rank else NOTHING, *[NOTHING] * (LANES - 1)] for to in range(world.size)
    ]


def _packed(arrays: Arrays) -> Sending:
    """As bytes, without pickle."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    body = np.frombuffer(buffer.getbuffer(), np.uint8)
    return Sending(len(body), 1, body)


def _unpacked(received: Arrived) -> Arrays:
    with np.load(io.BytesIO(received.body.tobytes()), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


# The sum of all ledgers.


@dataclass(frozen=True, kw_only=True, eq=False)
class TopicLine:
    """One topic of a finished run."""

    door: str
    """The door through which it left."""
    messages: int
    """Messages delivered."""
    bytes: int
    """Bytes of their bodies; a transport's own headers are not counted."""
    learns: str
    """Participants that learn from it, and what they learn, in one sentence."""
    ideal: bool
    """True when an ideal backend booked these messages by formula."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LedgerReport:
    """The ledgers of all participants added up, by the observer of a simulation."""

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
    """Bits that answers of comparisons and scores can reveal: log2 of the possible ones each."""
    comparison_lengths: tuple[int, ...]
    """Public bit lengths ℓ of the compared values."""
    group: str = NO_GROUP
    """The group of the points in comparisons and scores, whose size their bytes follow.

    Also where an ideal backend booked them; `none` if nothing was compared or scored.
    """
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
        named = {"comparison_lengths": self.comparison_lengths, "group": self.group}
        return {**simple, **named, "topics": topics}


def own_ledger(flows: Mapping[str, Mapping[str, int]]) -> LedgerReport:
    """Return the report of one participant's messages, which knows of no others.

    Args:
        flows: by topic `sent`, `received`, `bytes_sent` and `bytes_received`.
    """
    topics = {
        name: TopicLine(
            door=TOPICS[name].door.value,
            messages=flow.get("sent", 0) + flow.get("received", 0),
            bytes=flow.get("bytes_sent", 0) + flow.get("bytes_received", 0),
            learns=TOPICS[name].learns,
            ideal=False,
        )
        for name, flow in flows.items()
    }
    return replace(
        add_up([Ledger(None)], 0),
        messages=sum(line.messages for line in topics.values()),
        bytes=sum(line.bytes for line in topics.values()),
        topics=topics,
    )


def add_up(ledgers: Sequence[Ledger], total: int) -> LedgerReport:
    """Add the ledgers of all participants up.

    Args:
        ledgers: one per shard, and the coordinator's.
        total: number of devices.
    """
    return add_up_parts([ledger_part(ledger) for ledger in ledgers], total)


OF_DEVICES = ("device_rounds", "device_comparison_bits")
EPSILONS = ("device_epsilon", "device_epsilon_collusion", "device_edge_epsilon")


def ledger_part(ledger: Ledger) -> Arrays:
    """Read one ledger for the observer: arrays by device and pair, and counts as text."""
    flows, hosted = ledger.flows(), ledger.shard is not None
    size = len(ledger.device_rounds)
    part: Arrays = {"devices": ledger.shard.devices if ledger.shard else np.array([COORDINATOR])}
    for name in Booking._fields:
        of_device = np.zeros(size, np.int64)
        for of_topic in flows.values():
            if name in of_topic:
                of_device += of_topic[name]
        part[name] = of_device
    part["device_rounds"] = ledger.device_rounds
    part["device_comparison_bits"] = ledger.answers.device_bits() if hosted else np.zeros(size)
    epsilon = (*ledger.epsilon(), ledger.edge_epsilon())
    part |= dict(zip(EPSILONS, epsilon, strict=True))
    part["pairs"], part["pair_bits"] = ledger.answers.pairs()
    counts = {
        "topics": _totals([flows]),
        "clear": _totals([ledger.clear_flows()]),
        "ideal": sorted(topic.name for topic in ledger.ideal),
        "round": ledger.round,
        "answers": {str(ways): count for ways, count in ledger.answers.totals().items()},
        "lengths": sorted(ledger.lengths),
        "groups": sorted(ledger.groups),
        "scores": ledger.scores,
    }
    part["counts"] = np.array(json.dumps(counts))
    return part


def add_up_parts(parts: Sequence[Arrays], total: int) -> LedgerReport:
    """Return the report, from what `ledger_part` read from the ledgers of all participants.

    Args:
        parts: one per shard, and the coordinator's.
        total: number of devices.
    """
    every = [json.loads(str(part["counts"])) for part in parts]
    ideal = {name for counts in every for name in counts["ideal"]}
    by_topic = _totals([counts["topics"] for counts in every])
    clear = _totals([counts["clear"] for counts in every])
    topics = {
        name: _line(TOPICS[name], totals, name in ideal)
        for name, totals in sorted(by_topic.items())
    }
    of_devices: dict[str, Any] = {}
    for name in (*Booking._fields, *OF_DEVICES, *EPSILONS):
        rows = np.zeros(total + 1, parts[0][name].dtype)  # the coordinator's is the last
        for part in parts:
            devices = part["devices"]
            everybody = len(devices) == total and devices[0] != COORDINATOR  # in order, then
            where = slice(0, total) if everybody else devices
            rows[where] += part[name]
        of_devices[name] = rows[:total]
    return LedgerReport(
        messages=sum(line.messages for line in topics.values()),
        bytes=sum(line.bytes for line in topics.values()),
        rounds=every[0]["round"],
        control_bits=sum(
            line.messages * _control_bits(TOPICS[name], total)
            for name, line in topics.items()
            if TOPICS[name].door is Door.CONTROL
        ),
        topics=topics,
        messages_sent=of_devices.pop("sent"),
        messages_received=of_devices.pop("received"),
        **of_devices,
        epsilon_per_receiver=float(of_devices["device_epsilon"].max(initial=0.0)),
        epsilon_collusion=float(of_devices["device_epsilon_collusion"].max(initial=0.0)),
        edge_epsilon=float(of_devices["device_edge_epsilon"].max(initial=0.0)),
        clear_traffic={
            name: {"messages": totals["received"], "bytes": totals["bytes_received"]}
            for name, totals in sorted(clear.items())
        },
        **_of_pairs(parts, every),
    )


def _of_pairs(parts: Sequence[Arrays], every: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up what answers revealed. Both ends count each answer, the smaller id each pair."""
    answers = dict.fromkeys(ANSWER_BITS, 0)
    for counts in every:
        for ways, count in counts["answers"].items():
            answers[int(ways)] += count
    ends = np.concatenate([part["pairs"] for part in parts])
    bits = np.concatenate([part["pair_bits"] for part in parts])
    scores = sum(counts["scores"] for counts in every) // 2
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    ends, bits = ends[order], bits[order]
    return {
        "comparisons": sum(answers.values()) // 2 - scores,
        "scores": scores,
        "comparison_bits": sum(ANSWER_BITS[ways] * count for ways, count in answers.items()) / 2,
        "comparison_lengths": tuple(
            sorted({length for counts in every for length in counts["lengths"]})
        ),
        "group": ", ".join(sorted({name for counts in every for name in counts["groups"]}))
        or NO_GROUP,
        "bits_per_pair_mean": float(bits.mean()) if len(bits) else 0.0,
        "bits_per_pair_largest": float(bits.max(initial=0.0)),
        "pairs": ends,
        "pair_bits": bits,
    }


def _totals(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, int]]:
    """Add up counts by topic and field of `Booking`; counts are numbers or arrays."""
    totals: dict[str, dict[str, int]] = {}
    for by_topic in parts:
        for name, of_topic in by_topic.items():
            of_name = totals.setdefault(name, dict.fromkeys(Booking._fields, 0))
            for flow, counts in of_topic.items():
                of_name[flow] += int(np.sum(counts))
    return totals


def _control_bits(topic: Topic, total: int) -> float:
    """Return the bits of one control message; a single word still reveals that it was sent."""
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

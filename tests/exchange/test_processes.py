"""Balancers as single-device operating-system processes that share nothing but pipes."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.exchange.balancing import ITERATIONS, SEED, Kept, balanced
from tests.exchange.device_process import Birth, Failure, Frame, Report, read, write
from tests.exchange.post import Letter, Post, PostOffice, Tamper
from tests.exchange.transports import Isolated

from lumos.device import COORDINATOR, Shard, cut
from lumos.errors import ProtocolError
from lumos.exchange import TOPICS, Door, LedgerReport, Topic
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph, demo_graph

PATIENCE = 120.0  # seconds that a process may be silent on a busy machine
MAX_ROUNDS = 1000  # an honest run takes fewer than 100


class Nursery:
    """Forks processes on demand. Its process group ends with it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.exchange.device_process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        theirs.close()
        self._control.settimeout(120)

    def fork(self, count: int) -> list[tuple[int, int]]:
        """(what we read, what we write) for each of `count` new processes."""
        ours, theirs = [], []
        for _ in range(count):
            their_source, our_sink = os.pipe()
            our_source, their_sink = os.pipe()
            ours.append((our_source, our_sink))
            theirs += [their_source, their_sink]
        socket.send_fds(self._control, [b"."], theirs)
        assert self._control.recv(1) == b"."
        for pipe in theirs:
            os.close(pipe)
        return ours

    def end(self) -> None:
        """Devices end when their pipes are closed, and the nursery when its socket is."""
        self._control.close()
        try:
            assert self._process.wait(timeout=120) == 0
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=120)
            raise


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    opened = Nursery()
    yield opened
    opened.end()


class Aborted(Exception):
    """A process gave up, or the router did."""


def next_frame(pipe: int) -> Frame:
    ready, _, _ = select.select([pipe], [], [], PATIENCE)
    assert ready, "a process hangs"
    frame = msgspec.msgpack.decode(read(pipe), type=Frame)
    if isinstance(frame, Failure):
        raise Aborted(frame.why)
    return frame


STEPS = {"mcmc": ITERATIONS, "optimal": 0}


def federation(
    nursery: Nursery, graph: Graph, balancer: str, tamper: Tamper | None = None
) -> tuple[list[Report], PostOffice]:
    """Run a balancer in graph.devices + 1 processes; this one only forwards posts."""
    steps = STEPS[balancer]
    pipes = nursery.fork(graph.devices + 1)
    try:
        births = [
            Birth(device, graph.devices, SEED, steps, shard.neighbours.tolist(), secret)
            for shard in cut(graph, graph.devices, SEED)
            for device, secret in zip(
                shard.devices.tolist(), shard.randomness._secrets.tolist(), strict=True
            )
        ]
        births.append(Birth(COORDINATOR, graph.devices, SEED, steps, [], []))
        for (_, sink), birth in zip(pipes, births, strict=True):
            write(sink, msgspec.msgpack.encode(birth))
        office = PostOffice(range(graph.devices), tamper)
        try:
            return forward(office, pipes), office
        except (ProtocolError, BrokenPipeError, EOFError) as error:
            raise Aborted(str(error)) from error
    finally:
        for source, sink in pipes:
            os.close(sink)
            assert ended(source), "a process does not end when its pipe does"
            os.close(source)


def forward(office: PostOffice, pipes: list[tuple[int, int]]) -> list[Report]:
    sources, sinks = [source for source, _ in pipes], [sink for _, sink in pipes]
    waiting: Frame | None = None  # what the coordinator has sent and not yet an answer to
    while True:
        frames = [next_frame(source) for source in sources[:-1]]
        reports = [frame for frame in frames if isinstance(frame, Report)]
        if len(reports) == len(frames):
            last = waiting or next_frame(sources[-1])
            if not isinstance(last, Report):
                raise ProtocolError("the parties did not finish in the same round")
            return [*reports, last]
        posts = [frame for frame in frames if isinstance(frame, Post)]
        if len(posts) < len(frames):
            raise ProtocolError("a device finished early")
        if TOPICS[posts[0].topic].coordinator:
            frame, waiting = waiting or next_frame(sources[-1]), None
            if not isinstance(frame, Post):
                raise ProtocolError("the coordinator finished early")
            posts.append(frame)
        handed = office.deliver([msgspec.msgpack.encode(post) for post in posts])
        if office.rounds > MAX_ROUNDS:
            raise ProtocolError("the devices do not come to an end")
        for sink, post in zip(sinks, handed, strict=False):
            write(sink, post)


def ended(pipe: int) -> bool:
    """The process at the other end is gone: end of file, after what it still had to say."""
    deadline = time.monotonic() + PATIENCE
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not os.read(pipe, 1 << 16):
            return True
    return False


def kept_by(reports: list[Report]) -> Kept:
    return {
        (device, neighbour)
        for device, report in enumerate(reports[:-1])
        for neighbour in report.kept
    }


def totals(ledger: LedgerReport) -> dict[str, tuple[int, int]]:
    return {name: (line.messages, line.bytes) for name, line in ledger.topics.items()}


@pytest.mark.parametrize("balancer", STEPS)
def test_sixty_processes_find_the_same_trees(nursery: Nursery, sixty: Graph, balancer: str) -> None:
    kept, ledger = balanced(sixty, 1, balancer, "ideal", Loopback)
    reports, office = federation(nursery, sixty, balancer)
    assert len(reports) == 61
    assert kept_by(reports) == kept
    devices = reports[:-1]
    assert [report.sent for report in devices] == ledger.messages_sent.tolist()
    assert [report.received for report in devices] == ledger.messages_received.tolist()
    assert [report.bytes_sent for report in devices] == ledger.bytes_sent.tolist()
    assert [report.bytes_received for report in devices] == ledger.bytes_received.tolist()
    assert [report.own_rounds for report in devices] == ledger.device_rounds.tolist()
    assert {report.rounds for report in devices} == {ledger.rounds}
    bits = [report.comparison_bits for report in devices]
    assert np.array_equal(bits, ledger.device_comparison_bits)
    summed: dict[str, tuple[int, int]] = {}
    for report in reports:
        for name, (messages, size) in report.topics.items():
            before = summed.get(name, (0, 0))
            summed[name] = (before[0] + messages, before[1] + size)
    assert summed == totals(ledger)
    # What the router forwarded is what was counted, except what ideal books.
    forwarded = {name: count for name, count in office.of_topic.items() if name != "compare/ideal"}
    counted = {name: count for name, (count, _) in summed.items() if name != "compare/ideal"}
    assert forwarded == counted


class Flip:
    """Flips one bit of one message: the `number`-th of its topic."""

    def __init__(self, topic: str, number: int, bit: int = 0) -> None:
        self._topic, self._left, self._bit = topic, number, bit

    def __call__(self, topic: str, letters: list[Letter]) -> list[Letter]:
        if topic != self._topic:
            return letters
        number, self._left = self._left, self._left - len(letters)
        if not 0 <= number < len(letters):
            return letters
        return flipped(letters, number, self._bit)


def flipped(letters: list[Letter], number: int, bit: int) -> list[Letter]:
    body = bytearray(letters[number].body)
    body[bit // 8] ^= 1 << bit % 8
    changed = msgspec.structs.replace(letters[number], body=bytes(body))
    return [*letters[:number], changed, *letters[number + 1 :]]


class LoseAnEdge:
    """Makes the larger value of an ideal comparison of the greedy start negative.

    The end that is to carry the edge then believes that the other does. (Most bits of a value can
    be flipped without turning an answer: an ideal comparison proves nothing about its messages.)
    """

    def __init__(self, number: int) -> None:
        self._number: int | None = number

    def __call__(self, topic: str, letters: list[Letter]) -> list[Letter]:
        number, self._number = self._number, None
        if topic != "compare/ideal" or number is None:
            return letters
        value = {(literal.sender, literal.receiver): literal.body[0] for literal in letters}
        larger = [
            place
            for place, literal in enumerate(letters)
            if literal.body[0] > value[literal.receiver, literal.sender]
        ]
        return flipped(letters, larger[number], 63)


@pytest.fixture(scope="module")
def ten() -> Graph:
    """Ten devices that need every topic of `optimal`, path reversals among them."""
    return demo_graph(10, features=False, seed=0)


def outcome(nursery: Nursery, graph: Graph, balancer: str, tamper: Tamper | None = None) -> object:
    """The trees and the course that led to them, or why there are none."""
    try:
        reports, office = federation(nursery, graph, balancer, tamper)
    except Aborted as error:
        return str(error)
    return kept_by(reports), office.rounds, office.of_topic


Course = tuple[Kept, int, dict[str, int]]


@pytest.fixture(scope="module")
def honest(nursery: Nursery, ten: Graph) -> dict[str, Course]:
    courses: dict[str, Course] = {}
    for balancer in STEPS:
        found = outcome(nursery, ten, balancer)
        assert isinstance(found, tuple)
        courses[balancer] = found
    return courses


TALKED = {
    **dict.fromkeys(("masked-flag/mask", "masked-flag/share", "masked-flag/verdict"), "mcmc"),
    **dict.fromkeys(("optimal/ask", "optimal/take", "optimal/search"), "optimal"),
    **dict.fromkeys(("optimal/found", "optimal/grant"), "optimal"),
}


def test_the_ten_devices_use_every_topic(honest: dict[str, Course]) -> None:
    """`optimal` sends nothing else: it compares nothing, and needs no coordinator."""
    optimal_topics = {name for name in TOPICS if name.startswith("optimal/")}
    assert {name for name, balancer in TALKED.items() if balancer == "optimal"} == optimal_topics
    assert set(honest["optimal"][2]) == optimal_topics


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize(("topic", "balancer"), TALKED.items())
def test_a_flipped_message_changes_or_aborts_the_run(
    nursery: Nursery,
    ten: Graph,
    honest: dict[str, Course],
    topic: str,
    balancer: str,
    where: str,
) -> None:
    number = 0 if where == "first" else honest[balancer][2][topic] - 1
    assert outcome(nursery, ten, balancer, Flip(topic, number)) != honest[balancer]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_answer_changes_or_aborts_the_result(
    nursery: Nursery, ten: Graph, honest: dict[str, Course], number: int
) -> None:
    found = outcome(nursery, ten, "mcmc", LoseAnEdge(number))
    assert isinstance(found, str) or found[0] != honest["mcmc"][0]  # type: ignore[index]


@pytest.mark.parametrize("bit", [0, 5, 62, 63])
def test_no_flipped_value_makes_the_run_hang(nursery: Nursery, ten: Graph, bit: int) -> None:
    outcome(nursery, ten, "mcmc", Flip("compare/ideal", 40 + bit, bit))


def test_sixty_processes_notice_too(nursery: Nursery, sixty: Graph) -> None:
    assert isinstance(outcome(nursery, sixty, "optimal", Flip("optimal/take", 3)), str)


@pytest.mark.parametrize("place", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_a_flip_in_a_secret_comparison_stays_between_two_devices(place: float) -> None:
    """One outcome may be wrong, and an edge assigned to both ends; none is lost."""
    graph = demo_graph(6, features=False)
    _, ledger = balanced(graph, 1, "mcmc", "ideal", Loopback)
    number = round(place * (ledger.topics["compare/ideal"].messages - 1))

    def transport_of(
        shards: Sequence[Shard], doors: Collection[Door], ideal: Collection[Topic]
    ) -> Isolated:
        return Isolated(shards, doors, ideal, Flip("compare", number, bit=number % 8))

    try:
        kept, _ = balanced(graph, 6, "mcmc", "secure", transport_of)
    except ProtocolError:
        return  # noticed by the exchange
    assert len({frozenset(pair) for pair in kept}) == graph.edges

"""The link of one participant: what it lets through, what it drops, and what it does without a
broker."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.faults import LinkFaults, NetworkPartition
from tests.deploy.participants import SERVER

from lumos.crypto import entropy
from lumos.deploy import nats as nats_link
from lumos.deploy.broker import Broker, BrokerSettings, write_broker_config
from lumos.deploy.identity import DIRECTORY, Directory, Identity
from lumos.deploy.nats import MAX_LINE, PAUSE, BrokerClient, DropLog, NatsLink, WireCount
from lumos.deploy.pki import make_federation
from lumos.deploy.protocol.frames import RUN_TAG, Alive, Data, Frame, RoundKey
from lumos.device.shard import COORDINATOR

RUN = b"r" * RUN_TAG


def link(
    pki: Path, participant: str, address: str, run: bytes = RUN, **options: object
) -> NatsLink:
    identity = Identity.load(pki / participant)
    directory = Directory.load(pki / DIRECTORY, identity.authority)
    lines: list[str] = []
    made = NatsLink(identity, directory, run, address, lines.append, **options)  # type: ignore[arg-type]
    made.lines = lines  # type: ignore[attr-defined]
    return made


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def received(of: NatsLink, count: int) -> list[tuple[int, list[Frame]]]:
    packets: list[tuple[int, list[Frame]]] = []
    async with asyncio.timeout(120):
        while sum(len(frames) for _, frames in packets) < count:
            await of.wait(1.0)
            packets += of.take()
    return packets


def played(play: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await play()

    asyncio.run(main())


def envelope(number: int, size: int) -> Data:
    return Data(RoundKey(0, 0, 0, number), "a topic", 1, entropy.draw(size))


def test_what_is_sent_arrives_and_of_other_runs_nothing(pki: Path, broker: Broker) -> None:
    async def play() -> None:
        async with (
            link(pki, "device-0", broker.address) as zero,
            link(pki, "device-0", broker.address, b"x" * RUN_TAG) as earlier_run,
            link(pki, "coordinator", broker.address) as coordinator,
        ):
            await until(lambda: zero.connected and earlier_run.connected and coordinator.connected)
            for _ in range(5):
                await earlier_run.send(COORDINATOR, [Alive(9, 9)])
            await until(lambda: coordinator.count.totals()["packets_received"] == 5)
            assert coordinator.take() == []
            await zero.send(COORDINATOR, [Alive(1, 0)])
            assert await received(coordinator, 1) == [(0, [Alive(1, 0)])]
            assert coordinator.lines == [  # type: ignore[attr-defined]
                "device 0: a packet is of another run, or of other participants; dropped"
            ]

    played(play)


def test_frames_are_split_by_what_the_broker_takes(pki: Path, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    write_broker_config(pki, config, BrokerSettings(max_payload=8192))
    frames: list[Frame] = [envelope(number, 3000) for number in range(7)]
    alone: list[Frame] = [envelope(8, 9000)]

    async def play(address: str) -> None:
        async with link(pki, "device-0", address) as zero, link(pki, "device-1", address) as one:
            await until(lambda: zero.connected and one.connected)
            await zero.send(1, alone)  # larger than anything that the broker takes
            await zero.send(1, frames)
            packets = await received(one, 7)
            assert [frame for _, some in packets for frame in some] == frames
            assert len(packets) >= 4
            assert "`max_payload`" in zero.lines[0]  # type: ignore[attr-defined]

    with Broker(config, tmp_path / "run", server=SERVER) as broker:
        played(lambda: play(broker.address))


def test_without_a_broker_nothing_waits_and_nothing_grows(pki: Path, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    write_broker_config(pki, config)
    broker = Broker(config, tmp_path / "run", server=SERVER)
    broker.start()

    async def play() -> None:
        async with (
            link(pki, "device-0", broker.address) as zero,
            link(pki, "device-1", broker.address) as one,
        ):
            await until(lambda: zero.connected and one.connected)
            broker.kill()
            await until(lambda: not zero.connected and not one.connected)
            before = zero.count.totals()["packets_sent"]
            async with asyncio.timeout(120):  # it would block, or keep 2 GB
                for number in range(20_000):
                    await zero.send(1, [envelope(number, 100_000)] if not number else [Alive(0, 0)])
            assert zero.count.totals()["packets_sent"] == before
            broker.start()
            await until(lambda: zero.connected and one.connected)
            await zero.send(1, [Alive(2, 0)])
            assert await received(one, 1) == [(0, [Alive(2, 0)])]

    try:
        played(play)
    finally:
        broker.stop()


def test_a_wrong_certificate_is_refused_and_the_link_says_so(
    tmp_path: Path, broker: Broker
) -> None:
    non_neighbour = link(make_federation(tmp_path / "pki", 1).folder, "device-0", broker.address)

    async def play() -> None:
        async with non_neighbour:
            await until(lambda: non_neighbour.lines)  # type: ignore[attr-defined]
            assert not non_neighbour.connected
            assert "no connection to the broker" in non_neighbour.lines[0]  # type: ignore[attr-defined]

    played(play)


def test_lines_about_one_sender_are_few() -> None:
    lines: list[str] = []
    now = 0.0
    log = DropLog(lines.append, lambda: now)
    for _ in range(1000):
        log.drop(3, "a packet is broken")
    log.drop(None, "a packet of nobody")
    assert lines == [
        "device 3: a packet is broken; dropped",
        "somebody: a packet of nobody; dropped",
    ]
    now = PAUSE
    log.drop(3, "a packet is broken")
    assert lines[2] == "device 3: a packet is broken; dropped (and 999 before)"
    assert log.total == 1002


def test_faults_are_as_frequent_as_asked_and_the_same_by_seed() -> None:
    def fates(seed: int) -> list[list[float]]:
        faults = LinkFaults((seed,), loss=0.1, double=0.1, reorder=0.2)
        return [faults.delays(0, 1, 0.0) for _ in range(5000)]

    first = fates(1)
    assert first == fates(1) != fates(2)
    shares = [sum(len(delays) == count for delays in first) / 5000 for count in (0, 2)]
    late = [delay for delays in first for delay in delays]
    assert shares[0] == pytest.approx(0.1, abs=0.02)
    assert shares[1] == pytest.approx(0.09, abs=0.02)
    assert sum(delay > 0 for delay in late) / len(late) == pytest.approx(0.2, abs=0.03)
    assert all(LinkFaults((0,)).delays(0, 1, 0.0) == [0.0] for _ in range(100))


def test_a_partition_cuts_both_ways_for_its_time() -> None:
    cut = LinkFaults((0,), partitions=[NetworkPartition(frozenset({1, 2}), 10.0, 20.0)])
    for sender, receiver, now, arrives in (
        (1, 5, 9.9, True),
        (1, 5, 10.0, False),
        (5, 1, 19.9, False),
        (COORDINATOR, 2, 15.0, False),
        (1, 2, 15.0, True),
        (5, 6, 15.0, True),
        (1, 5, 20.0, True),
    ):
        assert bool(cut.delays(sender, receiver, now)) == arrives


def test_counts_survive_a_kill(tmp_path: Path) -> None:
    count = WireCount(tmp_path)
    count.add_sent(300)
    count.add_received(40)
    again = WireCount(tmp_path)  # the first one was never closed
    again.add_sent(1)
    assert again.totals() == {
        "packets_sent": 2,
        "bytes_sent": 301,
        "packets_received": 1,
        "bytes_received": 40,
    }


def test_a_link_ends_also_where_a_cancellation_is_lost(
    pki: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.wait_for` of Python 3.11 returns its result instead, if that comes just then."""
    asked: list[int] = []

    async def answers(*_: object) -> bool:
        asked.append(1)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return True
        return True

    monkeypatch.setattr(nats_link, "_answers", answers)

    async def play() -> None:
        async with asyncio.timeout(120):
            async with link(pki, "device-0", broker.address):
                await until(lambda: asked)

    played(play)


class Spoken:
    """A TLS socket on which the broker says these pieces, one each time that it is read."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces, self.sent = list(pieces), b""
        self._ends = socket.socketpair()

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def recv(self, _size: int) -> bytes:
        if not self._pieces:
            raise ssl.SSLWantReadError
        return self._pieces.pop(0)

    def send(self, data: bytearray) -> int:
        self.sent += bytes(data[:7])
        return min(7, len(data))

    def close(self) -> None:
        for end in self._ends:
            end.close()


def heard(pieces: list[bytes]) -> tuple[list[tuple[str, bytes]], bytes, bool]:
    """Return the messages that a client takes, what it sends, and whether it stays connected."""
    taken: list[tuple[str, bytes]] = []

    async def listen() -> tuple[bytes, bool]:
        stream: Any = Spoken(pieces)
        info = b'INFO {"max_payload": 1000}\r\n'
        client = BrokerClient(stream, info, lambda subject, body: taken.append((subject, body)))
        client._readable()
        connected = client.is_connected
        await asyncio.sleep(0)
        client.close()
        return stream.sent, connected

    return (taken, *asyncio.run(listen()))


def test_messages_are_read_however_they_are_cut() -> None:
    said = b"MSG to.1.0 1 5\r\na\r\nbc\r\nPING\r\n+OK\r\nMSG to.1.c 1 0\r\n\r\n"
    expected = [("to.1.0", b"a\r\nbc"), ("to.1.c", b"")]
    for size in range(1, len(said) + 1):
        pieces = [said[start : start + size] for start in range(0, len(said), size)]
        assert heard(pieces) == (expected, b"PONG\r\n", True)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"MSG to.1.0 1\r\n",
        b"MSG to.1.0 1 -5\r\n",
        b"MSG to.1.0 1 " + b"9" * 5000 + b"\r\n",
        b"x" * (MAX_LINE + 1),
        b"INFO 5\r\n",
        b"",
    ],
)
def test_a_broker_that_talks_nonsense_is_left(nonsense: bytes) -> None:
    taken, _, connected = heard([b"MSG to.1.0 1 2\r\nok\r\n", nonsense])
    assert taken == [("to.1.0", b"ok")]
    assert not connected

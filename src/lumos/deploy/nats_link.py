"""A party's link to the others: packets, sealed, over the broker.

The link is always there, the connection below it is not: it is made again for ever, with bounded
waits. Without one nothing is kept for later, since mailboxes repeat what is not acknowledged. What
arrives and is not a packet of this run from its sender to this party is dropped, with a line.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from nacl.exceptions import CryptoError
from nacl.public import Box
from nats.aio.msg import Msg
from nats.errors import Error

from lumos.crypto import entropy
from lumos.deploy.connection import TlsClient, connect
from lumos.deploy.directory import Directory
from lumos.deploy.drop_log import DropLog
from lumos.deploy.frames import LARGEST, PADDING, Frame, Route, decode, encode
from lumos.deploy.identity import Identity, seal_box
from lumos.deploy.parties import own_subjects, party_name, subject
from lumos.deploy.wire_count import WireCount
from lumos.errors import LumosError
from lumos.storage import one_line

Packet = tuple[int, list[Frame]]
"""From whom, and what."""
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 2.0
"""Seconds between two attempts to connect; waits double."""
CONNECT_SECONDS = 10.0
PING_SECONDS = 5.0
"""Seconds between two pings; a broker that does not answer two of them in a row is given up."""
PROBE_SECONDS = 5.0
"""Seconds between two questions whether the broker answers."""
MOST_PENDING = LARGEST
"""Bytes that may wait for a slow broker; what comes then is dropped."""
SEAL_OVERHEAD = Box.NONCE_SIZE + 16

# nats-py logs a traceback of every failure; the link says what happened in one line.
logging.getLogger("nats").addHandler(logging.NullHandler())
logging.getLogger("nats").propagate = False


class Faults(Protocol):
    """What happens to packets on their way, in a test."""

    def delays(self, sender: int, receiver: int, now: float) -> list[float]:
        """After how many seconds the copies of a packet are sent; none where it is lost."""
        ...


class NatsLink:
    """The link of one party, inside an asynchronous `with`.

    Args:
        identity: who it is.
        directory: everybody's keys.
        run: tag of the run.
        address: of the broker.
        log: called with a line, without anything private.
        count: of bytes.
        faults: of a test.
    """

    def __init__(
        self,
        identity: Identity,
        directory: Directory,
        run: bytes,
        address: str,
        log: Callable[[str], None],
        count: WireCount | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._identity, self._directory = identity, directory
        self._run, self._address, self._log = run, address, log
        self._faults = faults
        self._me = identity.party
        self._names = {party_name(party): party for party in directory.parties}
        self._client: TlsClient | None = None
        self._arrived: list[Packet] = []
        self._waking = asyncio.Event()
        self._dropped = DropLog(log, time.monotonic)
        self._keeping: asyncio.Task[None] | None = None
        self._leaving = False
        """Before Python 3.12 `asyncio.wait_for` loses a cancellation that comes with its result."""
        self._late: set[asyncio.Future[None]] = set()
        self.count = count or WireCount()

    async def __aenter__(self) -> "NatsLink":
        self._keeping = asyncio.create_task(self._keep_connected())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leaving = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the broker now."""
        return self._client is not None and self._client.is_connected

    def wake(self) -> None:
        """End a `wait`."""
        self._waking.set()

    async def wait(self, seconds: float) -> None:
        """Wait until something has arrived or `wake` is called, at most so long."""
        if not self._arrived and seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._waking.wait()
            except TimeoutError:
                pass
        await asyncio.sleep(0)  # whatever is there comes along
        self._waking.clear()

    def take(self) -> list[Packet]:
        """All that has arrived since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived

    async def send(self, receiver: int, frames: list[Frame]) -> None:
        """Send frames to a party, in one packet or as many as the broker demands."""
        client = self._client
        if client is None or not client.is_connected:
            return
        route = Route(self._run, self._me, receiver)
        most = client.max_payload - SEAL_OVERHEAD
        for packet in _packets(route, frames, most):
            if len(packet) > most:
                self._dropped.drop(
                    self._me,
                    f"an envelope of {len(packet):,} bytes is more than the broker takes; raise "
                    "its `max_payload`",
                )
                continue
            sealed = bytes(self._box(receiver).encrypt(packet, entropy.draw(Box.NONCE_SIZE)))
            await self._send_sealed(client, receiver, sealed)

    async def _send_sealed(self, client: TlsClient, receiver: int, sealed: bytes) -> None:
        delays = [0.0]
        if self._faults is not None:
            delays = self._faults.delays(self._me, receiver, time.monotonic())
        for delay in delays:
            if delay:
                loop = asyncio.get_running_loop()
                loop.call_later(delay, self._publish_later, receiver, sealed)
            else:
                await self._publish(client, receiver, sealed)

    def _publish_later(self, receiver: int, sealed: bytes) -> None:
        client = self._client
        if client is not None and self._keeping is not None and not self._keeping.done():
            task = asyncio.ensure_future(self._publish(client, receiver, sealed))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def _publish(self, client: TlsClient, receiver: int, sealed: bytes) -> None:
        if not client.is_connected or client.pending_data_size + len(sealed) > MOST_PENDING:
            return
        self.count.add_sent(len(sealed))
        try:
            await client.publish(subject(receiver, self._me), sealed)
        except (Error, OSError):
            return  # the connection is lost

    def _box(self, other: int) -> Box:
        return seal_box(self._identity, self._directory, other)

    async def _keep_connected(self) -> None:
        """Connect, and connect again whenever the connection has ended."""
        wait = SHORTEST_WAIT
        said = ""
        while not self._leaving:
            closed = asyncio.Event()
            try:
                client = await self._connect(closed)
            except (Error, OSError, TimeoutError, LumosError) as error:
                line = f"no connection to the broker ({one_line(error) or type(error).__name__})"
                if line != said:
                    self._log(f"{line}; trying again")
                    said = line
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            if said:
                self._log("connected to the broker")
            said, wait = "", SHORTEST_WAIT
            try:
                self._client = client
                self._waking.set()
                while not (closed.is_set() or self._leaving) and await _answers(client, closed):
                    pass
            finally:
                self._client = None
                await asyncio.shield(_closed(client))

    async def _connect(self, closed: asyncio.Event) -> TlsClient:
        async def on_closed() -> None:
            closed.set()

        async def on_error(error: Exception) -> None:
            """Nothing: the connection ends, or goes on."""

        async with asyncio.timeout(2 * CONNECT_SECONDS):
            client = await connect(
                self._identity,
                self._address,
                allow_reconnect=False,
                connect_timeout=CONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                pending_size=2 * MOST_PENDING,
                closed_cb=on_closed,
                error_cb=on_error,
            )
            await client.subscribe(own_subjects(self._me), cb=self._receive)
            await client.flush()
            return client

    async def _receive(self, message: Msg) -> None:
        """Take a packet, or drop it."""
        sender = self._names.get(message.subject.rpartition(".")[2])
        sealed = message.data
        self.count.add_received(len(sealed))
        if sender is None or sender == self._me:
            self._dropped.drop(None, "a packet of a party that is not in the directory")
            return
        if not PADDING <= len(sealed) - SEAL_OVERHEAD <= LARGEST:
            self._dropped.drop(sender, "a packet has a size that no packet has")
            return
        try:
            packet = self._box(sender).decrypt(sealed)
            frames = decode(Route(self._run, sender, self._me), packet)
        except CryptoError:
            self._dropped.drop(sender, "a packet is not sealed by its sender for this party")
        except LumosError as error:
            self._dropped.drop(sender, str(error))
        else:
            self._arrived.append((sender, frames))
            self._waking.set()


async def _answers(client: TlsClient, closed: asyncio.Event) -> bool:
    """Whether the broker still answers, asked after a while.

    nats-py does not always say that a connection has ended: then a party would wait for ever.
    """
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await closed.wait()
    except TimeoutError:
        pass
    if closed.is_set() or not client.is_connected:
        return False
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.flush()
    except (Error, OSError, TimeoutError):
        return False
    return True


async def _closed(client: TlsClient) -> None:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.close()
    except (Error, OSError, TimeoutError):
        return


def _packets(route: Route, frames: list[Frame], most: int) -> list[bytes]:
    """Frames in packets of at most so many bytes each, as far as single frames allow."""
    packet = encode(route, frames)
    if len(packet) <= most or len(frames) == 1:
        return [packet]
    middle = len(frames) // 2
    return [*_packets(route, frames[:middle], most), *_packets(route, frames[middle:], most)]

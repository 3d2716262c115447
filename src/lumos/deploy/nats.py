"""A participant's link to the others: packets, sealed, over the broker.

The link reconnects to the broker for ever, with bounded waits. While there is no connection nothing
is queued, since mailboxes repeat what is not acknowledged. Whatever arrives and is not a packet of
this run from its sender to this participant is dropped and logged, at a limited rate.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Set
from pathlib import Path
from typing import Any

import numpy as np
from nacl.exceptions import CryptoError
from nacl.public import Box

from lumos.crypto import entropy
from lumos.deploy.identity import (
    Directory,
    Identity,
    described,
    own_subjects,
    participant_name,
    subject,
)
from lumos.deploy.protocol.frames import LARGEST, PADDING, Frame, Route, decode, encode
from lumos.device.shard import COORDINATOR
from lumos.errors import LumosError, UsageError
from lumos.storage import one_line
from lumos.typing import Ints

try:
    from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv
    from nats.aio.msg import Msg
    from nats.aio.transport import TcpTransport
    from nats.errors import ConnectionClosedError, Error
except ImportError:
    raise UsageError(
        "real devices need nats-py; type: pip install -e '.[devices]' in the clone"
    ) from None

PAUSE = 10.0
"""Seconds between two lines about one sender."""


class DropLog:
    """A log of dropped packets and the reasons, at most one line per sender in `PAUSE` seconds.

    Args:
        log: called with a line.
        clock: the time, in seconds.
    """

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._log, self._clock = log, clock
        self._next: dict[int | None, float] = {}
        self._unlogged: dict[int | None, int] = {}
        self.total = 0
        """Packets that were dropped."""

    def drop(self, sender: int | None, why: str) -> None:
        """Count a dropped packet, and log it.

        Args:
            sender: None where it is nobody of the directory.
            why: in a few words, without anything of the packet.
        """
        self.total += 1
        now = self._clock()
        if now < self._next.get(sender, float("-inf")):
            self._unlogged[sender] = self._unlogged.get(sender, 0) + 1
            return
        self._next[sender] = now + PAUSE
        more = self._unlogged.pop(sender, 0)
        name = "somebody" if sender is None else described(sender)
        self._log(f"{name}: {why}; dropped" + (f" (and {more:,} before)" if more else ""))


WIRE_COUNT = "wire.count"


class WireCount:
    """Packet counts in a file that is mapped into memory: a process that is killed loses nothing.

    Sealed packets are counted with their padding; what NATS and TLS add to them is not.

    Args:
        folder: of the participant; None to count in memory only.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._counts: Ints
        if folder is None:
            self._counts = np.zeros(4, np.int64)
            return
        path = folder / WIRE_COUNT
        there = path.exists() and path.stat().st_size == 32
        self._counts = np.memmap(path, np.int64, "r+" if there else "w+", shape=(4,))

    def add_sent(self, size: int) -> None:
        """Count a packet that was sent."""
        self._counts[0] += 1
        self._counts[1] += size

    def add_received(self, size: int) -> None:
        """Count a packet that was received."""
        self._counts[2] += 1
        self._counts[3] += size

    def totals(self) -> dict[str, int]:
        """Return all counts by name."""
        names = ("packets_sent", "bytes_sent", "packets_received", "bytes_received")
        return dict(zip(names, self._counts.tolist(), strict=True))


# nats-py does not inform asyncio that a stream is under TLS; every end of one would log a warning.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in str(record.msg))

CLOSE_SECONDS = 5.0
"""Seconds that closing a failed connection may take."""


class NoTls(Error):
    """The broker does not use TLS. As an error of the client, a reconnecting one tries again."""

    def __str__(self) -> str:
        return "the broker does not use TLS; it is refused"


class _Transport(TcpTransport):
    """After a TLS handshake that failed, asyncio never says that the stream is closed.

    The client of nats-py would wait for that without end, also when it connects again.
    """

    _failed = False

    async def connect_tls(self, *arguments: Any, **options: Any) -> None:
        try:
            await super().connect_tls(*arguments, **options)
        except BaseException:
            self._failed = True  # and asyncio has closed the socket
            raise

    async def connect(self, *arguments: Any, **options: Any) -> None:
        self._failed = False
        await super().connect(*arguments, **options)

    async def wait_closed(self) -> None:
        if not self._failed:
            await super().wait_closed()  # type: ignore[no-untyped-call]

    def writelines(self, payload: Iterable[bytes]) -> None:
        """Write everything at once: asyncio would make a TLS record of each."""
        self.write(b"".join(payload))  # type: ignore[no-untyped-call]


class TlsClient(Client):
    """A NATS client that never speaks in the clear.

    The protocol begins in the clear, with a line in which the server says whether it wants TLS.
    The client of nats-py believes it: whoever answers without wanting TLS would get everything in
    the clear, and would not have to show a certificate.
    """

    guarded = False
    """True once the first line of a server was checked."""
    take: Callable[[str, bytes], None] | None = None
    """Called with subject and body of each message, in place of callbacks of subscriptions: these
    have a queue and a task each, which cost more than a message does here."""

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        if self.take is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            self.take(subject.decode("ascii", "replace"), data)

    async def flush(self, timeout: int = 10) -> None:
        """Wait until the broker has processed everything that was sent.

        In nats-py a ping can overtake a subscription that is still pending; the second one cannot.
        """
        await super().flush(timeout)
        await super().flush(timeout)

    async def _connect_to_server(self, s: Srv) -> None:
        s.last_attempt = time.monotonic()
        if not isinstance(self._transport, _Transport):
            self._transport = _Transport()  # type: ignore[no-untyped-call]
        await self._transport.connect(
            s.uri,
            buffer_size=DEFAULT_BUFFER_SIZE,
            connect_timeout=self.options["connect_timeout"],
        )

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and not info.get("tls_required"):
            raise NoTls
        self.guarded = True
        await super()._process_info(info, initial_connection)


async def connect(identity: Identity, address: str, **options: Any) -> TlsClient:
    """Connect a participant to the broker.

    Args:
        identity: who connects.
        address: of the broker, as `tls://host:port`; its certificate must be for this host.
        options: as `nats.connect` takes them. With `allow_reconnect=False`, the first failure is
            raised; otherwise the client tries again.

    Raises:
        NoTls: the broker does not use TLS.
        ssl.SSLError: the broker's certificate is refused, or the broker refuses ours.
        nats.errors.Error: the broker refuses the participant.
    """
    client = TlsClient()
    try:
        await client.connect(address, tls=identity.tls(), **options)
        if not client.guarded:  # a release of nats-py that reads the first line elsewhere
            raise UsageError("this version of nats-py is not supported; install nats-py 2.16")
        if not client.is_connected:  # nats-py takes the end of a stream for an answer
            raise ConnectionClosedError
    except BaseException:
        with contextlib.suppress(Exception):
            # nats-py leaves the socket of a failed attempt open, and may wait for its end for ever.
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()
        raise
    return client


Packet = tuple[int, list[Frame]]
"""(sender, frames)."""
MIN_WAIT, MAX_WAIT = 0.05, 2.0
"""Seconds between two attempts to connect; waits double."""
CONNECT_SECONDS = 10.0
PING_SECONDS = 5.0
"""Seconds between two pings; a broker that does not answer two of them in a row is given up."""
PROBE_SECONDS = 5.0
"""Seconds between two checks that the broker answers."""
MAX_PENDING = LARGEST
"""Bytes that may wait for a slow broker; what comes then is dropped."""
SEAL_OVERHEAD = Box.NONCE_SIZE + 16

# nats-py logs a traceback of every failure; the link says what happened in one line.
logging.getLogger("nats").addHandler(logging.NullHandler())
logging.getLogger("nats").propagate = False


class NatsLink:
    """The link of one participant, inside an asynchronous `with`.

    Args:
        identity: who it is.
        directory: everybody's keys.
        run: tag of the run.
        address: of the broker.
        log: called with a line, without anything private.
        count: of bytes.
    """

    def __init__(
        self,
        identity: Identity,
        directory: Directory,
        run: bytes,
        address: str,
        log: Callable[[str], None],
        count: WireCount | None = None,
    ) -> None:
        self._identity, self._directory = identity, directory
        self._run, self._address, self._log = run, address, log
        self._me = identity.participant
        self._names = {
            participant_name(participant): participant for participant in directory.participants
        }
        self._client: TlsClient | None = None
        self._arrived: list[Packet] = []
        self._waking: asyncio.Future[None] | None = None
        """While it waits."""
        self._woken = False
        self._awaited: set[int] = set()
        """Those of whom something has to come before it goes on."""
        self._dropped = DropLog(log, time.monotonic)
        self._keeping: asyncio.Task[None] | None = None
        self._leaving = False
        """Before Python 3.12 `asyncio.wait_for` loses a cancellation that comes with its result."""
        self.count = count or WireCount()

    async def __aenter__(self) -> "NatsLink":
        self._keeping = asyncio.create_task(self._keep_connected())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leaving = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    @property
    def connected(self) -> bool:
        """True while there is a connection to the broker."""
        return self._client is not None and self._client.is_connected

    def wake(self) -> None:
        """End a `wait`."""
        self._woken = True
        if self._waking is not None and not self._waking.done():
            self._waking.set_result(None)

    async def wait(self, seconds: float, awaited: Set[int] = frozenset()) -> None:
        """Wait until something has arrived or `wake` is called, at most `seconds`.

        Args:
            awaited: nothing follows from what has arrived before something of all of these has, or
                something of the coordinator; none: any packet matters.
        """
        senders = {sender for sender, _ in self._arrived}
        self._awaited = set(awaited - senders)
        ready = COORDINATOR in senders or (senders and not self._awaited)
        if self._woken or ready or seconds <= 0:
            await asyncio.sleep(0)  # whatever is there comes along
        else:
            loop = asyncio.get_running_loop()
            self._waking = loop.create_future()
            timer = loop.call_later(seconds, self.wake)
            try:
                await self._waking
            finally:
                timer.cancel()
                self._waking = None
        self._woken = False

    def take(self) -> list[Packet]:
        """Return all packets received since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived

    async def send(self, receiver: int, frames: list[Frame]) -> None:
        """Send frames to a participant, in one packet or as many as the broker demands."""
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
            sealed = bytes(
                self._identity.box(self._directory, receiver).encrypt(
                    packet, entropy.draw(Box.NONCE_SIZE)
                )
            )
            await self._publish(client, receiver, sealed)

    async def _publish(self, client: TlsClient, receiver: int, sealed: bytes) -> None:
        if not client.is_connected or client.pending_data_size + len(sealed) > MAX_PENDING:
            return
        self.count.add_sent(len(sealed))
        try:
            await client.publish(subject(receiver, self._me), sealed)
        except (Error, OSError):
            return  # the connection is lost

    async def _keep_connected(self) -> None:
        """Connect, and connect again whenever the connection has ended."""
        wait = MIN_WAIT
        logged = ""
        while not self._leaving:
            closed = asyncio.Event()
            try:
                client = await self._connect(closed)
            except (Error, OSError, TimeoutError, LumosError) as error:
                line = f"no connection to the broker ({one_line(error) or type(error).__name__})"
                if line != logged:
                    self._log(f"{line}; trying again")
                    logged = line
                await asyncio.sleep(wait)
                wait = min(2 * wait, MAX_WAIT)
                continue
            if logged:
                self._log("connected to the broker")
            logged, wait = "", MIN_WAIT
            try:
                self._client = client
                self.wake()
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
                pending_size=2 * MAX_PENDING,
                closed_cb=on_closed,
                error_cb=on_error,
            )
            client.take = self._receive
            await client.subscribe(own_subjects(self._me), cb=_ignore)
            await client.flush()
            return client

    def _receive(self, of: str, sealed: bytes) -> None:
        """Take a packet on a subject, or drop it."""
        sender = self._names.get(of.rpartition(".")[2])
        self.count.add_received(len(sealed))
        if sender is None or sender == self._me:
            self._dropped.drop(None, "a packet of a participant that is not in the directory")
            return
        if not PADDING <= len(sealed) - SEAL_OVERHEAD <= LARGEST:
            self._dropped.drop(sender, f"invalid packet size: {len(sealed):,} bytes")
            return
        try:
            packet = self._identity.box(self._directory, sender).decrypt(sealed)
            frames = decode(Route(self._run, sender, self._me), packet)
        except CryptoError:
            self._dropped.drop(sender, "a packet is not sealed by its sender for this participant")
        except LumosError as error:
            self._dropped.drop(sender, str(error))
        else:
            self._arrived.append((sender, frames))
            self._awaited.discard(sender)
            if not self._awaited or sender == COORDINATOR:
                self.wake()


async def _ignore(_message: Msg) -> None:
    """Do nothing: `TlsClient.take` has the message."""


async def _answers(client: TlsClient, closed: asyncio.Event) -> bool:
    """Wait a while, and return whether the broker still answers.

    nats-py does not always say that a connection has ended: then a participant would wait for ever.
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
    """Split frames into packets of at most `most` bytes each, as far as single frames allow."""
    packet = encode(route, frames)
    if len(packet) <= most or len(frames) == 1:
        return [packet]
    middle = len(frames) // 2
    return [*_packets(route, frames[:middle], most), *_packets(route, frames[middle:], most)]

"""A participant's link to the others: packets, sealed, over the broker.

The link reconnects to the broker for ever, with bounded waits. While there is no connection nothing
is queued, since mailboxes repeat what is not acknowledged. Whatever arrives and is not a packet of
this run from its sender to this participant is dropped and logged, at a limited rate.
"""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from urllib.parse import urlsplit

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
from lumos.errors import BrokerFailed, LumosError
from lumos.storage import one_line

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
        counts = np.zeros(4, np.int64)
        if folder is not None:
            path = folder / WIRE_COUNT
            there = path.exists() and path.stat().st_size == counts.nbytes
            counts = np.memmap(path, np.int64, "r+" if there else "w+", shape=(4,))
        self._counts = counts.data

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


CONNECT_SECONDS = 10.0
MAX_LINE = 1 << 16
"""Bytes of one line of the broker."""
MAX_DIGITS = 12
"""Digits of the size of a message."""
READ_BYTES = 1 << 14
"""Those of the largest record of TLS."""
READS = 64
"""Records that are read before others have their turn."""


class NoTls(BrokerFailed):
    """The broker does not use TLS."""

    def __init__(self) -> None:
        super().__init__("the broker does not use TLS; it is refused")


class BrokerClient:
    """A connection to the broker: what participants need of the protocol of NATS.

    Bytes go from the TLS socket to `take` and back, without streams or tasks in between: these cost
    more than a packet does otherwise. `connect` makes one.

    Args:
        stream: under TLS; it does not block.
        info: what the broker said of itself.
        take: called with subject and body of each message.
    """

    def __init__(
        self, stream: ssl.SSLSocket, info: bytes, take: Callable[[str, bytes], None]
    ) -> None:
        self._stream, self._take = stream, take
        self.max_payload = _max_payload(info)
        self._loop = asyncio.get_running_loop()
        self._read = bytearray()
        """The part of a line or message that has arrived so far."""
        self._unsent = bytearray()
        self._is_flushing = False
        self._pongs: list[asyncio.Future[None]] = []
        self._error = ""
        self.closed = self._loop.create_future()
        """Has a result once the connection has ended."""
        self._loop.add_reader(stream, self._readable)

    @property
    def is_connected(self) -> bool:
        """True until the connection ends."""
        return not self.closed.done()

    @property
    def pending_data_size(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._unsent)

    def publish(self, to: str, body: bytes) -> None:
        """Send a message, together with others that are sent before the loop goes on."""
        self._write(b"PUB %s %d\r\n%b\r\n" % (to.encode(), len(body), body))

    def subscribe(self, subjects: str) -> None:
        """Take all messages on some subjects."""
        self._write(b"SUB %s 1\r\n" % subjects.encode())

    async def answers(self, seconds: float) -> bool:
        """Return whether the broker has processed everything that was sent, within `seconds`."""
        if not self.is_connected:
            return False
        self._pongs.append(pong := self._loop.create_future())
        self._write(b"PING\r\n")
        await asyncio.wait([pong, self.closed], timeout=seconds, return_when="FIRST_COMPLETED")
        return pong.done() and self.is_connected

    async def wait_for_room(self, size: int, seconds: float) -> None:
        """Wait until at most `size` bytes wait to be sent, or the time is over."""
        end = self._loop.time() + seconds
        while self.pending_data_size > size and self.is_connected and self._loop.time() < end:
            await asyncio.sleep(FULL_POLL)

    async def begin(self, options: Mapping[str, object]) -> None:
        """Introduce the client, and wait until the broker has taken it.

        Raises:
            BrokerFailed: the broker refuses it.
        """
        self._write(b"CONNECT %b\r\n" % json.dumps(options).encode())
        if not await self.answers(CONNECT_SECONDS):
            raise BrokerFailed(self._error or "the broker closes the connection")

    def close(self) -> None:
        """End the connection, after what can still be sent."""
        if self.is_connected:
            self._flush()
        if self.is_connected:
            self._end()

    def _write(self, data: bytes) -> None:
        self._unsent += data
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what waits, as far as the socket takes it; the rest once it takes more."""
        if not self.is_connected:
            return
        self._is_flushing = False
        try:
            while self._unsent:
                del self._unsent[: self._stream.send(self._unsent)]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if not self._is_flushing:
                self._is_flushing = True
                self._loop.add_writer(self._stream, self._flush)
            return
        except OSError:
            self._end()
            return
        self._loop.remove_writer(self._stream)

    def _readable(self) -> None:
        """Read what is there: all of it, since the system does not know what TLS still holds."""
        try:
            for _ in range(READS):
                data = self._stream.recv(READ_BYTES)
                if not data:
                    raise BrokerFailed("the broker has closed the connection")
                self._read += data
                self._parse()
            self._loop.call_soon(self._readable)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (OSError, BrokerFailed):
            self._end()

    def _parse(self) -> None:
        """Handle all lines and messages that have arrived as a whole."""
        read, at = self._read, 0
        while (end := read.find(b"\r\n", at)) >= 0:
            line, after = bytes(read[at:end]), end + 2
            if line.startswith(b"MSG "):
                words = line.split()
                if len(words) < 4 or not words[-1].isdigit() or len(words[-1]) > MAX_DIGITS:
                    raise BrokerFailed("the broker sends a message without its size")
                body, after = after, after + int(words[-1]) + 2
                if after > len(read):
                    break
                self._take(words[1].decode("ascii", "replace"), bytes(read[body : after - 2]))
            else:
                self._obey(line)
            at = after
        del read[:at]
        if len(read) > MAX_LINE + 2 * LARGEST or (end < 0 and len(read) > MAX_LINE):
            raise BrokerFailed("the broker sends a line without an end")

    def _obey(self, line: bytes) -> None:
        """Handle a line that is no message."""
        if line == b"PING":
            self._write(b"PONG\r\n")
        elif line == b"PONG" and self._pongs:
            _done(self._pongs.pop(0))
        elif line.startswith(b"INFO "):
            self.max_payload = _max_payload(line)
        elif line.startswith(b"-ERR"):
            self._error = one_line(line[4:].decode("ascii", "replace").strip(" '"))

    def _end(self) -> None:
        if not self.is_connected:
            return
        _done(self.closed)
        self._loop.remove_reader(self._stream)
        self._loop.remove_writer(self._stream)
        self._stream.close()


def _max_payload(info: bytes) -> int:
    try:
        return int(json.loads(info[5:])["max_payload"])
    except (ValueError, KeyError, TypeError):
        raise BrokerFailed("there is no broker at this address") from None


async def connect(
    identity: Identity, address: str, take: Callable[[str, bytes], None]
) -> BrokerClient:
    """Connect a participant to the broker.

    The protocol begins in the clear, with a line in which the server says whether it wants TLS.
    A server that does not want it gets nothing from this participant.

    Args:
        identity: who connects.
        address: of the broker, as `tls://host:port`; its certificate must be for this host.
        take: called with subject and body of each message.

    Raises:
        NoTls: the broker does not use TLS.
        BrokerFailed: it refuses the participant, or is no broker.
        OSError: there is nobody; or as `ssl.SSLError`, one of the certificates is refused.
        TimeoutError: it does not answer.
    """
    place = urlsplit(address)
    async with asyncio.timeout(CONNECT_SECONDS):
        plain = await _connected(place.hostname or "", place.port or 0)
        try:
            info = await _first_line(plain)
            stream = identity.tls().wrap_socket(
                plain, server_hostname=place.hostname, do_handshake_on_connect=False
            )
        except BaseException:
            plain.close()
            raise
        try:
            await _shake_hands(stream)
            client = BrokerClient(stream, info, take)
        except BaseException:
            stream.close()
            raise
    options = {"verbose": False, "pedantic": False, "tls_required": True, "lang": "python"}
    try:
        await client.begin(options)
    except BaseException:
        client.close()
        raise
    return client


async def _connected(host: str, port: int) -> socket.socket:
    """Return a socket connected to the first address that answers."""
    loop, failure = asyncio.get_running_loop(), OSError(f"{host}: no such host")
    try:  # without a thread, where nothing is to be resolved
        places = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, place in places:
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        try:
            await loop.sock_connect(made, place)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
        except OSError as error:
            failure = error
            made.close()
        except BaseException:
            made.close()
            raise
    raise failure


async def _first_line(plain: socket.socket) -> bytes:
    """Return the line in which the server describes itself."""
    line = b""
    while not line.endswith(b"\r\n"):
        read = await asyncio.get_running_loop().sock_recv(plain, MAX_LINE)
        line += read
        if not read or len(line) > MAX_LINE:
            raise BrokerFailed("there is no broker at this address")
    _max_payload(line)
    if not line.startswith(b"INFO ") or not json.loads(line[5:]).get("tls_required"):
        raise NoTls
    return line


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _shake_hands(stream: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()
        try:
            stream.do_handshake()
            return
        except ssl.SSLWantReadError:
            watch, forget = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            watch, forget = loop.add_writer, loop.remove_writer
        watch(stream, _done, ready)
        try:
            await ready
        finally:
            forget(stream)


Packet = tuple[int, list[Frame]]
"""(sender, frames)."""
MIN_WAIT, MAX_WAIT = 0.05, 2.0
"""Seconds between two attempts to connect; waits double."""
PROBE_SECONDS = 5.0
"""Seconds between two checks that the broker answers."""
MAX_PENDING = LARGEST
"""Bytes that may wait for a slow broker; what comes then is dropped."""
FULL, FULL_SECONDS, FULL_POLL = 4 << 20, 1.0, 0.001
"""Waiting bytes above which a participant sends no more, how long at most, and time between checks,
in seconds."""
SEAL_OVERHEAD = Box.NONCE_SIZE + 16


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
        self._client: BrokerClient | None = None
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
        if self._waking is not None:
            _done(self._waking)

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
        if client.pending_data_size > FULL:
            await client.wait_for_room(FULL, FULL_SECONDS)
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
            self._publish(client, receiver, sealed)

    def _publish(self, client: BrokerClient, receiver: int, sealed: bytes) -> None:
        if not client.is_connected or client.pending_data_size + len(sealed) > MAX_PENDING:
            return
        self.count.add_sent(len(sealed))
        client.publish(subject(receiver, self._me), sealed)

    async def _keep_connected(self) -> None:
        """Connect, and connect again whenever the connection has ended."""
        wait = MIN_WAIT
        logged = ""
        while not self._leaving:
            try:
                client = await self._connect()
            except (OSError, TimeoutError, LumosError) as error:
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
                while not self._leaving and await _answers(client):
                    pass
            finally:
                self._client = None
                client.close()

    async def _connect(self) -> BrokerClient:
        client = await connect(self._identity, self._address, self._receive)
        client.subscribe(own_subjects(self._me))
        if not await client.answers(CONNECT_SECONDS):
            client.close()
            raise BrokerFailed("the broker closes the connection")
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


async def _answers(client: BrokerClient) -> bool:
    """Wait a while, and return whether the broker still answers.

    The system does not always say that a connection has ended: a participant would wait for ever.
    """
    await asyncio.wait([client.closed], timeout=PROBE_SECONDS)
    return await client.answers(CONNECT_SECONDS)


def _packets(route: Route, frames: list[Frame], most: int) -> list[bytes]:
    """Split frames into packets of at most `most` bytes each, as far as single frames allow."""
    packet = encode(route, frames)
    if len(packet) <= most or len(frames) == 1:
        return [packet]
    middle = len(frames) // 2
    return [*_packets(route, frames[:middle], most), *_packets(route, frames[middle:], most)]

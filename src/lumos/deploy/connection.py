"""A party's connection to the broker, which is TLS or none."""

import asyncio
import contextlib
import logging
import time
from typing import Any

from lumos.deploy.identity import Identity
from lumos.errors import UsageError

try:
    from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv
    from nats.aio.transport import TcpTransport
    from nats.errors import ConnectionClosedError, Error
except ImportError:
    raise UsageError("real devices need nats-py; type: pip install 'lumos[devices]'") from None


# nats-py does not tell asyncio that a stream is under TLS; every end of one would log a warning.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in str(record.msg))

CLOSE_SECONDS = 5.0
"""How long the end of a failed attempt may take."""


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


class TlsClient(Client):
    """A NATS client that never speaks in the clear.

    The protocol begins in the clear, with a line in which the server says whether it wants TLS.
    The client of nats-py believes it: whoever answers without wanting TLS would get everything in
    the clear, and would not have to show a certificate.
    """

    guarded = False
    """Whether the first line of a server was checked."""

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
    """Connect a party to the broker.

    Args:
        identity: who connects.
        address: of the broker, as `tls://host:port`; its certificate must be for this host.
        options: as `nats.connect` takes them. With `allow_reconnect=False`, the first failure is
            raised; otherwise the client tries again.

    Raises:
        NoTls: the broker does not use TLS.
        ssl.SSLError: the broker's certificate is refused, or the broker refuses ours.
        nats.errors.Error: the broker refuses the party.
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

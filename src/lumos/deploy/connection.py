"""A party's connection to the broker, which is TLS or none."""

import logging
from typing import Any

from lumos.deploy.identity import Identity
from lumos.errors import UsageError

try:
    from nats.aio.client import Client
    from nats.errors import Error
except ImportError:
    raise UsageError("real devices need nats-py; type: pip install 'lumos[devices]'") from None


# nats-py does not tell asyncio that a stream is under TLS; every end of one would log a warning.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in str(record.msg))


class NoTls(Error):
    """The broker does not use TLS. As an error of the client, a reconnecting one tries again."""

    def __str__(self) -> str:
        return "the broker does not use TLS; it is refused"


class TlsClient(Client):
    """A NATS client that never speaks in the clear.

    The protocol begins in the clear, with a line in which the server says whether it wants TLS.
    The client of nats-py believes it: whoever answers without wanting TLS would get everything in
    the clear, and would not have to show a certificate.
    """

    guarded = False
    """Whether the first line of a server was checked."""

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
    except BaseException:
        await client.close()  # nats-py leaves the socket of a failed attempt open
        raise
    return client

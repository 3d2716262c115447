"""What tests of a real broker share: clients as they should be, and as they should not."""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from lumos.deploy.broker import Broker
from lumos.deploy.identity import Identity, Validity
from lumos.errors import BrokerFailed

REFUSED = (OSError, Error, asyncio.TimeoutError, BrokerFailed)
"""What a client sees that a broker turns away, depending on when it does."""
NOW = datetime.now(UTC).replace(microsecond=0)
OVER = Validity(NOW - timedelta(hours=2), NOW - timedelta(hours=1))
SERVER = Path(os.environ["LUMOS_TEST_NATS"]) if "LUMOS_TEST_NATS" in os.environ else None
"""Another nats-server to test with."""


class Errors(list[str]):
    """Collects what the broker complains about."""

    async def add(self, error: Exception) -> None:
        self.append(str(error).lower())


class FlushedClient(Client):
    """A client whose `flush` is over when the broker has processed everything before it."""

    async def flush(self, timeout: int = 10) -> None:
        """Wait; a ping can overtake a subscription that is still pending, the second one cannot."""
        await super().flush(timeout)
        await super().flush(timeout)


@asynccontextmanager
async def joined(
    folder: Path, broker: Broker, **options: Any
) -> AsyncIterator[tuple[Client, Errors]]:
    """A client inside, and what the broker complains about."""
    errors = Errors()
    once = {"allow_reconnect": False, "error_cb": errors.add, **options}
    client = FlushedClient()
    await client.connect(broker.address, tls=Identity.load(folder).tls(), **once)
    try:
        yield client, errors
    finally:
        await client.close()


def tls(authority: Path, folder: Path | None = None) -> ssl.SSLContext:
    """A context without any of the checks that `Identity` makes before."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    if folder is not None:
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


def turned_away(broker: Broker, context: ssl.SSLContext, reason: str, **options: Any) -> None:
    """The broker refuses a client, and logs this reason."""
    before = broker.log.read_text().count(reason)

    async def knock() -> None:
        once = {"allow_reconnect": False, "error_cb": Errors().add, **options}
        client = await nats.connect(broker.address, tls=context, **once)
        try:
            await client.flush()
        finally:
            await client.close()

    with pytest.raises(REFUSED):
        asyncio.run(knock())
    until(lambda: broker.log.read_text().count(reason) > before)


async def receive(subscription: Any) -> Msg:
    message: Msg = await subscription.next_msg(timeout=120)
    return message


async def complaints(errors: Errors, count: int) -> None:
    """Wait until the broker has complained so often."""
    for _ in range(6000):
        if len(errors) >= count:
            break
        await asyncio.sleep(0.02)
    assert len(errors) == count


def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)

"""What the broker lets a participant do, with a real server and real TLS."""

import asyncio
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
from nats.errors import MaxPayloadError
from tests.deploy.participants import (
    REFUSED,
    SERVER,
    complaints,
    joined,
    receive,
    tls,
    turned_away,
    until,
)

from lumos.deploy.broker import Broker, BrokerSettings, broker_config, write_broker_config
from lumos.deploy.identity import (
    Directory,
    Identity,
    own_subjects,
    participant_of,
    subject,
    user_name,
)
from lumos.deploy.nats import NoTls, connect
from lumos.deploy.pki import FederationAuthority, make_federation
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, UsageError


def test_names() -> None:
    assert subject(17, COORDINATOR) == "to.17.c"
    assert own_subjects(COORDINATOR) == "to.c.*"
    for participant in (COORDINATOR, 0, 17, 10**17):
        assert participant_of(user_name(participant)) == participant
    for unknown in (
        "lumos://device/01",
        "lumos://device/-1",
        "lumos://device/1/",
        "lumos://broker",
    ):
        assert participant_of(unknown) is None


def test_participants_send_and_receive_under_their_own_names(pki: Path, broker: Broker) -> None:
    async def talk() -> None:
        async with (
            joined(pki / "device-1", broker) as (one, errors),
            joined(pki / "coordinator", broker) as (coordinator, _),
        ):
            inbox = await coordinator.subscribe(own_subjects(COORDINATOR))
            own = await one.subscribe(own_subjects(1))
            await coordinator.flush()
            await one.publish(subject(COORDINATOR, 1), b"up")
            message = await receive(inbox)
            assert (message.subject, message.data) == ("to.c.1", b"up")
            await coordinator.publish(subject(1, COORDINATOR), b"down")
            assert (await receive(own)).data == b"down"
            assert errors == []

    asyncio.run(talk())


@pytest.mark.parametrize("name", ["to.0.2", "to.0.c", "to.0", "to.0.1.1", "$SYS.REQ.X", "x"])
def test_publishing_under_another_name_is_refused(pki: Path, broker: Broker, name: str) -> None:
    async def forge() -> None:
        async with (
            joined(pki / "device-0", broker) as (zero, _),
            joined(pki / "device-1", broker) as (mallory, errors),
        ):
            inbox = await zero.subscribe(own_subjects(0))
            await zero.flush()
            await mallory.publish(name, b"forged")
            await mallory.publish("to.0.1", b"honest")  # arrives after all that was sent before
            message = await receive(inbox)
            assert (message.subject, message.data) == ("to.0.1", b"honest")
            assert inbox.pending_msgs == 0
            await complaints(errors, 1)
            assert f'permissions violation for publish to "{name.lower()}"' in errors[0]

    asyncio.run(forge())


@pytest.mark.parametrize("name", ["to.0.*", "to.*.*", "to.0.1", "to.>", ">", "*.0.*", "$SYS.>"])
def test_subscribing_to_anothers_subject_is_refused(pki: Path, broker: Broker, name: str) -> None:
    async def listen() -> None:
        async with (
            joined(pki / "device-2", broker) as (two, _),
            joined(pki / "device-1", broker) as (mallory, errors),
        ):
            spying = await mallory.subscribe(name)
            inbox = await mallory.subscribe(own_subjects(1))
            await mallory.flush()
            await complaints(errors, 1)
            assert "permissions violation for subscription" in errors[0]
            await two.publish("to.0.2", b"private")
            await two.publish("to.1.2", b"for mallory")  # arrives after all that was sent before
            assert (await receive(inbox)).data == b"for mallory"
            assert spying.pending_msgs == inbox.pending_msgs == 0

    asyncio.run(listen())


def test_a_user_name_beside_the_certificate_changes_nothing(pki: Path, broker: Broker) -> None:
    async def pretend() -> None:
        pretence = {"user": user_name(0), "password": ""}
        async with (
            joined(pki / "device-2", broker) as (two, _),
            joined(pki / "device-1", broker, **pretence) as (mallory, errors),
        ):
            inbox = await two.subscribe(own_subjects(2))
            await two.flush()
            await mallory.publish("to.2.0", b"forged")
            await mallory.publish("to.2.1", b"honest")
            assert (await receive(inbox)).subject == "to.2.1"
            await complaints(errors, 1)

    asyncio.run(pretend())


def test_no_certificate_is_refused(pki: Path, broker: Broker) -> None:
    turned_away(broker, tls(pki / "authority.pem"), "didn't provide a certificate")


def test_a_user_name_instead_of_a_certificate_is_refused(pki: Path, broker: Broker) -> None:
    context = tls(pki / "authority.pem")
    turned_away(broker, context, "didn't provide a certificate", user=user_name(1), password="")


def test_a_certificate_of_another_authority_is_refused(
    pki: Path, broker: Broker, tmp_path: Path
) -> None:
    other = make_federation(tmp_path / "other", 2).folder
    # The same participant, and a broker's certificate that it would trust: only the broker can
    # refuse.
    turned_away(broker, tls(pki / "authority.pem", other / "device-1"), "unknown authority")


def test_an_expired_certificate_is_refused(pki: Path, broker: Broker) -> None:
    turned_away(broker, tls(pki / "authority.pem", pki / "device-9"), "has expired")


def test_the_certificate_of_the_broker_is_no_participants(pki: Path, broker: Broker) -> None:
    turned_away(broker, tls(pki / "authority.pem", pki / "broker"), "incompatible key usage")


def test_tls_below_1_3_is_refused(pki: Path, broker: Broker) -> None:
    context = tls(pki / "authority.pem", pki / "device-1")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    turned_away(broker, context, "TLS handshake error")


def test_who_was_issued_or_replaced_counts_after_a_reload(
    authority: FederationAuthority, pki: Path, broker: Broker, tmp_path: Path
) -> None:
    stale = tmp_path / "stale"
    shutil.copytree(pki / "device-2", stale)
    authority.issue([2, 7])
    with pytest.raises(REFUSED):
        asyncio.run(_come_and_go(pki / "device-7", broker))
    write_broker_config(pki, pki.parent / "nats.conf")
    broker.reload()
    until(lambda: "Reloaded server configuration" in broker.log.read_text())
    for name in ("device-0", "device-2", "device-7"):
        asyncio.run(_come_and_go(pki / name, broker))
    with pytest.raises(REFUSED):
        asyncio.run(_come_and_go(stale, broker))


async def _come_and_go(folder: Path, broker: Broker) -> None:
    (await connect(Identity.load(folder), broker.address, ignored)).close()


def test_the_largest_message_is_announced(pki: Path, tmp_path: Path) -> None:
    config = tmp_path / "small.conf"
    write_broker_config(pki, config, BrokerSettings(max_payload=1000))

    async def shout(broker: Broker) -> None:
        async with joined(pki / "device-0", broker) as (client, _):
            assert client.max_payload == 1000
            await client.publish("to.1.0", bytes(1000))
            with pytest.raises(MaxPayloadError):
                await client.publish("to.1.0", bytes(1001))

    with Broker(config, tmp_path, server=SERVER) as broker:
        asyncio.run(shout(broker))


def test_messages_of_all_may_wait_for_one(pki: Path) -> None:
    identity = Identity.load(pki / "device-0")
    directory = Directory.load(pki / "directory.json", identity.authority)
    many = len(directory.participants)

    def waits(payload: int) -> int:
        text = broker_config(directory, pki / "broker", BrokerSettings(max_payload=payload))
        (line,) = (line for line in text.splitlines() if line.startswith("max_pending"))
        return int(line.split()[1])

    assert waits(1000) == 64 << 20
    assert waits(64 << 20) == min(2 * many * (64 << 20), 1 << 30)


def ignored(_subject: str, _body: bytes) -> None:
    """Take a message."""


@pytest.mark.parametrize("whose", ["device-1", "other"])
def test_a_participant_refuses_a_broker_that_is_none(pki: Path, tmp_path: Path, whose: str) -> None:
    """A device that plays the broker, and the broker of another authority."""
    other = make_federation(tmp_path / "other", 1).folder
    folder = other / "broker" if whose == "other" else pki / whose
    identity = Identity.load(pki / "device-0")
    directory = Directory.load(pki / "directory.json", identity.authority)
    config = tmp_path / "impostor.conf"
    config.write_text(broker_config(directory, folder))
    with (
        Broker(config, tmp_path, server=SERVER) as impostor,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        asyncio.run(connect(identity, impostor.address, ignored))


def test_a_participant_says_nothing_in_the_clear(pki: Path) -> None:
    """Whoever answers without TLS hears not a byte."""
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576}\r\n'
        writer.write(info)
        received.append(await reader.read())
        writer.close()

    async def meet() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NoTls, match="does not use TLS"):
            await connect(Identity.load(pki / "device-0"), f"tls://127.0.0.1:{port}", ignored)
        server.close()
        await asyncio.wait_for(server.wait_closed(), 10)

    asyncio.run(meet())
    assert b"".join(received) == b""


def test_settings_and_folders_that_cannot_be(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [{"port": 0}, {"port": 70_000}, {"max_payload": 0}]
    for wrong in settings:
        with pytest.raises(UsageError, match="must be"):
            BrokerSettings(**wrong)
    authority = FederationAuthority.create(tmp_path / "pki")
    with pytest.raises(UsageError, match="the broker has no certificate"):
        write_broker_config(tmp_path / "pki", tmp_path / "nats.conf")
    authority.issue_broker()
    with pytest.raises(UsageError, match="no participant has a certificate"):
        write_broker_config(tmp_path / "pki", tmp_path / "nats.conf")
    authority.issue([0])
    (tmp_path / "pki/broker/key.pem").chmod(0o644)
    with pytest.raises(InputError, match="others may read this private key"):
        write_broker_config(tmp_path / "pki", tmp_path / "nats.conf")
    (tmp_path / "pki/broker/key.pem").chmod(0o600)
    (tmp_path / "pki").rename(tmp_path / "a\nb")
    with pytest.raises(UsageError, match="cannot hold"):
        write_broker_config(tmp_path / "a\nb", tmp_path / "nats.conf")
    assert not (tmp_path / "nats.conf").exists()


def test_a_folder_with_any_name_is_written_so_that_the_server_reads_it(tmp_path: Path) -> None:
    pki = tmp_path / 'päth "with" \\ and $HOME'
    make_federation(pki, 1)
    config = tmp_path / "nats.conf"
    write_broker_config(pki, config)
    with Broker(config, tmp_path / "run", server=SERVER) as broker:
        asyncio.run(_come_and_go(pki / "device-0", broker))

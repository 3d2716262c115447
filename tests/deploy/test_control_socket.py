"""Devices that stay after the training, and answer their owner."""

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.processes import Processes, laid_out

from lumos.cli.main import run
from lumos.deploy.nats import WIRE_COUNT
from lumos.deploy.protocol.job import ANSWERS_WITH
from lumos.deploy.questions import ANSWERING, ANSWERS, NAME, ask_device
from lumos.deploy.state import (
    ATTEMPTS,
    OPENINGS,
    RESULT,
    ROUNDS,
    SECRET,
    SNAPSHOT,
    read_snapshot,
    write_snapshot,
)
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, UsageError
from lumos.storage import read_json
from lumos.strict.link.levels import BOTH

SECONDS = 120.0


def staying(folder: Path, graph: str, **settings: object) -> Iterator[Processes]:
    """A federation whose training is over."""
    layout = laid_out(graph, folder / ("f" * 90))  # longer than the path of a socket may be
    with Processes(layout, dict(settings), stay=True) as participants:
        participants.start_all()
        participants.until(lambda: COORDINATOR not in participants.children, SECONDS)
        yield participants


@pytest.fixture(scope="module")
def classifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("staying")
    yield from staying(folder, "demo:12", encoder_epochs=2, propagated_labels=1, epochs=8)


def test_a_device_says_its_own_label(
    classifying: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = classifying.layout.device(3)
    row = ask_device(folder, {"ask": "label"})
    believed = read_json(folder / RESULT)["prediction"]
    assert row["device"] == 3
    assert row["probability"] == max(believed)
    assert run(["predict", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [row]
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ({"ask": "link", "device": 4}, "where `task='link'` was trained"),
        ({"ask": "neighbours"}, "this is no question"),
        ({"device": 4}, "this is no question"),
    ],
)
def test_anything_else_is_refused_and_ends_nothing(
    classifying: Processes, question: dict[str, object], line: str
) -> None:
    folder = classifying.layout.device(3)
    with pytest.raises(UsageError, match=line):
        ask_device(folder, question)
    assert ask_device(folder, {"ask": "label"})["device"] == 3


def test_a_device_that_is_gone_and_comes_back(classifying: Processes) -> None:
    folder = classifying.layout.device(5)
    answer = ask_device(folder, {"ask": "label"})
    classifying.kill(5)
    with pytest.raises(InputError, match="no device runs here"):
        ask_device(folder, {"ask": "label"})
    start_again(classifying, 5)
    assert ask_device(folder, {"ask": "label"}) == answer
    with pytest.raises(UsageError, match="where `task='link'` was trained"):
        ask_device(folder, {"ask": "link", "device": 4})
    os.kill(classifying.children[5], signal.SIGTERM)
    classifying.until(lambda: 5 in classifying.statuses, SECONDS)
    assert classifying.statuses[5] == 0
    assert of_the_run(folder) == set()


def test_a_device_that_stays_has_deleted_what_the_run_needed(classifying: Processes) -> None:
    assert of_the_run(classifying.layout.device(3)) == set()


def of_the_run(folder: Path) -> set[str]:
    """Files that a device needs for the training only."""
    of_run = {SECRET, SNAPSHOT, OPENINGS, ROUNDS, ATTEMPTS, WIRE_COUNT}
    return of_run & {file.name for file in folder.iterdir()}


def start_again(participants: Processes, device: int) -> None:
    """Start a device after the training, and wait until it answers."""
    line = f"device {device}: the training is over; the device is back"
    before = participants.lines().count(line)
    participants.start(device)
    participants.until(lambda: participants.lines().count(line) > before, SECONDS)


@pytest.mark.long  # in virtual time: test_pair_questions
def test_links_are_scored_by_two_processes(tmp_path: Path) -> None:
    """So few devices learn nothing from scores; both say so by their degrees."""
    for participants in staying(tmp_path, "demo:12", task="link", embedding=2, epochs=8):
        folder = participants.layout.device(3)
        row = ask_device(folder, {"ask": "link", "device": 5})
        assert row["device"] == 5
        assert 0 < row["probability"] < 1
        with pytest.raises(UsageError, match="no other device 3 to ask"):
            ask_device(folder, {"ask": "link", "device": 3})
        with pytest.raises(UsageError, match="no classes"):
            ask_device(folder, {"ask": "label"})
        restarted_devices_score_their_pair(participants)


def restarted_devices_score_their_pair(participants: Processes) -> None:
    """Killed after the training, without a coordinator; by this reading they ask each other."""
    evidence = np.array([-1.5, -0.25, 0.5, 2.0])
    for device in (3, 5):
        participants.kill(device)
        file = participants.layout.device(device) / ANSWERING
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        kept = read_snapshot(file, "") or {}
        kept |= {
            f"{ANSWERS_WITH}levels/way": np.array(BOTH),
            f"{ANSWERS_WITH}levels/evidence": evidence,
        }
        write_snapshot(file, kept)
        start_again(participants, device)
    folder, other = participants.layout.device(3), participants.layout.device(5)
    first = ask_device(folder, {"ask": "link", "device": 5})
    assert first["answered"]
    participants.kill(3)
    start_again(participants, 3)
    assert ask_device(folder, {"ask": "link", "device": 5}) == first
    participants.kill(3)  # from here on the other end has nobody to ask
    assert ask_device(other, {"ask": "link", "device": 3})["answered"]
    content = bytearray((folder / ANSWERS).read_bytes())
    content[-1] ^= 1
    (folder / ANSWERS).write_bytes(content)
    participants.start(3)
    participants.until(lambda: 3 in participants.statuses, SECONDS)
    assert participants.statuses[3] == InputError.exit_status
    assert "answers.log: record 3 is damaged" in participants.lines()

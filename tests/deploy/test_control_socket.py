"""Devices that stay after the training, and answer their owner."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.processes import Processes, laid_out

from lumos.cli.main import run
from lumos.deploy.control_socket import NAME, ask_device
from lumos.deploy.device_folder import RESULT
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, UsageError
from lumos.storage import read_json

SECONDS = 120.0


def staying(folder: Path, graph: str, **settings: object) -> Iterator[Processes]:
    """A federation whose training is over."""
    layout = laid_out(graph, folder / ("f" * 90))  # longer than the path of a socket may be
    with Processes(layout, dict(settings), stay=True) as parties:
        parties.start_all()
        parties.until(lambda: COORDINATOR not in parties.children, SECONDS)
        yield parties


@pytest.fixture(scope="module")
def classifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("staying")
    yield from staying(folder, "demo:12", encoder_epochs=2, opinions=1, epochs=8)


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


def test_a_device_that_is_gone(classifying: Processes) -> None:
    folder = classifying.layout.device(5)
    classifying.kill(5)
    with pytest.raises(InputError, match="no device runs here"):
        ask_device(folder, {"ask": "label"})


def test_links_are_scored_by_two_processes(tmp_path: Path) -> None:
    """So few devices learn nothing from scores; both say so by their degrees."""
    for parties in staying(tmp_path, "demo:12", task="link", embedding=2, word_buckets=8, epochs=8):
        folder = parties.layout.device(3)
        row = ask_device(folder, {"ask": "link", "device": 5})
        assert row["device"] == 5
        assert 0 < row["probability"] < 1
        with pytest.raises(UsageError, match="no other device 3 to ask"):
            ask_device(folder, {"ask": "link", "device": 3})
        with pytest.raises(UsageError, match="no classes"):
            ask_device(folder, {"ask": "label"})

"""Ctrl-C: exit status 130 and one line, from every command, worker processes or not."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NoReturn

import pytest

from lumos.cli.main import run
from lumos.deploy.broker import start_command
from lumos.deploy.local_federation import LocalFederation

pytestmark = pytest.mark.usefixtures("must_end")


@pytest.mark.parametrize(
    ("pulled", "arguments"),
    [
        ("lumos.cli.trees.balance", ["trees", "demo:60"]),
        ("lumos.baselines.measure.baseline", ["baseline", "own", "demo:60"]),
        ("lumos.audit.run_audit", ["audit", "demo:60"]),
        ("lumos.runs.load.load_run", ["predict", "nowhere"]),
        ("lumos.runs.load.load_run", ["report", "nowhere"]),
        ("lumos.cli.data.load", ["data", "check", "demo"]),
        ("lumos.cli.budget.make_mechanism", ["budget"]),
    ],
)
def test_every_command(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    pulled: str,
    arguments: list[str],
) -> None:
    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(pulled, interrupt)
    assert run(arguments) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "lumos: interrupted\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_lumos_up_removes_its_folder_and_ends_what_it_started(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here processes that do nothing; tests/deploy/test_processes.py has those of a run."""
    started: list[subprocess.Popen[bytes]] = []

    def start(_command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        started.append(start_command(["/bin/sleep", "600"], output))
        return started[-1]

    def is_running(_federation: LocalFederation) -> bool:
        assert [path.name[:9] for path in tmp_path.iterdir()] == ["lumos-up-"]
        signal.raise_signal(how)
        return True

    monkeypatch.setattr("lumos.deploy.local_federation.start_command", start)
    monkeypatch.setattr(LocalFederation, "is_running", is_running)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        status = run(["up", "demo:5"])
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    assert status == 128 + how
    assert [process.returncode for process in started] == [-signal.SIGTERM] * 2
    assert list(tmp_path.iterdir()) == []


def test_while_worker_processes_compare() -> None:
    """As a terminal does it: the signal goes to every process of the group."""
    arguments = ["trees", "demo:1000", "--balancer", "mcmc", "--workers", "2"]
    # A shell that runs us in the background has told its children to ignore the keyboard.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "import lumos.twoparty.workers as w; made = w.make_pool; "
    program += "w.make_pool = lambda count: (made(count), print('made', flush=True))[0]; "
    program += "import lumos.trees.balance as b; b.make_pool = w.make_pool; "
    program += f"from lumos.cli.main import main; main({arguments!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"  # they have only just been started
        time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1] == "lumos: interrupted"


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lumos", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip()
    failed = subprocess.run(
        [sys.executable, "-m", "lumos", "train"], capture_output=True, text=True
    )
    assert failed.returncode == 2
    assert failed.stderr.startswith("lumos: ")

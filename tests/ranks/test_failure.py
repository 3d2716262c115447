"""Ranks that are killed, stopped or fail in the middle of a real run, and what becomes of it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import lumos
from lumos.ranks.status import read_status

GRAPH = "demo:60"
SETTINGS = ["--epochs", "60", "--encoder-epochs", "20", "--checkpoint-every", "10"]
PAPER = ["--profile", "paper", "--balancer", "mcmc", "--iterations", "60", "--compare", "ideal"]
PAPER += ["--epochs", "3", "--checkpoint-every", "1"]


STANDING = re.compile(r" in (the checkpoint of )?epoch \d+, round \d+")
"""A signal may arrive a little after the phase that it was sent in."""


class Ended(NamedTuple):
    status: int
    lines: list[str]
    """On standard error, without progress."""
    left: list[int]
    """Processes that still run."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    lumos.train(GRAPH, out=folder, epochs=60, encoder_epochs=20, checkpoint_every=10)
    return folder


def train(out: Path, *more: str, signal_number: int = 0, phase: str = "", rank: int = 1) -> Ended:
    """Train over ranks; send a signal to one of them as soon as it is in the phase."""
    options = [] if "paper" in more else SETTINGS
    ranks = [] if "--ranks" in more else ["--ranks", "2"]
    command = [sys.executable, "-m", "lumos", "train", GRAPH, "--out", str(out), *options]
    with (
        tempfile.TemporaryDirectory() as notes,
        subprocess.Popen(
            [*command, *ranks, "--rank-timeout", "4", *more],
            env={**os.environ, "TMPDIR": notes},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as run,
    ):
        sent = not signal_number
        while not sent and run.poll() is None:
            for note in Path(notes).glob(f"lumos-ranks-*/{rank}"):
                if note.stat().st_size and read_status(note).phase.startswith(phase):
                    os.kill(child_of(run.pid, rank), signal_number)
                    sent = True
            time.sleep(0.001)
        errors = run.communicate()[1]
        assert sent
    said = [line for line in errors.splitlines() if line.startswith("lumos:")]
    return Ended(run.returncode, said, processes_with(str(out)))


def child_of(parent: int, rank: int) -> int:
    """The process of a rank."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            above = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if above == parent and f"\0RANK={rank}\0" in (folder / "environ").read_text():
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError("there is no such rank")


def processes_with(word: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                word.encode() in (folder / "cmdline").read_bytes()
                and int(folder.name) != os.getpid()
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def same_run(one: Path, other: Path) -> None:
    alone, together = lumos.load_run(one), lumos.load_run(other)
    assert alone.scores == together.scores
    for name, weights in alone.model.weights.items():
        assert np.array_equal(weights, together.model.weights[name]), name
    assert alone.ledger.totals() == together.ledger.totals()
    assert [event.loss for event in alone.history] == [event.loss for event in together.history]


@pytest.mark.parametrize(
    ("signal_number", "word", "phase", "rank"),
    [
        (signal.SIGSTOP, "stopped (SIGSTOP)", "epoch 2", 1),
        (signal.SIGKILL, "killed (SIGKILL)", "the checkpoint", 0),
    ],
)
def test_a_lost_rank_ends_the_run_and_can_be_made_up_for(
    undisturbed: Path, tmp_path: Path, signal_number: int, word: str, phase: str, rank: int
) -> None:
    out = tmp_path / "run"
    ended = train(out, signal_number=signal_number, phase=phase, rank=rank)
    assert (ended.status, ended.left) == (1, [])
    (line,) = ended.lines
    assert line.startswith(f"lumos: rank {rank} was {word} in ")
    assert STANDING.search(line)
    ranks = "3" if signal_number == signal.SIGSTOP else "1"
    again = train(out, "--resume", "--ranks", ranks)
    assert again.status == 0
    same_run(undisturbed, out)


def test_restarts_give_the_undisturbed_run(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ended = train(out, "--max-restarts", "1", signal_number=signal.SIGKILL, phase="epoch 3")
    assert (ended.status, ended.left) == (0, [])
    (line,) = ended.lines
    assert line.startswith("lumos: rank 1 was killed (SIGKILL) in ")
    assert STANDING.search(line)
    assert line.endswith("; starting all ranks again from the last checkpoint (1 of 1)")
    same_run(undisturbed, out)


def test_a_rank_that_is_killed_in_trees(tmp_path: Path) -> None:
    ended = train(tmp_path / "run", *PAPER, signal_number=signal.SIGKILL, phase="trees")
    assert (ended.status, ended.left) == (1, [])
    (line,) = ended.lines
    assert line.startswith("lumos: rank 1 was killed (SIGKILL) in trees, round ")


SLOW = """
import os, sys, time
from lumos.runs.folder import RunFolder
real, fails = RunFolder.save_checkpoint, sys.argv.pop(1)
def save_checkpoint(self, arrays):
    time.sleep(3)
    real(self, arrays)
    if fails == "fails":
        raise OSError(28, "No space left on device", "checkpoint.npz")
RunFolder.save_checkpoint = save_checkpoint
from lumos.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("how", ["succeeds", "fails"])
def test_others_wait_while_rank_0_writes(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """For longer than they wait in a round; and they hear of it if that fails."""
    from lumos.ranks.supervisor import Supervisor

    words = ["train", GRAPH, "--epochs", "9", "--encoder-epochs", "2", "--out", str(tmp_path / "o")]
    words += ["--rank-timeout", "2", "--checkpoint-every", "5"]
    end = Supervisor([sys.executable, "-c", SLOW, how, *words], 2).run()
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("lumos:")]
    if how == "succeeds":
        assert (end, said) == ((0, ""), [])
    else:
        assert (end, len(said)) == ((1, ""), 1)
        assert said[0].startswith("lumos: rank 0 failed in the checkpoint of epoch 5, round ")
        assert said[0].endswith(": checkpoint.npz: No space left on device")


FAULTY = """
import os, sys
import lumos.strict.own_classifier as module
real, calls = module.Encoder.update, []
def update(self, *, each):
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 5:
        raise ValueError("a label of device 7 is 3")
    return real(self, each=each)
module.Encoder.update = update
from lumos.cli.main import main
main(sys.argv[1:])
"""


def test_a_rank_whose_program_raises_says_so_for_all(capfd: pytest.CaptureFixture[str]) -> None:
    """One line with rank, phase and round; the text of the error, which may tell, is not in it."""
    from lumos.ranks.supervisor import Supervisor

    end = Supervisor([sys.executable, "-c", FAULTY, "train", GRAPH, *SETTINGS[:4]], 2).run()
    assert (end.status, end.line) == (1, "")
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("lumos:")]
    assert len(said) == 1
    assert said[0].startswith("lumos: rank 1 failed in epoch 6, round ")
    assert "ValueError in " in said[0]
    assert "device 7" not in said[0]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--ranks", "0"], "--ranks must be 1 or more, got 0"),
        (["--max-restarts", "1"], "--max-restarts starts ranks again; it needs --ranks"),
        (["--ranks", "2", "--max-restarts", "1"], "--max-restarts needs --out"),
        (["--ranks", "2", "--shards", "3"], "a rank hosts one shard"),
        (["--ranks", "2", "--seeds", "2"], "--ranks are of one run; leave out --seeds"),
        (["--rank-timeout", "0"], "--rank-timeout must be above 0 seconds, got 0"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from lumos.cli.main import run

    assert run(["train", GRAPH, *words]) == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "words", "line"),
    [
        ("0 1", ["--ranks", "2"], "--ranks starts ranks, and this process is one already"),
        ("0 1", ["--seeds", "2"], "--ranks are of one run; leave out --seeds"),
        ("0 1", [], "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: the environment does not have"),
        ("x 1", [], "or unset RANK for a run in one process"),
        ("2 2", [], "or unset RANK for a run in one process"),
    ],
)
def test_an_environment_that_says_this_is_a_rank(
    place: str,
    words: list[str],
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By accident, or under torchrun."""
    from lumos.cli.main import run

    for name, value in zip(("RANK", "WORLD_SIZE"), place.split(), strict=True):
        monkeypatch.setenv(name, value)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert run(["train", GRAPH, *words]) == 2
    assert line in capsys.readouterr().err


def test_options_of_the_supervisor_are_not_handed_on() -> None:
    from lumos.cli.ranks import OWN, without

    words = "train g --ranks 2 --max_restarts 1 --max-restarts=3 --max_restarts=3 --seed 2"
    assert without(words.split(), OWN) == ["train", "g", "--seed", "2"]


def test_ranks_that_are_out_of_step_know_it_all() -> None:
    """So that one of them speaks, not each."""
    from lumos.errors import ProtocolError
    from lumos.ranks.world import World

    world = World(1, 3)
    heads = np.zeros((3, 31), np.int64)
    heads[2, 1] = 5
    with pytest.raises(ProtocolError, match="rank 2 is elsewhere"):
        world._check(heads, "a topic")
    assert world.fail() == [0, 1, 2]


DIFFERENT = """
import os, sys
from lumos.cli.main import main
main([*sys.argv[1:], "--seed", os.environ["RANK"]])
"""


def test_ranks_that_were_started_for_different_runs(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing is written."""
    from lumos.ranks.supervisor import Supervisor

    words = ["train", GRAPH, *SETTINGS[:4], "--out", str(tmp_path / "run")]
    end = Supervisor([sys.executable, "-c", DIFFERENT, *words], 2).run()
    assert end == (2, "")
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("lumos:")]
    assert len(said) == 1
    assert "ranks differ in graph, seed, settings" in said[0]
    assert not (tmp_path / "run").exists()

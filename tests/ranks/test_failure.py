"""Ranks that are killed, stopped or fail in the middle of a real run, and what becomes of it."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.ranks.forked import Ended, run_python, run_ranks
from tests.ranks.sabotage import both, signal_in_phase, signal_while_writing

import lumos
from lumos.errors import ProtocolError, RankLost
from lumos.ranks.supervisor import read_status
from lumos.ranks.world import PATIENCE, World

GRAPH = "demo:60"
SETTINGS = ["--epochs", "20", "--encoder-epochs", "6", "--checkpoint-every", "4"]
STANDING = re.compile(r" in (the checkpoint of )?epoch \d+, round \d+")


def train(out: Path, *more: str, before: partial[None] | None = None) -> Ended:
    """Train over ranks, of which one is sabotaged before it starts."""
    words = ["-m", "lumos", "train", GRAPH, "--out", str(out), *SETTINGS, *more]
    return run_python(words, before)


def same_run(one: Path, other: Path) -> None:
    alone, together = lumos.load_run(one), lumos.load_run(other)
    assert alone.scores == together.scores
    for name, weights in alone.model.weights.items():
        assert np.array_equal(weights, together.model.weights[name]), name
    assert alone.ledger.totals() == together.ledger.totals()
    assert [event.loss for event in alone.history] == [event.loss for event in together.history]


def test_ranks_that_are_killed_and_stopped_give_the_undisturbed_run(tmp_path: Path) -> None:
    """Also if one is killed while it writes a checkpoint: the one before it is whole, and any
    number of ranks goes on from it."""
    alone, out = tmp_path / "alone", tmp_path / "run"
    lumos.train(GRAPH, out=alone, epochs=20, encoder_epochs=6, checkpoint_every=4)
    stopped = partial(signal_in_phase, signal.SIGSTOP, 1, "epoch 10")
    writing = partial(signal_while_writing, signal.SIGKILL, 0, "checkpoint.npz", attempt=1)
    sabotage = partial(both, stopped, writing)
    ended = train(out, "--ranks", "2", "--max-restarts", "1", before=sabotage)
    assert (ended.status, ended.left) == (1, [])
    line, last = ended.reported
    assert line.startswith("lumos: rank 1 was stopped (SIGSTOP) in epoch 10, round ")
    assert line.endswith("; starting all ranks again from the last checkpoint (1 of 1)")
    assert last.startswith("lumos: rank 0 was killed (SIGKILL) in the checkpoint of epoch ")
    assert STANDING.search(line)
    assert STANDING.search(last)
    assert {path.name for path in out.rglob("checkpoint.npz*")} > {"checkpoint.npz"}

    kill = partial(signal_in_phase, signal.SIGKILL, 1, "epoch 14", attempt=1)
    ended = train(out, "--resume", "--ranks", "3", before=kill)
    assert (ended.status, ended.left) == (1, [])
    (line,) = ended.reported
    assert line.startswith("lumos: rank 1 was killed (SIGKILL) in epoch 14, round ")
    assert train(out, "--resume", "--ranks", "1").status == 0
    same_run(alone, out)


def test_a_rank_that_is_killed_in_trees(tmp_path: Path) -> None:
    """From outside, and all of them started as people start them."""
    words = ["train", GRAPH, "--profile", "paper", "--balancer", "mcmc", "--iterations", "40000"]
    words += ["--compare", "ideal", "--epochs", "3", "--out", str(tmp_path / "run"), "--ranks", "2"]
    notes = tmp_path / "notes"
    notes.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "lumos", *words],
        env={**os.environ, "TMPDIR": str(notes)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        phase = ""
        while phase != "trees" and run.poll() is None:
            time.sleep(0.002)
            with suppress(FileNotFoundError):
                phase = next((read_status(note).phase for note in notes.glob("*/1")), "")
        assert phase == "trees"
        os.kill(child_of(run.pid, rank=1), signal.SIGKILL)
        errors = run.communicate()[1]
    assert (run.returncode, processes_with(str(tmp_path))) == (1, [])
    (line,) = [line for line in errors.splitlines() if line.startswith("lumos:")]
    assert line.startswith("lumos: rank 1 was killed (SIGKILL) in trees, round ")


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
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


WAITING = """
import os, sys, time
from pathlib import Path
from lumos.ranks.world import World
from lumos.runs.folder import RunFolder
real_save, real_wait, fails, note = (
    RunFolder.save_checkpoint, World.wait_for_first, sys.argv.pop(1), Path(sys.argv.pop(1))
)
def wait_for_first(self):
    if not self.first and self.status.phase.startswith("the checkpoint"):
        note.touch()
    real_wait(self)
def save_checkpoint(self, arrays):
    while not note.exists():
        time.sleep(0.01)
    real_save(self, arrays)
    if fails == "fails":
        raise OSError(28, "No space left on device", "checkpoint.npz")
World.wait_for_first, RunFolder.save_checkpoint = wait_for_first, save_checkpoint
from lumos.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("how", [pytest.param("succeeds", marks=pytest.mark.long), "fails"])
def test_others_wait_while_rank_0_writes(how: str, tmp_path: Path) -> None:
    """It does not write before they wait, and not in a round; they hear of it if that fails."""
    words = ["train", GRAPH, "--epochs", "9", "--encoder-epochs", "2", "--out", str(tmp_path / "o")]
    note = str(tmp_path / "they wait")
    end, ended = run_ranks(["-c", WAITING, how, note, *words, "--checkpoint-every", "5"], 2)
    assert ended.left == []
    if how == "succeeds":
        assert (end, ended.reported) == ((0, ""), [])
    else:
        assert (end, len(ended.reported)) == ((1, ""), 1)
        assert ended.reported[0].startswith(
            "lumos: rank 0 failed in the checkpoint of epoch 5, round "
        )
        assert ended.reported[0].endswith(": checkpoint.npz: No space left on device")


def test_rank_0_is_waited_for_longer_than_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[list[str], float]] = []

    class Store:
        def set(self, key: str, value: str) -> None:
            waited.append(([key], 0.0))

        def wait(self, keys: list[str], timeout: timedelta) -> None:
            waited.append((keys, timeout.total_seconds()))
            raise RuntimeError("wait timeout after 150000ms")

    monkeypatch.setattr(World, "_store", lambda _world: Store())
    World(0, 2, 5.0).wait_for_first()
    with pytest.raises(RankLost, match="no answer within 150 s"):
        World(1, 2, 5.0).wait_for_first()
    ((key, _), (awaited, seconds)) = waited
    assert (awaited, seconds) == (key, PATIENCE * 5.0)


FAULTY = """
import os, sys
import lumos.strict.classify.encoder as module
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


def test_a_rank_whose_program_raises_says_so_for_all() -> None:
    """One line with rank, phase and round; the text of the error, which may tell, is not in it."""
    end, ended = run_ranks(["-c", FAULTY, "train", GRAPH, *SETTINGS[:4]], 2)
    assert (end.status, end.line) == (1, "")
    assert ended.left == []
    (line,) = ended.reported
    assert line.startswith("lumos: rank 1 failed in epoch 9, round ")
    assert "ValueError in " in line
    assert "device 7" not in line


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
    from lumos.cli.train import OWN, without

    words = "train g --ranks 2 --max_restarts 1 --max-restarts=3 --max_restarts=3 --seed 2"
    assert without(words.split(), OWN) == ["train", "g", "--seed", "2"]


def test_ranks_that_are_out_of_step_know_it_all() -> None:
    """So that one of them speaks, not each."""
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


def test_ranks_that_were_started_for_different_runs(tmp_path: Path) -> None:
    """Nothing is written."""
    words = ["train", GRAPH, *SETTINGS[:4], "--out", str(tmp_path / "run")]
    end, ended = run_ranks(["-c", DIFFERENT, *words], 2)
    assert end == (2, "")
    (line,) = ended.reported
    assert "ranks differ in graph, seed, settings" in line
    assert not (tmp_path / "run").exists()

"""Ranks that are killed, stopped or fail in the middle of a real run, and what becomes of it."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.ranks.forked import Ended, run_ranks
from tests.ranks.sabotage import signal_in_phase, signal_while_writing

import lumos
from lumos.errors import ProtocolError, RankLost
from lumos.ranks.world import ANOTHER_FAILED, PATIENCE, World

GRAPH = "demo:60"
ROOT = Path(__file__).parents[2]
SETTINGS = ["--epochs", "20", "--encoder-epochs", "6", "--checkpoint-every", "4"]


def train(out: Path, ranks: int, *more: str, before: partial[None] | None = None) -> Ended:
    """Train over ranks, of which one is sabotaged before it starts."""
    words = ["-m", "lumos", "train", GRAPH, "--out", str(out), *SETTINGS, *more]
    return run_ranks(words, ranks, before)


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
    ended = train(out, 2, before=stopped)
    assert ended.statuses == [1, -signal.SIGKILL]
    (line,) = ended.reported
    assert line.startswith("lumos: rank 0 lost another rank in epoch 10, round ")
    assert "no answer within" in line

    writing = partial(signal_while_writing, signal.SIGKILL, 0, "checkpoint.npz", attempt=1)
    ended = train(out, 2, "--resume", before=writing)
    assert ended.statuses == [-signal.SIGKILL, 1]
    (line,) = ended.reported
    assert line.startswith("lumos: rank 1 lost another rank in ")
    assert {path.name for path in out.rglob("checkpoint.npz*")} > {"checkpoint.npz"}

    kill = partial(signal_in_phase, signal.SIGKILL, 1, "epoch 14", attempt=1)
    ended = train(out, 3, "--resume", before=kill)
    assert ended.statuses == [1, -signal.SIGKILL, 1]
    assert all(" lost another rank in epoch 14, round " in line for line in ended.reported)
    assert train(out, 1, "--resume").statuses == [0]
    same_run(alone, out)


def test_torchrun_starts_ranks_again_from_the_last_checkpoint(tmp_path: Path) -> None:
    """As people start them; rank 1 is killed in its first attempt."""
    alone, out = tmp_path / "alone", tmp_path / "run"
    lumos.train(GRAPH, out=alone, epochs=20, encoder_epochs=6, checkpoint_every=4)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "--max-restarts", "1", "-m", "tests.ranks.sabotage"]
    ended = subprocess.run(
        [*torchrun, "train", GRAPH, "--out", str(out), *SETTINGS],
        cwd=ROOT,
        env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "failed (exitcode: " in ended.stderr
    same_run(alone, out)


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
    ended = run_ranks(["-c", WAITING, how, note, *words, "--checkpoint-every", "5"], 2)
    if how == "succeeds":
        assert ended == ([0, 0], [])
    else:
        assert (ended.statuses, len(ended.reported)) == ([1, ANOTHER_FAILED], 1)
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
    ended = run_ranks(["-c", FAULTY, "train", GRAPH, *SETTINGS[:4]], 2)
    assert ended.statuses == [ANOTHER_FAILED, 1]
    (line,) = ended.reported
    assert line.startswith("lumos: rank 1 failed in epoch 9, round ")
    assert "ValueError in " in line
    assert "device 7" not in line


def test_a_timeout_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    from lumos.cli.main import run

    assert run(["train", GRAPH, "--rank-timeout", "0"]) == 2
    assert "--rank-timeout must be above 0 seconds, got 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "words", "line"),
    [
        ("0 1", ["--seeds", "2"], "ranks of torchrun are of one run; leave out --seeds"),
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
    ended = run_ranks(["-c", DIFFERENT, *words], 2)
    assert set(ended.statuses) <= {2, ANOTHER_FAILED}
    (line,) = ended.reported
    assert "ranks differ in graph, seed, settings" in line
    assert not (tmp_path / "run").exists()

"""The supervisor: every way in which a rank can end, with ranks that do nothing else."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lumos.ranks import supervisor
from lumos.ranks.supervisor import (
    ANOTHER_FAILED,
    LOST,
    STATUS_FILE,
    Status,
    Supervisor,
    empty_status,
    read_status,
)

PID = """
import os, signal, sys, time
from pathlib import Path
rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
def tell_pid():
    (folder / f"writing-{rank}").write_text(str(os.getpid()))
    (folder / f"writing-{rank}").rename(folder / f"pid-{rank}")  # whole from the first moment on
"""
RANK = (
    PID
    + """
note = Path(os.environ["LUMOS_RANK_STATUS"])
def stand(phase, round):
    note.write_bytes(round.to_bytes(8, "little") + phase.encode().ljust(56, b"\\0"))
    (folder / f"stands-{rank}").touch()
def meet():
    while len([*folder.glob("stands-*")]) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)
def state_of(other):
    pid = (folder / f"pid-{other}").read_text()
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
tell_pid()
first = "--resume" not in sys.argv
"""
)
"""What every rank does before its own lines."""


def supervised(folder: Path, lines: str, ranks: int = 2) -> Supervisor:
    return Supervisor([sys.executable, "-S", "-c", RANK + lines, str(folder)], ranks)


def alive(folder: Path) -> list[int]:
    """Ranks that still run; one that has ended may wait for somebody to ask how."""
    pids = [int(file.read_text()) for file in folder.glob("pid-*")]
    return [pid for pid in pids if runs(pid)]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_all_ranks_succeed(tmp_path: Path) -> None:
    lines = """
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "LUMOS_SUPERVISED")
Path(sys.argv[1], f"env-{rank}").write_text(" ".join(os.environ[name] for name in names))
"""
    end = supervised(tmp_path, lines, ranks=3).run()
    assert end == (0, "")
    assert [(tmp_path / f"env-{rank}").read_text() for rank in range(3)] == [
        f"{rank} {rank} 3 127.0.0.1 {os.getpid()}" for rank in range(3)
    ]
    assert alive(tmp_path) == []


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (
            "stand('epoch 7', 345)\nif rank: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
            "rank 1 was killed (SIGKILL) in epoch 7, round 345",
        ),
        (
            f"stand('trees', 12)\nmeet()\nif rank: time.sleep(60)\nsys.exit({LOST})",
            "rank 1 did not answer any more in trees, round 12",
        ),
        (
            "stand('setup', 2)\nmeet()\nif rank: os.kill(os.getpid(), signal.SIGSTOP)\n"
            f"while state_of(1) != 'T': time.sleep(0.01)\nsys.exit({LOST})",
            "rank 1 was stopped (SIGSTOP) in setup, round 2",
        ),
        (
            f"stand('setup', 2 + rank)\nmeet()\nsys.exit({LOST})",
            "ranks lost one another; rank 0 was in setup, round 2",
        ),
        (f"stand('setup', 2)\nmeet()\nsys.exit(1 if rank else {ANOTHER_FAILED})", ""),
    ],
    ids=["killed", "hanging", "stopped", "apart", "failed"],
)
def test_one_rank_ends_all(
    tmp_path: Path, lines: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if line.startswith(("rank 1 did not", "rank 1 was stopped")):  # it never ends by itself
        monkeypatch.setattr(supervisor, "_GRACE", 0.5)
    end = supervised(tmp_path, lines).run()
    assert (end.status, end.line) == (1, line)
    assert alive(tmp_path) == []


def test_a_killed_rank_is_named_before_one_that_only_lost_it(tmp_path: Path) -> None:
    """Rank 0 has ended with 1, as one that cannot join does; rank 1 was the cause."""
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    ranks = [supervisor._Rank(number, tmp_path / str(number)) for number in range(2)]
    for rank, line in zip(ranks, ("raise SystemExit(1)", kill), strict=True):
        rank.start([sys.executable, "-S", "-c", line], dict(os.environ))
        rank.process.wait()
    assert supervisor._blamed(ranks).line.startswith("rank 1 was killed (SIGKILL)")


def test_a_rank_that_computes_for_longer_than_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_GRACE", 1.0)
    lines = f"stand('setup', 4 - rank)\nmeet()\nwhile rank: pass\nsys.exit({LOST})"
    end = supervised(tmp_path, lines).run()
    assert end.status == 1
    assert end.line.startswith("rank 1 was still computing in setup, round 3, when others gave it")
    assert end.line.endswith("raise `rank_timeout`")
    assert alive(tmp_path) == []


def test_a_rank_that_never_leaves_does_not_hold_up_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is stopped while rank 0 writes the result."""
    monkeypatch.setattr(supervisor, "_LEAVING", 0.2)
    lines = "if rank: os.kill(os.getpid(), signal.SIGSTOP)"
    assert supervised(tmp_path, lines).run() == (0, "")
    assert alive(tmp_path) == []


def test_a_stopped_rank_for_which_others_wait_with_patience(tmp_path: Path) -> None:
    lines = "stand('the checkpoint', 3)\nif not rank: os.kill(os.getpid(), signal.SIGSTOP)\n"
    words = supervised(tmp_path, lines + "time.sleep(60)").command
    end = Supervisor(words, 2, timeout=0.3).run()
    assert end == (1, "rank 0 was stopped (SIGSTOP) in the checkpoint, round 3")
    assert alive(tmp_path) == []


def test_wrong_input_keeps_its_status(tmp_path: Path) -> None:
    reported: list[str] = []
    again = supervised(tmp_path, f"sys.exit({ANOTHER_FAILED} if rank else 2)")
    assert again.run_again(3, lambda: ["--resume"], reported.append) == (2, "")
    assert reported == []


def test_ranks_are_started_again(tmp_path: Path) -> None:
    lines = "stand('epoch 3', 9)\nif first and rank: os.kill(os.getpid(), signal.SIGKILL)"
    reported: list[str] = []
    end = supervised(tmp_path, lines).run_again(2, lambda: ["--resume"], reported.append)
    assert end.status == 0
    assert reported == [
        "rank 1 was killed (SIGKILL) in epoch 3, round 9; starting all ranks again from the last "
        "checkpoint (1 of 2)"
    ]


def test_restarts_come_to_an_end(tmp_path: Path) -> None:
    reported: list[str] = []
    lines = "if rank: os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)"
    end = supervised(tmp_path, lines).run_again(2, lambda: ["--resume"], reported.append)
    assert (end.status, len(reported)) == (1, 2)
    assert end.line == "rank 1 was killed (SIGTERM) in the beginning, round 0"


MEMBER = (
    PID
    + """
from lumos.ranks.world import end_with_supervisor
end_with_supervisor()
tell_pid()
time.sleep(60)
"""
)
SUPERVISING = """
import signal, sys
from lumos.ranks.supervisor import Supervisor
for number in (signal.SIGTERM, signal.SIGHUP):  # whoever started the tests may ignore them
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
Supervisor([sys.executable, *sys.argv[1:]], 2).run()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills children with their parent")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ranks_end_with_their_supervisor(tmp_path: Path, how: int) -> None:
    """However it ends; and with them its notes, unless it had no time to remove them."""
    for name, text in (("member.py", MEMBER), ("supervising.py", SUPERVISING)):
        (tmp_path / name).write_text(text)
    words = [str(tmp_path / "supervising.py"), str(tmp_path / "member.py"), str(tmp_path)]
    notes = tmp_path / "notes"
    notes.mkdir()
    environment = {**os.environ, "TMPDIR": str(notes)}
    with subprocess.Popen([sys.executable, *words], env=environment) as process:
        while process.poll() is None and len([*tmp_path.glob("pid-*")]) < 2:
            time.sleep(0.05)
        assert process.poll() is None
        process.send_signal(how)
    if how != signal.SIGKILL:
        assert [*notes.iterdir()] == []
    if how in (signal.SIGTERM, signal.SIGHUP):
        assert process.returncode == 128 + how
    for _ in range(200):
        if not alive(tmp_path):
            break
        time.sleep(0.05)
    assert alive(tmp_path) == []


def test_where_a_rank_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "0"
    empty_status(note)
    monkeypatch.setenv(STATUS_FILE, os.fspath(note))
    status = Status()
    status.phase = "epoch 12"
    for _ in range(5):
        status.advance()
    assert read_status(note) == status.standing == ("epoch 12", 5)
    assert str(read_status(note)) == "in epoch 12, round 5"
    status.phase = "a phase with a very long name, longer than there is room for in the note"
    assert read_status(note).phase == status.phase[:56]

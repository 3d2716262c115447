"""The command on the page repeats the run."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.run_files import page, result_of

import lumos
from lumos.cli.main import run as lumos_command
from lumos.report.sections import rerun_command

QUICK: dict[str, Any] = {
    "profile": "paper",
    "compare": "ideal",
    "iterations": 5,
    "epochs": 1,
    "floor": False,
}


def test_the_command_repeats_the_run(run: Path, tmp_path: Path) -> None:
    (code,) = page(run).all("pre")
    again = tmp_path / "again"
    if code.text().startswith("lumos.train('demo:60', "):  # with settings that are no options
        eval(code.text().replace("'DIR'", repr(str(again))), {"lumos": lumos})  # noqa: S307
    else:
        words = shlex.split(code.text())
        assert words[:3] == ["lumos", "train", "demo:60"]
        assert words[-2:] == ["--out", "DIR"]
        assert lumos_command([*words[1:-1], str(again)]) == 0
    one, other = (json.loads((f / "run.json").read_text()) for f in (run, again))
    assert one["settings"] == other["settings"]
    assert one["seed"] == other["seed"] == 3
    result, repeated = result_of(run), result_of(again)
    timed = {"seconds", "seconds_per_epoch", "peak_rss_mb", "ranks"}
    assert {k: v for k, v in result.items() if k not in timed} == {
        k: v for k, v in repeated.items() if k not in timed
    }


def test_a_name_stays_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a folder is called the same, for example that of an earlier run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo:60").mkdir()
    lumos.train("demo:60", out="run", **QUICK)
    command = rerun_command(lumos.load_run(tmp_path / "run"))
    assert command is not None
    assert shlex.split(command)[2] == "demo:60"


def test_a_graph_in_memory_has_no_command(tmp_path: Path) -> None:
    graph = lumos.load("demo:60")
    lumos.train(graph, out=tmp_path / "run", **QUICK)
    shown = page(tmp_path / "run")
    assert shown.all("pre") == []
    assert "with a graph in memory" in shown.text()


def test_options_for_reading_are_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ring = [[device, (device + 1) % 40] for device in range(40)]
    features = np.stack([np.arange(40) % 3, np.arange(40) / 20 - 1], axis=1)
    np.savez("g.npz", edges=ring, x=features, age=np.arange(40) / 4)
    chosen = ["--label-column", "age", "--label-bins", "2", "--categorical", "0"]
    chosen += ["--feature-bounds=-1,1"]
    quick = ["--profile", "paper", "--compare", "ideal", "--epochs", "1", "--no-floor"]
    quick += ["--iterations", "5"]
    assert lumos_command(["train", "g.npz", *chosen, *quick, "--out", "one"]) == 0
    command = rerun_command(lumos.load_run(tmp_path / "one"), "two")
    assert command is not None
    assert lumos_command(shlex.split(command)[1:]) == 0
    one, other = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("one", "two"))
    assert one["source"] == other["source"]
    assert one["source"]["feature_bounds"] == "-1,1"
    assert one["fingerprint"] == other["fingerprint"]
    assert one["notes"] == other["notes"]

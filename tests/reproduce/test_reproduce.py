"""`python -m reproduce` as people type it: all at once, again, broken, from committed results."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reproduce.__main__ import RESULTS, main
from reproduce.dense import DENSE_EPSILONS, DIMENSIONS
from reproduce.figures import FIGURES, runs_of
from reproduce.runs import CDF_POINTS, Run, Runs, cdf_points, read_results
from reproduce.settings import Settings, dataset_of

TREES = ["workload", "--graph", "demo:60", "--results", "none"]


def result_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_everything_small_and_again_from_what_was_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, kept = tmp_path / "out", tmp_path / "kept.json"
    words = ["--graph", "demo:60", "--quick", "--epochs", "1", "--profiles", "strict"]
    first = result_of(capsys, *words, "--out", str(out), "--keep", str(kept))
    assert (first["known"], first["failed"]) == (0, [])
    assert first["ran"] > 5
    assert {row["figure"] for row in first["rows"]} == {
        *("classification", "link-prediction", "workload", "cost")
    }
    page = (out / "report.html").read_text()
    assert "python -m reproduce --graph demo:60 --quick --epochs 1 --profiles strict" in page
    assert "no score is comparable" in (out / "tables.md").read_text()
    assert json.loads((out / "rows.json").read_text()) == first["rows"]
    again = result_of(capsys, *words, "--out", str(out))
    assert (again["ran"], again["known"]) == (0, first["ran"])
    other = tmp_path / "other"
    from_file = result_of(capsys, *words, "--out", str(other), "--results", str(kept))
    assert (from_file["ran"], from_file["committed"]) == (0, first["ran"])
    assert again["rows"] == from_file["rows"] == first["rows"]


@pytest.mark.real
def test_committed_results_are_those_of_the_full_form(data_dir: Path) -> None:
    """Settings, seeds and fingerprint of every run of Facebook give a key that is committed."""
    committed = read_results(sorted(RESULTS.glob("reproduce-*.json")))
    dataset = dataset_of("facebook", data_dir)
    runs = runs_of([*FIGURES], dataset, Settings(), ("paper", "strict"))
    assert len(runs) == 92 + 2 * len(DIMENSIONS) * len(DENSE_EPSILONS)
    assert all(run.key(dataset, package="") in committed for run in runs)


def test_a_run_that_fails_is_reported_and_tried_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Runs.trees

    def broken(runs: Runs, balancer: str) -> Run:
        if balancer != "mcmc":
            return real(runs, balancer)
        return Run("trees", runs.dataset.spec, 0, (("nonsense", 1),))

    monkeypatch.setattr(Runs, "trees", broken)
    out = tmp_path / "out"
    assert main([*TREES, "--out", str(out), "--json"]) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["ran"], len(summary["failed"])) == (3, 1)
    (row,) = [row for row in summary["rows"] if row["ours"] is None]
    assert "nonsense" in row["note"]
    assert "1 runs failed" in printed.err
    assert "nonsense" in (out / "report.html").read_text()
    monkeypatch.setattr(Runs, "trees", real)
    assert result_of(capsys, *TREES, "--out", str(out))["ran"] == 1


@pytest.mark.usefixtures("must_end")
def test_ctrl_c_ends_with_130_and_the_next_command_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = [*TREES, "--jobs", "1", "--out", str(out)]
    program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += f"from reproduce.__main__ import main; sys.exit(main({words!r}))"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    while not any(out.glob("results/*.json")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    if process.returncode == 130:  # it may have finished before the signal came
        assert errors.splitlines()[-1].startswith("reproduce: interrupted; the same command")
        assert "Traceback" not in errors
    else:
        assert process.returncode == 0
    known = len(list(out.glob("results/*.json")))
    found = result_of(capsys, *TREES, "--out", str(out))
    assert (found["known"], found["ran"]) == (known, 4 - known)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["figure-7"], "there is no figure 'figure-7'; there are classification"),
        (["--graph", "nowhere"], "no file, no folder and no known graph"),
        (["--seeds", "0"], "--seeds and --epochs must be 1 or more"),
        (["--jobs", "0"], "--jobs must be 1 or more"),
        (["--results", "nowhere"], "--results nowhere: there is no such file or folder"),
        (["--graph", "one/g.csv", "--graph", "two/g.csv"], "two graphs have the same name"),
        (["--keep", "one/g.csv"], "one/g.csv: is no file that --keep wrote"),
    ],
)
def test_mistakes_get_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    line: str,
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "g.csv").write_text("0,1\n1,2\n")
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--out", "out"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert line in err


def test_two_graphs_alike(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Names of odd letters, one content: the page has both."""
    names = ("g-[1]", "граф")
    for name in names:
        (tmp_path / f"{name}.csv").write_text("0,1\n1,2\n2,0\n2,3\n")
    graphs = [word for name in names for word in ("--graph", str(tmp_path / f"{name}.csv"))]
    out = tmp_path / "out"
    summary = result_of(capsys, "workload", *graphs, "--out", str(out))
    assert len(summary["rows"]) == 8
    assert all(row["ours"] is not None for row in summary["rows"])
    assert len(list(out.glob("results/*.json"))) == 4
    assert all(name in (out / "report.html").read_text("utf-8") for name in names)


def test_a_distribution_in_few_points() -> None:
    values, counts = np.arange(1000), np.ones(1000, np.int64)
    points = cdf_points(values, counts)
    assert len(points) <= CDF_POINTS
    assert (points[0], points[-1]) == ([0, 1], [999, 1000])
    assert all(up_to == value + 1 for value, up_to in points)
    assert cdf_points(np.array([3, 8]), np.array([2, 1])) == [[3, 2], [8, 3]]

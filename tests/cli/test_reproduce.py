"""`lumos reproduce` as people type it: all at once, interrupted, broken, from kept results."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.cli.one_cell import train_cell

from lumos.cli.main import run
from lumos.experiments import reported

TREES = ["workload", "--graph", "demo:60", "--quick"]
MARK = "LUMOS_TEST_MARK"
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
from lumos.cli.main import main
main()
"""


def result_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["reproduce", *arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


def cells_in(out: Path) -> dict[str, tuple[float, bytes]]:
    """Finished cells; every one must be whole."""
    cells = {}
    for path in (out / "cells").glob("*.json"):
        record = json.loads(path.read_bytes())
        assert record["result"]
        cells[path.name] = (path.stat().st_mtime, path.read_bytes())
    return cells


@pytest.fixture
def changed_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Replaces a line of the frozen settings."""
    from lumos.experiments import settings

    def change(before: str, after: str) -> None:
        text = settings.FILE.read_text("utf-8")
        assert text.count(before) == 1
        monkeypatch.setattr(settings, "FILE", tmp_path / "settings.toml")
        settings.FILE.write_text(text.replace(before, after))

    return change


def test_every_figure_and_file(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    changed_settings: Callable[[str, str], None],
) -> None:
    """On sixty devices; runs whose epochs can be chosen are cut at two of them."""
    changed_settings("epsilons = [0.5, 1, 2, 4]", "epsilons = [2]")
    changed_settings("iterations_elsewhere = 1000 ", "iterations_elsewhere = 20 ")
    out, kept = tmp_path / "out", tmp_path / "kept" / "reproduce-demo.json"
    arguments = ["--graph", "demo:60", "--quick", "--epochs", "2", "--out", str(out)]
    summary = result_of(capsys, *arguments, "--keep", str(kept))
    assert summary["form"] == "quick"
    assert not summary["failed"]
    assert {row["figure"] for row in summary["rows"]} == set(reported.CAPTIONS)
    wanted = {"figure", "dataset", "system", "task", "backbone", "epsilon", "paper", "ours"}
    wanted |= {"spread", "seeds", "control", "note"}
    for row in summary["rows"]:
        assert row.keys() >= wanted
        assert row["ours"] is not None or row["note"]
        if row["system"] == "Lumos paper" and row["figure"] != "cost":
            assert "cut at 2 epochs" in row["note"]
            assert row["ours"] is None or row["cut"] == 2
        if row["measure"].startswith(("against c", "against L", "against n", "over")):
            assert row["ours"] is None
            assert not row["why"]
    assert json.loads((out / "rows.json").read_text()) == summary["rows"]
    tables = (out / "tables.md").read_text()
    assert all(f"### {figure} on demo:60" in tables for figure in reported.CAPTIONS)
    assert "lumos reproduce --graph demo:60 --quick --epochs 2" in tables
    assert str(tmp_path) not in tables
    page = (out / "report.html").read_text()
    assert page.count("<svg") >= 6
    assert "none is left out" in page
    assert "No difference and no plot uses them" in page
    assert "the ledger of the paper profile" not in page
    for text in ("What left the devices", "demo:60: the ledger of the strict profile",
                 "demo:60: the doors", "in both profiles", "A tree of moderate size"):  # fmt: skip
        assert text in page
    (loads,) = json.loads((out / "workload.json").read_text()).values()
    assert set(loads) == {"none", "greedy", "mcmc", "optimal"}
    assert all(points[-1][1] == 60 for points in loads.values())
    for figure in reported.CAPTIONS:
        drawn = list((out / "figures").glob(f"{figure}-*.svg"))
        assert bool(drawn) == (figure != "ablation")  # which has cut runs only
        for path in drawn:
            ElementTree.fromstring(path.read_text())  # noqa: S314
    assert not list((out / "partial").glob("*"))

    # Nothing runs twice: not from the folder, and not from what was kept.
    again = result_of(capsys, *arguments)
    assert (again["ran"], again["known"]) == (0, summary["ran"])
    assert again["rows"] == summary["rows"]
    elsewhere = ["--out", str(tmp_path / "other"), "--results", str(kept)]
    third = result_of(capsys, *arguments[:-2], *elsewhere)
    assert (third["ran"], third["known"]) == (0, summary["ran"])
    assert third["rows"] == summary["rows"]


def test_the_quick_form_has_whole_runs(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    changed_settings: Callable[[str, str], None],
) -> None:
    """What is shown has finished, what does not fit into the time is listed, nothing is cut."""
    changed_settings("minutes = 10 ", "minutes = 0.25 ")
    out = tmp_path / "out"
    arguments = ["classification", "--graph", "demo:60", "--quick", "--out", str(out)]
    summary = result_of(capsys, *arguments)
    assert summary["left_out"]
    cells = [json.loads(path.read_text()) for path in (out / "cells").glob("*.json")]
    assert len(cells) == summary["ran"]
    baselines = [cell["result"] for cell in cells if cell["kind"] == "baseline"]
    assert baselines
    for result in baselines:
        settings = result["settings"]
        assert settings["epochs"] in (100, 300)
        waited = result["epochs"] - result["best_epoch"]
        assert result["epochs"] == settings["epochs"] or waited == settings["patience"] == 100
    assert not any(row["cut"] for row in summary["rows"])
    assert any(row["ours"] is not None for row in summary["rows"])
    missing = [row for row in summary["rows"] if row["ours"] is None]
    assert missing
    assert all("left out of the quick form" in row["note"] for row in missing)
    page = (out / "report.html").read_text()
    for text in ("What is left out", *summary["left_out"]):
        assert text in page
    tables = (out / "tables.md").read_text()
    assert f"{len(summary['left_out'])} are left out" in tables
    assert "none" not in tables
    assert all(f"- {line}: " in tables for line in summary["left_out"])
    again = result_of(capsys, *arguments)
    assert (again["ran"], again["rows"]) == (0, summary["rows"])
    assert run(["reproduce", *arguments]) == 0
    assert "run it without --quick" in capsys.readouterr().out


def test_kept_results_of_another_version(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "reproduce-demo.json"
    first = result_of(capsys, *TREES, "--out", str(tmp_path / "one"), "--keep", str(kept))
    records = json.loads(kept.read_text())
    assert len(records) == first["ran"] == 4
    for record in records:
        record["version"] = 0
    kept.write_text(json.dumps(records))
    arguments = [*TREES, "--out", str(tmp_path / "two"), "--results", str(kept)]
    any_version = result_of(capsys, *arguments, "--kept", "any-code")
    assert (any_version["ran"], any_version["known"], any_version["other_code"]) == (0, 4, 4)
    assert [row["ours"] for row in any_version["rows"]] == [row["ours"] for row in first["rows"]]
    assert run(["reproduce", *arguments, "--kept", "any-code"]) == 0
    assert "another result version" in capsys.readouterr().out
    assert "another result version" in (tmp_path / "two" / "tables.md").read_text()
    again = tmp_path / "again.json"
    assert run(["reproduce", *arguments, "--kept", "any-code", "--keep", str(again)]) == 0
    assert again.read_text().count('"version": 0') == 4  # they keep their version
    capsys.readouterr()
    exact = result_of(capsys, *arguments)
    assert (exact["ran"], exact["known"]) == (4, 0)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in a process of its own; a mark finds whatever it leaves behind."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("processes are found through /proc")
    processes = []

    def start(*arguments: str, program: str = MAIN) -> subprocess.Popen[str]:
        environment = {**os.environ, MARK: (tmp_path / "mark").read_text()}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    (tmp_path / "mark").write_text(uuid.uuid4().hex)
    yield start
    for process in processes:
        process.kill()
        process.communicate()


def marked(mark: str) -> list[int]:
    """Living processes that were started under the mark."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes()
            state = (path / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment and state != "Z":
            pids.append(int(path.name))
    return pids


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.02)


LONG = [*TREES, "--jobs", "1"]


@pytest.mark.usefixtures("must_end")
@pytest.mark.parametrize(
    "blow", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_an_interrupted_run_goes_on(
    blow: signal.Signals,
    started: Callable[..., subprocess.Popen[str]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    out, mark = tmp_path / "out", (tmp_path / "mark").read_text()
    process = started("reproduce", *LONG, "--out", str(out))
    until(lambda: any((out / "cells").glob("*.json")))
    process.send_signal(blow)
    _, errors = process.communicate()
    assert process.returncode == (130 if blow == signal.SIGINT else -9)
    if blow == signal.SIGINT:
        assert "the same command continues" in errors
        assert "Traceback" not in errors
    until(lambda: not marked(mark))  # children notice that nobody waits for them
    before = cells_in(out)
    assert before
    summary = result_of(capsys, *LONG, "--out", str(out))
    after = cells_in(out)
    assert summary["known"] == len(before)
    assert summary["ran"] + summary["known"] == len(after)
    assert not summary["failed"]
    assert {name: after[name] for name in before} == before  # nothing ran twice


ALONE = """
import sys
from pathlib import Path
from tests.cli.one_cell import train_cell
train_cell(Path(sys.argv[1]))
"""


@pytest.mark.usefixtures("must_end")
def test_a_training_run_goes_on_from_its_checkpoint(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Its parent killed, a process ends; the next one has the score of an uninterrupted run."""
    mark = (tmp_path / "mark").read_text()
    one, other = tmp_path / "one", tmp_path / "other"
    process = started(str(one), program=ALONE)
    until((one / "partial" / "checkpoint.npz").exists)
    process.kill()
    process.communicate()
    until(lambda: not marked(mark))
    assert not (one / "cell.json").exists()
    for folder in (one, other):
        train_cell(folder)
    resumed, whole = (json.loads((f / "cell.json").read_text())["result"] for f in (one, other))
    assert (resumed["resumed"], whole["resumed"]) == (True, False)
    for name in ("test_accuracy", "best_epoch", "final_loss", "per_epoch"):
        assert resumed[name] == whole[name]
    assert not (one / "partial").exists()


def test_a_cell_that_fails_is_reported_and_tried_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lumos.experiments.cell import Cell
    from lumos.experiments.figures.cells import Cells

    real = Cells.trees

    def broken(cells: Cells, balancer: str) -> Cell:
        if balancer != "mcmc":
            return real(cells, balancer)
        return Cell.of("trees", cells.dataset.spec, balancer="mcmc", nonsense=1)

    monkeypatch.setattr(Cells, "trees", broken)
    out = tmp_path / "out"
    assert run(["reproduce", *TREES, "--out", str(out), "--json"]) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["ran"] == 3
    assert len(summary["failed"]) == 1
    (row,) = [row for row in summary["rows"] if row["ours"] is None]
    assert "nonsense" in row["note"]
    assert "1 cells failed" in printed.err
    assert "nonsense" in (out / "report.html").read_text()
    monkeypatch.setattr(Cells, "trees", real)
    assert result_of(capsys, *TREES, "--out", str(out))["ran"] == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["figure-7"], "there is no figure 'figure-7'; there are classification"),
        (["--graph", "nowhere"], "neither a file or folder nor a known graph"),
        (["--seeds", "0"], "--seeds and --epochs must be 1 or more"),
        (["--jobs", "0"], "--jobs must be 1 or more"),
        (["--results", "nowhere"], "--results nowhere: there is no such file or folder"),
        (["--profiles", "loose"], "profiles"),
        (["--graph", "one/g.csv", "--graph", "two/g.csv"], "two graphs are called 'g'"),
        (["--keep", "one"], "one: cannot be read as JSON"),
        (["--keep", "one/g.csv"], "one/g.csv: cannot be read as JSON"),
    ],
)
def test_mistakes_get_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "g.csv").write_text("0,1\n1,2\n")
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", *arguments, "--out", "out"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert line in err


def test_two_graphs_alike(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Names of odd letters, one content: every cell runs once, and the page has both."""
    names = ("g-[1]", "граф")
    for name in names:
        (tmp_path / f"{name}.csv").write_text("0,1\n1,2\n2,0\n2,3\n")
    graphs = [word for name in names for word in ("--graph", str(tmp_path / f"{name}.csv"))]
    out = tmp_path / "out"
    summary = result_of(capsys, "workload", "--quick", *graphs, "--out", str(out))
    assert summary["ran"] == 4
    assert len(summary["rows"]) == 8
    assert all(row["ours"] is not None for row in summary["rows"])
    assert all(name in (out / "report.html").read_text("utf-8") for name in names)
    drawn = {path.name for path in (out / "figures").glob("workload-*.svg")}
    assert drawn == {"workload-g--1-.svg", "workload-граф.svg"}
    assert run(["reproduce", "workload", "--quick", *graphs, "--out", str(out)]) == 0
    assert "workload on g-[1]: " in capsys.readouterr().out


def test_a_longer_and_a_shorter_run_say_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for epochs, sentence in (("500", "Up to 500 epochs; a run"), ("5", "**Shortened**: 5 epochs")):
        out = tmp_path / epochs
        result_of(capsys, *TREES[:3], "--epochs", epochs, "--out", str(out))
        assert sentence in (out / "tables.md").read_text()


@pytest.mark.real
def test_structure_figures_of_lastfm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data_dir: Path
) -> None:
    """Without its feature file, LastFM still has its workloads, and says what it lacks."""
    summary = result_of(
        capsys,
        *("workload", "classification", "--graph", "lastfm", "--quick"),
        *("--out", str(tmp_path / "out"), "--data-dir", str(data_dir)),
    )
    by = {row["system"]: row for row in summary["rows"] if row["figure"] == "workload"}
    assert by["no trimming"]["ours"] == 216
    assert by["optimal"]["ours"] == 15
    scores = [row for row in summary["rows"] if row["figure"] == "classification"]
    assert scores
    if not any(row["ours"] for row in scores):
        assert all("lastfm_asia_features.json is not here" in row["note"] for row in scores)

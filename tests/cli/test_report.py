"""`lumos report` as people type it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import lumos
from lumos.cli.main import run

pytestmark = pytest.mark.usefixtures("drawn_once")

torch.set_num_threads(1)  # small graphs: a second thread only waits


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    lumos.train("demo:60", out=out, epochs=2, profile="paper", compare="ideal", balancer="greedy")
    return out


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that a mistake gets."""
    assert run(["report", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lumos: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_the_page_lies_in_the_run_folder(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    html = (folder / "report.html").read_text("utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "Lumos on demo:60" in html


def test_another_file_and_json(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "page.html"
    assert run(["report", str(finished), "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"path": str(out)}
    assert out.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert not (finished / "report.html").exists()


def test_what_is_no_run(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere", tmp_path, folder / "run.json"):
        message = refused(capsys, place)
        assert f"{place}: not a run folder; train with --out to make one" in message
    assert "--out needs a value" in refused(capsys, folder, "--out")
    assert refused(capsys)


def test_an_unfinished_run(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "result.json").unlink()
    assert "the run is not finished; continue with lumos train … --resume" in refused(
        capsys, folder
    )
    assert not (folder / "report.html").exists()


FILES = ["result.json", "trees.npz", "metrics.jsonl", "ledger.npz", "devices.npz", "model.npz"]


@pytest.mark.parametrize("name", ["run.json", *FILES])
@pytest.mark.parametrize("content", [b" ", b"{", b"[]", b'"x"', b"\xff\xfe\x00", b"null", b"{}"])
def test_a_damaged_file(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str, content: bytes
) -> None:
    (folder / name).write_bytes(content)
    assert name in refused(capsys, folder)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("name", FILES[1:])
def test_a_missing_file(capsys: pytest.CaptureFixture[str], folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert name in refused(capsys, folder)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("result.json", "devices", "many"),
        ("result.json", "devices", 61),
        ("result.json", "edges", 1),
        ("result.json", "graph", "another"),
        ("result.json", "seed", 9),
        ("result.json", "shards", 2),
        ("result.json", "epochs", 3),
        ("result.json", "ledger", {}),
        ("result.json", "tree_ledger", {}),
        ("result.json", "test_accuracy", None),
        ("result.json", "per_epoch", {}),
        ("result.json", "split", {"test": 3}),
        ("result.json", "guarantees", [{"x": "y"}]),
        ("run.json", "devices", 61),
        ("run.json", "format", 1),
        ("run.json", "format", 99),
        ("run.json", "settings", {"profile": "paper", "epsilon": -1}),
        ("run.json", "settings", {"nonsense": 1}),
        ("run.json", "settings", {"epochs": "x"}),
    ],
)
def test_a_wrong_value(
    capsys: pytest.CaptureFixture[str], folder: Path, file: str, key: str, value: object
) -> None:
    content = json.loads((folder / file).read_text("utf-8"))
    (folder / file).write_text(json.dumps({**content, key: value}))
    assert f"{folder}/" in refused(capsys, folder)


def test_an_unknown_door(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    content = json.loads((folder / "result.json").read_text("utf-8"))
    content["ledger"]["topics"]["train/leaf"]["door"] = "window"
    (folder / "result.json").write_text(json.dumps(content))
    assert "window" in refused(capsys, folder)


def test_a_history_that_diverged(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    lines = [
        json.dumps({"epoch": epoch, "loss": float("nan"), "score": None, "seconds": 0.1})
        for epoch in (1, 2)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    assert run(["report", str(folder)]) == 0


def test_trees_of_another_run(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with np.load(folder / "trees.npz") as file:
        arrays = dict(file.items())
    np.savez(folder / "trees.npz", **{**arrays, "workload": arrays["workload"][:-1]})
    assert "trees.npz" in refused(capsys, folder)


def test_a_ledger_of_another_run(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with np.load(folder / "ledger.npz") as file:
        arrays = dict(file.items())
    totals = json.loads(str(arrays["ledger"]))
    totals["messages"] += 1
    np.savez(folder / "ledger.npz", **{**arrays, "ledger": json.dumps(totals)})
    assert "ledger.npz" in refused(capsys, folder)


def test_a_history_that_is_too_short(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text().splitlines()[0])
    assert "metrics.jsonl" in refused(capsys, folder)


def test_a_place_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(capsys, finished, "--out", tmp_path / "file" / "x.html")
    assert "cannot be written" in refused(capsys, finished, "--out", tmp_path)

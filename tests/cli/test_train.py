"""`lumos train` as people type it."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

import lumos
from lumos import InputError, UsageError
from lumos.cli.main import run

torch.set_num_threads(1)  # small graphs: a second thread only waits

QUICK = ["demo:60", "--profile", "paper", "--compare", "ideal", "--balancer", "greedy"]
QUICK += ["--epochs", "3"]
ALONE = [*QUICK, "--no-floor"]
STRICT = ["demo:60", "--profile", "strict", "--encoder-epochs", "3", "--epochs", "66"]

CONTRACT = {
    "task",
    "profile",
    "backbone",
    "epsilon",
    "epochs",
    "seconds",
    "seconds_per_epoch",
    "peak_rss_mb",
    "ranks",
    "max_workload",
    "ledger",
}
FILES = {
    "run.json",
    "split.npz",
    "trees.npz",
    "metrics.jsonl",
    "checkpoint.npz",
    "ledger.npz",
    "model.npz",
    "devices.npz",
    "result.json",
    "own/metrics.jsonl",
    "own/checkpoint.npz",
    "control/metrics.jsonl",
    "control/checkpoint.npz",
}
TIMES = ("seconds", "seconds_per_epoch", "peak_rss_mb", "ranks")


def strict_json(text: str) -> Any:
    """What any JSON reader would read: Python's own also takes NaN and Infinity."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def result_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["train", *arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1  # one JSON object and nothing else
    result: dict[str, Any] = strict_json(out)
    return result


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a mistake gets."""
    assert run(["train", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lumos: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_json_holds_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["demo:60", "--profile", "paper", "--epochs", "3", "--compare", "ideal"]
    result = result_of(capsys, *arguments, "--iterations", "20")
    assert set(result) >= CONTRACT | {"test_accuracy", "val_accuracy"}
    assert result["task"] == "classify"
    assert result["profile"] == "paper"
    assert result["backbone"] == "gcn"
    assert result["epsilon"] == 2.0
    assert result["epochs"] == 3
    assert result["balancer"] == "mcmc"  # the paper's
    assert (result["compare"], result["aggregate"], result["randomness"]) == (
        "ideal",
        "ideal",
        "seeded",
    )
    for name in ("test_accuracy", "val_accuracy", "own_test_accuracy", "own_val_accuracy"):
        assert 0 <= result[name] <= 1
    assert not any(name.startswith("control_") for name in result)
    assert result["max_workload"] >= 1
    assert result["seconds"] >= 3 * result["seconds_per_epoch"] > 0
    assert result["ledger"]["topics"]["train/leaf"]["door"] == "open"
    assert result["ledger"]["epsilon_per_receiver"] == 2.0
    assert "door `open`" in result["exposed"]


def test_json_of_links(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(capsys, *ALONE, "--task", "link")
    assert set(result) >= CONTRACT | {"test_auc", "val_auc"}
    assert "test_accuracy" not in result
    assert "own_test_auc" not in result  # --no-floor
    assert 0 <= result["test_auc"] <= 1


def test_options_reach_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--backbone", "gat", "--epsilon", "1.5", "--control", "--seed", "5", "--shards", "3"]
    result = result_of(capsys, *ALONE, *chosen)
    assert result["backbone"] == "gat"
    assert result["epsilon"] == 1.5
    assert result["ledger"]["epsilon_per_receiver"] <= 1.5
    assert (result["seed"], result["shards"]) == (5, 3)
    assert {"control_test_accuracy", "control_val_accuracy"} <= set(result)
    heads = 600 * 64 + 64 * 2 + 64  # weight, two halves of attention, bias
    last, head = 64 * 16 + 16 * 2 + 16, 16 * 6 + 6
    assert result["weights"] == heads + last + head


def test_shards_change_nothing_that_counts(capsys: pytest.CaptureFixture[str]) -> None:
    one, seven = (result_of(capsys, *ALONE, "--shards", shards) for shards in ("1", "7"))
    rounded = ("final_loss", "test_calibration_error", "val_calibration_error")
    for name in rounded:
        assert one[name] == pytest.approx(seven[name], abs=1e-5)
    for name in (*TIMES, "shards", "weights_sha256", *rounded):  # sums differ by rounding
        del one[name], seven[name]
    assert one == seven


@pytest.mark.parametrize("bins", [False, True])
def test_no_noise_is_valid_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, bins: bool
) -> None:
    if bins:
        chosen: dict[str, Any] = {
            "compare": "ideal",
            "epsilon": float("inf"),
            "bins": True,
            "iterations": 5,
            "epochs": 1,
        }
        out = tmp_path / "run"
        run_of_bins = lumos.train("demo:60", profile="paper", floor=False, out=out, **chosen)
        result = json.loads(json.dumps(run_of_bins.summary(), allow_nan=False))
    else:
        result = result_of(capsys, *ALONE, "--epsilon", "inf", "--out", str(tmp_path / "run"))
    assert result["epsilon"] == "inf"
    assert result["settings"]["bins"] is bins
    for name in ("run.json", "result.json"):
        strict_json((tmp_path / "run" / name).read_text("utf-8"))


def test_the_answer_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *QUICK, "--control"]) == 0
    out, err = capsys.readouterr()
    assert err == ""  # no progress where nothing takes ten seconds
    first, _, table = out.partition("\n\n")
    assert re.fullmatch(
        r"Test accuracy on demo:60: \d+\.\d % \(15 devices\), profile paper \(corrected, balancer "
        r"greedy, largest workload \d+\); local model \(no neighbours\): \d+\.\d %; control "
        r"\(releases without information\): \d+\.\d %, so messages .* over the control.*\.",
        first,
    )
    assert "accuracy (observer)" in table
    for row in ("this run", r"local model \(no neighbours\)", "control: releases without"):
        assert re.search(rf"{row}.* \d+\.\d +\d+\.\d +\d+\.\d", table)
    assert "Nothing is guaranteed: neighbours got embeddings of raw features" in table
    assert "This was a simulation." in table
    assert "30 devices train, 15 validate, 15 test" in table
    assert len(out.splitlines()) <= 12
    for detail in ("train/leaf", "MB peak", "What was exposed"):
        assert detail not in out  # only where it is asked for


def test_one_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *STRICT]) == 0
    out = capsys.readouterr().out
    assert len(re.findall("^Advice: ", out, re.MULTILINE)) == 1
    assert "Advice: 30 training devices are too few for 3,607 weights under this noise" in out
    assert run(["train", *QUICK[:-1], "20", "--no-floor"]) == 0
    assert "Advice: --control shows what messages contribute" in capsys.readouterr().out


def test_the_table_of_links(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *ALONE, "--task", "link", "--epsilon", "inf"]) == 0
    out = capsys.readouterr().out
    assert re.match(r"Test ROC-AUC on demo:60: 0\.\d{3} \(\d+ edges\)", out)
    assert "ROC-AUC (observer)" in out
    assert re.search(r"this run +[01]\.\d{4} +[01]\.\d{4}", out)


def test_strict_prints_its_guarantees(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *STRICT]) == 0
    out = capsys.readouterr().out
    for line in (
        r"Label +ε = 3 \(label replaced\): two equally likely labels are told apart in at most "
        r"95\.3 % of cases \(weak\)\.",
        r"Features +\(8, 1e-05\) \(features replaced\): ",
        r"Edge +\([\d.]+, 1e-05\) \(edge added or removed\): ",
        r"Not protected +device absent, degree\.$",
    ):
        assert re.search(f"^{line}", out, re.MULTILINE)
    assert "the guarantee needs --aggregate secure and --randomness system" in out
    assert not re.search(r" open +[\d,]+ +[\d,]+$", out, re.MULTILINE)


def test_strict_guarantees_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(capsys, *STRICT)
    assert set(result) >= CONTRACT | {"test_accuracy", "val_accuracy", "own_test_accuracy"}
    assert [row["about"] for row in result["guarantees"]] == [
        "label replaced",
        "features replaced",
        "record replaced",
        "contribution to the sums zeroed",
        "device absent",
        "edge added or removed",
        "edge replaced at one end",
        "degree",
    ]
    label, features, *_ = result["guarantees"]
    assert label["told_apart"] == pytest.approx(1 / (1 + math.exp(-3)))
    assert label["weak"] is True
    assert features["weak"] is False
    assert label["against"] == "everyone who sees every message, every sum and the model"
    assert result["guarantees"][-1]["told_apart"] is None
    doors = {line["door"] for line in result["ledger"]["topics"].values()}
    assert doors == {"aggregate", "control", "release"}
    assert result["ledger"]["epsilon_per_receiver"] == result["ledger"]["epsilon_collusion"] == 3.0


def test_strict_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--encoder-epochs", "2", "--epochs", "64", "--no-floor"]
    assert result_of(capsys, "demo:60", *short)["profile"] == "strict"


def test_the_run_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    result = result_of(capsys, *QUICK, "--control", "--out", str(out))
    assert set(files_in(out)) == FILES
    assert strict_json((out / "result.json").read_text("utf-8")) == result
    about = strict_json((out / "run.json").read_text("utf-8"))
    assert about["graph"] == "demo:60"
    assert about["settings"]["balancer"] == "greedy"
    assert about["classes"] == ["art", "food", "music", "science", "sport", "travel"]
    for place in (".", "own", "control"):
        lines = (out / place / "metrics.jsonl").read_text("utf-8").splitlines()
        assert [strict_json(line)["epoch"] for line in lines] == [1, 2, 3]
    with np.load(out / "devices.npz") as found:
        assert found["ids"].shape == (60,)
        assert found["embeddings"].shape == (60, 16)
        assert found["logits"].shape == (60, 6)
    with np.load(out / "model.npz") as weights:
        assert sum(weights[name].size for name in weights) == result["weights"]


def test_the_table_says_where_the_folder_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["train", *ALONE, "--out", str(tmp_path / "run")]) == 0
    assert f"lumos predict {tmp_path / 'run'}" in capsys.readouterr().out


def test_a_run_is_not_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    again = [*ALONE, "--out", str(tmp_path)]
    result_of(capsys, *again)
    before = files_in(tmp_path)
    err = refused(capsys, *again)
    assert str(tmp_path) in err
    assert "--resume" in err
    err = refused(capsys, *again, "--resume", "--seed", "1")
    assert "--seed 0, not 1" in err
    err = refused(capsys, *again, "--resume", "--epsilon", "0.5")
    assert "--epsilon 2.0, not 0.5" in err
    err = refused(capsys, "demo:61", *again[1:], "--resume")
    assert "another graph (demo:60)" in err
    assert files_in(tmp_path) == before


def test_resuming_a_finished_run_says_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    again = [*ALONE, "--out", str(tmp_path)]
    one, other = result_of(capsys, *again), result_of(capsys, *again, "--resume")
    for name in TIMES:
        del one[name], other[name]
    assert one == other


def test_an_interrupted_run_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    epochs = 200
    arguments = [*ALONE[:-3], "--epochs", str(epochs), "--no-floor", "--checkpoint-every", "5"]
    arguments += ["--out", str(out)]
    # A shell that runs us in the background has told its children to ignore the keyboard.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += f"from lumos.cli.main import main; main({['train', *arguments]!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        end = time.monotonic() + 120
        while not (out / "checkpoint.npz").exists() and time.monotonic() < end:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert shown == ""
    assert said == f"lumos: interrupted; the same command with --resume continues in {out}\n"
    assert "Traceback" not in said
    assert not (out / "result.json").exists()
    with np.load(out / "checkpoint.npz") as found:
        done = int(found["epoch"])
    assert 5 <= done < epochs
    before = (out / "metrics.jsonl").read_text("utf-8").splitlines()

    err = refused(capsys, *arguments)
    assert "--resume" in err
    result = result_of(capsys, *arguments, "--resume")
    assert result["epochs"] == epochs
    lines = (out / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, epochs + 1))
    assert lines[:done] == before[:done]  # nothing was done twice


def test_interrupted_without_a_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pulled(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("lumos.runs.train.train_rank", pulled)
    assert run(["train", *ALONE]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "lumos: interrupted\n"  # there is nothing to resume


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "GRAPH is missing"),
        (["demo:60", "demo:60"], "demo:60"),
        (["demo:60", "--flavour", "x"], "Unknown option"),
        (["demo:60", "--task", "both"], "Choose from"),
        (["demo:60", "--profile", "loose"], "--profile must be one of paper, strict"),
        (["demo:60", "--epochs", "0"], "--epochs must be 1 or more"),
        (["demo:60", "--epochs", "many"], "--epochs"),
        (["demo:60", "--label-epsilon", "0"], "--label-epsilon must be above 0"),
        (["demo:60", "--label-epsilon", "-1"], "--label-epsilon must be above 0"),
        (["demo:60", "--label-epsilon", "nan"], "--label-epsilon must be above 0"),
        (["demo:60", "--epsilon", "2"], "there are --label-epsilon and --feature-epsilon"),
        (["demo:60", "--epsilon", "much"], "--epsilon"),
        (["demo:60", "--checkpoint-every", "0"], "--checkpoint-every must be 1 or more"),
        (["demo:60", "--delta", "2"], "--delta must be between 0 and 1"),
        ([*ALONE, "--shards", "61"], "--shards must be between 1 and"),
        ([*ALONE, "--backbone", "nothing"], "backbone 'nothing' does not exist"),
        ([*ALONE, "--resume"], "--resume needs --out"),
        ([*ALONE, "--resume", "--out", "nowhere"], "there is no run to resume"),
        (["nowhere.npz"], "no file, no folder and no known graph"),
        (["facebook", "--data-dir", "nowhere"], "lumos data fetch facebook"),
        (["demo:3", *ALONE[1:]], "classify needs at least 4"),
        (
            ["demo:60", "--task", "link", "--encoder-epochs", "3"],
            "no effect with --profile strict",
        ),
        (
            ["demo:60", "--task", "link", "--backbone", "gat"],
            "--backbone has no effect with --profile strict and --task link, which have no tree "
            "network",
        ),
        (["demo:60", "--task", "link", "--label-epsilon", "2"], "--label-epsilon has no effect"),
        (["demo:60", "--task", "link", "--relay", "2"], "--relay"),
        (["demo:60", "--score-queries", "20"], "--score-queries has no effect"),
        (
            ["demo:60", "--task", "link", "--score-queries", "2"],
            "must be above 2, those of calibration",
        ),
        (["demo:60", "--task", "link", "--epochs", "6"], "--epochs must be 7 with these settings"),
        (["demo:60", "--profile", "strict", "--label-epsilon", "inf"], "above 0 and finite"),
        (["demo:60", "--profile", "strict", "--epochs", "6"], "--epochs must be above"),
    ],
)
def test_a_mistake_gets_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refused(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"profile": "paper", "pool": "median"}, "pool must be one of"),
        ({"profile": "paper", "learning_rate": 0}, "`learning_rate` must be above 0"),
        ({"profile": "paper", "weight_decay": -1}, "`weight_decay` must be 0 or more"),
        ({"profile": "paper", "layers": 0}, "layers must be 1 or more"),
        ({"profile": "paper", "dropout": 1}, "dropout must be at least 0 and below 1"),
        ({"profile": "paper", "low": 1}, "low < high"),
        ({"profile": "paper", "high": 0.5}, r"outside the public bounds \[0, 0.5\]"),
        ({"task": "link", "mechanism": "krr"}, "no effect with `profile='strict'`"),
        ({"task": "link", "query_bits": 4}, "`query_bits` must be 1, 2 or 3"),
        ({"task": "link", "random_marks": 33}, "`random_marks` must be 2 to 32"),
        ({"task": "link", "query_epsilon": 0}, "must be above 0"),
        ({"virtual_nodes": False}, "`virtual_nodes` has no effect with `profile='strict'`"),
    ],
)
def test_a_mistake_in_python(settings: dict[str, Any], words: str) -> None:
    with pytest.raises((UsageError, InputError), match=words):
        lumos.train("demo:60", **settings)


@pytest.mark.parametrize(
    ("arrays", "more", "words"),
    [
        (["features"], [], "has no labels"),
        (["target"], [], "has no features"),
        (["target"], ["--task", "link"], "has no features"),
        (["target"], ["--profile", "strict"], "has no features"),
    ],
)
def test_a_graph_that_lacks_something(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arrays: list[str],
    more: list[str],
    words: str,
) -> None:
    ring = np.stack([np.arange(12), (np.arange(12) + 1) % 12], axis=1)
    everything: dict[str, Any] = {
        "features": np.eye(12, 5, dtype=np.float32),
        "target": np.arange(12) % 2,
    }
    path = tmp_path / "ring.npz"
    np.savez(path, edges=ring, **{name: everything[name] for name in arrays})
    arguments = [*ALONE[1:], *more] if "--profile" not in more else more
    err = refused(capsys, str(path), *arguments, "--out", str(tmp_path / "run"))
    assert "ring" in err
    assert words in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ["--backbone", "nothing"],
        ["--epsilon", "1e-9"],
        ["--shards", "61"],
        ["--profile", "strict", "--epochs", "6"],
    ],
)
def test_a_mistake_stands_in_nobodys_way(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, wrong: list[str]
) -> None:
    arguments = [*ALONE, *wrong] if "--profile" not in wrong else ["demo:60", *wrong]
    refused(capsys, *arguments, "--out", str(tmp_path / "run"))
    assert run(["train", *ALONE, "--out", str(tmp_path / "run")]) == 0


def test_half_an_epoch_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--epochs" in refused(capsys, *ALONE[:-3], "--epochs", "1.5")

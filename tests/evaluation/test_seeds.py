"""`lumos train --seeds`: the same runs as one by one, their means, and paired differences."""

import json
from pathlib import Path

import numpy as np
import pytest

import lumos
from lumos.cli.main import run

GRAPH = ["train", "demo:60", "--encoder-epochs", "2"]
SEEDS = [*GRAPH, "--control", "--seed", "3", "--seeds", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("seeds") / "runs"
    assert run([*SEEDS, "--out", str(out)]) == 0
    return out


def test_folders_are_those_of_single_runs(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["seed-3", "seed-4"]
    for seed in (3, 4):
        kept = lumos.load_run(folder / f"seed-{seed}")
        alone = lumos.train("demo:60", seed=seed, control=True, encoder_epochs=2)
        for name in ("test_accuracy", "test_macro_f1", "val_accuracy"):
            assert kept.metrics[name] == pytest.approx(alone.metrics[name], abs=1e-5)
        assert kept.about.seed == seed
        assert kept.about.source["spec"] == "demo:60"


def test_means_and_paired_differences(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SEEDS, "--out", str(folder), "--resume", "--json"]) == 0  # nothing runs again
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert found["seeds"] == [3, 4]
    one, two = found["runs"]
    for variant, prefix in (("run", ""), ("own", "own_"), ("control", "control_")):
        scores = [result[f"{prefix}test_accuracy"] for result in (one, two)]
        mean = found["aggregate"][variant]["test_accuracy"]
        assert mean["mean"] == pytest.approx(np.mean(scores))
        assert mean["sd"] == pytest.approx(np.std(scores, ddof=1))
        if prefix:
            gains = [r["test_accuracy"] - r[f"{prefix}test_accuracy"] for r in (one, two)]
            mean = found["aggregate"][f"run_minus_{variant}"]["test_accuracy"]
            assert mean["mean"] == pytest.approx(np.mean(gains))
            assert mean["sd"] == pytest.approx(np.std(gains, ddof=1))
            assert mean["se"] == pytest.approx(np.std(gains, ddof=1) / np.sqrt(2))


def test_the_screen_names_every_variant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SEEDS, "--out", str(folder), "--resume"]) == 0
    printed = capsys.readouterr().out
    for words in ("2 seeds (3 to 4)", "run − own", "run − control", "±", "seed-3"):
        assert words in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0"], "--seeds must be 1 or more"),
        (["--seeds", "2", "--account", "account"], "--account belongs to one life"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*GRAPH, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_is_there_is_not_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*SEEDS, "--out", str(folder)]) == 2
    assert "there is a run already; go on with --resume" in capsys.readouterr().err

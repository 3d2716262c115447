"""`lumos evaluate`: table, JSON, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from lumos.cli.main import run

ASKED = ["evaluate", "demo:60", "--systems", "strict", "own", "--seeds", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluate") / "out"
    assert run([*ASKED, "--out", str(out)]) == 0
    return out


def test_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASKED, "--out", str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.err == "2 of 2: 2 runs, all of them known\n"
    for words in (
        "demo:60: 60 devices",
        "accuracy %",
        "local model in strict",
        "label replaced: ε = 3",
    ):
        assert words in printed.out
    assert (folder / "report.html").exists()


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASKED, "--out", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["rows"]) == 2 * 4
    for row in found["rows"]:
        assert {"system", "metric", "mean", "sd", "seeds", "seconds", "protects"} <= row.keys()
        assert row["seeds"] == 2
    assert found["seeds"] == [0, 1]
    assert found["command"] == "lumos evaluate demo:60 --systems strict own --seeds 2"


def test_a_failure_is_an_exit_status_and_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Features outside the bounds of LPGNN: it has no score, and the table says why."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    path = tmp_path / "own.npz"
    np.savez(
        path,
        edges=np.stack([np.arange(39), np.arange(1, 40)], axis=1),
        features=rng.normal(size=(40, 3)).astype(np.float32) + labels[:, None],
        target=labels,
    )
    assert run(["evaluate", str(path), "--systems", "strict", "lpgnn", "--seeds", "1"]) == 1
    printed = capsys.readouterr()
    assert "LPGNN has no result of seed 0: features: some lie outside the public" in printed.out
    assert printed.err.endswith("lumos: no score of LPGNN: the table says why\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--systems", "nobody"], "--systems: there is no 'nobody'"),
        (["--seeds", "0"], "--seeds must be 1 or more"),
        (["--task", "cluster"], "--task must be one of"),
        (["--epsilon", "-2"], "--epsilon must be above 0"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "demo:60", *arguments]) == 2
    assert message in capsys.readouterr().err

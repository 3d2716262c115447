"""Names are printed as they are: no markup, no emoji."""

from pathlib import Path

import numpy as np
import pytest

from lumos.cli.main import run
from lumos.graph import load

NAME = "[bold]x[:smile:]:100:"
CLASSES = ["[red]a[", ":smile:", "[/bold]"]


@pytest.fixture
def graph(tmp_path: Path) -> str:
    demo = load("demo:60")
    file = tmp_path / f"{NAME}.npz"
    features = np.random.default_rng(0).integers(0, 2, (demo.devices, 9)).astype(np.float32)
    labels = np.array(CLASSES)[np.asarray(demo.labels) % 3]
    np.savez(file, edges=demo.edge_list(), features=features, target=labels)
    return str(file)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "GRAPH", "--profile", "paper", "--balancer", "none", "--epochs", "1"],
        ["train", "GRAPH"],
        ["trees", "GRAPH"],
        ["baseline", "own", "GRAPH", "--epochs", "1"],
        ["audit", "GRAPH", "--attack", "randomized-labels", "--task", "classify"],
        ["data", "check", "GRAPH"],
    ],
)
def test_a_graph(capsys: pytest.CaptureFixture[str], graph: str, arguments: list[str]) -> None:
    assert run([graph if word == "GRAPH" else word for word in arguments]) == 0
    assert NAME in capsys.readouterr().out


def test_the_embedded_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trees", "demo:100"]) == 0
    assert "On demo:100, the busiest" in capsys.readouterr().out


def test_classes_and_folders(
    capsys: pytest.CaptureFixture[str], graph: str, tmp_path: Path
) -> None:
    folder = tmp_path / ":smile: [b]run[/b]"
    quick = ["--profile", "paper", "--balancer", "none", "--epochs", "2"]
    assert run(["train", graph, *quick, "--out", str(folder)]) == 0
    assert f"run folder: {folder}" in capsys.readouterr().out
    assert run(["predict", str(folder)]) == 0
    out = capsys.readouterr().out
    assert any(name in out for name in CLASSES)
    assert not any(emoji in out for emoji in ("😄", "😃", "💯"))

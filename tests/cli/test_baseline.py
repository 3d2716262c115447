"""`lumos baseline` as people type it."""

import json
from typing import Any, NoReturn

import pytest
import torch

from lumos.cli.main import run

torch.set_num_threads(1)

KEYS = {
    "graph",
    "devices",
    "edges",
    "system",
    "task",
    "backbone",
    "epsilon",
    "label_epsilon",
    "epochs",
    "best_epoch",
    "seconds",
    "seconds_per_epoch",
    "peak_rss_mb",
    "seed",
    "settings",
    "notes",
}


def refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def result_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["baseline", *arguments, "--epochs", "3", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1  # one JSON object and nothing else
    result: dict[str, Any] = json.loads(out, parse_constant=refuse)
    return result


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a mistake gets."""
    assert run(["baseline", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lumos: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    "system", ["centralized", "own", "lpgnn", "naive", "blink", "lpgnn-blink", "gap"]
)
def test_json_holds_the_contract(system: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(capsys, system, "demo:60", "--seed", "4")
    assert set(result) >= KEYS | {"test_accuracy", "val_accuracy"}
    assert (result["system"], result["task"], result["seed"]) == (system, "classify", 4)
    assert (result["devices"], result["epochs"]) == (60, 3)
    features = {"lpgnn": 8.0, "lpgnn-blink": 8.0, "naive": 2.0}
    assert result["epsilon"] == result["settings"].get("feature_epsilon") == features.get(system)
    labels = {"lpgnn": 3.0, "lpgnn-blink": 3.0, "naive": 2.0}
    assert result["label_epsilon"] == labels.get(system)
    edges = {"blink": 16.0, "lpgnn-blink": 16.0, "gap": 16.0, "naive": 2.0}
    assert result["settings"].get("edge_epsilon") == edges.get(system)
    assert result["backbone"] == (None if system in ("own", "gap") else "gcn")
    assert all(note.endswith(".") for note in result["notes"])
    assert 1 <= result["best_epoch"] <= 3
    assert result["seconds"] >= 3 * result["seconds_per_epoch"] > 0


def test_json_of_links(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(capsys, "naive", "demo:60", "--task", "link", "--backbone", "gat")
    assert set(result) >= KEYS | {"test_auc", "val_auc"}
    assert "test_accuracy" not in result
    assert result["backbone"] == "gat"
    assert result["label_epsilon"] is None


def test_inf_is_allowed_in_both(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("lpgnn", "demo:60", "--feature-epsilon", "inf", "--label-epsilon", "inf")
    result = result_of(capsys, *arguments)
    assert (result["epsilon"], result["label_epsilon"]) == ("inf", "inf")
    result = result_of(capsys, "naive", *arguments[1:])
    assert (result["epsilon"], result["label_epsilon"]) == ("inf", "inf")


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["baseline", "naive", "demo:60", "--epochs", "2"]) == 0
    out = capsys.readouterr().out
    assert "naive" in out
    assert "accuracy (observer)" in out
    assert "6 in total" in " ".join(out.split())
    assert out.startswith("Test accuracy of naive on demo:60: ")
    assert run(["baseline", "own", "demo:60", "--epochs", "2", "--task", "link"]) == 0
    assert "ROC-AUC" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["server", "demo:60"], "--system must be one of"),
        (["lpgnn", "demo:60", "--task", "link"], "cannot predict links"),
        (["own", "demo:60", "--feature-epsilon", "1"], "--feature-epsilon has no effect"),
        (["naive", "demo:60", "--edge-epsilon", "0"], "--edge-epsilon must be above 0"),
        (["naive", "demo:60", "--feature-epsilon", "nan"], "--feature-epsilon must be above 0"),
        (["naive", "demo:60", "--edge-sample", "1.5"], "not a whole number"),
        (["centralized"], "GRAPH"),
        (["centralized", "nowhere"], "nowhere"),
    ],
)
def test_mistakes(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in refused(capsys, *arguments)

"""The scores of a run, of all variants: in Python, in its JSON, and read back from its folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.narrow import present

import lumos
from lumos import InputError, Run

SETTINGS: dict[str, dict[str, Any]] = {
    "classify": {"encoder_epochs": 2, "epochs": 47, "control": True},
    "link": {"task": "link", "control": True},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    out = tmp_path_factory.mktemp("runs")
    return {
        task: lumos.train("demo:200", out=out / task, **settings)
        for task, settings in SETTINGS.items()
    }


@pytest.mark.parametrize("task", SETTINGS)
def test_all_variants_have_the_same_scores(runs: dict[str, Run], task: str) -> None:
    run = runs[task]
    own, control = present(run.own), present(run.control)
    assert run.metrics.keys() == own.keys() == control.keys()
    summary = json.loads(json.dumps(run.summary(), allow_nan=False))
    for prefix, scores in (("", run.metrics), ("own_", own), ("control_", control)):
        assert {name: summary[f"{prefix}{name}"] for name in scores} == scores


@pytest.mark.parametrize("task", SETTINGS)
def test_a_folder_gives_them_back(runs: dict[str, Run], task: str) -> None:
    run = runs[task]
    again = lumos.load_run(present(run.folder))
    assert (again.metrics, again.own, again.control) == (run.metrics, run.own, run.control)
    assert "test_confusion" not in repr(again)


def test_the_confusion_matrix_is_that_of_the_predictions(runs: dict[str, Run]) -> None:
    run = runs["classify"]
    table = np.array(run.metrics["test_confusion"])
    assert table.sum() == run.split_sizes.test
    assert table.trace() / table.sum() == pytest.approx(run.metrics["test_accuracy"])
    rows = run.metrics["test_per_class"]
    assert [row["class"] for row in rows] == run.class_names
    assert [row["devices"] for row in rows] == table.sum(axis=1).tolist()
    recalls = [row["recall"] for row in rows if row["devices"]]
    assert run.metrics["test_balanced_accuracy"] == pytest.approx(np.mean(recalls))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("test_confusion", [[1, 2], [3]]),
        ("test_confusion", "none"),
        ("test_per_class", []),
        ("test_per_class", [{"class": "a"}]),
        ("own_test_confusion", [[-1]]),
        ("test_balanced_accuracy", 2.5),
        ("control_val_macro_f1", None),
    ],
)
def test_what_is_no_score_is_refused(
    runs: dict[str, Run], tmp_path: Path, name: str, value: object
) -> None:
    folder = runs["classify"].save(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, name: value}))
    with pytest.raises(InputError, match=f"{name} is damaged") as error:
        lumos.load_run(folder)
    assert "\n" not in str(error.value)


def test_a_missing_score_is_named(runs: dict[str, Run], tmp_path: Path) -> None:
    folder = runs["classify"].save(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    del result["test_per_class"]
    (folder / "result.json").write_text(json.dumps(result))
    with pytest.raises(InputError, match=r"has no test_per_class; train again"):
        lumos.load_run(folder)

"""The examples run as they stand, and show what they say."""

import json
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.docs.trackers import MLflow, WeightsAndBiases

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))
TRACKED = {"track_mlflow.py", "track_wandb.py"}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(name: str) -> dict[str, Any]:
    """Run a script as `python examples/NAME` does, and return its variables."""
    with warnings.catch_warnings():
        # PyG itself uses what torch calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        return runpy.run_path(str(FOLDER / name), run_name="__main__")


@pytest.mark.parametrize(
    "name", [name for name in SCRIPTS if name not in {*TRACKED, "demo.py", "links.py"}]
)
def test_it_runs_and_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(name)
    assert capsys.readouterr().out
    trained = made.get("run")
    if trained is not None and trained.own is not None and name != "newcomers.py":
        # Neighbours help in every example.
        assert trained.metrics["test_accuracy"] > trained.own["test_accuracy"]


def test_the_demo_fits_a_terminal_and_names_what_is_exposed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "demo:60", "--epochs", "3", "--steps", "2"])
    made = run("demo.py")
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    for exposing in (made["corrected"], made["corrected_links"]):
        opened = [line for line in exposing.ledger.topics.values() if line.door == "open"]
        assert len(opened) >= 2
        assert all(f"{line.messages:,} messages: {line.learns}" in words for line in opened)
    for private in (made["strict"], made["strict_links"]):
        assert private.guarantees
        assert not made["unprotected"](private)
    assert made["trees"]["mcmc"].compare == "secure"
    assert made["trees"]["optimal"].max_workload == made["trees"]["optimal"].lower_bound()


def test_links_are_told_from_non_neighbours() -> None:
    """Teams are of 20 in a row. Scores are buckets, so that means are compared."""
    made = run("links.py")
    asked, trained = made["asked"], made["run"]
    assert trained.metrics["test_auc"] > trained.own["test_auc"]
    assert asked.answered.all()
    pairs = [(one, one + far) for one in range(0, 1000, 20) for far in (5, 100)]
    found = trained.ask_links(ids=pairs).probability
    assert found[::2].mean() > 1.5 * found[1::2].mean()


def test_mlflow_receives_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MLflow()
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    trained = run("track_mlflow.py")["run"]
    assert tracker.steps["run/seconds"] == [event.epoch for event in trained.history]
    assert tracker.metrics["test_accuracy"] == trained.metrics["test_accuracy"]
    assert tracker.params["label_epsilon"] == "3.0"
    assert tracker.artifacts[0].is_file()
    assert not tracker.running


def test_weights_and_biases_receive_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = WeightsAndBiases()
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    trained = run("track_wandb.py")["run"]
    assert [row["epoch"] for row in tracker.rows] == [event.epoch for event in trained.history]
    assert tracker.scores["test_accuracy"] == trained.metrics["test_accuracy"]
    assert tracker.settings["label_epsilon"] == "3.0"
    assert tracker.finished


@pytest.mark.parametrize(
    ("name", "package"), [("track_mlflow.py", "mlflow"), ("track_wandb.py", "wandb")]
)
def test_without_the_tracker_it_says_what_to_install(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=f"pip install {package}"):
        run(name)


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(FOLDER / "first_steps.ipynb", as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that start a kernel
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
        ).execute()
    shown = json.dumps(notebook.cells)
    assert "Warning: the split trains on 120 of 2,000 labelled devices" in " ".join(shown.split())
    assert "LumosWarning" in shown
    assert "weighted avg" in shown  # of scikit-learn's report
    assert "This run used the door `open`" in shown  # with the layer and optimizer of its own
    assert "ROC-AUC 0." in shown
    assert "\u03b5 = 3, pure" in shown or "\\u03b5 = 3, pure" in shown
    assert (tmp_path / "first-steps.html").is_file()


def test_the_notebook_is_committed_without_outputs() -> None:
    notebook = nbformat.read(FOLDER / "first_steps.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)


def test_the_list_has_every_example() -> None:
    listed = (FOLDER / "README.md").read_text("utf-8")
    for name in [*SCRIPTS, "first_steps.ipynb"]:
        assert f"({name})" in listed

"""The tracking examples against the real packages: `python benchmarks/trackers.py FOLDER`.

Runs examples/track_mlflow.py and examples/track_wandb.py with MLflow and Weights & Biases as they
are installed (`pip install '.[tracking]'`), without any server: a database in FOLDER, and the
offline mode. Reads back what the packages stored, and fails where it is not what the run had.
"""

import os
import runpy
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def example(name: str, folder: Path) -> Any:
    """Run an example in a folder of its own, and return its `run`."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    return runpy.run_path(str(EXAMPLES / name))["run"]


def mlflow_stored(folder: Path) -> str:
    """Compare what MLflow has of a run with the run."""
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    trained = example("track_mlflow.py", folder)
    import mlflow

    client = mlflow.MlflowClient()
    (stored,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    steps = [metric.step for metric in client.get_metric_history(stored.info.run_id, "run/seconds")]
    assert sorted(steps) == [event.epoch for event in trained.history], steps
    assert stored.data.metrics["test_accuracy"] == trained.metrics["test_accuracy"]
    assert stored.data.params["label_epsilon"] == "3.0"
    assert [file.path for file in client.list_artifacts(stored.info.run_id)] == ["report.html"]
    return f"mlflow {version('mlflow')}: {len(steps)} epochs, scores, settings and the report"


def wandb_stored(folder: Path) -> str:
    """Find what Weights & Biases wrote of a run in its offline file."""
    trained = example("track_wandb.py", folder)
    import wandb

    wandb.teardown()  # the process that writes the file ends
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = file.read_bytes()
    for name in (b"run/seconds", b"test_accuracy", b"label_epsilon"):
        assert name in content, name
    rows = content.count(b"run/seconds")
    # A name may be cut in two where a block of the file ends.
    assert len(trained.history) - 3 <= rows, rows
    return f"wandb {version('wandb')}: {rows} rows, scores and settings in {len(content):,} bytes"


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    print(mlflow_stored(place / "mlflow"))
    print(wandb_stored(place / "wandb"))

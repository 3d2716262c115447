"""Small stand-ins for MLflow and Weights & Biases, which are too heavy to install for a test.

They have only what the examples call, and remember it. What they accept was taken from the
documentation of both packages, so the tests show what Lumos hands over, not that a server is happy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class MLflow(ModuleType):
    """`mlflow`: metrics by name and step, parameters, artifacts."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.steps: dict[str, list[int]] = {}
        self.metrics: dict[str, float] = {}
        self.params: dict[str, str] = {}
        self.artifacts: list[Path] = []
        self.running = False

    @contextmanager
    def start_run(self, *, run_name: str) -> Iterator[None]:
        assert run_name
        self.running = True
        yield
        self.running = False

    def log_metric(self, key: str, value: float, step: int) -> None:
        assert self.running
        assert isinstance(value, float)
        self.steps.setdefault(key, []).append(step)

    def log_metrics(self, metrics: dict[str, float]) -> None:
        assert all(isinstance(value, float) for value in metrics.values())
        self.metrics |= metrics

    def log_params(self, params: dict[str, str]) -> None:
        self.params |= params

    def log_artifact(self, local_path: str) -> None:
        self.artifacts.append(Path(local_path))


class WeightsAndBiases(ModuleType):
    """`wandb`: one run with rows, a configuration and a summary."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.rows: list[dict[str, Any]] = []
        self.settings: dict[str, str] = {}
        self.scores: dict[str, float] = {}
        self.finished = False

    def init(self, *, project: str, mode: str) -> SimpleNamespace:
        assert project
        assert mode == "offline"
        return SimpleNamespace(
            log=self.rows.append,
            config=self.settings,
            summary=self.scores,
            finish=lambda: setattr(self, "finished", True),
        )

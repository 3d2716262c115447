"""What tests of the experiments share: a graph that is never loaded, and made-up results."""

from collections.abc import Callable
from typing import Any

import pytest
from reproduce.evaluation import Outcome, PaperEvaluation
from reproduce.runs import Run
from reproduce.settings import Dataset, Settings

Answer = Callable[[Run], dict[str, Any] | None]


@pytest.fixture
def make_dataset() -> Callable[..., Dataset]:
    def make(name: str = "facebook", features: int = 4714, classes: int = 4) -> Dataset:
        return Dataset(
            spec=name,
            name=name,
            devices=22_470,
            edges=170_823,
            features=features,
            classes=classes,
            whole="0123",
            structure="4567",
        )

    return make


@pytest.fixture
def make_evaluation(make_dataset: Callable[..., Dataset]) -> Callable[..., PaperEvaluation]:
    """An evaluation with the results of `answer`; None: the run failed."""

    def make(answer: Answer, name: str = "facebook", **more: Any) -> PaperEvaluation:
        def lookup(run: Run) -> Outcome:
            result = answer(run)
            return Outcome(result, "" if result is not None else "it broke")

        dataset = make_dataset(name, **more)
        return PaperEvaluation(dataset=dataset, settings=Settings(), lookup=lookup)

    return make

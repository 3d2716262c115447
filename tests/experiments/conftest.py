"""What tests of the experiments share: a graph that is never loaded, and made-up results."""

from collections.abc import Callable
from typing import Any

import pytest

from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures.evaluation import CellOutcome, PaperEvaluation
from lumos.experiments.settings import load_settings

Answer = Callable[[Cell], dict[str, Any] | None]


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
    """An evaluation with the results of `answer`; None: the cell failed."""

    def make(answer: Answer, name: str = "facebook", **more: Any) -> PaperEvaluation:
        def lookup(cell: Cell) -> CellOutcome:
            result = answer(cell)
            return CellOutcome(result, "" if result is not None else "it broke")

        dataset = make_dataset(name, **more)
        return PaperEvaluation(dataset=dataset, settings=load_settings("full"), lookup=lookup)

    return make

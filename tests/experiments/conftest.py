"""What tests of the experiments share: a graph that nobody loads, and made-up results."""

from collections.abc import Callable
from typing import Any

import pytest

from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures import Bench, CellOutcome
from lumos.experiments.settings import frozen

Answer = Callable[[Cell], dict[str, Any] | None]


@pytest.fixture
def subject_of() -> Callable[..., Dataset]:
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
def bench_of(subject_of: Callable[..., Dataset]) -> Callable[..., Bench]:
    """A bench on which `answer` has the results; None: the cell failed."""

    def make(answer: Answer, name: str = "facebook", **more: Any) -> Bench:
        def ask(cell: Cell) -> CellOutcome:
            result = answer(cell)
            return CellOutcome(result, "" if result is not None else "it broke")

        return Bench(subject=subject_of(name, **more), frozen=frozen("full"), ask=ask)

    return make

"""What tests of the experiments share: a graph that nobody loads, and made-up results."""

from collections.abc import Callable
from typing import Any

import pytest

from lumos.experiments.cell import Cell
from lumos.experiments.figures import Bench, Outcome
from lumos.experiments.settings import frozen
from lumos.experiments.subject import Subject

Answer = Callable[[Cell], dict[str, Any] | None]


@pytest.fixture
def subject_of() -> Callable[..., Subject]:
    def make(name: str = "facebook", features: int = 4714, classes: int = 4) -> Subject:
        return Subject(
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
def bench_of(subject_of: Callable[..., Subject]) -> Callable[..., Bench]:
    """A bench on which `answer` has the results; None: the cell failed."""

    def make(answer: Answer, name: str = "facebook", **more: Any) -> Bench:
        def ask(cell: Cell) -> Outcome:
            result = answer(cell)
            return Outcome(result, "" if result is not None else "it broke")

        return Bench(subject=subject_of(name, **more), frozen=frozen("full"), ask=ask)

    return make

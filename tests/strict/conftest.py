"""Puts what the tests of this folder share beside them, and keeps torch to one thread."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lumos.graph import Graph, load

# The tests are imported by path (importlib mode); `running` and `whole` are those of training.
here = Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "training")]

torch.set_num_threads(1)  # sums in one order: runs can be compared bit by bit


@pytest.fixture(scope="session")
def sixty() -> Graph:
    return load("demo:60")


@pytest.fixture(scope="session")
def two_hundred() -> Graph:
    return load("demo:200")


@pytest.fixture(scope="module")
def short() -> Iterator[dict[str, int]]:
    """Trust is trained for 4 epochs instead of 60, for runs of which only the course matters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumos.strict.plan.TRUST_EPOCHS", 4)
        yield {"encoder_epochs": 2, "epochs": 8}

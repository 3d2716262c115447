"""Puts what the tests of this folder share beside them, and keeps torch to one thread."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lumos.graph import Graph, load

# The tests are imported by path (importlib mode), so that `running` is no package of its own.
sys.path.insert(0, str(Path(__file__).parent))

torch.set_num_threads(1)  # sums in one order: runs can be compared bit by bit


@pytest.fixture(autouse=True)
def _torch_is_left_as_it_was() -> Iterator[None]:
    """A run that leaves gradients switched off spoils the next one."""
    assert torch.is_grad_enabled()
    yield
    left = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert left, "a run left torch with gradients switched off"


@pytest.fixture(scope="session")
def sixty() -> Graph:
    return load("demo:60")

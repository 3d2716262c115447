"""Fixtures for the exchange: topics that are forgotten again, and the carriers beside the tests."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lumos.exchange import TOPICS, Door, Topic
from lumos.graph import Graph, demo_graph

# The tests are imported by path (importlib mode), so that `carriers` is no package of its own.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def declare() -> Iterator[Callable[..., Topic]]:
    """Declares topics that exist for one test."""
    before = set(TOPICS)

    def declare(name: str, **settings: Any) -> Topic:
        return Topic(name=name, **{"door": Door.OPEN, "learns": "a test", **settings})

    yield declare
    for name in set(TOPICS) - before:
        del TOPICS[name]


@pytest.fixture(scope="session")
def sixty() -> Graph:
    return demo_graph(60, features=False)

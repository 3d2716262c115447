"""Fixtures for the exchange: topics that are forgotten again."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lumos.exchange import TOPICS, Door, Topic
from lumos.graph import Graph, demo_graph


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

"""Transports are chosen by name, and anybody can add one."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.exchange.transports import Isolated

import lumos
from lumos.errors import UsageError
from lumos.exchange import TRANSPORTS
from lumos.exchange.transports.loopback import Loopback

SETTINGS = lumos.TreeSettings(balancer="greedy", compare="ideal")


@pytest.fixture
def isolated() -> Iterator[str]:
    TRANSPORTS.register("isolated", Isolated)
    yield "isolated"
    TRANSPORTS.remove("isolated")


def test_the_loopback_is_one_of_them() -> None:
    assert TRANSPORTS["loopback"] is Loopback
    assert tuple(TRANSPORTS) == ("loopback", "gloo", "recording")


def test_a_transport_of_ones_own(isolated: str) -> None:
    graph = lumos.load("demo:12")
    trees = lumos.balance(graph, SETTINGS, shards=3, transport=isolated)
    same = lumos.balance(graph, SETTINGS)
    assert np.array_equal(trees.keep, same.keep)
    assert trees.ledger.totals() == same.ledger.totals()


def test_an_unknown_transport_is_answered_with_those_that_exist() -> None:
    with pytest.raises(
        UsageError, match=r"transport.* must be one of loopback, gloo, recording, got 'pigeon'"
    ):
        lumos.balance(lumos.load("demo:12"), SETTINGS, transport="pigeon")


def test_nobody_outside_the_exchange_names_the_loopback() -> None:
    sources = Path(lumos.__file__).parent
    naming = {
        path.relative_to(sources).parts[0]
        for path in sources.rglob("*.py")
        if "Loopback" in path.read_text("utf-8")
    }
    assert naming == {"exchange"}

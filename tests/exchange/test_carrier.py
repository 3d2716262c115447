"""Carriers are chosen by name, and anybody can add one."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.exchange.carriers import Isolated

import lumos
from lumos.errors import UsageError
from lumos.exchange import CARRIERS
from lumos.exchange.transports.loopback import Loopback

SETTINGS = lumos.TreeSettings(balancer="greedy", compare="ideal")


@pytest.fixture
def isolated() -> Iterator[str]:
    CARRIERS.register("isolated", Isolated)
    yield "isolated"
    CARRIERS.remove("isolated")


def test_the_loopback_is_one_of_them() -> None:
    assert CARRIERS["loopback"] is Loopback
    assert tuple(CARRIERS) == ("loopback", "gloo", "recording")


def test_a_carrier_of_ones_own(isolated: str) -> None:
    graph = lumos.load("demo:12")
    trees = lumos.balance(graph, SETTINGS, shards=3, carrier=isolated)
    same = lumos.balance(graph, SETTINGS)
    assert np.array_equal(trees.keep, same.keep)
    assert trees.ledger.totals() == same.ledger.totals()


def test_an_unknown_carrier_is_answered_with_those_that_exist() -> None:
    with pytest.raises(
        UsageError, match=r"carrier.* must be one of loopback, gloo, recording, got 'pigeon'"
    ):
        lumos.balance(lumos.load("demo:12"), SETTINGS, carrier="pigeon")


def test_nobody_outside_the_exchange_names_the_loopback() -> None:
    sources = Path(lumos.__file__).parent
    naming = {
        path.relative_to(sources).parts[0]
        for path in sources.rglob("*.py")
        if "Loopback" in path.read_text("utf-8")
    }
    assert naming == {"exchange"}

"""The book of releases: a symbol is for life, anything new pays, a life has an end."""

from pathlib import Path
from typing import Any

import pytest
from running import Wire
from strictly import heard

from lumos import Graph, LumosError, load
from lumos.errors import BudgetExceeded

SYMBOL = "strict/symbol"


def symbols(wire: Wire) -> dict[int, bytes]:
    return {message.sender: message.body for message in wire.all_of(SYMBOL)}


@pytest.fixture
def book(tmp_path: Path, short: dict[str, int]) -> dict[str, Any]:
    return {"book": tmp_path / "book.npz", **short}


def test_what_was_said_is_said_again_for_nothing(sixty: Graph, book: dict[str, Any]) -> None:
    first, wire = heard(sixty, **book)
    assert first.ledger.epsilon_collusion == 2.0
    for settings in ({}, {"seed": 5}, {"coins": "system"}, {"shards": 3}, {"protect": "none"}):
        again, later = heard(sixty, **book, **settings)
        assert symbols(later) == symbols(wire)
        assert again.ledger.epsilon_per_receiver == again.ledger.epsilon_collusion == 0.0


def test_anything_new_pays_until_the_life_is_spent(sixty: Graph, book: dict[str, Any]) -> None:
    first, wire = heard(sixty, epsilon=2.0, **book)
    second, other = heard(sixty, epsilon=1.5, **book)
    assert second.ledger.epsilon_collusion == 1.5
    before = book["book"].read_bytes()
    with pytest.raises(BudgetExceeded, match=r"ε = 1 would exceed the lifetime budget of 4 of 60"):
        heard(sixty, epsilon=1.0, **book)
    with pytest.raises(BudgetExceeded):
        heard(sixty, epsilon=2.0, mechanism="oue", **book)
    assert book["book"].read_bytes() == before
    _, later = heard(sixty, epsilon=2.0, **book)
    assert symbols(later) == symbols(wire)
    assert first.ledger.epsilon_collusion == 2.0
    assert len(symbols(other)) == len(symbols(wire))


def test_a_refused_release_sends_nothing(sixty: Graph, book: dict[str, Any]) -> None:
    from running import listening
    from strictly import strict

    with listening() as wire, pytest.raises(BudgetExceeded):
        strict(sixty, epsilon=2.0, lifetime_epsilon=1.0, **book)
    assert SYMBOL not in wire.topics()


def test_the_book_of_another_graph_is_refused(sixty: Graph, book: dict[str, Any]) -> None:
    heard(sixty, **book)
    with pytest.raises(LumosError, match="belongs to another graph"):
        heard(load("demo:61"), **book)


def test_the_control_is_not_entered(sixty: Graph, book: dict[str, Any]) -> None:
    _, wire = heard(sixty, control=True, **book)
    control, main = ({m.sender: m.body for m in messages} for messages in wire.of(SYMBOL))
    _, again = heard(sixty, seed=3, **book)
    assert symbols(again) == main != control

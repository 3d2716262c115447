"""The book of releases: a symbol is for life, anything new pays, a life has an end."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.runs.running import Wire, listening
from tests.strict.strictly import run_with_wire, strict

from lumos import Graph, LumosError, load
from lumos.errors import BudgetExceeded
from lumos.runs.events import EpochEvent
from lumos.storage import read_arrays, write_arrays
from lumos.strict.release_book import ReleaseBook

SYMBOL = "strict/symbol"


def symbols(wire: Wire) -> dict[int, bytes]:
    return {message.sender: message.body for message in wire.all_of(SYMBOL)}


@pytest.fixture
def book(tmp_path: Path, short: dict[str, int]) -> dict[str, Any]:
    return {"book": tmp_path / "book.npz", **short}


# In runs.


@pytest.mark.parametrize(
    "settings",
    [
        {"coins": "system"},
        {"protect": "none"},
        {"update_epsilon": 4.0},
        {"shards": 3, "relay": 2},
        {"seed": 5},
    ],
)
def test_reusing_a_release_costs_nothing(
    settings: dict[str, Any], sixty: Graph, book: dict[str, Any]
) -> None:
    first, wire = run_with_wire(sixty, **book)
    assert first.ledger.epsilon_collusion == 2.0
    before = book["book"].read_bytes()
    again, later = run_with_wire(sixty, **book, **settings)
    assert symbols(later) == symbols(wire)
    assert book["book"].read_bytes() == before  # nothing was paid
    assert again.ledger.epsilon_per_receiver == again.ledger.epsilon_collusion == 0.0


def test_another_seed_says_the_same_and_pays_nothing(sixty: Graph, book: dict[str, Any]) -> None:
    _, wire = run_with_wire(sixty, **book)
    before = book["book"].read_bytes()
    _, later = run_with_wire(sixty, seed=5, **book)
    assert symbols(later) == symbols(wire)
    assert book["book"].read_bytes() == before


@pytest.mark.parametrize("shards", [1, 3])
def test_the_run_that_paid_reports_it_again(
    shards: int, sixty: Graph, book: dict[str, Any]
) -> None:
    """An equal run is the same run: its table may not say less the second time."""
    first, wire = run_with_wire(sixty, **book)
    before = book["book"].read_bytes()
    again, later = run_with_wire(sixty, shards=shards, **book)
    assert symbols(later) == symbols(wire)
    assert book["book"].read_bytes() == before
    assert again.ledger.epsilon_per_receiver == again.ledger.epsilon_collusion == 2.0
    assert_array_equal(again.ledger.device_epsilon, first.ledger.device_epsilon)
    assert again.promises == first.promises


def test_anything_new_pays_until_the_life_is_spent(sixty: Graph, book: dict[str, Any]) -> None:
    first, wire = run_with_wire(sixty, epsilon=2.0, **book)
    second, other = run_with_wire(sixty, epsilon=1.5, **book)
    assert second.ledger.epsilon_collusion == 1.5
    before = book["book"].read_bytes()
    with pytest.raises(BudgetExceeded, match=r"ε = 1 would .* ε = 4 \(60 of 60 devices"):
        run_with_wire(sixty, epsilon=1.0, **book)
    with pytest.raises(BudgetExceeded):
        run_with_wire(sixty, epsilon=2.0, mechanism="oue", **book)
    assert book["book"].read_bytes() == before
    _, later = run_with_wire(sixty, epsilon=2.0, **book)
    assert symbols(later) == symbols(wire)
    assert first.ledger.epsilon_collusion == 2.0
    assert len(symbols(other)) == len(symbols(wire))


def test_a_refused_release_sends_nothing(sixty: Graph, book: dict[str, Any]) -> None:
    with listening() as wire, pytest.raises(BudgetExceeded):
        strict(sixty, epsilon=2.0, lifetime_epsilon=1.0, **book)
    assert SYMBOL not in wire.topics()


def test_the_book_of_another_graph_is_refused(sixty: Graph, book: dict[str, Any]) -> None:
    run_with_wire(sixty, **book)
    with pytest.raises(LumosError, match="belongs to another graph"):
        run_with_wire(load("demo:61"), **book)


def test_the_control_is_not_entered(sixty: Graph, book: dict[str, Any]) -> None:
    _, wire = run_with_wire(sixty, control=True, **book)
    control, main = ({m.sender: m.body for m in messages} for messages in wire.of(SYMBOL))
    _, again = run_with_wire(sixty, seed=3, **book)
    assert symbols(again) == main != control


class Pulled(KeyboardInterrupt):
    """Somebody pulled the plug."""


def pulled_when_paid(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The money is gone, and not one symbol is out."""
    settle = ReleaseBook.settle

    def pulled(self: ReleaseBook, *args: Any) -> Any:
        settle(self, *args)
        raise Pulled

    patch.setattr(ReleaseBook, "settle", pulled)
    return {}


def pulled_before_the_checkpoint(_: pytest.MonkeyPatch) -> dict[str, Any]:
    """Symbols are out, and the next checkpoint is not written."""

    def interrupt(event: EpochEvent) -> None:
        if event.epoch == 5:
            raise Pulled

    return {"on_epoch": interrupt}


@pytest.mark.parametrize("pull", [pulled_when_paid, pulled_before_the_checkpoint])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_run_that_was_interrupted_after_it_paid_reports_what_it_paid(
    pull: Callable[[pytest.MonkeyPatch], dict[str, Any]],
    shards: int,
    sixty: Graph,
    book: dict[str, Any],
    tmp_path: Path,
    ledger_differences: Any,
) -> None:
    stops = {"encoder_epochs": 4, "epochs": 12, "checkpoint_every": 2, "shards": shards}
    apart = strict(sixty, **{**book, **stops, "book": tmp_path / "apart.npz"})
    settings = {**book, **stops, "out": tmp_path / "run"}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Pulled):
        strict(sixty, **settings, **pull(patch))
    assert (read_arrays(tmp_path / "run" / "checkpoint.npz")["epoch"]) == 4
    paid = read_arrays(book["book"])
    assert paid["spent"].max() == 2.0
    resumed = strict(sixty, resume=True, **settings)
    assert resumed.ledger.epsilon_per_receiver == resumed.ledger.epsilon_collusion == 2.0
    assert ledger_differences(resumed.ledger, apart.ledger) == []
    assert resumed.promises == apart.promises
    spent = read_arrays(book["book"])["spent"]
    assert_array_equal(spent, np.full(60, 2.0))  # once


# The book itself.

ALL = np.arange(5)


def first(value: int, devices: int = 5) -> np.ndarray:
    return np.full((devices, 2), value, np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "book.npz"


def test_every_device_pays_for_itself(path: Path) -> None:
    """Devices that were away in one run pay in the next; those that were there do not."""
    one, other = (ReleaseBook(path, "graph", 5, 4.0, run) for run in ("/one", "/other"))
    words, paid = one.settle("kind", np.array([2, 0]), 1.5, np.array([[20, 20], [0, 0]], np.uint8))
    assert_array_equal(words, [[20, 20], [0, 0]])
    assert_array_equal(paid, [1.5, 1.5])
    words, paid = other.settle("kind", np.array([4, 2, 1]), 1.5, first(9, 3))
    assert_array_equal(words, [[9, 9], [20, 20], [9, 9]])
    assert_array_equal(paid, [1.5, 0, 1.5])
    for book, expected in ((one, [1.5, 0, 1.5, 0, 0]), (other, [0, 1.5, 0, 0, 1.5])):
        mine = np.array([0, 1, 2, 4])
        words, paid = book.settle("kind", mine, 1.5, first(7, 4))
        assert_array_equal(words[:, 0], [0, 9, 20, 9])
        assert_array_equal(paid, np.array(expected)[mine])
    assert_array_equal(read_arrays(path)["spent"], [1.5, 1.5, 1.5, 0, 1.5])


def test_one_device_that_cannot_pay_stops_all(path: Path) -> None:
    book = ReleaseBook(path, "graph", 5, 4.0, "/one")
    book.settle("kind", np.array([3]), 3.0, first(1, 1))
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded, match=r"ε = 2 would .* ε = 4 \(1 of 5 devices"):
        book.settle("other kind", ALL, 2.0, first(2))
    assert path.read_bytes() == before
    words, paid = book.settle("other kind", np.array([0, 1, 2, 4]), 2.0, first(3, 4))
    assert_array_equal(words, first(3, 4))
    assert_array_equal(paid, np.full(4, 2.0))
    book.settle("kind", ALL[3:4], 3.0, first(4, 1))  # reuse is free, also at the limit


def test_a_book_that_was_opened_before_sees_what_was_paid_since(path: Path) -> None:
    one, other = (ReleaseBook(path, "graph", 5, 4.0, run) for run in ("/one", "/other"))
    one.settle("kind", ALL, 3.0, first(1))
    words, paid = other.settle("kind", ALL, 3.0, first(2))
    assert_array_equal(words, first(1))
    assert_array_equal(paid, np.zeros(5))
    with pytest.raises(BudgetExceeded):
        other.settle("other kind", ALL, 3.0, first(2))
    assert_array_equal(read_arrays(path)["spent"], np.full(5, 3.0))


def test_books_that_settle_at_once_take_turns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both want to say something first, and each something of its own: one of them is first."""

    def slowly(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.02)  # time enough to get between reading and writing
        write_arrays(*args, **kwargs)

    monkeypatch.setattr("lumos.strict.release_book.write_arrays", slowly)
    books = [ReleaseBook(path, "graph", 5, 4.0, f"/{run}") for run in range(4)]
    start = Barrier(len(books))

    def settle(number: int) -> list[Any]:
        start.wait()
        found: list[Any] = []
        for kind, epsilon in (("same", 1.0), (f"own {number}", 1.5)):
            try:
                found.append(books[number].settle(kind, ALL, epsilon, first(10 + number)))
            except BudgetExceeded:
                found.append(None)
        return found

    with ThreadPoolExecutor(len(books)) as pool:
        results = list(pool.map(settle, range(len(books))))
    words = [same[0] for same, _ in results]
    paid = [float(same[1].sum()) for same, _ in results]
    assert sorted(paid) == [0, 0, 0, 5.0]
    for mine in words:
        assert_array_equal(mine, first(10 + int(np.argmax(paid))))
    # 1 for what all say, 1.5 for each of two: for a third it is not enough.
    assert sum(own is not None for _, own in results) == 2
    kept = read_arrays(path)
    assert_array_equal(kept["spent"], np.full(5, 4.0))
    for number, (_, own) in enumerate(results):
        assert (f"said/own {number}" in kept) == (own is not None)
        if own is not None:
            assert_array_equal(kept[f"said/own {number}"], first(10 + number))

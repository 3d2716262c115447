"""Links and the book of releases: symbol and colour are for life, and a new kind pays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.narrow import present
from tests.runs.running import Wire
from tests.strict.linking import run_with_wire
from tests.strict.strictly import run_with_wire as classified

from lumos import Graph
from lumos.device.coins import PublicCoins
from lumos.errors import BudgetExceeded
from lumos.storage import read_arrays
from lumos.training.split import Role, split_vertices

pytestmark = pytest.mark.usefixtures("short")

SYMBOL, ANSWER = "strict/symbol", "strict/answer"


def symbols(wire: Wire) -> dict[int, bytes]:
    return {message.sender: message.body for message in wire.all_of(SYMBOL)}


def spent(path: Path) -> np.ndarray:
    return read_arrays(path)["spent"]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "book.npz"


@pytest.mark.parametrize(
    "settings", [{"coins": "system"}, {"protect": "none", "relay": 2}, {"shards": 3, "answer": 2}]
)
def test_reusing_a_release_costs_nothing(
    settings: dict[str, Any], sixty: Graph, book: Path
) -> None:
    """To neighbours and to whoever asks: the same symbol, the same colour."""
    first, wire = run_with_wire(sixty, book=book, relay="none")
    assert first.ledger.epsilon_per_receiver == first.ledger.epsilon_collusion == 2.0
    before = spent(book)
    assert (before == 2.0).all()
    again, later = run_with_wire(sixty, book=book, **{"relay": "none", **settings})
    assert symbols(later) == symbols(wire)
    assert_array_equal(spent(book), before)  # nothing was paid
    assert again.ledger.epsilon_per_receiver == again.ledger.epsilon_collusion == 0.0
    assert {m.epsilon for topic in (SYMBOL, ANSWER) for m in later.all_of(topic)} == {0.0}
    own = symbols(wire)
    half = len(later.all_of(ANSWER)[0].body) // 2
    for message in later.all_of(ANSWER):
        if message.sender in own:
            assert bytes([message.body[0], message.body[half]]) == own[message.sender]


def test_entries_of_other_features_are_another_kind(sixty: Graph, book: Path) -> None:
    """With `holders`, which features are used depends on the data; so many are not the same."""
    settings = {"protect": "holders", "relay": "none", "lifetime_epsilon": 100.0, "book": book}
    kinds = set()
    for min_holders in (2, 4, 2, 8):
        result, _ = run_with_wire(sixty, min_holders=min_holders, **settings)
        kinds.add(result.model.weights["codebook"].shape)
        assert (spent(book) == 2.0 * len(kinds)).all()
    assert len(kinds) > 1


def test_the_run_that_paid_reports_it_again(sixty: Graph, book: Path) -> None:
    first, _ = run_with_wire(sixty, book=book, relay="none")
    again, _ = run_with_wire(sixty, book=book, relay="none", shards=2)
    assert again.promises == first.promises
    assert_array_equal(again.ledger.device_epsilon, first.ledger.device_epsilon)


@pytest.mark.parametrize(
    ("first", "second", "width"),
    [("auto", "none", 1), ("none", "auto", 2), (256, 2, 2), (2, 256, 2)],
)
def test_another_number_of_colours_costs_nothing(
    first: Any, second: Any, width: int, sixty: Graph, book: Path
) -> None:
    """The symbol stays; a colour of another kind is new; without colours, none is released."""
    _, wire = run_with_wire(sixty, book=book, relay="none", colours=first)
    before = spent(book)
    _, later = run_with_wire(sixty, book=book, relay="none", colours=second)
    one, other = symbols(wire), symbols(later)
    assert {device: body[:1] for device, body in one.items()} == {
        device: body[:1] for device, body in other.items()
    }
    assert {len(body) for body in other.values()} == {width}
    assert_array_equal(spent(book), before)
    if second == 256:
        assert len({body[1] for body in other.values()}) > 20
    _, back = run_with_wire(sixty, book=book, relay="none", colours=first)
    assert symbols(back) == one  # and the old colour is not forgotten


def test_another_codebook_is_another_kind_and_pays(sixty: Graph, book: Path) -> None:
    run_with_wire(sixty, book=book, relay="none")
    result, _ = run_with_wire(sixty, book=book, relay="none", codebook=4)
    assert result.ledger.epsilon_collusion == 2.0
    assert (spent(book) == 4.0).all()
    with pytest.raises(BudgetExceeded, match="lifetime"):
        run_with_wire(sixty, book=book, relay="none", codebook=5)
    run_with_wire(sixty, book=book, relay="none")  # an earlier release is still allowed


def test_a_control_writes_nothing(sixty: Graph, book: Path) -> None:
    _, wire = run_with_wire(sixty, book=book, relay="none", control=True)
    main = {m.sender: m.body for m in wire.of(SYMBOL)[1]}
    _, later = run_with_wire(sixty, book=book, relay="none")
    assert symbols(later) == main
    assert (spent(book) == 2.0).all()


def test_another_seed_says_the_same_and_pays_nothing(sixty: Graph, book: Path) -> None:
    _, wire = run_with_wire(sixty, book=book, relay="none")
    _, later = run_with_wire(sixty, book=book, relay="none", seed=5)
    both = symbols(wire).keys() & symbols(later).keys()
    assert all(symbols(wire)[device] == symbols(later)[device] for device in both)
    assert (spent(book) == 2.0).all()


def test_classify_after_link_pays_again(sixty: Graph, book: Path) -> None:
    """The symbol of a feature row and that of a label are two releases."""
    run_with_wire(sixty, book=book, relay="none")
    result, _ = classified(sixty, book=book, epsilon=2.0)
    assert result.ledger.epsilon_collusion == 2.0
    roles = split_vertices(present(sixty.labels), PublicCoins(0))
    draws = (roles == Role.TRAIN) | (roles == Role.VALIDATION)
    assert_array_equal(spent(book), np.where(draws, 4.0, 2.0))
    with pytest.raises(BudgetExceeded, match="lifetime"):
        run_with_wire(sixty, book=book, relay="none", codebook=4)


def test_kept_symbols_keep_their_codebook(sixty: Graph, book: Path) -> None:
    """A symbol for life names an entry of the codebook of its time, whatever a later run learns."""
    first, _ = run_with_wire(sixty, book=book, relay="none")
    later, _ = run_with_wire(sixty, book=book, relay="none", seed=5)
    fresh, _ = run_with_wire(sixty, relay="none", seed=5)
    assert_array_equal(later.model.weights["codebook"], first.model.weights["codebook"])
    assert_array_equal(
        later.model.weights["codebook_weights"], first.model.weights["codebook_weights"]
    )
    assert (fresh.model.weights["codebook"] != first.model.weights["codebook"]).any()
    # Features in another form are another kind of symbol, and pay.
    mixed, _ = run_with_wire(sixty, book=book, relay="none", protect="projection", projection=16)
    assert mixed.model.weights["codebook"].shape[1] == 16
    assert (spent(book) == 4.0).all()

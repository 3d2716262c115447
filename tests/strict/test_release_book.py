"""The book of releases: a symbol is for life, anything new pays, a life has an end."""

import stat
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
from lumos.device.coins import PrivateCoins, simulated_secrets
from lumos.encode.label_draws import LabelDraws
from lumos.encode.label_form import LabelForm
from lumos.errors import BudgetExceeded, UsageError
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


def test_only_the_owner_can_read_a_book(path: Path) -> None:
    book = ReleaseBook(path, "graph", 5, 4.0, "/one")
    path.with_name(path.name + ".new").write_text("left by an interruption, readable by all")
    book.settle("kind", ALL, 1.0, first(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.with_name(path.name + ".new").exists()


# Labels.

KRR, DIGITS = LabelForm(4, 1, 4), LabelForm(20, 2, 5)
MANY = 400
LABELS = np.arange(MANY) % 4


class Devices:
    """Devices that ask the book for draws of their labels, in runs with coins of their own."""

    def __init__(self, path: Path, lifetime: float = 8.0) -> None:
        self.path, self.lifetime = path, lifetime

    def open(self, run: str) -> ReleaseBook:
        return ReleaseBook(self.path, "graph", MANY, self.lifetime, run)

    def ask(
        self,
        run: str,
        *epsilons: float,
        form: LabelForm = KRR,
        labels: np.ndarray = LABELS,
        devices: np.ndarray | None = None,
        classes: list[str] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        chosen = np.arange(MANY) if devices is None else devices
        secrets = simulated_secrets(sum(run.encode()), np.arange(MANY))
        return self.open(run).labels(
            form,
            chosen,
            labels[chosen],
            epsilons,
            coins=PrivateCoins(secrets),
            rows=chosen,
            classes=classes,
        )

    @property
    def spent(self) -> np.ndarray:
        return read_arrays(self.path)["spent"]


@pytest.fixture
def people(path: Path) -> Devices:
    return Devices(path)


@pytest.mark.parametrize("form", [KRR, DIGITS])
def test_a_label_is_drawn_once_and_paid_once(form: LabelForm, people: Devices) -> None:
    values, paid = people.ask("/one", 2.0, form=form)
    assert values.shape == (1, MANY)
    assert_array_equal(paid, np.full(MANY, 2.0))
    before = people.path.read_bytes()
    again, later = people.ask("/two", 2.0, form=form)
    assert_array_equal(again, values)
    assert_array_equal(later, np.zeros(MANY))
    assert people.path.read_bytes() == before


def test_the_draws_are_those_of_a_run_without_a_book(people: Devices) -> None:
    values, _ = people.ask("/one", 2.0, 3.0)
    coins = PrivateCoins(simulated_secrets(sum(b"/one"), np.arange(MANY)))
    alone = LabelDraws.first(KRR, LABELS, coins, np.arange(MANY))
    assert_array_equal(values, alone.at(2.0, 3.0))


def test_two_levels_at_once_cost_the_larger(people: Devices) -> None:
    values, paid = people.ask("/one", 2.0, 3.0)
    assert_array_equal(paid, np.full(MANY, 3.0))
    assert_array_equal(people.spent, np.full(MANY, 3.0))
    swapped, free = people.ask("/two", 3.0, 2.0)
    assert_array_equal(swapped, values[::-1])
    assert_array_equal(free, np.zeros(MANY))


def test_a_smaller_level_is_free_and_stored(people: Devices) -> None:
    people.ask("/one", 3.0)
    smaller, paid = people.ask("/two", 1.0)
    assert_array_equal(paid, np.zeros(MANY))
    assert_array_equal(people.spent, np.full(MANY, 3.0))
    again, _ = people.ask("/three", 1.0)
    assert_array_equal(again, smaller)  # other coins, the same draw


def test_a_larger_level_pays_the_difference(people: Devices) -> None:
    small, _ = people.ask("/one", 1.0)
    large, paid = people.ask("/two", 2.5)
    assert_array_equal(paid, np.full(MANY, 1.5))
    assert_array_equal(people.spent, np.full(MANY, 2.5))
    between, free = people.ask("/three", 1.0, 2.0, 2.5)
    assert_array_equal(between[[0, 2]], np.concatenate([small, large]))
    assert_array_equal(free, np.zeros(MANY))
    assert_array_equal(people.spent, np.full(MANY, 2.5))


def test_every_device_pays_for_its_own_label(people: Devices) -> None:
    """Whoever validated before and trains now, or was away, has the draw it has."""
    some, others = np.arange(0, MANY, 2), np.arange(50, MANY)
    early, _ = people.ask("/one", 3.0, devices=some)
    late, paid = people.ask("/two", 2.0, 4.0, devices=others)
    assert_array_equal(paid, np.where(others % 2 == 0, 1.0, 4.0))
    levels, _ = people.ask("/three", 3.0, 2.0, 4.0)
    assert_array_equal(levels[0][some], early[0])
    assert_array_equal(levels[1:, others], late)
    total = np.full(MANY, 4.0)
    assert_array_equal(people.spent, total)


def test_runs_report_again_what_they_paid(people: Devices) -> None:
    first_values, _ = people.ask("/one", 2.0)
    people.ask("/two", 2.0, 3.0)
    before = people.path.read_bytes()
    for run, epsilons, expected in (("/one", (2.0,), 2.0), ("/two", (2.0, 3.0), 1.0)):
        values, paid = people.ask(run, *epsilons)
        assert_array_equal(values[0], first_values[0])
        assert_array_equal(paid, np.full(MANY, expected))
    assert people.path.read_bytes() == before


def test_shards_draw_what_one_shard_draws(people: Devices, tmp_path: Path) -> None:
    whole, _ = people.ask("/one", 2.0, 3.0, form=DIGITS)
    apart = Devices(tmp_path / "apart.npz")
    parts = [
        apart.ask("/one", 2.0, 3.0, form=DIGITS, devices=part)
        for part in np.array_split(np.arange(MANY), 7)
    ]
    assert_array_equal(np.concatenate([values for values, _ in parts], axis=1), whole)
    assert all((paid == 3.0).all() for _, paid in parts)
    nobody, nothing = apart.ask("/one", 1.0, form=DIGITS, devices=np.arange(0))
    assert (nobody.shape, nothing.shape) == ((1, 0), (0,))
    assert_array_equal(apart.spent, people.spent)


def test_a_changed_label_pays_again(people: Devices) -> None:
    """On top, in full, with coins of its own; everybody else keeps what they have."""
    before, _ = people.ask("/one", 2.0, 3.0)
    labels = LABELS.copy()
    labels[:300] = (labels[:300] + 1) % 4
    after, paid = people.ask("/two", 2.0, labels=labels)
    assert_array_equal(paid, np.where(np.arange(MANY) < 300, 2.0, 0.0))
    assert_array_equal(people.spent, np.where(np.arange(MANY) < 300, 5.0, 3.0))
    assert_array_equal(after[0, 300:], before[0, 300:])
    # Back to the first label: a third draw, though secrets and level are those of the first.
    back, paid = people.ask("/one", 2.0)
    assert_array_equal(people.spent, np.where(np.arange(MANY) < 300, 7.0, 3.0))
    same = (back[0, :300] == before[0, :300]).mean()
    truth = KRR.table(2.0)[0, 0]
    assert same == pytest.approx(truth**2 + (1 - truth) ** 2 / 3, abs=0.15)
    assert same < 0.9


@pytest.mark.parametrize(
    "other",
    [
        {"form": LabelForm(5, 1, 5)},
        {"form": LabelForm(4, 2, 2)},
        {"classes": ["a", "b", "c", "d"]},
    ],
)
def test_other_classes_and_other_forms_pay_again(other: dict[str, Any], people: Devices) -> None:
    people.ask("/one", 2.0)
    _, paid = people.ask("/two", 1.0, **other)
    assert_array_equal(paid, np.full(MANY, 1.0))
    assert_array_equal(people.spent, np.full(MANY, 3.0))
    _, paid = people.ask("/three", 1.0, **other)
    assert_array_equal(paid, np.zeros(MANY))
    _, paid = people.ask("/four", 1.0, classes=["b", "a", "c", "d"])
    assert_array_equal(paid, np.full(MANY, 1.0))


def test_labels_and_releases_share_a_lifetime(path: Path) -> None:
    people = Devices(path, lifetime=4.0)
    people.open("/one").settle("kind", np.array([7]), 2.0, first(1, 1))
    before = path.read_bytes()
    with pytest.raises(
        BudgetExceeded, match=r"at ε = 3 would .* ε = 4 \(1 of 400 devices.*`lifetime_epsilon`"
    ):
        people.ask("/one", 2.0, 3.0)
    assert path.read_bytes() == before
    people.ask("/one", 2.0)
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded):
        people.ask("/two", 2.5)
    with pytest.raises(BudgetExceeded, match=r"\(400 of 400"):
        people.ask("/two", 2.5, labels=(LABELS + 1) % 4)
    assert path.read_bytes() == before
    people.ask("/two", 1.5)  # free, also at the limit
    with pytest.raises(BudgetExceeded, match=r"\(1 of 400"):
        people.open("/three").settle("other kind", np.arange(MANY), 1.0, first(1, MANY))


@pytest.mark.parametrize("epsilons", [(), (float("inf"),), (2.0, 0.0)])
def test_levels_that_cannot_be_drawn_are_refused(epsilons: tuple[float, ...], path: Path) -> None:
    with pytest.raises(UsageError):
        Devices(path, lifetime=float("inf")).ask("/one", *epsilons)
    assert not path.exists()


def test_a_book_of_many_devices_is_quick(path: Path) -> None:
    devices = np.arange(22_470)
    coins = PrivateCoins(simulated_secrets(0, devices))
    labels = devices % 4

    def ask(run: str, *epsilons: float) -> float:
        book = ReleaseBook(path, "graph", len(devices), 8.0, run)
        began = time.perf_counter()
        book.labels(KRR, devices, labels, epsilons, coins=coins, rows=devices)
        return time.perf_counter() - began

    assert ask("/one", 2.0, 3.0) < 2  # a tenth of a second on an idle machine
    assert ask("/two", 2.5, 4.0) < 2
    assert ask("/three", 2.5, 4.0) < 2


# What is new in every run.


def test_what_is_new_in_every_run_is_charged_once_in_each(path: Path) -> None:
    one, other = (ReleaseBook(path, "graph", 5, 1.0, run) for run in ("/one", "/other"))
    assert_array_equal(one.charge("opinions", ALL[:3], 8.0, 20.0), np.full(3, 8.0))
    before = path.read_bytes()
    assert_array_equal(one.charge("opinions", ALL[:3], 8.0, 20.0), np.full(3, 8.0))
    assert path.read_bytes() == before
    assert_array_equal(other.charge("opinions", ALL, 8.0, 20.0), [16, 16, 16, 8, 8])
    # Shards of a run charge one after another; an earlier run that is repeated was charged.
    assert_array_equal(one.charge("opinions", ALL, 8.0, 20.0), np.full(5, 16.0))
    assert_array_equal(one.charge("other messages", ALL, 1.0, 1.0), np.ones(5))
    assert_array_equal(read_arrays(path)["spent"], np.zeros(5))  # releases are another account


def test_a_charge_above_its_limit_is_refused(path: Path) -> None:
    ReleaseBook(path, "graph", 5, 1.0, "/one").charge("opinions", ALL[:2], 8.0, 10.0)
    before = path.read_bytes()
    book = ReleaseBook(path, "graph", 5, 1.0, "/two")
    with pytest.raises(
        BudgetExceeded,
        match=r"opinions of ε = 8 would .* ε = 10 \(2 of 5 devices.*raise `lifetime_opinions`",
    ):
        book.charge("opinions", ALL, 8.0, 10.0, setting="lifetime_opinions")
    assert path.read_bytes() == before
    with pytest.raises(UsageError, match="must be 0 or more"):
        book.charge("opinions", ALL, -1.0, 10.0)
    book.charge("opinions", ALL, 8.0, 16.0)

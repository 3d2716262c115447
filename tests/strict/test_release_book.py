"""The book of releases: a randomized label is for life, anything new pays, a life has an end."""

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
from tests.narrow import present
from tests.runs.running import Wire, listening
from tests.strict.strictly import run_with_wire, small, strict

from lumos import Graph
from lumos.device.randomness import PrivateRandomness, PublicRandomness, simulated_secrets
from lumos.errors import BudgetExceeded, UsageError
from lumos.ldp.labels import LabelDraws, LabelForm
from lumos.runs.run import Run
from lumos.storage import read_arrays, write_arrays
from lumos.strict.accounting import PROPAGATED
from lumos.strict.book import ReleaseBook
from lumos.strict.book_records import Charge
from lumos.strict.guarantees import NEWLY
from lumos.training.split import Role, split_vertices
from lumos.training.trainer import EpochEvent

RANDOMIZED_LABEL = "strict/symbol"


def randomized_labels(wire: Wire) -> dict[int, bytes]:
    return {message.sender: message.body for message in wire.all_of(RANDOMIZED_LABEL)}


@pytest.fixture
def book(tmp_path: Path, short: dict[str, int]) -> dict[str, Any]:
    return {"book": tmp_path / "book.npz", **short}


# In runs.


def drawing(graph: Graph, seed: int = 0) -> np.ndarray:
    """[devices] who draws its label: those that train or validate."""
    roles = split_vertices(present(graph.labels), PublicRandomness(seed))
    return (roles == Role.TRAIN) | (roles == Role.VALIDATION)


def newly(run: Run, role: str) -> set[str]:
    """What the table says that a run newly spent."""
    row = next(row for row in run.guarantees if row["about"] == NEWLY)
    return set(row[role].split(", ")) - {"1e-05)"}


def propagated_labels_spent(book: dict[str, Any]) -> np.ndarray:
    return read_arrays(book["book"])["charged/opinions/spent"][0]


@pytest.mark.parametrize(
    "settings",
    [
        {"randomness": "system"},
        {"clip": 0.4},
        {"feature_epsilon": 4.0},
        {"shards": 3, "propagated_labels": 1},
        {"tree_network": True, "epochs": 12},
    ],
    ids=str,
)
def test_a_label_is_released_again_for_nothing_and_propagated_labels_are_new(
    settings: dict[str, Any], sixty: Graph, book: dict[str, Any]
) -> None:
    first, wire = run_with_wire(sixty, **book)
    assert first.ledger.epsilon_collusion == 3.0
    before = read_arrays(book["book"])
    assert_array_equal(before["spent"], np.where(drawing(sixty), 3.0, 0.0))
    again, later = run_with_wire(sixty, **{**book, **settings})
    assert randomized_labels(later) == randomized_labels(wire)
    # What a message discloses is what it discloses, whoever paid for it.
    assert again.ledger.epsilon_per_receiver == again.ledger.epsilon_collusion == 3.0
    after = read_arrays(book["book"])
    for name in before:  # nothing was paid for labels, and none was drawn
        if name == "spent" or name.startswith("labels/"):
            assert_array_equal(after[name], before[name], err_msg=name)
    talks = np.diff(sixty.offsets) > 0
    more = 4.0 * settings.get("propagated_labels", 2)
    assert_array_equal(before["charged/opinions/spent"][0], np.where(talks, 8.0, 0.0))
    assert_array_equal(propagated_labels_spent(book), np.where(talks, 8.0 + more, 0.0))
    assert again.ledger.edge_epsilon == more


def test_another_seed_draws_for_new_devices_only(sixty: Graph, book: dict[str, Any]) -> None:
    """Who validated and now trains releases the draw it has."""
    seeds = range(4)
    found: dict[int, set[bytes]] = {}
    drew = np.zeros(60, np.bool_)
    for seed in seeds:
        run, wire = run_with_wire(sixty, seed=seed, **book)
        released = run.model.kept["released"] >= 0
        talks = np.diff(sixty.offsets) > 0
        assert_array_equal(run.ledger.device_epsilon, np.where(released & talks, 3.0, 0.0))
        drew |= drawing(sixty, seed)
        for device, body in randomized_labels(wire).items():
            found.setdefault(device, set()).add(body)
        assert_array_equal(read_arrays(book["book"])["spent"], np.where(drew, 3.0, 0.0))
    assert all(len(bodies) == 1 for bodies in found.values())
    assert drew.all()


@pytest.mark.parametrize("shards", [1, 3])
def test_the_run_that_paid_reports_it_again(
    shards: int, sixty: Graph, book: dict[str, Any]
) -> None:
    """An equal run is the same run: its table may not say less the second time."""
    first, wire = run_with_wire(sixty, **book)
    before = book["book"].read_bytes()
    again, later = run_with_wire(sixty, shards=shards, **book)
    assert randomized_labels(later) == randomized_labels(wire)
    assert later.of("strict/opinion") == wire.of("strict/opinion")
    assert book["book"].read_bytes() == before
    assert again.ledger.epsilon_per_receiver == again.ledger.epsilon_collusion == 3.0
    assert_array_equal(again.ledger.device_epsilon, first.ledger.device_epsilon)
    assert_array_equal(again.ledger.device_edge_epsilon, first.ledger.device_edge_epsilon)
    assert again.guarantees == first.guarantees


def test_a_larger_label_epsilon_keeps_the_randomized_label_a_degradation(
    book: dict[str, Any],
) -> None:
    """The larger draw is made so that the smaller one could have been made of it."""
    # So many that chance, which is another with every path of a book, does not decide.
    graph = small(6000, edges=9000)
    first, wire = run_with_wire(graph, label_epsilon=1.0, **book)
    assert first.ledger.epsilon_collusion == 1.0
    second, largest = run_with_wire(graph, label_epsilon=3.0, **book)
    assert second.ledger.epsilon_collusion == 3.0
    draws = drawing(graph)
    assert_array_equal(read_arrays(book["book"])["spent"], np.where(draws, 3.0, 0.0))
    assert "label ε = 2" in newly(second, "training devices")  # what the first run left to pay
    _, again = run_with_wire(graph, label_epsilon=1.0, **book)
    assert randomized_labels(again) == randomized_labels(wire)
    assert_array_equal(read_arrays(book["book"])["spent"], np.where(draws, 3.0, 0.0))
    small_draws, large_draws = randomized_labels(wire), randomized_labels(largest)
    same = np.mean([small_draws[device] == large_draws[device] for device in small_draws])
    form = LabelForm(4, 1, 4)
    kept = form.strength(1.0) / form.strength(3.0)
    expected = kept + (1 - kept) / 4
    spread = np.sqrt(expected * (1 - expected) / len(small_draws))
    assert same == pytest.approx(expected, abs=5 * spread)
    apart = (form.table(1.0)[0] * form.table(3.0)[0]).sum()  # of independent draws
    assert abs(same - expected) < abs(same - apart)


def test_devices_whose_label_has_changed_pay_again(book: dict[str, Any]) -> None:
    graph = small(60)
    labels = present(graph.labels).copy()
    changed = np.arange(60) % 3 == 0
    labels[changed] = (labels[changed] + 1) % 4
    other = Graph.from_edges(
        graph.edge_list(), devices=60, features=graph.features, labels=labels, classes=graph.classes
    )
    _, wire = run_with_wire(graph, lifetime_epsilon=6.0, **book)
    result, later = run_with_wire(other, lifetime_epsilon=6.0, **book)
    one, two = randomized_labels(wire), randomized_labels(later)
    assert one.keys() == two.keys()
    assert all(one[device] == two[device] for device in one if not changed[device])
    draws = drawing(graph)
    spent = read_arrays(book["book"])["spent"]
    assert_array_equal(spent, np.where(draws, np.where(changed, 6.0, 3.0), 0.0))
    sends = [device in one for device in range(60)]
    assert_array_equal(result.ledger.device_epsilon, np.where(sends, 3.0, 0.0))


def test_anything_new_pays_until_the_life_is_spent(sixty: Graph, book: dict[str, Any]) -> None:
    run_with_wire(sixty, label_epsilon=2.0, **book)
    smaller, _ = run_with_wire(sixty, label_epsilon=1.5, **book)
    assert not any(part.startswith("label") for part in newly(smaller, "training devices"))
    before = book["book"].read_bytes()
    with (
        listening() as wire,
        pytest.raises(BudgetExceeded, match=r"at ε = 5 would .* ε = 4 \(45 of 60 devices"),
    ):
        strict(sixty, label_epsilon=5.0, **book)
    assert wire.topics() == set()  # nothing was sent
    assert book["book"].read_bytes() == before  # nor written, not even for propagated labels
    larger, _ = run_with_wire(sixty, label_epsilon=4.0, **book)
    assert "label ε = 2" in newly(larger, "training devices")
    assert larger.ledger.epsilon_collusion == 4.0
    with pytest.raises(BudgetExceeded):  # another form is another release
        strict(sixty, label_epsilon=1.0, mechanism="digits", **book)


def test_propagated_labels_are_charged_in_every_run_up_to_their_limit(
    sixty: Graph, book: dict[str, Any]
) -> None:
    limit = {**book, "epochs": 9, "lifetime_propagated_epsilon": 20.0}
    for seed in (0, 1):  # 8 each
        run_with_wire(sixty, seed=seed, **limit)
    before = book["book"].read_bytes()
    for more in (
        {"propagated_labels": 2},
        {"propagated_labels": 3},
        {"propagated_labels": 1, "propagated_epsilon": 5.0},
    ):
        with listening() as wire, pytest.raises(BudgetExceeded) as refused:
            strict(sixty, seed=2, **limit, **more)
        assert "would exceed their lifetime limit ε = 20" in str(refused.value)
        assert "raise `lifetime_propagated_epsilon`" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert wire.topics() == set()
        assert book["book"].read_bytes() == before  # labels of new devices were not drawn either
    run_with_wire(sixty, seed=2, propagated_labels=1, **limit)  # 4 are left
    assert propagated_labels_spent(book).max() == 20.0
    run_with_wire(sixty, seed=3, propagated_labels=0, **limit)
    run_with_wire(sixty, seed=1, **limit)  # an earlier run that is repeated was charged
    assert propagated_labels_spent(book).max() == 20.0


def test_propagated_labels_have_no_limit_without_a_book(
    sixty: Graph, short: dict[str, int]
) -> None:
    strict(sixty, propagated_epsilon=50.0, **short)


def test_the_control_is_not_entered(sixty: Graph, book: dict[str, Any]) -> None:
    _, wire = run_with_wire(sixty, control=True, **book)
    control, main = ({m.sender: m.body for m in messages} for messages in wire.of(RANDOMIZED_LABEL))
    assert propagated_labels_spent(book).max() == 8.0  # those of the run
    _, again = run_with_wire(sixty, feature_epsilon=7.0, **book)
    assert randomized_labels(again) == main != control


class Pulled(KeyboardInterrupt):
    """Somebody pulled the plug."""


def pulled_when_drawn(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Labels are drawn and paid, and nothing is out."""
    labels = ReleaseBook.labels

    def pulled(self: ReleaseBook, *args: Any, **kwargs: Any) -> Any:
        labels(self, *args, **kwargs)
        raise Pulled

    patch.setattr(ReleaseBook, "labels", pulled)
    return {}


def pulled_when_charged(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Propagated labels are charged, and not one is out."""
    charge = ReleaseBook.charge

    def pulled(self: ReleaseBook, *args: Any, **kwargs: Any) -> Any:
        charge(self, *args, **kwargs)
        raise Pulled

    patch.setattr(ReleaseBook, "charge", pulled)
    return {}


def pulled_before_the_checkpoint(_: pytest.MonkeyPatch) -> dict[str, Any]:
    """Randomized labels and a propagated label are out, and the next checkpoint is not written."""

    def interrupt(event: EpochEvent) -> None:
        if event.epoch == 7:
            raise Pulled

    return {"on_epoch": interrupt}


@pytest.mark.parametrize(
    ("shards", "pull"),
    [
        (1, pulled_when_drawn),
        (1, pulled_when_charged),
        (1, pulled_before_the_checkpoint),
        (3, pulled_when_drawn),
        pytest.param(3, pulled_when_charged, marks=pytest.mark.long),
        pytest.param(3, pulled_before_the_checkpoint, marks=pytest.mark.long),
    ],
)
def test_a_run_that_was_interrupted_after_it_paid_reports_what_it_paid(
    pull: Callable[[pytest.MonkeyPatch], dict[str, Any]],
    shards: int,
    sixty: Graph,
    book: dict[str, Any],
    tmp_path: Path,
    ledger_differences: Any,
) -> None:
    stops = {"encoder_epochs": 2, "epochs": 9, "checkpoint_every": 2, "shards": shards}
    apart = strict(sixty, **{**book, **stops, "book": tmp_path / "apart.npz"})
    settings = {**book, **stops, "out": tmp_path / "run"}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Pulled):
        strict(sixty, **settings, **pull(patch))
    resumed = strict(sixty, resume=(tmp_path / "run" / "checkpoint.npz").exists(), **settings)
    assert resumed.ledger.epsilon_per_receiver == resumed.ledger.epsilon_collusion == 3.0
    assert ledger_differences(resumed.ledger, apart.ledger) == []
    assert resumed.guarantees == apart.guarantees
    once = np.where(drawing(sixty), 3.0, 0.0)
    assert_array_equal(read_arrays(book["book"])["spent"], once)
    assert propagated_labels_spent(book).max() == 8.0


# The book itself.

ALL = np.arange(5)
FIVE = tuple("abcde")


def propagated_labels(epsilon: float, limit: float = 20.0, name: str = PROPAGATED) -> Charge:
    return Charge(
        name=name,
        amounts=(epsilon,),
        limits=(limit,),
        reason=f"propagated labels of ε = {epsilon:g} would exceed ε = {limit:g}",
        advice="raise `lifetime`",
    )


def charged(path: Path, name: str = PROPAGATED) -> list[float]:
    """By id, in their order."""
    arrays = read_arrays(path)
    order = np.argsort(arrays["ids"])
    spent: list[float] = arrays[f"charged/{name}/spent"][0][order].tolist()
    return spent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "book.npz"


def test_books_that_are_used_at_once_take_turns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of four runs wants 1.5 of 4: two get it, whoever comes first."""

    def slowly(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.02)  # time enough to get between reading and writing
        write_arrays(*args, **kwargs)

    monkeypatch.setattr("lumos.strict.book.write_arrays", slowly)
    books = [ReleaseBook(path, FIVE, 4.0, f"/{run}") for run in range(4)]
    start = Barrier(len(books))

    def charge(number: int) -> bool:
        start.wait()
        try:
            books[number].charge(propagated_labels(1.5, 4.0), ALL)
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(len(books)) as pool:
        results = list(pool.map(charge, range(len(books))))
    assert sum(results) == 2
    assert charged(path) == [3.0] * 5


def test_only_the_owner_can_read_a_book(path: Path) -> None:
    book = ReleaseBook(path, FIVE, 4.0, "/one")
    path.with_name(path.name + ".new").write_text("left by an interruption, readable by all")
    book.charge(propagated_labels(1.0), ALL)
    for file in (path, path.with_name(path.name + ".lock")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not path.with_name(path.name + ".new").exists()


# Labels.

KRR, DIGITS = LabelForm(4, 1, 4), LabelForm(20, 2, 5)
MANY = 400
LABELS = np.arange(MANY) % 4


class Devices:
    """Devices that ask the book for draws of their labels, in runs with randomness of their own."""

    def __init__(self, path: Path, lifetime: float = 8.0) -> None:
        self.path, self.lifetime = path, lifetime

    def open(self, run: str) -> ReleaseBook:
        return ReleaseBook(self.path, [str(device) for device in range(MANY)], self.lifetime, run)

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
            randomness=PrivateRandomness(secrets),
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
    randomness = PrivateRandomness(simulated_secrets(sum(b"/one"), np.arange(MANY)))
    alone = LabelDraws.first(KRR, LABELS, randomness, np.arange(MANY))
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
    assert_array_equal(again, smaller)  # other randomness, the same draw


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
    empty, nothing = apart.ask("/one", 1.0, form=DIGITS, devices=np.arange(0))
    assert (empty.shape, nothing.shape) == ((1, 0), (0,))
    assert_array_equal(apart.spent, people.spent)


def test_a_changed_label_pays_again(people: Devices) -> None:
    """On top, in full, with randomness of its own; everybody else keeps what they have."""
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


def test_labels_have_a_lifetime(path: Path) -> None:
    people = Devices(path, lifetime=4.0)
    people.ask("/one", 3.0, devices=np.array([7]))
    before = path.read_bytes()
    with pytest.raises(
        BudgetExceeded, match=r"at ε = 2 would .* ε = 4 \(1 of 400 devices.*`lifetime_epsilon`"
    ):
        people.ask("/one", 2.0, form=LabelForm(5, 1, 5))
    assert path.read_bytes() == before
    people.ask("/two", 4.0)
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded, match=r"\(400 of 400"):
        people.ask("/two", 1.0, labels=(LABELS + 1) % 4)
    assert path.read_bytes() == before
    people.ask("/two", 1.5)  # free, also at the limit


@pytest.mark.parametrize("epsilons", [(), (float("inf"),), (2.0, 0.0)])
def test_levels_that_cannot_be_drawn_are_refused(epsilons: tuple[float, ...], path: Path) -> None:
    with pytest.raises(UsageError):
        Devices(path, lifetime=float("inf")).ask("/one", *epsilons)
    assert not path.exists()


# What is new in every run.


def test_what_is_new_in_every_run_is_charged_once_in_each(path: Path) -> None:
    one, other = (ReleaseBook(path, FIVE, 1.0, run) for run in ("/one", "/other"))
    one.charge(propagated_labels(8.0), ALL[:3])
    before = path.read_bytes()
    one.charge(propagated_labels(8.0), ALL[:3])
    assert path.read_bytes() == before
    other.charge(propagated_labels(8.0), ALL)
    assert charged(path) == [16, 16, 16, 8, 8]
    # Shards of a run charge one after another; an earlier run that is repeated was charged.
    one.charge(propagated_labels(8.0), ALL)
    assert charged(path) == [16.0] * 5
    one.charge(propagated_labels(1.0, 1.0, "other messages"), ALL)
    assert charged(path, "other messages") == [1.0] * 5
    assert_array_equal(read_arrays(path)["spent"], np.zeros(5))  # releases are another account


def test_a_charge_above_its_limit_is_refused(path: Path) -> None:
    ReleaseBook(path, FIVE, 1.0, "/one").charge(propagated_labels(8.0, 10.0), ALL[:2])
    before = path.read_bytes()
    book = ReleaseBook(path, FIVE, 1.0, "/two")
    for refuse in (book.charge, book.check_charge):
        with pytest.raises(
            BudgetExceeded,
            match=r"propagated labels of ε = 8 would .* ε = 10 \(2 of 5 devices.*raise `lifetime`",
        ):
            refuse(propagated_labels(8.0, 10.0), ALL)
    book.check_charge(propagated_labels(8.0, 16.0), ALL)
    assert path.read_bytes() == before
    book.charge(propagated_labels(8.0, 16.0), ALL)


def test_one_of_several_amounts_above_its_limit_is_enough(path: Path) -> None:
    charge = Charge(
        name="sums",
        amounts=(1.0, 2.0, 0.0, 0.0, 0.0),
        limits=(9.0, 3.0, 0.0, 0.0, 0.0),
        reason="sums",
    )
    ReleaseBook(path, FIVE, 1.0, "/one").charge(charge, ALL[:2])
    with pytest.raises(BudgetExceeded, match=r"2 of 5"):
        ReleaseBook(path, FIVE, 1.0, "/two").charge(charge, ALL)
    ReleaseBook(path, FIVE, 1.0, "/two").charge(charge, ALL[2:])
    spent = read_arrays(path)["charged/sums/spent"]
    assert_array_equal(spent, [[1.0] * 5, [2.0] * 5, *[[0.0] * 5] * 3])

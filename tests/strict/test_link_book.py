"""The devices' book in runs of links: propagated labels, calibration, partners and answers for
life."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.strict.linking import identical, linked, run_with_wire, town
from tests.strict.strictly import small, strict, the_same_randomness

from lumos import BudgetExceeded
from lumos.runs.run import Run
from lumos.storage import read_arrays
from lumos.strict.link.answers import halves
from lumos.strict.link.encoder import NOBODY, ROUNDS
from lumos.training.trainer import EpochEvent

DEVICES = 40
LOUD: dict[str, Any] = {"feature_epsilon": 1000.0, "lifetime_feature_epsilon": 10_000.0}
"""Nearly exact sums, which a book can still count."""


@pytest.fixture(autouse=True)
def randomness() -> Iterator[None]:
    """The path of a book is a setting, and settings name randomness: here it differs every time."""
    with the_same_randomness():
        yield


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "book.npz"


def propagated_labels_of(book: Path) -> np.ndarray:
    spent: np.ndarray = read_arrays(book)["charged/opinions/spent"][0]
    return spent


def calibrated_in(book: Path) -> np.ndarray:
    counts: np.ndarray = read_arrays(book)["answers/calibrated"]
    return counts


def test_a_run_pays_for_propagated_labels_and_calibration(book: Path) -> None:
    """Devices without neighbours tell nobody a propagated label; everybody is a non-neighbour to
    somebody."""
    graph = small(DEVICES)
    linked(graph, book=book)
    kept = graph.degrees > 0
    spent = propagated_labels_of(book)
    assert set(spent[kept].tolist()) <= {12.0, 0.0}
    assert (spent[~kept] == 0).all()
    assert (spent > 0).sum() > 25
    assert_array_equal(calibrated_in(book), [2] * DEVICES)
    assert not read_arrays(book)["answers/asked"].any()


def test_an_equal_run_pays_nothing_and_another_pays_again(book: Path) -> None:
    graph = small(DEVICES)
    one = linked(graph, book=book)
    before = propagated_labels_of(book)
    two = linked(graph, book=book, shards=3)
    identical(one, two)
    assert_array_equal(propagated_labels_of(book), before)
    assert_array_equal(calibrated_in(book), [2] * DEVICES)
    linked(graph, book=book, seed=1)
    assert propagated_labels_of(book).max() == 24.0
    assert_array_equal(calibrated_in(book), [4] * DEVICES)
    linked(graph, book=book, randomness="system")
    assert_array_equal(calibrated_in(book), [6] * DEVICES)


@pytest.mark.parametrize(
    ("limits", "runs", "words"),
    [
        ({"lifetime_propagated_epsilon": 24.0}, 2, "raise `lifetime_propagated_epsilon`"),
        (
            {"score_queries": 5},
            2,
            "2 score queries of calibration would exceed the lifetime limit of 5",
        ),
        ({"score_queries": 3}, 1, "predict with an earlier run, or raise `score_queries`"),
    ],
)
def test_a_run_beyond_a_limit_is_refused_before_it_begins(
    limits: dict[str, Any], runs: int, words: str, book: Path, tmp_path: Path
) -> None:
    graph = small(DEVICES)
    for seed in range(runs):
        linked(graph, book=book, seed=seed, **limits)
    before = book.read_bytes()
    begun: list[EpochEvent] = []
    with pytest.raises(BudgetExceeded) as caught:
        linked(graph, book=book, seed=runs, on_epoch=begun.append, **limits)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert begun == []
    assert book.read_bytes() == before
    linked(graph, book=book, seed=0, **limits)  # a run that was paid for may be repeated


def test_a_control_pays_nothing(book: Path) -> None:
    linked(small(DEVICES), book=book, control=True)
    assert propagated_labels_of(book).max() == 12.0
    assert_array_equal(calibrated_in(book), [2] * DEVICES)


def test_partners_are_found_once_for_life(book: Path) -> None:
    """Every search is a hint at degrees; with a book there is one, and later runs keep to it."""
    graph = small(DEVICES)
    _, wire = run_with_wire(graph, book=book)
    assert len(wire.of("strict/proposal")) == 2 * ROUNDS  # partners, and held-back edges
    kept = read_arrays(book)["partners"]
    here = np.flatnonzero(kept != NOBODY)
    assert len(here)
    assert_array_equal(kept[kept[here]], here)
    _, later = run_with_wire(graph, book=book, seed=1, shards=3)
    assert len(later.of("strict/proposal")) == ROUNDS  # held-back edges of this run
    assert_array_equal(read_arrays(book)["partners"], kept)


def test_an_interrupted_run_pays_once(book: Path, tmp_path: Path) -> None:
    graph = small(30)
    settings = {"book": book, "checkpoint_every": 1, "out": tmp_path / "run"}
    whole = linked(graph, checkpoint_every=1, book=tmp_path / "other.npz")

    def interrupt(event: EpochEvent) -> None:
        if event.epoch == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        linked(graph, on_epoch=interrupt, **settings)
    resumed = linked(graph, resume=True, **settings)
    identical(whole, resumed)
    assert propagated_labels_of(book).max() == 12.0
    assert_array_equal(calibrated_in(book), [2] * 30)


def test_classify_and_links_share_propagated_labels_and_nothing_else(book: Path) -> None:
    graph = small(DEVICES)
    linked(graph, book=book)
    strict(graph, book=book)
    assert propagated_labels_of(book).max() == 12.0 + 8.0
    assert_array_equal(calibrated_in(book), [2] * DEVICES)


def ask_all(run: Run, device: int) -> int:
    """How many of all others answered one device."""
    pairs = [(device, peer) for peer in range(run.about.devices) if peer != device]
    return int(run.ask_links(ids=pairs).answered.sum())


@pytest.mark.parametrize("kept", ["in memory", "in a folder"])
def test_runs_with_different_encoders_share_one_budget(
    kept: str, book: Path, tmp_path: Path
) -> None:
    graph = town()
    runs = []
    for seed in (0, 2):
        out = {"out": tmp_path / f"run {seed}"} if kept == "in a folder" else {}
        runs.append(linked(graph, **LOUD, seed=seed, book=book, **out))
    assert all(run.model.choice != "degree" for run in runs)
    asking, _ = halves(16)
    first = ask_all(runs[0], 5)
    assert first == asking - 1  # four answers of calibration: one is taken from each half
    assert ask_all(runs[1], 5) == 0
    assert ask_all(runs[0], 5) == first  # answers are kept, and cost nothing
    record = read_arrays(book)
    assert record["answers/asked"][5] == first
    assert len(set(record["answers/vectors"].tolist())) == 1
    assert ask_all(runs[1], 6) == asking - 1
    assert (read_arrays(book)["answers/answered"] <= halves(16)[1]).all()
    assert (read_arrays(book)["answers/calibrated"] == 4).all()


def test_without_a_book_every_run_has_a_budget_of_its_own(tmp_path: Path) -> None:
    graph = town()
    for seed in (0, 2):
        run = linked(graph, protect="none", seed=seed)
        assert ask_all(run, 5) == halves(16)[0]


def test_answers_of_training_are_in_the_book_before_they_are_given(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in calibration leaves them counted."""

    def crash(*args: Any, **more: Any) -> Any:
        raise RuntimeError("power cut")

    monkeypatch.setattr("lumos.strict.link.trainer.levels_of_pairs", crash)
    with pytest.raises(RuntimeError):
        linked(small(DEVICES), book=book)
    assert_array_equal(calibrated_in(book), [2] * DEVICES)

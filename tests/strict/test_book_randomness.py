"""Randomness of runs with a book: where it lies does not matter, what it has does.

Two runs that share their noise must use the same draws of labels and the same partners, or the
difference of their sums is exact.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.strict.linking import linked
from tests.strict.linking import run_with_wire as link_with_wire
from tests.strict.strictly import federation, run_with_wire, small, strict

from lumos.graph import Graph
from lumos.runs.run import Run
from lumos.storage import read_arrays

pytestmark = pytest.mark.usefixtures("short")

TASKS = ("classify", "link")


@pytest.fixture
def graph() -> Graph:
    return small(60, edges=240)


def trained(task: str, graph: Graph, **settings: Any) -> Run:
    short = {"encoder_epochs": 2, "epochs": 8}
    return linked(graph, **settings) if task == "link" else strict(graph, **{**short, **settings})


def sent(task: str, graph: Graph, **settings: Any) -> Any:
    """Every message of a run, round by round."""
    short = {"encoder_epochs": 2, "epochs": 8}
    if task == "link":
        return link_with_wire(graph, **settings)[1].rounds
    return run_with_wire(graph, **{**short, **settings})[1].rounds


def secrets(graph: Graph, **settings: Any) -> np.ndarray:
    """[devices, 8] what the randomness of a run are made from."""
    found: np.ndarray = federation(graph, **settings).shards[0].randomness._secrets
    return found


def spent(book: Path) -> dict[str, np.ndarray]:
    """Everything that a book has charged."""
    return {
        name: array
        for name, array in read_arrays(book).items()
        if name == "spent" or name.endswith(("/spent", "/calibrated"))
    }


@pytest.mark.parametrize("task", TASKS)
def test_two_new_books_give_one_run(task: str, graph: Graph, tmp_path: Path) -> None:
    """The same messages, bit by bit: whoever sees both runs has seen one."""
    one, two = (sent(task, graph, book=tmp_path / name) for name in ("one.npz", "two.npz"))
    assert one == two


@pytest.mark.parametrize("task", TASKS)
def test_a_book_that_was_moved_repeats_its_runs_for_nothing(
    task: str, graph: Graph, tmp_path: Path
) -> None:
    before, after = tmp_path / "book.npz", tmp_path / "elsewhere.npz"
    first = sent(task, graph, book=before)
    trained(task, graph, book=before, seed=1)  # others may use it meanwhile
    charged = spent(before)
    before.rename(after)
    assert sent(task, graph, book=after)[-3:] == first[-3:]
    for name, amounts in spent(after).items():
        assert_array_equal(amounts, charged[name])


@pytest.mark.parametrize("task", TASKS)
def test_a_higher_limit_makes_no_other_run(task: str, graph: Graph, tmp_path: Path) -> None:
    book = tmp_path / "book.npz"
    trained(task, graph, book=book)
    charged = spent(book)
    limits = {"lifetime_propagated_epsilon": 100.0, "lifetime_feature_epsilon": 100.0}
    limits |= {"lifetime_epsilon": 9.0} if task == "classify" else {}
    trained(task, graph, book=book, **limits)
    for name, amounts in spent(book).items():
        assert_array_equal(amounts, charged[name])


def test_books_of_other_content_share_no_coin(graph: Graph, tmp_path: Path) -> None:
    """Their draws of labels differ, so the same noise would give away the difference of sums."""
    new, used, other = (tmp_path / name for name in ("new.npz", "used.npz", "other.npz"))
    for seed, book in ((7, used), (8, other)):
        trained("classify", graph, book=book, seed=seed)
    draws = [
        next(array for name, array in read_arrays(book).items() if name.startswith("labels/")
             and name.endswith("/values"))
        for book in (used, other)
    ]  # fmt: skip
    assert (draws[0] != draws[1]).any()
    found = [secrets(graph, book=book, seed=0) for book in (new, used, other)]
    for one in range(3):
        for two in range(one):
            assert not (found[one] == found[two]).all(axis=1).any()


def test_copies_share_randomness_until_they_differ(graph: Graph, tmp_path: Path) -> None:
    book, copy = tmp_path / "book.npz", tmp_path / "copy.npz"
    trained("classify", graph, book=book, seed=7)
    shutil.copy(book, copy)
    assert_array_equal(secrets(graph, book=book), secrets(graph, book=copy))
    trained("classify", graph, book=copy, seed=8, label_epsilon=2.0)
    # The run of seed 0 began before, and is the same in both; that of seed 1 begins now.
    assert_array_equal(secrets(graph, book=book), secrets(graph, book=copy))
    one, two = (secrets(graph, book=path, seed=1) for path in (book, copy))
    assert not (one == two).all(axis=1).any()


def test_the_control_has_no_book(graph: Graph, tmp_path: Path) -> None:
    book = tmp_path / "book.npz"
    trained("classify", graph, book=book, seed=7)
    one, two = (secrets(graph, control=True, **more) for more in ({}, {"book": book}))
    assert_array_equal(one, two)
    assert not (one == secrets(graph, book=book)).all(axis=1).any()

"""Answers of devices: kept by both ends, in memory or in a file, within the budgets of a life."""

import multiprocessing
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lumos.errors import BudgetExceeded, InputError
from lumos.ldp.account import ANSWERED, ASKED, AccountLimits, PrivacyAccount
from lumos.storage import read_arrays
from lumos.strict.link.answers import (
    AnswerBudget,
    AnswerRecord,
    AnswerStore,
    charged,
    digest_of,
)
from lumos.twoparty.score import UNANSWERED

DEVICES = 9
IDS = [f"device {number}" for number in range(DEVICES)]
Stores = Callable[[], AnswerStore]


def unused() -> AnswerBudget:
    return AnswerBudget.unused(DEVICES)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Opens the same record again and again."""
    if request.param == "memory":
        memory = AnswerStore(None, unused())
        return lambda: memory
    return lambda: AnswerStore(tmp_path / "answers.npz", unused())


def known(record: AnswerRecord, pairs: Any, vectors: str = "one") -> list[list[int]]:
    found: list[list[int]] = record.known(np.array(pairs).reshape(-1, 2), vectors).tolist()
    return found


def answer(record: AnswerRecord, pairs: Any, levels: Any, vectors: str = "one") -> None:
    """The first of each pair asks, the second answers; both count it."""
    ends = np.array(pairs)
    record.add(ends, np.array(levels), vectors)
    np.add.at(record.budget.asked, ends[:, 0], 1)
    np.add.at(record.budget.answered, ends[:, 1], 1)


def test_each_end_keeps_the_level_that_it_learnt(store: Stores) -> None:
    """In either order, as it was asked and as it is asked again."""
    pairs, levels = np.array([[3, 1], [0, 8]]), np.array([[2, 0], [1, 3]])
    store().update(lambda record: answer(record, pairs, levels))
    asked = [(1, 3), (3, 1), (8, 0), (0, 8), (1, 2), (0, 1)]
    nothing = [UNANSWERED, UNANSWERED]
    expected = [[0, 2], [2, 0], [3, 1], [1, 3], nothing, nothing]
    assert store().update(lambda record: known(record, asked)) == expected
    other = store().update(lambda record: known(record, asked, "another"))
    assert other == [nothing] * 6, "levels belong to the vectors that were compared"


def test_budgets_and_answers_add_up(store: Stores) -> None:
    def more(record: AnswerRecord) -> int:
        answer(record, [[2, len(record.pairs) + 3]], [[0, 0]])
        return len(record.pairs)

    assert [store().update(more) for _ in range(4)] == [1, 2, 3, 4]
    assert store().update(lambda record: record.budget.asked.tolist())[2] == 4
    vectors = store().update(lambda record: record.vectors.tolist())
    assert vectors == ["one"] * 4


def test_known_against_a_dictionary() -> None:
    rng = np.random.default_rng(0)
    record = AnswerRecord.of({}, AnswerBudget.unused(30))
    learnt: dict[tuple[str, int, int], int] = {}
    for vectors in ("one", "two"):
        pairs = np.unique(np.sort(rng.integers(0, 30, (80, 2)), axis=1), axis=0)
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
        turned = rng.random(len(pairs)) < 0.5
        pairs[turned] = pairs[turned][:, ::-1]
        levels = rng.integers(0, 4, pairs.shape)
        record.add(pairs, levels, vectors)
        for (me, peer), (mine, theirs) in zip(pairs.tolist(), levels.tolist(), strict=True):
            learnt[vectors, me, peer], learnt[vectors, peer, me] = mine, theirs
    asked = rng.integers(0, 30, (400, 2))
    asked = asked[asked[:, 0] != asked[:, 1]]
    for vectors in ("one", "two", "three"):
        expected = [
            [learnt.get((vectors, *ends), UNANSWERED) for ends in ((me, peer), (peer, me))]
            for me, peer in asked.tolist()
        ]
        assert record.known(asked, vectors).tolist() == expected
    assert record.known(np.empty((0, 2), np.int64), "one").tolist() == []


def test_a_file_is_for_its_owner(tmp_path: Path) -> None:
    AnswerStore(tmp_path / "answers.npz", unused()).update(lambda record: None)
    assert stat.S_IMODE((tmp_path / "answers.npz").stat().st_mode) == 0o600


def test_the_first_file_starts_where_training_ended(tmp_path: Path) -> None:
    start = unused()
    start.calibrated[:] = 2
    store = AnswerStore(tmp_path / "answers.npz", start)
    store.update(lambda record: record.budget.asked.__setitem__(0, 5))
    assert not start.asked.any(), "what training ended with stays as it was"
    again = AnswerStore(tmp_path / "answers.npz", unused())
    assert_array_equal(again.update(lambda record: record.budget.calibrated), [2] * DEVICES)
    assert again.update(lambda record: record.budget.asked.tolist())[0] == 5


@pytest.mark.parametrize("damage", [b"", b"PK\3\4 and so on", b"\0" * 50])
def test_a_damaged_file_says_so_in_one_line(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "answers.npz"
    path.write_bytes(damage)
    with pytest.raises(InputError, match=r"answers\.npz: is damaged") as caught:
        AnswerStore(path, unused()).update(lambda record: None)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == damage, "nothing was written over it"


def test_an_interrupted_change_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.npz"
    store = AnswerStore(path, unused())
    store.update(lambda record: record.add(np.array([[0, 1]]), np.array([[3, 2]]), "one"))
    before = path.read_bytes()

    def interrupted(record: AnswerRecord) -> None:
        record.budget.asked += 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.update(interrupted)
    assert path.read_bytes() == before


def _ask_many(path: str, me: int) -> None:
    """In a process of its own: 20 answers, one at a time."""
    store = AnswerStore(Path(path), unused())
    account = PrivacyAccount(Path(path).parent, IDS, limits=AccountLimits(score_queries=0))
    for number in range(20):

        def more(record: AnswerRecord, number: int = number) -> None:
            answer(record, [[me, number % 3 + 3]], np.full((1, 2), number % 4), f"run {me}")

        store.update(charged(account, more))


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "answers.npz"
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_ask_many, args=(str(path), me)) for me in (0, 1)]
    for process in both:
        process.start()
    for process in both:
        process.join(timeout=120)
        assert process.exitcode == 0
    arrays = read_arrays(path)
    assert_array_equal(PrivacyAccount(tmp_path, IDS).spent(ASKED)[:2], [20, 20])
    assert_array_equal(arrays["answers/asked"][:2], [20, 20])
    assert len(arrays["answers/pairs"]) == len(arrays["answers/levels"]) == 40
    assert sorted(set(arrays["answers/vectors"].tolist())) == ["run 0", "run 1"]


def test_a_record_moves_to_a_folder_and_stays_one(tmp_path: Path) -> None:
    """A run in memory that is saved shares its budget with the folder from then on."""
    memory = AnswerStore(None, unused())
    memory.update(lambda record: record.add(np.array([[0, 1]]), np.array([[3, 2]]), "one"))
    memory.update(lambda record: record.budget.asked.__setitem__(0, 4))
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    moved = memory.moved(first)
    assert stat.S_IMODE((first / "answers.npz").stat().st_mode) == 0o600
    there = AnswerStore(first / "answers.npz", unused())
    there.update(lambda record: record.budget.asked.__setitem__(0, 5))
    assert moved.update(lambda record: record.budget.asked.tolist())[0] == 5
    assert moved.update(lambda record: known(record, [(1, 0)])) == [[2, 3]]
    assert moved.moved(second) is moved
    copied = AnswerStore(second / "answers.npz", unused())
    assert copied.update(lambda record: record.budget.asked.tolist())[0] == 5


def test_names_of_vectors_differ_with_vectors_and_thresholds() -> None:
    vectors = np.arange(12, dtype=np.int8).reshape(3, 4)
    name = digest_of(vectors, (1, 2))
    assert len(name) == 32
    assert digest_of(vectors.copy(), (1, 2)) == name
    assert digest_of(vectors, (1, 3)) != name
    vectors[0, 0] += 1
    assert digest_of(vectors, (1, 2)) != name


def test_queries_are_charged_for_life_before_they_are_recorded(tmp_path: Path) -> None:
    """The record of another run begins with what the account has; beyond it nothing is answered."""
    account = PrivacyAccount(tmp_path, IDS, limits=AccountLimits(score_queries=3))
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        store = AnswerStore(tmp_path / run / "answers.npz", unused())
        store.update(charged(account, lambda record: answer(record, [[3, 1]], [[2, 0]])))
    assert store.update(lambda record: record.budget.asked.tolist())[3] == 2
    assert account.spent(ASKED).tolist() == [0, 0, 0, 2, 0, 0, 0, 0, 0]
    assert account.spent(ANSWERED).tolist() == [0, 2, 0, 0, 0, 0, 0, 0, 0]
    before = (tmp_path / "two" / "answers.npz").read_bytes()
    with pytest.raises(BudgetExceeded, match=r"score queries would reach 4, above .* = 3"):
        store.update(
            charged(account, lambda record: answer(record, [[3, 1], [1, 3]], [[0, 0]] * 2))
        )
    assert (tmp_path / "two" / "answers.npz").read_bytes() == before
    assert account.spent(ASKED)[3] == 2

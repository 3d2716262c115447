"""Questions about pairs between two devices, after the training."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lumos.deploy.processes import answering, ask_device, prediction_in
from lumos.deploy.protocol.frames import Data
from lumos.deploy.protocol.questions import (
    QUESTIONS,
    AgreedPair,
    AnsweredPairs,
    LearntScore,
    PairQuestions,
)
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.errors import UsageError
from lumos.graph.parts import PartsFolder
from lumos.strict.link.levels import BOTH, Reading, spec_for
from lumos.training.config import Config
from lumos.training.trainer import PairAnswer
from lumos.typing import Arrays

EVIDENCE = np.array([-1.5, -0.25, 0.5, 2.0])
HALF = 2
"""Questions that a device may ask, and answers, of the six answers in all."""
SETTINGS = Config.asked(task="link", aggregate="secure", random_marks=4, score_queries=6)


@pytest.fixture(scope="module")
def trained(few_words_parts: PartsFolder) -> Federation:
    """So few devices learn nothing from scores; by this reading they ask all the same."""
    federation = Federation(few_words_parts, SETTINGS, stays=True)
    federation.run()
    for device in range(12):
        job = federation.device(device).job
        reading = replace(job.result.reading, way=BOTH, kept=(0, 1, 2), evidence=EVIDENCE)
        job.result = replace(job.result, reading=reading)
        saved = federation.stores[device].snapshot or {}
        federation.stores[device].save({**saved, **job.state_dict(job.last + 1)})
    return federation


@pytest.fixture(scope="module")
def kept(trained: Federation) -> list[Arrays]:
    """What devices answer with, before any question."""
    return [store.snapshot or {} for store in trained.stores]


@pytest.fixture
def federation(few_words_parts: PartsFolder, kept: list[Arrays]) -> Federation:
    """Devices that were started after the training, without a coordinator."""
    started = Federation(few_words_parts, SETTINGS)
    started.kill(COORDINATOR)
    for device in range(12):
        started.start_answering(device, kept[device])
    return started


def result(federation: Federation, device: int) -> Any:
    return federation.participants[device].job.result


def used(federation: Federation, device: int) -> tuple[int, int]:
    counts: tuple[int, int] = result(federation, device).used
    return counts


def questions_of(federation: Federation, device: int) -> PairQuestions:
    participant: Any = federation.participants[device]
    questions: PairQuestions = participant.questions
    return questions


def ask(federation: Federation, asker: int, peer: int) -> PairAnswer | str:
    return ask_all(federation, [(asker, peer)])[0]


def ask_all(federation: Federation, asked: list[tuple[int, int]]) -> list[PairAnswer | str]:
    """Ask all at the same time."""
    open_questions = [
        (questions_of(federation, asker), questions_of(federation, asker).ask(peer, federation.now))
        for asker, peer in asked
    ]
    federation.run(
        until=lambda: all(number in questions.answers for questions, number in open_questions),
        limit=federation.now + 300,
    )
    return [questions.answers[number] for questions, number in open_questions]


def expected(federation: Federation, asker: int, peer: int) -> PairAnswer:
    """The score from both vectors in the clear, which no process has together."""
    one, other = (result(federation, device) for device in (asker, peer))
    reading: Reading = one.reading
    product = int(one.vectors[0].astype(np.int64) @ other.vectors[0].astype(np.int64))
    spec = spec_for(one.vectors.shape[1], reading.cosines)
    level = sum(threshold <= product for threshold in spec.thresholds)
    return PairAnswer(float(EVIDENCE[level] + np.log((one.degree[0] + 1) / 12)), answered=True)


def by_degree(federation: Federation, asker: int) -> PairAnswer:
    degree = result(federation, asker).degree[0]
    return PairAnswer(float(np.log((degree + 1) / 12)), answered=False)


def watch_questions(federation: Federation) -> list[tuple[int, int, Data]]:
    """Every envelope of a question that is sent from now on."""
    sent: list[tuple[int, int, Data]] = []

    def watch(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        sent.extend(
            (sender, receiver, frame)
            for frame in frames
            if isinstance(frame, Data) and frame.key.phase == QUESTIONS
        )

    federation.watch = watch
    return sent


def test_two_processes_learn_the_score_of_their_pair(trained: Federation) -> None:
    for asker, peer in ((0, 7), (7, 3), (2, 11)):
        assert ask(trained, asker, peer) == expected(trained, asker, peer)
        assert used(trained, asker)[0] == 1
        assert used(trained, peer)[1] == 1


def test_a_device_whose_process_is_restarted_before_the_end_is_known_answers(
    trained: Federation,
) -> None:
    assert ask(trained, 4, 9) == expected(trained, 4, 9)
    for device in (4, 9):
        trained.kill(device)
        trained.start(device)
    assert ask(trained, 4, 9) == expected(trained, 4, 9)  # from memory
    assert ask(trained, 9, 5) == expected(trained, 9, 5)
    assert used(trained, 9) == (1, 1)


def test_a_device_that_is_gone_does_not_answer(trained: Federation) -> None:
    trained.kill(10)
    assert ask(trained, 1, 10) == "device 10 did not answer"


@pytest.mark.parametrize("unknown", [0, 12, -1])
def test_there_is_nobody_to_ask(trained: Federation, unknown: int) -> None:
    with pytest.raises(UsageError, match="no other device"):
        trained.device(0).questions.ask(unknown, trained.now)


def test_other_runs_answer_nothing(twelve: PartsFolder, short: Config) -> None:
    federation = Federation(twelve, short)
    federation.run()
    with pytest.raises(UsageError, match="where `task='link'` was trained"):
        federation.device(0).questions.ask(3, federation.now)


def test_devices_answer_without_the_coordinator(federation: Federation) -> None:
    assert ask(federation, 0, 7) == expected(federation, 0, 7)
    assert (used(federation, 0), used(federation, 7)) == ((1, 0), (0, 1))


def test_a_pair_that_was_answered_is_answered_from_memory_at_both_ends(
    federation: Federation,
) -> None:
    ask(federation, 4, 9)
    sent = watch_questions(federation)
    assert ask(federation, 4, 9) == expected(federation, 4, 9)
    assert ask(federation, 9, 4) == expected(federation, 9, 4)
    assert not sent
    assert (used(federation, 4), used(federation, 9)) == ((1, 0), (0, 1))


def test_a_second_question_about_an_answered_pair_is_refused(
    federation: Federation, kept: list[Arrays]
) -> None:
    """An asker that lost its memory gets no second answer: fresh randomness would reveal more."""
    ask(federation, 4, 9)
    federation.pairs[4].clear()
    federation.kill(4)
    federation.start_answering(4, kept[4])
    assert ask(federation, 4, 9) == by_degree(federation, 4)
    assert used(federation, 9) == (0, 1)


def test_beyond_the_budget_a_score_is_of_the_degree_alone(federation: Federation) -> None:
    for peer in (2, 3):
        ask(federation, 6, peer)
    assert ask(federation, 6, 8) == by_degree(federation, 6)


def test_questions_at_the_same_time_get_no_more_answers(federation: Federation) -> None:
    """Everybody asks one device at once, and one device asks everybody at once."""
    asked = [(device, 0) for device in range(1, 8)] + [(9, peer) for peer in range(1, 6)]
    given = ask_all(federation, asked)
    answered = [isinstance(answer, PairAnswer) and answer.answered for answer in given]
    assert used(federation, 0) == (0, HALF)
    assert sum(answered[:7]) == HALF
    assert used(federation, 9) == (HALF, 0)
    assert sum(answered[7:]) == HALF


def test_two_that_ask_each_other_at_the_same_time_are_scored_once(federation: Federation) -> None:
    lower, higher = ask_all(federation, [(3, 8), (8, 3)])
    assert lower == expected(federation, 3, 8)
    assert higher in (by_degree(federation, 8), expected(federation, 8, 3))
    assert ask(federation, 8, 3) == expected(federation, 8, 3)
    assert (used(federation, 3), used(federation, 8)) == ((1, 0), (0, 1))


def test_what_was_agreed_is_kept_before_anything_follows_from_it(federation: Federation) -> None:
    followed = []

    def watch(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if not isinstance(frame, Data) or frame.key.phase != QUESTIONS:
                continue
            if frame.topic not in ("strict/question", "strict/consent"):
                followed.append(sender)
                assert any(
                    isinstance(record, AgreedPair) and record.peer == receiver
                    for record in federation.pairs[sender]
                )

    federation.watch = watch
    ask(federation, 0, 7)
    assert set(followed) == {0, 7}


@pytest.mark.parametrize("victim", [0, 7])
def test_a_device_that_is_killed_after_it_agreed_has_used_an_answer(
    federation: Federation, kept: list[Arrays], victim: int
) -> None:
    """Whether the other end has learnt its level, nobody knows: the pair is not scored again."""
    number = questions_of(federation, 0).ask(7, federation.now)
    federation.run(until=lambda: bool(federation.pairs[victim]))
    assert not any(isinstance(record, LearntScore) for record in federation.pairs[victim])
    federation.kill(victim)
    federation.start_answering(victim, kept[victim])
    if victim == 7:
        asker = questions_of(federation, 0)
        federation.run(until=lambda: number in asker.answers)
        assert asker.answers[number] == "device 7 did not answer"
    assert ask(federation, 0, 7) == by_degree(federation, 0)
    assert ask(federation, 7, 0) == by_degree(federation, 7)
    assert ask(federation, 7, 1) == expected(federation, 7, 1)
    assert ask(federation, 0, 1) == expected(federation, 0, 1)
    assert (used(federation, 0), used(federation, 7)) == ((2, 0), (1, 1))


def test_no_restart_gives_a_budget_anew(federation: Federation, kept: list[Arrays]) -> None:
    for asker, peer in ((0, 1), (2, 0), (0, 3), (4, 0)):
        assert ask(federation, asker, peer) == expected(federation, asker, peer)
        federation.kill(0)
        federation.start_answering(0, kept[0])
    assert ask(federation, 0, 5) == by_degree(federation, 0)
    assert ask(federation, 6, 0) == by_degree(federation, 6)
    assert used(federation, 0) == (HALF, HALF)


def test_a_device_that_comes_back_in_time_answers_what_waits(
    federation: Federation, kept: list[Arrays]
) -> None:
    ask(federation, 7, 0)  # both know of each other's first start
    federation.kill(5)
    number = questions_of(federation, 0).ask(5, federation.now)
    federation.run(until=lambda: federation.now > 5)
    federation.start_answering(5, kept[5])
    asker = questions_of(federation, 0)
    federation.run(until=lambda: number in asker.answers)
    assert asker.answers[number] == expected(federation, 0, 5)


def test_an_asker_that_is_restarted_before_both_agreed_asks_again(
    federation: Federation, kept: list[Arrays]
) -> None:
    """The other end gives the first question up at once, and not after the deadline."""
    sent = watch_questions(federation)
    questions_of(federation, 0).ask(7, federation.now)
    federation.run(until=lambda: any(sender == 7 for sender, _, _ in sent))
    federation.kill(0)
    federation.start_answering(0, kept[0])
    before = federation.now
    assert ask(federation, 0, 7) == expected(federation, 0, 7)
    assert federation.now - before < federation.deadline / 2
    assert (used(federation, 0), used(federation, 7)) == ((1, 0), (0, 1))


def test_scores_and_vectors_are_in_no_repr(federation: Federation) -> None:
    ask(federation, 0, 7)
    answer = expected(federation, 0, 7)
    shown = repr(federation.pairs[0]) + repr(AnsweredPairs(federation.pairs[0]))
    assert str(answer.score) not in shown
    assert "vectors" not in repr(result(federation, 0))
    assert not any(str(answer.score) in line for line in federation.lines)


def asked_by_its_owner(
    federation: Federation,
    device: int,
    folder: Path,
    question: dict[str, Any],
    prediction: Callable[[], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """The answer of a device through the socket in its folder."""
    participant: Any = federation.participants[device]

    def wake() -> None:
        federation.run(until=lambda: bool(participant.questions.answers))

    async def play() -> dict[str, Any]:
        async with answering(folder, participant, prediction, wake):
            return await asyncio.to_thread(ask_device, folder, question)

    return asyncio.run(play())


def test_the_owner_of_a_device_asks_about_a_pair(federation: Federation, tmp_path: Path) -> None:
    question = {"ask": "link", "device": 7}
    row = asked_by_its_owner(federation, 0, tmp_path, question)
    score = expected(federation, 0, 7).score
    assert row == {"device": 7, "probability": 1 / (1 + np.exp(-score)), "answered": True}
    federation.kill(7)  # from here on there is nobody to ask
    assert asked_by_its_owner(federation, 0, tmp_path, question) == row
    with pytest.raises(UsageError, match="no other device 0 to ask"):
        asked_by_its_owner(federation, 0, tmp_path, {"ask": "link", "device": 0})


@pytest.mark.parametrize(
    ("ended", "line"),
    [(None, "the training is not over"), ({"prediction": None}, "the run has no classes")],
)
def test_the_owner_of_a_device_without_a_label(
    federation: Federation, tmp_path: Path, ended: dict[str, None] | None, line: str
) -> None:
    folder: Any = SimpleNamespace(ended_result=lambda: ended)
    with pytest.raises(UsageError, match=line):
        asked_by_its_owner(federation, 0, tmp_path, {"ask": "label"}, lambda: prediction_in(folder))


def test_a_device_answers_nobody_during_the_training(
    few_words_parts: PartsFolder, tmp_path: Path
) -> None:
    training = Federation(few_words_parts, SETTINGS, stays=True)
    with pytest.raises(UsageError, match=r"the training goes on: .*; ask later"):
        asked_by_its_owner(training, 0, tmp_path, {"ask": "label"})

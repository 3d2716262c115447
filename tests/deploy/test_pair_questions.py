"""Questions about pairs between two devices, after the training."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.deploy.network import Federation

from lumos.errors import UsageError
from lumos.graph.parts import PartsFolder
from lumos.strict.link_levels import BOTH, Reading, spec_for
from lumos.training.config import Config
from lumos.training.trainer import PairAnswer

EVIDENCE = np.array([-1.5, -0.25, 0.5, 2.0])


@pytest.fixture(scope="module")
def trained(twelve: PartsFolder) -> Federation:
    """So few devices learn nothing from scores; by this reading they ask all the same."""
    settings = Config.asked(
        task="link", aggregate="secure", embedding=4, word_buckets=32, answers=6
    )
    federation = Federation(twelve, settings)
    federation.run()
    for device in range(12):
        job = federation.device(device).job
        reading = replace(job.result.reading, way=BOTH, kept=(0, 1, 2), evidence=EVIDENCE)
        job.result = replace(job.result, reading=reading)
    return federation


def result(federation: Federation, device: int) -> Any:
    return federation.device(device).job.result


def ask(federation: Federation, asker: int, peer: int) -> PairAnswer | str:
    questions = federation.device(asker).questions
    number = questions.ask(peer, federation.now)
    federation.run(until=lambda: number in questions.answers)
    return questions.answers[number]


def expected(federation: Federation, asker: int, peer: int) -> float:
    """The score from both vectors in the clear, which no process has together."""
    one, other = (result(federation, device) for device in (asker, peer))
    reading: Reading = one.reading
    product = int(one.vectors[0].astype(np.int64) @ other.vectors[0].astype(np.int64))
    spec = spec_for(one.vectors.shape[1], reading.cosines)
    level = sum(threshold <= product for threshold in spec.thresholds)
    return float(EVIDENCE[level] + np.log((one.degree[0] + 1) / 12))


def test_two_processes_learn_the_score_of_their_pair(trained: Federation) -> None:
    for asker, peer in ((0, 7), (7, 3), (2, 11)):
        answer = ask(trained, asker, peer)
        assert answer == PairAnswer(expected(trained, asker, peer), answered=True)
        assert result(trained, asker).budget.asked[0] >= 1
        assert result(trained, peer).budget.answered[0] >= 1


def test_the_same_pair_again_has_the_same_answer(trained: Federation) -> None:
    assert ask(trained, 4, 9) == ask(trained, 4, 9)


def test_beyond_the_budget_a_score_is_of_the_degree_alone(trained: Federation) -> None:
    for peer in (2, 3):
        ask(trained, 6, peer)
    answer = ask(trained, 6, 8)
    degree = result(trained, 6).degree[0]
    assert answer == PairAnswer(float(np.log((degree + 1) / 12)), answered=False)


def test_a_device_that_is_gone_does_not_answer(trained: Federation) -> None:
    trained.kill(10)
    assert ask(trained, 1, 10) == "device 10 did not answer"


@pytest.mark.parametrize("nobody", [0, 12, -1])
def test_there_is_nobody_to_ask(trained: Federation, nobody: int) -> None:
    with pytest.raises(UsageError, match="no other device"):
        trained.device(0).questions.ask(nobody, trained.now)


def test_other_runs_answer_nothing(twelve: PartsFolder, short: Config) -> None:
    federation = Federation(twelve, short)
    federation.run()
    with pytest.raises(UsageError, match="where `task='link'` was trained"):
        federation.device(0).questions.ask(3, federation.now)


def test_questions_at_the_same_time_get_no_more_answers(twelve: PartsFolder) -> None:
    """Everybody asks one device at once, and one device asks everybody at once."""
    settings = Config.asked(
        task="link", aggregate="secure", embedding=4, word_buckets=32, answers=6
    )
    federation = Federation(twelve, settings)
    federation.run()
    for device in range(12):
        job = federation.device(device).job
        reading = replace(job.result.reading, way=BOTH, kept=(0, 1, 2), evidence=EVIDENCE)
        job.result = replace(job.result, reading=reading)
    asked = [
        (device, federation.device(device).questions.ask(0, federation.now))
        for device in range(1, 8)
    ]
    asked += [(9, federation.device(9).questions.ask(peer, federation.now)) for peer in range(1, 6)]
    federation.run(
        until=lambda: all(
            number in federation.device(device).questions.answers for device, number in asked
        )
    )
    given = [federation.device(device).questions.answers[number] for device, number in asked]
    answered = [isinstance(answer, PairAnswer) and answer.answered for answer in given]
    assert result(federation, 0).budget.answered[0] == 2  # half of what calibration leaves
    assert sum(answered[:7]) == 2
    assert result(federation, 9).budget.asked[0] == 2
    assert sum(answered[7:]) == 2

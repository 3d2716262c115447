"""The canary finds the account's μ in real shares, and twins with other noise than they should."""

from typing import Any

import numpy as np
import pytest
from tests.narrow import present

import lumos
from lumos.audit import AuditReport, AuditRow, Scene
from lumos.audit.attacks import sums
from lumos.audit.attacks.sums import CanaryQuestion, CanarySum
from lumos.audit.harness import printed
from lumos.audit.table import EXCEEDED, NO_POWER, WITHIN
from lumos.secagg import noise as noises
from lumos.secagg.noise import Noise, epsilon_for
from lumos.strict.link.stages import LinkSchedule
from lumos.training.config import Config
from lumos.training.guarantees import CONTRIBUTION_ZEROED

DEVICES, TRIALS = 60, 4000
LINKS = Config.of(profile="strict", task="link", aggregate="secure", randomness="system")


@pytest.fixture(scope="module")
def graph() -> lumos.Graph:
    return lumos.load("demo:200")


def question(graph: lumos.Graph, config: Config = LINKS, number: int = 0) -> CanaryQuestion:
    return list(sums.questions(graph, config, DEVICES))[number]


def verdict(*rows: AuditRow) -> list[str]:
    report = AuditReport(
        graph="demo",
        devices=200,
        profile="strict",
        settings={},
        seed=0,
        rows=list(rows),
        seconds={},
        lumos="",
    )
    return [report.verdict(row) for row in rows]


def test_mu_is_the_accounts_where_all_that_may_collude_do(graph: lumos.Graph) -> None:
    asked = question(graph)
    assert asked.mu == pytest.approx(LinkSchedule(config=LINKS, devices=200).mu("features"))
    found = sums.seen_by(asked, LINKS, trials=TRIALS).by_account()
    assert (found.colluding, found.absent) == (6, 3)
    scene = Scene(graph, {}, tasks=("link",))
    rows = list(sums.rows(scene, asked, found))
    assert [row.measure for row in rows] == ["μ", "ε"]
    assert verdict(*rows) == [WITHIN, NO_POWER]  # ε = 8 needs more trials than these
    assert abs(rows[0].value / asked.mu - 1) < 4 * found.mu().error  # and it has teeth
    assert rows[1].estimate.interval(0.999)[0] > 1.5
    assert rows[1].bound == 8


def test_fewer_colluders_see_more_noise(graph: lumos.Graph) -> None:
    asked = question(graph)
    found = sums.seen_by(asked, LINKS, trials=TRIALS, tolerated=False).by_account()
    left = np.sqrt(51 / 60)  # of 60 shares, 9 may be known or missing
    assert abs(found.mu().mean - left * asked.mu) < 4 * found.mu().error


def test_learnt_weights_and_rehearsals_find_nothing_more(graph: lumos.Graph) -> None:
    asked = question(graph)
    learnt = sums.seen_by(asked, LINKS, trials=TRIALS).by_learnt_weights()
    rehearsed = sums.seen_by(asked, LINKS, trials=TRIALS, rehearsed=True).by_account()
    rows = sums.mu_row(asked, learnt), sums.mu_row(asked, rehearsed)
    assert verdict(*rows) == [WITHIN, WITHIN]
    assert abs(learnt.mu().mean - asked.mu) < 5 * learnt.mu().error
    # Noise of its own is added: twice the variance.
    assert abs(rehearsed.mu().mean - asked.mu / np.sqrt(2)) < 4 * rehearsed.mu().error


def test_questions_are_those_of_the_table(graph: lumos.Graph) -> None:
    labels = Config.of(profile="strict", aggregate="secure", randomness="system")
    found = {one.about: one for one in sums.questions(graph, labels)}
    assert [len(one.sums) for one in found.values()] == [17, 18, 43, 46]
    for one in found.values():
        by_hand = sum((s.change / (s.noise.sigma * s.noise.clip)) ** 2 for s in one.sums)
        assert one.mu == pytest.approx(np.sqrt(by_hand))
        assert all(abs(s.norm - s.change) <= s.norm * (1 + 1e-9) for s in one.sums)


@pytest.mark.parametrize("label_epsilon", [2.0, 6.0])
def test_a_small_federation_has_the_budget_of_the_run(label_epsilon: float) -> None:
    """Shares depend on numbers of devices: the canary's ε is that of the run's own table.

    At ε = 2 all devices take part.
    """
    graph = lumos.load("demo:2000")
    scene = Scene(graph, {"label_epsilon": label_epsilon}, tasks=("classify",))
    recorded = scene.recorded("classify")
    config = scene.config("classify", aggregate="secure", randomness="system")
    for one in sums.questions(graph, config, DEVICES, roles=recorded.roles):
        by_hand = sum((s.change / (s.noise.sigma * s.noise.clip)) ** 2 for s in one.sums)
        assert one.mu == pytest.approx(np.sqrt(by_hand))
        epsilon, delta = present(printed(recorded.run, one.row, one.column))
        if one.row == CONTRIBUTION_ZEROED:
            assert epsilon_for(one.mu, delta) == pytest.approx(epsilon, rel=0.01)
        else:  # predicted labels are beside the sums
            assert epsilon_for(one.mu, delta) <= epsilon * 1.001


# Twins.


def exceeded(asked: CanaryQuestion, view: Any) -> bool:
    return verdict(sums.mu_row(asked, view)) == [EXCEEDED]


def test_twin_without_a_margin_for_absent_devices(
    graph: lumos.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Noise.of

    def too_few(*args: Any) -> Noise:
        made = of(*args)
        return Noise(made.sigma, made.clip, made.devices, 0)

    monkeypatch.setattr(Noise, "of", staticmethod(too_few))
    asked = question(graph)
    assert exceeded(asked, sums.seen_by(asked, LINKS, trials=12_000).by_account())


def test_twin_without_noise(graph: lumos.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        noises, "normal", lambda randomness, rows, width, step: np.zeros((60, width))
    )
    asked = question(graph)
    found = sums.seen_by(asked, LINKS, trials=600).by_account()
    assert exceeded(asked, found)
    one = sums.rows(Scene(graph, {}, tasks=("link",)), asked, found)
    assert list(one)[1].value > 5


def test_twin_whose_noise_comes_from_a_public_seed(
    graph: lumos.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def public(randomness: Any, rows: Any, width: int, step: int) -> np.ndarray:
        return np.random.default_rng(step).standard_normal((len(rows), width))

    monkeypatch.setattr(noises, "normal", public)
    asked = question(graph)
    rehearsed = sums.seen_by(asked, LINKS, trials=600, rehearsed=True)
    assert exceeded(asked, rehearsed.by_account())


def test_twin_that_uses_its_noise_twice(
    graph: lumos.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    normal = noises.normal
    monkeypatch.setattr(
        noises, "normal", lambda randomness, rows, width, step: normal(randomness, rows, width, 0)
    )
    asked = question(graph)
    view = sums.seen_by(asked, LINKS, trials=2000)
    assert exceeded(asked, view.by_learnt_weights())


def test_twin_that_opens_one_sum_twice(graph: lumos.Graph) -> None:
    """With fresh noise: the account has one of them, and the mean of both has half the variance."""
    asked = question(graph)
    twice: list[CanarySum] = [one for one in asked.sums for _ in range(2)]
    again = CanaryQuestion(
        about=asked.about,
        sums=twice,
        mu=asked.mu,
        row=asked.row,
        column=asked.column,
        task="link",
    )
    assert exceeded(asked, sums.seen_by(again, LINKS, trials=2000).by_account())

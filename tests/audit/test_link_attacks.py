"""Attacks on strict links: they stay within what is claimed, and succeed on broken twins."""

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.audit.test_canary import verdict
from tests.strict.answering import result_of

from lumos.audit import Scene, attacker_models
from lumos.audit.attacks import link_queries, link_training
from lumos.audit.attacks.link_queries import AttackedDevices
from lumos.audit.harness import KnownHalf, Recorded, cell, counted, linked, printed
from lumos.audit.table import EXCEEDED, NO_POWER, WITHIN, AuditRow
from lumos.errors import ProtocolError, UsageError
from lumos.exchange.tape import recording
from lumos.graph import Graph
from lumos.ldp.mechanisms import RandomizedResponse
from lumos.strict.link import answers as answer_budget
from lumos.strict.link import answers as link_answers
from lumos.strict.link import levels as sketch
from lumos.strict.link.answers import AnswerBudget
from lumos.strict.messages import uses_edge
from lumos.training.config import Config
from lumos.twoparty.score import IdealScorer

LINKS = Config.of(profile="strict", task="link")


def town(devices: int = 600, groups: int = 12, seed: int = 7) -> Graph:
    """Groups that share words and edges; half of all devices have one edge."""
    rng = np.random.default_rng(seed)
    group = np.arange(devices) % groups
    few = rng.random(devices) < 0.5
    ends = []
    for one in range(devices):
        near = np.flatnonzero((group == group[one]) & ~few)
        ends += [(one, int(other)) for other in rng.choice(near, 1 if few[one] else 9)]
    pairs = np.array([pair for pair in ends if pair[0] != pair[1]])
    home = np.arange(6 * groups) // 6 == group[:, None]
    words = rng.random((devices, 6 * groups)) < np.where(home, 0.7, 0.02)
    return Graph.from_edges(
        pairs, devices=devices, features=words.astype(np.float32), labels=group % 4
    )


@pytest.fixture(autouse=True)
def quick_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacker_models, "STEPS", 50)


@pytest.fixture(scope="module")
def scene() -> Scene:
    """Words are told apart without noise, so devices are asked."""
    return Scene(town(), {"protect": "none"}, tasks=("link",))


@pytest.fixture(scope="module")
def recorded(scene: Scene) -> Recorded:
    return scene.recorded("link")


def by(rows: Any, measure: str, text: str = "") -> list[AuditRow]:
    return [row for row in rows if row.measure == measure and text in row.about]


# Cells of the table.


def test_cells_are_read_as_they_are_printed(recorded: Recorded) -> None:
    run = recorded.run
    assert printed(run, "edge added or removed", "by messages to neighbours") == (12.0, 0.0)
    assert printed(run, "features replaced", "by sums") is None  # exact sums
    assert counted(run, "features replaced", "by score queries", "bits") == 34
    assert counted(run, "features replaced", "by score queries", "score queries") == 16
    assert cell(run, "label replaced", "by sums") == "not used"
    with pytest.raises(UsageError, match="no cell"):
        cell(run, "weather", "by sums")
    noisy = Scene(town(60, 3), {}, tasks=("link",)).recorded("link").run
    assert printed(noisy, "features replaced", "by sums") == (8.0, 1e-5)


# Answers.


def test_everybody_together_gets_as_many_answers_as_are_printed(
    scene: Scene, recorded: Recorded
) -> None:
    result = link_queries.devices_of(recorded)
    rows = list(link_queries.limit_rows(recorded, result, 0))
    assert [(row.measure, row.value, row.bound) for row in rows] == [
        ("answers", 16, 16),
        ("bits", 34, 34),
    ]
    assert verdict(*rows) == [WITHIN, WITHIN]


def test_twin_whose_budget_is_rewound(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = answer_budget.halves
    monkeypatch.setattr(
        AnswerBudget,
        "left",
        lambda self, strict: tuple(
            np.full(len(self.asked), n) for n in halves(strict.score_queries)
        ),
    )
    result = link_queries.devices_of(recorded)
    rows = list(link_queries.limit_rows(recorded, result, 0))
    assert verdict(*rows) == [EXCEEDED, EXCEEDED]


def pooled(recorded: Recorded, result: Any, m: int = 16) -> dict[str, float]:
    askers = link_queries.some_askers(recorded.graph, 16)
    levels = link_queries.asked_by(result, askers)
    about = AttackedDevices.of(recorded.graph, askers)
    rows = list(link_queries.pooled_rows(about, levels, m, 7))
    assert all(row.bound is None and row.note for row in rows)
    return {row.about.split(",")[0]: row.value for row in rows}


def test_answers_tell_edges_and_more_of_them_tell_more(recorded: Recorded) -> None:
    result = link_queries.devices_of(recorded)
    one, many = pooled(recorded, result, 1), pooled(recorded, result, 16)
    assert one.keys() == many.keys()
    edge = "whether two others are linked"
    assert 0.5 < one[edge] < many[edge]
    assert many[edge] > 0.8
    # Vectors of others tell nothing.
    others = np.random.default_rng(0).permutation(result.vectors)
    assert pooled(recorded, replace(result, vectors=others))[edge] < 0.56


def test_twin_that_tells_its_vector_in_place_of_a_level(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asker gets the place of the largest raw number of the other's vector."""
    result = link_queries.devices_of(recorded)
    before = pooled(recorded, result, 1)
    levels = IdealScorer.levels

    def leaking(self: Any, pairs: Any, vectors: Any, *rest: Any) -> Any:
        program = levels(self, pairs, vectors, *rest)
        inbox = yield next(program)
        with contextlib.suppress(StopIteration):
            program.send(inbox)
        raw = inbox.body.reshape(len(pairs), vectors.shape[1] + 1).view(np.int8)[:, :-1]
        return raw.argmax(axis=1).astype(np.int64)

    monkeypatch.setattr(IdealScorer, "levels", leaking)
    after = pooled(recorded, result, 1)
    edge = "whether two others are linked"
    assert before[edge] < 0.75
    assert after[edge] > before[edge] + 0.1


def certified(monkeypatch: pytest.MonkeyPatch | None, draw: Any = None) -> AuditRow:
    if monkeypatch is not None:
        monkeypatch.setattr(link_answers, "RandomizedResponse", draw)
    result = result_of(600, query_epsilon=1.0)
    askers = np.arange(12)
    levels = link_queries.asked_by(result, askers)
    (row,) = link_queries.randomized_rows(result, askers, levels)
    return row


def test_randomized_answers_have_their_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    row = certified(None)
    assert verdict(row) == [WITHIN]
    assert row.estimate.interval(0.999)[0] > 0.6  # it has teeth
    # Twins: half the noise, and none.
    for larger in (2.0, 12.0):
        twin = certified(monkeypatch, lambda k, e, larger=larger: RandomizedResponse(k, larger))
        assert verdict(twin) == [EXCEEDED]


# Neighbours.


def propagated_labels(recorded: Recorded) -> list[AuditRow]:
    halves = KnownHalf.of(recorded.graph, np.empty(0, np.int64))
    sent = link_training.sent_by(recorded)
    return list(link_training.propagated_label_rows(recorded, sent, halves))


def test_propagated_labels_have_their_epsilon(recorded: Recorded) -> None:
    sent, ratio = propagated_labels(recorded)
    assert verdict(sent, ratio) == [NO_POWER, WITHIN]  # few devices send ε = 4
    assert sent.bound == 4
    assert sent.estimate.interval(0.999)[0] > 2
    assert ratio.bound == 12
    assert ratio.value > 4


def test_meant_propagated_labels_are_those_of_the_devices(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle: what devices really meant, which no attacker sees."""
    meant: list[Any] = []
    module: Any = sketch
    randomized = module.randomized

    def heard(shard: Any, chosen: Any, mechanism: Any, number: int) -> Any:
        meant.append(chosen.copy())
        return randomized(shard, chosen, mechanism, number)

    monkeypatch.setattr(sketch, "randomized", heard)
    again = scene.record(scene.graph, "link")
    sent = link_training.sent_by(again)
    found = link_training.first_propagated_labels(again, sent)
    there = found >= 0
    assert there.mean() > 0.8
    assert np.array_equal(found[there], meant[0][there])


def test_edge_ratios_are_those_by_brute_force(recorded: Recorded) -> None:
    """All that v may have meant, one path after the other."""
    sent = link_training.sent_by(recorded)
    halves = KnownHalf.of(recorded.graph, np.empty(0, np.int64))
    pairs, _ = link_training.with_neighbours(recorded.graph, *halves.asked)
    pairs = np.random.default_rng(0).permutation(pairs)[:40]
    usual = recorded.run.model.weights["usual"]
    size = usual.shape[1]
    keep = np.exp(4) / (np.exp(4) + size - 1)

    def likelihood(v: int, others: list[int], number: int, own: int) -> float:
        if number == sent.shape[1]:
            return 1.0
        counts = np.bincount(sent[others, number - 1], minlength=size).astype(float)
        counts[own] += 1
        above = counts - (len(others) + 1) * usual[number - 1]
        best = np.flatnonzero(above >= above.max() - 1e-9)
        return sum(
            (keep if sent[v, number] == one else (1 - keep) / (size - 1))
            * likelihood(v, others, number + 1, int(one))
            / len(best)
            for one in best
        )

    graph = recorded.graph
    by_hand = []
    for v, w in pairs.tolist():
        near = graph.neighbours[graph.offsets[v] : graph.offsets[v + 1]]
        uses = uses_edge(np.array([v, *[v] * len(near)]), np.array([w, *near]))
        without = [n for n in near[uses[1:]].tolist() if n != w]
        with_w = [*without, w] if uses[0] else without
        both = [likelihood(v, some, 1, int(sent[v, 0])) for some in (with_w, without)]
        by_hand.append(np.log(both[0] / both[1]))
    assert np.allclose(link_training.edge_ratios(recorded, sent, pairs), by_hand)


def test_twin_with_bare_propagated_labels(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sketch,
        "randomized",
        lambda shard, chosen, mechanism, number: chosen.astype(np.uint8)[:, None],
    )
    sent, *_ = propagated_labels(scene.record(scene.graph, "link", propagated_epsilon=1.0))
    assert sent.bound == 1
    assert verdict(sent) == [EXCEEDED]


def test_all_rows_have_an_attacker_without_messages(scene: Scene) -> None:
    rows = list(link_training.attack_link_neighbours(scene))
    guessed = by(rows, "AUC")
    assert len(guessed) == 7
    assert all(row.chance is not None and row.bound is None for row in guessed)
    together = [row for row in guessed if row.adversary == "all neighbours of each end"]
    assert together[0].value > 0.7


# Sums.


def test_planted_words_stay_within_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_training, "RUNS", 2)
    rows = list(link_training.attack_link_sums(Scene(town(60, 3), {}, tasks=("link",))))
    assert set(verdict(*rows)) == {WITHIN, NO_POWER}
    (guessed,) = by(rows, "accuracy")  # of 2 runs only
    assert [row for row in rows if verdict(row) == [NO_POWER]] == [guessed]
    (epsilon,) = by(rows, "ε")
    assert epsilon.bound == 8
    assert epsilon.value > 3
    counts = by(rows, "μ", "counts")[0]
    assert counts.value == pytest.approx(counts.bound, rel=1e-4)


def test_sums_that_have_no_noise_have_no_rows() -> None:
    scene = Scene(town(60, 3), {"protect": "none"}, tasks=("link",))
    assert list(link_training.attack_link_sums(scene)) == []


def test_a_replayed_run_with_the_same_words_is_the_same() -> None:
    words, other, edges, held_back = link_training.planted(0)
    first = link_training.whole_run(words, edges, held_back, 0, LINKS)
    same = link_training.whole_run(words, edges, held_back, 0, LINKS, replayed=first)
    second = link_training.whole_run(other, edges, held_back, 0, LINKS, replayed=first)
    for topic in ("aggregate/ideal", "strict/colour", "strict/opinion", "strict/proposal"):
        for one, two in zip(first.messages(topic), same.messages(topic), strict=True):
            assert np.array_equal(one.body, two.body)
        for one, two in zip(first.messages(topic), second.messages(topic), strict=True):
            if topic != "aggregate/ideal" or one.sender[0] < 0:
                assert np.array_equal(one.body, two.body)
    with recording(), pytest.raises(ProtocolError, match="replayed"):
        link_training.whole_run(words[:, :-1], edges, held_back, 0, LINKS, replayed=first)


def test_a_graph_that_is_too_small_to_learn_from() -> None:
    ends = np.stack([np.arange(9), np.arange(1, 10)], axis=1)
    graph = Graph.from_edges(ends, devices=10, features=np.eye(10, dtype=np.float32))
    scene = Scene(graph, {"protect": "none"}, tasks=("link",))
    rows = [*link_training.attack_link_neighbours(scene), *link_queries.attack_link_askers(scene)]
    assert rows
    assert EXCEEDED not in verdict(*rows)


# What attackers know.


def test_halves_have_no_device_in_common() -> None:
    graph = town(300, 6)
    attackers = np.arange(5)
    halves = KnownHalf.of(graph, attackers)
    assert not (halves.half & halves.evaluated).any()
    assert not halves.half[attackers].any()
    assert not halves.evaluated[attackers].any()
    for side, (pairs, real) in ((halves.half, halves.known), (halves.evaluated, halves.asked)):
        assert side[pairs].all()
        assert np.array_equal(linked(graph, pairs), real)
        assert (pairs[:, 0] != pairs[:, 1]).all()

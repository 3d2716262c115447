"""Algorithm 3 returns true maxima, all of them, and does not ask what it knows."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.trees.naive import SHAPES, bipartite, clique, graphs, neighbours_of, random_graph
from tests.trees.watching import watching

from lumos.graph import Graph
from lumos.trees.balance import balance
from lumos.trees.balancers import TreeSettings
from lumos.trees.balancers.mcmc import Tournament, WorkloadOrder


def play(tournament: Tournament, workload: dict[int, int]) -> int:
    """Hold the matches with true answers; returns how many there were."""
    played = 0
    while matches := tournament.matches():
        assert matches == sorted(set(matches))
        assert all(first < second for first, second in matches)
        for first, second in matches:
            difference = workload[first] - workload[second]
            tournament.record(first, second, (difference > 0) - (difference < 0))
        played += len(matches)
    return played


def heaviest(workload: dict[int, int]) -> list[int]:
    most = max(workload.values(), default=0)
    return sorted(u for u in workload if workload[u] == most)


def structure(tournament: Tournament) -> dict[str, Any]:
    """The forest, whatever the order in which it was built."""
    return {
        "parent": dict(tournament._parent),
        "below": {device: set(row) for device, row in tournament._below.items()},
        "level": {device: set(row) for device, row in tournament._level_with.items()},
        "unbeaten": set(tournament._unbeaten),
    }


def check_links(tournament: Tournament, workload: dict[int, int] | list[int]) -> None:
    """Every answer on record is true now."""
    for child, parent in tournament._parent.items():
        if child in tournament._level_with[parent]:
            assert workload[child] == workload[parent]
        else:
            assert child in tournament._below[parent]
            assert workload[child] < workload[parent]


def test_nobody() -> None:
    tournament = Tournament()
    assert tournament.matches() == []
    assert tournament.champions() == []


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_first_tournament(loads: list[int]) -> None:
    workload = dict(enumerate(loads))
    tournament = Tournament()
    tournament.update(workload, [True] * len(loads))
    # A knockout needs one match for each but one; the last 8 may meet everybody (8 · 7 / 2).
    assert play(tournament, workload) <= len(loads) + 28
    assert tournament.champions() == heaviest(workload)


class Steps(RuleBasedStateMachine):
    """What mcmc may do to the candidates in a step: against sorting, link by link."""

    @initialize(loads=st.lists(st.integers(1, 5), min_size=1, max_size=12))
    def start(self, loads: list[int]) -> None:
        self.workload = dict(enumerate(loads))
        self.tournament = Tournament()
        self.tournament.update(self.workload, [True] * len(loads))
        play(self.tournament, self.workload)
        self.before = dict(self.workload)
        self.open = False

    @rule(data=st.data())
    def try_a_step(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self.tournament.champions()))
        others = [device for device in range(14) if device != chosen]
        acts = data.draw(
            st.lists(
                st.sampled_from(["stay", "stay", "rise", "leave", "enter"]),
                min_size=len(others),
                max_size=len(others),
            )
        )
        self.before, self.structure = dict(self.workload), structure(self.tournament)
        self.open = True
        self.tournament.begin()
        news: dict[int, bool] = {}
        fall = data.draw(st.integers(1, 3))
        news[chosen] = data.draw(st.booleans())
        if news[chosen]:
            self.workload[chosen] -= fall
        else:
            del self.workload[chosen]
        for device, act in zip(others, acts, strict=True):
            if act == "rise" and device in self.workload:
                self.workload[device] += 1
                news[device] = True
            elif act == "leave" and device in self.workload:
                del self.workload[device]
                news[device] = False
            elif act == "enter" and device not in self.workload:
                self.workload[device] = data.draw(st.integers(0, 6))
                news[device] = True
        if not self.workload:  # somebody is always heaviest
            self.workload[20] = 1
            news[20] = True
        devices = sorted(news)
        self.tournament.update(devices, [news[device] for device in devices], lighter=chosen)
        check_links(self.tournament, self.workload)
        assert play(self.tournament, self.workload) <= len(self.workload) + 28

    @precondition(lambda self: self.open)
    @rule()
    def undo(self) -> None:
        self.tournament.undo()
        self.workload, self.open = dict(self.before), False
        assert structure(self.tournament) == self.structure
        assert self.tournament.matches() == [], "the old answers hold again: nothing to ask"

    @rule()
    def nothing_happens(self) -> None:
        self.tournament.update([], [])
        assert self.tournament.matches() == []

    @invariant()
    def champions_are_the_maxima(self) -> None:
        if hasattr(self, "tournament"):
            assert self.tournament.champions() == heaviest(self.workload)
            check_links(self.tournament, self.workload)


Steps.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestSteps = Steps.TestCase


@pytest.mark.parametrize("seed", range(3))
def test_long_sequences_of_steps(seed: int) -> None:
    """Hundreds of candidates, thousands of steps of which half are taken back."""
    randomness = random.Random(seed)
    workload = {device: randomness.randint(1, 9) for device in range(300)}
    tournament = Tournament()
    tournament.update(workload, [True] * len(workload))
    matches = play(tournament, workload)
    steps = 800
    for _ in range(steps):
        assert tournament.champions() == heaviest(workload)
        before = dict(workload)
        tournament.begin()
        chosen = randomness.choice(tournament.champions())
        news = {chosen: randomness.random() < 0.7}
        workload[chosen] -= randomness.randint(1, 3)
        for device in randomness.sample(range(300), 3):
            if device != chosen:
                news[device] = randomness.random() < 0.7
                if device in workload and news[device]:
                    workload[device] += 1
                elif news[device]:
                    workload[device] = randomness.randint(0, max(workload.values()) + 1)
        for device, stays in news.items():
            if not stays:
                workload.pop(device, None)
        devices = sorted(news)
        tournament.update(devices, [news[device] for device in devices], lighter=chosen)
        matches += play(tournament, workload)
        assert tournament.champions() == heaviest(workload)
        if randomness.random() < 0.5:
            tournament.undo()
            workload = before
    assert matches < 12 * steps, "far fewer than 300 for each step"


class Audited:
    """Holds mcmc to what the tournament takes for granted, with the true workloads beside it."""

    def __init__(self, graph: Graph) -> None:
        self.neighbours = neighbours_of(graph)
        self.standings: list[WorkloadOrder] = []
        self.tried = self.undone = self.matches = 0
        audit = self

        class Seen(WorkloadOrder):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                audit.standings.append(self)

        class Watched(Tournament):
            def __init__(self) -> None:
                super().__init__()
                self.known: dict[int, int] = {}
                self.saved: dict[int, int] = {}

            def begin(self) -> None:
                super().begin()
                self.saved = dict(self.known)
                self.before = structure(self)

            def undo(self) -> None:
                super().undo()
                self.known = self.saved
                audit.undone += 1
                assert structure(self) == self.before
                assert self.champions() == heaviest(self.known)

            def update(
                self, devices: Iterable[int], candidate: Iterable[bool], lighter: int | None = None
            ) -> None:
                devices, candidate = list(devices), list(candidate)
                truth = audit.workload()
                audit.tried += 1
                assert devices == sorted(set(devices)), "each device announces itself once"
                for device, stays in zip(devices, candidate, strict=True):
                    if stays and device in self.known and device != lighter:
                        assert truth[device] > self.known[device], "announced without having risen"
                    if device == lighter and device in self.known:
                        assert truth[device] < self.known[device], "proposed and did not fall"
                    if stays:
                        self.known[device] = truth[device]
                    else:
                        self.known.pop(device, None)
                # Whoever was not announced has not changed, and the candidates are the true ones.
                assert self.known == {u: truth[u] for u in audit.candidates(truth)}
                super().update(devices, candidate, lighter)
                check_links(self, truth)

            def matches(self) -> list[tuple[int, int]]:
                pairs = super().matches()
                audit.matches += len(pairs)
                if not pairs:
                    truth = audit.workload()
                    check_links(self, truth)
                    linked = {u: truth[u] for u, row in enumerate(audit.neighbours) if row}
                    assert self.champions() == (heaviest(linked) if linked else [])
                return pairs

        self.replaced = {
            "balancers__mcmc__WorkloadOrder": Seen,
            "balancers__mcmc__Tournament": Watched,
        }

    def workload(self) -> list[int]:
        total = np.zeros(len(self.neighbours), np.int64)
        for standing in self.standings:
            total[standing.shard.devices] = standing.workload
        return total.tolist()

    def candidates(self, workload: list[int]) -> list[int]:
        return [
            u
            for u, row in enumerate(self.neighbours)
            if row and all(workload[v] <= workload[u] for v in row)
        ]


def audited(graph: Graph, iterations: int, seed: int, shards: int = 1) -> Audited:
    audit = Audited(graph)
    chosen = TreeSettings(balancer="mcmc", iterations=iterations, compare="ideal")
    with watching(lambda *_: None, **audit.replaced):
        balance(graph, chosen, seed=seed, shards=shards)
    return audit


@settings(max_examples=60, deadline=None)
@given(graph=graphs(most=10), seed=st.integers(0, 2**32))
def test_mcmc_keeps_to_the_rules_on_any_graph(graph: Graph, seed: int) -> None:
    audited(graph, 25, seed)


@pytest.mark.parametrize("shape", SHAPES)
def test_mcmc_keeps_to_the_rules_on_every_shape(shape: str) -> None:
    audited(SHAPES[shape](), 150, 4)


@pytest.mark.parametrize(
    ("graph", "iterations", "shards"),
    [
        (clique(9), 300, 2),  # every step meets level neighbours, many are taken back
        (bipartite(60, 12), 500, 1),  # begins at 12, the last largest workload for which ℓ is 4
        (random_graph(120, 0.03, 2), 500, 1),  # many candidates that are no neighbours
        (random_graph(40, 0.3, 3), 300, 3),
    ],
    ids=["clique", "bipartite", "sparse", "dense"],
)
def test_mcmc_keeps_to_the_rules_in_long_runs(graph: Graph, iterations: int, shards: int) -> None:
    audit = audited(graph, iterations, 1, shards)
    assert audit.tried == iterations + 1
    assert audit.undone > 0
    candidates = len(audit.candidates(audit.workload()))
    assert audit.matches < 6 * iterations + graph.devices, f"{candidates} candidates at the end"


def test_the_rules_matter() -> None:
    """The audit has power: a tournament that takes a fall for a rise is caught."""
    tournament, workload = Tournament(), {1: 5, 2: 5, 3: 4}
    tournament.update(workload, [True] * 3)
    play(tournament, workload)
    workload[1] = 3
    tournament.update([1], [True])  # device 1 fell, and nobody says that it is the lighter one
    with pytest.raises(AssertionError):
        check_links(tournament, workload)


def test_a_rejected_step_costs_no_second_answer() -> None:
    """Steps are compared again only at the edges of devices whose workload changed."""
    graph = random_graph(60, 0.1, 9)
    chosen = TreeSettings(balancer="mcmc", iterations=200, compare="ideal")
    changed, steps = 0, 0

    class Counting(WorkloadOrder):
        def compare_again(self, rows: Any) -> Any:
            nonlocal changed, steps
            changed += len(self.shard.slots_of(rows))
            steps += 1
            return super().compare_again(rows)

    with watching(lambda *_: None, balancers__mcmc__WorkloadOrder=Counting):
        balanced = balance(graph, chosen, seed=2)
    assert steps == 200
    matches = balanced.ledger.topics["maximum/result"].messages
    evaluated = 200
    assert balanced.ledger.comparisons <= 2 * graph.edges + changed + matches + evaluated
    assert matches <= 6 * steps + graph.devices

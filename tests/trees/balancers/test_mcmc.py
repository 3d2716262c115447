"""Algorithm 2: every draw, every step and whole runs against the printed algorithm."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare
from tests.trees.naive import (
    SHAPES,
    Chain,
    Draws,
    State,
    algorithm_1,
    algorithm_2,
    bipartite,
    clique,
    cycle,
    graph_of,
    graphs,
    largest,
    largest_step,
    neighbours_of,
    path,
    random_graph,
    star,
    state_of,
    step,
    transitions,
)
from tests.trees.watching import sent, watching

from lumos.device.randomness import PrivateRandomness, PublicRandomness, simulated_secrets
from lumos.device.shard import COORDINATOR
from lumos.exchange.messages import Outbox, Topic
from lumos.graph import Graph
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import TreeSettings
from lumos.trees.balancers.mcmc import step_size, threshold

# Seeds are fixed, so a p-value below this means that the code is wrong, not that luck was bad.
MIN_P = 1e-3


def run(graph: Graph, iterations: int, seed: int = 0, shards: int = 1) -> Balanced:
    chosen = TreeSettings(balancer="mcmc", iterations=iterations, compare="ideal")
    return balance(graph, chosen, seed=seed, shards=shards)


def the_same_randomness(graph: Graph, seed: int) -> Draws:
    """The randomness that the federation tosses, for the printed algorithm."""
    private = PrivateRandomness(simulated_secrets(seed, np.arange(graph.devices)))
    public = PublicRandomness(seed).generator("which of the heaviest")

    def propose(u: int, kept: int, iteration: int) -> tuple[float, int, list[int]]:
        most = largest_step(kept)
        r, size, *rest = private.uniform(np.array([u]), "mcmc", iteration, 2 + most)[0].tolist()
        k = 1 + math.floor(size * most)
        places = list(range(kept))
        for place in range(k):
            other = place + math.floor(rest[place] * (kept - place))
            places[place], places[other] = places[other], places[place]
        return r, k, places[:k]

    return Draws(choose=lambda count: int(public.integers(count)), propose=propose)


def other_randomness(seed: int) -> Draws:
    """Randomness that have nothing to do with ours."""
    randomness = random.Random(seed)

    def propose(u: int, kept: int, iteration: int) -> tuple[float, int, list[int]]:
        k = randomness.randint(1, largest_step(kept))
        return randomness.random(), k, randomness.sample(range(kept), k)

    return Draws(choose=randomness.randrange, propose=propose)


class Steps:
    """A run told by its messages: who proposed, what was handed over, and whether it stood."""

    def __init__(self, graph: Graph) -> None:
        self.chain = Chain(states=[algorithm_1(neighbours_of(graph))])

    def __call__(self, topic: Topic, outboxes: Sequence[Outbox]) -> None:
        state = self.chain.states[-1]
        if topic.name == "mcmc/propose":
            for _, chosen, _ in sent(outboxes):  # nobody in a graph without edges
                self.proposer = chosen
        elif topic.name == "mcmc/transfer":
            offered = sent(outboxes)
            assert {u for u, _, _ in offered} == {self.proposer}
            assert {v for _, v, _ in offered} <= state[self.proposer], "gave what it did not hold"
            self.tried = step(state, self.proposer, [v for _, v, _ in offered])
        elif topic.name == "mcmc/judge" and not sent(outboxes):
            self.chain.accepted.append(True)  # known answers settle it
            self.chain.states.append(self.tried)
        elif topic.name == "mcmc/verdict":
            rejected = sent(outboxes)
            assert {ends[:2] for ends in rejected} <= {(self.proposer, COORDINATOR)}
            self.chain.accepted.append(not rejected)
            self.chain.states.append(state if rejected else self.tried)
        elif topic.name == "mcmc/void":
            announced = [ends[:2] for ends in sent(outboxes)]
            assert announced == [(COORDINATOR, self.proposer)] * (not self.chain.accepted[-1])


def told(graph: Graph, iterations: int, seed: int = 0, shards: int = 1) -> tuple[Chain, Balanced]:
    steps = Steps(graph)
    with watching(steps):
        balanced = run(graph, iterations, seed, shards)
    return steps.chain, balanced


# ---- the draws


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 5, 12, 13, 40, 709])
def test_step_size_is_uniform(kept: int) -> None:
    most = max(1, round(math.log(kept)))
    grid = (np.arange(60_000) + 0.5) / 60_000
    sizes = np.bincount([step_size(kept, float(r)) for r in grid])
    assert sizes[0] == 0
    assert len(sizes) == most + 1, "from 1 to round(ln |N_u|)"
    assert sizes[1:] == pytest.approx(60_000 / most, abs=1)


def test_step_size_at_the_ends() -> None:
    assert step_size(40, 2.0**-54) == 1
    assert step_size(40, 1 - 2.0**-53) == 4
    assert step_size(0, 0.5) == 1


@pytest.mark.parametrize("rise", range(9))
def test_accepted_exactly_below_e_to_the_minus_rise(rise: int) -> None:
    """Accepted iff r < e^(f - f'): the length of that interval is the probability."""
    f, edge = 20, math.exp(-rise)
    for nearly in (1e-12, 1e-9, 1e-3, 0.5):
        assert f + rise <= threshold(f, edge * (1 - nearly))
        if edge * (1 + nearly) < 1:
            assert f + rise > threshold(f, edge * (1 + nearly))


@given(st.floats(2.0**-54, 1 - 2.0**-53), st.integers(1, 1000), st.integers(-50, 50))
def test_threshold_decides_as_the_printed_rule(r: float, f: int, rise: int) -> None:
    if abs(math.log(r) + rise) > 1e-9:  # at the edge itself only rounding decides
        assert (f + rise <= threshold(f, r)) == (r < math.exp(min(0, -rise)))


def test_a_step_that_is_no_worse_is_always_accepted() -> None:
    for r in (2.0**-54, 1e-9, 0.3, 0.999, 1 - 2.0**-53):
        assert threshold(7, r) >= 7


def test_accepted_as_often_as_it_should() -> None:
    randomness = PrivateRandomness(simulated_secrets(5, np.arange(1)))
    draws = randomness.uniform(np.array([0]), "test", 0, 40_000)[0]
    limits = np.array([threshold(10, float(r)) for r in draws])
    for rise in range(5):
        accepted = int((10 + rise <= limits).sum())
        chance = math.exp(-rise)
        spread = math.sqrt(40_000 * chance * (1 - chance))
        assert abs(accepted - 40_000 * chance) <= 4 * spread


# ---- whole runs, the same randomness: equal step by step


@settings(max_examples=60, deadline=None)
@given(graph=graphs(most=10), seed=st.integers(0, 2**32))
def test_equals_the_printed_algorithms(graph: Graph, seed: int) -> None:
    printed = algorithm_2(neighbours_of(graph), 20, the_same_randomness(graph, seed))
    balanced = run(graph, 20, seed)
    assert state_of(graph, balanced.keep) == printed.states[-1]
    if graph.edges:
        assert balanced.history == printed.history()


@pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "graph",
    [
        clique(8),
        star(14),
        bipartite(60, 12),  # begins at 12: ℓ is 4 and thresholds saturate
        bipartite(30, 13),  # begins at 13: ℓ is 8
        random_graph(50, 0.2, 7),
    ],
    ids=["clique", "star", "bipartite 12", "bipartite 13", "random"],
)
def test_equals_them_step_by_step_in_long_runs(graph: Graph, shards: int) -> None:
    chain, balanced = told(graph, 250, 13, shards)
    printed = algorithm_2(neighbours_of(graph), 250, the_same_randomness(graph, 13))
    assert chain.accepted == printed.accepted
    assert chain.states == printed.states
    assert state_of(graph, balanced.keep) == printed.states[-1]
    assert balanced.history == printed.history()
    assert balanced.ledger.comparisons < printed.counted.comparisons


def test_rejected_steps_restore_the_state_exactly() -> None:
    """Many rejections: after each, all later steps and the trees are as if it had not been."""
    graph = cycle(9)  # everybody carries one edge: nearly every step makes somebody carry two
    chain, balanced = told(graph, 400, 3)
    assert chain.accepted.count(False) > 40
    assert state_of(graph, balanced.keep) == chain.states[-1]
    printed = algorithm_2(neighbours_of(graph), 400, the_same_randomness(graph, 3))
    assert chain.states == printed.states


@pytest.mark.parametrize("shape", SHAPES)
def test_history(shape: str) -> None:
    graph = SHAPES[shape]()
    chain, balanced = told(graph, 60, 8)
    if not graph.edges:
        assert balanced.history == []
        return
    assert balanced.history == chain.history()
    assert balanced.history[0] == (0, largest(algorithm_1(neighbours_of(graph))))
    assert balanced.history[-1][1] == balanced.max_workload


# ---- whole runs, other randomness: equal in distribution


@pytest.mark.parametrize(
    ("graph", "runs", "iterations"),
    [
        pytest.param(cycle(3), 12, 120, marks=pytest.mark.long),
        pytest.param(path(3), 12, 120, marks=pytest.mark.long),
        (graph_of(4, [(0, 1), (1, 2), (2, 0), (2, 3)]), 12, 150),
        (star(5), 12, 120),
        pytest.param(path(4), 12, 120, marks=pytest.mark.long),
    ],
    ids=["triangle", "path of 3", "triangle with a tail", "star of 5", "path of 4"],
)
def test_steps_have_the_printed_distribution(graph: Graph, runs: int, iterations: int) -> None:
    """Observed transitions against every row of the exact transition matrix (chi-square)."""
    neighbours = neighbours_of(graph)
    seen: dict[State, Counter[State]] = defaultdict(Counter)
    for seed in range(runs):
        chain, _ = told(graph, iterations, seed)
        for before, after in zip(chain.states, chain.states[1:], strict=False):
            seen[before][after] += 1
    statistic, freedom, rows = 0.0, 0, 0
    for before, counts in seen.items():
        exact = {after: p for after, p in transitions(neighbours, before).items() if p > 1e-12}
        assert sum(exact.values()) == pytest.approx(1)
        assert counts.keys() <= exact.keys(), "a step that the printed algorithm cannot take"
        total = counts.total()
        common = [after for after, p in exact.items() if p * total >= 5]
        rare = [after for after in exact if after not in set(common)]
        groups = [[after] for after in common] + ([rare] if rare else [])
        expected = [total * sum(exact[after] for after in group) for group in groups]
        if len(groups) < 2 or min(expected) < 5:
            continue
        observed = [sum(counts[after] for after in group) for group in groups]
        statistic += float(chisquare(observed, expected).statistic)
        freedom += len(groups) - 1
        rows += 1
    assert rows >= 3, "enough states were seen often"
    assert chi2.sf(statistic, freedom) > MIN_P


def test_proposals_of_several_edges_have_the_printed_distribution() -> None:
    """A clique of 6: |N_u| = 5 gives k in 1 … 2, from 6 level devices, first step, exactly."""
    graph, runs = clique(6), 660
    neighbours = neighbours_of(graph)
    exact = transitions(neighbours, algorithm_1(neighbours))
    exact = {state: chance for state, chance in exact.items() if chance > 0}
    assert len(exact) == 6 * (5 + 10)
    counts: Counter[State] = Counter()
    for seed in range(runs):
        counts[state_of(graph, run(graph, 1, seed).keep)] += 1
    assert counts.keys() <= exact.keys()
    states = list(exact)
    observed = [counts[state] for state in states]
    expected = [runs * exact[state] for state in states]
    assert min(expected) >= 5
    assert chisquare(observed, expected).pvalue > MIN_P


@pytest.mark.long  # steps of the same chain are tested always, one by one
def test_runs_have_the_distribution_of_a_run_with_other_randomness() -> None:
    """Largest workload after 6 and 12 steps on one graph: ours beside the printed algorithms'."""
    graph = random_graph(14, 0.35, 21)
    neighbours = neighbours_of(graph)
    ours: Counter[Any] = Counter()
    theirs: Counter[Any] = Counter()
    for seed in range(300):
        chain, _ = told(graph, 12, seed)
        ours[largest(chain.states[6]), largest(chain.states[12])] += 1
        ours["accepted"] += sum(chain.accepted)
    for seed in range(2400):
        chain = algorithm_2(neighbours, 12, other_randomness(seed))
        theirs[largest(chain.states[6]), largest(chain.states[12])] += 1
        theirs["accepted"] += sum(chain.accepted)
    rate = theirs.pop("accepted") / 2400 / 12
    spread = math.sqrt(rate * (1 - rate) / 3600) * 2  # steps of a run are not independent
    assert ours.pop("accepted") / 3600 == pytest.approx(rate, abs=4 * spread)
    common = [pair for pair, count in theirs.items() if count / 8 >= 5]
    expected = [theirs[pair] / 8 for pair in common]
    observed = [ours[pair] for pair in common]
    rest = 300 - sum(expected)
    statistic = sum(
        (o - e) ** 2 / (e * (1 + 1 / 8)) for o, e in zip(observed, expected, strict=True)
    )
    if rest > 0:
        statistic += (300 - sum(observed) - rest) ** 2 / (rest * (1 + 1 / 8))
    assert len(common) >= 2
    assert chi2.sf(statistic, len(common)) > MIN_P

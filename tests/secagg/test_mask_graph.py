"""The mask graph: regular, mirrored, random, and blind to the data."""

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.secagg.federation import some_graph

from lumos.errors import UsageError, WrongSender
from lumos.secagg import AggregateSettings, mask_parameters
from lumos.secagg.parameters import tail

SIZES = [(2, 1), (3, 2), (4, 3), (5, 2), (5, 4), (9, 4), (10, 9), (30, 6)]


@pytest.mark.parametrize(("total", "k"), SIZES)
def test_regular_connected_and_mirrored(total: int, k: int) -> None:
    graph = some_graph(total, k, 3)
    everyone = np.arange(total)
    neighbours = graph.of(everyone)
    drawn = networkx.Graph((u, int(v)) for u in range(total) for v in neighbours[u])
    assert set(dict(drawn.degree).values()) == {k}
    assert networkx.node_connectivity(drawn) == k  # Harary graphs are k-connected
    for slot in range(k):
        assert (graph.slots(everyone, neighbours[:, slot]) == slot).all()
        assert (graph.slots(neighbours[:, slot], everyone) == k - 1 - slot).all()


@pytest.mark.parametrize(("total", "k"), SIZES)
def test_counts_are_those_of_the_neighbours(total: int, k: int) -> None:
    graph = some_graph(total, k, 4)
    flags = np.random.default_rng(total).random(total) < 0.4
    assert np.array_equal(graph.count(flags), flags[graph.of(np.arange(total))].sum(axis=1))


def test_non_neighbours_and_impossible_ids_are_refused() -> None:
    graph = some_graph(30, 6, 5)
    joined = set(graph.of(np.array([0]))[0].tolist())
    for other in range(-2, 32):
        if other not in joined:
            with pytest.raises(WrongSender):
                graph.slots(np.array([0]), np.array([other]))


def test_the_neighbours_are_a_uniform_sample() -> None:
    """Over many seeds everybody is a neighbour of device 0 equally often."""
    counts = np.zeros(10)
    for seed in range(2000):
        counts[some_graph(10, 4, seed).of(np.array([0]))[0]] += 1
    assert counts[0] == 0
    # One draw of 4 of 9 has variance 4/9 · 5/9 per cell, 9/8 of it after the fixed total.
    statistic = ((counts[1:] - 2000 * 4 / 9) ** 2).sum() / (2000 * 4 / 9 * 5 / 9 * 9 / 8)
    assert statistic < stats.chi2.ppf(1 - 1e-4, 8)


@given(st.integers(1, 60), st.data())
def test_the_tail_is_the_hypergeometric_one(population: int, data: st.DataObject) -> None:
    marked = data.draw(st.integers(0, population))
    drawn = data.draw(st.integers(0, population))
    least = data.draw(st.integers(-1, population + 1))
    expected = stats.hypergeom.sf(least - 1, population, marked, drawn)
    assert tail(population, marked, drawn, least) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("total", [5, 8, 20, 60, 300, 2000, 22_470, 1_000_000])
def test_the_degree_keeps_its_guarantees(total: int) -> None:
    settings = AggregateSettings()
    degree = mask_parameters(settings, total)
    assert degree.surrounded + degree.parted <= 2.0**-40 / degree.draws
    assert degree.draws == 1 + total - degree.minimum
    assert degree.stuck <= 2.0**-20
    assert degree.threshold > degree.neighbours / 2
    assert degree.minimum >= 3


@pytest.mark.parametrize("total", [3, 4])
def test_with_very_few_devices_everyone_is_needed(total: int) -> None:
    degree = mask_parameters(AggregateSettings(), total)
    assert degree.neighbours == degree.threshold == total - 1


def test_the_numbers_for_the_demo_size() -> None:
    degree = mask_parameters(AggregateSettings(), 2000)
    assert (degree.neighbours, degree.threshold, degree.minimum) == (78, 59, 1900)


def test_surrounded_is_what_a_simulation_counts() -> None:
    """The union bound is close to, and above, the frequency where it is large enough to count."""
    total, k, t, runs = 40, 8, 6, 3000
    settings = AggregateSettings(neighbours=k, threshold=t, corrupt=0.1)
    bound = mask_parameters(settings, total).surrounded
    hits = 0
    colluding = np.arange(total) < 4
    for seed in range(runs):
        graph = some_graph(total, k, seed)
        hits += bool((graph.count(colluding)[~colluding] >= 2 * t - k).any())
    assert 0 < hits / runs <= bound + 4 * np.sqrt(bound / runs)


@pytest.mark.parametrize("total", [1, 2])
def test_too_few_devices_are_refused(total: int) -> None:
    with pytest.raises(UsageError, match="at least 3 devices"):
        mask_parameters(AggregateSettings(), total)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"neighbours": 3}, "even"),
        ({"neighbours": 10}, "below 10"),
        ({"neighbours": 4, "threshold": 5}, "1 to 4"),
        ({"minimum": 11}, "at least 11"),
    ],
)
def test_impossible_graphs_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        mask_parameters(AggregateSettings(**wrong), 10)


def test_hopeless_wishes_are_refused() -> None:
    with pytest.raises(UsageError, match="lower `corrupt` or `dropped`"):
        mask_parameters(AggregateSettings(corrupt=0.4, dropped=0.4), 5000)


def test_the_page_says_how_many_liars_a_run_survives() -> None:
    page = (Path(__file__).parents[2] / "docs" / "liars.md").read_text()
    table = page.split("## How many liars a run survives")[1].split("\n\n- **s**")[0]
    rows = [
        [int(cell.replace(",", "")) for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("|") and line[2].isdigit()
    ]
    assert len(rows) == 7
    for total, lost, near, cannot_frame in rows:
        found = mask_parameters(AggregateSettings(), total)
        k, t = found.neighbours, found.threshold
        assert [lost, near, cannot_frame] == [total - found.minimum, k - t, 2 * t - k - 1]

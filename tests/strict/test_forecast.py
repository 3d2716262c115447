"""The forecast: against an oracle, against a real run, and in its limits."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import lumos
from lumos.strict.forecast import INDEPENDENT, draw_federation, forecast
from lumos.training.profile import Expected, Forecast, Population

SMALL = Population(devices=2000, classes=3, degree=8.0, homophily=0.7, own_accuracy=0.6)


def made(population: Population = SMALL, **settings: Any) -> Forecast:
    result = forecast(population, **settings)
    assert result is not None
    return result


def changed(**numbers: Any) -> Population:
    return dataclasses.replace(SMALL, **numbers)


def test_the_same_every_time() -> None:
    assert made(changed(devices=400)) == made(changed(devices=400))


def test_without_homophily_neighbours_add_nothing() -> None:
    """The model selection may be wrong by chance, and then it costs little."""
    for expected in made(changed(homophily=1 / 3))[:2]:
        assert isinstance(expected, Expected)
        assert expected.neighbours == pytest.approx(1 / 3, abs=0.06)
        assert abs(expected.gain) < 0.02


def test_exact_labels_of_neighbours_are_a_majority() -> None:
    """Two classes, no noise, no propagated labels: the evidence is which class more neighbours
    have."""
    wanted = Population(devices=6000, classes=2, degree=6.0, homophily=0.75, own_accuracy=0.6)
    drawn = draw_federation(wanted, INDEPENDENT, 6000, np.random.default_rng(99))
    trains = np.random.default_rng(98).random(6000) < 0.5
    pairs = np.unique(np.sort(drawn.pairs, axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    lead = np.zeros(6000)
    for one, other in (pairs.T, pairs.T[::-1]):
        agrees = np.where(drawn.truth[one] == drawn.truth[other], 1, -1)
        np.add.at(lead, one, agrees * trains[other])
    majority = (lead > 0).mean() + (lead == 0).mean() / 2
    result = made(wanted, epsilon=20.0, propagated_labels=0, protect="none")
    assert result.independent.neighbours == pytest.approx(majority, abs=0.02)


def test_more_epsilon_and_more_propagated_labels_are_worth_more() -> None:
    def alone(**settings: Any) -> float:
        return made(changed(devices=8000), **settings).independent.neighbours

    little, usual, none = (
        alone(epsilon=1.0, propagated_labels=0),
        alone(propagated_labels=0),
        alone(),
    )
    assert little < usual - 0.03
    assert usual < none - 0.03


def test_noise_of_sums_hurts_small_federations() -> None:
    few, many = made(changed(devices=200)), made(changed(devices=20_000))
    assert few.independent.gain < many.independent.gain - 0.05
    exact = made(changed(devices=200), protect="none")
    assert few.independent.together < exact.independent.together - 0.05


def test_a_large_federation_is_that_of_its_sample_with_less_noise() -> None:
    """A million devices take no longer; their sums are as good as exact."""
    large = made(changed(devices=1_000_000))
    exact = made(changed(devices=12_000), protect="none")
    assert large.independent.neighbours == pytest.approx(exact.independent.neighbours, abs=0.03)


def test_beyond_what_can_be_simulated_there_is_none() -> None:
    many = Population(devices=50_000, classes=100, degree=8.0, homophily=0.7, own_accuracy=0.6)
    assert forecast(many, mechanism="krr") is None
    few = Population(devices=400, classes=30, degree=8.0, homophily=0.7, own_accuracy=0.6)
    assert "30 classes" in made(few, mechanism="krr").assumptions  # all of them are simulated


def test_errors_that_are_shared_leave_less_to_gain() -> None:
    result = made(changed(devices=8000, homophily=0.85, own_accuracy=0.85))
    assert 0.01 < result.clustered.gain < result.independent.gain - 0.03


def test_the_demo_graph_is_as_forecast() -> None:
    """It is generated with independent edges: a real run gains what the forecast says."""
    graph = lumos.load("demo")
    ends = np.asarray(graph.labels)[graph.edge_list()]
    runs = [lumos.train(graph, profile="strict", seed=seed) for seed in (0, 1)]
    own = [float((run.own or {})["test_accuracy"]) for run in runs]
    gain = float(np.mean([run.metrics["test_accuracy"] for run in runs]) - np.mean(own))
    wanted = Population(
        devices=graph.devices,
        classes=graph.class_count,
        degree=2 * graph.edges / graph.devices,
        homophily=float((ends[:, 0] == ends[:, 1]).mean()),
        own_accuracy=float(np.mean(own)),
    )
    expected = made(wanted)
    assert expected.independent.gain == pytest.approx(gain, abs=0.05)
    assert expected.clustered.gain < gain

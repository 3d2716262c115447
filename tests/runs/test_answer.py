"""The answer of a run in words: it claims no more than the test set shows."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

import lumos
from lumos.graph import Graph
from lumos.runs.run import Run
from lumos.runs.schema import Split
from lumos.runs.text import advice, answer, guarantee, guarantee_text, split_used
from lumos.training.metrics import auc, beyond_noise, standard_error


@pytest.fixture(scope="module")
def labels(sixty: Graph) -> Run:
    return lumos.train(sixty, profile="paper", balancer="none", epochs=1)


@pytest.fixture(scope="module")
def links(sixty: Graph) -> Run:
    return lumos.train(sixty, profile="paper", balancer="none", epochs=1, task="link")


def scored(run: Run, tested: int, what: str = "accuracy", /, **scores: float) -> Run:
    """The run with other scores on a test set of another size."""
    split = Split(2 * tested, tested, tested)
    return replace(
        run,
        about=msgspec.structs.replace(run.about, graph="town"),
        split_sizes=split,
        scores={variant: {f"test_{what}": score} for variant, score in scores.items()},
    )


@pytest.mark.parametrize(
    ("tested", "scores", "words"),
    [
        (
            500,
            {"run": 0.928, "own": 0.71},
            "Test accuracy on town: 92.8 % (500 devices), PROFILE; local model (no neighbours): "
            "71.0 %, so neighbours add 21.8 points.",
        ),
        (
            20,
            {"run": 0.8, "own": 0.7},
            "Test accuracy on town: 80.0 % (20 devices), PROFILE; local model (no neighbours): "
            "70.0 %, so neighbours add +10.0 points, within the noise of a test set of this size.",
        ),
        (
            5000,
            {"run": 0.6, "own": 0.7},
            "Test accuracy on town: 60.0 % (5,000 devices), PROFILE; local model (no neighbours): "
            "70.0 %, so neighbours cost 10.0 points.",
        ),
        (
            500,
            {"run": 0.7, "own": 0.7},
            "Test accuracy on town: 70.0 % (500 devices), PROFILE; local model (no neighbours): "
            "70.0 %, so neighbours add nothing.",
        ),
        (500, {"run": 0.7}, "Test accuracy on town: 70.0 % (500 devices), PROFILE."),
        (
            500,
            {"run": 0.9, "own": 0.7, "control": 0.69},
            "Test accuracy on town: 90.0 % (500 devices), PROFILE; local model (no neighbours): "
            "70.0 %; control (releases without information): 69.0 %, so messages add 21.0 points "
            "over the control.",
        ),
        (
            500,
            {"run": 0.9, "own": 0.7, "control": 0.89},
            "Test accuracy on town: 90.0 % (500 devices), PROFILE; local model (no neighbours): "
            "70.0 %; control (releases without information): 89.0 %, so messages add +1.0 points "
            "over the control, within the noise of a test set of this size.",
        ),
    ],
)
def test_labels(labels: Run, tested: int, scores: dict[str, Any], words: str) -> None:
    assert answer(scored(labels, tested, **scores)) == words.replace("PROFILE", untrimmed(labels))


def untrimmed(run: Run) -> str:
    largest = run.trees.degree.max()
    return f"profile paper (corrected, balancer none, largest workload {largest})"


def test_the_first_line_names_the_profile(sixty: Graph, links: Run) -> None:
    assert ", profile strict; " in answer(lumos.train(sixty))
    literal = lumos.train(
        sixty, profile="paper", literal=True, compare="ideal", iterations=5, epochs=1
    )
    largest = literal.trees.max_workload
    assert f", profile paper (literal, balancer mcmc, largest workload {largest})" in answer(
        literal
    )


def test_links(links: Run) -> None:
    assert answer(scored(links, 900, "auc", run=0.9, own=0.7)) == (
        f"Test ROC-AUC on town: 0.900 (900 edges), {untrimmed(links)}; local model (no "
        "neighbours): 0.700, so messages add 0.200."
    )


def test_the_noise_of_an_accuracy_is_that_of_a_coin() -> None:
    flips = np.random.default_rng(1).random((20_000, 200)) < 0.8
    assert standard_error(0.8, 200, "accuracy") == pytest.approx(flips.mean(1).std(), rel=0.03)
    assert math.isinf(standard_error(0.8, 0, "accuracy"))


def test_the_noise_of_an_auc_is_that_of_two_samples() -> None:
    randomness = np.random.default_rng(1)
    edges, non_neighbours = (
        randomness.exponential(2, (2000, 60)),
        randomness.exponential(1, (2000, 60)),
    )
    found = [auc(one, other) for one, other in zip(edges, non_neighbours, strict=True)]
    # Hanley and McNeil's formula is exact for exponential scores.
    assert standard_error(float(np.mean(found)), 60, "auc") == pytest.approx(
        np.std(found), rel=0.05
    )


def test_a_difference_of_chance_is_rarely_called_more() -> None:
    randomness = np.random.default_rng(2)
    one, other = ((randomness.random((2000, 100)) < 0.7).mean(1) for _ in range(2))
    wrong = [beyond_noise(a, b, 100, "accuracy") for a, b in zip(one, other, strict=True)]
    assert np.mean(wrong) < 0.07


def test_the_guarantee_says_that_it_is_simulated(labels: Run, sixty: Graph) -> None:
    nothing = (
        "Nothing is guaranteed: neighbours got embeddings of raw features, and gradients that "
        "depend on labels, without protection; ε = 2 covers released features alone. This was a "
        "simulation."
    )
    assert guarantee(labels) == [("", nothing)]
    strict = lumos.train(sixty)
    assert [title for title, _ in guarantee(strict)] == [
        "Label",
        "Features",
        "Edge",
        "Not protected",
        "",
    ]
    accuracy = f"{100 * strict.metrics['test_accuracy']:.1f} %"
    assert f"what the model itself predicts: {accuracy} of the test labels" in guarantee_text(
        strict
    )
    assert guarantee_text(strict).endswith(
        "This was a simulation; the guarantee needs `aggregate='secure'` and `randomness='system'`."
    )
    train = replace(strict.config.train, aggregate="secure", randomness="system")
    real = replace(strict, config=replace(strict.config, train=train))
    assert "simulation" not in guarantee_text(real)


def test_the_first_warning_is_the_advice(labels: Run) -> None:
    content = replace(labels, model=replace(labels.model, warnings=[]))
    assert advice(content).startswith("`control=True` shows")
    warned = replace(labels.model, warnings=["more devices would help", "another"])
    assert advice(replace(labels, model=warned)) == "more devices would help"
    assert advice(scored(content, 9, run=0.5, control=0.4)) == ""


def test_the_split(labels: Run, links: Run) -> None:
    assert split_used(labels) == (
        "random, 50/25/25 of the labelled devices by seed 0: 30 devices train, 15 validate, 15 "
        "test. The weights of the best validation score are kept"
    )
    assert "edges train" in split_used(links)

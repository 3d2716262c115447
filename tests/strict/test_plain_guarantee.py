"""The guarantee in plain words has the worst figure of every row, and hides no row."""

import math
from typing import Any

import pytest

from lumos.strict.classify import guarantees as classify_guarantees
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.link import guarantees as link_guarantees
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.texts import classify_in_words, guess_bound, link_in_words
from lumos.training.config import Config


def classify(**settings: Any) -> tuple[list[dict[str, str]], str]:
    config = Config.of(**settings)
    schedule = ClassifySchedule(
        config=config, devices=2000, training=1000, validation=500, classes=4
    )
    table = classify_guarantees.guarantees(schedule)
    return table, classify_in_words(table)


def links(**settings: Any) -> tuple[list[dict[str, str]], str]:
    schedule = LinkSchedule(config=Config.of(task="link", **settings), devices=2000)
    table = link_guarantees.guarantees(schedule)
    return table, link_in_words(table)


def test_the_defaults() -> None:
    table, words = classify()
    by_row = {row["about"]: row for row in table}
    assert by_row["label: this one or another"]["training devices"] == "ε = 3, pure"
    assert by_row["features: these or others"]["training devices"] == "(8, 1e-05)"
    assert words.startswith(
        "To whoever sees every message and the model, one label or another: ε = 3; one device's "
        "features or any others: ε = 8, δ = 1e-05; a whole record or another: ε = 11, δ = 1e-05; "
        "one edge there or not: ε = "
    )
    edge = by_row["one edge: there or not"]
    worst = max(float(cell[1:].split(",")[0]) for cell in edge.values() if cell[0] == "(")
    assert f"one edge there or not: ε = {worst:g}, δ = 1e-05. Whoever would guess" in words
    assert "p·e^ε/(1 - p + p·e^ε), for example from 25 to 87 %." in words
    assert words.endswith("Not protected: membership, degrees.")


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0, 20.0])
def test_no_adverb_stands_for_a_number(epsilon: float) -> None:
    _, words = classify(epsilon=epsilon, update_epsilon=50.0)
    assert "hardly" not in words
    assert f"one label or another: ε = {epsilon:g};" in words
    assert f"from 25 to {100 * guess_bound(epsilon, 0.25):.3g} %" in words


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1.0), (4, 3.0), (6, 0.5), (10, 8.0)])
def test_the_bound_is_that_of_the_best_guess(classes: int, epsilon: float) -> None:
    """Randomized response of equally likely classes meets it: its randomized label is the best
    guess."""
    kept = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    assert guess_bound(epsilon, 1 / classes) == pytest.approx(kept)
    assert guess_bound(epsilon, 0.0) == 0
    assert guess_bound(epsilon, 1.0) == 1


def test_exact_sums_guarantee_nothing_about_features() -> None:
    _, words = classify(protect="none")
    nothing = words.split("Not protected: ")[1]
    assert "one device's features or any others" in nothing
    assert "a whole record or another" in nothing


def test_true_labels_in_sums() -> None:
    _, words = classify(label_epsilon=float("inf"))
    assert (
        "one label or another: ε = 3;" not in words
    )  # the randomized label's ε is not the whole guarantee
    assert "one label or another: ε = " in words
    assert "guess" not in words  # with a δ there is no such bound


def test_links() -> None:
    table, words = links()
    assert table[0]["by score queries"].endswith("34 bits at most in 16 score queries")
    assert words == (
        "To whoever sees every sum and the model, one device's features or any others: ε = 8, "
        "δ = 1e-05. Not protected: edges, degrees, membership. Score queries add: 34 "
        "bits at most in 16 score queries."
    )
    _, words = links(protect="none")
    assert words.startswith("Not protected: one device's features or any others, edges")
    _, words = links(score_queries=0)
    assert words.endswith("Score queries add: 2 bits for each asker, any number of them.")
    _, words = links(query_epsilon=0.5)
    assert words.endswith("Score queries add: ε = 0.5 for each score query, 8 for all of them.")

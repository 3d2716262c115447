"""The promise in plain words has the worst figure of every row, and hides no row."""

from typing import Any

from lumos.strict.classify import guarantees as classify_promises
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.link import guarantees as link_promises
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.texts import classify_in_words, link_in_words
from lumos.training.config import Config


def classify(**settings: Any) -> tuple[list[dict[str, str]], str]:
    config = Config.of(**settings)
    schedule = ClassifySchedule(
        config=config, devices=2000, training=1000, validation=500, classes=4
    )
    table = classify_promises.promises(schedule)
    return table, classify_in_words(table)


def links(**settings: Any) -> tuple[list[dict[str, str]], str]:
    schedule = LinkSchedule(config=Config.of(task="link", **settings), devices=2000)
    table = link_promises.promises(schedule)
    return table, link_in_words(table)


def test_the_defaults() -> None:
    table, words = classify()
    by_row = {row["about"]: row for row in table}
    assert by_row["label: this one or another"]["training devices"] == "ε = 3, pure"
    assert by_row["features: these or others"]["training devices"] == "(8, 1e-05)"
    assert words.startswith(
        "Someone who sees every message and the model can hardly tell one label from another "
        "(ε = 3) or one device's features from any others (ε = 8, δ = 1e-05). Less protected: a "
        "whole record from another (ε = 11, δ = 1e-05), whether one edge is there (ε = "
    )
    edge = by_row["one edge: there or not"]
    worst = max(float(cell[1:].split(",")[0]) for cell in edge.values() if cell[0] == "(")
    assert f"whether one edge is there (ε = {worst:g}, δ = 1e-05)" in words
    assert words.endswith("Not protected: membership, degrees.")


def test_a_large_epsilon_is_not_called_hard() -> None:
    _, words = classify(epsilon=20.0, update_epsilon=50.0)
    assert "hardly" not in words
    assert words.startswith("Less protected: one label from another (ε = 20), one device's feat")


def test_exact_sums_promise_nothing_about_features() -> None:
    _, words = classify(protect="none")
    nothing = words.split("Not protected: ")[1]
    assert "one device's features from any others" in nothing
    assert "a whole record from another" in nothing


def test_true_labels_in_sums() -> None:
    _, words = classify(label_epsilon=float("inf"))
    assert "one label from another (ε = 3)" not in words  # the symbol's ε is not the whole promise
    assert "one label from another (ε = " in words


def test_links() -> None:
    table, words = links()
    assert table[0]["by answers"].endswith("34 bits at most in 16 answers")
    assert words == (
        "Someone who sees every sum and the model can hardly tell one device's features from any "
        "others (ε = 8, δ = 1e-05). Not protected: edges, degrees, membership. Answers add: 34 "
        "bits at most in 16 answers."
    )
    _, words = links(protect="none")
    assert words.startswith("Not protected: one device's features from any others, edges")
    _, words = links(answers=0)
    assert words.endswith("Answers add: 2 bits for each asker, any number of them.")
    _, words = links(answer_epsilon=0.5)
    assert words.endswith("Answers add: ε = 0.5 for each answer, 8 for all of them.")

"""Sums of links are as wide as there are words: two words for a feature with a sign."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import lumos

GRAPH = lumos.load("demo:80")
SIGNED = dataclasses.replace(
    GRAPH, features=np.random.default_rng(0).standard_normal((80, 6)).astype(np.float32)
)


@pytest.mark.parametrize(
    ("graph", "settings", "words"),
    [
        (GRAPH, {}, GRAPH.feature_count),
        (SIGNED, {}, 12),
        (SIGNED, {"signs": "nonnegative"}, 6),
    ],
)
def test_the_encoder_has_a_row_for_every_word(
    graph: lumos.Graph, settings: dict[str, Any], words: int
) -> None:
    run = lumos.train(graph, task="link", random_marks=8, **settings)
    assert run.model.weights["basis"].shape == (words, 8)


@pytest.mark.parametrize("random_marks", [2, 8, 32])
def test_every_width_has_levels(random_marks: int) -> None:
    run = lumos.train(GRAPH, task="link", random_marks=random_marks)
    assert run.metrics["test_auc"] > 0

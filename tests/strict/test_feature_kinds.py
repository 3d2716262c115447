"""The local classifier on generated families of features, with noise and without."""

from typing import Any

import numpy as np
import pytest
from tests.narrow import present

import lumos
from lumos import Graph
from lumos.strict.classify.encoder import Encoder

DEVICES, CLASSES = 1600, 4


def features_of(kind: str, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[devices, features] of a family; the means of a class differ from those of the others."""
    size = len(labels)
    if kind == "mixed":
        kinds = ("dense binary", "one-hot", "sparse binary")
        return np.concatenate([features_of(each, labels, rng) for each in kinds], axis=1)
    if kind == "Gaussian":
        means = 0.2 * rng.standard_normal((CLASSES, 120))
        return means[labels] + rng.standard_normal((size, 120))
    if kind == "one-hot":  # twenty columns with ten values each
        chances = rng.dirichlet(np.full(10, 1.0), (CLASSES, 20))[labels].cumsum(axis=2)
        chosen = (rng.random((size, 20, 1)) > chances).sum(axis=2).clip(0, 9)
        return np.eye(10)[chosen].reshape(size, 200)
    usual, width = (0.02, 300) if kind == "sparse binary" else (0.6, 300)
    odds = usual / (1 - usual) * np.exp(0.3 * rng.standard_normal((CLASSES, width)))
    if kind == "sparse binary":
        odds = usual / (1 - usual) * np.exp(rng.standard_normal((CLASSES, width)))
    return (rng.random((size, width)) < (odds / (1 + odds))[labels]).astype(np.float64)


def graph_of(kind: str) -> Graph:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, CLASSES, DEVICES)
    return Graph.from_edges(
        rng.integers(0, DEVICES, (3 * DEVICES, 2)),
        devices=DEVICES,
        features=features_of(kind, labels, rng).astype(np.float32),
        labels=labels,
    )


def local(graph: Graph, protect: Any) -> float:
    runs = [lumos.train(graph, protect=protect, seed=seed).own for seed in range(2)]
    return float(np.mean([present(own)["test_accuracy"] for own in runs]))


@pytest.mark.parametrize("kind", ["dense binary", "sparse binary", "Gaussian", "one-hot", "mixed"])
def test_without_noise_the_local_classifier_is_no_worse(kind: str) -> None:
    """The finding: 75 % with noise and 44 % without, on rows with hundreds of ones."""
    graph = graph_of(kind)
    noisy, exact = local(graph, "noise"), local(graph, "none")
    assert noisy > 1.5 / CLASSES
    assert exact > noisy - 0.05


def test_steps_along_the_mean_row_would_overshoot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant uses gradients as they are."""
    monkeypatch.setattr(Encoder, "_without_mean", lambda self, gradient: gradient)
    graph = graph_of("dense binary")
    assert local(graph, "none") < local(graph, "noise") - 0.1

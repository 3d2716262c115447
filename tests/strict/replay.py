"""Whole strict runs on little graphs, and their replays by the audit."""

import math
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.narrow import present
from tests.strict.strictly import epochs, federation, the_same_randomness

from lumos.audit.attacks.replay import Transcript, replay, replay_run
from lumos.audit.harness import without_masked_vectors
from lumos.device.randomness import PublicRandomness
from lumos.exchange.tape import recording
from lumos.graph import Graph
from lumos.strict.classify.labels import NoisyLabels
from lumos.strict.features import OuterVectors
from lumos.training.split import split_vertices

CLASSES, WORDS = 4, 40


def little_graph(seed: int, devices: int = 120, *, signed: bool = False) -> Graph:
    """Classes that words and edges point to; `signed` features are Gaussian."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, devices)
    ends = generator.integers(0, devices, (8 * devices, 2))
    alike = labels[ends[:, 0]] == labels[ends[:, 1]]
    edges = ends[(ends[:, 0] != ends[:, 1]) & (alike | (generator.random(len(ends)) < 0.2))]
    features = generator.standard_normal((devices, WORDS))
    if not signed:
        likely = np.arange(WORDS) % CLASSES == labels[:, None]
        features = (generator.random((devices, WORDS)) < np.where(likely, 0.4, 0.08)).astype(float)
    return Graph.from_edges(
        edges, devices=devices, features=features.astype(np.float32), labels=labels
    )


def whole_run(
    graph: Graph,
    seed: int = 0,
    *,
    roles: np.ndarray | None = None,
    given: Transcript | None = None,
    labels: NoisyLabels | None = None,
    **settings: Any,
) -> Transcript:
    """Run everything, from the draw of labels to the model selection, and replay it.

    Args:
        given: whose roles, sums, randomized labels and propagated labels the devices receive;
            nothing is run then.
        labels: randomized labels instead of drawn ones.
    """
    if given is not None:
        return replay(given, graph=graph, labels=labels)
    if roles is None:
        roles = split_vertices(present(graph.labels), PublicRandomness(seed))
    settings = {"encoder_epochs": 16, "epochs": 61} | settings
    drawn = patch("lumos.strict.classify.trainer.draw_labels", lambda *_: labels)
    with the_same_randomness(), recording(without_masked_vectors) as tape:
        if labels is not None:
            drawn.start()
        try:
            made: Any = federation(graph, roles, seed, transport="recording", **settings)
            made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
            epochs(made, 0, made.config.train.epochs)
            made.finish()
            return replay_run(graph, np.asarray(roles, np.int64), made.config, seed, tape)
        finally:
            if labels is not None:
                drawn.stop()


def same_run(one: Transcript, two: Transcript) -> bool:
    """Return whether vectors, sums, randomized and propagated labels are equal bit by bit."""
    arrays = [
        [
            *run.seen.totals,
            run.seen.randomized_labels,
            *run.seen.propagated_labels,
            *run.sums,
            *(written_out(run, number) for number in range(len(run.parts))),
        ]
        for run in (one, two)
    ]
    return all(np.array_equal(first, second) for first, second in zip(*arrays, strict=True))


def written_out(run: Transcript, number: int) -> np.ndarray:
    """[devices, width] all vectors of a sum."""
    part = run.parts[number]
    vectors = np.zeros((len(run.roles), len(run.seen.totals[number])))
    vectors[part.devices] = (
        part.vectors.dense() if isinstance(part.vectors, OuterVectors) else part.vectors
    )
    return vectors


def truth_probability(epsilon: float, classes: int) -> float:
    """p of randomized response."""
    return math.exp(epsilon) / (math.exp(epsilon) + classes - 1)

"""LPGNN (Sajadmanesh and Gatica-Perez 2021): the server knows every edge.

Multi-bit features smoothed by KProp, labels under randomized response learnt from by Drop.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from lumos.baselines.network import Arcs, Denoise, Drop, Smoothed, noisy_labels, transition
from lumos.baselines.systems import BaselineSettings, Received, ServerProblem, System
from lumos.device.randomness import PrivateRandomness, PublicRandomness, simulated_secrets
from lumos.ldp import multibit
from lumos.ldp.bounds import Features, raw_rows, within
from lumos.ldp.multibit import sampled_features
from lumos.training.problem import features_of
from lumos.training.split import Role

LABEL_STEPS = (0, 4)
"""Values of K_y that `auto` tries: graphs differ in how far labels carry."""


class Lpgnn(System):
    """A graph network on noised features and labels, over edges in the clear."""

    local = "lpgnn-own"
    without_links = (
        "lpgnn cannot predict links: its server knows every edge, so there is nothing to predict; "
        "centralized, own and naive can"
    )

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Return defaults chosen on validation, seed 0, Facebook (docs/baselines.md)."""
        clean = given.label_epsilon == math.inf
        return {
            "backbone": "gcn",
            "feature_epsilon": 8.0,
            "label_epsilon": 3.0,
            "low": 0.0,
            "high": 1.0,
            "one_bit": False,
            "steps": 4,
            "label_steps": 0 if clean else "auto",
            "dropout": 0.5,
            "weight_decay": 1e-3 if clean else 0.0,
        }

    def protects(self, settings: BaselineSettings) -> str:
        """Name the ε of features and label; the server knows the edges."""
        return (
            f"label: ε = {settings.label_epsilon:g}; features: ε = {settings.feature_epsilon:g}; "
            "edges: none, the server knows them"
        )

    def edges(self, problem: ServerProblem, settings: BaselineSettings) -> tuple[Arcs, list[str]]:
        """Return the edges that the server knows or believes in, and notes about them."""
        return Arcs.of(problem.graph.edge_list(), problem.graph.devices), [
            "The server knows every edge exactly; only features and labels are noised."
        ]

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """Return edges, multi-bit features, and noisy labels of training and validation devices."""
        graph, public = problem.graph, problem.public
        arcs, notes = self.edges(problem, settings)
        features = features_of(graph)
        within(features, settings.low, settings.high)
        rows = Smoothed(matrix=raw_rows(features), plus=0.0, arcs=arcs, steps=settings.steps)
        if math.isfinite(settings.feature_epsilon):
            rows, drawn = _multi_bit(features, settings, arcs, public)
            notes += [
                f"Of {graph.feature_count:,} features, {drawn:,} leave each device, one bit each."
            ]
        true = np.where(problem.roles == Role.TEST, -1, np.asarray(graph.labels))
        labels = noisy_labels(
            true, graph.class_count, settings.label_epsilon, public.generator("baseline/labels")
        )
        drop = Drop(
            torch.from_numpy(labels.copy()),
            torch.from_numpy(problem.roles == Role.TRAIN),
            transition(graph.class_count, settings.label_epsilon),
            arcs,
            int(settings.label_steps),
        )
        return Received(
            rows=rows,
            arcs=arcs,
            goal=Denoise(drop, labels, problem.roles),
            disclosed=[
                *notes,
                f"ε = {settings.feature_epsilon:g} for features and {settings.label_epsilon:g} for "
                "the label of a training or validation device: "
                f"{settings.feature_epsilon + settings.label_epsilon:g} in total.",
            ],
        )

    def attempts(self, settings: BaselineSettings) -> list[BaselineSettings]:
        """Return these settings, or one for each K_y that `auto` stands for."""
        if settings.label_steps != "auto":
            return [settings]
        return [dataclasses.replace(settings, label_steps=steps) for steps in LABEL_STEPS]

    def chosen(self, attempts: list[BaselineSettings], best: int) -> list[str]:
        """Name the chosen K_y, where there was a choice."""
        if len(attempts) == 1:
            return []
        tried = " and ".join(str(each.label_steps) for each in attempts)
        return [
            f"Drop was trained with K_y = {tried} on the same releases; the noisy validation "
            f"labels chose {attempts[best].label_steps}."
        ]


class LpgnnOwn(Lpgnn):
    """The same without edges: the local model under LPGNN's protection."""

    local = ""

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Return those of LPGNN; there is nobody to average with."""
        return {**super().defaults(given), "steps": 0, "label_steps": 0}

    def protects(self, settings: BaselineSettings) -> str:
        """Name the ε of features and label; edges are not used."""
        return super().protects(settings).replace("none, the server knows them", "not used")

    def edges(self, problem: ServerProblem, settings: BaselineSettings) -> tuple[Arcs, list[str]]:
        """Return no edge."""
        return Arcs.of(np.empty((0, 2), np.int64), problem.graph.devices), [
            "The server is told no edge; features and labels are noised."
        ]


LPGNN, LPGNN_OWN = Lpgnn(), LpgnnOwn()


def _multi_bit(
    features: Features, settings: BaselineSettings, arcs: Arcs, public: PublicRandomness
) -> tuple[Smoothed, int]:
    """Return smoothed features in units of their noise, and the number that each device drew."""
    devices, width = features.shape
    epsilon, low, high = settings.feature_epsilon, settings.low, settings.high
    drawn = width if settings.one_bit else sampled_features(epsilon, width)
    randomness = PrivateRandomness(simulated_secrets(public.seed, np.arange(devices), "/baseline"))
    bits = multibit.release(features, epsilon, randomness, low=low, high=high, sampled=drawn)
    # A rectified feature is ±scale or 0 from the midpoint, so its standard deviation is about
    # scale · √(m/d): thousands. Divided by that public number, training starts where it should.
    matrix = bits.astype(np.float32) * np.float32(math.sqrt(width / drawn))
    spread = multibit.rectify_scale(epsilon, width, low, high, drawn) * math.sqrt(drawn / width)
    rows = Smoothed(
        matrix=matrix.toarray() if drawn == width else csr_array(matrix),
        plus=(low + high) / 2 / spread,
        arcs=arcs,
        steps=settings.steps,
    )
    return rows, drawn

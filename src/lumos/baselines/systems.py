"""The four systems: what each server holds before it trains, and what it has learnt by that."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import csr_array, issparse

from lumos.aggregate.noise import mu_for
from lumos.baselines.arcs import Arcs
from lumos.baselines.goals import PAIRS, ClassifyGoal, Denoise, Goal, LinkGoal
from lumos.baselines.label_noise import Drop, noisy_labels, transition
from lumos.baselines.noisy_graph import noisy_edges
from lumos.baselines.server_network import Rows, Smoothed
from lumos.baselines.settings import BaselineSettings
from lumos.device.coins import PrivateCoins, PublicCoins, simulated_secrets
from lumos.encode import multi_bit
from lumos.encode.bounds import Features, unit_rows, within
from lumos.encode.sampling import sampled_features
from lumos.graph import Graph
from lumos.training.private_data import features_of
from lumos.training.split import EdgeSplit, Role
from lumos.typing import Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerProblem:
    """The graph and its split; for link, `graph` has the training edges only."""

    graph: Graph
    roles: Ints = field(repr=False)
    """[devices] for classify; empty for link."""
    split: EdgeSplit | None = field(repr=False)
    """For link."""
    public: PublicCoins


@dataclass(frozen=True, kw_only=True, eq=False)
class Held:
    """What a server has in its hands when training begins."""

    rows: Rows = field(repr=False)
    """[devices, d] features as it knows them."""
    arcs: Arcs = field(repr=False)
    goal: Goal = field(repr=False)
    notes: list[str]
    """Who learns what, one plain sentence each."""


def held(problem: ServerProblem, settings: BaselineSettings) -> Held:
    """Everything that devices send, as the server of the system receives it."""
    if settings.system == "lpgnn":
        return _lpgnn(problem, settings)
    if settings.system == "naive":
        return _naive(problem, settings)
    return _in_the_clear(problem, settings)


def _in_the_clear(problem: ServerProblem, settings: BaselineSettings) -> Held:
    """centralized and own: raw features; own never looks at an edge."""
    graph = problem.graph
    rows = features_of(graph)
    own = settings.system == "own"
    edges = graph.edge_list()
    notes = [
        "Each device predicts from its own raw features; no neighbour tells it anything, and the "
        "shared weights are trained without noise."
        if own
        else "One server holds all raw features, labels and edges; nothing is private."
    ]
    return Held(
        rows=unit_rows(rows) if settings.normalise else _copied(rows),
        arcs=Arcs.of(edges[:0] if own else edges, graph.devices),
        goal=_goal(problem, graph.labels, edges),
        notes=notes,
    )


def _lpgnn(problem: ServerProblem, settings: BaselineSettings) -> Held:
    """Edges in the clear, multi-bit features smoothed by KProp, noisy labels with Drop."""
    graph, public = problem.graph, problem.public
    arcs = Arcs.of(graph.edge_list(), graph.devices)
    features = features_of(graph)
    within(features, settings.low, settings.high)
    rows = Smoothed(matrix=_copied(features), plus=0.0, arcs=arcs, steps=settings.steps)
    bits = ""
    if math.isfinite(settings.epsilon):
        rows, drawn = _multi_bit(features, settings, arcs, public)
        bits = f" Of {graph.feature_count:,} features, {drawn:,} leave each device, one bit each."
    labels = np.where(problem.roles == Role.TEST, -1, np.asarray(graph.labels))
    said_labels = noisy_labels(
        labels, graph.class_count, settings.label_epsilon, public.generator("baseline/labels")
    )
    drop = Drop(
        torch.from_numpy(said_labels.copy()),
        torch.from_numpy(problem.roles == Role.TRAIN),
        transition(graph.class_count, settings.label_epsilon),
        arcs,
        int(settings.label_steps),
    )
    return Held(
        rows=rows,
        arcs=arcs,
        goal=Denoise(drop, said_labels, problem.roles),
        notes=[
            "The server knows every edge exactly; only features and labels are noised." + bits,
            f"ε = {settings.epsilon:g} for features and {settings.label_epsilon:g} for the label "
            f"of a training or validation device: {settings.epsilon + settings.label_epsilon:g} "
            "in total.",
        ],
    )


def _multi_bit(
    features: Features, settings: BaselineSettings, arcs: Arcs, public: PublicCoins
) -> tuple[Smoothed, int]:
    """Rectified features in units of their noise, smoothed; and how many each device drew."""
    devices, width = features.shape
    epsilon, low, high = settings.epsilon, settings.low, settings.high
    drawn = width if settings.one_bit else sampled_features(epsilon, width)
    coins = PrivateCoins(simulated_secrets(public.seed, np.arange(devices), "/baseline"))
    said = multi_bit.release(features, epsilon, coins, low=low, high=high, sampled=drawn)
    # A rectified feature is ±scale or 0 from the midpoint, so its standard deviation is about
    # scale · √(m/d): thousands. Divided by that public number, training starts where it should.
    matrix = said.astype(np.float32) * np.float32(math.sqrt(width / drawn))
    spread = multi_bit.rectify_scale(epsilon, width, low, high, drawn) * math.sqrt(drawn / width)
    rows = Smoothed(
        matrix=matrix.toarray() if drawn == width else csr_array(matrix),
        plus=(low + high) / 2 / spread,
        arcs=arcs,
        steps=settings.steps,
    )
    return rows, drawn


def _naive(problem: ServerProblem, settings: BaselineSettings) -> Held:
    """Noised features, noised neighbour lists, noisy labels; plain training on all of it."""
    graph, public, epsilon = problem.graph, problem.public, settings.epsilon
    features = features_of(graph)
    within(features, settings.low, settings.high)
    rows, sigma = noisy_features(features, settings, public.generator("baseline/features"))
    edges = noisy_edges(
        graph.edge_list(), graph.devices, epsilon, public.generator("baseline/edges")
    )
    arcs, sampled = _believed(edges, graph.devices, settings.edge_sample, public)
    labels = graph.labels
    if problem.split is None:
        labels = noisy_labels(
            np.asarray(graph.labels),
            graph.class_count,
            settings.label_epsilon,
            public.generator("baseline/labels"),
        )
    return Held(
        rows=rows,
        arcs=arcs,
        goal=_goal(problem, labels, edges),
        notes=[*_naive_notes(problem, settings, sigma, len(edges)), *sampled],
    )


def _naive_notes(
    problem: ServerProblem, settings: BaselineSettings, sigma: float, edges: int
) -> list[str]:
    epsilon, true = settings.epsilon, problem.graph.edges
    total = 2 * epsilon + (settings.label_epsilon or 0.0)
    parts = f"ε = {epsilon:g} each for features (δ = {settings.delta:g}) and for one entry of the "
    parts += "neighbour list"
    if settings.label_epsilon is not None:
        parts += f", {settings.label_epsilon:g} for the label"
    notes = [
        f"The server holds a noised copy of every ego network: {edges:,} noisy edges stand for "
        f"{true:,} true ones.",
        f"{parts}: {total:g} in total.",
        "Features are divided by their Euclidean norm, so two devices differ by at most "
        f"{sensitivity(settings.low):.4g}; noise of standard deviation {sigma:.4g} is added to "
        "each (analytic Gaussian mechanism).",
    ]
    if problem.split is not None:
        notes.append(
            "The epoch is chosen on true validation edges, which the server of this system would "
            "not have; this favours it."
        )
        if edges > PAIRS:
            notes.append(f"Each epoch trains on {PAIRS:,} noisy edges drawn afresh.")
    return notes


def _believed(
    edges: Ints, devices: int, sample: int, public: PublicCoins
) -> tuple[Arcs, list[str]]:
    """All noisy edges, or a sample of them with weights that make up for the rest."""
    if not 0 < sample < len(edges):
        return Arcs.of(edges, devices), []
    kept = public.generator("baseline/edge sample").choice(len(edges), sample, replace=False)
    degrees = np.bincount(edges.ravel(), minlength=devices).astype(np.float32)
    weight = len(edges) / sample
    arcs = Arcs.of(edges[np.sort(kept)], devices, degrees=torch.from_numpy(degrees), weight=weight)
    note = (
        f"The network sees {sample:,} of {len(edges):,} noisy edges, drawn once, each with weight "
        f"{weight:.4g}, so that sums over neighbours are right on average."
    )
    return arcs, [note]


def _goal(problem: ServerProblem, labels: Ints | None, edges: Ints) -> Goal:
    if problem.split is not None:
        return LinkGoal(edges, problem.graph.devices, problem.split, problem.public)
    return ClassifyGoal(np.asarray(labels), problem.roles)


def _copied(features: Features) -> Features:
    """Dense features that torch may take: those of a graph are write-protected."""
    return features if issparse(features) else np.array(features, np.float32)


def sensitivity(low: float) -> float:
    """Largest distance of two vectors of norm at most 1: √2 where none is negative, else 2."""
    return math.sqrt(2) if low >= 0 else 2.0


def noisy_features(
    features: Features, settings: BaselineSettings, generator: np.random.Generator
) -> tuple[Rows, float]:
    """Unit rows with Gaussian noise, and its standard deviation Δ/μ(ε, δ) (Balle and Wang 2018)."""
    rows: Features = unit_rows(features)
    if math.isinf(settings.epsilon):
        return rows, 0.0
    sigma = sensitivity(settings.low) / mu_for(settings.epsilon, settings.delta)
    noisy: Floats = generator.standard_normal(rows.shape, np.float32)
    noisy *= np.float32(sigma)
    if issparse(rows):
        matrix = csr_array(rows)
        owner = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        noisy[owner, matrix.indices] += matrix.data
    else:
        noisy += rows
    return noisy, sigma

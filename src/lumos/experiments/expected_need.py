"""What a run on any graph is expected to need: seconds on one core, and memory."""

from typing import NamedTuple

from scipy.sparse import issparse

from lumos.baselines.settings import BaselineSettings
from lumos.experiments.cell import Cell
from lumos.experiments.settings import load_settings
from lumos.graph import Graph
from lumos.training.config import Config
from lumos.training.profile import PAPER, STRICT

_COPIES = 6
"""Copies of dense features, or of what is as large, that a run holds at a time."""
_MEGABYTE = 1024**2


class Need(NamedTuple):
    """Expected seconds on one core, and megabytes at the peak."""

    seconds: float
    megabytes: float


def expected_need(settings: Config | BaselineSettings, graph: Graph) -> Need:
    """From what runs on Facebook were measured to need, by the number of edges and features."""
    frozen = load_settings("full")
    if isinstance(settings, Config):
        train = settings.train
        profile = train.profile if train.profile in (PAPER, STRICT) else PAPER
        # What strict needs is stated for all of its epochs together.
        epochs = 0 if profile == STRICT else train.epochs
        cell = Cell.of(
            "train",
            graph.name,
            profile=profile,
            task=train.task,
            epochs=epochs,
            backbone="gat" if settings.model.backbone == "gat" else "gcn",
            control=train.control,
        )
    else:
        cell = Cell.of(
            "baseline",
            graph.name,
            system=settings.system,
            task=settings.task,
            epochs=settings.epochs,
            backbone="gat" if settings.backbone == "gat" else "gcn",
        )
    dense = 0.0
    if graph.features is not None and not issparse(graph.features):
        dense = graph.devices * graph.feature_count * 4 * _COPIES / _MEGABYTE
    return Need(
        seconds=frozen.seconds(cell, graph.edges),
        megabytes=frozen.megabytes(cell, graph.edges) + dense,
    )

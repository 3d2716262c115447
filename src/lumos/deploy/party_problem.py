"""The problem of a run as one party sees it: its own part, and what is public of the graph."""

import numpy as np

from lumos.graph.facts import GraphPart
from lumos.graph.parts.manifest import Manifest
from lumos.training.config import Config
from lumos.training.problem import Problem


def problem_of(manifest: Manifest, config: Config, part: GraphPart) -> Problem:
    """The problem, with the devices of one part."""
    task = config.train.task
    drawn, link = manifest.split(task), task == "link"
    return Problem(
        facts=manifest.facts(task),
        parts=(part,),
        keep=(),
        classes=0 if link else manifest.graph.class_count,
        training=0 if link else drawn.train,
        validation=0 if link else drawn.validation,
        seed=manifest.seed,
        split=drawn.name,
    )


def nobody(manifest: Manifest) -> GraphPart:
    """A part without devices."""
    none = np.empty(0, np.int64)
    return GraphPart(
        devices=none,
        total=manifest.graph.devices,
        offsets=np.zeros(1, np.int64),
        neighbours=none,
        features=np.empty((0, manifest.graph.feature_count), np.float32),
        labels=none,
        roles=none,
        held_back=np.empty((0, 2), np.int64),
    )

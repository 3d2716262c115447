"""What a run begins with: the problem, its split, and what the observer knows beside it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lumos.device.coins import PublicCoins
from lumos.errors import UsageError
from lumos.graph import Graph
from lumos.graph.facts import GraphFacts, facts_of
from lumos.graph.ids import Ids, some_ids
from lumos.graph.parts import PartsFolder
from lumos.runs.hosting import Hosting
from lumos.runs.schema import AboutSplit, Split
from lumos.training.config import Config
from lumos.training.given_split import GivenSplit, edge_split, vertex_split
from lumos.training.metrics import TestedPairs
from lumos.training.profile import Problem
from lumos.training.split import EdgeSplit, Role


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A run that has not begun."""

    facts: GraphFacts
    """Of the whole graph."""
    problem: Problem
    """Without `keep`: nobody carries an edge yet."""
    split: AboutSplit
    counts: Split | None = None
    """How many train, validate and test, where parts say it; otherwise it is counted."""
    edges: EdgeSplit | None = field(default=None, repr=False)
    """For link, where this process has the graph."""
    held_out: TestedPairs | None = field(default=None, repr=False)
    """For link, at rank 0: the pairs that the observer scores by."""
    graph: Graph | None = field(default=None, repr=False)
    """The whole graph, where this process has it."""
    own_ids: Callable[[], list[Ids]] = field(repr=False)
    """For each part of this process, the original ids of its devices."""


def prepared_graph(
    graph: Graph, config: Config, split: GivenSplit, seed: int, hosting: Hosting
) -> Prepared:
    """Of a graph in memory; every rank has it, and keeps its own part.

    Raises:
        InputError: the graph cannot be split so.
        UsageError: `split` is no split.
    """
    public, facts = PublicCoins(seed), facts_of(graph)
    hosted = hosting.range_of(graph.devices)
    common: dict[str, Any] = {
        "seed": seed,
        "shards": hosting.shards,
        "hosted": hosted,
        "owner": facts.simulated.fingerprint,
    }
    nobody = np.full(graph.devices, Role.NOBODY, np.int64)
    edges = None
    if config.train.task == "link":
        held = edge_split(graph, split, public)
        edges = held.split
        about = AboutSplit(origin=held.origin, name=held.name, shares=held.shares)
        problem = Problem.of(
            edges.training,
            keep=None,
            roles=nobody,
            held_back=edges.validation,
            classes=0,
            split=held.name,
            **common,
        )
    else:
        roles, origin, name = vertex_split(graph, split, public)
        about = AboutSplit(origin=origin, name=name)
        problem = Problem.of(
            graph,
            keep=None,
            roles=roles,
            held_back=np.empty((0, 2), np.int64),
            classes=graph.class_count,
            split=name,
            **common,
        )

    def own_ids() -> list[Ids]:
        return [some_ids(graph.ids, part.devices) for part in problem.parts]

    return Prepared(
        facts=facts,
        problem=problem,
        split=about,
        edges=edges,
        held_out=edges,
        graph=graph,
        own_ids=own_ids,
    )


def prepared_parts(
    folder: PartsFolder, config: Config, split: GivenSplit, seed: int, hosting: Hosting
) -> Prepared:
    """Of a graph in parts on disk; every rank opens its own parts and no others.

    Raises:
        UsageError: the parts are not for this task, seed, split, or number of ranks.
        InputError: a file is missing or damaged.
    """
    task, manifest = config.train.task, folder.manifest
    if split is not None:
        raise UsageError(
            f"{folder.path}: its parts have a split already; leave out `split`, or split the graph "
            "again with it"
        )
    if seed != manifest.seed:
        raise UsageError(
            f"{folder.path}: its split was drawn with `seed={manifest.seed}`, not {seed}; train "
            "with that seed, or split the graph again"
        )
    drawn, world = folder.split(task), hosting.world
    if world is None:
        numbers = [folder.range_of(shard, hosting.shards) for shard in range(hosting.shards)]
    else:
        numbers = [folder.range_of(world.rank, world.size)]
    link = task == "link"
    problem = Problem(
        facts=folder.facts(task),
        parts=tuple(folder.part(some, task) for some in numbers),
        keep=(),
        classes=0 if link else manifest.graph.class_count,
        training=0 if link else drawn.train,
        validation=0 if link else drawn.validation,
        seed=seed,
        split=drawn.name,
        owner=manifest.graph.simulated.fingerprint,
    )
    return Prepared(
        facts=manifest.graph,
        problem=problem,
        split=AboutSplit(origin=drawn.origin, name=drawn.name, shares=drawn.shares),
        counts=Split(drawn.train, drawn.validation, drawn.test),
        held_out=folder.held_out() if link and hosting.observer.first else None,
        own_ids=lambda: [folder.ids(some) for some in numbers],
    )

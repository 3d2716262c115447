"""A graph in parts on disk, with the splits that a run of the same seed would draw."""

from pathlib import Path

import numpy as np

import lumos
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.arrays import Ids, some_ids, spans
from lumos.graph.labels import Role
from lumos.graph.parts.manifest import (
    FORMAT,
    IdKind,
    Manifest,
    Partition,
    PartsSplit,
    Task,
    TrainingEdges,
    public_slots,
)
from lumos.graph.parts.part_source import PartSource
from lumos.graph.parts.parts_folder import HeldOutPairs, PartsFolder, PartsWriter, new_parts
from lumos.graph.parts.stored_part import StoredPart
from lumos.training.given_split import (
    GivenSplit,
    HeldOut,
    VertexSplit,
    edge_split,
    names_parts,
    vertex_split,
)
from lumos.training.split import EdgeSplit, pair_keys
from lumos.typing import Bytes, Ints, Progress

MAX_LINK = 12_000_000
"""Edges up to which they are split for link if nobody asks: that needs all of them in memory.

A graph without labels has no other task, so there nobody has to ask.
"""


def write_parts(
    source: PartSource,
    path: Path | str,
    partition: Partition,
    *,
    seed: int = 0,
    split: GivenSplit = None,
    task: Task | None = None,
    progress: Progress | None = None,
) -> PartsFolder:
    """Write a graph in parts, and who trains, validates and tests in each.

    Args:
        source: the graph.
        path: a new or empty folder.
        partition: which part has which devices.
        seed: run seed: the splits are those of a run with it.
        split: as `lumos.train` takes it; one that names devices or edges belongs to one task.
        task: the only task the parts are for; by default both, where the graph allows them.
        progress: callback `(done, total, note)`, called for each part.

    Raises:
        InputError: the split does not fit the graph, or the graph not the task.
        UsageError: there is something in the folder, or the split is none.
    """
    if task is None and names_parts(split):
        raise UsageError(
            "`split`: one that names devices or edges is of one task; name it with `task`"
        )
    public = PublicRandomness(seed)
    left_out: dict[Task, str] = {}
    devices = _vertices(source.about, split, public, task, left_out)
    with new_parts(Path(path)) as writer:
        source.prepare(partition, writer, progress)
        whole, edges = _edges(source, split, public, task, left_out)
        slots = _write(source, writer, partition, devices, whole, edges, progress)
        splits: dict[Task, PartsSplit] = {}
        training = None
        if devices is not None:
            splits["classify"] = _about_devices(devices)
        if edges is not None:
            splits["link"] = _about_edges(edges)
            kept = edges.split.training
            training = TrainingEdges(
                edges=kept.edges, fingerprint=source.training_fingerprint(kept)
            )
            pairs = (getattr(edges.split, name) for name in HeldOutPairs._fields)
            writer.observe(dict(zip(HeldOutPairs._fields, pairs, strict=True)))
        manifest = Manifest(
            format=FORMAT,
            lumos=lumos.__version__,
            graph=source.facts(),
            training=training,
            parts=partition.parts,
            bounds=None if partition.bounds is None else partition.bounds.tolist(),
            slots=public_slots(slots, partition.counts),
            index_bytes=source.index_bytes,
            ids=_kind(source.about.ids),
            seed=seed,
            splits=splits,
            left_out=left_out,
            source_roles=source.about.roles is not None,
            dropped_self_loops=source.dropped_self_loops,
            dropped_duplicates=source.dropped_duplicates,
        )
        writer.finish(manifest, partition)
    return PartsFolder.open(path)


def _vertices(
    graph: Graph,
    split: GivenSplit,
    public: PublicRandomness,
    task: Task | None,
    left_out: dict[Task, str],
) -> VertexSplit | None:
    """The split of devices; None where the parts are for link only, or labels do not allow it."""
    if task == "link":
        left_out["classify"] = "split the graph again without `task='link'`"
        return None
    try:
        return vertex_split(graph, split, public)
    except InputError as error:
        if task == "classify":
            raise
        left_out["classify"] = str(error)
        return None


def _edges(
    source: PartSource,
    split: GivenSplit,
    public: PublicRandomness,
    task: Task | None,
    left_out: dict[Task, str],
) -> tuple[Graph | None, HeldOut | None]:
    """The graph, and the split of its edges; None where the parts are for classify only."""
    if task == "classify":
        left_out["link"] = "split the graph again without `task='classify'`"
        return None, None
    if task is None and "classify" not in left_out and source.edges > MAX_LINK:
        left_out["link"] = (
            f"{source.edges:,} edges are more than {MAX_LINK:,}; split the graph again with "
            "`task='link'`, which needs all edges in memory"
        )
        return None, None
    whole = source.structure()
    try:
        return whole, edge_split(whole, split, public)
    except InputError as error:
        if task == "link" or "classify" in left_out:
            raise
        left_out["link"] = str(error)
        return None, None


def _write(
    source: PartSource,
    writer: PartsWriter,
    partition: Partition,
    devices: VertexSplit | None,
    whole: Graph | None,
    edges: HeldOut | None,
    progress: Progress | None,
) -> Ints:
    """Write all parts; returns the slots of each."""
    about = source.about
    stored_ids = _kind(about.ids) != "rows"
    slot_roles, held_back = None, np.empty((0, 2), np.int64)
    if whole is not None and edges is not None:
        slot_roles = _slot_roles(whole, edges.split)
        pairs = edges.split.validation
        part = partition.part_of(pairs[:, 0])
        held_back = pairs[np.argsort(part, kind="stable")]
        ends = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=partition.parts))])
    slots = np.zeros(partition.parts, np.int64)
    for number, ids in enumerate(partition.hosted()):
        offsets, neighbours = source.lists(number, ids)
        slots[number] = len(neighbours)
        mine = theirs = None
        if whole is not None and slot_roles is not None:
            mine = slot_roles[spans(whole.offsets[ids], np.diff(offsets))]
            theirs = held_back[ends[number] : ends[number + 1]]
        stored = StoredPart(
            devices=ids,
            offsets=offsets,
            neighbours=neighbours.astype(np.int32, copy=False),
            features=source.features(ids),
            labels=None if about.labels is None else about.labels[ids],
            ids=some_ids(about.ids, ids) if stored_ids else None,
            roles=None if devices is None else devices.roles[ids],
            source_roles=None if about.roles is None else about.roles[ids],
            edge_roles=mine,
            held_back=None if theirs is None else theirs.astype(np.int32),
        )
        writer.write(number, stored, partition)
        if progress is not None:
            progress(number + 1, partition.parts, "parts")
    return slots


def _slot_roles(graph: Graph, split: EdgeSplit) -> Bytes:
    """[slots] the role of each edge, at both of its ends."""
    roles = np.full(len(graph.neighbours), Role.TRAIN, np.uint8)
    arcs = np.repeat(np.arange(graph.devices), graph.degrees) * graph.devices + graph.neighbours
    for role, pairs in ((Role.VALIDATION, split.validation), (Role.TEST, split.test)):
        for both in (pairs, pairs[:, ::-1]):
            keys = pair_keys(both, graph.devices)
            places = np.minimum(np.searchsorted(arcs, keys), len(arcs) - 1)
            # A given split may hold out pairs that are no edges of the graph.
            roles[places[arcs[places] == keys]] = role
    return roles


def _about_devices(split: VertexSplit) -> PartsSplit:
    train, validation, test = (
        int(np.count_nonzero(split.roles == role))
        for role in (Role.TRAIN, Role.VALIDATION, Role.TEST)
    )
    return PartsSplit(
        origin=split.origin, name=split.name, train=train, validation=validation, test=test
    )


def _about_edges(held: HeldOut) -> PartsSplit:
    return PartsSplit(
        origin=held.origin,
        name=held.name,
        shares=held.shares,
        train=held.split.training.edges,
        validation=len(held.split.validation),
        test=len(held.split.test),
    )


def _kind(ids: Ids) -> IdKind:
    if isinstance(ids, tuple):
        return "text"
    return "rows" if np.array_equal(ids, np.arange(len(ids))) else "integers"

"""A graph in parts on disk, with the splits that a run of the same seed would draw."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import lumos
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.arrays import Ids, is_sparse
from lumos.graph.facts import facts_of, fingerprint
from lumos.graph.labels import Role
from lumos.graph.parts.manifest import (
    FORMAT,
    IdKind,
    Manifest,
    PartsSplit,
    Task,
    TrainingEdges,
    public_slots,
    write_manifest,
)
from lumos.graph.parts.parts_folder import OBSERVER, HeldOutPairs, PartsFolder, new_parts
from lumos.graph.parts.stored_part import StoredPart, write_layout
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


def write_parts(
    graph: Graph,
    path: Path | str,
    bounds: Ints,
    *,
    seed: int = 0,
    split: GivenSplit = None,
    task: Task | None = None,
    progress: Progress | None = None,
) -> PartsFolder:
    """Write a graph in parts, and who trains, validates and tests in each.

    Args:
        graph: the graph.
        path: a new or empty folder.
        bounds: [parts + 1] part p has the devices bounds[p] … bounds[p + 1] - 1; see
            `equal_bounds`.
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
    path, public = Path(path), PublicRandomness(seed)
    left_out: dict[Task, str] = {}
    devices = _vertices(graph, split, public, task, left_out)
    edges = _edges(graph, split, public, task, left_out)
    with new_parts(path):
        _write(graph, path, bounds, devices, edges, progress)
        splits: dict[Task, PartsSplit] = {}
        training = None
        if devices is not None:
            splits["classify"] = _about_devices(devices)
        if edges is not None:
            splits["link"] = _about_edges(edges)
            kept = edges.split.training
            training = TrainingEdges(edges=kept.edges, fingerprint=fingerprint(kept))
            pairs = {name: getattr(edges.split, name) for name in HeldOutPairs._fields}
            narrow = {name: each.astype(np.int32) for name, each in pairs.items()}
            write_layout(path / OBSERVER, narrow)
        features: Any = graph.features
        narrow_indices = is_sparse(features) and features.indices.dtype == np.int32
        manifest = Manifest(
            format=FORMAT,
            lumos=lumos.__version__,
            graph=facts_of(graph),
            training=training,
            parts=len(bounds) - 1,
            bounds=bounds.tolist(),
            slots=public_slots(np.diff(graph.offsets[bounds]), np.diff(bounds)),
            index_bytes=4 if narrow_indices else 8,
            ids=_kind(graph.ids),
            seed=seed,
            splits=splits,
            left_out=left_out,
            source_roles=graph.roles is not None,
            dropped_self_loops=graph.dropped_self_loops,
            dropped_duplicates=graph.dropped_duplicates,
        )
        write_manifest(path, manifest)
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
    graph: Graph,
    split: GivenSplit,
    public: PublicRandomness,
    task: Task | None,
    left_out: dict[Task, str],
) -> HeldOut | None:
    """The split of edges; None where the parts are for classify only, or edges do not allow it."""
    if task == "classify":
        left_out["link"] = "split the graph again without `task='classify'`"
        return None
    try:
        return edge_split(graph, split, public)
    except InputError as error:
        if task == "link" or "classify" in left_out:
            raise
        left_out["link"] = str(error)
        return None


def _write(
    graph: Graph,
    path: Path,
    bounds: Ints,
    devices: VertexSplit | None,
    edges: HeldOut | None,
    progress: Progress | None,
) -> None:
    """Write the files of all parts."""
    kind, features = _kind(graph.ids), graph.features
    slot_roles, held_back, first = None, np.empty((0, 2), np.int32), None
    if edges is not None:
        slot_roles = _slot_roles(graph, edges.split)
        pairs = edges.split.validation
        part = np.searchsorted(bounds, pairs[:, 0], side="right") - 1
        held_back = pairs[np.argsort(part, kind="stable")].astype(np.int32)
        first = np.searchsorted(np.sort(part), np.arange(len(bounds)))
    for number, (low, high) in enumerate(pairwise(bounds.tolist())):
        here, offsets = slice(low, high), graph.offsets[low : high + 1]
        slots = slice(offsets[0], offsets[-1])
        StoredPart(
            devices=np.arange(low, high),
            offsets=offsets - offsets[0],
            neighbours=graph.neighbours[slots].astype(np.int32),
            features=None if features is None else features[here],
            labels=None if graph.labels is None else graph.labels[here],
            ids=None if kind == "rows" else graph.ids[here],
            roles=None if devices is None else devices.roles[here],
            source_roles=None if graph.roles is None else graph.roles[here],
            edge_roles=None if slot_roles is None else slot_roles[slots],
            held_back=None if first is None else held_back[first[number] : first[number + 1]],
        ).write(path, number)
        if progress is not None:
            progress(number + 1, len(bounds) - 1, "parts")


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

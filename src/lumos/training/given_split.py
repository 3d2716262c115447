"""The split that a run uses: one that is given, one that came with the graph, or a random one.

    split=None                                 masks of the graph, otherwise a random split
    split="random"                             a random split, whatever masks the graph has
    split=(0.6, 0.2, 0.2), "60/20/20"          a random split with these shares
    split={"train": …, "val": …, "test": …}    original ids, or masks over all devices
    split="split.csv"                          the same from a CSV, JSON or npz

For `link` a split names held-out edges, as pairs of original ids: `val` and `test`, and if wanted
`val_negative` and `test_negative`, pairs that are none. All other edges of the graph train.

Files that hold a split:

- CSV: `id,split` for devices, `source,target,split` for edges; `split` is train, val or test, and
  for pairs that are no edges val_negative or test_negative. With or without a header.
- JSON: an object `{"train": [ids], "val": [ids], "test": [ids]}`; for edges lists of pairs.
- npz: arrays of these names; ids, or masks over all devices.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.arrays import as_array, lookup, shown
from lumos.graph.labels import Role, masks_of, roles_of_masks
from lumos.storage import one_line, read_arrays
from lumos.training.problem import need_labels
from lumos.training.split import (
    EDGES,
    VERTICES,
    DataSplit,
    EdgeSplit,
    Shares,
    edges_left,
    hold_out,
    pair_keys,
    several_classes,
    split_edges,
    split_vertices,
)
from lumos.typing import Flags, Ints

GivenSplit: TypeAlias = "str | os.PathLike[str] | Sequence[float] | Mapping[str, Any] | None"
RANDOM = "random"


class VertexSplit(NamedTuple):
    """Roles of devices."""

    roles: Ints
    """[devices]"""
    origin: str
    """Origin of the split, in one sentence."""
    name: str
    """A digest; empty for the random split of the seed."""


class HeldOut(NamedTuple):
    """A split of edges."""

    split: EdgeSplit
    origin: str
    name: str
    shares: Shares | None
    """Shares of a random split, from which it can be drawn again."""


def settled(given: GivenSplit) -> Any:
    """The same split without files: what a file holds, shares, masks, ids.

    Raises:
        InputError: there is no such file, or it holds no split.
        UsageError: `given` is no split.
    """
    if given is None or _is_random(given):
        return given
    wanted = _wanted(given, VERTICES)
    return wanted if isinstance(wanted, tuple) else dict(wanted)


def names_parts(given: GivenSplit) -> bool:
    """Return True if a split names devices or edges, so that it belongs to one task."""
    if given is None or _is_random(given):
        return False
    if isinstance(given, str):
        return _numbers(given) is None
    return isinstance(given, Mapping | os.PathLike)


def _is_random(given: GivenSplit) -> bool:
    """Return True for the random split of the seed, with the default shares."""
    return isinstance(given, str) and given.casefold() == RANDOM


def reading_of(given: GivenSplit) -> dict[str, Any]:
    """Options for reading a graph whose split is given: its own masks do not matter."""
    return {} if given is None else {"masks": "ignore"}


def vertex_split(graph: Graph, given: GivenSplit, public: PublicRandomness) -> VertexSplit:
    """Return the devices that train, validate and test.

    Raises:
        InputError: the graph has no labels, or the split does not fit it.
        UsageError: `given` is no split.
    """
    labels = need_labels(graph)
    wanted = _wanted(given, VERTICES)
    if isinstance(wanted, tuple):
        if given is not None or graph.roles is None:
            return _random(labels, wanted, public)
        train, validation, test = masks_of(np.asarray(graph.roles)).values()
        roles = roles_of_masks(train, validation, test, labels, "roles of the graph")
        origin = "the split that came with the graph"
        several_classes(labels[roles >= 0])
    else:
        roles, origin = roles_of_parts(graph, wanted), _named(given)
    roles, origin = _with_validation(roles, origin, public)
    return VertexSplit(roles, _counted_roles(roles, origin), _digest(roles))


def edge_split(graph: Graph, given: GivenSplit, public: PublicRandomness) -> HeldOut:
    """Return the edges that train, validate and test.

    Raises:
        InputError: the split does not fit the graph.
        UsageError: `given` is no split.
    """
    wanted = _wanted(given, EDGES)
    if isinstance(wanted, tuple):
        if abs(sum(wanted) - 1) > 1e-6:
            raise UsageError(f"`split`: shares of edges must add up to 1, got {_percent(wanted)}")
        split = split_edges(graph, public, wanted)
        name = "" if wanted == EDGES else _digest(np.array(wanted))
        origin = f"random, {_percent(wanted)} of the edges by seed {public.seed}"
        return HeldOut(split, _counted(split, origin), name, wanted)
    split = held_out_edges(graph, wanted, public)
    negatives = split.validation_non_neighbours, split.test_non_neighbours
    name = _digest(split.validation, split.test, *negatives)
    return HeldOut(split, _counted(split, _named(given)), name, None)


def given_again(split: DataSplit, graph: Graph) -> dict[str, Any]:
    """A split of a finished run, as `vertex_split` and `edge_split` take it."""
    ids = np.asarray(graph.ids)
    parts = {"val": ids[split.validation], "test": ids[split.test]}
    return parts if split.train.ndim == 2 else {"train": ids[split.train], **parts}


def _random(labels: Ints, shares: Shares, public: PublicRandomness) -> VertexSplit:
    roles = split_vertices(labels, public, shares)
    origin = f"random, {_percent(shares)} of the labelled devices by seed {public.seed}"
    name = "" if shares == VERTICES else _digest(roles)
    return VertexSplit(roles, _counted_roles(roles, origin), name)


def _wanted(given: GivenSplit, default: Shares) -> Shares | Mapping[str, Any]:
    """Shares of a random split, or the parts of a given one by name."""
    if given is None or _is_random(given):
        return default
    if isinstance(given, str) and (numbers := _numbers(given)) is not None:
        return _shares(numbers)
    if isinstance(given, str | os.PathLike):
        return named_parts(read_split(Path(given).expanduser()))
    if isinstance(given, Mapping):
        return named_parts(given)
    try:
        return _shares([float(share) for share in given])
    except (TypeError, ValueError):
        raise UsageError(
            "`split`: give three shares, a mapping of train, val and test, or a file; got "
            f"{type(given).__name__}"
        ) from None


def _numbers(text: str) -> list[float] | None:
    """`60/20/20` or `0.6,0.2,0.2` as numbers; None for anything else, a path."""
    try:
        return [float(part.strip().rstrip("%")) for part in text.replace("/", ",").split(",")]
    except ValueError:
        return None


def _shares(numbers: Sequence[float]) -> Shares:
    if len(numbers) == 3 and sum(numbers) > 1 + 1e-6 and all(number >= 1 for number in numbers):
        numbers = [number / 100 for number in numbers]
    if len(numbers) != 3 or not all(0 < n < 1 for n in numbers) or sum(numbers) > 1 + 1e-6:
        raise UsageError(
            "`split`: give three shares, as 60/20/20, for training, validation and test: above 0, "
            f"with a sum of at most 1 (or 100); got {', '.join(f'{n:g}' for n in numbers)}"
        )
    train, validation, test = numbers
    return (train, validation, test)


def _with_validation(roles: Ints, origin: str, public: PublicRandomness) -> tuple[Ints, str]:
    """Let a public quarter of the training devices validate where nobody does."""
    if (roles == Role.VALIDATION).any():
        return roles, origin
    training = np.flatnonzero(roles == Role.TRAIN)
    if len(training) < 2:
        raise InputError(
            f"split: {len(training)} device trains and none validates; at least two are needed, of "
            "which one then validates"
        )
    some = public.generator("split/validation").permutation(training)
    roles = roles.copy()
    roles[some[: max(1, round(len(training) / 4))]] = Role.VALIDATION
    return roles, f"{origin}, in which nobody validates, so a random quarter of its trainers does"


def _named(given: Any) -> str:
    if isinstance(given, str | os.PathLike):
        return f"the split of {Path(given).name}"
    return "the split that was given"


def _counted_roles(roles: Ints, origin: str) -> str:
    counts = ((roles == role).sum() for role in (Role.TRAIN, Role.VALIDATION, Role.TEST))
    train, validation, test = (f"{count:,}" for count in counts)
    return f"{origin}: {train} devices train, {validation} validate, {test} test"


def _counted(split: EdgeSplit, origin: str) -> str:
    counts = (split.training.edges, len(split.validation), len(split.test))
    train, validation, test = (f"{count:,}" for count in counts)
    return f"{origin}: {train} edges train, {validation} validate, {test} test"


def _percent(shares: Sequence[float]) -> str:
    return "/".join(f"{100 * share:g}" for share in shares)


def _digest(*arrays: Any) -> str:
    digest = blake2b(digest_size=8)
    for array in arrays:
        # Where one ends and the next begins matters: edges may move from validation to test.
        digest.update(repr(np.shape(array)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


PART_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid", "dev"),
    "test": ("test", "testing"),
}
"""Accepted names of the parts of a split; `_mask`, `_idx`, … may follow."""
NEGATIVE = ("_negative", "_negatives", "_neg", "_non_neighbours")
ENDINGS = ("_mask", "_idx", "_index", "_indices", "_ids", "_edges", "_edge", "_pos")


def named_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a split by the names of `PART_NAMES`, and `…_negative`.

    Raises:
        UsageError: a name is unknown, or two names mean the same.
    """
    parts: dict[str, Any] = {}
    for name, rows in given.items():
        if rows is None:
            continue
        key = _part(str(name))
        if key is None:
            raise UsageError(
                f"`split`: {shown(name)} is no part of a split; use train, val and test, for links "
                "val, test, val_negative and test_negative"
            )
        if key in parts:
            raise UsageError(f"`split`: {key} is given twice; leave one out")
        parts[key] = rows
    return parts


def _part(name: str) -> str | None:
    word, negative = name.casefold(), ""
    for ending in NEGATIVE:
        if word.endswith(ending):
            word, negative = word.removesuffix(ending), "_negative"
    for ending in ENDINGS:
        word = word.removesuffix(ending)
    for part, spellings in PART_NAMES.items():
        if word in spellings or word.removeprefix("idx_") in spellings:
            return part + negative
    return None


def roles_of_parts(graph: Graph, parts: Mapping[str, Any]) -> Ints:
    """[devices] from masks or lists of original ids."""
    for part in parts:
        if part.endswith("_negative"):
            raise UsageError(f"`split`: {part} is for `task='link'`; leave it out")
    train, validation, test = (
        None if parts.get(part) is None else _mask(graph, parts[part], part) for part in PART_NAMES
    )
    labels = np.asarray(graph.labels)
    roles = roles_of_masks(train, validation, test, labels, "split")
    several_classes(labels[roles >= 0])
    return roles


def _mask(graph: Graph, rows: Any, part: str) -> Flags:
    """[devices] whom a mask, or a list of original ids, names."""
    array = _as_array(rows)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    zeros_and_ones = array.dtype.kind in "iu" and np.isin(array, (0, 1)).all()
    if array.dtype == np.bool_ or (len(array) == graph.devices > 2 and zeros_and_ones):
        if array.shape != (graph.devices,):
            raise InputError(
                f"split: the mask {part} has the shape {list(array.shape)}; one value per device, "
                f"[{graph.devices}]"
            )
        return np.asarray(array, np.bool_)
    indices = _rows_of(graph, array, part)
    mask = np.zeros(graph.devices, np.bool_)
    mask[indices] = True
    if int(mask.sum()) < len(indices):
        raise InputError(f"split: {part} names a device twice; name each once")
    return mask


def _rows_of(graph: Graph, ids: Any, part: str) -> Ints:
    """[…] rows of devices by their original ids."""
    flat = np.asarray(ids).ravel()
    if flat.dtype.kind == "f" and np.array_equal(flat, np.rint(flat)):
        flat = flat.astype(np.int64)
    if flat.size and flat.dtype.kind not in "iuUO":
        raise InputError(f"split: {part} holds {flat.dtype} values; use ids, or a mask")
    rows = lookup(flat, graph.ids) if flat.size else np.empty(0, np.int64)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        raise InputError(
            f"split: {part} names {shown(flat[unknown[0]])}, which is not the id of any device of "
            f"{graph!r}"
        )
    return rows.reshape(np.shape(ids))


def held_out_edges(graph: Graph, parts: Mapping[str, Any], public: PublicRandomness) -> EdgeSplit:
    """Held-out edges, and all others of the graph for training."""
    if "train" in parts:
        raise UsageError(
            "`split`: for links give the held-out edges, val and test; all others of the graph "
            "train, so leave train out"
        )
    for part in ("validation", "test"):
        if parts.get(part) is None:
            raise UsageError(f"`split`: for links val and test are needed; {part} is missing")
    held = {part: _pairs(graph, rows, part) for part, rows in parts.items()}
    keys = {part: pair_keys(pairs, graph.devices) for part, pairs in held.items()}
    if len(np.intersect1d(keys["validation"], keys["test"])):
        raise InputError("split: an edge is in val and in test; put it into one")
    training = edges_left(graph, held["validation"], held["test"])
    if not len(training):
        raise InputError("split: val and test hold all edges; none is left to train on")
    edges = pair_keys(graph.edge_list(), graph.devices)
    known = np.concatenate([edges, keys["validation"], keys["test"]])
    for part in keys:
        if part.endswith("_negative") and np.isin(keys[part], known).any():
            raise InputError(f"split: a pair of {part} is an edge; take it out")
    split = hold_out(graph, training, held["validation"], held["test"], public)
    return replace(
        split,
        validation_non_neighbours=held.get("validation_negative", split.validation_non_neighbours),
        test_non_neighbours=held.get("test_negative", split.test_non_neighbours),
    )


def _pairs(graph: Graph, rows: Any, part: str) -> Ints:
    """[pairs, 2] rows u < v in ascending order, from pairs [pairs, 2] or [2, pairs] of ids."""
    array = _as_array(rows)
    if array.ndim == 2 and array.shape[0] == 2 and array.shape[1] != 2:
        array = array.T
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise InputError(
            f"split: {part} has the shape {list(array.shape)}; pairs of ids are needed, [edges, 2]"
        )
    pairs = np.sort(_rows_of(graph, array, part), axis=1)
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise InputError(f"split: {part} joins a device to itself; take that out")
    distinct: Ints = np.unique(pairs, axis=0)  # an edge may be there in both directions
    return distinct


def _as_array(rows: Any) -> Any:
    return as_array(list(rows) if isinstance(rows, set | frozenset | range) else rows)


SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".npz")
WORDS = ("split", "part", "role", "set", "mask")
"""Accepted names of the last column of a CSV."""


def read_split(path: Path) -> dict[str, Any]:
    """The parts of a split by name, as the file names them.

    Raises:
        InputError: there is no such file, or it holds no split.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; `split` is a file or shares as 60/20/20")
    if path.suffix.casefold() not in SUFFIXES:
        raise InputError(f"{path}: a split is read from {', '.join(SUFFIXES)}; convert it")
    if path.suffix.casefold() == ".npz":
        return dict(read_arrays(path))
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not readable text ({one_line(error)})") from None
    return _of_json(text, path) if path.suffix.casefold() == ".json" else _of_table(text, path)


def _of_json(text: str, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: it is not valid JSON ({one_line(error)})") from None
    if not isinstance(content, dict):
        raise InputError(f'{path}: an object {{"train": [ids], …}} is needed')
    try:
        return {name: np.asarray(rows) for name, rows in content.items()}
    except ValueError:
        raise InputError(f"{path}: lists of ids, or of pairs of ids, are needed") from None


def _of_table(text: str, path: Path) -> dict[str, Any]:
    rows: dict[str, list[Any]] = {}
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = next((mark for mark in ",\t;" if mark in first), None)
    width = 0
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip().strip('"') for cell in line.split(separator)]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if not width:
            width = len(cells)
            if width not in (2, 3):
                raise InputError(
                    f"{path}, line {number}: {width} columns; id,split or source,target,split is "
                    "needed"
                )
            if cells[-1].casefold() in WORDS:
                continue  # a header
        if len(cells) != width:
            raise InputError(f"{path}, line {number}: {len(cells)} columns, but {width} before")
        ids = [_id(cell) for cell in cells[:-1]]
        if not cells[-1]:
            continue  # a device that is in no part
        if not all(str(name) for name in ids):
            raise InputError(f"{path}, line {number}: {shown(line)} has an empty id")
        rows.setdefault(cells[-1], []).append(ids[0] if width == 2 else ids)
    if not rows:
        raise InputError(f"{path}: it holds no rows; id,split is needed")
    return {name: np.asarray(ids) for name, ids in rows.items()}


def _id(cell: str) -> int | str:
    return int(cell) if cell.isdecimal() and len(cell) < 19 else cell

"""The split that a run uses: one that is given, one that came with the graph, or a random one.

    split=None                                 masks of the graph, otherwise a random split
    split="random"                             a random split, whatever masks the graph has
    split=(0.6, 0.2, 0.2), "60/20/20"          a random split with these shares
    split={"train": …, "val": …, "test": …}    original ids, or masks over all devices
    split="split.csv"                          the same from a CSV, JSON or npz (`split_files`)

For `link` a split names held-out edges, as pairs of original ids: `val` and `test`, and if wanted
`val_negative` and `test_negative`, pairs that are none. All other edges of the graph train.
"""

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lumos.device.coins import PublicCoins
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.labels import Role, masks_of, roles_of_masks
from lumos.training.split import (
    EDGES,
    VERTICES,
    DataSplit,
    EdgeSplit,
    Shares,
    several_classes,
    split_edges,
    split_vertices,
)
from lumos.training.split_files import read_split
from lumos.training.split_parts import held_out_edges, named_parts, roles_of_parts
from lumos.typing import Ints

GivenSplit: TypeAlias = "str | os.PathLike[str] | Sequence[float] | Mapping[str, Any] | None"
RANDOM = "random"


class VertexSplit(NamedTuple):
    """Roles of devices."""

    roles: Ints
    """[devices]"""
    origin: str
    """Where they come from, in one sentence."""
    name: str
    """A digest; empty for the random split of the seed."""


class HeldOut(NamedTuple):
    """A split of edges."""

    split: EdgeSplit
    origin: str
    name: str
    shares: Shares | None
    """Of a random split, from which it can be drawn again."""


def settled(given: GivenSplit) -> Any:
    """The same split without files: what a file holds, shares, masks, ids.

    Raises:
        InputError: there is no such file, or it holds no split.
        UsageError: `given` is no split.
    """
    if given is None or (isinstance(given, str) and given.casefold() == RANDOM):
        return given
    wanted = _wanted(given, VERTICES)
    return wanted if isinstance(wanted, tuple) else dict(wanted)


def names_parts(given: GivenSplit) -> bool:
    """Whether a split names devices or edges, so that it is of one task; otherwise it is random."""
    if given is None or (isinstance(given, str) and given.casefold() == RANDOM):
        return False
    if isinstance(given, str):
        return _numbers(given) is None
    return isinstance(given, Mapping | os.PathLike)


def reading_of(given: GivenSplit) -> dict[str, Any]:
    """Options for reading a graph whose split is given: its own masks do not matter."""
    return {} if given is None else {"masks": "ignore"}


def vertex_split(graph: Graph, given: GivenSplit, public: PublicCoins) -> VertexSplit:
    """Who trains, validates and tests.

    Raises:
        InputError: the graph has no labels, or the split does not fit it.
        UsageError: `given` is no split.
    """
    if graph.labels is None:
        raise InputError(
            f"{graph.name or 'the graph'} has no labels; classify needs them, `task='link'` does "
            "not"
        )
    labels = np.asarray(graph.labels)
    wanted = _wanted(given, VERTICES)
    if isinstance(wanted, tuple):
        chosen = wanted if given is not None or graph.roles is None else None
        if chosen is not None:
            return _random(labels, chosen, public)
        train, validation, test = masks_of(np.asarray(graph.roles)).values()
        roles = roles_of_masks(train, validation, test, labels, "roles of the graph")
        origin = "the split that came with the graph"
        several_classes(labels[roles >= 0])
    else:
        roles, origin = roles_of_parts(graph, wanted), _named(given)
    roles, origin = _with_validation(roles, origin, public)
    return VertexSplit(roles, _counted_roles(roles, origin), _digest(roles))


def edge_split(graph: Graph, given: GivenSplit, public: PublicCoins) -> HeldOut:
    """Which edges train, validate and test.

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
    parts = (split.validation, split.test, split.validation_strangers, split.test_strangers)
    return HeldOut(split, _counted(split, _named(given)), _digest(*parts), None)


def given_again(split: DataSplit, graph: Graph) -> dict[str, Any]:
    """A split of a finished run, as `vertex_split` and `edge_split` take it."""
    ids = np.asarray(graph.ids)
    parts = {"val": ids[split.validation], "test": ids[split.test]}
    return parts if split.train.ndim == 2 else {"train": ids[split.train], **parts}


def _random(labels: Ints, shares: Shares, public: PublicCoins) -> VertexSplit:
    roles = split_vertices(labels, public, shares)
    origin = f"random, {_percent(shares)} of the labelled devices by seed {public.seed}"
    name = "" if shares == VERTICES else _digest(roles)
    return VertexSplit(roles, _counted_roles(roles, origin), name)


def _wanted(given: GivenSplit, default: Shares) -> Shares | Mapping[str, Any]:
    """Shares of a random split, or the parts of a given one by name."""
    if given is None or (isinstance(given, str) and given.casefold() == RANDOM):
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
            "`split`: shares are three numbers above 0, for training, validation and test, "
            f"together 1 (or 100) at most; got {', '.join(f'{n:g}' for n in numbers)}"
        )
    train, validation, test = numbers
    return (train, validation, test)


def _with_validation(roles: Ints, origin: str, public: PublicCoins) -> tuple[Ints, str]:
    """Where nobody validates, a public quarter of the training devices does."""
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

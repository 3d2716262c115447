"""Who trains, validates and tests, where the source of a graph says so."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NoReturn

import numpy as np

from lumos.errors import InputError
from lumos.graph.options import ReadOptions
from lumos.typing import Flags, Ints

MASKS = ("train_mask", "val_mask", "test_mask")
"""Masks as PyG names them."""
SPELLINGS = (
    ("train_mask", "train_idx", "idx_train", "train_indices"),
    ("val_mask", "valid_mask", "val_idx", "valid_idx", "idx_val", "val_indices"),
    ("test_mask", "test_idx", "idx_test", "test_indices"),
)
"""Names of masks, or of lists of rows, for training, validation and test."""
MASK_NAMES = frozenset(name for names in SPELLINGS for name in names)


class Role(IntEnum):
    """What a device does in `classify`."""

    NOBODY = -1
    """It has no label: it takes part, and is only predicted."""
    TRAIN = 0
    VALIDATION = 1
    TEST = 2


def checked_roles(roles: Any, devices: int) -> Ints:
    """Check that `roles` is [devices] of 0 (trains), 1 (validates), 2 (tests) or -1 (none)."""
    array = np.asarray(roles)
    if array.shape != (devices,):
        shape = list(array.shape)
        raise InputError(f"roles: one role per device is needed, [{devices}]; got {shape}")
    if array.dtype.kind not in "iu" or (len(array) and not -1 <= array.min() <= array.max() <= 2):
        raise InputError("roles: 0 trains, 1 validates, 2 tests, -1 none of them; got other values")
    return array.astype(np.int64, copy=False)


def roles_of_masks(train: Any, validation: Any, test: Any, labels: Any, what: str) -> Ints:
    """[devices] roles from masks [devices] of truth values, or of zeros and ones.

    A device in no mask has no role. Without a validation mask, or with an empty one, no device
    validates.

    Args:
        labels: [devices] the index of each class, -1 where it is unknown.
        what: what errors name, e.g. the file.

    Raises:
        InputError: the masks overlap, are no masks of these devices, hold a device without a label,
            or there is nobody to train or to test.
    """
    return _roles(list(zip(MASKS, (train, validation, test), strict=True)), labels, what)


def roles_in(
    source: Mapping[str, Any], labels: Any, options: ReadOptions, what: str = ""
) -> tuple[Ints | None, tuple[str, ...]]:
    """The roles that the masks, or lists of rows, in `source` say, and notes; None without any.

    Args:
        source: arrays by name, e.g. those of an npz; None stands for an absent one.
        labels: [devices] the index of each class, or None.
    """
    present = [name for name in source if name in MASK_NAMES and source[name] is not None]
    if not present:
        return None, ()
    listed = ", ".join(present)
    if options.masks == "ignore":
        return None, (f"{listed}: ignored, as asked",)
    if labels is None:
        return None, (f"{listed}: not used, because no device has a label",)
    named: list[tuple[str, Any]] = []
    try:
        for spellings in SPELLINGS:
            name = next((name for name in spellings if name in present), spellings[0])
            rows = source.get(name)
            if rows is not None and not name.endswith("_mask"):
                rows = _mask_of_rows(rows, len(labels), name, what)
            named.append((name, rows))
        return _roles(named, labels, what), ()
    except InputError as error:
        raise InputError(f"{error}, or ignore this split with `masks='ignore'`") from None


def _roles(named: list[tuple[str, Any]], labels: Any, what: str) -> Ints:
    """[devices] roles from the masks for training, validation and test, each with its name."""
    labels = np.asarray(labels)
    there = ", ".join(name for name, mask in named if mask is not None)
    for name, mask in (named[Role.TRAIN], named[Role.TEST]):
        if mask is None:
            _refuse(what, f"{there or 'no mask'} without {name}; give both")
    roles = np.full(len(labels), Role.NOBODY, np.int64)
    for role, (name, mask) in zip((Role.TRAIN, Role.VALIDATION, Role.TEST), named, strict=True):
        if mask is None:
            continue
        rows = np.flatnonzero(_checked_mask(mask, len(labels), name, what))
        if not len(rows) and role != Role.VALIDATION:
            _refuse(what, f"{name} holds no device; choose some")
        taken = rows[roles[rows] >= 0]
        if len(taken):
            other = named[roles[taken[0]]][0]
            _refuse(
                what,
                f"{len(taken):,} devices are in {other} and in {name}, the first is row "
                f"{taken[0]}; put each into one",
            )
        unknown = rows[labels[rows] < 0]
        if len(unknown):
            _refuse(
                what,
                f"{len(unknown):,} devices of {name} have no label, the first is row "
                f"{unknown[0]}; take them out of it",
            )
        roles[rows] = role
    return roles


def masks_of(roles: Ints) -> dict[str, Flags]:
    """The masks that say the same as `roles`, each [devices]."""
    return {name: np.asarray(roles == role) for role, name in enumerate(MASKS)}


def _checked_mask(mask: Any, devices: int, name: str, what: str) -> Flags:
    array = np.asarray(mask)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.shape[0] == devices:
        _refuse(
            what,
            f"{name} has {array.shape[1]} columns, which are several splits; choose one: "
            "`split={'train': data.train_mask[:, 0], 'val': …, 'test': …}`",
        )
    if array.shape != (devices,):
        _refuse(
            what, f"{name} has the shape {list(array.shape)}; one value per device, [{devices}]"
        )
    if array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
        _refuse(what, f"{name} holds {array.dtype} values; use truth values, or zeros and ones")
    return array.astype(bool)


def _mask_of_rows(rows: Any, devices: int, name: str, what: str) -> Flags:
    """[devices] which devices a list of rows names."""
    array = np.asarray(rows)
    mask = np.zeros(devices, bool)
    if array.dtype == bool and array.shape == (devices,):
        return array
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        _refuse(what, f"{name} is no list of rows; use whole numbers")
    if array.size and not 0 <= array.min() <= array.max() < devices:
        _refuse(what, f"{name} holds rows beyond 0 … {devices - 1}; correct them")
    mask[array.astype(np.int64)] = True
    if mask.sum() < array.size:
        _refuse(what, f"{name} holds a row twice; name each once")
    return mask


def _refuse(what: str, problem: str) -> NoReturn:
    raise InputError(f"{what + ': ' if what else ''}{problem}")

"""Values that can hardly be classes: ids, names and measurements taken for labels."""

from collections.abc import Sequence
from typing import Any

from lumos.errors import InputError

FEW_DEVICES = 20
"""So few devices may all be of different classes: a graph to try things out."""
FEWEST_PER_CLASS = 2
"""With fewer devices per class, on average, nearly every device has a class of its own."""
MANY_CLASSES, FEWEST_PER_MANY = 100, 5
"""Above so many classes, each needs so many devices on average: numbers of days, prices, ages in
days repeat a few times by chance."""


def refuse_unlikely(
    names: Sequence[str | None], ids: Sequence[Any], what: str, other: str, *, numeric: bool
) -> None:
    """Refuse labels that are nearly all different.

    Args:
        names: [devices] the class of each device, None where it is unknown.
        ids: [devices] the ids, or nothing.
        what: the column, array or attribute that holds them.
        other: how to choose another one; "" where there is no other.
        numeric: whether all of them are numbers.

    Raises:
        InputError: there are many devices and few of them share a class.
    """
    known = [name for name in names if name is not None]
    different = len(set(known))
    if not unlikely(different, len(known)):
        return
    same = sum(name == str(device) for name, device in zip(names, ids, strict=False))
    if 2 * same > len(known):
        reason, remedy = "they are the ids again", "a class is shared by many devices"
    elif numeric:
        reason = "ids or measurements rather than classes"
        remedy = "cut measurements into classes with `label_bins=4`"
    else:
        reason, remedy = "names rather than classes", "a class is shared by many devices"
    raise InputError(
        f"{what}: {different:,} different labels on {len(known):,} devices, {reason}; "
        f"{remedy}{other}"
    )


def unlikely(classes: int, devices: int) -> bool:
    """Whether so many classes on so many devices are hardly classes."""
    if devices <= FEW_DEVICES:
        return False
    per_class = devices / max(classes, 1)
    return per_class < FEWEST_PER_CLASS or (classes > MANY_CLASSES and per_class < FEWEST_PER_MANY)

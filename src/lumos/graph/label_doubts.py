"""Values that can hardly be classes: ids, names and measurements taken for labels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

FEW_DEVICES = 20
"""So few devices may all be of different classes: a graph to try things out."""
FEWEST_PER_CLASS = 2
"""With fewer devices per class, on average, nearly every device has a class of its own."""
MANY_CLASSES, FEWEST_PER_MANY = 100, 5
"""Above so many classes, each needs so many devices on average: numbers of days, prices, ages in
days repeat a few times by chance."""


class Doubt(NamedTuple):
    """Why labels are no classes."""

    reason: str
    measured: bool
    """Whether they may be measurements, which bins would make classes of."""


def doubt_of(names: Sequence[str | None], ids: Sequence[Any], *, numeric: bool) -> Doubt | None:
    """Why labels that are nearly all different are no classes; None where they may be.

    Args:
        names: [devices] the class of each device, None where it is unknown.
        ids: [devices] the ids, or nothing.
        numeric: whether all of them are numbers.
    """
    known = [name for name in names if name is not None]
    different = len(set(known))
    if not unlikely(different, len(known)):
        return None
    kind = "ids or measurements" if numeric else "names"
    same = sum(name == str(device) for name, device in zip(names, ids, strict=False))
    if 2 * same > len(known):
        kind, numeric = "the ids again", False
    reason = f"{different:,} different labels on {len(known):,} devices are {kind}, no classes"
    return Doubt(reason, numeric)


def unlikely(classes: int, devices: int) -> bool:
    """Whether so many classes on so many devices are hardly classes."""
    if devices <= FEW_DEVICES:
        return False
    per_class = devices / max(classes, 1)
    return per_class < FEWEST_PER_CLASS or (classes > MANY_CLASSES and per_class < FEWEST_PER_MANY)

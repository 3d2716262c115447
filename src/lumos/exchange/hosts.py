"""Which rank hosts which device: bounds of ranges, or one or two bytes for each device."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lumos.errors import ProtocolError
from lumos.typing import Ints

Numbers = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]


class Hosts:
    """The rank of every device.

    Args:
        bounds: [ranks + 1] rank r hosts bounds[r] … bounds[r + 1] - 1; None where ranks host any.
        numbers: [devices] the rank of each, where ranks host any.
    """

    def __init__(self, bounds: Ints | None, numbers: Numbers | None) -> None:
        self._bounds, self._numbers = bounds, numbers

    @staticmethod
    def of(devices: Sequence[range | Ints], total: int) -> "Hosts":
        """From what each rank hosts: a range, or [hosted] ids, increasing.

        Raises:
            ProtocolError: a device is hosted nowhere, or twice.
        """
        ranges = [ids for ids in devices if isinstance(ids, range)]
        ends = [ids.stop for ids in ranges]
        if len(ranges) == len(devices) and [ids.start for ids in ranges] == [0, *ends[:-1]]:
            if ends[-1] != total:
                raise ProtocolError("a device is hosted by no rank")
            return Hosts(np.array([0, *ends]), None)
        numbers: Numbers = (
            np.zeros(total, np.uint8) if len(devices) <= 256 else np.zeros(total, np.uint16)
        )
        seen = np.zeros(total, np.bool_)
        for rank, hosted in enumerate(devices):
            ids = slice(hosted.start, hosted.stop) if isinstance(hosted, range) else hosted
            if seen[ids].any():
                raise ProtocolError(f"rank {rank} hosts a device that another rank hosts too")
            seen[ids] = True
            numbers[ids] = rank
        if not seen.all():
            raise ProtocolError("a device is hosted by no rank")
        return Hosts(None, numbers)

    def ranks(self, ids: Ints) -> Numbers:
        """[ids] the rank of each device."""
        if self._numbers is not None:
            return self._numbers[ids]
        bounds = np.asarray(self._bounds)
        if len(bounds) > 257:
            return (np.searchsorted(bounds, ids, side="right") - 1).astype(np.uint16)
        ranks = np.zeros(len(ids), np.uint8)
        for bound in bounds[1:-1].tolist():  # few: cheaper than a search for each id
            ranks += ids >= bound
        return ranks


def as_range(ids: Ints) -> range | None:
    """The same ids as a range; None where they are none."""
    first, last = int(ids[0]), int(ids[-1])
    return range(first, last + 1) if last - first == len(ids) - 1 else None

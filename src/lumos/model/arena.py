"""Memory that epochs use again.

An epoch writes the same arrays as the one before. Handed out from one place, they lie where they
lay: no page of the operating system is asked for twice, and what a step leaves behind is still in
the processor's cache when the next step writes there.
"""

from math import prod

import torch
from torch import Tensor

_FIRST, _LARGEST = 1 << 12, 1 << 20
"""Floats of the first chunk and of a large one, 4 MB; a larger array gets a chunk of its own."""
_VIEWS = 1 << 14
"""Arrays that are remembered: making one anew takes longer than writing a short one."""
_LINE = 16
"""Floats of a cache line: every array begins at one."""


class Arena:
    """Uninitialised arrays one after the other, all given back at once by `reset`."""

    def __init__(self) -> None:
        self._chunks: list[Tensor] = []
        self._chunk = self._used = 0
        self._views: dict[tuple[int, ...], Tensor] = {}

    def empty(self, *shape: int) -> Tensor:
        """An array of float32 that holds anything."""
        size = prod(shape)
        while self._chunk < len(self._chunks):
            chunk = self._chunks[self._chunk]
            if self._used + size <= len(chunk):
                place = self._chunk, self._used, *shape
                found = self._views.get(place)
                if found is None:
                    if len(self._views) == _VIEWS:
                        self._views.clear()
                    found = chunk[self._used : self._used + size].view(shape)
                    self._views[place] = found
                self._used += -(-size // _LINE) * _LINE
                return found
            self._chunk, self._used = self._chunk + 1, 0
        held = sum(map(len, self._chunks))
        self._chunks.append(torch.empty(max(size, _FIRST, min(held, _LARGEST))))
        return self.empty(*shape)

    def reset(self) -> None:
        """Give all arrays back."""
        self._chunk = self._used = 0


class Memory:
    """The arenas of one network: for what is kept until the backward pass, and for a step.

    A forward pass takes an arena and its backward pass returns it. One whose backward pass never
    comes is collected with the graph that holds it.
    """

    def __init__(self) -> None:
        self._free: list[Arena] = []
        self.step = Arena()
        """Reset by whoever begins a step of a layer."""
        self.between = Arena(), Arena()
        """What one step hands to the next; they take turns."""

    def take(self) -> Arena:
        """An arena that nobody uses."""
        arena = self._free.pop() if self._free else Arena()
        arena.reset()
        return arena

    def give(self, arena: Arena) -> None:
        """Return an arena whose arrays nobody needs any more."""
        self._free.append(arena)

    def __deepcopy__(self, _: dict[int, object]) -> "Memory":
        """A copy of a network has memory of its own."""
        return Memory()

    def __reduce__(self) -> tuple[type["Memory"], tuple[()]]:
        return Memory, ()

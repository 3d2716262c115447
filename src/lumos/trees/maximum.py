"""Algorithm 3: find a device of largest workload; the coordinator sees flags only.

Neighbours compare first; a device with no strictly heavier neighbour is a candidate. Candidates
then play a tournament. Every answer is kept until one of the two workloads changes, and an answer
that became void only because a step was tried is valid again when the step is rejected.
"""

from collections.abc import Iterable

import numpy as np

from lumos.exchange.topic import PUBLIC_ID, Door, Topic

CANDIDATE = Topic(
    name="maximum/candidate",
    door=Door.CONTROL,
    vocabulary=("not a candidate", "a candidate, with a workload not yet matched"),
    coordinator=True,
    learns="the coordinator learns that no neighbour of the device is heavier, or that one is",
)
MATCH = Topic(
    name="maximum/match",
    door=Door.CONTROL,
    dtype=np.int64,
    vocabulary=PUBLIC_ID,
    coordinator=True,
    learns="two candidates learn that they are to compare",
)
RESULT = Topic(
    name="maximum/result",
    door=Door.CONTROL,
    vocabulary=("lighter", "level", "heavier"),
    coordinator=True,
    learns="the coordinator learns which of two candidates is heavier, or that they are level",
)


class Tournament:
    """The coordinator's record: who lost to whom, as a forest of valid answers.

    A candidate that is no tree's child has not lost yet. One tree is left when the champion is
    found; those level with it hang below it by level answers. A change costs as many matches as
    answers became void, about log2(candidates) for the champion itself.
    """

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}
        self._level: dict[int, bool] = {}
        self._children: dict[int, set[int]] = {}
        self._unbeaten: dict[int, None] = {}
        self._journal: list[tuple[str, int, int, bool]] | None = None

    def begin(self) -> None:
        """Start recording, so that `undo` can bring the present state back."""
        self._journal = []

    def undo(self) -> None:
        """Take back everything since `begin`."""
        journal, self._journal = self._journal or [], None
        for act, child, parent, level in reversed(journal):
            if act == "link":
                self._unlink(child)
            elif act == "unlink":
                self._link(child, parent, level)
            elif act == "enter":
                self._leave(child)
            else:
                self._enter(child)

    def update(self, devices: Iterable[int], candidate: Iterable[bool]) -> None:
        """Devices whose standing changed: their answers are void."""
        for device, stays in zip(devices, candidate, strict=True):
            if device in self._children:
                for child in tuple(self._children[device]):
                    self._unlink(child)
                if device in self._parent:
                    self._unlink(device)
                if not stays:
                    self._leave(device)
            elif stays:
                self._enter(device)

    def matches(self) -> list[tuple[int, int]]:
        """The next matches: the unbeaten in pairs, or none when the champion is found."""
        unbeaten = list(self._unbeaten)
        return list(zip(unbeaten[0::2], unbeaten[1::2], strict=False))

    def record(self, first: int, second: int, sign: int) -> None:
        """Result of a match: `sign` of (first's workload - second's)."""
        loser, winner = (first, second) if sign < 0 else (second, first)
        self._link(loser, winner, sign == 0)

    def champions(self) -> list[int]:
        """All devices of largest workload, in increasing order."""
        found = list(self._unbeaten)
        for device in found:
            found.extend(child for child in self._children[device] if self._level[child])
        return sorted(found)

    def _note(self, act: str, child: int, parent: int = -1, level: bool = False) -> None:
        if self._journal is not None:
            self._journal.append((act, child, parent, level))

    def _enter(self, device: int) -> None:
        self._note("enter", device)
        self._children[device] = set()
        self._unbeaten[device] = None

    def _leave(self, device: int) -> None:
        self._note("leave", device)
        del self._children[device], self._unbeaten[device]

    def _link(self, child: int, parent: int, level: bool) -> None:
        self._note("link", child, parent, level)
        self._parent[child], self._level[child] = parent, level
        self._children[parent].add(child)
        del self._unbeaten[child]

    def _unlink(self, child: int) -> None:
        parent, level = self._parent.pop(child), self._level.pop(child)
        self._note("unlink", child, parent, level)
        self._children[parent].discard(child)
        self._unbeaten[child] = None

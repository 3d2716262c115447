"""The tournament of Algorithm 3: which candidate is heaviest, by as few matches as possible."""

from collections.abc import Callable, Iterable
from typing import Any

_FEW = 8  # so few all meet the first one at once: mostly one round, rarely more matches


class Tournament:
    """The coordinator's record: who lost to whom, as a forest of valid answers.

    A candidate that is no tree's child has not lost yet. One tree is left when the champion is
    found; those level with it hang below it by level answers. When a device changes or leaves,
    what its children and its parent know of each other through it stays true, so they are linked
    directly; only a champion that nobody equalled leaves its children without a parent.
    """

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}
        self._below: dict[int, set[int]] = {}
        self._level_with: dict[int, set[int]] = {}
        self._unbeaten: dict[int, None] = {}
        self._journal: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        self._champions: list[int] | None = None
        self._champions_before: list[int] | None = None

    def begin(self) -> None:
        """Start recording, so that `undo` can bring the present state back."""
        self._journal = []
        self._champions_before = self.champions()

    def undo(self) -> None:
        """Take back everything since `begin`."""
        journal, self._journal = self._journal or [], None
        for take_back, arguments in reversed(journal):
            take_back(*arguments)
        self._champions = self._champions_before

    def update(
        self, devices: Iterable[int], candidate: Iterable[bool], lighter: int | None = None
    ) -> None:
        """Devices that became candidates, ceased to be, or changed their workload.

        Args:
            devices: in increasing order.
            candidate: whether each is a candidate now.
            lighter: the one device whose workload may have fallen; all others can only rise.
        """
        for device, stays in zip(devices, candidate, strict=True):
            if device not in self._below:
                if stays:
                    self._enter(device)
            elif stays and device != lighter:
                self._rise(device)
            else:
                heir = self._pass_children_on(device)
                if stays:
                    self._fall(device, heir)
                else:
                    if device in self._parent:
                        self._unlink(device)
                    self._leave(device)

    def matches(self) -> list[tuple[int, int]]:
        """The next matches, as increasing pairs (smaller id, larger id); none when one is left."""
        unbeaten = list(self._unbeaten)
        if len(unbeaten) <= _FEW:
            pairs = [(unbeaten[0], other) for other in unbeaten[1:]]
        else:
            pairs = list(zip(unbeaten[0::2], unbeaten[1::2], strict=False))
        return sorted((min(pair), max(pair)) for pair in pairs)

    def record(self, first: int, second: int, sign: int) -> None:
        """Result of a match: `sign` of (first's workload - second's)."""
        loser, winner = (first, second) if sign < 0 else (second, first)
        if sign == 0 and loser not in self._unbeaten:
            loser, winner = winner, loser
        if loser in self._unbeaten and self._root(winner) != loser:
            self._link(loser, winner, sign == 0)

    def champions(self) -> list[int]:
        """All devices of largest workload, in increasing order."""
        if self._champions is None:
            champions = list(self._unbeaten)
            for device in champions:  # grows as those level with it are added
                champions.extend(self._level_with[device])
            self._champions = sorted(champions)
        return self._champions

    def _root(self, device: int) -> int:
        while device in self._parent:
            device = self._parent[device]
        return device

    def _rise(self, device: int) -> None:
        """Those below it stay below, those level with it fall below; whom it lost to is open."""
        if device in self._parent:
            self._unlink(device)
        for child in tuple(self._level_with[device]):
            self._unlink(child)
            self._link(child, device, False)

    def _fall(self, device: int, heir: int | None) -> None:
        """It stays below whom it lost to, and falls below whom it was level with."""
        parent = self._parent.get(device)
        if parent is None:
            if heir is not None:
                self._link(device, heir, False)
        elif device in self._level_with[parent]:
            self._unlink(device)
            self._link(device, parent, False)

    def _pass_children_on(self, device: int) -> int | None:
        """Link the children to the parent, or to a child that was level, by transitivity.

        Returns the one that took them, if any; without one they are unbeaten.
        """
        heir, level = self._parent.get(device), True
        if heir is not None:
            level = device in self._level_with[heir]
        elif self._level_with[device]:
            heir = next(iter(self._level_with[device]))
            self._unlink(heir)
        if heir is None:
            for child in tuple(self._below[device]):
                self._unlink(child)
        else:
            self._move(device, heir, self._level_with[device], self._below[device], level)
        return heir

    def _move(
        self, giver: int, taker: int, level: set[int], below: set[int], as_level: bool
    ) -> None:
        """All of `level` and `below` change from `giver` to `taker`, the former as level or not."""
        self._parent.update(dict.fromkeys(level | below, taker))
        (self._level_with if as_level else self._below)[taker] |= level
        self._below[taker] |= below
        self._level_with[giver], self._below[giver] = set(), set()
        self._note(self._move_back, giver, taker, level, below, as_level)

    def _move_back(
        self, giver: int, taker: int, level: set[int], below: set[int], as_level: bool
    ) -> None:
        self._parent.update(dict.fromkeys(level | below, giver))
        (self._level_with if as_level else self._below)[taker] -= level
        self._below[taker] -= below
        self._level_with[giver], self._below[giver] = level, below
        self._champions = None

    def _note(self, take_back: Callable[..., None], *arguments: Any) -> None:
        self._champions = None
        if self._journal is not None:
            self._journal.append((take_back, arguments))

    def _enter(self, device: int) -> None:
        self._below[device], self._level_with[device] = set(), set()
        self._unbeaten[device] = None
        self._note(self._leave, device)

    def _leave(self, device: int) -> None:
        del self._below[device], self._level_with[device], self._unbeaten[device]
        self._note(self._enter, device)

    def _link(self, child: int, parent: int, level: bool) -> None:
        self._parent[child] = parent
        (self._level_with if level else self._below)[parent].add(child)
        del self._unbeaten[child]
        self._note(self._unlink, child)

    def _unlink(self, child: int) -> None:
        parent = self._parent.pop(child)
        level = child in self._level_with[parent]
        (self._level_with if level else self._below)[parent].discard(child)
        self._unbeaten[child] = None
        self._note(self._link, child, parent, level)

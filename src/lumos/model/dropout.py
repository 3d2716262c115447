"""Dropout by private randomness: the same elements fall in any shard, and none but the device
knows.

All elements that a device computes in an epoch stand in one line: layer by layer, kind by kind,
row by row. At a rate of 1 % it is much cheaper to draw the gaps between dropped elements
(geometric) than a random bit for every element: O(dropped) instead of O(elements).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.device.randomness import PrivateRandomness
from lumos.model.tree_tensors import Piece, Trees
from lumos.typing import Flags, Ints, Words

PURPOSE = "dropout"
_GAPS_AT_ONCE = 16  # one block of the cipher


@dataclass(frozen=True, eq=False)
class Site:
    """One kind of node in one layer: where its outputs can be dropped."""

    layer: int
    kind: str
    width: int
    rows: Ints = field(repr=False)
    """[devices] rows of this kind that each device has."""


def sites(trees: Trees, widths: list[int], *, expanded: bool = False) -> list[Site]:
    """Every site of a network on these trees, in the order in which a device counts elements.

    Args:
        widths: [layers] width of each layer's output.
        expanded: own leaves of the first layer are computed for each branch, not once.
    """
    workload = trees.workload.numpy()
    each, alone, rooted = (np.ones_like(workload), workload == 0, workload > 0)
    found = []
    for layer, width in enumerate(widths):
        remaining = len(widths) - 1 - layer
        if trees.virtual_nodes:
            kinds = {"own": each if layer == 0 and not expanded else workload}
            kinds |= {"neighbour": workload, "lone": alone.astype(np.int64)}
            if remaining >= 1 or expanded:
                kinds["parent"] = workload
            if remaining >= 2 or expanded:
                kinds["root"] = rooted.astype(np.int64) if expanded else each
        else:
            kinds = {"centre": each, "leaf": workload}
        found += [Site(layer, kind, width, rows) for kind, rows in kinds.items()]
    return found


@dataclass(frozen=True, eq=False)
class Drops:
    """Elements that fall in one epoch: flat numbers of each (layer, kind), increasing."""

    chance: float
    places: dict[tuple[int, str], Tensor] = field(repr=False)
    widths: dict[tuple[int, str], int] = field(repr=False)
    expanded: bool = False
    """True if own leaves of the first layer have a row for each branch, see `sites`."""
    source: "DropSource | None" = field(default=None, repr=False)
    """Randomness for dropout inside layers that are not ours, see `lumos.model.custom`."""

    @staticmethod
    def draw(
        found: list[Site],
        chance: float,
        randomness: PrivateRandomness,
        step: int,
        *,
        expanded: bool = False,
    ) -> "Drops":
        """Draw what falls.

        Args:
            found: the sites, see `sites`.
            chance: of each element.
            randomness: private randomness of the devices, in the order of the trees.
            step: the epoch; each has randomness of its own.
            expanded: as in `sites`.
        """
        elements = np.stack([site.rows * site.width for site in found])  # [sites, devices]
        ends = np.cumsum(elements, axis=0)
        source = DropSource(randomness, np.arange(elements.shape[1]), step)
        device, position = source.falling(ends[-1], chance)
        site_of = np.zeros(len(device), np.int16)  # short, so that they are sorted by counting
        for end in ends[:-1]:
            np.add(site_of, position >= end[device], out=site_of)
        # From a device's line, in which all sites stand, to the numbers of one site.
        shift = np.cumsum(elements, axis=1) - ends
        flat = position + shift[site_of, device]
        by_site = np.argsort(site_of, kind="stable")  # increasing within each, as they were drawn
        numbers = np.split(
            flat[by_site], np.cumsum(np.bincount(site_of, minlength=len(found)))[:-1]
        )
        places, widths = {}, {}
        for site, here in zip(found, numbers, strict=True):
            places[site.layer, site.kind] = torch.from_numpy(here)
            widths[site.layer, site.kind] = site.width
        return Drops(chance, places, widths, expanded, source)

    @property
    def drawn_from(self) -> "DropSource":
        """The randomness for dropout inside layers.

        Raises:
            ValueError: there is none.
        """
        if self.source is None:
            raise ValueError("these drops were made without randomness")
        return self.source

    def of(self, layer: int, kind: str) -> Tensor:
        """Flat numbers of the elements that fall."""
        return self.places[layer, kind]

    def by_piece(self, pieces: list[Piece]) -> "list[Drops]":
        """Return what falls in each of the pieces of the trees."""
        cut: list[dict[tuple[int, str], Tensor]] = [{} for _ in pieces]
        for (layer, kind), places in self.places.items():
            rows = [self._rows_of(piece, layer, kind) for piece in pieces]
            first = np.array([span.start for span in rows]) * self.widths[layer, kind]
            last = np.array([span.stop for span in rows]) * self.widths[layer, kind]
            numbers = places.numpy()
            ends = np.searchsorted(numbers, np.stack([first, last])).T.tolist()
            for mine, base, (low, high) in zip(cut, first.tolist(), ends, strict=True):
                mine[layer, kind] = torch.from_numpy(numbers[low:high] - base)
        sources = [self.source and self.source.part(piece.devices) for piece in pieces]
        return [
            Drops(self.chance, mine, self.widths, self.expanded, source)
            for mine, source in zip(cut, sources, strict=True)
        ]

    def _rows_of(self, piece: Piece, layer: int, kind: str) -> slice:
        """Return the rows of a kind that belong to a piece."""
        if kind == "lone":
            return piece.lone
        if kind == "root" and self.expanded:  # only devices with branches have one
            return slice(
                piece.devices.start - piece.lone.start, piece.devices.stop - piece.lone.stop
            )
        shared = kind == "own" and layer == 0 and not self.expanded
        by_device = shared or kind in ("root", "centre")
        return piece.devices if by_device else piece.branches


@dataclass(frozen=True, eq=False)
class DropSource:
    """The private randomness of some devices in one epoch.

    Args:
        randomness: of all devices of the shard.
        devices: [devices] positions of these in the shard.
        step: the epoch.
    """

    randomness: PrivateRandomness = field(repr=False)
    devices: Ints = field(repr=False)
    step: int

    def part(self, devices: slice) -> "DropSource":
        """Return the randomness of some of these devices."""
        return DropSource(self.randomness, self.devices[devices], self.step)

    def each(self, elements: Ints, chance: float, call: int) -> Flags:
        """[sum of elements] whether each falls, device by device: quicker for a large chance.

        Args:
            elements: [devices] elements of each device.
            chance: of each element.
            call: number of the line; each has randomness of its own.
        """
        purpose = f"{PURPOSE} inside/{call}"
        words = self.randomness.words_each(self.devices, elements, purpose, self.step)
        return words < np.uint32(chance * 2**32)

    def falling(self, elements: Ints, chance: float) -> tuple[Ints, Ints]:
        """(device, position in its line) of what falls, in this order: quicker for a small chance.

        Args:
            elements: [devices] elements of each device.
            chance: of each element.
        """
        devices, positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        active = np.flatnonzero(elements > 0) if chance > 0 else np.empty(0, np.int64)
        reached = np.zeros(len(elements), np.int64)
        block = 0
        while len(active):
            here, name = self.devices[active], f"{PURPOSE}/{block}"
            words = self.randomness.words(here, name, self.step, _GAPS_AT_ONCE)
            # Most lines end early: the second half of the gaps is computed for the others only.
            for half in (slice(None, _GAPS_AT_ONCE // 2), slice(_GAPS_AT_ONCE // 2, None)):
                place = np.cumsum(_kept_before(words[:, half], chance) + 1, axis=1)
                place += reached[active, None] - 1
                inside = place < elements[active, None]
                devices.append(np.repeat(active, inside.sum(axis=1)))
                positions.append(place[inside])
                reached[active] = place[:, -1] + 1
                active, words = active[inside[:, -1]], words[inside[:, -1]]
            block += 1
        device, position = np.concatenate(devices), np.concatenate(positions)
        order = np.argsort(device, kind="stable")
        return device[order], position[order]


def _kept_before(words: Words, chance: float) -> Ints:
    """Elements that are kept before the next one falls: geometric, floor(ln U / ln(1 - chance))."""
    uniform = words + 0.5
    uniform *= 2.0**-32
    np.log(uniform, out=uniform)
    uniform /= np.log1p(-chance)
    return uniform.astype(np.int64)  # which cuts, and nothing here is below 0


@dataclass(frozen=True, eq=False)
class Activation:
    """The activation of a layer: ReLU and dropout in training, ReLU in evaluation, or nothing.

    What does not fall is divided by 1 - chance. A layer multiplies by `factor` on its own, before
    the ReLU and wherever that is cheapest: a positive factor may stand on either side of it.
    """

    layer: int
    drops: Drops | None = None
    relu: bool = True

    @property
    def factor(self) -> float:
        """1 / (1 - chance), or 1 where nothing falls."""
        return 1 / (1 - self.drops.chance) if self.drops is not None and self.relu else 1.0

    def clip_(self, rows: Tensor, kind: str) -> Tensor:
        """ReLU in place; what falls becomes 0."""
        if self.relu:
            rows.clamp_min_(0)
            if self.drops is not None:
                rows.view(-1).index_fill_(0, self.drops.of(self.layer, kind), 0)
        return rows

    def back(self, gradient: Tensor, out: Tensor, into: Tensor) -> Tensor:
        """The gradient before `clip_`, from the one after it and from what `clip_` returned."""
        if not self.relu:
            return into.copy_(gradient)
        back: Tensor = torch.ops.aten.threshold_backward.grad_input(
            gradient, out, 0, grad_input=into
        )
        return back

    def clipped(self, rows: Tensor, kind: str) -> Tensor:
        """`clip_` of a copy, with its gradient."""
        out: Tensor = _Clipped.apply(self, kind, rows)  # type: ignore[no-untyped-call]
        return out


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, activation: Activation, kind: str, rows: Tensor) -> Tensor:
        out = activation.clip_(rows.clone(), kind)
        ctx.save_for_backward(out)
        ctx.activation = activation
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:
        activation: Activation = ctx.activation
        (out,) = ctx.saved_tensors
        return None, None, activation.back(gradient, out, torch.empty_like(out))

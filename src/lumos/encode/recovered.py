"""Unbiased features on the neighbour leaves, recovered from releases and kept sparse."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from lumos.encode.bounds import Sparse
from lumos.encode.one_bit import EncoderSettings, element_epsilon, recovery_scale
from lumos.encode.release import Codes, Released
from lumos.typing import Floats, Ints

_ELEMENTS_AT_ONCE = 1 << 20
"""Of a block: few enough that the rows of its branches stay in a processor's cache."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Elements:
    """Received elements of one sign, branch by branch (CSR)."""

    sign: float
    offsets: Ints = field(repr=False)
    """[branches + 1]"""
    numbers: Codes = field(repr=False)
    """[elements] 0 … d - 1."""
    values: Floats | None = field(repr=False)
    """[elements] what they are; without: 1."""

    @property
    def rows(self) -> Ints:
        """[elements] the branch of each."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def span(self, rows: slice) -> "Elements":
        """Those of the branches `rows.start` … `rows.stop - 1`, without copying them."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        here = slice(int(offsets[0]), int(offsets[-1]))
        return Elements(
            sign=self.sign,
            offsets=offsets - offsets[0],
            numbers=self.numbers[here],
            values=None if self.values is None else self.values[here],
        )


@dataclass(frozen=True, eq=False)
class Block:
    """Some branches and one sign, as a matrix."""

    rows: slice
    sign: float
    matrix: Sparse = field(repr=False)
    """[branches, d], sharing the arrays of its `Elements`."""
    alike: bool
    """Whether all its values are 1; then all blocks share one array of them."""

    @cached_property
    def transposed(self) -> Sparse:
        """[d, branches] in rows of its own: 4 bytes for each element, kept for every backward pass.

        The product by columns of `matrix` would take three times as long.
        """
        columns = self.matrix.T.tocsr()
        if self.alike:
            columns.data = self.matrix.data
        return columns


@dataclass(frozen=True, kw_only=True, eq=False)
class RecoveredFeatures:
    """x'' of many branches: `filler` everywhere, `filler` ± scale at the elements received.

    One row is one branch. Never a dense branches × features array: 4 bytes for each element.
    """

    width: int
    """d"""
    received: tuple[Elements, ...] = field(repr=False)
    """With noise those whose bit is 1 and those whose bit is 0; without noise all in one."""
    scale: Floats = field(repr=False)
    """[branches] (b - a)/2 · (e^ε' + 1)/(e^ε' - 1); 1 without noise."""
    filler: float
    """What stands for an element that was not received: (a + b)/2, or 0 where all were."""

    @property
    def shape(self) -> tuple[int, int]:
        """(branches, d)."""
        return len(self.scale), self.width

    @property
    def elements(self) -> int:
        """How many were received."""
        return sum(len(some.numbers) for some in self.received)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Matrices S of some rows each, such that x'' W is filler · 1ᵀW + scale · Σ sign · S W.

        With noise S holds ones, without the values minus filler.
        """
        return tuple(block for some in self.received for block in self._blocks(some))

    def _blocks(self, some: Elements) -> Iterator[Block]:
        offsets, branches = some.offsets, len(some.offsets) - 1
        largest = int(np.diff(offsets).max(initial=0))
        ones = np.ones(min(len(some.numbers), _ELEMENTS_AT_ONCE + largest), np.float32)
        start = 0
        while start < branches:
            limit = offsets[start] + _ELEMENTS_AT_ONCE
            stop = max(start + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
            here = slice(int(offsets[start]), int(offsets[stop]))
            data = (
                ones[: here.stop - here.start]
                if some.values is None
                else some.values[here] - np.float32(self.filler)
            )
            pointers = (offsets[start : stop + 1] - offsets[start]).astype(np.int32)
            matrix = csr_array(
                (data, some.numbers[here], pointers), shape=(stop - start, self.width)
            )
            yield Block(slice(start, stop), some.sign, matrix, some.values is None)
            start = stop

    def span(self, rows: slice) -> "RecoveredFeatures":
        """The branches `rows.start` … `rows.stop - 1`, without copying their elements."""
        return RecoveredFeatures(
            width=self.width,
            received=tuple(some.span(rows) for some in self.received),
            scale=self.scale[rows],
            filler=self.filler,
        )

    def dense(self) -> Floats:
        """[branches, d] as an ordinary array, for small graphs and generic layers."""
        full = np.full(self.shape, self.filler, np.float32)
        for some in self.received:
            rows = some.rows
            if some.values is None:
                full[rows, some.numbers] += np.float32(some.sign) * self.scale[rows]
            else:
                full[rows, some.numbers] = some.values
        return full


def recover(released: Released, settings: EncoderSettings) -> RecoveredFeatures:
    """Unbiased features from received messages: E[x''] = x for every element received."""
    scale = np.ones(released.messages, np.float32)
    filler = settings.midpoint if settings.noisy or settings.bins else 0.0
    if settings.noisy:
        each = element_epsilon(settings.epsilon, released.largest)
        scale = recovery_scale(each, settings.low, settings.high).astype(np.float32)
    return RecoveredFeatures(
        width=released.width, received=tuple(_by_sign(released)), scale=scale, filler=filler
    )


def _by_sign(released: Released) -> Iterator[Elements]:
    if released.values is not None:
        yield Elements(
            sign=1.0,
            offsets=released.offsets,
            numbers=released.codes,
            values=released.values,
        )
        return
    ones = released.bits
    some = np.flatnonzero(released.counts)  # reduceat knows no empty rows
    counts = np.zeros(released.messages, np.int64)
    counts[some] = np.add.reduceat(ones, released.offsets[some], dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])
    for sign, chosen, offsets in ((1.0, ones, before), (-1.0, ~ones, released.offsets - before)):
        numbers = released.codes[chosen]
        if sign < 0:
            numbers -= np.int32(released.width)
        yield Elements(sign=sign, offsets=offsets, numbers=numbers, values=None)

"""What the receivers make of releases: unbiased features on the neighbour leaves, kept sparse."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from lumos.encode.bounds import Floats, Sparse
from lumos.encode.one_bit import EncoderSettings, element_epsilon, recovery_scale
from lumos.encode.release import Released

_ELEMENTS_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class RecoveredFeatures:
    """x'' of many branches: `filler` everywhere, `filler` ± scale at the elements that came.

    One row is one branch. Never a dense branches × features array: 4 bytes for each element.
    """

    released: Released = field(repr=False)
    """The messages, one for each branch and in the order of the branches."""
    scale: Floats = field(repr=False)
    """[branches] (b - a)/2 · (e^ε' + 1)/(e^ε' - 1); 1 without noise."""
    filler: float
    """What stands for an element that did not come: (a + b)/2, or 0 where all features came."""

    @property
    def shape(self) -> tuple[int, int]:
        """(branches, d)."""
        return self.released.messages, self.released.width

    def blocks(self) -> Iterator[tuple[slice, Sparse]]:
        """Some branches at a time as CSR: `rows, S`, such that x''[rows] W is

            filler · 1ᵀW + scale · (S [W; -W])      with noise, S of ones [rows, 2d],
            filler · 1ᵀW + S W                      without, S of values minus filler [rows, d].

        The blocks share the arrays of this object, so they cost nothing.
        """
        released = self.released
        offsets, messages = released.offsets, released.messages
        signed = released.values is None
        columns = released.width * (2 if signed else 1)
        largest = int(released.counts.max(initial=0))
        ones = np.ones(min(len(released.codes), _ELEMENTS_AT_ONCE + largest), np.float32)
        start = 0
        while start < messages:
            limit = offsets[start] + _ELEMENTS_AT_ONCE
            stop = max(start + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
            span = slice(int(offsets[start]), int(offsets[stop]))
            data = (
                ones[: span.stop - span.start]
                if released.values is None
                else released.values[span] - np.float32(self.filler)
            )
            pointers = (offsets[start : stop + 1] - offsets[start]).astype(np.int32)
            block = csr_array((data, released.codes[span], pointers), shape=(stop - start, columns))
            yield slice(start, stop), block
            start = stop

    def span(self, rows: slice) -> "RecoveredFeatures":
        """The branches `rows.start` … `rows.stop - 1`, without copying their elements."""
        return RecoveredFeatures(
            released=self.released.span(rows), scale=self.scale[rows], filler=self.filler
        )

    def dense(self) -> Floats:
        """[branches, d] as an ordinary array, for small graphs and generic layers."""
        rows = np.repeat(np.arange(self.released.messages), self.released.counts)
        full = np.full(self.shape, self.filler, np.float32)
        if self.released.values is None:
            signs = np.where(self.released.bits, self.scale[rows], -self.scale[rows])
            full[rows, self.released.elements] += signs
        else:
            full[rows, self.released.codes] = self.released.values
        return full


def recover(released: Released, settings: EncoderSettings) -> RecoveredFeatures:
    """Unbiased features from received messages: E[x''] = x for every element that came."""
    scale = np.ones(released.messages, np.float32)
    filler = settings.midpoint if settings.noisy or settings.bins else 0.0
    if settings.noisy:
        each = element_epsilon(settings.epsilon, released.largest)
        scale = recovery_scale(each, settings.low, settings.high).astype(np.float32)
    return RecoveredFeatures(released=released, scale=scale, filler=filler)

"""What devices tell of themselves, in one run or in all runs with their book, in numbers.

A table of promises has the same cells for both: those of a run follow from its schedule, those of a
life from the book. Everything counts what is *seen*: a symbol that is sent again for nothing is
still seen, so a run has its ε, and only "newly spent" is less.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lumos.strict.book_charges import QUESTIONS
from lumos.typing import Doubles, Flags, Ints

FOR_LIFE = ", for life"
"""Ends the name of a column that counts all runs with a book."""

NEWLY = "newly spent in this run"
"""The row of what a run adds to a book's accounts; for life, of what they have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Lives:
    """What devices have spent in all runs with their book, [devices] each."""

    label: Doubles = field(repr=False)
    """ε of releases: the largest of each label, added up over labels."""
    opinions: Doubles = field(repr=False)
    """ε of opinions."""
    squares: dict[str, Doubles] = field(repr=False)
    """μ² of sums, for each question."""
    answers: Ints = field(repr=False)
    """Answers about links."""


class Disclosed(NamedTuple):
    """The largest of any device of a group."""

    label: float
    """ε of releases."""
    opinions: float
    """ε of opinions, of one device."""
    mu: Mapping[str, float]
    """Of sums, for each question; at one end of an edge."""
    answers: int = 0
    """About links."""

    @staticmethod
    def of_lives(lives: Lives, group: Flags) -> "Disclosed":
        """Of some devices, in all runs with their book."""
        squares = {name: float(lives.squares[name][group].max(initial=0)) for name in QUESTIONS}
        return Disclosed(
            label=float(lives.label[group].max(initial=0)),
            opinions=float(lives.opinions[group].max(initial=0)),
            mu={name: math.sqrt(square) for name, square in squares.items()},
            answers=int(np.max(lives.answers[group], initial=0)),
        )


class BookView(NamedTuple):
    """What a table of promises says of a book, for each group of devices."""

    life: Mapping[str, Disclosed]
    newly: Mapping[str, float]
    """ε that the group's labels cost in this run: the largest of any device."""


def with_life(
    rows: Mapping[str, tuple[str, ...]], life: Mapping[str, tuple[str, ...]], columns: list[str]
) -> list[dict[str, str]]:
    """The rows of a table: what is about, the columns of the run, and those for life, if any."""
    table = []
    for about, cells in rows.items():
        row = {"about": about, **dict(zip(columns, cells, strict=True))}
        if life:
            names = [name + FOR_LIFE for name in columns]
            row |= dict(zip(names, life[about], strict=True))
        table.append(row)
    return table

"""Scores in rounds: what a trainer asks, whichever backend answers.

Both ends of a pair take part, each on behalf of its own device, in the same rounds. The end with
the smaller id is the sender S of the protocol, the other one the receiver R.
"""

from typing import Protocol

import numpy as np

from lumos.crypto.group import Group
from lumos.errors import UsageError
from lumos.exchange.endpoint import Program
from lumos.exchange.ledger import Ledger
from lumos.score.level_spec import LevelSpec, fitting_vectors
from lumos.session.pairs import ComparedPairs, count_answers
from lumos.typing import Ints, Small


class Scorer(Protocol):
    """A backend: `secure` runs the protocol, `ideal` computes in the clear and is labelled so."""

    def levels(
        self,
        pairs: ComparedPairs,
        vectors: Small,
        spec: LevelSpec,
        shifts: Ints | None = None,
    ) -> Program[Ints]:
        """[pairs] the level of each pair; both ends learn it.

        Each pair opens a session for its score and closes it. A call keeps the sessions of all its
        pairs in memory: ask for a few thousand at a time.

        Args:
            pairs: who scores with whom, neighbours or strangers.
            vectors: [hosted, width] own vectors.
            spec: what is scored, the same for all.
            shifts: [pairs] what the other end learns is higher by this, modulo the number of
                levels. None for no shift.
        """
        ...


def own_inputs(
    pairs: ComparedPairs, vectors: Small, spec: LevelSpec, shifts: Ints | None
) -> tuple[Ints, Ints]:
    """[pairs, width] own vectors and [pairs] shifts.

    Raises:
        BadValue: a vector is out of range or too long; nothing was sent.
    """
    own = fitting_vectors(vectors, spec)[pairs.rows]
    if shifts is None:
        return own, np.zeros(len(pairs), np.int64)
    if shifts.shape != (len(pairs),) or shifts.dtype.kind not in "iu":
        raise UsageError("shifts are one integer for each pair")
    if np.count_nonzero((shifts < 0) | (shifts >= spec.levels)):
        raise UsageError(f"shifts must be from 0 to {spec.levels - 1}")
    return own, shifts


def count_scores(ledger: Ledger, pairs: ComparedPairs, spec: LevelSpec, group: Group) -> None:
    """Count what the levels of all pairs reveal."""
    count_answers(ledger, pairs, spec.levels)
    if len(pairs):
        ledger.groups.add(group.name)
    ledger.scores += len(pairs)

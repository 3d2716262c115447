"""The stages of `link`, and everything public about a run of it.

    sizes         histograms of each feature over powers of two
    centres       means of each feature
    counts        how often each token occurs
    random_marks  how often each random mark, and each propagated label, was sent
    associations  tokens of a device, and the random marks that its neighbourhood received
    whitening     the spread of embeddings
    levels        score buckets of held-back edges and of non-neighbours (after the last epoch)

All devices take part. The shares in the budget μ² are for other features in place of a device's
own. Random marks depend on no features: their noise is for one device's vector or none. The share
of scaling is taken from that of the associations.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lumos.exchange.endpoint import Program
from lumos.ldp.account import NORM
from lumos.ldp.mechanisms import Mechanism, make_mechanism
from lumos.strict.accounting import Disclosed
from lumos.strict.link.levels import BOTH, COSINES, WAYS, read_levels
from lumos.strict.settings import (
    CALIBRATION_QUERIES,
    LINK_PROPAGATED,
)
from lumos.strict.stages import Centres, Schedule, Sensitivity, Sizes, Stage, When
from lumos.training.split import Role
from lumos.typing import Doubles

if TYPE_CHECKING:
    from lumos.strict.link.trainer import StrictLinker

COUNTS, MARKS, ASSOCIATIONS, WHITENING, LEVELS = (
    "counts",
    "random_marks",
    "associations",
    "whitening",
    "levels",
)
MARGIN = 1e-5
"""Smallest relative increase of a norm that is allowed for rounding to the fixed point."""


class LinkStage(Stage):
    """A stage of `link`: all devices take part."""

    schedule: "LinkSchedule"


class TokenCounts(LinkStage):
    """Frequencies of the tokens."""

    name = COUNTS
    learns = "how often each token occurs"
    share = 0.03
    least = 0.0
    needed = True

    moves = Sensitivity(1.0, math.sqrt(2))
    """Shares of norm 1."""

    def width(self, features: int) -> int:
        """Return the number of tokens."""
        return self.schedule.tokens(features)

    def update(self, state: "StrictLinker", each: bool) -> Doubles:
        """Return each device's shares, or their sum."""
        shares = state.tokens.shares()
        steps = 2.0**self.schedule.config.updates.fraction_bits
        shares.data = np.trunc(shares.data * steps) / steps  # so that no norm exceeds 1
        return shares.toarray() if each else np.asarray(shares.sum(axis=0))

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Weight the tokens."""
        state.encoder.learn_counts(total, self.noise())


class Marks(LinkStage):
    """Frequencies of the random marks, and of propagated labels on them."""

    name = MARKS
    learns = "how often each random mark, and each propagated label on random marks, was sent"
    share = 0.02
    question = NORM
    least = 0.0
    needed = True
    replayed = True

    @property
    def num_sums(self) -> int:
        """One for random marks, and one for each propagated label."""
        return 1 + self.schedule.num_propagated

    moves = Sensitivity(1.0, 0.0)
    """A number up to 1, which depends on no features."""

    def budget(self, step: int) -> float:
        """Return the same for each sum."""
        return self.share / self.num_sums

    def width(self, features: int) -> int:
        """Return the number of random marks."""
        return self.schedule.random_marks

    def before(self, state: "StrictLinker", step: int) -> Program[None]:
        """Have every device send its random mark or a propagated label."""
        yield from state.tell(step)

    def vectors(self, state: "StrictLinker") -> Doubles:
        """Return what each device sent, weighted by its receivers."""
        return state.sketch.sent_weights()

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Keep the frequencies."""
        state.sketch.learn_usual(total)


class Associations(LinkStage):
    """Products of the tokens and the neighbourhood sketch of each device."""

    name = ASSOCIATIONS
    share = 0.85
    learns = "which tokens devices have whose neighbourhood received which random marks"

    moves = Sensitivity(1.0, math.sqrt(2))
    """x ⊗ s, both of norm 1. Features are not in s, and no number of x is negative."""

    def budget(self, step: int) -> float:
        """Return the share, less that of scaling."""
        return self.schedule.left_of(self.share)

    def width(self, features: int) -> int:
        """Return the size of the matrix [tokens, random marks]."""
        return self.schedule.tokens(features) * self.schedule.random_marks

    def update(self, state: "StrictLinker", each: bool) -> Doubles:
        """Return each device's products, or their sum."""
        bits, sketch = self.schedule.config.updates.fraction_bits, state.sketch.vectors()
        return state.encoder.associations(sketch, bits, each=each)

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Learn what each token tells of a neighbourhood."""
        state.encoder.learn_associations(total, self.noise())


class Whitening(LinkStage):
    """The spread of embeddings."""

    name = WHITENING
    learns = "the spread of embeddings"
    share = 0.02

    moves = Sensitivity(1.0, math.sqrt(2))
    """z zᵀ of norm 1."""

    def width(self, features: int) -> int:
        """Return the upper half of a matrix."""
        size = self.schedule.random_marks
        return size * (size + 1) // 2

    def vectors(self, state: "StrictLinker") -> Doubles:
        """Return z zᵀ of each device."""
        return state.encoder.spread()

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Whiten half way."""
        state.encoder.learn_spread(total)


class Levels(LinkStage):
    """Histograms of the score buckets of held-back edges and of non-neighbours."""

    name = LEVELS
    title = "score buckets"
    learns = "score buckets of edges and of non-neighbours: they choose what is compared"
    when = When.LAST
    share = 0.10
    least = 0.0
    needed = True
    sessions = True

    moves = Sensitivity(math.sqrt(2), 2.0)
    """One bucket of an edge, and one of a non-neighbour."""

    def width(self, features: int) -> int:
        """Return the number of buckets, for each way to compare and both kinds of pairs."""
        return len(self.schedule.compared) * 2 * (len(COSINES) + 1)

    def before(self, state: "StrictLinker", step: int) -> Program[None]:
        """Have pairs learn the bucket of their score."""
        yield from state.calibrate()

    def vectors(self, state: "StrictLinker") -> Doubles:
        """Return the buckets of each device's pairs."""
        return state.histograms

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Choose the vector to compare, the thresholds, and the evidence of each bucket."""
        tested = self.schedule.compared
        counts = total.reshape(len(tested), 2, len(COSINES) + 1)
        bits = self.schedule.strict.query_bits
        state.reading = read_levels(counts, self.spread(), bits, tested)


RANDOM_MARKS, MANY_DEVICES = (24, 32), 10_000
"""Default number of random marks, and where there are this many devices. More of them tell
neighbourhoods apart, and are randomized more (docs/strict-links.md)."""
CHOICE_DEVICES = 5_000
"""Number of devices from which on calibration compares three vectors. Below it, all calibrate the
vector of both (benchmarks/small_links.py)."""


@dataclass(frozen=True, kw_only=True)
class LinkSchedule(Schedule):
    """Everything public about a run of `link`."""

    @property
    def margin(self) -> float:
        """Enough for whitening: numbers of other sums are whole, or rounded towards 0."""
        return max(MARGIN, 2 * self.rounding_error(self[WHITENING].width(0)))

    @property
    def random_marks(self) -> int:
        """Number of different random marks, and of numbers in an embedding."""
        given = self.strict.random_marks
        return RANDOM_MARKS[self.devices >= MANY_DEVICES] if given is None else given

    @property
    def compared(self) -> tuple[str, ...]:
        """Vectors that calibration compares."""
        return WAYS if self.devices >= CHOICE_DEVICES else (BOTH,)

    @property
    def kinds(self) -> list[type[Stage]]:
        """The stages, in the order of the run."""
        return [Sizes, Centres, TokenCounts, Marks, Associations, Whitening, Levels]

    @property
    def num_propagated(self) -> int:
        """Number of propagated labels."""
        given = self.strict.propagated_labels
        return LINK_PROPAGATED if given is None else given

    def tokens(self, features: int) -> int:
        """Return the number of tokens, for `features` features."""
        return features * (2 if self.signed else 1)

    @cached_property
    def propagated_label_mechanism(self) -> Mechanism:
        """Mechanism that randomizes propagated labels; their values are single bytes."""
        return make_mechanism(self.random_marks, self.strict.propagated_epsilon, "krr")

    def disclosed(self, role: Role = Role.NOBODY) -> Disclosed:
        """Return what is seen of a device in training. Sums have no bound about edges."""
        return Disclosed(
            label=0.0,
            propagated_labels=self.num_propagated * self.strict.propagated_epsilon,
            mu=self.run_mu(role),
            answers=CALIBRATION_QUERIES,
        )

"""The stages of `link`, and everything public about a run of it.

    sizes       histograms of each feature over powers of two
    centres     means of each feature
    counts      how often each word occurs
    products    words of a device and the embedding of its partner, along a matching of edges
    whitening   how embeddings are spread
    random marks     how often each random mark, and each propagated label on random marks, was sent
    levels      which levels pairs of a kind have (after the last epoch)

The shares in the budget μ² are for other features in place of a device's own. Random marks depend
on no
features: their noise is for one device's vector or none. What scaling features takes is taken from
the share of the products.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from lumos.exchange.endpoint import Program
from lumos.ldp.mechanisms import Mechanism, make_mechanism
from lumos.strict.accounting import NORM, Disclosed
from lumos.strict.link.levels import COSINES, WAYS, read_levels
from lumos.strict.settings import ANSWERS_OF_CALIBRATION
from lumos.strict.stages import Centres, Schedule, Sensitivity, Sizes, Stage, When
from lumos.training.split import Role
from lumos.typing import Doubles

if TYPE_CHECKING:
    from lumos.strict.link.trainer import StrictLinker

COUNTS, PRODUCTS, WHITENING, MARKS, LEVELS = (
    "counts",
    "products",
    "whitening",
    "random_marks",
    "levels",
)
GROWTH = 2.0
"""How many times the μ² of a sum of products the next one has: the last embeddings matter most."""
MARGIN = 1e-5
"""What rounding to the fixed point may add to a norm, at most."""


class LinkStage(Stage):
    """A stage of `link`: all devices take part."""

    schedule: "LinkSchedule"


class WordCounts(LinkStage):
    """Frequencies of the words."""

    name = COUNTS
    learns = "how often each word occurs"
    share = 0.03

    @property
    def moves(self) -> Sensitivity:
        """Shares of norm 1."""
        return Sensitivity(1.0, math.sqrt(2))

    def width(self, features: int) -> int:
        """Return the number of words."""
        return self.schedule.words(features)

    def update(self, state: "StrictLinker", each: bool) -> Doubles:
        """Return each device's shares, or their sum."""
        shares = state.words.shares()
        steps = 2.0**self.schedule.config.updates.fraction_bits
        shares.data = np.trunc(shares.data * steps) / steps  # so that no norm exceeds 1
        return shares.toarray() if each else np.asarray(shares.sum(axis=0))

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Weight the words."""
        state.encoder.learn_counts(total, self.noise())


class Products(LinkStage):
    """Products of words and embeddings over matched edges."""

    name = PRODUCTS
    learns = "which words of two linked devices belong together"
    share = 0.85
    paired = True
    sessions = True

    @property
    def num_sums(self) -> int:
        """All that are left."""
        return self.schedule.rest_epochs

    @property
    def takes_rest(self) -> bool:
        """Always."""
        return True

    @property
    def moves(self) -> Sensitivity:
        """The pair of a device, with other words and another embedding."""
        # A pair's product is b_u ⊗ z_v + b_v ⊗ z_u: words are 0 or 1, at most `words` of them, and
        # embeddings have norm 1. Other words and another embedding move it by the square root of
        # |Δb|² + |b_v|² |Δz|² + 2 ⟨Δb, b_v⟩ ⟨z_v, Δz⟩ ≤ 2 + 4 + 2 · 1 · 2, times the words.
        words = math.sqrt(self.schedule.strict.tokens)
        return Sensitivity(2 * words, math.sqrt(10) * words)

    def budget(self, step: int) -> float:
        """Return twice as much for each further sum."""
        parts = [GROWTH**number for number in range(self.num_sums)]
        return self.schedule.left_of(self.share) * (parts[step] / sum(parts))

    def width(self, features: int) -> int:
        """Return the numbers of all words."""
        return self.schedule.words(features) * self.schedule.strict.embedding

    def before(self, state: "StrictLinker", step: int) -> Program[None]:
        """Open the sessions of partners before the first product."""
        yield from state.pair()

    def sum(self, state: "StrictLinker", step: int, randomness: int) -> Program[Doubles]:
        """Add up the products of all pairs."""
        numbers, words = state.encoder.integers(), state.words.width
        noise = self.noise(step)
        total: Doubles = yield from state.sums.sum_products(numbers, words, noise, randomness)
        return total

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Take the next basis."""
        state.encoder.learn_products(total)


class Whitening(LinkStage):
    """The spread of embeddings."""

    name = WHITENING
    learns = "how embeddings are spread"
    share = 0.02

    @property
    def moves(self) -> Sensitivity:
        """z zᵀ of norm 1."""
        return Sensitivity(1.0, math.sqrt(2))

    def width(self, features: int) -> int:
        """Return the upper half of a matrix."""
        size = self.schedule.strict.embedding
        return size * (size + 1) // 2

    def vectors(self, state: "StrictLinker") -> Doubles:
        """Return z zᵀ of each device."""
        return state.encoder.spread()

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Whiten half way."""
        state.encoder.learn_spread(total)


class Marks(LinkStage):
    """Frequencies of the random marks, and of propagated labels on them."""

    name = MARKS
    learns = "how often each random mark, and each propagated label on random marks, was sent"
    share = 0.02
    question = NORM
    replayed = True

    @property
    def num_sums(self) -> int:
        """One for random marks, and one for each propagated label."""
        return 1 + self.schedule.strict.propagated_labels

    @property
    def moves(self) -> Sensitivity:
        """A number up to 1, which depends on no features."""
        return Sensitivity(1.0, 0.0)

    def budget(self, step: int) -> float:
        """Return the same for each sum."""
        return self.share / self.num_sums

    def width(self, features: int) -> int:
        """Return the number of random marks."""
        return self.schedule.strict.random_marks

    def before(self, state: "StrictLinker", step: int) -> Program[None]:
        """Have every device send its random mark, or a propagated label."""
        yield from state.tell(step)

    def vectors(self, state: "StrictLinker") -> Doubles:
        """Return what each device sent, by how many received it."""
        return state.sketch.sent_weights()

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Keep the frequencies."""
        state.sketch.learn_usual(total)


class Levels(LinkStage):
    """Histograms of levels, of held-back edges and of non-neighbours."""

    name = LEVELS
    learns = "how edges and non-neighbours differ: the way to compare is chosen by it"
    when = When.LAST
    share = 0.10
    sessions = True

    @property
    def moves(self) -> Sensitivity:
        """One level of an edge, and one of a non-neighbour."""
        return Sensitivity(math.sqrt(2), 2.0)

    def width(self, features: int) -> int:
        """Return the levels of both kinds of pairs, for each way."""
        return len(WAYS) * 2 * (len(COSINES) + 1)

    def before(self, state: "StrictLinker", step: int) -> Program[None]:
        """Have pairs learn the level of their score."""
        yield from state.calibrate()

    def vectors(self, state: "StrictLinker") -> Doubles:
        """Return the levels of each device's pairs."""
        return state.histograms

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Choose what is compared, and what a level means."""
        shape = (len(WAYS), 2, len(COSINES) + 1)
        bits = self.schedule.strict.query_bits
        state.reading = read_levels(total.reshape(shape), self.spread(), bits)


LINK_STAGES: list[type[Stage]] = [
    Sizes,
    Centres,
    WordCounts,
    Products,
    Whitening,
    Marks,
    Levels,
]
"""In the order of the run."""


@dataclass(frozen=True, kw_only=True)
class LinkSchedule(Schedule):
    """Everything public about a run of `link`."""

    margin: ClassVar[float] = MARGIN

    @property
    def kinds(self) -> list[type[Stage]]:
        """Those of `LINK_STAGES`."""
        return LINK_STAGES

    def words(self, features: int) -> int:
        """Return the number of words that so many features make."""
        return features * (2 if self.signed else 1)

    @cached_property
    def propagated_label_mechanism(self) -> Mechanism:
        """How a propagated label is randomized: one byte, so that it can be counted at once."""
        return make_mechanism(self.strict.random_marks, self.strict.propagated_epsilon, "krr")

    def disclosed(self, role: Role = Role.NOBODY) -> Disclosed:
        """Return what is seen of a device in training. About edges sums have no bound."""
        return Disclosed(
            label=0.0,
            propagated_labels=self.strict.propagated_labels * self.strict.propagated_epsilon,
            mu=self.run_mu(role),
            answers=ANSWERS_OF_CALIBRATION,
        )

"""The stages of `link`, and everything public about a run of it.

    sizes         histograms of each feature over powers of two
    centres       means of each feature
    counts        how often each token occurs
    products      tokens of a device and an embedding: its own, or that of its partner along a
                  matching of edges
    whitening     the spread of embeddings
    random_marks  how often each random mark, and each propagated label, was sent
    levels        score buckets of held-back edges and of non-neighbours (after the last epoch)

All devices take part. The shares in the budget μ² are for other features in place of a device's
own. Random marks depend on no features: their noise is for one device's vector or none. The share
of scaling is taken from that of the products.
"""

import math
from abc import ABC
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from lumos.exchange.endpoint import Program
from lumos.ldp.account import NORM
from lumos.ldp.mechanisms import Mechanism, make_mechanism
from lumos.strict.accounting import Disclosed
from lumos.strict.link.levels import BOTH, COSINES, WAYS, read_levels
from lumos.strict.settings import (
    CALIBRATION_QUERIES,
    LINK_PROPAGATED,
    ProductKind,
    StrictSettings,
)
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
"""Ratio of μ² of successive sums of products: the last embeddings matter most."""
MARGIN = 1e-5
"""Largest relative increase of a norm by rounding to the fixed point."""


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


class Products(LinkStage, ABC):
    """Products of tokens and embeddings."""

    name = PRODUCTS
    share = 0.85

    @property
    def num_sums(self) -> int:
        """All epochs that are left."""
        return self.schedule.rest_epochs

    @property
    def takes_rest(self) -> bool:
        """Always true."""
        return True

    def budget(self, step: int) -> float:
        """Return a share that doubles from sum to sum."""
        parts = [GROWTH**number for number in range(self.num_sums)]
        return self.schedule.left_of(self.share) * (parts[step] / sum(parts))

    def width(self, features: int) -> int:
        """Return the size of the matrix [tokens, embedding]."""
        return self.schedule.tokens(features) * self.schedule.embedding

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Compute the next basis."""
        state.encoder.learn_products(total, self.noise(step))


class OwnProducts(Products):
    """Products of the tokens and the embedding of each device."""

    learns = "the tokens that devices have together"

    moves = Sensitivity(1.0, 2.0)
    """x ⊗ z, both of norm 1."""

    def update(self, state: "StrictLinker", each: bool) -> Doubles:
        """Return each device's products, or their sum."""
        return state.encoder.own_products(self.schedule.config.updates.fraction_bits, each=each)


class PairProducts(Products):
    """Products of tokens and embeddings over matched edges."""

    learns = "the tokens that linked devices have in common"
    paired = True
    sessions = True

    @property
    def moves(self) -> Sensitivity:
        """The pair of a device, with other tokens and another embedding."""
        # A pair's product is b_u ⊗ z_v + b_v ⊗ z_u: tokens are 0 or 1, at most M of them, and
        # embeddings have norm 1. Other tokens and another embedding move it by the square root of
        # |Δb|² + |b_v|² |Δz|² + 2 ⟨Δb, b_v⟩ ⟨z_v, Δz⟩ ≤ 2 + 4 + 2 · 1 · 2, times M = `tokens`.
        # Without a partner a device adds ½ b_u ⊗ z_u, of norm √M/2, which moves by √M at most.
        root = math.sqrt(self.schedule.strict.tokens)
        return Sensitivity(2 * root, math.sqrt(10) * root)

    def before(self, state: "StrictLinker", step: int) -> Program[None]:
        """Open the sessions of partners before the first product."""
        yield from state.pair()

    def sum(self, state: "StrictLinker", step: int, randomness: int) -> Program[Doubles]:
        """Add up the products of all pairs."""
        numbers, tokens = state.encoder.integers(), state.tokens.width
        noise = self.noise(step)
        total: Doubles = yield from state.sums.sum_products(numbers, tokens, noise, randomness)
        return total


class Whitening(LinkStage):
    """The spread of embeddings."""

    name = WHITENING
    learns = "the spread of embeddings"
    share = 0.02

    moves = Sensitivity(1.0, math.sqrt(2))
    """z zᵀ of norm 1."""

    def width(self, features: int) -> int:
        """Return the upper half of a matrix."""
        size = self.schedule.embedding
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
        return self.schedule.strict.random_marks

    def before(self, state: "StrictLinker", step: int) -> Program[None]:
        """Have every device send its random mark or a propagated label."""
        yield from state.tell(step)

    def vectors(self, state: "StrictLinker") -> Doubles:
        """Return what each device sent, weighted by its receivers."""
        return state.sketch.sent_weights()

    def learn(self, state: "StrictLinker", total: Doubles, step: int) -> None:
        """Keep the frequencies."""
        state.sketch.learn_usual(total)


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


PAIR_DEVICES = 10_000
"""Number of devices from which on products are of pairs. Below it, noise hides what matched edges
tell about tokens, and what single devices tell is worth more (benchmarks/small_links.py). Generated
graphs set no upper limit; pairs had been chosen on Facebook, of 22,470 devices."""
CHOICE_DEVICES = 5_000
"""Number of devices from which on calibration compares three vectors. Below it, all calibrate the
vector of both (benchmarks/small_links.py)."""
OWN_EMBEDDING, PAIR_EMBEDDING = 12, 24
"""Length of an embedding, by the kind of products."""


def product_kind(strict: StrictSettings, devices: int) -> ProductKind:
    """Return the kind of products that settings and the number of devices lead to."""
    if strict.products != "auto":
        return strict.products
    return "pairs" if devices >= PAIR_DEVICES else "own"


@dataclass(frozen=True, kw_only=True)
class LinkSchedule(Schedule):
    """Everything public about a run of `link`."""

    margin: ClassVar[float] = MARGIN

    @property
    def pairs(self) -> bool:
        """True if products are of matched devices."""
        return product_kind(self.strict, self.devices) == "pairs"

    @property
    def embedding(self) -> int:
        """Length of an embedding."""
        given = self.strict.embedding
        default = PAIR_EMBEDDING if self.pairs else OWN_EMBEDDING
        return default if given is None else given

    @property
    def compared(self) -> tuple[str, ...]:
        """Vectors that calibration compares."""
        return WAYS if self.devices >= CHOICE_DEVICES else (BOTH,)

    @property
    def kinds(self) -> list[type[Stage]]:
        """The stages, in the order of the run."""
        products = PairProducts if self.pairs else OwnProducts
        return [Sizes, Centres, TokenCounts, products, Whitening, Marks, Levels]

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
        return make_mechanism(self.strict.random_marks, self.strict.propagated_epsilon, "krr")

    def disclosed(self, role: Role = Role.NOBODY) -> Disclosed:
        """Return what is seen of a device in training. Sums have no bound about edges."""
        return Disclosed(
            label=0.0,
            propagated_labels=self.num_propagated * self.strict.propagated_epsilon,
            mu=self.run_mu(role),
            answers=CALIBRATION_QUERIES,
        )

"""The schedule of `link`: its stages, the noise of each, and how far a vector can move in it.

Every epoch is one sum. Two kinds of sums come before the first where features are scaled.

    sizes       histograms of each feature over powers of two
    centres     means of each feature
    counts      how often each word occurs
    products    words of a device and the embedding of its partner, along a matching of edges
    whitening   how embeddings are spread
    colours     how often each colour, and each opinion on colours, was sent
    levels      which levels pairs of a kind have (after the last epoch)
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lumos.aggregate.noise import Noise
from lumos.encode.mechanisms import Mechanism, make_mechanism
from lumos.errors import UsageError
from lumos.strict.book_charges import EDGE, FEATURES, LABEL, NORM, RECORD, sum_charge
from lumos.strict.disclosed import Disclosed
from lumos.strict.feature_scaling import CENTRES, SIZES
from lumos.strict.run_charges import Charge
from lumos.strict.schedule import SCALING_SHARE, Schedule
from lumos.strict.settings import ANSWERS_OF_CALIBRATION

COUNTS, PRODUCTS, WHITENING, COLOURS, LEVELS = (
    "counts",
    "products",
    "whitening",
    "colours",
    "levels",
)

SHARES = {COUNTS: 0.03, PRODUCTS: 0.85, WHITENING: 0.02, LEVELS: 0.10}
"""The share of each stage in the budget μ², for other features in place of a device's own. Colours
depend on no features; their noise is that of `COLOUR_SHARE`. What scaling features takes
(`SCALING_SHARE`) is taken from the products'."""
COLOUR_SHARE = 0.02
"""μ² of all sums of colours together, in those of the budget, for one device's vector or none."""
GROWTH = 2.0
"""How many times the μ² of a sum of products the next one has: the last embeddings matter most."""
COUNTED = 32
"""Words of a device that count in full in the sum of counts; with more, each counts less."""
Z_STEPS = 128
"""Embeddings enter products as multiples of 1/128."""
CROWD = 16
"""Neighbours up to which a device's colour weighs more the more of them hear it."""
MARGIN = 1e-5
"""What rounding to the fixed point may add to a norm, at most."""


class LinkReach(NamedTuple):
    """How far one device can move one sum of a stage, as a Euclidean norm."""

    norm: float
    """From anything it may be to nothing: its pairs are left out, and the matching is unchanged."""
    features: float
    """When the device has other features."""


@dataclass(frozen=True, kw_only=True)
class LinkSchedule(Schedule):
    """Everything public about a run of `link`."""

    signed: bool = True
    """Whether features may be negative."""

    def __post_init__(self) -> None:
        if self.product_sums < 1:
            raise UsageError(
                f"`epochs` must be above {self.config.train.epochs - self.product_sums} with these "
                "settings: 1 for counts, 1 for whitening, "
                f"{1 + self.strict.opinions} for colours and opinions; got "
                f"{self.config.train.epochs}"
            )

    @property
    def product_sums(self) -> int:
        """Epochs left for sums of products."""
        return self.config.train.epochs - 3 - self.strict.opinions

    @cached_property
    def sums(self) -> dict[str, int]:
        """The stages that are epochs, and the number of sums of each, in order."""
        return {
            COUNTS: 1,
            PRODUCTS: self.product_sums,
            WHITENING: 1,
            COLOURS: 1 + self.strict.opinions,
        }

    @property
    def last_stages(self) -> tuple[str, ...]:
        """The histograms of levels."""
        return (LEVELS,)

    @property
    def stages(self) -> tuple[str, ...]:
        """All stages, each once."""
        return tuple(dict.fromkeys((*self.first_stages, *self.sums, *self.last_stages)))

    @property
    def paired_stages(self) -> tuple[str, ...]:
        """Products."""
        return (PRODUCTS,)

    @cached_property
    def opinion_mechanism(self) -> Mechanism:
        """How an opinion is randomized: one byte, so that it can be counted at once."""
        return make_mechanism(self.strict.colours, self.strict.opinion_epsilon, "krr")

    def reach(self, stage: str) -> LinkReach:
        """How far one device can move a sum of a stage; docs/strict.md proves each number."""
        # A pair's product is b_u ⊗ z_v + b_v ⊗ z_u: words are 0 or 1, at most `words` of them, and
        # embeddings have norm 1. Other words and another embedding move it by the square root of
        # |Δb|² + |b_v|² |Δz|² + 2 ⟨Δb, b_v⟩ ⟨z_v, Δz⟩ ≤ 2 + 4 + 2 · 1 · 2, times the words.
        words = math.sqrt(self.strict.words)
        root = math.sqrt(2)
        return {
            SIZES: LinkReach(1.0, root),
            CENTRES: LinkReach(1.0, 2.0),
            COUNTS: LinkReach(1.0, root),
            PRODUCTS: LinkReach(2 * words, math.sqrt(10) * words),
            WHITENING: LinkReach(1.0, root),
            COLOURS: LinkReach(1.0, 0.0),
            LEVELS: LinkReach(root, 2.0),  # one level of an edge, and one of a stranger
        }[stage]

    def noise(self, stage: str, step: int = 0) -> Noise | None:
        """The noise of a sum of a stage."""
        if not self.noisy:
            return None
        norm, features = (number * (1 + MARGIN) for number in self.reach(stage))
        if stage == COLOURS:
            mu = self.whole_mu * math.sqrt(COLOUR_SHARE / self.sums[COLOURS])
            return self.gaussian(mu, norm, norm)
        share = SCALING_SHARE if stage in self.first_stages else SHARES[stage]
        if stage == PRODUCTS:
            share = self.left_of(share)
            parts = [GROWTH**number for number in range(self.product_sums)]
            share *= parts[step] / sum(parts)
        return self.gaussian(self.whole_mu * math.sqrt(share), features, norm)

    def mu(self, question: str) -> float:
        """μ of all sums of a run together, for a question of `LinkReach`."""
        square = 0.0
        for stage in self.stages:
            for step in range(self.many(stage)):
                noise = self.noise(stage, step)
                if noise is not None:
                    change: float = getattr(self.reach(stage), question)
                    square += (change * (1 + MARGIN) / (noise.sigma * noise.clip)) ** 2
        return math.sqrt(square)

    def disclosed(self) -> Disclosed:
        """What is seen of a device in training. About edges sums have no bound: see the table."""
        features = self.mu("features")
        mu = {LABEL: 0.0, FEATURES: features, RECORD: features, NORM: self.mu("norm"), EDGE: 0.0}
        return Disclosed(
            label=0.0,
            opinions=self.strict.opinions * self.strict.opinion_epsilon,
            mu=mu,
            answers=ANSWERS_OF_CALIBRATION,
        )

    def sum_charge(self) -> Charge:
        """What a book counts for all sums of a device."""
        return sum_charge(self.strict, self.disclosed().mu)

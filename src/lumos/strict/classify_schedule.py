"""The schedule of `classify`: its stages, the noise of each, and how far a vector can move in it.

Every epoch is one sum. Two kinds of sums come before the first where features are scaled.

    sizes        training devices     histograms of each feature over powers of two
    centres      training devices     means of each feature
    counts       training devices     how often each feature occurs
    encoder      training devices     gradients of the own encoder
    scale        validation devices   losses of the own encoder at several scales
    symbols      both                 which symbols devices of a class receive
    opinions     validation devices   the same for each opinion
    trust        validation devices   gradients of a few weights that combine all of it
    trees        validation devices   gradients of a tree network (`tree_network`)
    vote         validation devices   which candidate is right how often (after the last epoch)
    temperature  validation devices   how sure the chosen candidate is at several temperatures

What training devices know of each other comes back to them in opinions, so everything that follows
opinions is learnt by validation devices, whose label is never released (`docs/strict.md`, Echo).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lumos.aggregate.noise import Noise
from lumos.encode.label_form import LabelForm
from lumos.encode.mechanisms import Mechanism, make_mechanism
from lumos.errors import UsageError
from lumos.strict.book_charges import EDGE, FEATURES, LABEL, NORM, RECORD, sum_charge
from lumos.strict.disclosed import Disclosed
from lumos.strict.feature_scaling import CENTRES, SIZES
from lumos.strict.run_charges import Charge
from lumos.strict.schedule import SCALING_SHARE, Schedule
from lumos.strict.settings import TRUST_EPOCHS
from lumos.training.split import Role

COUNTS, ENCODER, SCALE, SYMBOLS = "counts", "encoder", "scale", "symbols"
OPINIONS, TRUST, TREES = "opinions", "trust", "trees"
VOTE, TEMPERATURE = "vote", "temperature"

SHARES = {
    COUNTS: 0.06,
    ENCODER: 0.94,
    SCALE: 0.10,
    SYMBOLS: 0.018,
    OPINIONS: 0.018,
    TRUST: 0.030,
    TREES: 0.030,
    VOTE: 0.018,
    TEMPERATURE: 0.004,
}
"""The share of each stage in the budget μ², for the change that the stage's noise is made for:
other features in `counts`, `encoder` and `scale`, one edge at one of its ends in all others. So the
encoder has nearly everything that a training device may spend on its features, less what scaling
them takes (`SCALING_SHARE`), and the stages after it are held down by the promise about edges."""
_OF_EDGES = frozenset({SYMBOLS, OPINIONS, TRUST, TREES, VOTE, TEMPERATURE})
"""Stages whose noise is made for one edge at one of its ends."""
FEWER = 3.0
"""A device adds counts/(received + FEWER) to a matrix: one more message moves it by at most
1/(1 + FEWER)."""
SCALES = tuple(2.0**-power for power in range(-1, 9))
"""By which the own encoder's logits may be multiplied."""
TEMPERED = (1.0, 2**0.5, 2**-0.5, 0.5, 0.3)
"""By which the final logits may be multiplied; 1 unless another is clearly better."""
LOSS_NORM = 3.0
"""Largest norm of the losses of one device at all scales."""
CANDIDATES = ("own", "neighbours", "trees")
"""Predictions by own features, with what neighbours sent, with the tree network."""


class Reach(NamedTuple):
    """How far one device's vector can move in one sum of a stage, as a Euclidean norm."""

    norm: float
    """From anything it may be to zero: the largest norm."""
    features: float
    """When the device has other features, and the same randomized label."""
    label: float
    """When it has another label, and other features: with true labels in the sums."""
    edge: float
    """When one edge is added or removed, at one of its two ends."""


@dataclass(frozen=True, kw_only=True)
class ClassifySchedule(Schedule):
    """Everything public about a run of `classify`."""

    training: int = 0
    """Number of training devices."""
    validation: int = 0
    """Number of validation devices."""
    classes: int = 2
    """k."""
    class_names: tuple[str, ...] | None = None
    """[k] of these classes, if they have names: a book keeps labels of other classes apart."""
    signed: bool = True
    """Whether features may be negative."""

    def __post_init__(self) -> None:
        if self.rest_epochs < 1:
            raise UsageError(
                f"`epochs` must be above {self.config.train.epochs - self.rest_epochs} with these "
                f"settings: 1 for counts, {self.strict.encoder_epochs} for the own encoder, "
                f"{2 + self.strict.opinions} for scale and matrices"
                + f", {TRUST_EPOCHS} for trust" * self.strict.tree_network
                + f"; got {self.config.train.epochs}"
            )

    @property
    def rest_epochs(self) -> int:
        """Epochs left for the last stage: trust, or the tree network."""
        return (
            self.config.train.epochs
            - self.first_trust
            - (TRUST_EPOCHS if self.strict.tree_network else 0)
        )

    @cached_property
    def sums(self) -> dict[str, int]:
        """The stages that are epochs, and the number of sums of each, in order."""
        counts = {
            COUNTS: 1,
            ENCODER: self.strict.encoder_epochs,
            SCALE: 1,
            SYMBOLS: 1,
            OPINIONS: self.strict.opinions,
        }
        last = {TRUST: TRUST_EPOCHS, TREES: self.rest_epochs}
        return counts | (last if self.strict.tree_network else {TRUST: self.rest_epochs})

    @property
    def first_trust(self) -> int:
        """Epochs before trust."""
        return 1 + self.strict.encoder_epochs + 2 + self.strict.opinions

    @property
    def last_stages(self) -> tuple[str, ...]:
        """The vote, and the temperature of what was chosen."""
        return (VOTE, TEMPERATURE)

    @property
    def candidates(self) -> tuple[str, ...]:
        """What validation devices choose from."""
        return CANDIDATES if self.strict.tree_network else CANDIDATES[:2]

    @cached_property
    def symbol_form(self) -> LabelForm:
        """How a label is written where it is randomized: the same at all levels of noise."""
        return LabelForm.of(
            make_mechanism(self.classes, self.strict.epsilon, self.strict.mechanism)
        )

    @property
    def label_form(self) -> LabelForm:
        """How sums write a label: as symbols do; a true label is written as it is."""
        if math.isinf(self.strict.sums_epsilon):
            return LabelForm(self.classes, 1, self.classes)
        return self.symbol_form

    @cached_property
    def opinion_mechanism(self) -> Mechanism:
        """How an opinion is randomized."""
        return make_mechanism(self.classes, self.strict.opinion_epsilon, self.strict.mechanism)

    @property
    def strength(self) -> float:
        """r = p - q of the label that sums use: all slopes shrink by it."""
        return self.label_form.strength(self.strict.sums_epsilon)

    @property
    def features_change(self) -> float:
        """How far other features move a clipped gradient of the encoder, in clipping norms.

        With one randomized label, gradients of non-negative rows lie in one cone: √2, not 2.
        """
        return 2.0 if self.signed else math.sqrt(2)

    def reach(self, stage: str) -> Reach:
        """How far a vector can move in one sum of a stage; docs/strict.md proves each number."""
        clip = self.strict.clip
        first = clip * self.strength
        matrix = Reach(1.0, 0.0, math.sqrt(2), 1 / (1 + FEWER))
        others = len(self.candidates) - 1
        sure = math.sqrt(len(TEMPERED))  # numbers from 0 to 1
        return {
            SIZES: Reach(1.0, math.sqrt(2), math.sqrt(2), 0.0),
            CENTRES: Reach(1.0, 2.0, 2.0, 0.0),
            COUNTS: Reach(1.0, math.sqrt(2), math.sqrt(2), 0.0),
            ENCODER: Reach(first, self.features_change * first, 2 * first, 0.0),
            SCALE: Reach(LOSS_NORM, 2 * LOSS_NORM, 2 * LOSS_NORM, 0.0),
            SYMBOLS: matrix,
            OPINIONS: matrix,
            TRUST: Reach(clip, 2 * clip, 2 * clip, 2 * clip),
            TREES: Reach(clip, 2 * clip, 2 * clip, 2 * clip),
            VOTE: Reach(
                math.sqrt(1 + others),
                math.sqrt(1 + 2 * others),
                math.sqrt(1 + 2 * others),
                math.sqrt(others),
            ),
            TEMPERATURE: Reach(sure, sure, sure, sure),
        }[stage]

    def clip(self, stage: str) -> float:
        """Largest norm of one device's vector in a stage, as the noise assumes it."""
        bounded_anyway = stage in (*self.first_stages, COUNTS, SYMBOLS, OPINIONS, VOTE, TEMPERATURE)
        return self.reach(stage).norm if self.noisy or bounded_anyway else float("inf")

    def limit(self, stage: str, width: int) -> float:
        """The norm that vectors of `width` numbers are clipped to; rounded, none exceeds `clip`.

        Raises:
            UsageError: nothing is left.
        """
        limit = self.clip(stage) - self.rounding_error(width)
        if not limit > 0:
            raise UsageError(
                f"`epsilon={self.strict.sums_epsilon:g}` for {self.classes:,} classes leaves "
                "gradients smaller than the steps of the fixed point; use a larger one"
            )
        return limit

    def noise(self, stage: str, step: int = 0) -> Noise | None:
        """The noise of a sum of a stage; None for exact sums."""
        if not self.noisy:
            return None
        reach = self.reach(stage)
        change = reach.edge if stage in _OF_EDGES else reach.features
        mu = self.whole_mu * math.sqrt(self._share(stage) * self._part(stage, step))
        return self.gaussian(mu, change, reach.norm)

    def _share(self, stage: str) -> float:
        """The share of a stage in the budget."""
        if stage in self.first_stages:
            return SCALING_SHARE
        return self.left_of(SHARES[stage]) if stage == ENCODER else SHARES[stage]

    def _part(self, stage: str, step: int) -> float:
        """The part of one sum in the budget of its stage; matrices of opinions each have all."""
        if stage == ENCODER:
            return self.falling(step) / self.total_falling
        return 1 / self.sums[stage] if stage in (TRUST, TREES) else 1.0

    def falling(self, step: int) -> float:
        """Size of a step of the encoder and weight of its sum in the budget: 1 to 1/T."""
        return 1 - step / self.strict.encoder_epochs

    @property
    def total_falling(self) -> float:
        """The sum of `falling` over all steps."""
        return (self.strict.encoder_epochs + 1) / 2

    def stages_of(self, role: Role) -> tuple[str, ...]:
        """The stages in which a device's own vector is not zero."""
        training, shared = (COUNTS, ENCODER), (SYMBOLS,)
        if role == Role.TRAIN:
            return (*dict.fromkeys(self.first_stages), *training, *shared)
        if role != Role.VALIDATION:
            return ()
        opinions = (OPINIONS,) if self.strict.opinions else ()
        trees = (TREES,) if self.strict.tree_network else ()
        return (SCALE, *shared, *opinions, TRUST, *trees, VOTE, TEMPERATURE)

    def mu(self, role: Role, question: str) -> float:
        """μ of all sums of a device of some role, for a change named by a field of `Reach`."""
        square = 0.0
        for stage in self.stages_of(role):
            change = getattr(self.reach(stage), question)
            for step in range(self.many(stage)):
                noise = self.noise(stage, step)
                if noise is not None:
                    square += (change / (noise.sigma * noise.clip)) ** 2
        return math.sqrt(square)

    def run_mu(self, role: Role) -> dict[str, float]:
        """By question, μ of all sums of a device of some role; at one end of an edge.

        Another label moves a vector only where sums see the label itself: otherwise everything is a
        function of the randomized one.
        """
        features = self.mu(role, "features")
        label = self.mu(role, "label") if math.isinf(self.strict.sums_epsilon) else 0.0
        return {
            LABEL: label,
            FEATURES: features,
            RECORD: max(label, features),
            NORM: self.mu(role, "norm"),
            EDGE: self.mu(role, "edge"),
        }

    def sum_charge(self, role: Role) -> Charge:
        """What a book counts for all sums of a device of some role."""
        return sum_charge(self.strict, self.run_mu(role))

    def disclosed(self, role: Role) -> Disclosed:
        """What is seen of a device of some role in one run."""
        strict = self.strict
        label = strict.sums_epsilon
        if math.isinf(label):  # only the symbol is a release
            label = strict.epsilon if role == Role.TRAIN else 0.0
        return Disclosed(
            label=label if role in (Role.TRAIN, Role.VALIDATION) else 0.0,
            opinions=strict.opinions * strict.opinion_epsilon,
            mu=self.run_mu(role),
        )

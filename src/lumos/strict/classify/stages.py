"""The stages of `classify`, and everything public about a run of it.

    sizes        training devices     histograms of each feature over powers of two centres training
    devices     means of each feature counts       training devices     how often each feature
    occurs encoder      training devices     gradients of the own encoder scale validation devices
    losses of the own encoder at several scales randomized labels      both which randomized labels
    devices of a class receive propagated labels     validation devices   the same for each
    propagated label evidence weights        validation devices   gradients of a few weights that
    combine all of it trees        validation devices   gradients of a tree network (`tree_network`)
    model selection         validation devices   which candidate is right how often (after the last
    epoch) temperature  validation devices   how sure the chosen candidate is at several
    temperatures

What training devices know of each other comes back to them in propagated labels, so everything that
follows propagated labels is learnt by validation devices, whose label is never released
(`docs/strict.md`, Echo).

The shares in the budget μ² are for other features in `counts`, `encoder` and `scale`, and for one
edge at one of its ends in all others. So the encoder has nearly everything that a training device
may spend on its features, less what scaling them takes, and the stages after it are held down by
the guarantee about edges.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lumos.exchange.endpoint import Program
from lumos.ldp.labels import LabelForm
from lumos.ldp.mechanisms import Mechanism, make_mechanism
from lumos.strict.accounting import EDGE, Disclosed
from lumos.strict.classify.encoder import LOSS_SCALE
from lumos.strict.classify.evidence import (
    PSEUDO_COUNT,
    Selection,
    choose_scale,
    confidence_vectors,
    loss_vectors,
    selection_vectors,
)
from lumos.strict.settings import EVIDENCE_WEIGHTS_EPOCHS
from lumos.strict.stages import Centres, Schedule, Sensitivity, Sizes, Stage, When
from lumos.training.split import Role
from lumos.typing import Doubles, Ints

if TYPE_CHECKING:
    from lumos.device.randomness import PublicRandomness
    from lumos.strict.classify.head import ResidualHead
    from lumos.strict.classify.trainer import StrictClassifier
    from lumos.strict.features import OuterVectors

COUNTS, ENCODER, SCALE, RANDOMIZED = "counts", "encoder", "scale", "randomized_labels"
PROPAGATED, EVIDENCE_WEIGHTS, TREES = "propagated_labels", "evidence_weights", "trees"
SELECTION, TEMPERATURE = "selection", "temperature"

SCALES = tuple(2.0**-power for power in range(-1, 9))
"""By which the own encoder's logits may be multiplied."""
TEMPERED = (1.0, 2**0.5, 2**-0.5, 0.5, 0.3)
"""By which the final logits may be multiplied; 1 unless another is clearly better."""
LOSS_NORM = 3.0
"""Largest norm of the losses of one device at all scales."""
CANDIDATES = ("own", "neighbours", "trees")
"""Predictions by own features, with what neighbours sent, with the tree network."""

TRAINS, VALIDATES = frozenset({Role.TRAIN}), frozenset({Role.VALIDATION})


class ClassifyStage(Stage):
    """A stage of `classify`."""

    schedule: "ClassifySchedule"

    def participants(self, state: "StrictClassifier") -> Ints:
        """Return the positions of the hosted devices of its roles: training devices first."""
        rows = {Role.TRAIN: state.training, Role.VALIDATION: state.validation}
        return np.concatenate([rows[role] for role in rows if role in self.roles])


class ScaledSizes(Sizes):
    """Histograms of the training devices' features."""

    roles = TRAINS


class ScaledCentres(Centres):
    """Means of the training devices' features."""

    roles = TRAINS


class Counts(ClassifyStage):
    """Frequencies of the features."""

    name = COUNTS
    learns = "how often each feature occurs among training devices"
    roles = TRAINS
    share = 0.06
    bounded = True

    @property
    def moves(self) -> Sensitivity:
        """Rows of norm 1."""
        return Sensitivity(1.0, math.sqrt(2), math.sqrt(2))

    def width(self, features: int) -> int:
        """Return one number for each feature."""
        return features

    def vectors(self, state: "StrictClassifier") -> "OuterVectors":
        """Return the rows of training devices."""
        return state.encoder.count_vectors()

    def update(self, state: "StrictClassifier", each: bool) -> Doubles:
        """Return the rows, or their sum, of which only what is not zero is added."""
        return state.encoder.counts(each=each)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Weight the features."""
        state.encoder.learn_counts(total)


class EncoderStage(ClassifyStage):
    """Gradients of the own encoder."""

    name = ENCODER
    learns = "the own encoder: from a device's features to its class, without neighbours"
    loss = (
        "Training devices' loss by their own features. No neighbour has a part in it, so a control "
        "differs by its randomness only."
    )
    roles = TRAINS
    share = 0.94

    @property
    def num_sums(self) -> int:
        """As many as are asked for."""
        return self.schedule.strict.encoder_epochs

    @property
    def moves(self) -> Sensitivity:
        """Clipped gradients, which shrink with the strength of randomized labels."""
        first = self.schedule.strict.clip * self.schedule.strength
        return Sensitivity(first, self.schedule.features_change * first, 2 * first)

    def budget(self, step: int) -> float:
        """Return less for each further sum."""
        part = self.schedule.falling(step) / self.schedule.total_falling
        return self.schedule.left_of(self.share) * part

    def width(self, features: int) -> int:
        """Return the size of table, bias and loss."""
        return (features + 1) * self.schedule.classes + 1

    def vectors(self, state: "StrictClassifier") -> "OuterVectors":
        """Return clipped gradients and losses of training devices."""
        return state.encoder.gradients()

    def update(self, state: "StrictClassifier", each: bool) -> Doubles:
        """Return the gradients, or their sum, of which only what is not zero is added."""
        return state.encoder.update(each=each)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> float:
        """Take one step."""
        state.encoder.learn(total, step)
        return state.encoder.mean_loss(total)


class Scale(ClassifyStage):
    """Losses of the own encoder at several scales."""

    name = SCALE
    learns = "how sure the own encoder may be, from losses of validation devices"
    roles = VALIDATES
    share = 0.10

    @property
    def moves(self) -> Sensitivity:
        """Clipped losses."""
        return Sensitivity(LOSS_NORM, 2 * LOSS_NORM, 2 * LOSS_NORM)

    def width(self, features: int) -> int:
        """Return the number of scales."""
        return len(SCALES)

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return the losses."""
        clip = self.limit(len(SCALES))
        rows = self.participants(state)
        return loss_vectors(state.encoder.logits(), SCALES, state.labels, rows, clip)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Choose the scale with the smallest loss."""
        state.scale = SCALES[int(np.argmin(total))]


class RandomizedLabels(ClassifyStage):
    """The matrix of randomized labels: which of them devices of a class receive."""

    name = RANDOMIZED
    learns = "which randomized labels devices of a class receive"
    roles = TRAINS | VALIDATES
    share = 0.018
    question = EDGE
    bounded = True
    replayed = True

    @property
    def moves(self) -> Sensitivity:
        """Damped counts in the row of the own label."""
        return Sensitivity(1.0, 0.0, math.sqrt(2), 1 / (1 + PSEUDO_COUNT))

    def width(self, features: int) -> int:
        """Return the size of the matrix."""
        schedule = self.schedule
        return schedule.label_form.alphabet * schedule.randomized_form.alphabet

    def before(self, state: "StrictClassifier", step: int) -> Program[None]:
        """Have training devices send their randomized label."""
        yield from state.release()

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return each device's part of the matrix of the last kind of messages."""
        return state.counts[-1].matrix_vectors(state.labels, self.participants(state))

    def update(self, state: "StrictClassifier", each: bool) -> Doubles:
        """Return the parts, or their sum, of which only what is not zero is added."""
        if each:
            return super().update(state, each)
        rows = self.participants(state)
        return state.counts[-1].matrix_sum(state.labels, rows, state.sums.rounded)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Keep the matrix."""
        state.matrices = [*state.matrices, total]


class PropagatedLabels(RandomizedLabels):
    """The matrix of each propagated label; each of them has the whole share."""

    name = PROPAGATED
    learns = "which propagated labels devices of a class receive"
    roles = VALIDATES

    @property
    def num_sums(self) -> int:
        """One for each propagated label."""
        return self.schedule.strict.propagated_labels

    def width(self, features: int) -> int:
        """Return the size of the matrix."""
        return self.schedule.label_form.alphabet * self.schedule.propagated_label_mechanism.alphabet

    def before(self, state: "StrictClassifier", step: int) -> Program[None]:
        """Have all devices send a propagated label on what they received."""
        yield from state.tell_propagated_label(1 + step)


class EvidenceWeightsStage(ClassifyStage):
    """Gradients of the weights that combine own features and messages."""

    name = EVIDENCE_WEIGHTS
    learns = "how much own features, randomized labels and propagated labels count, from validation devices"
    loss = (
        "Validation devices' loss with what neighbours sent. A control's messages say nothing: it "
        "can only learn to ignore them."
    )
    roles = VALIDATES
    share = 0.030
    question = EDGE

    @property
    def num_sums(self) -> int:
        """All that are left, or a fixed number before those of the tree network."""
        return self.schedule.rest_epochs if self.takes_rest else EVIDENCE_WEIGHTS_EPOCHS

    @property
    def takes_rest(self) -> bool:
        """Whether no tree network follows."""
        return not self.schedule.strict.tree_network

    @property
    def moves(self) -> Sensitivity:
        """Clipped gradients."""
        clip = self.schedule.strict.clip
        return Sensitivity(clip, 2 * clip, 2 * clip, 2 * clip)

    def budget(self, step: int) -> float:
        """Return the same for each sum."""
        return self.share * (1 / self.num_sums)

    def width(self, features: int) -> int:
        """Return a weight for each input, a bias for each class, and the loss."""
        return 2 + self.schedule.strict.propagated_labels + self.schedule.classes + 1

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return clipped gradients and losses."""
        weights, rows = state.optimisers[EVIDENCE_WEIGHTS].weights, self.participants(state)
        clip = self.limit(len(weights) + 1)
        return state.evidence_weights().update(weights, state.labels, rows, clip)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> float:
        """Take one step."""
        judges = max(1, self.schedule.validation)
        state.optimisers[self.name].step(self._gradient(state, total) / judges)
        return float(total[-1] / LOSS_SCALE / judges)

    def _gradient(self, state: "StrictClassifier", total: Doubles) -> Doubles:
        return total[:-1]


class Trees(EvidenceWeightsStage):
    """Gradients of a tree network."""

    name = TREES
    title = "tree network"
    learns = "a tree network on randomized labels and propagated labels, from validation devices"
    loss = "Validation devices' loss with the tree network."

    @property
    def num_sums(self) -> int:
        """All that are left, where there is a tree network."""
        return self.schedule.rest_epochs if self.takes_rest else 0

    @property
    def takes_rest(self) -> bool:
        """Whether there is a tree network."""
        return self.schedule.strict.tree_network

    def width(self, features: int) -> int:
        """Return the size of table, head and loss. It depends on no randomness."""
        from lumos.device.randomness import PublicRandomness

        return self.schedule.residual_head(PublicRandomness(0)).width

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return clipped gradients and losses."""
        head = state.trained_head()
        rows, clip = self.participants(state), self.limit(head.width)
        return head.update(state.residual_input(), state.labels, rows, clip)

    def _gradient(self, state: "StrictClassifier", total: Doubles) -> Doubles:
        return state.trained_head().gradient(total)


class SelectionStage(ClassifyStage):
    """The model selection of validation devices between candidates."""

    name = SELECTION
    learns = "which candidate is right how often: validation devices choose by it"
    when = When.LAST
    roles = VALIDATES
    share = 0.018
    question = EDGE
    bounded = True

    @property
    def moves(self) -> Sensitivity:
        """0 or 1 for the own encoder, and for gain or loss of each other candidate."""
        others = len(self.schedule.candidates) - 1
        every = math.sqrt(1 + 2 * others)
        return Sensitivity(math.sqrt(1 + others), every, every, math.sqrt(others))

    def width(self, features: int) -> int:
        """Return one number for the own encoder, and two for each other candidate."""
        return 2 * len(self.schedule.candidates) - 1

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return who agrees with which candidate."""
        return selection_vectors(state.candidates, state.labels, self.participants(state))

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Choose a candidate."""
        state.selection = Selection.of(total, self.schedule)
        state.choice = state.selection.choice


class Temperature(ClassifyStage):
    """Confidence of the chosen candidate at several temperatures."""

    name = TEMPERATURE
    learns = "how sure the chosen candidate may be"
    when = When.LAST
    roles = VALIDATES
    share = 0.004
    question = EDGE
    bounded = True

    @property
    def moves(self) -> Sensitivity:
        """Numbers from 0 to 1."""
        sure = math.sqrt(len(TEMPERED))
        return Sensitivity(sure, sure, sure, sure)

    def width(self, features: int) -> int:
        """Return the number of temperatures."""
        return len(TEMPERED)

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return the probability of the most likely class."""
        final = state.candidates[state.choice]
        return confidence_vectors(final, TEMPERED, self.participants(state))

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Choose the temperature at which confidence is accuracy."""
        judges, spread = self.schedule.validation, self.spread()
        state.temperature = 1 / choose_scale(total, TEMPERED, state.selection, judges, spread)


CLASSIFY_STAGES: list[type[Stage]] = [
    ScaledSizes,
    ScaledCentres,
    Counts,
    EncoderStage,
    Scale,
    RandomizedLabels,
    PropagatedLabels,
    EvidenceWeightsStage,
    Trees,
    SelectionStage,
    Temperature,
]
"""In the order of the run."""


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

    @property
    def kinds(self) -> list[type[Stage]]:
        """Those of `CLASSIFY_STAGES`."""
        return CLASSIFY_STAGES

    @property
    def candidates(self) -> tuple[str, ...]:
        """What validation devices choose from."""
        return CANDIDATES if self.strict.tree_network else CANDIDATES[:2]

    @cached_property
    def randomized_form(self) -> LabelForm:
        """How a label is written where it is randomized: the same at all levels of noise."""
        return LabelForm.of(
            make_mechanism(self.classes, self.strict.epsilon, self.strict.mechanism)
        )

    @property
    def label_form(self) -> LabelForm:
        """How sums write a label: as randomized labels do; a true label is written as it is."""
        if math.isinf(self.strict.sums_epsilon):
            return LabelForm(self.classes, 1, self.classes)
        return self.randomized_form

    @cached_property
    def propagated_label_mechanism(self) -> Mechanism:
        """How a propagated label is randomized."""
        return make_mechanism(self.classes, self.strict.propagated_epsilon, self.strict.mechanism)

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

    def falling(self, step: int) -> float:
        """Return the size of a step of the encoder, and the weight of its sum: 1 to 1/T."""
        return 1 - step / self.strict.encoder_epochs

    @property
    def total_falling(self) -> float:
        """The sum of `falling` over all steps."""
        return (self.strict.encoder_epochs + 1) / 2

    def residual_head(self, public: "PublicRandomness") -> "ResidualHead":
        """Return the tree network on randomized labels and propagated labels, as it starts."""
        from lumos.strict.classify.head import ResidualHead

        values = self.randomized_form.alphabet
        values += self.strict.propagated_labels * self.propagated_label_mechanism.alphabet
        generator = public.generator("weights")
        return ResidualHead(self.config.model, self.classes, values, generator)

    def disclosed(self, role: Role) -> Disclosed:
        """Return what is seen of a device of some role in one run."""
        strict = self.strict
        label = strict.sums_epsilon
        if math.isinf(label):  # only the randomized label is a release
            label = strict.epsilon if role == Role.TRAIN else 0.0
        return Disclosed(
            label=label if role in (Role.TRAIN, Role.VALIDATION) else 0.0,
            propagated_labels=strict.propagated_labels * strict.propagated_epsilon,
            mu=self.run_mu(role),
        )

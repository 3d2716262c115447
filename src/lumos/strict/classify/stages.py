"""The stages of `classify`, and everything public about a run of it.

    sizes              training     histograms of each feature over powers of two
    centres            training     means of each feature
    counts             training     how often each feature occurs
    encoder            training     gradients of the local classifier
    scale              validation   losses of the local classifier at several scales
    randomized_labels  both         randomized labels that devices of a class receive
    propagated_labels  validation   propagated labels that devices of a class receive
    evidence_weights   validation   gradients of the few weights that combine all of it
    trees              validation   gradients of a tree network (`tree_network`)
    selection          validation   how often each candidate is right (after the last epoch)
    temperature        validation   confidence of the chosen candidate at several temperatures

The second column has the devices that take part. Propagated labels return to training devices some
of what they released. So everything after them is learnt by validation devices, whose label is
never released (`docs/strict.md`, Echo).

The shares in the budget μ² are for other features in `counts`, `encoder` and `scale`, and for one
edge in all other stages. So the encoder has nearly all that a training device may spend on its
features, less the share of scaling, and the guarantee about edges limits the stages after it.

Stages that train anything use the messages of an edge at one of its ends (`Stage.ends`), as
propagated labels do: an edge then moves one vector. Model selection and temperature are about the
final predictions, which use all messages: an edge moves two vectors, and noise is twice as large.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lumos.exchange.endpoint import Program
from lumos.ldp.account import EDGE, NORM
from lumos.ldp.labels import LabelForm
from lumos.ldp.mechanisms import Mechanism, make_mechanism
from lumos.secagg.noise import mu_for
from lumos.strict.accounting import Disclosed
from lumos.strict.classify.encoder import LOSS_SCALE
from lumos.strict.classify.evidence import (
    PSEUDO_COUNT,
    Selection,
    SimpleMatrix,
    choose_scale,
    confidence_vectors,
    selection_vectors,
    shrunk_matrix,
)
from lumos.strict.settings import EVIDENCE_WEIGHTS_EPOCHS
from lumos.strict.stages import Centres, Schedule, Sensitivity, Sizes, Stage, When
from lumos.training.split import Role
from lumos.typing import Bytes, Doubles, Flags, Ints

if TYPE_CHECKING:
    from lumos.device.randomness import PublicRandomness
    from lumos.strict.classify.head import ResidualHead
    from lumos.strict.classify.trainer import StrictClassifier
    from lumos.strict.features import OuterVectors

COUNTS, ENCODER, RANDOMIZED = "counts", "encoder", "randomized_labels"
PROPAGATED, EVIDENCE_WEIGHTS, TREES = "propagated_labels", "evidence_weights", "trees"
AGREEMENT, PREDICTED, LAST_PROPAGATED = "agreement", "predicted_labels", "last_propagated_label"
SELECTION, TEMPERATURE = "selection", "temperature"

TEMPERED = (1.0, 2**0.5, 2**-0.5, 0.5, 0.3)
"""Candidate factors for the final logits; 1 unless another is clearly better."""
CANDIDATES = ("own", "neighbours", "trees")
"""Predictions by own features, with messages of neighbours, with the tree network."""

FEW_LABELS, MANY_LABELS = 5, 1000
"""By default all devices take part if fewer than one in 5 has a training label, and fewer than
1,000 labels are of one class."""
PREDICTED_SHARE, MORE_PROPAGATED = 0.5, 1
"""If all devices take part: share of a predicted label in the ε of the features, and number of
propagated labels more than otherwise, by default."""
FEW_VALIDATE, MAX_GROWTH = 400, 4.0
"""Number of validation devices below which sums about messages get a larger share, and how much
larger at most."""
NOISE_SIGMAS = 3.0
"""Standard deviations of noise up to which gradients make small steps."""
PROPAGATED_START = (0.7, 0.5, 0.4)
"""Initial evidence weights of propagated labels; all other inputs begin with 1."""
MANY_VALIDATE = 1500
"""Number of validation devices from which on sums about messages get a smaller share."""

TRAINS, VALIDATES = frozenset({Role.TRAIN}), frozenset({Role.VALIDATION})


class ClassifyStage(Stage):
    """A stage of `classify`."""

    schedule: "ClassifySchedule"

    @property
    def adding(self) -> int:
        """Number of devices of its roles."""
        if Role.NOBODY in self.roles:
            return self.schedule.devices
        numbers = {Role.TRAIN: self.schedule.training, Role.VALIDATION: self.schedule.validation}
        return sum(numbers[role] for role in numbers if role in self.roles)

    def participants(self, state: "StrictClassifier") -> Ints:
        """Return the positions of the hosted devices of its roles: training devices first."""
        rows = {Role.TRAIN: state.training, Role.VALIDATION: state.validation}
        return np.concatenate([rows[role] for role in rows if role in self.roles])


class EdgeStage(ClassifyStage):
    """A stage whose sums depend on messages, and so on edges; its share is for one edge."""

    question = EDGE

    def budget(self, step: int) -> float:
        """Return a share that shrinks where many validation devices outweigh the noise.

        Where they are few, it grows.
        """
        validation = max(1, self.schedule.validation)
        growth = min(MAX_GROWTH, max(1.0, FEW_VALIDATE / validation))
        return self.share * growth * min(1.0, MANY_VALIDATE / validation)


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
    least = 0.0
    needed = True

    moves = Sensitivity(1.0, math.sqrt(2))
    """Rows of norm 1."""

    def width(self, features: int) -> int:
        """Return one number for each feature."""
        return features

    def vectors(self, state: "StrictClassifier") -> "OuterVectors":
        """Return the rows of training devices."""
        return state.encoder.count_vectors()

    def update(self, state: "StrictClassifier", each: bool) -> Doubles:
        """Return the rows, or their sum without adding zeros."""
        return state.encoder.counts(each=each)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Weight the features."""
        state.encoder.learn_counts(total)


class EncoderStage(ClassifyStage):
    """Gradients of the local classifier."""

    name = ENCODER
    learns = "the local classifier: from a device's features to its class, without neighbours"
    loss = (
        "Training devices' loss of the local classifier. It uses no neighbours, so the control run "
        "differs in its randomness only."
    )
    share = 0.94

    def __init__(self, schedule: "ClassifySchedule") -> None:
        super().__init__(schedule)
        self.roles = frozenset(Role) if schedule.all_take_part else TRAINS

    @property
    def num_sums(self) -> int:
        """`encoder_epochs`."""
        return self.schedule.strict.encoder_epochs

    def part(self, role: Role) -> float:
        """Return a smaller norm for devices whose label does not train."""
        return 1.0 if role == Role.TRAIN else self.schedule.others_part

    def participants(self, state: "StrictClassifier") -> Ints:
        """Return the positions of the hosted devices that add: training devices first."""
        return state.encoder.adding

    @property
    def moves(self) -> Sensitivity:
        """Clipped gradients, which shrink with the strength of randomized labels."""
        first = self.schedule.strict.clip * self.schedule.strength
        return Sensitivity(first, self.schedule.features_change * first)

    def budget(self, step: int) -> float:
        """Return a share that falls from sum to sum."""
        part = self.schedule.falling(step) / self.schedule.total_falling
        return self.schedule.left_of(self.share) * part

    def width(self, features: int) -> int:
        """Return the size of table, bias and loss."""
        return (features + 1) * self.schedule.classes + 1

    def vectors(self, state: "StrictClassifier") -> "OuterVectors":
        """Return clipped gradients, and losses of training devices."""
        state.use_propagated_labels()
        return state.encoder.gradients()

    def update(self, state: "StrictClassifier", each: bool) -> Doubles:
        """Return the gradients, or their sum without adding zeros."""
        state.use_propagated_labels()
        return state.encoder.update(each=each)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> float:
        """Take one step."""
        state.encoder.learn(total, step)
        return state.encoder.mean_loss(total)


class RandomizedLabels(EdgeStage):
    """The matrix of randomized labels that devices of a class receive."""

    name = RANDOMIZED
    learns = "the randomized labels that devices of a class receive"
    roles = TRAINS | VALIDATES
    share = 0.018
    bounded = True
    least = 0.0
    needed = True
    ends = 1
    replayed = True

    @property
    def moves(self) -> Sensitivity:
        """Damped counts in the row of the own label."""
        return Sensitivity(1.0, 0.0, self.ends / (1 + PSEUDO_COUNT))

    def alphabet(self) -> int:
        """Return the number of values of a message."""
        return self.schedule.label_form.alphabet

    def start(self, step: int) -> float:
        """Return the initial evidence weight of its messages."""
        return 1.0

    def width(self, features: int) -> int:
        """Return the size of the matrix."""
        return self.schedule.label_form.alphabet * self.alphabet()

    def before(self, state: "StrictClassifier", step: int) -> Program[None]:
        """Have training devices send their randomized label."""
        yield from state.release()

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return each device's part of the matrix of the last kind of messages."""
        return state.counts[self.ends][-1].matrix_vectors(state.labels, self.participants(state))

    def update(self, state: "StrictClassifier", each: bool) -> Doubles:
        """Return the parts, or their sum without adding zeros."""
        if each:
            return super().update(state, each)
        rows = self.participants(state)
        return state.counts[self.ends][-1].matrix_sum(state.labels, rows, state.sums.rounded)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Keep the matrix."""
        state.matrices = [*state.matrices, total]


class PropagatedLabels(RandomizedLabels):
    """The matrix of each propagated label; each has the whole share."""

    name = PROPAGATED
    learns = "the propagated labels that devices of a class receive"
    roles = VALIDATES

    @property
    def num_sums(self) -> int:
        """One for each propagated label, without the last one that predicted labels precede."""
        return self.schedule.num_propagated - self.schedule.num_last

    def alphabet(self) -> int:
        """Return the number of values of a message."""
        return self.schedule.propagated_label_form.alphabet

    def start(self, step: int) -> float:
        """Return the initial evidence weight of its messages."""
        return PROPAGATED_START[self.number(step) - 1]

    def number(self, step: int) -> int:
        """Return the number of the propagated label, from 1."""
        return 1 + step

    def before(self, state: "StrictClassifier", step: int) -> Program[None]:
        """Have all devices send a propagated label."""
        yield from state.tell_propagated_label(self.number(step), self.schedule.kind(self, step))


class Agreement(ClassifyStage):
    """Propagated labels that agree with the label of the device that sent them."""

    name = AGREEMENT
    learns = "how often a propagated label is right, from validation devices"
    roles = VALIDATES
    share = 0.05
    question = NORM
    bounded = True
    least = 0.0
    needed = True

    moves = Sensitivity(1.0, 0.0)
    """One 1 at most; it is a function of the randomized label and of a label that was sent."""

    @property
    def num_sums(self) -> int:
        """One if all devices take part and propagated labels take the place of labels."""
        return int(self.schedule.all_take_part and self.schedule.num_propagated > 0)

    def width(self, features: int) -> int:
        """Return one number for labels that agree, and one for those that do not."""
        return 2

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return whether each device's label agrees with the class that it sent, if any."""
        return state.agreement(self.participants(state))

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Keep it: devices without a training label train by the label that they have sent."""
        state.agreed = total


class PredictedLabels(RandomizedLabels):
    """The matrix of the local classifier's predictions, from devices whose label does not train."""

    name = PREDICTED
    learns = "the predicted labels that devices of a class receive"
    roles = VALIDATES

    @property
    def num_sums(self) -> int:
        """One if all devices take part."""
        return int(self.schedule.all_take_part)

    def alphabet(self) -> int:
        """Return the number of values of a message."""
        return self.schedule.predicted_label_mechanism.alphabet

    def before(self, state: "StrictClassifier", step: int) -> Program[None]:
        """Have devices whose label does not train send a predicted label."""
        yield from state.tell_predicted_label(self.schedule.kind(self, step))


class LastPropagatedLabel(PropagatedLabels):
    """The matrix of the last propagated label, after predicted labels."""

    name = LAST_PROPAGATED

    @property
    def num_sums(self) -> int:
        """One if predicted labels precede it."""
        return self.schedule.num_last

    def number(self, step: int) -> int:
        """Return the number of the propagated label, from 1."""
        return self.schedule.num_propagated


class EvidenceWeightsStage(EdgeStage):
    """Gradients of the weights that combine own features and messages."""

    name = EVIDENCE_WEIGHTS
    learns = (
        "the weights of own features, randomized labels and propagated labels, from validation "
        "devices"
    )
    loss = (
        "Validation devices' loss with the messages of neighbours. Messages of the control run "
        "carry no information: it can only learn to ignore them."
    )
    roles = VALIDATES
    share = 0.030
    ends = 1

    @property
    def num_sums(self) -> int:
        """All epochs that are left, or a fixed number before the tree network."""
        return self.schedule.rest_epochs if self.takes_rest else EVIDENCE_WEIGHTS_EPOCHS

    @property
    def takes_rest(self) -> bool:
        """True unless a tree network follows."""
        return not self.schedule.strict.tree_network

    @property
    def moves(self) -> Sensitivity:
        """Clipped gradients."""
        clip = self.schedule.strict.clip
        return Sensitivity(clip, 2 * clip, self.ends * 2 * clip)

    def budget(self, step: int) -> float:
        """Return the same for each sum."""
        return super().budget(step) * (1 / self.num_sums)

    def width(self, features: int) -> int:
        """Return a weight for each input, a bias for each class, and the loss."""
        return 1 + len(self.schedule.messages) + self.schedule.classes + 1

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return clipped gradients and losses."""
        weights, rows = state.optimisers[EVIDENCE_WEIGHTS].weights, self.participants(state)
        clip = self.limit(len(weights) + 1)
        return state.evidence_weights(self.ends).update(weights, state.labels, rows, clip)

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> float:
        """Take one step."""
        devices = max(1, self.schedule.validation)
        state.optimisers[self.name].step(self._gradient(state, total) / devices)
        return float(total[-1] / LOSS_SCALE / devices)

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
        """All epochs that are left, if there is a tree network."""
        return self.schedule.rest_epochs if self.takes_rest else 0

    @property
    def takes_rest(self) -> bool:
        """True if there is a tree network."""
        return self.schedule.strict.tree_network

    def width(self, features: int) -> int:
        """Return the size of table, head and loss. It depends on no randomness."""
        from lumos.device.randomness import PublicRandomness

        return self.schedule.residual_head(PublicRandomness(0)).width

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return clipped gradients and losses."""
        head = state.trained_head()
        rows, clip = self.participants(state), self.limit(head.width)
        return head.update(state.residual_input(self.ends), state.labels, rows, clip)

    def _gradient(self, state: "StrictClassifier", total: Doubles) -> Doubles:
        return state.trained_head().gradient(total)


class SelectionStage(EdgeStage):
    """Private model selection: validation devices count how often each candidate is right."""

    name = SELECTION
    learns = "how often each candidate is right: the best one is chosen"
    when = When.LAST
    roles = VALIDATES
    share = 0.018
    bounded = True
    least = 0.0

    @property
    def moves(self) -> Sensitivity:
        """0 or 1 for the local classifier, and for gain or loss of each other candidate."""
        others = len(self.schedule.candidates) - 1
        every = math.sqrt(1 + 2 * others)
        return Sensitivity(math.sqrt(1 + others), every, self.ends * math.sqrt(others))

    def width(self, features: int) -> int:
        """Return one number for the local classifier, and two for each other candidate."""
        return 2 * len(self.schedule.candidates) - 1

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return the agreement of each device with the candidates."""
        return selection_vectors(
            state.candidates(self.ends), state.labels, self.participants(state)
        )

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Choose a candidate."""
        state.selection = Selection.of(total, self.schedule)
        state.choice = state.selection.choice


class Temperature(EdgeStage):
    """Confidence of the chosen candidate at several temperatures."""

    name = TEMPERATURE
    learns = "the confidence of the chosen candidate"
    when = When.LAST
    roles = VALIDATES
    share = 0.004
    bounded = True
    least = 0.0

    @property
    def moves(self) -> Sensitivity:
        """Numbers from 0 to 1."""
        every = math.sqrt(len(TEMPERED))
        return Sensitivity(every, every, self.ends * every)

    def width(self, features: int) -> int:
        """Return the number of temperatures."""
        return len(TEMPERED)

    def vectors(self, state: "StrictClassifier") -> Doubles:
        """Return the probability of the most likely class."""
        final = state.candidates(self.ends)[state.choice]
        return confidence_vectors(final, TEMPERED, self.participants(state))

    def learn(self, state: "StrictClassifier", total: Doubles, step: int) -> None:
        """Choose the temperature at which confidence matches accuracy."""
        devices, spread = self.schedule.validation, self.spread()
        state.temperature = 1 / choose_scale(total, TEMPERED, state.selection, devices, spread)


CLASSIFY_STAGES: list[type[Stage]] = [
    ScaledSizes,
    ScaledCentres,
    Counts,
    RandomizedLabels,
    PropagatedLabels,
    Agreement,
    EncoderStage,
    PredictedLabels,
    LastPropagatedLabel,
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
    """Number of classes, k."""
    class_names: tuple[str, ...] | None = None
    """[k] names of the classes, if they have any: an account keeps other lists of classes apart."""

    @property
    def kinds(self) -> list[type[Stage]]:
        """Those of `CLASSIFY_STAGES`."""
        return CLASSIFY_STAGES

    @cached_property
    def all_take_part(self) -> bool:
        """True if features of devices whose label does not train are used in training."""
        if self.strict.participation != "auto":
            return self.strict.participation == "all"
        labels = self.training * self.strength**2  # none: not known yet
        few = labels * FEW_LABELS < self.devices and labels < MANY_LABELS * self.classes
        return few and labels > 0

    @property
    def adding(self) -> int:
        """Number of devices that add to the sums of the local classifier."""
        return self.devices if self.all_take_part else self.training

    @cached_property
    def others_part(self) -> float:
        """Largest norm of the other devices' gradients, as a share of a training device's.

        Validation devices spend most: what predicted labels and all other sums leave of their
        feature budget is for the local classifier.
        """
        if not self.noisy:
            return 1.0
        strict = self.strict
        left = mu_for(strict.feature_epsilon - self.predicted_epsilon, strict.delta) ** 2
        encoder = 0.0
        for stage in self.stages_of(Role.VALIDATION):
            for step in range(stage.num_sums):
                square = self.square(stage, "features", step)
                if stage.name == ENCODER:
                    encoder += square
                else:
                    left -= square
        return math.sqrt(min(encoder, max(0.0, left)) / encoder) if encoder else 0.0

    @property
    def predicted_epsilon(self) -> float:
        """ε of a predicted label: a part of that of the features."""
        return PREDICTED_SHARE * self.strict.feature_epsilon

    @cached_property
    def predicted_label_mechanism(self) -> Mechanism:
        """Mechanism that randomizes predicted labels."""
        return make_mechanism(self.classes, self.predicted_epsilon, self.strict.mechanism)

    @cached_property
    def num_propagated(self) -> int:
        """Number of propagated labels that a device sends.

        By default there is one more if all devices take part: the first ones are their labels in
        training, the last one follows what they predict.
        """
        number = self.strict.num_propagated(self.devices, self.classes)
        more = self.strict.propagated_labels is None and self.all_take_part
        return number + MORE_PROPAGATED * more

    @property
    def num_last(self) -> int:
        """1 if the last propagated label follows predicted labels, otherwise 0."""
        return int(self.all_take_part and self.num_propagated > 1)

    @cached_property
    def messages(self) -> list[tuple["RandomizedLabels", int]]:
        """Stage and step of each kind of messages, in the order in which they are sent."""
        return [
            (stage, step)
            for stage in self.stages
            if isinstance(stage, RandomizedLabels)
            for step in range(stage.num_sums)
        ]

    def kind(self, stage: "RandomizedLabels", step: int) -> int:
        """Return the number of a kind of messages, from 0."""
        return self.messages.index((stage, step))

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of the candidates."""
        return CANDIDATES if self.strict.tree_network else CANDIDATES[:2]

    @cached_property
    def label_form(self) -> LabelForm:
        """Encoding of a label for randomization, the same at all levels of noise."""
        return LabelForm.of(
            make_mechanism(self.classes, self.strict.label_epsilon, self.strict.mechanism)
        )

    @cached_property
    def _class_mechanism(self) -> Mechanism:
        return make_mechanism(self.classes, self.strict.propagated_epsilon, self.strict.mechanism)

    @property
    def propagated_label_form(self) -> LabelForm:
        """Encoding of the class in a propagated label."""
        return LabelForm.of(self._class_mechanism)

    @cached_property
    def propagated_label_mechanism(self) -> Mechanism:
        """Mechanism that randomizes propagated labels.

        krr has one value more than there are classes, for devices whose evidence names none.
        """
        mechanism = self._class_mechanism
        if mechanism.name != "krr":
            return mechanism
        return make_mechanism(self.classes + 1, mechanism.epsilon, "krr")

    def named(self, sent: Bytes) -> Flags:
        """Return [messages] whether propagated labels, as they were sent, name a class."""
        values = LabelForm.of(self.propagated_label_mechanism).values(sent)
        return values < self.propagated_label_form.alphabet

    def read_propagated(self, sent: Bytes) -> Doubles:
        """Return [messages, alphabet] the values of propagated labels that name a class."""
        return self.propagated_label_mechanism.read(sent)[:, : self.propagated_label_form.alphabet]

    @property
    def strength(self) -> float:
        """Strength r = p - q of the label in sums: all gradients shrink by it."""
        return self.label_form.strength(self.strict.label_epsilon)

    @property
    def features_change(self) -> float:
        """Largest change of a clipped gradient by other features, in clipping norms.

        With one randomized label, gradients of non-negative rows lie in one cone: √2, not 2.
        """
        return 2.0 if self.signed else math.sqrt(2)

    def falling(self, step: int) -> float:
        """Return the size of a step of the encoder and the weight of its sum, from 1 to 1/T."""
        return 1 - step / self.strict.encoder_epochs

    @property
    def total_falling(self) -> float:
        """The sum of `falling` over all steps."""
        return (self.strict.encoder_epochs + 1) / 2

    def matrix(self, kind: int, totals: Sequence[Doubles]) -> Doubles:
        """Return [values, alphabet] what a kind of messages tells of the receiver's class.

        Args:
            totals: noisy sums of the matrices, in the order in which messages are sent.
        """
        expected, values = 0.0, self.label_form.alphabet
        tables = [total.reshape(values, -1) for total in totals]
        noises = [stage.spread(step) for stage, step in self.messages]
        if kind:  # messages come from further away than randomized labels
            same = SimpleMatrix.of(tables[0], noises[0]).same
            expected = same * abs(same)
        return shrunk_matrix(tables[kind], noises[kind], expected)

    def start_weights(self) -> Doubles:
        """Return initial evidence weights: own features, each kind of messages, a bias a class."""
        kinds = [stage.start(step) for stage, step in self.messages]
        return np.array([1.0, *kinds, *[0.0] * self.classes])

    @property
    def weights_noise(self) -> float:
        """Size of a gradient of evidence weights that noise explains, for `Adam.epsilon`."""
        stage = self[EVIDENCE_WEIGHTS]
        return 1e-8 + NOISE_SIGMAS * stage.spread() / max(1, self.validation)

    def residual_head(self, public: "PublicRandomness") -> "ResidualHead":
        """Return the tree network on randomized labels and propagated labels, as it starts."""
        from lumos.strict.classify.head import ResidualHead

        values = sum(stage.alphabet() for stage, _ in self.messages)
        generator = public.generator("weights")
        return ResidualHead(self.config.model, self.classes, values, generator)

    def charged_mu(self, role: Role) -> dict[str, float]:
        """Return the μ that an account charges a device of some role for, by question.

        An edge of any device may lead to a validation device, in whose vectors it counts, and in
        another run their roles and the user may be exchanged. So everybody is charged for an edge
        as validation devices are.
        """
        edge = max(self.mu("edge", one) for one in (Role.TRAIN, Role.VALIDATION))
        return {**self.run_mu(role), EDGE: edge}

    def disclosed(self, role: Role) -> Disclosed:
        """Return what is seen of a device of some role in one run."""
        strict = self.strict
        return Disclosed(
            label=strict.label_epsilon if role in (Role.TRAIN, Role.VALIDATION) else 0.0,
            propagated_labels=self.num_propagated * strict.propagated_epsilon,
            predicted_labels=self.predicted_epsilon
            if self.all_take_part and role != Role.TRAIN
            else 0.0,
            mu=self.run_mu(role),
        )

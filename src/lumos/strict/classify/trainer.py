"""The strict trainer of `classify`.

1. Training and validation devices randomize their label (`labels`). The true one is not read again.
2. Sums train a local classifier on features alone (`encoder`).
3. Training devices send their randomized label to their neighbours. No other device releases its
   label.
4. One sum learns how randomized labels depend on the receiver's class (`evidence`). Every device
   then sends a propagated label to its neighbours (`messages`), one sum learns how those depend on
   the class, and so on.
5. Validation devices, whose label is never released, fit the evidence weights (`evidence`), and a
   tree network if there is one (`head`).
6. They choose between the candidates by private model selection, and then the temperature.

Predictions are computed on the device.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from lumos.errors import InputError, ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.observer import LedgerReport
from lumos.graph.facts import GraphPart
from lumos.ldp.account import LABELS
from lumos.ldp.bounds import of_one_scale
from lumos.ldp.labels import LabelForm
from lumos.ldp.mechanisms import one_hot
from lumos.strict.accounting import AccountView, Disclosed
from lumos.strict.classify.encoder import Encoder
from lumos.strict.classify.evidence import (
    EVIDENCE_WEIGHTS_RATE,
    EvidenceWeights,
    MessageCounts,
    Selection,
    propagated_accuracy,
)
from lumos.strict.classify.labels import draw_labels
from lumos.strict.classify.stages import (
    AGREEMENT,
    EVIDENCE_WEIGHTS,
    PROPAGATED,
    TREES,
    ClassifySchedule,
    PredictedLabels,
    PropagatedLabels,
)
from lumos.strict.features import SCALING_ARRAYS as SCALING_ARRAYS
from lumos.strict.features import FeatureRows, FeatureScaling
from lumos.strict.guarantees import (
    ROLES,
    Found,
    classify_guarantees,
    classify_reading,
    classify_warnings,
    left_out_warnings,
)
from lumos.strict.messages import (
    PREDICTED_LABEL,
    PREDICTION,
    PROPAGATED_LABEL,
    RANDOMIZED_LABEL,
    ReceivedMessages,
    drawn_propagated_labels,
    drawn_randomized_labels,
    drawn_values,
    propagated_labels,
    randomized,
    send_over,
    uses_edge,
)
from lumos.strict.trainer import StrictTrainer
from lumos.training.split import Role
from lumos.training.trainer import MAIN, OWN, Adam, Outcome
from lumos.typing import Arrays, Bytes, Doubles, Flags, Floats, Ints

if TYPE_CHECKING:
    from lumos.strict.classify.head import ResidualHead, ResidualInput


MODEL_ARRAYS = ("feature_weights", "encoder")
"""Arrays of the local classifier that predictions need."""
ONE, BOTH = 1, 2
"""Ends of an edge that count its messages: its user, or both ends."""


class ClassifyResult(NamedTuple):
    """Results of one shard, as the observer collects them."""

    logits: Floats
    """[hosted, k] final logits."""
    own: Floats
    """[hosted, k] logits of the local classifier."""
    released: Ints
    """[hosted] the randomized label of each training device, -1 elsewhere."""
    propagated_labels: Bytes
    """[hosted, propagated labels, bytes]"""
    predicted_labels: Bytes
    """[hosted, bytes]; no bytes if they were not sent."""
    roles: Ints
    """[hosted]"""

    def state_dict(self) -> Arrays:
        """Return all arrays by name."""
        return self._asdict()

    def load_state_dict(self, rows: Arrays) -> "ClassifyResult":
        """Return the result of all devices, from their joined rows."""
        return ClassifyResult(**rows)


class StrictClassifier(StrictTrainer):
    """The strict trainer of one shard, for labels, which are drawn at the start and not kept."""

    schedule: ClassifySchedule
    _rows: FeatureRows

    def _prepare(self, endpoint: Endpoint, part: GraphPart) -> None:
        shard, schedule = self.shard, self.schedule
        train, validate = (part.roles == role for role in (Role.TRAIN, Role.VALIDATION))
        self.training, self.validation = np.flatnonzero(train), np.flatnonzero(validate)
        self._roles = part.roles
        self.labels = draw_labels(shard, part.labels, schedule, self.account, train | validate)
        self._randomized_labels = np.where(train, self.labels.values, -1)
        self._used: Flags = np.empty(0, np.bool_)
        """[slots] the edges that a device uses, once randomized labels are received."""
        self._sent: list[Bytes] = []
        """[hosted, bytes] of each propagated label."""
        self.counts: dict[int, list[MessageCounts]] = {ONE: [], BOTH: []}
        """Counts of randomized labels, then of each propagated label; by the number of ends of an
        edge that count its messages."""
        self.matrices: list[Doubles] = []
        """Their matrices: noisy sums, in the same order."""
        self._known_evidence: dict[int, list[Doubles]] = {ONE: [], BOTH: []}
        """Their evidence, in the same order, as far as it was computed."""
        self._evidence_weights: dict[int, EvidenceWeights] = {}
        self.optimisers: dict[str, Adam] = {}
        self._head: ResidualHead | None = None
        self._residual_input: dict[int, ResidualInput] = {}
        self.temperature = 1.0
        self.agreed = np.empty(0)
        """Noisy numbers of validation devices whose label agrees with the class that they sent, and
        of those whose label does not."""
        self._predicted: Bytes = np.zeros((len(shard), self._predicted_width()), np.uint8)
        """[hosted, bytes] predicted labels, as they are sent; no bytes without them."""
        self._old: int | None = None
        """Number of devices of the run whose weights were loaded; None for a run of its own."""
        self.selection = Selection.empty()
        self._candidates: dict[int, list[Doubles]] = {}

    def _predicted_width(self) -> int:
        schedule = self.schedule
        return schedule.predicted_label_mechanism.width if schedule.all_take_part else 0

    def _scaling_devices(self) -> tuple[Ints, int]:
        return self.training, self.schedule.training

    def _begin(self) -> None:
        schedule, train = self.schedule, self.schedule.config.train
        trains = self._roles == Role.TRAIN
        self._rows = FeatureRows(self._scaled_features(), trains, nonnegative=not schedule.signed)
        self.encoder = Encoder(self._rows, self.labels, schedule, self.sums.rounded)
        start = schedule.start_weights()
        self.optimisers = {
            EVIDENCE_WEIGHTS: Adam(start, EVIDENCE_WEIGHTS_RATE, epsilon=schedule.weights_noise)
        }
        if schedule.strict.tree_network:
            self._head = schedule.residual_head(self.shard.public)
            start = self._head.vector()
            self.optimisers[TREES] = Adam(start, train.learning_rate, train.weight_decay)

    def trained_head(self) -> "ResidualHead":
        """Return the tree network with its present weights."""
        if self._head is None:
            raise ProtocolError("this run has no tree network")
        self._head.load(self.optimisers[TREES].weights)
        return self._head

    def release(self) -> Program[None]:
        """Have training devices send their randomized label, the same one to all neighbours."""
        if self.control:
            drawn = drawn_randomized_labels(self.shard, self.schedule.label_form.alphabet)
            self._randomized_labels = np.where(self._randomized_labels >= 0, drawn, -1)
        # The ledger counts ε of what receivers see, even if an earlier run has paid for it.
        yield from self._exchange_randomized_labels(None)

    def _exchange_randomized_labels(self, slots: Ints | None) -> Program[None]:
        """Send randomized labels over some slots, or all, and count those that are received."""
        shard, form = self.shard, self.schedule.label_form
        owner = shard.owner if slots is None else shard.owner[slots]
        sending = (self._randomized_labels >= 0)[owner]
        slots = np.flatnonzero(sending) if slots is None else slots[sending]
        bodies = form.messages(self._randomized_labels)[owner[sending]]
        epsilon = self.schedule.strict.label_epsilon
        read = partial(one_hot, limit=form.alphabet)
        received = yield from send_over(RANDOMIZED_LABEL, shard, slots, bodies, epsilon, read)
        body = received.body
        if self.control:
            body = form.messages(drawn_values(shard, received, form.alphabet))
        theirs = np.zeros(len(shard.neighbours), np.bool_)
        theirs[received.slot] = True
        released = (self._randomized_labels >= 0)[shard.owner]
        self._used = uses_edge(shard.ids_of(shard.owner), shard.neighbours, released, theirs)
        self._count(0, received._replace(body=body), read)

    def tell_propagated_label(self, number: int, kind: int) -> Program[None]:
        """Have every device send a propagated label, the same one to all neighbours.

        A device without neighbours draws one too, from no evidence, and sends it to nobody.

        Args:
            number: 1 for the first propagated label.
            kind: number of kinds of messages before it.
        """
        shard, mechanism = self.shard, self.schedule.propagated_label_mechanism
        evidence = np.sum(self._evidence(kind, ONE), axis=0)
        if self.control:  # no evidence: all classes are equally likely
            evidence = np.zeros_like(evidence)
        sent = propagated_labels(shard, evidence, mechanism, number)
        self._sent = [*self._sent[: number - 1], sent]
        yield from self._exchange_propagated_labels(number, kind, None)

    def _exchange_propagated_labels(
        self, number: int, kind: int, slots: Ints | None
    ) -> Program[None]:
        """Send a propagated label over some slots, or all, and count those that are received."""
        shard, mechanism = self.shard, self.schedule.propagated_label_mechanism
        bodies = self._sent[number - 1][shard.owner if slots is None else shard.owner[slots]]
        epsilon = self.schedule.strict.propagated_epsilon
        received = yield from send_over(
            PROPAGATED_LABEL, shard, slots, bodies, epsilon, mechanism.read
        )
        receiver, slot, body = received
        if self.control:
            body = drawn_propagated_labels(shard, received, mechanism, number)
        named = self.schedule.named(body)
        known = ReceivedMessages(receiver[named], slot[named], body[named])
        self._count(kind, known, self.schedule.read_propagated)

    def agreement(self, rows: Ints) -> Doubles:
        """Return [rows, 2] whether a device's randomized label agrees with the class that it sent,
        and whether it does not; neither if it sent none."""
        sent = self._training_message()[rows]
        agrees = self._training_label(sent) == self.labels.values[rows]
        return np.stack([agrees, self.schedule.named(sent) & ~agrees], axis=1) * 1.0

    def _training_message(self) -> Bytes:
        """Return [hosted, bytes] the propagated label that trains in place of a label."""
        return self._sent[self.schedule[PROPAGATED].num_sums - 1]

    def _training_label(self, sent: Bytes) -> Ints:
        return LabelForm.of(self.schedule.propagated_label_mechanism).values(sent)

    def use_propagated_labels(self) -> None:
        """Let devices without a training label train by the label that they have sent, if any.

        Unless such labels are right no more often than by chance, as far as `agreed` shows.
        """
        if not self.agreed.size:
            return
        form = self.schedule.propagated_label_form
        accuracy = propagated_accuracy(self.agreed, self.schedule)
        if accuracy is None:
            self.encoder.leave_out_others()
            return
        other = (1 - accuracy) / (form.base - 1)
        # One that names no class agrees with none: a flat likelihood, and no gradient.
        label = self._training_label(self._training_message())
        agrees = form.agrees(np.arange(form.size), label[:, None])
        self.encoder.use_propagated_labels(np.where(agrees, accuracy, other), accuracy - other)

    def tell_predicted_label(self, kind: int) -> Program[None]:
        """Have devices whose label does not train send what the local classifier predicts."""
        shard, mechanism = self.shard, self.schedule.predicted_label_mechanism
        self._predicted = randomized(shard, self._own().argmax(axis=1), mechanism, 0, PREDICTION)
        self._predicted[self._randomized_labels >= 0] = 0  # not sent, so not kept either
        yield from self._exchange_predicted_labels(kind, None)

    def _exchange_predicted_labels(self, kind: int, slots: Ints | None) -> Program[None]:
        """Send predicted labels over some slots, or all, and count those that are received."""
        shard, mechanism = self.shard, self.schedule.predicted_label_mechanism
        owner = shard.owner if slots is None else shard.owner[slots]
        sending = (self._randomized_labels < 0)[owner]
        slots = np.flatnonzero(sending) if slots is None else slots[sending]
        received = yield from send_over(
            PREDICTED_LABEL,
            shard,
            slots,
            self._predicted[owner[sending]],
            self.schedule.predicted_epsilon,
            mechanism.read,
        )
        body = received.body
        if self.control:
            body = drawn_propagated_labels(shard, received, mechanism, 0)
        self._count(kind, received._replace(body=body), mechanism.read)

    def _count(
        self, kind: int, received: ReceivedMessages, read: Callable[[Bytes], Doubles]
    ) -> None:
        """Count the messages of a kind: all of them, and those of edges that the receiver uses."""
        receiver, slot, body = received
        used = self._used[slot]
        for ends, some in ((BOTH, slice(None)), (ONE, used)):
            counts = MessageCounts.of_messages(body[some], read, receiver[some], len(self.shard))
            self.counts[ends] = [*self.counts[ends][:kind], counts]

    def _evidence(self, kinds: int, ends: int) -> list[Doubles]:
        """Return the evidence of the first `kinds` kinds of messages, [hosted, k] each."""
        counts, known = self.counts[ends], self._known_evidence[ends]
        if len(counts) < kinds or len(self.matrices) < kinds:
            raise ProtocolError("messages were used before they were received")
        for kind in range(len(known), kinds):
            known.append(counts[kind].evidence(self._matrix(kind), self.labels.form))
        return known[:kinds]

    def _matrix(self, kind: int) -> Doubles:
        """Return what a kind of messages tells of the receiver's class."""
        if self._old is not None:
            return self.matrices[kind]
        return self.schedule.matrix(kind, self.matrices)

    def _own(self) -> Doubles:
        return self.encoder.logits()

    def evidence_weights(self, ends: int) -> EvidenceWeights:
        """Return the inputs of the evidence weights; fixed once all messages are received."""
        if ends not in self._evidence_weights:
            evidence = self._evidence(len(self.schedule.messages), ends)
            self._evidence_weights[ends] = EvidenceWeights(self._own(), evidence)
        return self._evidence_weights[ends]

    def residual_input(self, ends: int) -> "ResidualInput":
        """Return the inputs of the residual head; fixed once the evidence weights are trained."""
        if ends not in self._residual_input:
            kinds = self.counts[ends]
            counts = np.concatenate([kind.counts for kind in kinds], axis=1)
            received = np.sum([kind.received for kind in kinds], axis=0)
            from lumos.strict.classify.head import ResidualInput  # needs torch

            weights = self.optimisers[EVIDENCE_WEIGHTS].weights
            self._residual_input[ends] = ResidualInput(
                base=self.evidence_weights(ends).logits(weights),
                predicted=self._own().argmax(axis=1),
                frequencies=counts / np.maximum(received, 1)[:, None],
                received=received,
            )
        return self._residual_input[ends]

    def candidates(self, ends: int = BOTH) -> list[Doubles]:
        """Return the logits of the candidates, [hosted, k] each; fixed once all is trained.

        Predictions use the messages of all edges.
        """
        if ends not in self._candidates:
            weights = self.optimisers[EVIDENCE_WEIGHTS].weights
            logits = [self._own(), self.evidence_weights(ends).logits(weights)]
            if self.schedule.strict.tree_network:
                logits.append(self.trained_head().logits(self.residual_input(ends)))
            self._candidates[ends] = logits
        return self._candidates[ends]

    def finish(self) -> Program[ClassifyResult]:
        """Let validation devices choose a candidate and its temperature; return the results."""
        self._candidates = {}
        yield from self._finish_stages()
        candidates = self.candidates()
        empty = np.empty(
            (len(self.shard), 0, self.schedule.propagated_label_mechanism.width), np.uint8
        )
        return ClassifyResult(
            (candidates[self.choice] / self.temperature).astype(np.float32),
            candidates[0].astype(np.float32),
            self._randomized_labels,
            np.stack(self._sent, axis=1) if self._sent else empty,
            self._predicted,
            self._roles,
        )

    def outcome(self, result: ClassifyResult, ledger: LedgerReport) -> Outcome:
        """Return the outcome, from the joined results of all shards; or of one real device."""
        roles = list(ROLES)
        if len(result.roles) == 1:  # those without a label that trains or validates come last
            roles = [name for name in roles if ROLES[name] == result.roles[0]] or roles[-1:]
        return Outcome(
            ledger=ledger,
            embeddings=result.logits,
            logits=result.logits,
            evaluated={MAIN: result.logits, OWN: result.own},
            best_epoch=self.schedule.config.train.epochs,
            exposed=classify_reading(self.schedule, int(self.features.shape[1])),
            guarantees=classify_guarantees(self.schedule, self._account_view(result), roles),
            choice=self.schedule.candidates[self.choice],
            warnings=[
                *left_out_warnings(self.left_out),
                *classify_warnings(self.schedule, self._found()),
            ],
            kept={
                "released": result.released,
                "propagated_labels": result.propagated_labels,
                "predicted_labels": result.predicted_labels,
                **self._remembered(),
            },
            estimates=self.selection.estimates(),
        )

    def _found(self) -> Found:
        """Return the results of noisy sums that warnings depend on."""
        return Found(
            features=int(self.features.shape[1]),
            width=self.encoder.width,
            selection=self.selection,
            scaled=self.scaling is None or self.scaling.learnt,
            sparse=bool(issparse(self.features)),
            largest=self.encoder.largest_feature(),
            alike=self.encoder.alike(),
        )

    def _account_view(self, result: ClassifyResult) -> AccountView | None:
        """Return the amounts that devices have spent, by role; from the results of all shards."""
        account = self.account
        if account is None:
            return None
        paid = account.spent(LABELS, this_run=True)
        groups = {name: result.roles == role for name, role in ROLES.items()}
        groups["other devices"] = ~np.isin(result.roles, (Role.TRAIN, Role.VALIDATION))
        return AccountView(
            life={name: Disclosed.of_account(account, group) for name, group in groups.items()},
            newly={name: float(paid[group].max(initial=0)) for name, group in groups.items()},
        )

    def _received_rounds(self) -> int:
        return len(self.matrices)

    def _state(self) -> Arrays:
        state = {**self.encoder.state_dict(), **self._learnt()}
        for stage, adam in self.optimisers.items():
            state |= adam.state_dict(stage)
        return state

    def _learnt(self) -> Arrays:
        """Return the matrices; an empty array for a matrix that is not learnt yet."""
        known = dict(enumerate(self.matrices))
        kinds = range(len(self.schedule.messages))
        matrices = {f"matrix/{kind}": known.get(kind, np.empty(0)) for kind in kinds}
        return {**matrices, AGREEMENT: self.agreed}

    def _restore(self, state: Arrays) -> None:
        self.encoder.load_state_dict(state)
        self._load_learnt(state)
        for stage, adam in self.optimisers.items():
            adam.load_state_dict(state, stage)

    def _load_learnt(self, state: Arrays) -> None:
        """Load the matrices.

        Raises:
            InputError: a matrix is of another size.
        """
        stages = [stage for stage, _ in self.schedule.messages]
        matrices = [state[f"matrix/{kind}"] for kind in range(len(stages))]
        for kind, (stage, matrix) in enumerate(zip(stages, matrices, strict=True)):
            if matrix.shape not in ((0,), (stage.width(self._rows.width),)):
                raise InputError(f"the sum matrix/{kind} does not match this run; start a new one")
        self.matrices = [matrix for matrix in matrices if matrix.size]
        self.agreed = state[AGREEMENT]

    def _model(self) -> Arrays:
        encoder = {
            name: part for name, part in self.encoder.state_dict().items() if name in MODEL_ARRAYS
        }
        kinds = {f"matrix/{kind}": self._matrix(kind) for kind in range(len(self.matrices))}
        return {
            **encoder,
            **self._scaling_arrays(),
            **self._learnt(),
            **{name: matrix.ravel() for name, matrix in kinds.items()},
            **{stage: adam.weights for stage, adam in self.optimisers.items()},
            "choice": np.array(self.choice),
            "temperature": np.array(self.temperature),
        }

    def _load_model(self, state: Arrays) -> None:
        self.schedule = self._schedule_of(state)
        self.scaling = self._scaling_in(state, len(state.get("released", ())))
        self._begin()
        self._check(state)
        self.encoder.load_state_dict(state)
        self._load_learnt(state)
        for stage, adam in self.optimisers.items():
            adam.weights = state[stage]
        self.choice, self.temperature = int(state["choice"]), float(state["temperature"])
        self._randomized_labels = self._of_earlier(state["released"], -1)
        self._predicted = self._of_earlier(state["predicted_labels"], 0)
        sent = state["propagated_labels"]
        self._sent = [self._of_earlier(sent[:, number], 0) for number in range(sent.shape[1])]
        self._old = len(state["released"])

    def _schedule_of(self, kept: Arrays) -> ClassifySchedule:
        """Return the schedule with the settings that an earlier run derived from its numbers."""
        sent, predicted = (kept.get(name) for name in ("propagated_labels", "predicted_labels"))
        if sent is None or sent.ndim != 3 or predicted is None or predicted.ndim != 2:
            raise InputError("devices.npz: the messages do not match this run; train again")
        settings = replace(
            self.schedule.strict,
            propagated_labels=sent.shape[1],
            participation="all" if predicted.shape[1] else "labelled",
        )
        config = replace(self.schedule.config, profile_settings=settings)
        return replace(self.schedule, config=config)

    def _scaling_in(self, arrays: Arrays, old: int) -> FeatureScaling | None:
        """Return the scaling of an earlier run; None if it did not scale features.

        The first `old` devices are those of the earlier run: only their features decide whether the
        arrays must have a scaling.
        """
        form, strict = self.schedule.scaling, self.schedule.strict
        mine = self.features[self.shard.devices < old]
        scaled = form != "none" and (strict.scaling != "auto" or not of_one_scale(mine))
        if not scaled and not any(name in arrays for name in SCALING_ARRAYS):
            return None
        return FeatureScaling.of(arrays, int(self.features.shape[1]))

    def _check(self, arrays: Arrays) -> None:
        """Refuse weights and messages that do not match this run."""
        for name, own in self._model().items():
            given = arrays.get(name)
            if given is None or given.dtype != own.dtype or (own.size and given.shape != own.shape):
                raise InputError(
                    f"model.npz: the array {name!r} does not match this run; train again"
                )
        if not 0 <= arrays["choice"] < len(self.schedule.candidates):
            raise InputError(f"model.npz: invalid choice {int(arrays['choice'])}; train again")
        released, sent, predicted = (
            arrays.get(name, np.empty(0))
            for name in ("released", "propagated_labels", "predicted_labels")
        )
        schedule = self.schedule
        shape = (len(released), schedule.num_propagated, schedule.propagated_label_mechanism.width)
        if (
            released.dtype != np.int64
            or released.ndim != 1
            or sent.dtype != np.uint8
            or sent.shape != shape
            or predicted.dtype != np.uint8
            or predicted.shape != (len(released), self._predicted_width())
            or len(released) > self.shard.total
            or not (released < self.schedule.label_form.alphabet).all()
        ):
            raise InputError("devices.npz: the messages do not match this run; train again")

    def _of_earlier(self, rows: npt.NDArray[Any], nothing: int) -> npt.NDArray[Any]:
        """Return [hosted, …] the rows of an earlier run, with `nothing` for new devices."""
        filled = np.full((len(self.shard), *rows.shape[1:]), nothing, rows.dtype)
        old = self.shard.devices < len(rows)
        filled[old] = rows[self.shard.devices[old]]
        return filled

    def predict_new_devices(self) -> Program[Floats]:
        """Return [hosted, k] logits by the loaded weights. New devices release nothing.

        Their neighbours repeat the messages of the run, so no new ε is spent on their own data.
        """
        shard = self.shard
        old = len(shard) if self._old is None else self._old
        to_new = shard.neighbours >= old
        from_old = shard.devices[shard.owner] < old
        slots = np.flatnonzero(to_new & from_old)
        yield from self._exchange_randomized_labels(slots)
        for kind, (stage, step) in enumerate(self.schedule.messages):
            if isinstance(stage, PropagatedLabels):
                yield from self._exchange_propagated_labels(stage.number(step), kind, slots)
            elif isinstance(stage, PredictedLabels):
                yield from self._exchange_predicted_labels(kind, slots)
        logits = self.candidates()[self.choice] / self.temperature
        return logits.astype(np.float32)

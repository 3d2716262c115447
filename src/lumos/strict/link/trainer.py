"""The strict trainer of `link`: features are not released; two devices learn one score bucket.

1. A sum counts tokens, and so weights them (`encoder`).
2. Random marks and propagated labels give every device a neighbourhood sketch (`levels`).
3. A sum of tokens and sketches trains an encoder of tokens (`encoder`).
4. Calibration: each device and one held-back neighbour, and each device and one non-neighbour,
   learn the bucket of their score (`lumos.twoparty.score`). Noisy histograms of the buckets choose
   what is compared, and the evidence of each bucket (`levels`).

In the control run, tokens and received random marks are random.
"""

from functools import partial

import numpy as np

from lumos.crypto.groups import choose_group
from lumos.errors import InputError, ProtocolError, UsageError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.observer import LedgerReport
from lumos.graph.facts import GraphPart
from lumos.ldp.account import CALIBRATION
from lumos.strict.accounting import Disclosed
from lumos.strict.guarantees import (
    left_out_warnings,
    link_guarantees,
    link_reading,
    link_warnings,
)
from lumos.strict.link.answers import AnswerBudget, levels_of_pairs
from lumos.strict.link.encoder import NOBODY, LinkEncoder, TokenRows, match
from lumos.strict.link.levels import (
    ALONE,
    BOTH,
    COSINES,
    NeighbourhoodSketch,
    Reading,
    combined,
    integers,
    spec_for,
)
from lumos.strict.link.prediction import LinkResult, alone, evaluated
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.messages import (
    MARK,
    PROPAGATED_LABEL,
    ReceivedMessages,
    drawn_values,
    send_over,
)
from lumos.strict.settings import CALIBRATION_QUERIES
from lumos.strict.trainer import StrictTrainer
from lumos.training.trainer import MAIN, OWN, Outcome
from lumos.twoparty.score import UNANSWERED, make_scorer
from lumos.twoparty.workers import InProcess
from lumos.typing import Arrays, Bytes, Doubles, Floats, Ints, Small

EDGE, NON_NEIGHBOUR = 0, 1


class StrictLinker(StrictTrainer):
    """The strict trainer of one shard, for links."""

    schedule: LinkSchedule

    def _prepare(self, endpoint: Endpoint, part: GraphPart) -> None:
        shard, schedule, train = self.shard, self.schedule, self.schedule.config.train
        group = choose_group(schedule.config.trees.group, simulated=train.randomness == "seeded")
        workers = InProcess() if train.aggregate == "secure" else None
        self._scorer = make_scorer(shard, endpoint, workers, group)
        self._held_back = part.held_back
        self.sketch = NeighbourhoodSketch(shard, schedule.propagated_label_mechanism)
        self._sent: list[Bytes] = []
        """[hosted] messages of each round."""
        self.reading: Reading | None = None
        self.histograms: Doubles = np.empty((0, 0))
        """[hosted, ways · 2 · buckets] of the pairs of calibration."""
        self._attempt = 0

    def begin_attempt(self, number: int) -> None:
        """Begin an attempt, in which score queries have other randomness, too.

        Otherwise a peer with another vector in another attempt would see the difference of two
        buckets.
        """
        super().begin_attempt(number)
        self._attempt = number

    def _scaling_devices(self) -> tuple[Ints, int]:
        return np.arange(len(self.shard)), self.shard.total

    def _begin(self) -> None:
        self.tokens = TokenRows(self._scaled_features(), signed=self.schedule.signed)
        if self.control:
            chance = self.shard.randomness.uniform_each(self.tokens.held, "control words", 0)
            self.tokens.replaced(np.floor(chance * self.tokens.width).astype(np.int64))
        self.encoder = LinkEncoder(self.tokens, self.schedule)

    def tell(self, number: int) -> Program[None]:
        """Have every device send its random mark or a propagated label, the same to all."""
        shard, strict = self.shard, self.schedule.strict
        sent = self.sketch.message(number)
        self._sent = [*self._sent[:number], sent[:, 0]]
        bodies = sent[shard.owner]
        topic, cost = (PROPAGATED_LABEL, strict.propagated_epsilon) if number else (MARK, 0.0)
        received = yield from send_over(topic, shard, None, bodies, cost, self._read_marks)
        self.sketch.receive(received.receiver, received.slot, self._marks_in(received, number))

    def _marks_in(self, received: ReceivedMessages, number: int) -> Ints:
        if self.control:
            return drawn_values(self.shard, received, self.schedule.random_marks, number)
        return self._read_marks(received.body)

    def _read_marks(self, bodies: Bytes) -> Ints:
        """Return [messages] the random mark in each."""
        random_marks = bodies[:, 0].astype(np.int64)
        if (random_marks >= self.schedule.random_marks).any():
            raise ProtocolError("a neighbour sent an unknown random mark")
        return random_marks

    def finish(self) -> Program[LinkResult]:
        """Calibrate score buckets, and return the results."""
        yield from self._finish_stages()
        reading = self._calibrated()
        used = BOTH if reading.way == ALONE else reading.way
        return LinkResult(
            reading=reading,
            vectors=integers(self._compared[used]),
            embeddings=self._compared[used].astype(np.float32),
            degree=self.shard.degree,
            sent=np.stack(self._sent, axis=1),
            budget=self._budget,
            strict=self.schedule.strict,
            seed=self.shard.public.seed,
        )

    def calibrate(self) -> Program[None]:
        """Have each device learn the bucket of one edge, and of one non-neighbour."""
        tested = self.schedule.compared
        self._compared = combined(self.encoder.embeddings(), self.sketch.vectors(), len(tested))
        vectors = {way: integers(self._compared[way]) for way in tested}
        self._budget = AnswerBudget.unused(len(self.shard))
        # Earlier attempts have revealed buckets too, however few.
        self._budget.calibrated += CALIBRATION_QUERIES * self._attempt
        self.histograms = yield from self._histograms(vectors, self._budget)

    def _histograms(self, vectors: dict[str, Small], budget: AnswerBudget) -> Program[Doubles]:
        """Return [hosted, ways · 2 · buckets] the score buckets of each device's pairs.

        Both ends of a pair learn its bucket, and count a score query. One of them adds it to the
        sum. A public rule chooses the vector that a pair compares.
        """
        shard, strict = self.shard, self.schedule.strict
        if self.account is not None and self._attempt:  # the first one is charged with the run
            amounts, part = {CALIBRATION: float(CALIBRATION_QUERIES)}, f" {self._attempt}"
            self.account.charge(amounts, shard.devices, part)
        rows, peers = self._held_back[:, 0], self._held_back[:, 1]
        order = np.lexsort((peers, rows))
        # A held-back edge is known to its first end.
        edges = yield from match(shard, rows[order], peers[order], "held back")
        counts = np.zeros((len(shard), len(vectors), 2, len(COSINES) + 1))
        first_step = 2 * len(vectors) * self._attempt
        for kind, partner in ((EDGE, edges), (NON_NEIGHBOUR, self._non_neighbours())):
            here = np.flatnonzero(partner != NOBODY)
            devices, peers = shard.ids_of(here), partner[here]
            which = (devices + peers) % len(vectors)
            for number, of_devices in enumerate(vectors.values()):
                of_way = which == number
                learnt = yield from levels_of_pairs(
                    shard,
                    self._scorer,
                    devices[of_way],
                    peers[of_way],
                    of_devices,
                    spec_for(of_devices.shape[1]),
                    strict.query_epsilon,
                    -1 - (first_step + 2 * number + kind),
                )
                adding = (devices[of_way] < peers[of_way]) & (learnt != UNANSWERED)
                counts[here[of_way][adding], number, kind, learnt[adding]] += 1
            budget.calibrated[here] += 1
        return counts.reshape(len(shard), len(vectors) * 2 * (len(COSINES) + 1))

    def _calibrated(self) -> Reading:
        if self.reading is None:
            raise ProtocolError("the run is not calibrated yet")
        return self.reading

    def _non_neighbours(self) -> Ints:
        """Return [hosted] random partners by public randomness, whether linked or not.

        With an odd number of devices one has none (`NOBODY`).
        """
        total = self.shard.total
        order = self.shard.public.generator("strangers").permutation(total)
        partner = np.full(total, NOBODY)
        even = order[: total // 2 * 2].reshape(-1, 2)
        partner[even[:, 0]], partner[even[:, 1]] = even[:, 1], even[:, 0]
        mine = partner[self.shard.devices]
        absent = sorted(self.shard.absent)
        return np.where(np.isin(mine, absent), NOBODY, mine) if absent else mine

    def outcome(self, result: LinkResult, ledger: LedgerReport) -> Outcome:
        """Return the outcome, from the joined results of all shards."""
        return Outcome(
            ledger=ledger,
            embeddings=result.embeddings,
            logits=None,
            evaluated={MAIN: partial(evaluated, result), OWN: partial(alone, result)},
            best_epoch=self.schedule.config.train.epochs,
            exposed=link_reading(self.schedule, int(self.features.shape[1])),
            guarantees=link_guarantees(self.schedule, self._life()),
            choice=result.reading.way,
            warnings=[
                *left_out_warnings(self.left_out),
                *link_warnings(self.schedule, result.reading, self.tokens.width),
            ],
            estimates=result.estimates(),
            kept={**result.arrays(), **self._remembered()},
        )

    def _life(self) -> Disclosed | None:
        """Return the largest totals of all devices; None without an account."""
        if self.account is None:
            return None
        return Disclosed.of_account(self.account, np.ones(len(self.account.numbers), np.bool_))

    def _received_rounds(self) -> int:
        return len(self.sketch.usual)

    def _load_model(self, state: Arrays) -> None:
        """Refuse: see `predict_new_devices`."""
        raise UsageError("new devices are for runs that classify; this one predicts links")

    def predict_new_devices(self) -> Program[Floats]:
        """Refuse: a new device has received no random marks, which are sent in training only."""
        raise UsageError("new devices are for runs that classify; this one predicts links")

    def _model(self) -> Arrays:
        return {**self._state(), **self._scaling_arrays(), **self._calibrated().arrays()}

    def _state(self) -> Arrays:
        usual = self.sketch.usual
        rounds = np.array(usual) if usual else np.empty((0, self.schedule.random_marks))
        return {**self.encoder.state_dict(), "usual": rounds}

    def _restore(self, state: Arrays) -> None:
        """Go on from a state.

        Raises:
            InputError: it does not match this model.
        """
        if state["usual"].shape[1:] != (self.schedule.random_marks,):
            raise InputError("checkpoint.npz does not match this model; restart without `resume`")
        self.encoder.load_state_dict(state)
        self.sketch.usual = list(state["usual"])

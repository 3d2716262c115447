"""Neighbours in a strict run of `classify`: what randomized and propagated labels tell them.

**Randomized labels.** The attacker guesses the likeliest label, given the randomized label and how
frequent labels are. Beside it stands the likelihood ratio of what was really received: how much
more often a randomized label comes from one label than from another, with the ε that the
frequencies certify.

**Propagated labels.** All neighbours of a device together know everything that it received, because
they sent it. With the opened sums they compute its evidence, and the propagated label that it must
have had before it was randomized. The frequencies of what was sent then show the ε of the mechanism
as it was used. Only devices without a tie in their evidence are counted: nobody knows what the
others chose.

**Neighbourhood.** A neighbour u of a device v has everything that v sent to it in a whole run, its
randomized label and all propagated labels; what u itself sent to v; and the public list of who
trains. Its questions: is the degree of v at most 1, at most 5, below the median? Is w a neighbour
of v, or a random device? *One neighbour* knows the randomized label of w, *neighbours of both* all
that w sent. Two attackers learn on one half of all (u, v), whose truth they are assumed to know: a
likelihood ratio over all combinations of messages, and a small network; the better one counts. They
are evaluated on the other half. Beside them stand the same attackers with u's own numbers only: its
degree, or whether w is its own neighbour; these are among the inputs of both. Everybody knows which
end uses an edge (`uses_edge`), so that is an input too: of the edge u-v for degrees, of v-w for
edges. No bound is claimed for degrees. An edge has one, but its ε allows nearly every AUC.

**Reconstruction.** Whoever has all that all devices sent, but not who sent to whom, guesses which
of all pairs are edges: as many as there are. It ranks pairs by how often their combination of
messages is an edge among one half of the devices, which it knows, and is evaluated on the other
half. Beside it stands the server of LPGNN on Blink's edges, which rebuilds the graph from noisy
neighbour lists.

**Several runs.** With an account a label is drawn once for life. Runs at several ε show draws of
one chain, so whoever saw all of them knows what the largest ε tells: the cell that the last run
prints must cover it. Without an account every run draws anew, and their ε add up. A new device
predicted many times receives what its neighbours sent in the run, every time the same. The
neighbour takes the randomized labels of all runs for independent draws and chooses the likeliest
label: the best guess where they are independent, and where they are one chain it is the randomized
label of the largest ε. Runs are as short as the settings allow: how randomized labels are drawn
does not depend on it.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from lumos.audit.attacks import attack
from lumos.audit.harness import (
    Recorded,
    Scene,
    opened_sums,
    printed,
    sent_messages,
    sent_values,
    slots_of,
    without_masked_vectors,
)
from lumos.audit.table import (
    CONFIDENCE,
    Area,
    AuditRow,
    CertifiedEpsilon,
    Exactly,
    Proportion,
    finding,
)
from lumos.baselines.blink import reconstructed
from lumos.baselines.systems import BaselineSettings, ServerProblem
from lumos.device.randomness import PublicRandomness
from lumos.exchange.tape import Tape, recording
from lumos.graph import Graph
from lumos.ldp.mechanisms import one_hot
from lumos.runs.predict import NewDevice, predict_new_devices
from lumos.strict.classify.evidence import MessageCounts
from lumos.strict.classify.stages import (
    ClassifySchedule,
    PredictedLabels,
    PropagatedLabels,
    RandomizedLabels,
)
from lumos.strict.messages import undecided, uses_edge
from lumos.strict.settings import settings_of
from lumos.training.guarantees import EDGE_ADDED_OR_REMOVED, LABEL_REPLACED
from lumos.training.metrics import auc
from lumos.training.problem import features_of
from lumos.training.split import Role
from lumos.typing import Doubles, Flags, Ints


@attack("randomized-labels", "labels from randomized labels", "strict", "classify")
def attack_randomized_label(scene: Scene) -> Iterator[AuditRow]:
    """Yield what the randomized labels of one recorded run tell."""
    recorded = scene.recorded("classify")
    labels, form = np.asarray(recorded.graph.labels), public_schedule(recorded).label_form
    # The ε of the randomized label itself: a label that sums use may have a larger one.
    epsilon = settings_of(recorded.config).label_epsilon
    bodies, senders = sent_messages(recorded.tape, "strict/symbol", recorded.graph.devices)
    here = np.flatnonzero(senders & (labels >= 0))
    randomized_labels, truth = form.values(bodies[here]), labels[here]
    prior = shares_of(truth, form.size)
    claim = f"a randomized label has ε = {epsilon:g}"
    yield label_row(
        "one neighbour",
        "label of a training device, from its randomized label",
        (prior[:, None] * form.table(epsilon))[:, randomized_labels].argmax(axis=0),
        truth,
        prior,
        ((epsilon, 0.0), claim),
    )
    yield finding(
        "one neighbour",
        "ε that the frequencies of its randomized label certify, largest of all pairs of labels",
        "ε",
        certified(truth, np.eye(form.alphabet, dtype=np.bool_)[randomized_labels]),
        bound=(epsilon, claim),
        knows_mechanism=True,
    )


def public_schedule(recorded: Recorded) -> ClassifySchedule:
    """Return the schedule, as far as messages depend on it."""
    return ClassifySchedule(
        config=recorded.config,
        devices=recorded.graph.devices,
        training=int((recorded.roles == Role.TRAIN).sum()),
        validation=int((recorded.roles == Role.VALIDATION).sum()),
        classes=recorded.graph.class_count,
    )


def certified(truth: Ints, named: Flags) -> CertifiedEpsilon:
    """Return the ε that frequencies certify, by the best test "the message names value j".

    Args:
        truth: [messages] what was randomized.
        named: [messages, values] which values each message names.
    """
    counts = np.bincount(truth)
    there = np.flatnonzero(counts)
    hits = np.stack([named[truth == one].sum(axis=0) for one in there])
    tests = [
        CertifiedEpsilon(
            int(hits[one, value]),
            int(counts[there[one]]),
            int(hits[two, value]),
            int(counts[there[two]]),
            tests=named.shape[1] * len(there) * (len(there) - 1),
        )
        for value in range(named.shape[1])
        for one in range(len(there))
        for two in range(len(there))
        if one != two
    ]
    return max(tests, key=lambda test: test.interval(CONFIDENCE)[0])


def certified_against_rest(truth: Ints, sent: Ints, values: int) -> CertifiedEpsilon | None:
    """Return the same by the test "a was sent" where a was meant, against anything else.

    All else is a mixture of worlds that are each within ε of the first. None, if there is no value
    with cases of both kinds.

    Args:
        truth: [messages] what was randomized.
        sent: [messages] what was sent.
        values: number of values.
    """
    tests = [
        CertifiedEpsilon(
            int(((sent == a) & (truth == a)).sum()),
            int((truth == a).sum()),
            int(((sent == a) & (truth != a)).sum()),
            int((truth != a).sum()),
            tests=values,
        )
        for a in range(values)
        if (truth == a).any() and (truth != a).any()
    ]
    return max(tests, key=lambda test: test.interval(CONFIDENCE)[0], default=None)


def most_right(
    epsilon: float, classes: int, prior: np.ndarray | None = None, delta: float = 0.0
) -> float:
    """Return the largest accuracy of a guess of a label by messages alone, under (ε, δ).

    Let q_c be the least probability that c is guessed, of any label, and Q their sum. Then
    P_c[c] ≤ e^ε q_c + δ and P_c[c] ≤ 1 - Q + q_c, where Σ π_c P_c[c] is largest if q_c is the same
    for the j most frequent labels and 0 for all others: (1 - δ)/(e^ε + j - 1). So it is at most
    δ + (1 - δ) · (π_1 + … + π_j) e^ε / (e^ε + j - 1), for the best j. Randomized response on the j
    most frequent labels reaches it.
    """
    shares = np.full(classes, 1 / classes) if prior is None else np.sort(prior)[::-1]
    others = np.arange(len(shares)) * math.exp(-epsilon)
    return float(delta + (1 - delta) * (np.cumsum(shares) / (1 + others)).max())


def raised_odds(epsilon: float, chance: float, classes: int, delta: float = 0.0) -> float:
    """Return the same for an attacker that is right without messages with this chance.

    Pure: with P[seen | one] ≤ e^ε P[seen | other], a posterior is at most t(p) =
    p e^ε / (p e^ε + 1 - p) for the prior p of that label, which is concave in p. With δ: let m be
    the probability that c is guessed, and Q the mixture of all other labels. Then m = π P_c[c] +
    (1 - π) Q[c], and P_c[c] ≤ e^ε Q[c] + δ, so π P_c[c] ≤ t(π) (m + (1 - π) e^-ε δ); summed over
    c, at most t(p) (1 + (k - 1) e^-ε δ).
    """
    other = math.exp(-epsilon)
    odds = chance / (chance + (1 - chance) * other)
    return min(1.0, odds * (1 + (classes - 1) * other * delta))


def shares_of(labels: Ints, classes: int) -> Doubles:
    """Return [classes] the share of each label."""
    counts = np.bincount(labels, minlength=classes)
    shares: Doubles = counts / max(1, counts.sum())
    return shares


def label_row(
    adversary: str,
    about: str,
    guess: Ints,
    truth: Ints,
    prior: Doubles,
    claim: tuple[tuple[float, float] | None, str],
    *,
    chance_is: str = "the most frequent label",
    note: str = "",
) -> AuditRow:
    """Return the accuracy of guesses of labels beside the best that (ε, δ) allow.

    Args:
        prior: [classes] the share of each label, which the attacker knows.
        claim: (ε, δ), or None if nothing is claimed, and where it stands.
    """
    cell, where = claim
    return finding(
        adversary,
        about,
        "accuracy",
        Proportion(int((guess == truth).sum()), len(truth)),
        chance=(float(prior.max()), chance_is),
        bound=None if cell is None else (most_right(cell[0], len(prior), prior, cell[1]), where),
        knows_mechanism=True,
        note=note,
    )


def spelled(cell: tuple[float, float] | None) -> str:
    """Return a cell of the table of guarantees, as it is printed."""
    if cell is None:
        return "no guarantee"
    return f"({cell[0]:g}, {cell[1]:g})" if cell[1] else f"ε = {cell[0]:g}, pure"


# Propagated labels before they were randomized.


@attack("propagated-labels", "propagated labels before they were randomized", "strict", "classify")
def attack_propagated_label_ratio(scene: Scene) -> Iterator[AuditRow]:
    """Yield rows for every propagated label of one recorded run."""
    recorded = scene.recorded("classify")
    schedule = public_schedule(recorded)
    mechanism, epsilon = schedule.propagated_label_mechanism, schedule.strict.propagated_epsilon
    evidence = evidence_of(recorded, schedule)
    for number, total in enumerate(evidence):
        meant = intended(total, mechanism.size)
        bodies, senders = sent_messages(
            recorded.tape, "strict/opinion", recorded.graph.devices, number
        )
        here = np.flatnonzero(senders & (meant >= 0))
        if not len(here):
            continue
        named = mechanism.read(bodies[here]) > 0
        claim = f"propagated_epsilon = {epsilon:g}"
        if named.shape[1] == mechanism.size and (named.sum(axis=1) == 1).all():
            yield label_row(
                "one neighbour",
                f"propagated label {number + 1} before it was randomized, from the one sent",
                named.argmax(axis=1),
                meant[here],
                shares_of(meant[here], mechanism.size),
                ((epsilon, 0.0), claim),
                chance_is="the most frequent propagated label",
            )
        yield finding(
            "all neighbours of a device",
            f"ε that the frequencies of propagated label {number + 1} certify, "
            "given what was meant",
            "ε",
            certified(meant[here], named),
            bound=(epsilon, claim),
            knows_mechanism=True,
        )


def evidence_of(recorded: Recorded, schedule: ClassifySchedule) -> list[Doubles]:
    """Return [devices, k] the evidence of each propagated label, from messages and opened sums."""
    graph, form = recorded.graph, schedule.label_form
    sums = dict(zip(schedule.sums, opened_sums(recorded)[-len(schedule.sums) :], strict=True))
    totals = [sums[place] for place in schedule.messages]
    trains = recorded.roles == Role.TRAIN
    evidence = np.zeros((graph.devices, schedule.classes))
    found = []
    for kind, (stage, step) in enumerate(schedule.messages):
        if isinstance(stage, PropagatedLabels):
            found.append(evidence)
        receiver, sender, support = _received(recorded, schedule, stage, step)
        used = uses_edge(receiver, sender, trains[receiver], trains[sender])
        counts = MessageCounts(support[used], receiver[used], graph.devices)
        evidence = evidence + counts.evidence(schedule.matrix(kind, totals), form)
    return found


def _received(
    recorded: Recorded, schedule: ClassifySchedule, stage: RandomizedLabels, step: int
) -> tuple[Ints, Ints, Doubles]:
    """Return receivers, senders and values of the messages of one kind that name a class."""
    if isinstance(stage, PropagatedLabels):
        batch = recorded.tape.messages("strict/opinion")[stage.number(step) - 1]
        body = batch.body[:, : schedule.propagated_label_mechanism.width]
        named = schedule.named(body)
        return batch.receiver[named], batch.sender[named], schedule.read_propagated(body[named])
    if isinstance(stage, PredictedLabels):
        (batch,) = recorded.tape.messages("strict/prediction")
        mechanism = schedule.predicted_label_mechanism
        read, width = mechanism.read, mechanism.width
    else:
        (batch,) = recorded.tape.messages("strict/symbol")
        form = schedule.label_form
        read, width = partial(one_hot, limit=form.alphabet), form.width
    return batch.receiver, batch.sender, read(batch.body[:, :width])


def intended(evidence: Doubles, values: int) -> Ints:
    """Return [devices] the class with the most evidence; -1 where several have it.

    Args:
        values: those of a propagated label: if there are more than classes, the last one stands for
            no class.
    """
    top, classes = np.sort(evidence, axis=1), evidence.shape[1]
    meant = np.where(top[:, -1] - top[:, -2] > 1e-9, evidence.argmax(axis=1), -1)
    return np.where(undecided(evidence) & (values > classes), classes, meant)


# Degrees and third-party edges.

HIDDEN, ROUNDS, BATCH = 64, 6, 2048
PSEUDO_COUNT = 16.0
"""Further times that a combination counts as seen, at the frequency of its parts."""
MAX_COMBINATIONS = 1 << 22
"""Combinations of columns that a likelihood ratio tells apart, at most."""
MAX_PAIRS = 150_000
"""Pairs (u, v) of an audit, at most."""
DEGREE, EDGE = "degree", "edge"


class NeighbourPairs(NamedTuple):
    """Some (u, v), a third device w for each, and the half that attackers learn on."""

    attacker: Ints
    sender: Ints
    other: Ints
    is_edge: Flags
    usable: Flags
    """w is neither u nor v."""
    degree: Ints
    half: Flags

    @staticmethod
    def of(graph: Graph, most: int | None = None) -> "NeighbourPairs":
        """Draw `most` pairs, or take all; half of the w are neighbours of v."""
        generator = np.random.default_rng(0)
        attacker, sender = np.repeat(np.arange(graph.devices), graph.degrees), graph.neighbours
        degree = graph.degrees[sender]
        pick = np.floor(generator.random(len(sender)) * degree).astype(np.int64)
        is_edge = generator.random(len(sender)) < 0.5
        anybody = generator.integers(0, graph.devices, len(sender))
        other = np.where(is_edge, graph.neighbours[graph.offsets[sender] + pick], anybody)
        usable = (other != attacker) & (other != sender)
        half = generator.random(len(sender)) < 0.5
        pairs = NeighbourPairs(attacker, sender, other, is_edge, usable, degree, half)
        if most is None or most >= len(sender):
            return pairs
        chosen = np.sort(generator.permutation(len(sender))[:most])
        columns: Any = (column[chosen] for column in pairs)
        return NeighbourPairs(*columns)


class ReceivedMessages(NamedTuple):
    """Messages of a run, for each pair: a column of numbers for each message."""

    sender: list[Ints]
    """From v to u."""
    attacker: list[Ints]
    """From u to v."""
    other: list[Ints]
    """From w to a neighbour of w; the randomized label first."""
    sender_uses: Ints
    """1 where v is the user of its edge with u."""
    asked_uses: Ints
    """1 where v would be the user of an edge with w."""

    @staticmethod
    def of(sent: Sequence[Ints], pairs: NeighbourPairs) -> "ReceivedMessages":
        """Pick the messages of pairs from [devices] values that were sent; -1 is none.

        Whoever sent a randomized label, the first of `sent`, trains.
        """
        released, v = sent[0] >= 0, pairs.sender
        sender_uses, asked_uses = (
            uses_edge(v, to, released[v], released[to]).astype(np.int64)
            for to in (pairs.attacker, pairs.other)
        )
        every = [np.where(values < 0, values.max() + 1, values) for values in sent]
        sender, attacker, other = (
            [message[devices] for message in every]
            for devices in (pairs.sender, pairs.attacker, pairs.other)
        )
        return ReceivedMessages(sender, attacker, other, sender_uses, asked_uses)


class Question(NamedTuple):
    """One question of an attacker, and all that it may use for an answer."""

    name: str
    kind: str
    truth: Flags
    columns: list[Ints]
    """All messages."""
    first: list[Ints]
    """Those that matter most."""
    half: Flags
    case: Ints
    """The device or pair that is asked about: pairs of one case are not independent."""


def questions(pairs: NeighbourPairs, messages: ReceivedMessages) -> Iterator[Question]:
    """Yield the questions about degrees, then about edges."""
    paired = [
        column
        for columns in zip(messages.sender, messages.attacker, strict=True)
        for column in columns
    ]
    for name, truth in (
        ("degree ≤ 1", pairs.degree <= 1),
        ("≤ 5", pairs.degree <= 5),
        ("< median", pairs.degree < np.median(pairs.degree)),
    ):
        columns, first = ([messages.sender_uses, *some] for some in (paired, messages.sender))
        yield Question(name, DEGREE, truth, columns, first, pairs.half, pairs.sender)
    both = [*messages.sender, *messages.attacker]
    for name, known in (
        ("edge, one neighbour", messages.other[:1]),
        ("edge, neighbours of both", messages.other),
    ):
        columns, first = (
            [column[pairs.usable] for column in some]
            for some in (
                [messages.asked_uses, *known, *both],
                [messages.asked_uses, *known, *messages.sender],
            )
        )
        case = pairs.sender * (int(pairs.other.max()) + 1) + pairs.other
        here = pairs.usable
        yield Question(
            name, EDGE, pairs.is_edge[here], columns, first, pairs.half[here], case[here]
        )


def ratio(columns: list[Ints], truth: Flags, half: Flags) -> Doubles:
    """Return [slots] the log-likelihood ratio of combinations of columns, learnt on one half.

    Column by column, the frequency of a combination is estimated from its own count and, as if it
    had been seen `PSEUDO_COUNT` times more, from that of the combination without the last column.
    """
    score, shares = np.zeros(len(truth)), [np.ones(1), np.ones(1)]
    cells = np.zeros(len(truth), np.int64)
    for column in columns:
        size = int(column.max()) + 1
        if len(shares[0]) * size > MAX_COMBINATIONS:
            break  # the network has the rest
        cells = cells * size + column
        every = np.bincount(cells[half], minlength=len(shares[0]) * size).reshape(-1, size) + 0.5
        usual = every / every.sum(axis=1, keepdims=True)
        for number, those in enumerate((half & truth, half & ~truth)):
            count = np.bincount(cells[those], minlength=every.size)
            expected = (shares[number][:, None] * usual).ravel()
            found = count + PSEUDO_COUNT * every.size * expected
            shares[number] = found / found.sum()
        score = np.log(shares[0][cells]) - np.log(shares[1][cells])
    return score


def network(columns: list[Ints], truth: Flags, half: Flags) -> Doubles:
    """Return [slots] scores of a small network on one-hot columns, learnt on one half."""
    torch.manual_seed(0)
    inputs = torch.cat([functional.one_hot(torch.from_numpy(column)) for column in columns], 1)
    inputs, wanted = inputs.float(), torch.from_numpy(truth).float()
    model = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    falling = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.6)
    learn = np.flatnonzero(half)
    for _ in range(ROUNDS):
        order = torch.from_numpy(learn)[torch.randperm(len(learn))]
        for start in range(0, len(learn), BATCH):
            batch = order[start : start + BATCH]
            optimizer.zero_grad()
            logits = model(inputs[batch])[:, 0]
            loss: Any = functional.binary_cross_entropy_with_logits(logits, wanted[batch])
            loss.backward()
            optimizer.step()
        falling.step()
    with torch.no_grad():
        score: Doubles = model(inputs)[:, 0].double().numpy()
    return score


def best(question: Question, own: Sequence[Ints] = ()) -> float:
    """Return the AUC of the best attacker on the half that it has not learnt on.

    Args:
        own: columns that the attacker has anyway.
    """
    truth, half = question.truth, question.half
    columns, first = [*own, *question.columns], [*own, *question.first]
    with torch.random.fork_rng():  # the network has a seed of its own
        learnt = network(columns, truth, half)
    scores = [ratio(columns, truth, half), ratio(first, truth, half), learnt]
    return max(evaluated(score, truth, half) for score in scores)


def evaluated(score: Doubles, truth: Flags, half: Flags) -> float:
    """Return the AUC on the other half."""
    return auc(score[~half & truth], score[~half & ~truth])


@attack(
    "neighbourhood",
    "degrees and edges from randomized labels and propagated labels",
    "strict",
    "classify",
)
def attack_neighbourhood(scene: Scene) -> Iterator[AuditRow]:
    """Yield what the randomized and propagated labels of one recorded run tell."""
    recorded = scene.recorded("classify")
    graph = recorded.graph
    pairs = NeighbourPairs.of(graph, MAX_PAIRS)
    messages = ReceivedMessages.of(sent_in(recorded), pairs)
    degree = np.log2(1 + graph.degrees[pairs.attacker]).round().astype(np.int64)
    mine = (slots_of(graph, pairs.attacker, pairs.other) >= 0).astype(np.int64)
    for question in questions(pairs, messages):
        scene.say(question.name)
        is_edge = question.kind == EDGE
        own = [degree[pairs.usable], mine[pairs.usable]] if is_edge else [degree]
        truth, judge = question.truth, ~question.half
        if not truth[judge].any() or truth[judge].all() or truth[~judge].all():
            continue
        alone = evaluated(ratio(own, truth, question.half), truth, question.half)
        several = question.name.endswith("both")
        yield finding(
            "neighbours of both" if several else "one neighbour",
            _ABOUT[question.name],
            "AUC",
            Area(
                best(question, own),
                len(np.unique(question.case[judge & truth])),
                len(np.unique(question.case[judge & ~truth])),
            ),
            chance=(
                alone,
                (
                    "its own degree, and whether w is its own neighbour"
                    if is_edge
                    else "its own degree"
                ),
            ),
            note=(
                "It learns from one half of all pairs of neighbours. "
                + (
                    "The ε of an edge bounds no AUC below 0.98."
                    if is_edge
                    else "The interval counts devices, not pairs."
                )
            ),
        )


_ABOUT = {
    "degree ≤ 1": "degree of v: at most 1, or more; from its randomized label "
    "and propagated labels",
    "≤ 5": "degree of v: at most 5, or more; the same",
    "< median": "degree of v: below the median, or not; the same",
    "edge, one neighbour": "edge v-w, from what v sent and the randomized label of w",
    "edge, neighbours of both": "edge v-w, from all that v and w sent",
}


def sent_in(recorded: Recorded) -> list[Ints]:
    """Return [devices] the randomized label, then each propagated label; -1 where none was sent."""
    propagated_labels = range(public_schedule(recorded).num_propagated)
    return [
        sent_values(recorded, "strict/symbol"),
        *(sent_values(recorded, "strict/opinion", number) for number in propagated_labels),
    ]


class Rebuilt(NamedTuple):
    """The result of guessing as many pairs as there are edges."""

    hits: float
    edges: int
    pairs: float
    """Number of all pairs."""


def rebuilt(sent: Sequence[Ints], edges: Ints) -> Rebuilt:
    """Guess the edges among one half of the devices from all that was sent; learn on the other.

    Args:
        sent: [devices] the randomized label, then each propagated label; -1 where none was sent.
        edges: [edges, 2]
    """
    released = sent[0] >= 0
    kind, kinds = np.zeros(len(released), np.int64), 1
    for values in sent:
        size = int(values.max()) + 2
        if (kinds * size) ** 2 > MAX_COMBINATIONS:
            break
        kind, kinds = kind * size + values + 1, kinds * size
    half = np.random.default_rng(0).random(len(kind)) < 0.5
    found = []
    for here in (half, ~half):
        some = edges[here[edges].all(axis=1)]
        uses = uses_edge(some[:, 0], some[:, 1], released[some[:, 0]], released[some[:, 1]])
        user, other = np.where(uses, some.T, some.T[::-1])
        linked = np.bincount(kind[user] * kinds + kind[other], minlength=kinds**2)
        many = np.bincount(kind[here], minlength=kinds).astype(np.float64)
        trains = np.zeros(kinds, np.bool_)
        trains[kind[released]] = True
        # Of two devices of one kind of role, the hash makes each the user of half of the pairs.
        share = np.where(trains[:, None] == trains, 0.5, ~trains[:, None] * 1.0)
        found.append((linked, (share * np.outer(many, many)).ravel()))
    (learnt, known), (linked, pairs) = found
    usual = learnt.sum() / max(1.0, known.sum())
    order = np.argsort(-(learnt + PSEUDO_COUNT * usual) / (known + PSEUDO_COUNT), kind="stable")
    reached = np.cumsum(pairs[order])
    total = int(linked.sum())
    before = np.maximum(total - (reached - pairs[order]), 0.0)
    taken = np.minimum(1.0, before / np.maximum(pairs[order], 1e-9))
    return Rebuilt(float((linked[order] * taken).sum()), total, float(pairs.sum()))


RIVAL_EPSILON = 16.0
"""ε of an edge of LPGNN on Blink's edges, its default."""


@attack("reconstruction", "edges from all that was sent", "strict", "classify")
def attack_reconstruction(scene: Scene) -> Iterator[AuditRow]:
    """Yield the share of edges that are found among as many pairs as there are edges."""
    recorded = scene.recorded("classify")
    graph, edges = recorded.graph, recorded.graph.edge_list()
    found = rebuilt(sent_in(recorded), edges)
    cell = printed(recorded.run, EDGE_ADDED_OR_REMOVED, "validation devices")
    yield finding(
        "whoever has all messages without receivers",
        f"share of all edges found; one edge: {spelled(cell)}",
        "recall",
        Proportion(found.hits, found.edges),
        chance=(found.edges / max(1.0, found.pairs), "pairs at random"),
        note="It guesses as many pairs as there are edges, and knows the edges of the other half.",
    )
    scene.say("LPGNN on Blink's edges")
    settings = BaselineSettings(system="lpgnn-blink", edge_epsilon=RIVAL_EPSILON)
    problem = ServerProblem(
        graph=graph, roles=recorded.roles, split=None, public=PublicRandomness(0)
    )
    _, pairs, _ = reconstructed(problem, settings, "hard")
    hits = np.isin(_edge_keys(edges, graph.devices), _edge_keys(pairs, graph.devices))
    yield finding(
        "server of LPGNN on Blink's edges, another system",
        f"share of all edges that it rebuilds; one edge: {spelled((RIVAL_EPSILON, 0.0))}",
        "recall",
        Proportion(int(hits.sum()), len(edges)),
        chance=(found.edges / max(1.0, found.pairs), "pairs at random"),
        note=f"{100 * hits.sum() / max(1, len(pairs)):.1f} % of the pairs that it names are edges.",
    )


def _edge_keys(pairs: Ints, devices: int) -> Ints:
    keys: Ints = pairs.min(axis=1) * devices + pairs.max(axis=1)
    return keys


# Several runs, and a new device that comes often.

FREE_RUNS = 8
"""Number of runs without an account."""
PREDICTIONS = 40
"""Number of predictions for one new device."""
TRAINING = "training devices"
PLENTY = {
    "lifetime_epsilon": 1e3,
    "lifetime_propagated_epsilon": 1e3,
    "lifetime_feature_epsilon": 1e3,
}


@attack(
    "repeats", "labels from several runs, and a new device that comes often", "strict", "classify"
)
def attack_repeated_releases(scene: Scene) -> Iterator[AuditRow]:
    """Yield rows of runs with an account, of runs without one, and of a new device."""
    strict = settings_of(scene.config("classify"))
    epsilon = strict.label_epsilon
    if strict.protect == "noise":  # exact sums have no account
        for what, levels in (
            ("at ε, then at a smaller ε", (epsilon, epsilon / 2)),
            ("at ε, then at a larger ε", (epsilon, 1.5 * epsilon)),
            ("four times at ε", (epsilon,) * 4),
        ):
            scene.say(f"runs with one account, {what}")
            yield account_row(scene, what, levels)
    scene.say(f"{FREE_RUNS} runs without an account")
    yield free_row(scene, epsilon)
    scene.say("a new device, many times")
    yield new_device_row(scene)


SHORT = 10
"""Epochs that are enough for all messages."""


def short(scene: Scene, number: int, **changes: Any) -> Recorded:
    """Record a short run in which all randomized labels are sent.

    Every number is another run: a clip that is larger by a thousandth gives it randomness of its
    own, and nothing else. The same devices train, as in a federation that trains again.
    """
    wanted = settings_of(scene.config("classify"))
    few: dict[str, Any] = {"tree_network": False, "encoder_epochs": 1, "epochs": SHORT}
    few["clip"] = wanted.clip * (1 + (1 + number) / 1000)
    return scene.record(scene.graph, "classify", keep=without_masked_vectors, **{**few, **changes})


def account_row(scene: Scene, what: str, levels: Sequence[float]) -> AuditRow:
    """Return the row of runs with one account; the neighbour saw all of them."""
    with TemporaryDirectory() as folder:
        account = Path(folder)
        runs = [
            short(scene, number, label_epsilon=level, account=account, **PLENTY)
            for number, level in enumerate(levels)
        ]
        cell = printed(runs[-1].run, LABEL_REPLACED, TRAINING, life=True)
    return _row_of(
        runs,
        about=f"label, from the randomized labels of {len(levels)} runs with one account: {what}",
        cell=cell,
        claim=f"{LABEL_REPLACED}, {TRAINING}, as the last run prints it",
    )


def free_row(scene: Scene, epsilon: float) -> AuditRow:
    """Return the row of runs without an account, whose ε add up."""
    runs = [short(scene, number, account=None) for number in range(FREE_RUNS)]
    return _row_of(
        runs,
        about=f"label, from the randomized labels of {FREE_RUNS} runs without an account",
        cell=(FREE_RUNS * epsilon, 0.0),
        claim=f"runs without an account add up: {FREE_RUNS} · {epsilon:g}",
    )


def _row_of(
    runs: Sequence[Recorded], *, about: str, cell: tuple[float, float] | None, claim: str
) -> AuditRow:
    labels = np.asarray(runs[0].graph.labels)
    here = np.flatnonzero((runs[0].roles == Role.TRAIN) & (runs[0].graph.degrees > 0))
    prior = shares_of(labels[here], runs[0].graph.class_count)
    guess, claimed = guesses(runs, here, prior), (cell, f"{claim}: {spelled(cell)}")
    who = "one neighbour, over several runs"
    return label_row(who, about, guess, labels[here], prior, claimed)


def guesses(runs: Sequence[Recorded], devices: Ints, prior: np.ndarray) -> Ints:
    """Return [devices] the likeliest label, if all randomized labels were independent draws."""
    with np.errstate(divide="ignore"):
        score = np.tile(np.log(prior), (len(devices), 1))
    for recorded in runs:
        form = public_schedule(recorded).label_form
        table = form.table(settings_of(recorded.config).label_epsilon)
        bodies, _ = sent_messages(recorded.tape, "strict/symbol", recorded.graph.devices)
        score += np.log(table[:, form.values(bodies[devices])]).T
    guess: Ints = score.argmax(axis=1)
    return guess


def new_device_row(scene: Scene) -> AuditRow:
    """Return the bits in what the neighbours of one new device sent it after the first time."""
    recorded = scene.recorded("classify")
    sent = [new_device_messages(recorded) for _ in range(PREDICTIONS)]
    _, counts = np.unique(np.array(sent, "S"), return_counts=True)
    shares = counts / counts.sum()
    return finding(
        "a new device, predicted many times",
        f"entropy of what its neighbours sent in {PREDICTIONS} predictions",
        "bits",
        Exactly(max(0.0, float(-(shares * np.log2(shares)).sum())), PREDICTIONS),
        bound=(0.0, "neighbours send what they sent in the run (docs/strict.md, New devices)"),
    )


def new_device_messages(recorded: Recorded) -> str:
    """Return all that the neighbours of a new device send it in one prediction, as text."""
    graph, run = recorded.graph, recorded.run
    features = features_of(graph)[[0]]
    row = np.asarray(features.toarray() if hasattr(features, "toarray") else features)[0]
    known = np.argsort(-graph.degrees, kind="stable")[:8]
    new_device = NewDevice(
        id="new device of the audit",
        features=row.astype(np.float32),
        neighbours=tuple(run.ids[device] for device in known),
    )
    with recording() as tape:
        predict_new_devices(run, [new_device], graph=graph, transport="recording")
    return _to(tape, graph.devices)


def _to(tape: Tape, device: int) -> str:
    """Return what one device received, topic by topic."""
    received = []
    for one in tape.passed:
        batch = one.batch.take(np.flatnonzero(one.batch.receiver == device))
        received.append(f"{one.topic.name} {batch.sender.tolist()} {batch.body.tolist()}")
    return "; ".join(received)

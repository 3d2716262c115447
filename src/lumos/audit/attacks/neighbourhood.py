"""Degrees and third-party edges, from the symbols and opinions that neighbours receive.

The attacker is a neighbour u of a device v. It has everything that v sent to it in a whole run, its
symbol and all opinions; what u itself sent to v; and the public list of who trains. **Degree**: is
that of v at most 1, at most 5, below the median? **Edge**: is w a neighbour of v, or a random
device? *One neighbour* knows the symbol of w, *neighbours of both* all that w sent.

Two attackers learn on one half of all (u, v), whose truth they are assumed to know: a likelihood
ratio over all combinations of messages, and a small network; the better one counts. They are judged
on the other half. Beside them stand the same attackers with u's own numbers only: its degree, or
whether w is its own neighbour; these are among the inputs of both.

No bound is claimed for degrees. An edge has one, but at an ε of 17 to 21 it allows nearly
every AUC.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from lumos.audit.attacks import Attack
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Area
from lumos.audit.scene import Recorded, Scene
from lumos.audit.views import said, slots_of
from lumos.graph import Graph
from lumos.strict.settings import settings_of
from lumos.training.metrics import auc
from lumos.typing import Doubles, Flags, Ints

HIDDEN, ROUNDS, BATCH = 64, 6, 2048
SEEN = 16.0
"""How many more times a combination counts as seen, at the frequency of its parts."""
COMBINATIONS = 1 << 22
"""Most combinations of columns that a likelihood ratio tells apart."""
MOST = 150_000
"""NeighbourPairs (u, v) of an audit."""
DEGREE, EDGE = "degree", "edge"


class NeighbourPairs(NamedTuple):
    """Some (u, v), a third device w for each, and which half attackers learn on."""

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
        """All pairs, or so many at random; half of the w are neighbours of v."""
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


class HeardMessages(NamedTuple):
    """What devices sent in a run, for each pair: a column of numbers for each message."""

    sender: list[Ints]
    """From v to u."""
    attacker: list[Ints]
    """From u to v."""
    other: list[Ints]
    """From w to a neighbour of w; the symbol first."""

    @staticmethod
    def of(sent: Sequence[Ints], pairs: NeighbourPairs) -> "HeardMessages":
        """Of [devices] what each told all its neighbours; who told nothing has -1."""
        every = [np.where(values < 0, values.max() + 1, values) for values in sent]
        sender, attacker, other = (
            [message[devices] for message in every]
            for devices in (pairs.sender, pairs.attacker, pairs.other)
        )
        return HeardMessages(sender, attacker, other)


class Question(NamedTuple):
    """Something that an attacker asks, and all that it may use for an answer."""

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


def questions(pairs: NeighbourPairs, messages: HeardMessages) -> Iterator[Question]:
    """Degrees, then edges."""
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
        yield Question(name, DEGREE, truth, paired, messages.sender, pairs.half, pairs.sender)
    both = [*messages.sender, *messages.attacker]
    for name, known in (
        ("edge, one neighbour", messages.other[:1]),
        ("edge, neighbours of both", messages.other),
    ):
        columns, first = (
            [column[pairs.usable] for column in some]
            for some in ([*known, *both], [*known, *messages.sender])
        )
        case = pairs.sender * (int(pairs.other.max()) + 1) + pairs.other
        here = pairs.usable
        yield Question(
            name, EDGE, pairs.is_edge[here], columns, first, pairs.half[here], case[here]
        )


def ratio(columns: list[Ints], truth: Flags, half: Flags) -> Doubles:
    """[slots] log-likelihood ratio of all combinations of some columns, learnt on one half.

    Column by column: how often a combination comes is estimated from its own count and, as if it
    had been seen `SEEN` times more, from that of the combination without the last column.
    """
    score, shares = np.zeros(len(truth)), [np.ones(1), np.ones(1)]
    cells = np.zeros(len(truth), np.int64)
    for column in columns:
        size = int(column.max()) + 1
        if len(shares[0]) * size > COMBINATIONS:
            break  # the network has the rest
        cells = cells * size + column
        every = np.bincount(cells[half], minlength=len(shares[0]) * size).reshape(-1, size) + 0.5
        usual = every / every.sum(axis=1, keepdims=True)
        for number, those in enumerate((half & truth, half & ~truth)):
            count = np.bincount(cells[those], minlength=every.size)
            expected = (shares[number][:, None] * usual).ravel()
            found = count + SEEN * every.size * expected
            shares[number] = found / found.sum()
        score = np.log(shares[0][cells]) - np.log(shares[1][cells])
    return score


def network(columns: list[Ints], truth: Flags, half: Flags) -> Doubles:
    """[slots] scores of a small network on all columns, one-hot, learnt on one half."""
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
    """AUC of the best attacker on the half that it has not learnt on.

    Args:
        own: columns that the attacker has anyway.
    """
    truth, half = question.truth, question.half
    columns, first = [*own, *question.columns], [*own, *question.first]
    with torch.random.fork_rng():  # the network has a seed of its own
        learnt = network(columns, truth, half)
    scores = [ratio(columns, truth, half), ratio(first, truth, half), learnt]
    return max(judged(score, truth, half) for score in scores)


def judged(score: Doubles, truth: Flags, half: Flags) -> float:
    """AUC on the other half."""
    return auc(score[~half & truth], score[~half & ~truth])


def run(scene: Scene) -> Iterator[AuditRow]:
    """By the symbols and opinions of one recorded run."""
    recorded = scene.recorded("classify")
    graph = recorded.graph
    pairs = NeighbourPairs.of(graph, MOST)
    messages = HeardMessages.of(sent_in(recorded), pairs)
    degree = np.log2(1 + graph.degrees[pairs.attacker]).round().astype(np.int64)
    mine = (slots_of(graph, pairs.attacker, pairs.other) >= 0).astype(np.int64)
    for question in questions(pairs, messages):
        scene.say(question.name)
        is_edge = question.kind == EDGE
        own = [degree[pairs.usable], mine[pairs.usable]] if is_edge else [degree]
        truth, judge = question.truth, ~question.half
        if not truth[judge].any() or truth[judge].all() or truth[~judge].all():
            continue
        alone = judged(ratio(own, truth, question.half), truth, question.half)
        several = question.name.endswith("both")
        yield AuditRow(
            attack=ATTACK.name,
            adversary="neighbours of both" if several else "one neighbour",
            about=_ABOUT[question.name],
            measure="AUC",
            estimate=Area(
                best(question, own),
                len(np.unique(question.case[judge & truth])),
                len(np.unique(question.case[judge & ~truth])),
            ),
            chance=alone,
            chance_is="its own degree, and whether w is its own neighbour"
            if is_edge
            else "its own degree",
            note="It learns from one half of all pairs of neighbours. "
            + (
                "The ε of an edge (17 to 21 at the defaults) bounds no AUC below 1."
                if is_edge
                else "The interval counts devices, not pairs."
            ),
        )


_ABOUT = {
    "degree ≤ 1": "degree of v: at most 1, or more; from its symbol and opinions",
    "≤ 5": "degree of v: at most 5, or more; the same",
    "< median": "degree of v: below the median, or not; the same",
    "edge, one neighbour": "edge v-w, from what v sent and the symbol of w",
    "edge, neighbours of both": "edge v-w, from all that v and w sent",
}


def sent_in(recorded: Recorded) -> list[Ints]:
    """[devices] the symbol, and every opinion, of each device; -1 where it sent none."""
    opinions = range(settings_of(recorded.config).opinions)
    return [
        said(recorded, "strict/symbol"),
        *(said(recorded, "strict/opinion", number) for number in opinions),
    ]


ATTACK = Attack(
    name="neighbourhood",
    title="degrees and edges from symbols and opinions",
    run=run,
    profiles=frozenset({"strict"}),
    tasks=frozenset({"classify"}),
)

"""The training of strict links: what its messages tell neighbours, and its noisy sums.

**Neighbours.** They receive random marks and propagated labels; proposals about held-back edges are
left out. *One neighbour* u of v has what v sent to it, and what it sent itself. *All
neighbours of v but w* have everything that v received and sent, and are given what w sent: they
compute v's propagated labels with the public frequencies of random marks, and the exact likelihood
of what v sent, with w among its neighbours or without. The random mark that v takes for its own is
summed over after the first propagated label: it stays on the device.

Attackers are assumed to know the truth about one half of all devices, to learn from, and are
evaluated on the other. *Without* is the same attacker with its own degree alone. Whoever can
predict an edge can infer it: no bound is claimed about edges and degrees. A propagated label has
one: its ε, for any two neighbourhoods of its sender. All neighbours of a device know its first
propagated label before it was randomized, so the frequencies of what was sent certify an ε.

**Sums.** Does one device have these words or others? Small federations with real sums, and a
planted worst case: much changes with the words of one device, the canary. The attacker knows
everything but them: all other data, who is matched with whom, and both candidates. It sees every
opened sum. The sums without noise under the other words are those of a second run, which is given
the sums of the first (`replayed`): so the likelihood ratio is exact, and adaptive as the run is.

- *μ*: largest distance of both candidates in any run, by the noise that is left when the
  tolerated colluders are subtracted and the tolerated devices are absent. Bound: the account;
- *noise that was found* in the opened sums of each stage, beside that of the account;
- *guesses*: the share of cases in which the likelihood ratio of the opened sums, all noise unknown,
  names these words. Bound: the best test between two Gaussians at a distance μ is right in Φ(μ/2)
  of cases.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from lumos.audit.attacker_models import area, evaluated_by_network
from lumos.audit.attacks import attack
from lumos.audit.attacks.neighbours import certified_against_rest
from lumos.audit.harness import (
    KnownHalf,
    Recorded,
    Scene,
    exact_on,
    linked,
    opened_on,
    printed,
    sent_values,
)
from lumos.audit.table import (
    Area,
    AuditRow,
    Exactly,
    NoiseRatio,
    Proportion,
    finding,
    noise_row,
    noise_square,
)
from lumos.exchange.tape import Tape, recording
from lumos.graph import Graph
from lumos.graph.facts import facts_of
from lumos.runs.loop import Federation
from lumos.secagg.noise import Noise, epsilon_for
from lumos.secagg.parameters import FixedPoint
from lumos.strict.features import feature_form
from lumos.strict.guarantees import MESSAGES, SUMS
from lumos.strict.link.stages import MARKS, LinkSchedule
from lumos.strict.messages import MARK, PROPAGATED_LABEL, uses_edge
from lumos.strict.settings import settings_of
from lumos.strict.stages import Stage
from lumos.training.config import Config
from lumos.training.guarantees import EDGE_ADDED_OR_REMOVED, FEATURES_REPLACED
from lumos.training.problem import Problem
from lumos.training.split import Role
from lumos.typing import Doubles, Flags, Ints

SLOTS = 40_000
"""Neighbours that attack, at most."""
PAIRS = 20_000
"""Pairs about which neighbours of both ends are asked, at most."""
AT_ONCE = 4096
OF_BOTH = "one neighbour of both ends"
EXACT = ("all neighbours of one end", "all neighbours of each end")
"""They compute with the true probabilities, and learn from nobody."""


@attack("link-neighbours", "degrees and edges from messages to neighbours", "strict", "link")
def attack_link_neighbours(scene: Scene) -> Iterator[AuditRow]:
    """Yield what the messages of one recorded run tell."""
    recorded = scene.recorded("link")
    halves = KnownHalf.of(recorded.graph, np.empty(0, np.int64))
    sent = sent_by(recorded)
    yield from propagated_label_rows(recorded, sent, halves)
    scene.say("degrees, by one neighbour")
    attackers = one_neighbour(recorded.graph, sent, halves)
    for question, truth in attackers.questions.items():
        own = attackers.evaluated(attackers.own, truth)
        yield finding(
            "one neighbour",
            f"{question}, from random marks and propagated labels",
            "AUC",
            attackers.evaluated(np.hstack([attackers.own, attackers.seen]), truth),
            chance=(own.auc, "the attacker's own degree"),
            note="it knows the truth about half of all devices",
        )
    scene.say("edges, by neighbours")
    for name, (found, without) in third_parties(recorded, sent, halves).items():
        yield finding(
            name,
            "whether two others are linked, from random marks and propagated labels",
            "AUC",
            found,
            chance=(without, "the attacker's own degree" if name == OF_BOTH else "no message"),
            note="" if name in EXACT else "it knows the truth about half of all devices",
        )


def sent_by(recorded: Recorded) -> Ints:
    """Return [devices, rounds] random marks and propagated labels; -1 without neighbours."""
    propagated_labels = len(recorded.tape.messages(PROPAGATED_LABEL.name))
    rounds = [sent_values(recorded, MARK.name)] if recorded.tape.messages(MARK.name) else []
    rounds += [
        sent_values(recorded, PROPAGATED_LABEL.name, number) for number in range(propagated_labels)
    ]
    return np.stack(rounds, axis=1)


# Propagated labels against their ε.


def propagated_label_rows(recorded: Recorded, sent: Ints, halves: KnownHalf) -> Iterator[AuditRow]:
    """Yield what pooled neighbours find of the randomization of propagated labels."""
    strict = settings_of(recorded.config)
    if not strict.propagated_labels:
        return
    wanted = first_propagated_labels(recorded, sent)
    meant = wanted >= 0
    found = certified_against_rest(
        wanted[meant], sent[meant, 1], recorded.run.model.weights["usual"].shape[1]
    )
    if found is not None:
        yield finding(
            "all neighbours of a device",
            "ε that first propagated labels certify, sent against meant, "
            "largest of all random marks",
            "ε",
            found,
            bound=(
                strict.propagated_epsilon,
                f"one propagated label: ε = {strict.propagated_epsilon:g}",
            ),
            knows_mechanism=True,
        )
    guaranteed = printed(recorded.run, EDGE_ADDED_OR_REMOVED, MESSAGES)
    pairs, _ = with_neighbours(recorded.graph, *halves.asked)
    pairs = np.random.default_rng(6).permutation(pairs)[:PAIRS]
    if guaranteed is not None and len(pairs):
        one, other = (edge_ratios(recorded, sent, turned) for turned in (pairs, pairs[:, ::-1]))
        # Given all messages, the propagated labels of both ends are independent: their ratios
        # add up. Those of the end that does not use the edge must be 0.
        yield finding(
            "all neighbours of each end",
            f"{EDGE_ADDED_OR_REMOVED}: largest likelihood ratio of propagated labels of both ends",
            "ε",
            Exactly(float(np.abs(one + other).max()), len(pairs)),
            bound=(
                guaranteed[0],
                f"{EDGE_ADDED_OR_REMOVED}, {MESSAGES}: ε = {guaranteed[0]:g} by the user",
            ),
            knows_mechanism=True,
        )


def first_propagated_labels(recorded: Recorded, sent: Ints) -> Ints:
    """Return [devices] the random mark behind each first propagated label; -1 where it drew one of
    several, and where it has no neighbour."""
    above = _above_usual(recorded, sent, 0, np.arange(len(sent)))
    rows = np.arange(len(sent))
    received = sent[:, 0] >= 0
    above[rows[received], sent[received, 0]] += (
        1  # its own random mark, which all neighbours received
    )
    best = above >= above.max(axis=1, keepdims=True) - 1e-9
    return np.where(received & (best.sum(axis=1) == 1), best.argmax(axis=1), -1)


def _above_usual(recorded: Recorded, sent: Ints, number: int, devices: Ints) -> Doubles:
    """Return [devices, random marks] counts that each received in a round over the edges that it
    uses, less those that are usual for its messages and its own mark; without its own."""
    usual = recorded.run.model.weights["usual"][number]
    received = mark_counts(recorded.graph, sent[:, number], len(usual))[devices]
    messages = received.sum(axis=1) + 1
    above: Doubles = received - messages[:, None] * usual
    return above


def mark_counts(graph: Graph, random_marks: Ints, size: int) -> Doubles:
    """Return [devices, random marks] counts that each device received over the edges it uses."""
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    used = uses_edge(owner, graph.neighbours)
    places = owner[used] * size + random_marks[graph.neighbours[used]]
    counts = np.bincount(places, minlength=graph.devices * size).reshape(-1, size)
    return counts.astype(np.float64)


def edge_ratios(recorded: Recorded, sent: Ints, pairs: Ints) -> Doubles:
    """Return [pairs] log P(propagated labels of v | w is its neighbour) / P(… | it is not).

    Args:
        pairs: [pairs, 2] v and w.
    """
    there = linked(recorded.graph, pairs)
    ratios = np.empty(len(pairs))
    for start in range(0, len(pairs), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        with_w = _log_likelihood(recorded, sent, pairs[some], there[some], more=True)
        ratios[some] = with_w - _log_likelihood(
            recorded, sent, pairs[some], there[some], more=False
        )
    return ratios


def _log_likelihood(
    recorded: Recorded, sent: Ints, pairs: Ints, there: Flags, *, more: bool
) -> Doubles:
    """Return [pairs] log-likelihoods of the propagated labels of v, with (`more`) or without w."""
    strict, usual = settings_of(recorded.config), recorded.run.model.weights["usual"]
    size, (v, w) = usual.shape[1], pairs.T
    rows = np.arange(len(pairs))
    kept = np.exp(strict.propagated_epsilon) / (np.exp(strict.propagated_epsilon) + size - 1)
    other = (1 - kept) / (size - 1)
    # [pairs, random marks] P(what v takes for its own, and what it sent so far).
    own = np.zeros((len(pairs), size))
    own[rows, np.maximum(sent[v, 0], 0)] = 1
    for number in range(1, sent.shape[1]):
        received = mark_counts(recorded.graph, sent[:, number - 1], size)[v]
        received[rows, sent[w, number - 1]] += uses_edge(v, w) * (float(more) - there)
        messages = received.sum(axis=1) + 1
        above = received - messages[:, None] * usual[number - 1]
        # [pairs, own, next]: of those with the most evidence, one at random.
        each = above[:, None, :] + np.eye(size)
        best = each >= each.max(axis=2, keepdims=True) - 1e-9
        meant = np.einsum("po,pon->pn", own, best / best.sum(axis=2, keepdims=True))
        probability = np.where(np.arange(size) == sent[v, number][:, None], kept, other)
        own = meant * probability
    likelihood: Doubles = np.log(own.sum(axis=1))
    return likelihood


# Degrees, by one neighbour.


class NeighbourAttack(NamedTuple):
    """One neighbour u attacks its neighbour v, in many places of the graph."""

    v: Ints
    own: Doubles
    """[cases, 1] logarithm of the degree of u."""
    seen: Doubles
    """[cases, …] what u makes of random marks and propagated labels."""
    questions: dict[str, Flags]
    """[cases] about v."""
    half: Flags
    """[cases] whose truth is known."""

    def evaluated(self, columns: Doubles, truth: Flags) -> Area:
        """Return the AUC over the other half.

        Several neighbours may attack one device: its cases count once in the interval.
        """
        scores = evaluated_by_network(columns, truth, self.half)
        found = area(scores, truth[~self.half])
        devices = self.v[~self.half]
        positives, negatives = (
            len(np.unique(devices[truth[~self.half] == side])) for side in (True, False)
        )
        return Area(found.auc, positives, negatives)


def one_neighbour(
    graph: Graph, sent: Ints, halves: KnownHalf, most: int = SLOTS
) -> NeighbourAttack:
    """Draw edges, and return what one end of each learns of the other."""
    degree = graph.degrees
    owner = np.repeat(np.arange(graph.devices), degree)
    slots = np.random.default_rng(4).permutation(len(owner))[:most]
    u, v = owner[slots], graph.neighbours[slots]
    return NeighbourAttack(
        v=v,
        own=np.log1p(degree[u])[:, None],
        seen=message_columns(sent, u, v),
        questions={
            "degree ≤ 1": degree[v] <= 1,
            "degree ≤ 5": degree[v] <= 5,
            "degree above the median": degree[v] > np.median(degree),
        },
        half=halves.half[v],
    )


def message_columns(sent: Ints, mine: Ints, theirs: Ints) -> Doubles:
    """Return [pairs, …] which messages of two devices are equal, and how usual they are."""
    rounds = sent.shape[1]
    usual = np.stack([np.bincount(row[row >= 0], minlength=sent.max() + 1) + 1.0 for row in sent.T])
    usual /= usual.sum(axis=1, keepdims=True)
    u, v = sent[mine], sent[theirs]
    between = [u[:, i] == v[:, j] for i in range(rounds) for j in range(rounds)]
    within = [x[:, i] == x[:, j] for x in (u, v) for i in range(rounds) for j in range(i)]
    frequent = [np.log(usual[i][v[:, i]]) for i in range(rounds)]
    return np.stack([*between, *within, *frequent], axis=1).astype(np.float64)


# Edges of others.


def third_parties(
    recorded: Recorded, sent: Ints, halves: KnownHalf, most: int = PAIRS
) -> dict[str, tuple[Area, float]]:
    """Return AUCs with and without messages for the question whether two others are linked."""
    graph = recorded.graph
    known, asked = with_neighbours(graph, *halves.known), with_neighbours(graph, *halves.asked)
    pairs, real = np.concatenate([known[0], asked[0]]), np.concatenate([known[1], asked[1]])
    half = np.arange(len(pairs)) < len(known[0])
    found: dict[str, tuple[Area, float]] = {}
    columns = message_columns(sent, pairs[:, 0], pairs[:, 1])
    scores = evaluated_by_network(columns, real, half)
    found["one neighbour of each end"] = area(scores, real[~half]), 0.5
    found[OF_BOTH] = _neighbour_of_both(graph, sent, halves, most)
    # All neighbours of v but w, who also know what w sent: the exact likelihood ratio.
    order = np.random.default_rng(6).permutation(len(asked[0]))[:most]
    some, is_edge = asked[0][order], asked[1][order]
    one, other = (edge_ratios(recorded, sent, turned) for turned in (some, some[:, ::-1]))
    for name, ratio in zip(EXACT, (one, one + other), strict=True):
        found[name] = area(ratio, is_edge), 0.5
    return found


def with_neighbours(graph: Graph, pairs: Ints, real: Flags) -> tuple[Ints, Flags]:
    """Return the pairs of devices that both have neighbours, and which are edges."""
    received = (graph.degrees > 0)[pairs].all(axis=1)
    return pairs[received], real[received]


def _neighbour_of_both(
    graph: Graph, sent: Ints, halves: KnownHalf, most: int
) -> tuple[Area, float]:
    """Return the same for two neighbours of the attacker: with messages, and by its degree."""
    degree = graph.degrees
    owner = np.repeat(np.arange(graph.devices), degree)
    rng = np.random.default_rng(5)
    some = rng.permutation(np.flatnonzero(degree[owner] > 1))[: 2 * most]
    u, v = owner[some], graph.neighbours[some]
    place = graph.offsets[u] + (rng.random(len(some)) * degree[u]).astype(np.int64)
    w = graph.neighbours[place]
    there = v != w
    u, v, w = u[there], v[there], w[there]
    real = linked(graph, np.stack([v, w], axis=1))
    own = np.log1p(degree[u])[:, None]
    columns = np.hstack([own, *(message_columns(sent, *ends) for ends in ((u, v), (u, w), (v, w)))])
    side = halves.half[u]
    with_messages, without = (evaluated_by_network(seen, real, side) for seen in (columns, own))
    return area(with_messages, real[~side]), area(without, real[~side]).auc


# Noisy sums: these words or others.

DEVICES, WORDS, HELD = 120, 96, 32
CANARY = 0
RUNS = 40
ALL = "all sums"


@attack("link-sums", "words from noisy sums of links", "strict", "link")
def attack_link_sums(scene: Scene) -> Iterator[AuditRow]:
    """Yield rows by stage, and for all sums together; nothing where sums have no noise."""
    config = scene.config("link", aggregate="ideal", randomness="seeded", account=None)
    strict = settings_of(config)
    if strict.protect != "noise":
        return
    # Planted features are scaled as those of the graph.
    scaling = feature_form(facts_of(scene.graph), strict)["scaling"]
    config = replace(config, profile_settings=replace(strict, scaling=scaling))
    scene.say(f"{RUNS} planted federations")
    found = guesses(RUNS, config)
    for stage, one in found.items():
        if stage == MARKS:
            continue  # they depend on no words
        yield finding(
            "the coordinator with colluders, who knows all else",
            f"{FEATURES_REPLACED}, by {stage}: largest distance",
            "μ",
            Exactly(one.largest, RUNS),
            bound=(one.account, "the account of the sums"),
            knows_mechanism=True,
            note=f"planted worst case, {DEVICES} devices",
        )
    for stage, one in found.items():
        if stage != ALL:
            adversary = "the coordinator, who knows all else"
            yield noise_row(adversary, f"{stage} (links)", one.noise)
    whole = found[ALL]
    cell = printed(scene.recorded("link").run, FEATURES_REPLACED, SUMS)
    if cell is not None:
        yield finding(
            "the coordinator with colluders, who knows all else",
            "the same, all sums, as ε",
            "ε",
            Exactly(epsilon_for(whole.largest, cell[1]), RUNS),
            bound=(cell[0], f"{FEATURES_REPLACED}, {SUMS}: ({cell[0]:g}, {cell[1]:g})"),
            knows_mechanism=True,
        )
    yield finding(
        "the coordinator, who knows all else",
        f"{FEATURES_REPLACED}, guessed from all opened sums",
        "accuracy",
        Proportion(round(whole.right), RUNS),
        chance=(0.5, "a random bit"),
        bound=(float(ndtr(whole.account / 2)), "Φ(μ/2) of the account"),
        knows_mechanism=True,
        note=f"by all noise it should be {whole.expected:.3f}",
    )


class StageGuesses(NamedTuple):
    """Figures of the sums of one stage, or of all of them, in some runs."""

    account: float
    """μ of the account."""
    largest: float
    """Largest μ of any run, exact."""
    noise: NoiseRatio
    """Deviation of the account by the one that was found."""
    right: float
    """Times that the likelihood ratio names these words; a tie counts half."""
    expected: float
    """Share of times that it should."""


def guesses(runs: int, config: Config) -> dict[str, StageGuesses]:
    """Return guesses by stage, and of all together, over some planted federations."""
    found: dict[str, list[_OneSum]] = {}
    schedule = schedule_of(config)
    for seed in range(runs):
        words, other, edges, held_back = planted(seed)
        first = whole_run(words, edges, held_back, seed, config)
        second = whole_run(other, edges, held_back, seed, config, replayed=first)
        fixed = FixedPoint.of(config.updates, DEVICES)
        sums = zip(
            opened_on(first, fixed), exact_on(first, fixed), exact_on(second, fixed), strict=True
        )
        of_run: dict[str, list[_OneSum]] = {}
        for (stage, step), (total, exact, counter) in zip(schedule.sums, sums, strict=True):
            noise = stage.noise(step)
            if noise is None:
                raise ValueError("sums without noise have no account")
            of_run.setdefault(stage.name, []).append(_of_sum(total, exact, counter, noise))
        of_run[ALL] = [each for some in of_run.values() for each in some]
        for name, some in of_run.items():
            found.setdefault(name, []).append(_OneSum(*np.sum(some, axis=0)))
    return {name: _of_stage(schedule, name, some) for name, some in found.items()}


def schedule_of(config: Config) -> LinkSchedule:
    """Return the schedule of the planted federations, with features scaled as settings say."""
    words, _, edges, _ = planted(0)
    graph = Graph.from_edges(edges, devices=DEVICES, features=words)
    form = feature_form(facts_of(graph), settings_of(config))
    return LinkSchedule(config=config, devices=DEVICES, **form)


def _of_stage(schedule: LinkSchedule, stage: str, some: "list[_OneSum]") -> StageGuesses:
    far, whole_far, better, square, numbers = np.array(some).T
    return StageGuesses(
        account=schedule.mu("features") if stage == ALL else stage_mu(schedule[stage]),
        largest=float(np.sqrt(far.max())),
        noise=NoiseRatio(float(square.sum()), int(numbers.sum())),
        right=float((better > 0).sum() + (better == 0).sum() / 2),
        expected=float(ndtr(np.sqrt(whole_far) / 2).mean()),
    )


class _OneSum(NamedTuple):
    """Evidence of one sum, or of several together, for these words or others."""

    far: float
    """μ², by the noise that is left when colluders' shares are known and some are absent."""
    whole_far: float
    """The same by all noise."""
    better: float
    """Twice the log-likelihood ratio."""
    square: float
    """Σ of squares of the noise that was found, in those that it should have."""
    numbers: float


def _of_sum(total: Doubles, exact: Doubles, other: Doubles, noise: Noise) -> _OneSum:
    moved = float(((exact - other) ** 2).sum())
    found = total - exact
    better = float(((total - other) ** 2).sum() - (found**2).sum())
    left = (noise.sigma * noise.clip) ** 2
    whole_noise = left * noise.devices / (noise.devices - noise.absent)
    square = noise_square(found, noise)
    return _OneSum(moved / left, moved / whole_noise, better / whole_noise, square, len(found))


def stage_mu(stage: Stage) -> float:
    """Return μ of all sums of a stage, for other features."""
    change = stage.sensitivity.features
    noises = [stage.noise(step) for step in range(stage.num_sums)]
    square = sum(
        (change / (noise.sigma * noise.clip)) ** 2 for noise in noises if noise is not None
    )
    return float(np.sqrt(square))


def whole_run(
    words: Any,
    edges: Any,
    held_back: Any,
    seed: int,
    config: Config,
    *,
    replayed: Tape | None = None,
) -> Tape:
    """Train and calibrate a federation of all edges; return everything that passed.

    Args:
        replayed: whose sums the devices get.
    """
    with recording(replayed=replayed) as tape:
        train(federation(words, edges, held_back, seed, config))
    return tape


def federation(
    words: Any, edges: Any, held_back: Any, seed: int, config: Config
) -> "Federation[Any]":
    """Return a small federation of all edges.

    Randomness is the same for any words, and so are matching and random marks.
    """
    graph = Graph.from_edges(edges, devices=len(words), features=words)
    problem = Problem.of(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=np.full(graph.devices, Role.NOBODY),
        held_back=held_back,
        classes=0,
        seed=seed,
        shards=1,
    )
    return Federation(problem, config, transport="recording", randomness="/audit")


def train(made: "Federation[Any]") -> None:
    """Train and calibrate."""
    epochs = made.config.train.epochs
    made.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    made.run(lambda trainer: trainer.epochs(0, epochs), lambda program: program.epochs(0, epochs))
    made.run(lambda trainer: trainer.finish(), lambda program: program.finish())


def planted(seed: int) -> tuple[Any, Any, Any, Any]:
    """Return words of all devices, twice, edges, and held-back edges.

    The canary has the first third of the words or the second. Many others have the first third, so
    that much changes.
    """
    rng = np.random.default_rng(seed)
    words = (rng.random((DEVICES, WORDS)) < 0.25).astype(np.float32)
    words[1:, :HELD] = rng.random((DEVICES - 1, HELD)) < 0.6
    other = words.copy()
    words[CANARY], other[CANARY] = 0, 0
    words[CANARY, :HELD] = 1
    other[CANARY, HELD : 2 * HELD] = 1
    edges = np.stack([np.arange(DEVICES - 1), np.arange(1, DEVICES)], axis=1)
    more = rng.integers(0, DEVICES, (3 * DEVICES, 2))
    edges = np.unique(np.sort(np.concatenate([edges, more[more[:, 0] != more[:, 1]]])), axis=0)
    held_back = np.stack([np.arange(0, DEVICES, 2), np.arange(1, DEVICES, 2)], axis=1)
    return words, other, edges, held_back

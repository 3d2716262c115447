"""These features or others, and one edge: there or not, against the printed cells.

The informed attacker of `strict_replay` knows everything but which of two rows of features a device
has, or whether one edge is there. Two runs that differ in this have sums at an exact distance, and
with it an exact μ: the largest over all devices stands beside the μ of the printed cell. Then it
guesses, by the likelihood ratio of the sums that were really opened: right with probability Φ(μ/2)
at most (Dong, Roth, Su 2022), since both cases are equally likely.

Other rows are those of another device, one word only, and no word at all. Edges are tried many at
once, no two at one device: given what passed, each is a case of its own. Opinions tell of an edge
besides; the largest ratio of the probabilities of all opinions, with the edge and without it,
stands beside what the table counts for them.

It also knows what the sums would be without noise, and so how much noise was in them: stage by
stage beside that of the account.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.special import ndtr

from lumos.aggregate.noise import mu_for
from lumos.audit.attacks import Attack
from lumos.audit.attacks.strict_replay import (
    Transcript,
    changed,
    independent_cases,
    log_likelihood,
    moved,
    replay,
    replay_of,
    share_of,
)
from lumos.audit.attacks.whole_run_label import COLUMNS, INFORMED, simulated, spelled
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Exactly, NoiseRatio
from lumos.audit.noise_row import noise_row, noise_square
from lumos.audit.printed import printed
from lumos.audit.scene import Recorded, Scene
from lumos.encode.label_form import LabelForm
from lumos.encode.mechanisms import Digits, RandomizedResponse
from lumos.graph import Graph
from lumos.training.problem import features_of
from lumos.typing import Doubles, Flags, Ints

FEATURES, EDGE = "features: these or others", "one edge: there or not"


def run(scene: Scene) -> Iterator[AuditRow]:
    """Features, then edges."""
    recorded = simulated(scene)
    replayed = replay_of(recorded)
    if not replayed.schedule.noisy:
        return  # exact sums promise nothing about features, and show all of them
    yield from noise_rows(replayed)
    generator = np.random.default_rng(scene.seed)
    scene.say("other features")
    yield from feature_rows(recorded, replayed, generator)
    scene.say("one edge less")
    yield from edge_rows(recorded, replayed, generator)


def noise_rows(run: Transcript) -> Iterator[AuditRow]:
    """Stage by stage."""
    squares, numbers = dict[str, float](), dict[str, int]()
    for number, part in enumerate(run.parts):
        noise = run.noises[number]
        if noise is not None:
            found = run.noise_of(number)
            squares[part.stage] = squares.get(part.stage, 0.0) + noise_square(found, noise)
            numbers[part.stage] = numbers.get(part.stage, 0) + len(found)
    for stage in squares:
        yield noise_row(ATTACK.name, INFORMED, stage, NoiseRatio(squares[stage], numbers[stage]))


def other_features(graph: Graph, generator: np.random.Generator) -> dict[str, Any]:
    """Rows that a device might have had instead of its own."""
    features: Any = features_of(graph)
    devices, width = features.shape
    single = (np.ones(devices), generator.integers(0, width, devices), np.arange(devices + 1))
    one_word: Any = csr_array(single, shape=(devices, width)).astype(np.float32)
    sparse: bool = issparse(features)
    return {
        "of another device": features[generator.permutation(devices)],
        "one word": one_word if sparse else one_word.toarray(),
        "no word": 0 * features,
    }


def feature_rows(
    recorded: Recorded, run: Transcript, generator: np.random.Generator
) -> Iterator[AuditRow]:
    """The largest μ, and guesses about the rows that move sums most, by role."""
    others = {
        name: replay(run, graph=changed(run.graph, features=rows))
        for name, rows in other_features(run.graph, generator).items()
    }
    distances = {name: moved(run, other) for name, other in others.items()}
    for role, column in COLUMNS.items():
        here = np.flatnonzero(run.roles == role)
        name = max(distances, key=lambda name: float(distances[name][here].max(initial=0)))
        yield from _rows(
            recorded,
            FEATURES,
            column,
            mu=distances[name][here],
            right=log_likelihood(run, others[name])[here] < 0,
            cases=independent_cases(run, others[name], here),
            what=f"features of one of the {column}: its own, or {name} (the worst of three)",
        )


def edge_rows(
    recorded: Recorded, run: Transcript, generator: np.random.Generator
) -> Iterator[AuditRow]:
    """The same of edges between devices of one role, and of opinions."""
    edges = apart(run.graph, generator)
    every = run.graph.edge_list()
    kept = ~np.isin(_keys(every, run.graph.devices), _keys(edges, run.graph.devices))
    without = replay(run, graph=changed(run.graph, edges=every[kept]))
    distances, ratio = moved(run, without, edges), log_likelihood(run, without, edges)
    for role, column in COLUMNS.items():
        # Of its two ends.
        messages = 2 * run.schedule.disclosed(role).opinions
        here = (run.roles[edges] == role).all(axis=1)
        if here.any():
            yield from _rows(
                recorded,
                EDGE,
                column,
                mu=distances[here],
                right=ratio[here] < 0,
                cases=independent_cases(run, without, edges[here]),
                what=f"an edge of two {column}: there, or not, from all sums",
                messages=messages,
            )
    found = opinion_ratios(run, without, edges)
    if found is not None:
        yield AuditRow(
            attack=ATTACK.name,
            adversary=INFORMED,
            about="an edge: there, or not, from all opinions, largest log-likelihood ratio",
            measure="ε",
            estimate=Exactly(float(np.abs(found).max(initial=0)), len(edges)),
            bound=messages,
            bound_is=f"ε of an edge by opinions: 2 · {run.schedule.strict.opinions} · "
            f"{run.schedule.strict.opinion_epsilon:g}",
            knows_mechanism=True,
            note="Computed from what devices received and sent.",
        )


def _rows(
    recorded: Recorded,
    about: str,
    column: str,
    *,
    mu: Doubles,
    right: Flags,
    cases: int,
    what: str,
    messages: float = 0.0,
) -> Iterator[AuditRow]:
    """Largest μ and share of right guesses, against a cell of which messages have a part."""
    cell = printed(recorded.run, about, column)
    bound = None if cell is None or not cell[1] else mu_for(cell[0] - messages, cell[1])
    where = "" if cell is None else f"{about}, {column}, {spelled(cell)}"
    where += f", less ε = {messages:g} by opinions" * (messages > 0)
    yield AuditRow(
        attack=ATTACK.name,
        adversary=INFORMED,
        about=f"{what}, largest distance",
        measure="μ",
        estimate=Exactly(float(mu.max()), len(mu)),
        bound=bound,
        bound_is=where and f"μ of {where}",
        knows_mechanism=True,
        note="Exact: the distance of all vectors in all sums, in units of the noise.",
    )
    if cases:
        yield AuditRow(
            attack=ATTACK.name,
            adversary=INFORMED,
            about=f"{what}, guessed",
            measure="accuracy",
            estimate=share_of(right, cases),
            chance=0.5,
            chance_is="either",
            bound=None if bound is None else float(ndtr(bound / 2)),
            bound_is=where and f"Φ(μ/2) of {where}",
            knows_mechanism=True,
            note=f"{len(mu):,} devices or edges share the noise of one run; they count as "
            f"{cases:,} cases.",
        )


def apart(graph: Graph, generator: np.random.Generator) -> Ints:
    """[edges, 2] edges without a common device: those that come first at both ends by chance."""
    edges = graph.edge_list()
    order = generator.permutation(len(edges))
    first = np.full(graph.devices, len(edges))
    for end in (0, 1):
        np.minimum.at(first, edges[:, end], order)
    chosen: Ints = edges[(first[edges[:, 0]] == order) & (first[edges[:, 1]] == order)]
    return chosen


def opinion_ratios(run: Transcript, without: Transcript, edges: Ints) -> Doubles | None:
    """[edges] log ratio of the probabilities of all opinions, with and without each edge.

    Nobody's evidence but that of the two ends may change with an edge: if it did, that would count.
    None for mechanisms whose messages are not one value.
    """
    mechanism = run.schedule.opinion_mechanism
    if not run.evidence or not isinstance(mechanism, RandomizedResponse | Digits):
        return None
    form = LabelForm.of(mechanism)
    table = form.table(mechanism.epsilon)
    found = np.zeros(len(run.roles))
    for number, sent in enumerate(run.seen.opinions):
        value = form.values(sent)
        with_edge, without_edge = (
            np.log((_chosen(some.evidence[number]) @ table)[np.arange(len(value)), value])
            for some in (run, without)
        )
        found += with_edge - without_edge
    found[run.graph.degrees == 0] = 0  # they send nothing
    ratios: Doubles = found[edges].sum(axis=1)
    return ratios


def _chosen(evidence: Doubles) -> Doubles:
    """[devices, k] probability that each class is the opinion, before it is randomized."""
    best = evidence == evidence.max(axis=1, keepdims=True)
    chances: Doubles = best / best.sum(axis=1, keepdims=True)
    return chances


def _keys(edges: Ints, devices: int) -> Ints:
    keys: Ints = edges.min(axis=1) * devices + edges.max(axis=1)
    return keys


ATTACK = Attack(
    name="features",
    title="features and edges from all sums of a run",
    run=run,
    profiles=frozenset({"strict"}),
    tasks=frozenset({"classify"}),
)

"""Score queries about links: m non-neighbours ask the same devices, and pool the answers.

Questions pass through the protocol of `lumos predict`, over a transport that records. An asker
knows what its program gives it: one level for every answer. Attackers are assumed to know the truth
about one half of all devices, with their answers, and are evaluated on the other half. The budget
is lifted for them: a device answers a few others in its life, so rows of more askers than that are
more than anybody gets.

- *edge*: are two devices linked that were both asked by the same m askers? Neither is an asker. By
  the likelihood ratio of each asker's two levels, added up, and by a network that compares two
  devices and starts from it; the better one counts;
- *degree*: above the median; *words*: mean of the 20 most frequent; *label*.

Whoever can predict an edge can infer it, so no bound is claimed about any of it, but two: a device
gives a limited number of answers however it is asked, and with `query_epsilon` an answer is
randomized.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from lumos.audit.attacker_models import area, comparing, fitted
from lumos.audit.attacks import attack
from lumos.audit.attacks.neighbours import certified_against_rest
from lumos.audit.harness import KnownHalf, Recorded, Scene, counted
from lumos.audit.table import Area, AuditRow, Estimate, Exactly, Mean, Proportion, finding
from lumos.exchange.tape import Tape, recording
from lumos.graph import Graph
from lumos.runs.predict import trained_links
from lumos.strict.guarantees import ANSWERS
from lumos.strict.link.answers import AnswerRecord, halves
from lumos.strict.link.levels import ALONE, COSINES, spec_for
from lumos.strict.link.prediction import LinkResult, answer, ask_new
from lumos.strict.profile import PROFILE
from lumos.training.guarantees import FEATURES_REPLACED
from lumos.training.trainer import AskedPairs
from lumos.twoparty.score import SECRET, UNANSWERED, LevelSpec, levels_of, messages
from lumos.typing import Doubles, Flags, Ints

ASKERS = (1, 4, 16)
SETS = {1: 4, 4: 2}
"""Sets of askers over which a figure is the mean, by the number of askers; otherwise one."""
FREQUENT = 20
QUESTIONS, TIMES = 12, 3
"""Questions of each device, and rounds of them, where all ask as much as they can."""
CALIBRATION_BITS = math.log2(len(COSINES) + 1)


@attack("answers", "edges, degrees, words and labels from answers about links", "strict", "link")
def attack_link_askers(scene: Scene) -> Iterator[AuditRow]:
    """Yield what questions to the devices of one recorded run tell."""
    recorded = scene.recorded("link")
    result = devices_of(recorded)
    scene.say("everybody asks as much as it can")
    yield from limit_rows(recorded, result, scene.seed)
    if result.reading.way == ALONE:
        return  # no device is asked
    askers = some_askers(recorded.graph, max(ASKERS))
    scene.say(f"{len(askers)} askers ask everybody")
    levels = asked_by(result, askers)
    yield from randomized_rows(result, askers, levels)
    about = AttackedDevices.of(recorded.graph, askers)
    for m in ASKERS:
        scene.say(f"{m} askers pool their answers")
        yield from pooled_rows(about, levels, m, halves(result.strict.score_queries)[1])


def devices_of(recorded: Recorded) -> LinkResult:
    """Return the devices of a finished run, as they answer questions."""
    return PROFILE.link_result(trained_links(recorded.run))


def some_askers(graph: Graph, many: int) -> Ints:
    """Draw devices; a tenth of all at most."""
    rng = np.random.default_rng(1)
    return rng.choice(graph.devices, min(many, graph.devices // 10), replace=False)


# The limit of answers.


def limit_rows(recorded: Recorded, result: LinkResult, seed: int) -> Iterator[AuditRow]:
    """Yield the answers, and bits, of the device that gave most, where all ask all they can."""
    calibration = answers_on(recorded.tape, recorded.graph.devices)
    given = flooded(result, seed) if result.reading.way != ALONE else np.zeros_like(calibration)
    limit = result.strict.score_queries
    bits = calibration * CALIBRATION_BITS + given * result.strict.query_bits
    claimed = counted(recorded.run, FEATURES_REPLACED, ANSWERS, "bits")
    for measure, most, bound in (
        ("answers", float((calibration + given).max()), limit or None),
        ("bits", float(bits.max()), claimed if limit else None),
    ):
        yield finding(
            "everybody together",
            f"{measure} of one device, if all ask {TIMES} times, in both orders",
            measure,
            Exactly(most, recorded.graph.devices),
            bound=None if bound is None else (float(bound), f"{FEATURES_REPLACED}, {ANSWERS}"),
        )


def flooded(result: LinkResult, seed: int) -> Ints:
    """Return [devices] answers of each, where everybody asks many others, again and again."""
    devices = len(result.degree)
    rng = np.random.default_rng(seed)
    record = AnswerRecord.of({}, result.budget)
    given = np.zeros(devices, np.int64)
    for _ in range(TIMES):
        pairs = rng.integers(0, devices, (QUESTIONS * devices, 2))
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        # As an attacker may: in both orders, and the same again.
        pairs = np.concatenate([pairs, pairs[: len(pairs) // 4, ::-1], pairs[: len(pairs) // 8]])
        with recording(_nothing) as tape:
            ask_new(result, AskedPairs(pairs=pairs), record, transport="recording")
        given += answers_on(tape, devices)
    return given


def _nothing(*_: Any) -> None:
    """Keep no message of a tape, which counts them in any case."""


def answers_on(tape: Tape, devices: int) -> Ints:
    """Return [devices] scores that each took part in, by its messages and not by its own count."""
    given = np.zeros(devices, np.int64)
    for traffic in tape.traffic:
        if traffic.exchange != tape.last or not traffic.topic.name.startswith(SECRET.name):
            continue
        if traffic.clear:  # both ends send one message
            given += traffic.sent[:devices]
        else:
            spec = LevelSpec(width=1, thresholds=(0,))
            each = len(messages([spec], first=True))
            given += (traffic.sent[:devices] + traffic.received[:devices]) // each
    return given


# Inference from levels.


def asked_by(result: LinkResult, askers: Ints, vectors: Any = None) -> Ints:
    """Return [devices, askers] the levels that askers learn, with their own vectors or these."""
    many, own = len(result.degree), result.vectors
    if vectors is not None:
        own = own.copy()
        own[askers] = vectors
    # Without a limit of score queries, as the docstring of the module says.
    result = replace(result, vectors=own, strict=replace(result.strict, score_queries=0))
    targets = np.setdiff1d(np.arange(many), askers)
    pairs = np.stack([np.repeat(askers, len(targets)), np.tile(targets, len(askers))], axis=1)
    with recording(_nothing):
        found = answer(result, AskedPairs(pairs=pairs), result.budget.copy(), transport="recording")
    learnt = found.levels[:, 0]
    if (learnt == UNANSWERED).any():
        raise ValueError("a question was not answered although there is no limit")
    levels = np.zeros((many, len(askers)), np.int64)
    levels[targets] = learnt.reshape(len(askers), -1).T
    return levels


def randomized_rows(result: LinkResult, askers: Ints, levels: Ints) -> Iterator[AuditRow]:
    """Yield the ε that answers certify, with `query_epsilon`: true levels against others."""
    epsilon = result.strict.query_epsilon
    if math.isinf(epsilon):
        return
    spec = spec_for(result.vectors.shape[1], result.reading.cosines)
    whole = result.vectors.astype(np.int64)
    targets = np.setdiff1d(np.arange(len(whole)), askers)
    # The level before it is randomized: nobody sees it, and answers are evaluated against it.
    truth = levels_of(whole[targets] @ whole[askers].T, spec).ravel()
    sent = levels[targets].ravel()
    # "a was sent" where a is true, and where another level is: a mixture of worlds within ε.
    found = certified_against_rest(truth, sent, spec.levels)
    if found is not None:
        yield finding(
            "one non-neighbour that asks",
            "ε that the frequencies of answers certify, largest of all levels",
            "ε",
            found,
            bound=(epsilon, f"{FEATURES_REPLACED}, {ANSWERS}: ε = {epsilon:g} for each answer"),
            knows_mechanism=True,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackedDevices:
    """The truth that attackers look for."""

    halves: KnownHalf
    labels: Ints | None = field(repr=False)
    degree: Ints = field(repr=False)
    words: Doubles = field(repr=False)
    """[devices, frequent words] 0 or 1."""

    @staticmethod
    def of(graph: Graph, askers: Ints) -> "AttackedDevices":
        """Read the truth of a graph; edges and degrees are those of training."""
        has: Any = graph.features != 0
        frequent = np.argsort(-np.asarray(has.sum(axis=0)).ravel(), kind="stable")[:FREQUENT]
        some: Any = has[:, frequent]
        words = np.asarray(some.toarray() if hasattr(some, "toarray") else some, np.float64)
        labels = None if graph.labels is None else np.asarray(graph.labels)
        return AttackedDevices(
            halves=KnownHalf.of(graph, askers), labels=labels, degree=graph.degrees, words=words
        )


def pooled_rows(about: AttackedDevices, levels: Ints, m: int, others: int) -> Iterator[AuditRow]:
    """Yield what m askers infer together.

    Args:
        others: number of others that a device answers in its life.
    """
    if m > levels.shape[1]:
        return
    found = over_sets(about, levels, m)
    chances: dict[str, tuple[float, str]] = dict.fromkeys(
        ("edge", "degree", "words"), (0.5, "a non-neighbour without answers")
    )
    if about.labels is not None:
        counts = np.bincount(about.labels[about.halves.evaluated & (about.labels >= 0)])
        chances["label"] = float(counts.max() / counts.sum()), "the most frequent label"
    texts = {
        "edge": "whether two others are linked",
        "degree": "degree above the median",
        "words": f"words, mean of {about.words.shape[1]}",
        "label": "label",
    }
    beyond = f"; a device answers {others} others in its life, so this needs the limit lifted"
    for name, (chance, chance_is) in chances.items():
        if name not in found:
            continue
        yield finding(
            ("one non-neighbour that asks" if m == 1 else f"{m} non-neighbours that ask, together"),
            f"{texts[name]}, from {m} answer{'s' * (m > 1)} about each device",
            "accuracy" if name == "label" else "AUC",
            found[name],
            chance=(chance, chance_is),
            note="they know the truth about half of all devices" + beyond * (m > others),
        )


def over_sets(about: AttackedDevices, levels: Ints, m: int) -> dict[str, Estimate]:
    """Return means over sets of m askers; intervals are those of one set, so none is too narrow."""
    many = min(SETS.get(m, 1), levels.shape[1] // m)
    sets = [inferred(levels[:, n * m : n * m + m], about) for n in range(many)]
    return {name: _mean_of([one[name] for one in sets]) for name in sets[0]}


def _mean_of(estimates: Sequence[Estimate]) -> Estimate:
    mean, first = float(np.mean([one.value for one in estimates])), estimates[0]
    if isinstance(first, Area):
        return Area(mean, first.positives, first.negatives)
    if isinstance(first, Proportion):
        return Proportion(round(mean * first.trials), first.trials)
    if isinstance(first, Mean):
        return Mean(mean, first.error, first.trials)
    return first


def one_hot(levels: Ints) -> torch.Tensor:
    """Return [devices, askers · levels] of zeros and ones."""
    size = int(levels.max()) + 1
    return functional.one_hot(torch.from_numpy(levels), size).flatten(1).float()


def inferred(levels: Ints, about: AttackedDevices) -> dict[str, Estimate]:
    """Return everything that levels tell: AUC, and accuracy for labels."""
    inputs = one_hot(levels)
    half, evaluated = about.halves.half, about.halves.evaluated
    found: dict[str, Estimate] = {"edge": _edge_area(inputs, levels, about.halves)}
    known, unknown = torch.from_numpy(half), torch.from_numpy(evaluated)
    big = about.degree > np.median(about.degree)
    targets = np.column_stack([big, about.words])
    logits = fitted(inputs[known], torch.from_numpy(targets[half]).float(), inputs[unknown])
    columns = logits.numpy().astype(np.float64)
    found["degree"] = area(columns[:, 0], big[evaluated])
    by_word = [
        area(scores, held)
        for scores, held in zip(columns[:, 1:].T, (about.words[evaluated] > 0).T, strict=True)
    ]
    by_word = [one for one in by_word if one.trials]
    if by_word:
        # Words of one device depend on one another: the error of a mean is at most the mean of
        # the errors.
        error = float(np.mean([one.error for one in by_word]))
        mean = float(np.mean([one.auc for one in by_word]))
        found["words"] = Mean(mean, error, min(one.trials for one in by_word))
        found["worst word"] = max(by_word, key=lambda one: one.auc)
    if about.labels is not None:
        there, here = half & (about.labels >= 0), evaluated & (about.labels >= 0)
        labels = torch.from_numpy(about.labels.astype(np.int64))
        scores = fitted(inputs[there], labels[there], inputs[here]).argmax(1).numpy()
        found["label"] = Proportion(int((scores == about.labels[here]).sum()), int(here.sum()))
    return found


def _edge_area(inputs: torch.Tensor, levels: Ints, halves: KnownHalf) -> Area:
    (pairs, is_edge), (asked, real) = halves.known, halves.asked
    ratios = level_ratios(levels, pairs, is_edge, asked)
    network = comparing(inputs, pairs, is_edge, ratios.known, asked, ratios.asked)
    return max((area(score, real) for score in (ratios.asked, network)), key=lambda one: one.auc)


class LevelRatios(NamedTuple):
    """Σ over askers of log P(two levels | edge) / P(… | no edge)."""

    known: Doubles
    asked: Doubles


def level_ratios(levels: Ints, pairs: Ints, is_edge: Flags, asked: Ints) -> LevelRatios:
    """Return the ratios of known pairs, and of those that are evaluated by them."""
    size = int(levels.max()) + 1
    totals = LevelRatios(np.zeros(len(pairs)), np.zeros(len(asked)))
    for column in levels.T:
        cells = [column[p].min(axis=1) * size + column[p].max(axis=1) for p in (pairs, asked)]
        counts = [
            np.bincount(cells[0][which], minlength=size * size) + 1.0
            for which in (is_edge, ~is_edge)
        ]
        table = np.log(counts[0] / counts[0].sum()) - np.log(counts[1] / counts[1].sum())
        for total, cell in zip(totals, cells, strict=True):
            total += table[cell]
    return totals

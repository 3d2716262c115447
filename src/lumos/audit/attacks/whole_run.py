"""Attackers that see all sums of a strict run of `classify`: labels, features and edges.

Two attacks share the replayed sums of `lumos.audit.attacks.replay`. The first is about labels:

**Everything but one label.** The informed attacker knows the features, edges and draws of all other
devices, and the device's own features and edges. It takes off what all others added to each sum,
and computes the exact likelihood of every randomized label that the device may have (the chain rule
over all sums is exact: their noise is independent). **Row holders.** The second attacker knows the
words of devices, as a public profile shows them, and no label. A word that few training devices
hold has a row of its own in the counts and in the encoder's sums; what is added to it points to the
label of its holders. Words also point to labels in general, so the same guess about devices that
are in no sum stands beside it. **Draws.** Sums show little of one label, so the draws themselves,
which no message shows, tell whether labels that are never released are randomized. And a label is
not read again once it is drawn: with other labels and the same draws, devices add the same to every
sum.

Whatever they find, a label has its pure ε, because all sums are functions of the randomized label.

The second is about features and edges. Its informed attacker knows everything but which of two rows
of features a device has, or whether one edge is there. Two runs that differ in this have sums at an
exact distance, and with it an exact μ: the largest over all devices stands beside the μ of the
printed cell. Then it guesses, by the likelihood ratio of the sums that were really opened: right
with probability Φ(μ/2) at most (Dong, Roth, Su 2022), since both cases are equally likely.

Other rows are those of another device, one word only, and no word at all. Edges are tried many at
once, no two at one device: given what passed, each is a case of its own. Propagated labels also
tell of an edge; the largest ratio of the probabilities of all propagated labels, with the edge and
without it, stands beside what the table counts for them. This attacker also knows what the sums
would be without noise, and so how much noise was in them: stage by stage beside the account's.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.special import ndtr

from lumos.audit.attacks import attack
from lumos.audit.attacks.neighbours import label_row, raised_odds, shares_of, spelled
from lumos.audit.attacks.replay import (
    Transcript,
    changed,
    independent_cases,
    log_likelihood,
    moved,
    replay,
    replay_of,
    share_of,
)
from lumos.audit.harness import COLUMNS, Recorded, Scene, printed, without_masked_vectors
from lumos.audit.table import (
    CONFIDENCE,
    AuditRow,
    Exactly,
    NoiseRatio,
    Proportion,
    finding,
    noise_row,
    noise_square,
)
from lumos.graph import Graph
from lumos.ldp.labels import LabelForm
from lumos.ldp.mechanisms import Digits, RandomizedResponse
from lumos.secagg.noise import mu_for
from lumos.strict.classify.stages import ENCODER
from lumos.strict.messages import undecided
from lumos.strict.settings import settings_of
from lumos.training.guarantees import EDGE_ADDED_OR_REMOVED, FEATURES_REPLACED, LABEL_REPLACED
from lumos.training.problem import features_of
from lumos.training.split import Role
from lumos.typing import Doubles, Flags, Ints

INFORMED = "whoever knows all but one label"
FEW = 3
UNMOVED = 1e-6
"""A distance, in units of the noise, that stands for none: that of rounding."""


def simulated(scene: Scene) -> Recorded:
    """Return a recorded run with simulated randomness and no account: its draws can be repeated."""
    config = scene.config("classify")
    if config.train.randomness == "seeded" and settings_of(config).account is None:
        return scene.recorded("classify")
    scene.say("recording a run with simulated randomness")
    return scene.record(
        scene.graph, "classify", keep=without_masked_vectors, randomness="seeded", account=None
    )


@attack("whole-run", "labels from all sums of a run", "strict", "classify")
def attack_whole_run_label(scene: Scene) -> Iterator[AuditRow]:
    """Yield the rows of the informed attacker, then of row holders."""
    recorded = simulated(scene)
    replayed = replay_of(recorded)
    scene.say("likelihood of every label in all sums")
    yield from informed_rows(recorded, InformedGuesses.of(replayed))
    yield from row_holders(recorded, replayed)
    yield drawn_row(recorded, replayed)
    yield undrawn_row(replayed)


class InformedGuesses(NamedTuple):
    """Guesses of the informed attacker about every device's label, each device by itself."""

    run: Transcript
    likelihood: Doubles
    """[devices, values] log-likelihood of all sums, if the device had this randomized label;
    the largest is 0."""
    prior: Doubles
    """[k] shares of the labels."""

    @staticmethod
    def of(run: Transcript) -> "InformedGuesses":
        """Replay the run for each value that a randomized label may have."""
        drawn = run.labels
        likelihood = np.stack(
            [
                log_likelihood(
                    run,
                    replay(
                        run,
                        labels=drawn._replace(values=np.where(drawn.values < 0, -1, value)),
                    ),
                )
                for value in range(drawn.form.alphabet)
            ],
            axis=1,
        )
        labels = np.asarray(run.graph.labels)
        counts = np.bincount(labels[labels >= 0], minlength=run.schedule.classes)
        return InformedGuesses(
            run, likelihood - likelihood.max(axis=1, keepdims=True), counts / counts.sum()
        )

    def posterior(self, *, randomized_label: bool, prior: Doubles | None = None) -> Doubles:
        """Return [devices, k] the log-probability of each label, less that of the likeliest.

        Args:
            randomized_label: whether the attacker also received the device's randomized label.
            prior: [k] probabilities of labels; all are equally likely by default.
        """
        schedule = self.run.schedule
        seen = np.exp(self.likelihood)
        if randomized_label:
            randomized_labels = self.run.seen.randomized_labels
            senders = np.flatnonzero(randomized_labels >= 0)
            seen[senders] *= np.eye(seen.shape[1])[randomized_labels[senders]]
        table = schedule.label_form.table(schedule.strict.label_epsilon)  # [label, value]
        with np.errstate(divide="ignore"):
            posterior: Doubles = np.log(seen @ table.T)
            posterior += 0.0 if prior is None else np.log(prior)
        posterior -= posterior.max(axis=1, keepdims=True)
        return posterior

    def right(
        self, role: Role, *, randomized_label: bool, prior: Doubles | None = None
    ) -> np.ndarray:
        """Return [devices of the role] whether the guess is right."""
        guess = self.posterior(randomized_label=randomized_label, prior=prior).argmax(axis=1)
        right: np.ndarray = (guess == self.run.graph.labels)[self.run.roles == role]
        return right


def informed_rows(recorded: Recorded, guesses: InformedGuesses) -> Iterator[AuditRow]:
    """Yield rows by role; for training devices with the randomized label and without it."""
    run = guesses.run
    values = run.labels.values
    other = np.where(values < 0, -1, (values + 1) % run.labels.form.alphabet)
    another = replay(run, labels=run.labels._replace(values=other))
    for role, randomized_label, what in (
        (Role.TRAIN, True, "all sums and its randomized label"),
        (Role.TRAIN, False, "all sums, without its randomized label"),
        (Role.VALIDATION, False, "all sums"),
    ):
        here = np.flatnonzero(run.roles == role)
        labels = np.asarray(run.graph.labels)[here]
        counts = np.bincount(labels, minlength=run.schedule.classes)
        right = guesses.right(role, randomized_label=randomized_label, prior=guesses.prior)
        # Draws of randomized labels are independent; without them the noise decides, which all
        # share.
        cases = len(here) if randomized_label else independent_cases(run, another, here)
        chance = float(counts.max() / counts.sum())
        yield finding(
            INFORMED,
            f"label of one of the {COLUMNS[role]}, from {what}",
            "accuracy",
            share_of(right, cases),
            chance=(chance, "the most frequent label"),
            bound=odds_bound(recorded, role, chance),
            knows_mechanism=True,
            note=f"It knows all other data and draws, and makes no use of what features alone "
            f"tell of a label. {len(here):,} devices share the noise of one "
            f"run; they count as {cases:,} cases.",
        )


def row_holders(recorded: Recorded, run: Transcript) -> Iterator[AuditRow]:
    """Yield the row of the attacker that knows words and no labels, where some word is rare."""
    rare = rare_words(run)
    guess = guesses_by_rows(run, rare)
    labels = np.asarray(run.graph.labels)
    holds = np.asarray((run.rows[:, rare] != 0).sum(axis=1)).ravel() > 0
    here, outside = (
        np.flatnonzero(holds & (run.roles == role)) for role in (Role.TRAIN, Role.TEST)
    )
    if not len(here) or not len(outside):
        return
    right = guess == labels
    without = Proportion(int(right[outside].sum()), len(outside))
    frequent = np.bincount(labels[here]).max() / len(here)
    # Few devices may be outside: the most that the guess may be worth there.
    at_most = max(float(frequent), without.interval(CONFIDENCE)[1])
    yield finding(
        "everybody",
        "label of a training device that holds a word of few, from its rows in all sums",
        "accuracy",
        Proportion(int(right[here].sum()), len(here)),
        chance=(without.value, "the same guess about test devices, which are in no sum"),
        bound=odds_bound(recorded, Role.TRAIN, at_most),
        note=f"It knows the words of devices and who trains, and no label; of few are words of at "
        f"most {FEW} training devices. The bound multiplies by e^ε the largest odds "
        "that the guess may have without.",
    )


def drawn_row(recorded: Recorded, run: Transcript) -> AuditRow:
    """Return the row about labels of validation devices, if their unreleased draws were known."""
    epsilon, form = run.schedule.strict.label_epsilon, run.labels.form
    here = np.flatnonzero(run.roles == Role.VALIDATION)
    labels, values = np.asarray(run.graph.labels)[here], run.labels.values[here]
    prior = shares_of(labels, form.size)
    cell = printed(recorded.run, LABEL_REPLACED, COLUMNS[Role.VALIDATION])
    return label_row(
        "whoever knew a draw that is never sent",
        "label of one of the validation devices, from the label that sums use for it",
        (prior[:, None] * form.table(epsilon))[:, values].argmax(axis=0),
        labels,
        prior,
        (cell, f"{LABEL_REPLACED}, {COLUMNS[Role.VALIDATION]}, {spelled(cell)}"),
        note="No message shows these draws; the simulation repeats them.",
    )


def undrawn_row(run: Transcript) -> AuditRow:
    """Count devices that add anything else if their label is another and its draw is the same."""
    labels, classes = np.asarray(run.graph.labels), run.schedule.classes
    other = np.where(labels < 0, labels, (labels + 1) % classes)
    moves = moved(run, replay(run, graph=changed(run.graph, labels=other)))
    return finding(
        INFORMED,
        "devices whose vectors change with the label, where its draw stays the same",
        "devices",
        Exactly(float((moves > UNMOVED).sum()), len(labels)),
        bound=(0.0, "a label is drawn once and not read again (docs/strict.md)"),
        knows_mechanism=True,
    )


def rare_words(run: Transcript) -> Ints:
    """Return the words that few training devices hold, and one at least."""
    held = np.asarray((run.rows[run.roles == Role.TRAIN] != 0).sum(axis=0)).ravel()
    return np.flatnonzero((held > 0) & (held <= FEW))


def guesses_by_rows(run: Transcript, words: Ints) -> Ints:
    """Return [devices] the label to which the rows of some of a device's words point.

    A device adds to row w and class c of an encoder's sum its value x_w times the slope of c, which
    is negative for the class of its randomized label only. So -Σ_w x_w · sum[w, c] / σ² is matched
    with each class, over all sums of the encoder.
    """
    classes, rows = run.schedule.classes, run.rows[:, words]
    score = np.zeros((rows.shape[0], classes))
    for part, total, noise in zip(run.parts, run.seen.totals, run.noises, strict=True):
        if part.stage == ENCODER:
            spread = 1.0 if noise is None else noise.total
            table = total[: run.rows.shape[1] * classes].reshape(-1, classes)[words]
            score -= np.asarray(rows @ table) / spread**2
    guess: Ints = score.argmax(axis=1)
    return guess


def odds_bound(recorded: Recorded, role: Role, chance: float) -> tuple[float, str] | None:
    """Return the bound that multiplies the odds of the best guess without messages by e^ε.

    Args:
        chance: how often that guess is right, at most.
    """
    cell = printed(recorded.run, LABEL_REPLACED, COLUMNS[role])
    if cell is None:
        return None
    bound = raised_odds(cell[0], chance, recorded.graph.class_count, cell[1])
    return bound, f"{LABEL_REPLACED}, {COLUMNS[role]}, {spelled(cell)}"


# Features replaced, and an edge added or removed, against the printed cells.


@attack("features", "features and edges from all sums of a run", "strict", "classify")
def attack_feature_swap(scene: Scene) -> Iterator[AuditRow]:
    """Yield the rows about noise and features, then about edges."""
    recorded = simulated(scene)
    replayed = replay_of(recorded)
    if not replayed.schedule.noisy:
        return  # exact sums guarantee nothing about features, and show all of them
    yield from noise_rows(replayed)
    generator = np.random.default_rng(scene.seed)
    scene.say("other features")
    yield from feature_rows(recorded, replayed, generator)
    scene.say("one edge less")
    yield from edge_rows(recorded, replayed, generator)


def noise_rows(run: Transcript) -> Iterator[AuditRow]:
    """Yield the noise that was found, stage by stage."""
    squares, numbers = dict[str, float](), dict[str, int]()
    for number, part in enumerate(run.parts):
        noise = run.noises[number]
        if noise is not None:
            found = run.noise_of(number)
            squares[part.stage] = squares.get(part.stage, 0.0) + noise_square(found, noise)
            numbers[part.stage] = numbers.get(part.stage, 0) + len(found)
    for stage in squares:
        yield noise_row(INFORMED, stage, NoiseRatio(squares[stage], numbers[stage]))


def other_features(graph: Graph, generator: np.random.Generator) -> dict[str, Any]:
    """Return rows that a device might have had instead of its own."""
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
    """Yield the largest μ, and guesses about the rows that move sums most, by role."""
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
            FEATURES_REPLACED,
            column,
            mu=distances[name][here],
            right=log_likelihood(run, others[name])[here] < 0,
            cases=independent_cases(run, others[name], here),
            what=f"features of one of the {column}: its own, or {name} (the worst of three)",
            messages=run.schedule.disclosed(role).predicted_labels,
        )
    if len(run.predictions):
        ratios = [predicted_label_ratios(run, other) for other in others.values()]
        yield finding(
            "all neighbours of a device",
            "features: its own, or others, from its predicted label, largest log-likelihood ratio",
            "ε",
            Exactly(float(np.abs(ratios).max(initial=0)), len(run.roles)),
            bound=(
                run.schedule.predicted_epsilon,
                f"ε of features by a predicted label: {run.schedule.predicted_epsilon:g}",
            ),
            knows_mechanism=True,
            note="Computed from what devices predicted and sent.",
        )


def edge_rows(
    recorded: Recorded, run: Transcript, generator: np.random.Generator
) -> Iterator[AuditRow]:
    """Yield the same for edges between devices of one role, and for propagated labels."""
    edges = apart(run.graph, generator)
    every = run.graph.edge_list()
    kept = ~np.isin(_keys(every, run.graph.devices), _keys(edges, run.graph.devices))
    without = replay(run, graph=changed(run.graph, edges=every[kept]))
    distances, ratio = moved(run, without, edges), log_likelihood(run, without, edges)
    for role, column in COLUMNS.items():
        messages = run.schedule.disclosed(role).propagated_labels
        here = (run.roles[edges] == role).all(axis=1)
        if here.any():
            yield from _rows(
                recorded,
                EDGE_ADDED_OR_REMOVED,
                column,
                mu=distances[here],
                right=ratio[here] < 0,
                cases=independent_cases(run, without, edges[here]),
                what=f"an edge of two {column}: there, or not, from all sums",
                messages=messages,
            )
    found, strict = propagated_label_ratios(run, without, edges), run.schedule.strict
    if found is not None:
        yield finding(
            INFORMED,
            "an edge: there, or not, from all propagated labels, largest log-likelihood ratio",
            "ε",
            Exactly(float(np.abs(found).max(initial=0)), len(edges)),
            bound=(
                messages,
                f"ε of an edge by propagated labels: {run.schedule.num_propagated} · "
                f"{strict.propagated_epsilon:g}",
            ),
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
    """Yield the largest μ and the share of right guesses, against a cell less its messages."""
    cell = printed(recorded.run, about, column)
    mu_bound = guess_bound = None
    if cell is not None and cell[1]:
        largest = mu_for(cell[0] - messages, cell[1])
        where = f"{about}, {column}, {spelled(cell)}"
        where += f", less ε = {messages:g} by messages" * (messages > 0)
        mu_bound = largest, f"μ of {where}"
        guess_bound = float(ndtr(largest / 2)), f"Φ(μ/2) of {where}"
    yield finding(
        INFORMED,
        f"{what}, largest distance",
        "μ",
        Exactly(float(mu.max()), len(mu)),
        bound=mu_bound,
        knows_mechanism=True,
        note="Exact: the distance of all vectors in all sums, in units of the noise.",
    )
    if cases:
        yield finding(
            INFORMED,
            f"{what}, guessed",
            "accuracy",
            share_of(right, cases),
            chance=(0.5, "either"),
            bound=guess_bound,
            knows_mechanism=True,
            note=f"{len(mu):,} devices or edges share the noise of one run; they count as "
            f"{cases:,} cases.",
        )


def apart(graph: Graph, generator: np.random.Generator) -> Ints:
    """Return [edges, 2] without a common device: those that come first at both ends by chance."""
    edges = graph.edge_list()
    order = generator.permutation(len(edges))
    first = np.full(graph.devices, len(edges))
    for end in (0, 1):
        np.minimum.at(first, edges[:, end], order)
    chosen: Ints = edges[(first[edges[:, 0]] == order) & (first[edges[:, 1]] == order)]
    return chosen


def propagated_label_ratios(run: Transcript, without: Transcript, edges: Ints) -> Doubles | None:
    """Return [edges] the log ratio of the probabilities of all propagated labels with each edge to
    those without it.

    Nobody's evidence but that of the two ends may change with an edge: if it did, that would count.
    None for mechanisms whose messages are not one value.
    """
    mechanism = run.schedule.propagated_label_mechanism
    if not run.evidence or not isinstance(mechanism, RandomizedResponse | Digits):
        return None
    form = LabelForm.of(mechanism)
    table = form.table(mechanism.epsilon)
    found = np.zeros(len(run.roles))
    for number, sent in enumerate(run.seen.propagated_labels):
        value = form.values(sent)
        with_edge, without_edge = (
            np.log((_chosen(some.evidence[number], form) @ table)[np.arange(len(value)), value])
            for some in (run, without)
        )
        found += with_edge - without_edge
    found[run.graph.degrees == 0] = 0  # they send nothing
    ratios: Doubles = found[edges].sum(axis=1)
    return ratios


def predicted_label_ratios(run: Transcript, other: Transcript) -> Doubles:
    """Return [senders] the log ratio of the probabilities of predicted labels with own features to
    those with others."""
    form = LabelForm.of(run.schedule.predicted_label_mechanism)
    table = form.table(run.schedule.predicted_epsilon)
    sends = (run.seen.randomized_labels < 0) & (run.graph.degrees > 0)
    value = form.values(run.seen.predicted_labels[sends])
    own, others = (np.log(table[some.predictions[sends], value]) for some in (run, other))
    ratios: Doubles = own - others
    return ratios


def _chosen(evidence: Doubles, form: LabelForm) -> Doubles:
    """Return [devices, values] the probability of each propagated label before randomization."""
    classes = evidence.shape[1]
    best = np.zeros((len(evidence), form.size))
    best[:, :classes] = evidence == evidence.max(axis=1, keepdims=True)
    if form.size > classes:  # the last value stands for no class
        best[undecided(evidence)] = np.arange(form.size) == classes
    chances: Doubles = best / best.sum(axis=1, keepdims=True)
    return chances


def _keys(edges: Ints, devices: int) -> Ints:
    keys: Ints = edges.min(axis=1) * devices + edges.max(axis=1)
    return keys

"""What a neighbour learns of a label from the symbol itself, against the cell of the table.

The attacker guesses the likeliest label, given the symbol and how frequent labels are. Beside it
stands the likelihood ratio of what was really received: how much more often a symbol comes from one
label than from another, with the ε that the frequencies certify.
"""

import math
from collections.abc import Iterator

import numpy as np

from lumos.audit.attacks import Attack
from lumos.audit.audit_row import CONFIDENCE, AuditRow
from lumos.audit.estimates import CertifiedEpsilon, Proportion
from lumos.audit.scene import Recorded, Scene
from lumos.audit.views import told
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.settings import settings_of
from lumos.typing import Flags, Ints


def run(scene: Scene) -> Iterator[AuditRow]:
    """By the symbols of one recorded run."""
    recorded = scene.recorded("classify")
    labels, form = np.asarray(recorded.graph.labels), public_schedule(recorded).symbol_form
    # Of the symbol itself: a label that sums use may have a larger ε.
    epsilon = settings_of(recorded.config).epsilon
    bodies, senders = told(recorded.tape, "strict/symbol", recorded.graph.devices)
    here = np.flatnonzero(senders & (labels >= 0))
    symbols = form.values(bodies[here])
    counts = np.bincount(labels[here], minlength=form.size)
    prior = counts / counts.sum()
    guess = (prior[:, None] * form.table(epsilon))[:, symbols].argmax(axis=0)
    yield AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about="label of a training device, from its symbol",
        measure="accuracy",
        estimate=Proportion(int((guess == labels[here]).sum()), len(here)),
        chance=float(prior.max()),
        chance_is="the most frequent label",
        bound=most_right(epsilon, form.size, prior),
        bound_is=f"a symbol has ε = {epsilon:g}",
        knows_mechanism=True,
    )
    yield AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about="ε that the frequencies of its symbol certify, largest of all pairs of labels",
        measure="ε",
        estimate=certified(labels[here], np.eye(form.alphabet, dtype=np.bool_)[symbols]),
        bound=epsilon,
        bound_is=f"a symbol has ε = {epsilon:g}",
        knows_mechanism=True,
    )


def public_schedule(recorded: Recorded) -> ClassifySchedule:
    """The schedule, as far as messages depend on it."""
    return ClassifySchedule(
        config=recorded.config,
        devices=recorded.graph.devices,
        classes=recorded.graph.class_count,
    )


def certified(truth: Ints, named: Flags) -> CertifiedEpsilon:
    """The ε that frequencies certify: the best test "the message names value j" of all pairs.

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


def certified_against_rest(truth: Ints, said: Ints, values: int) -> CertifiedEpsilon | None:
    """The same by "it says a" where a was meant, and where anything else was.

    All else is a mixture of worlds that are each within ε of the first. None, if there is no value
    with cases of both kinds.

    Args:
        truth: [messages] what was randomized.
        said: [messages] what was sent.
        values: how many there are.
    """
    tests = [
        CertifiedEpsilon(
            int(((said == a) & (truth == a)).sum()),
            int((truth == a).sum()),
            int(((said == a) & (truth != a)).sum()),
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
    """The largest accuracy of a guess of one of `classes` labels by messages alone, under (ε, δ).

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
    """The same for an attacker that knows more, and is right without messages with this chance.

    Pure: with P[seen | one] ≤ e^ε P[seen | other], a posterior is at most t(p) =
    p e^ε / (p e^ε + 1 - p) for the prior p of that label, which is concave in p. With δ: let m be
    the probability that c is guessed, and Q the mixture of all other labels. Then m = π P_c[c] +
    (1 - π) Q[c], and P_c[c] ≤ e^ε Q[c] + δ, so π P_c[c] ≤ t(π) (m + (1 - π) e^-ε δ); summed over
    c, at most t(p) (1 + (k - 1) e^-ε δ).
    """
    other = math.exp(-epsilon)
    odds = chance / (chance + (1 - chance) * other)
    return min(1.0, odds * (1 + (classes - 1) * other * delta))


ATTACK = Attack(
    name="symbol",
    title="labels from symbols",
    run=run,
    profiles=frozenset({"strict"}),
    tasks=frozenset({"classify"}),
)

"""What a neighbour learns of a label from the symbol itself, against the cell of the table.

The attacker guesses the symbol: for randomized response that is the best there is. Beside it stands
the likelihood ratio of what was really received: how much more often a symbol comes from one label
than from another, with the ε that the frequencies certify.
"""

import math
from collections.abc import Iterator

import numpy as np

from lumos.audit.attacks import Attack
from lumos.audit.audit_row import CONFIDENCE, AuditRow
from lumos.audit.estimates import CertifiedEpsilon, Proportion
from lumos.audit.scene import Recorded, Scene
from lumos.audit.views import said
from lumos.strict.settings import settings_of
from lumos.typing import Flags, Ints


def run(scene: Scene) -> Iterator[AuditRow]:
    """By the symbols of one recorded run."""
    recorded = scene.recorded("classify")
    yield from rows(recorded, said(recorded, "strict/symbol"), "its symbol")


def rows(recorded: Recorded, symbols: Ints, what: str) -> Iterator[AuditRow]:
    """Rows for [devices] symbols, -1 where a device sent none."""
    labels = np.asarray(recorded.graph.labels)
    here = np.flatnonzero((symbols >= 0) & (labels >= 0))
    classes, epsilon = recorded.graph.class_count, settings_of(recorded.config).sums_epsilon
    counts = np.bincount(labels[here], minlength=classes)
    yield AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about=f"label of a training device, from {what}",
        measure="accuracy",
        estimate=Proportion(int((symbols[here] == labels[here]).sum()), len(here)),
        chance=float(counts.max() / counts.sum()),
        chance_is="the most frequent label",
        bound=most_right(epsilon, classes, counts / counts.sum()),
        bound_is=f"label: this one or another, ε = {epsilon:g}",
        knows_mechanism=True,
    )
    best = certified(labels[here], np.eye(classes, dtype=np.bool_)[symbols[here]])
    yield AuditRow(
        attack=ATTACK.name,
        adversary="one neighbour",
        about=f"ε that the frequencies of {what} certify, largest of all pairs of labels",
        measure="ε",
        estimate=best,
        bound=epsilon,
        bound_is=f"label: this one or another, ε = {epsilon:g}",
        knows_mechanism=True,
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


def most_right(
    epsilon: float, classes: int, prior: np.ndarray | None = None, delta: float = 0.0
) -> float:
    """The largest accuracy of any guess of one of `classes` labels under (ε, δ).

    Pure: with P[seen | one] ≤ e^ε P[seen | other], a posterior is at most t(p) =
    p e^ε / (p e^ε + 1 - p) for the prior p of that label; no prior is larger than the most frequent
    one. With δ: let m be the probability that c is guessed, and Q the mixture of all other labels.
    Then m = π P_c[c] + (1 - π) Q[c], and P_c[c] ≤ e^ε Q[c] + δ, so π P_c[c] ≤
    t(π) (m + (1 - π) e^-ε δ); summed over c, at most t(p) (1 + (k - 1) e^-ε δ).
    """
    p = 1 / classes if prior is None else float(np.max(prior))
    if math.isinf(epsilon):
        return 1.0
    other = math.exp(-epsilon)
    return min(1.0, p / (p + (1 - p) * other) * (1 + (classes - 1) * other * delta))


ATTACK = Attack(
    name="symbol",
    title="labels from symbols",
    run=run,
    profiles=frozenset({"strict"}),
    tasks=frozenset({"classify"}),
)

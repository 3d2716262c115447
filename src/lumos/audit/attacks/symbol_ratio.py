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
from lumos.typing import Ints


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
    joint = np.bincount(labels[here] * classes + symbols[here], minlength=classes**2)
    joint = joint.reshape(classes, classes)
    there = np.flatnonzero(counts)
    tests = [
        CertifiedEpsilon(
            int(joint[one, s]),
            int(counts[one]),
            int(joint[two, s]),
            int(counts[two]),
            tests=classes * len(there) * (len(there) - 1),
        )
        for s in range(classes)
        for one in there
        for two in there
        if one != two
    ]
    best = max(tests, key=lambda test: test.interval(CONFIDENCE)[0])
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


def most_right(epsilon: float, classes: int, prior: np.ndarray | None = None) -> float:
    """The largest accuracy of any guess of one of `classes` labels under pure ε.

    With P[seen | one] ≤ e^ε P[seen | other], a posterior is at most p e^ε / (p e^ε + 1 - p) for the
    prior p of that label; no prior is larger than the most frequent one.
    """
    p = 1 / classes if prior is None else float(np.max(prior))
    if math.isinf(epsilon):
        return 1.0
    return p * math.exp(epsilon) / (p * math.exp(epsilon) + 1 - p)


ATTACK = Attack(
    name="symbol",
    title="labels from symbols",
    run=run,
    profiles=frozenset({"strict"}),
    tasks=frozenset({"classify"}),
)

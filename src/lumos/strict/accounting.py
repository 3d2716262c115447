"""Amounts that a run costs a device, and how much is disclosed in one run or in a life.

**Amounts.** Sums are Gaussian mechanisms: over all runs their μ² add up, adaptively, whatever (ε,
δ) each run was asked for. So the privacy account (`lumos.ldp.account`) keeps μ² of every device for
each question of the table of guarantees. The limit is `lifetime_feature_epsilon`. It holds for the
whole record of a device, and for one of its edges: each of its ends is charged for both.

**Disclosed.** A table of guarantees has the same cells for both: those of a run follow from its
schedule, those of a life from the account. Everything counts what is *seen*: a randomized label
that is sent again for nothing is still seen, so a run has its ε, and only "newly spent" is less.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from lumos.ldp.account import (
    LABELS,
    PREDICTED,
    PROPAGATED,
    QUERIES,
    QUESTIONS,
    AccountLimits,
    PrivacyAccount,
    sums_about,
)
from lumos.strict.settings import StrictSettings
from lumos.typing import Flags


def limits_of(strict: StrictSettings) -> AccountLimits:
    """Return the limits of the devices of a simulation."""
    return AccountLimits(
        lifetime_epsilon=strict.lifetime_epsilon,
        lifetime_propagated_epsilon=strict.lifetime_propagated_epsilon,
        lifetime_feature_epsilon=strict.lifetime_feature_epsilon,
        delta=strict.delta,
        score_queries=strict.score_queries,
    )


def propagated_label_amounts(strict: StrictSettings, number: int) -> dict[str, float]:
    """Return the charge for the propagated labels that a device sends in a run, `number` of them.

    The user of an edge pays for it. Each end is charged, so no end needs to know who that is.
    """
    return {PROPAGATED: number * strict.propagated_epsilon}


def predicted_label_amounts(epsilon: float) -> dict[str, float]:
    """Return the charge for the predicted label that a device sends in a run."""
    return {PREDICTED: epsilon}


def sum_amounts(mu: Mapping[str, float]) -> dict[str, float]:
    """Return the charge for all sums of a run.

    Args:
        mu: of one run, by question.
    """
    return {sums_about(question): value**2 for question, value in mu.items()}


class Disclosed(NamedTuple):
    """The largest amounts of any device of a group."""

    label: float
    """ε of releases."""
    propagated_labels: float
    """ε of propagated labels, of one device."""
    mu: Mapping[str, float]
    """μ of sums, by question."""
    answers: int = 0
    """Score queries about links."""
    predicted_labels: float = 0.0
    """ε of predicted labels."""

    @staticmethod
    def of_account(account: PrivacyAccount, group: Flags) -> "Disclosed":
        """Return the largest totals of a group of devices over all runs."""

        def largest(*kinds: str) -> float:
            totals = np.sum([account.spent(kind) for kind in kinds], axis=0)
            return float(totals[group].max(initial=0))

        with account.transaction():
            return Disclosed(
                label=largest(LABELS),
                propagated_labels=largest(PROPAGATED),
                mu={name: math.sqrt(largest(sums_about(name))) for name in QUESTIONS},
                answers=int(largest(*QUERIES)),
                predicted_labels=largest(PREDICTED),
            )


class AccountView(NamedTuple):
    """The amounts of an account in a table of guarantees, by group of devices."""

    life: Mapping[str, Disclosed]
    newly: Mapping[str, float]
    """ε that the group's labels cost in this run: the largest of any device."""

"""Two tests that tell views of a protocol apart, and how much they can see.

Views are rows of bits, [samples, features].

*Bitwise z-scores.* For each feature the difference of its frequency between the two sets, in
standard errors. With m features and a limit of 5 a sound protocol fails with probability below
m · 6e-7, under 3.6e-4 for the at most 600 features used here.

*A trained distinguisher.* Logistic regression with a ridge, trained on one half and asked about
the other and the other way round, so that every sample is asked about once. Its advantage (right
answers minus one half) has standard error 0.5/√n at chance; 4 of them are allowed. It finds what
is spread over many features; the z-scores find what sits in one.

*Power.* n = 6,250 samples show an advantage of 0.04. A single feature that guesses right with
probability 0.54 stands 6.3 standard errors from chance: its z-score passes 5 in 91 % of runs. A
trained distinguisher whose advantage is 0.04 passes its limit of 0.0253 in 99 % of runs.
`tests/test_distinguisher.py` plants such a feature among 280 and counts. `make evidence` runs the
same tests with n = 25,000 samples (`LUMOS_PRIVACY_SAMPLES`), which show an advantage of 0.02.

"""

import os
from typing import NamedTuple

import numpy as np

SAMPLES = int(os.environ.get("LUMOS_PRIVACY_SAMPLES", "6250"))
SHOWN = 0.04 * (6_250 / SAMPLES) ** 0.5
"""The advantage that so many samples show."""
TWIN_SAMPLES = 600
Z_LIMIT = 5.0
ADVANTAGE_ERRORS = 4.0


class Verdict(NamedTuple):
    """What the two tests found."""

    largest_z: float
    advantage: float
    limit: float

    @property
    def told_apart(self):
        return self.largest_z > Z_LIMIT or self.advantage > self.limit


def z_scores(left, right):
    """Two-sample z per feature; a feature that never varies has z = 0."""
    n, m = len(left), len(right)
    p, q = left.mean(axis=0), right.mean(axis=0)
    pooled = (n * p + m * q) / (n + m)
    variance = pooled * (1 - pooled) * (1 / n + 1 / m)
    found = np.zeros(left.shape[1])
    varies = variance > 0
    found[varies] = (p - q)[varies] / np.sqrt(variance[varies])
    return found


def fit(features, labels):
    """Ridge logistic regression by Newton's method."""
    weights = np.zeros(features.shape[1])
    for _ in range(3):
        chance = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        slope = chance * (1 - chance) + 1e-9
        gradient = features.T @ (labels - chance) - 10 * weights
        curvature = features.T @ (features * slope[:, None])
        curvature[np.diag_indices_from(curvature)] += 10
        weights = weights + np.linalg.solve(curvature, gradient)
    return weights


def distinguish(left, right):
    """Both tests on two sets of views of equal size."""
    assert len(left) == len(right)
    largest = float(np.abs(z_scores(left, right)).max())
    features = np.vstack([left, right]).astype(np.float64) * 2 - 1
    features = np.hstack([features, np.ones((len(features), 1))])
    labels = np.repeat([0.0, 1.0], len(left))
    order = np.random.default_rng(0).permutation(len(labels))
    features, labels = features[order], labels[order]
    half = len(labels) // 2
    right_answers = 0
    for train, ask in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        weights = fit(features[train], labels[train])
        right_answers += int(((features[ask] @ weights > 0) == labels[ask]).sum())
    advantage = right_answers / len(labels) - 0.5
    return Verdict(largest, advantage, ADVANTAGE_ERRORS * 0.5 / len(labels) ** 0.5)


def bits_of(data):
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")


def split(views, labels):
    labels = np.asarray(labels)
    return views[labels == 0], views[labels == 1]


def balanced(count):
    return np.random.default_rng(1).permutation(np.arange(count) % 2)

"""The statistics of the privacy tests can see what they are for."""

import numpy as np
from tests.distinguisher import SAMPLES, SHOWN, balanced, distinguish, split


def test_the_distinguisher_sees_the_advantage_that_is_stated():
    # 279 features of noise and one that gives the label away with probability 0.54.
    randomness = np.random.default_rng(7)
    found = 0
    for _ in range(10):
        labels = balanced(SAMPLES)
        views = randomness.integers(0, 2, (SAMPLES, 280), dtype=np.uint8)
        views[:, 100] = labels ^ (randomness.random(SAMPLES) > 0.5 + SHOWN)
        found += distinguish(*split(views, labels)).told_apart
    assert found >= 7


def test_the_distinguisher_is_at_chance_on_noise():
    randomness = np.random.default_rng(8)
    for _ in range(10):
        views = randomness.integers(0, 2, (4000, 60), dtype=np.uint8)
        assert not distinguish(views[:2000], views[2000:]).told_apart

"""Results of links that were made up, so that questions can be asked without a run."""

from typing import Any

import numpy as np

from lumos.strict.link.answers import AnswerBudget
from lumos.strict.link.levels import TOKENS, Reading, integers, spec_for
from lumos.strict.link.prediction import LinkResult
from lumos.strict.settings import StrictSettings

WIDTH = 24


def result_of(devices: int, seed: int = 0, **settings: Any) -> LinkResult:
    """Random vectors in a few groups, and levels that say something."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, WIDTH))
    vectors = centres[np.arange(devices) % 4] + rng.normal(size=(devices, WIDTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    strict = StrictSettings(**settings)
    levels = 2**strict.query_bits
    kept = {2: (3,), 4: (1, 3, 5), 8: tuple(range(7))}[levels]
    return LinkResult(
        reading=Reading(way=TOKENS, kept=kept, evidence=np.linspace(-1, 2, levels)),
        vectors=integers(vectors),
        embeddings=vectors.astype(np.float32),
        degree=rng.integers(0, 9, devices),
        sent=rng.integers(0, 8, (devices, 2), np.uint8),
        budget=AnswerBudget.unused(devices),
        strict=strict,
        seed=seed,
    )


def levels_by_hand(result: LinkResult, pairs: np.ndarray) -> np.ndarray:
    """[pairs] the oracle: thresholds that the product of both vectors has reached."""
    whole = result.vectors.astype(np.int64)
    products = (whole[pairs[:, 0]] * whole[pairs[:, 1]]).sum(axis=1)
    thresholds = np.array(spec_for(WIDTH, result.reading.cosines).thresholds)
    levels: np.ndarray = (products[:, None] >= thresholds).sum(axis=1)
    return levels

"""Features with Gaussian noise, calibrated exactly (Balle and Wang 2018)."""

import math

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.aggregate.noise import mu_for
from lumos.baselines.settings import BaselineSettings
from lumos.encode.bounds import Features, unit_rows
from lumos.typing import Floats


def sensitivity(low: float) -> float:
    """Largest distance of two vectors of norm at most 1: √2 where none is negative, else 2."""
    return math.sqrt(2) if low >= 0 else 2.0


def noisy_features(
    features: Features, settings: BaselineSettings, generator: np.random.Generator
) -> tuple[Features, float]:
    """Unit rows with Gaussian noise, and its standard deviation Δ/μ(ε, δ)."""
    rows: Features = unit_rows(features)
    if math.isinf(settings.epsilon):
        return rows, 0.0
    sigma = sensitivity(settings.low) / mu_for(settings.epsilon, settings.delta)
    noisy: Floats = generator.standard_normal(rows.shape, np.float32)
    noisy *= np.float32(sigma)
    if issparse(rows):
        matrix = csr_array(rows)
        owner = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        noisy[owner, matrix.indices] += matrix.data
    else:
        noisy += rows
    return noisy, sigma

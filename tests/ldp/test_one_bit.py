"""The mechanism alone: expectation, variance, and the ratio of probabilities."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ldp.formulas import (
    collusion_epsilon,
    probability_of_one,
    recovered,
    recovered_variance,
)

from lumos.errors import UsageError
from lumos.ldp import EncoderSettings
from lumos.ldp.one_bit import (
    COIN,
    MIN_EPSILON,
    element_epsilon,
    largest_bin,
    message_epsilon,
    threshold,
)

WIDTHS = st.integers(1, 5000)
RECEIVERS = st.integers(1, 800)
EPSILONS = st.floats(0.05, 50)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan])
def test_epsilon_must_be_above_zero(epsilon: float) -> None:
    with pytest.raises(UsageError, match="`epsilon` must be above 0"):
        EncoderSettings(epsilon=epsilon)


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1)])
def test_bounds_must_be_a_finite_interval(bounds: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="low < high"):
        EncoderSettings(low=bounds[0], high=bounds[1])


def test_an_epsilon_that_carries_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="too little"):
        element_epsilon(1e-6, np.array([4714]))


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (-2.0, 3.0)])
@pytest.mark.parametrize("each", [0.05, 0.7, 3.0])
def test_recovery_is_unbiased_with_the_closed_variance(a: float, b: float, each: float) -> None:
    x = np.linspace(a, b, 7)
    one = probability_of_one(x, each, a, b)
    values = recovered(np.array([True, False]), each, a, b)
    mean = one * values[0] + (1 - one) * values[1]
    variance = one * values[0] ** 2 + (1 - one) * values[1] ** 2 - mean**2
    np.testing.assert_allclose(mean, x, atol=1e-9)
    np.testing.assert_allclose(variance, recovered_variance(x, each, a, b), rtol=1e-9)


@given(st.floats(MIN_EPSILON, 60), st.floats(0, 1))
def test_randomness_give_the_probability_and_never_more_than_its_ratio(
    each: float, x: float
) -> None:
    ones = [float(threshold(np.array(v), each, 0, 1)) for v in (0.0, x, 1.0)]
    assert ones == sorted(ones)
    assert ones[0] >= 1
    assert abs(ones[1] / COIN - float(probability_of_one(np.array(x), each, 0, 1))) <= 2 / COIN
    # Whole numbers below 2^32: the comparison with e^ε' is exact but for its last rounding.
    assert math.log(ones[2]) - math.log(ones[0]) <= each * (1 + 1e-15)
    zeros = [COIN - ones[2], COIN - ones[0]]
    assert math.log(zeros[1]) - math.log(zeros[0]) <= each * (1 + 1e-15)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize(("width", "receivers"), [(7, 2), (7, 3), (4, 1), (3, 9), (1, 1)])
def test_joint_outputs_of_one_receiver_differ_by_at_most_e_to_epsilon(
    epsilon: float, width: int, receivers: int
) -> None:
    size = int(largest_bin(width, np.array([receivers]))[0])
    each = float(element_epsilon(epsilon, np.array([size]))[0])
    corners = [np.array(x, float) for x in itertools.product([0, 0.3, 1], repeat=size)]
    worst = 0.0
    for output in itertools.product([False, True], repeat=size):
        chances = []
        for x in corners:
            one = threshold(x, each, 0, 1) / COIN
            chances.append(float(np.prod(np.where(output, one, 1 - one))))
        worst = max(worst, max(chances) / min(chances))
    assert worst <= math.exp(epsilon) * (1 + 1e-12)
    assert worst >= math.exp(epsilon) * (1 - 1e-3)  # the budget is used, not wasted


@given(EPSILONS, WIDTHS, RECEIVERS)
def test_no_receiver_gets_more_than_epsilon_and_together_they_get_the_sum(
    epsilon: float, width: int, receivers: int
) -> None:
    rho = np.array([receivers])
    largest = largest_bin(width, rho)
    counts = width // receivers + (np.arange(receivers) < width % receivers)
    spent = message_epsilon(epsilon, counts, np.repeat(largest, receivers))
    assert spent.max() <= epsilon
    together = collusion_epsilon(epsilon, width, rho)[0]
    assert spent.sum() == pytest.approx(together)
    assert together <= receivers * epsilon * (1 + 1e-12)


def test_nobody_receives_nothing_is_spent() -> None:
    assert largest_bin(5, np.array([0, 2])).tolist() == [0, 3]
    assert collusion_epsilon(2.0, 5, np.array([0])).tolist() == [0.0]
    assert collusion_epsilon(math.inf, 5, np.array([0, 1])).tolist() == [0.0, math.inf]

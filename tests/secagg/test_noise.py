"""Noise in sums: the account against integrals, the draws against their distribution."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import kstest, norm

from lumos.device.randomness import PrivateRandomness, simulated_secrets, system_secrets
from lumos.errors import UsageError
from lumos.secagg import AggregateSettings
from lumos.secagg.noise import Noise, clip_factors, delta_of, epsilon_for, mu_for, normal


def hockey_stick(epsilon: float, mu: float) -> float:
    """∫ max(0, p - e^ε q) of N(μ, 1) and N(0, 1), by quadrature."""
    turn = epsilon / mu + mu / 2  # where the two densities meet
    found, _ = quad(
        lambda x: norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), turn, turn + 40, epsabs=1e-13
    )
    return found


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.5, 6.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0, 8.0])
def test_delta_is_the_hockey_stick_divergence(epsilon: float, mu: float) -> None:
    assert delta_of(epsilon, mu) == pytest.approx(hockey_stick(epsilon, mu), rel=1e-6, abs=1e-11)


def test_delta_at_the_ends() -> None:
    assert delta_of(1.0, 0.0) == 0.0
    assert delta_of(0.0, 50.0) == pytest.approx(1.0)
    assert delta_of(800.0, 1.0) == 0.0  # e^800 is no double
    assert 0.49 < delta_of(800.0, 40.0) < 0.51
    last = 1.0
    for epsilon in np.linspace(0, 30, 200):
        now = delta_of(float(epsilon), 2.0)
        assert 0 <= now <= last
        last = now


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0, 50.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01, 0.5])
def test_mu_and_epsilon_are_inverse(epsilon: float, delta: float) -> None:
    mu = mu_for(epsilon, delta)
    assert delta_of(epsilon, mu) <= delta  # from below
    assert delta_of(epsilon, mu * (1 + 1e-6)) > delta
    if delta_of(0.0, mu) > delta:
        assert epsilon_for(mu, delta) == pytest.approx(epsilon, rel=1e-7)
    assert delta_of(epsilon_for(mu, delta), mu) <= delta * (1 + 1e-9)


def test_a_mechanism_that_spends_nothing_has_epsilon_zero() -> None:
    assert epsilon_for(0.0, 1e-5) == 0.0
    assert epsilon_for(1e-6, 1e-5) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-5), (-1.0, 1e-5), (float("nan"), 1e-5), (1.0, 0.0), (1.0, 1.0), (1.0, float("nan"))],
)
def test_an_account_of_nothing_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(UsageError, match="`feature_epsilon`"):
        mu_for(epsilon, delta)


@pytest.mark.usefixtures("must_end")
def test_an_infinite_epsilon_is_refused_and_does_not_hang() -> None:
    import signal

    signal.alarm(3)
    with pytest.raises(UsageError, match="`feature_epsilon`"):
        mu_for(float("inf"), 1e-5)


@pytest.mark.parametrize("steps", [1, 7, 220])
@pytest.mark.parametrize("mu", [0.2, 1.4])
def test_steps_together_spend_what_they_were_given(steps: int, mu: float) -> None:
    settings = AggregateSettings(corrupt=0.1, dropped=0.05)
    noise = Noise.of(mu, steps, 0.3, 1000, settings)
    assert noise.sigma == pytest.approx(math.sqrt(steps) / mu)
    assert math.sqrt(steps * (1 / noise.sigma) ** 2) == pytest.approx(mu)
    # μ² of Gaussian mechanisms adds up: T shifts of 1/σ are one shift of √T/σ in √T dimensions.
    shift = np.full(steps, noise.clip / (noise.sigma * noise.clip))
    assert np.linalg.norm(shift) == pytest.approx(mu)


@pytest.mark.parametrize("absent", [(0.0, 0.0), (0.1, 0.05), (0.3, 0.2)])
def test_the_honest_alone_add_enough(absent: tuple[float, float]) -> None:
    settings = AggregateSettings(corrupt=absent[0], dropped=absent[1])
    noise = Noise.of(1.0, 9, 0.5, 4000, settings)
    honest = 4000 * (1 - sum(absent))
    assert noise.share * math.sqrt(honest) == pytest.approx(noise.sigma * noise.clip)
    assert noise.sigma * noise.clip == pytest.approx(1.5)
    assert noise.total == pytest.approx(noise.share * math.sqrt(4000))
    assert noise.total >= noise.sigma * noise.clip * (1 - 1e-12)


@pytest.mark.parametrize("devices", [1, 2, 3, 7, 60, 1001])
@pytest.mark.parametrize("shares", [(0.0, 0.0), (0.1, 0.05), (0.01, 0.01), (0.5, 0.4)])
def test_the_absent_are_whole_devices_rounded_up(devices: int, shares: tuple[float, float]) -> None:
    corrupt, dropped = shares
    noise = Noise.of(1.0, 4, 0.5, devices, AggregateSettings(corrupt=corrupt, dropped=dropped))
    assert isinstance(noise.absent, int)
    assert 0 <= noise.absent < devices  # somebody is there
    if noise.absent < devices - 1:
        assert noise.absent >= corrupt * devices + dropped * devices - 1e-9
    honest = devices - noise.absent
    assert noise.share == pytest.approx(noise.sigma * noise.clip / math.sqrt(honest))


def test_shares_add_up_to_their_total() -> None:
    """The sum of all devices' shares, number by number, has the standard deviation `total`."""
    devices, width = 200, 3000
    noise = Noise.of(0.7, 5, 0.3, devices, AggregateSettings())
    randomness = PrivateRandomness(simulated_secrets(3, np.arange(devices)))
    shares = noise.shares(randomness, devices, width, 4)
    assert shares.shape == (devices, width)
    assert kstest(shares.sum(axis=0) / noise.total, "norm").pvalue > 1e-4
    assert kstest(shares.ravel() / noise.share, "norm").pvalue > 1e-4
    assert 0 < noise.absent < devices
    honest = shares[: devices - noise.absent].sum(axis=0)
    assert honest.std() == pytest.approx(noise.sigma * noise.clip, rel=0.06)


@pytest.mark.parametrize("width", [1, 2, 7, 100])
def test_normal_numbers_are_normal_and_independent(width: int) -> None:
    devices = 40_000 // width
    randomness = PrivateRandomness(simulated_secrets(1, np.arange(devices)))
    drawn = normal(randomness, np.arange(devices), width, 0)
    assert drawn.shape == (devices, width)
    assert np.isfinite(drawn).all()
    assert kstest(drawn.ravel(), "norm").pvalue > 1e-4
    if width > 1:  # both of a pair, neighbours, and squares: nothing is shared
        for left, right in ((drawn, drawn), (drawn**2, drawn**2)):
            between = np.corrcoef(left.T, right.T)[:width, width:] - np.eye(width)
            assert np.abs(between).max() < 6 / math.sqrt(devices)


def test_noise_is_a_function_of_the_devices_secret_alone() -> None:
    ids = np.arange(50)
    whole = normal(PrivateRandomness(simulated_secrets(9, ids)), ids, 33, 6)
    for shards in (2, 7, 50):
        for number in range(shards):
            hosted = ids[number::shards]
            randomness = PrivateRandomness(simulated_secrets(9, hosted))
            assert np.array_equal(normal(randomness, np.arange(len(hosted)), 33, 6), whole[hosted])
    assert not np.isin(
        normal(PrivateRandomness(simulated_secrets(10, ids)), ids, 33, 6), whole
    ).any()


def test_devices_steps_and_system_secrets_give_other_noise() -> None:
    ids = np.arange(30)
    randomness = PrivateRandomness(simulated_secrets(0, ids))
    steps = [normal(randomness, ids, 20, step) for step in (-3, 0, 1, 2)]
    everything = np.concatenate([drawn.ravel() for drawn in steps])
    assert len(np.unique(everything)) == len(everything)
    one, other = (normal(PrivateRandomness(system_secrets(ids)), ids, 20, 0) for _ in range(2))
    assert not np.isin(one, other).any()


def test_nothing_is_longer_than_the_limit() -> None:
    norms = np.array([0.0, 1e-320, 0.1, 0.3, 0.31, 5.0, 1e300])
    factors = clip_factors(norms, 0.3)
    assert (factors[:4] == 1).all()
    assert_allclose(norms[4:] * factors[4:], 0.3)
    assert (clip_factors(norms, float("inf")) == 1).all()

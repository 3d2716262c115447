"""The account of the updates: what the plan says is spent covers what a device can change."""

import math
from itertools import product

import numpy as np
import pytest
from tests.narrow import present

from lumos.aggregate.noise import epsilon_for, mu_for
from lumos.errors import UsageError
from lumos.strict.neighbour_evidence import ReceivedSymbols, Trust
from lumos.strict.schedule import (
    BACKBONE,
    CANDIDATES,
    CHOICE,
    CODEBOOK,
    ENCODER,
    MATRIX,
    TRUST,
    Schedule,
)
from lumos.training.config import Config


def plan_of(**settings: object) -> Schedule:
    return Schedule(Config.of(profile="strict", **settings), devices=1000, training_devices=500)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("epochs", [(1, 62), (100, 220), (40, 400)])
def test_all_sums_of_a_training_device_spend_what_was_asked_for(
    epsilon: float, epochs: tuple[int, int]
) -> None:
    plan = plan_of(update_epsilon=epsilon, encoder_epochs=epochs[0], epochs=epochs[1])
    square, stages = 0.0, [plan.stage(epoch) for epoch in range(epochs[1])]
    assert stages[: epochs[0]] == [ENCODER] * epochs[0]
    assert set(stages[epochs[0] :]) == {TRUST, BACKBONE}
    for stage in [*stages, MATRIX]:
        noise = plan.noise(stage)
        assert noise is not None
        assert noise.clip == plan.clip(stage)
        square += 1 / noise.sigma**2
    assert math.sqrt(square) == pytest.approx(mu_for(epsilon, 1e-5))
    spent = plan.spent()
    assert spent is not None
    assert spent[1] == 1e-5
    assert epsilon == pytest.approx(spent[0])
    assert epsilon_for(math.sqrt(square), 1e-5) == pytest.approx(spent[0])


def test_a_codebook_is_in_the_account() -> None:
    plan = plan_of(symbol="codebook", update_epsilon=3.0)
    stages = [plan.stage(epoch) for epoch in range(plan.config.train.epochs)]
    parts = [ENCODER] * 100 + [CODEBOOK] * 9 + [TRUST] * 60 + [BACKBONE] * 60
    assert stages == parts  # as long a backbone as with answers
    square = sum(1 / present(plan.noise(stage)).sigma ** 2 for stage in [*stages, MATRIX])
    assert math.sqrt(square) == pytest.approx(mu_for(3.0, 1e-5))
    assert present(plan.spent())[0] == pytest.approx(3.0)
    assert plan.spent_on_edge() == plan_of(update_epsilon=3.0).spent_on_edge()


def test_clipped_vectors_stay_below_the_clip_when_they_are_rounded() -> None:
    """To the grid, every number away from zero by half a step: still no longer than is paid for."""
    plan = plan_of()
    step = 2.0**-plan.config.updates.fraction_bits
    for stage, longest in ((ENCODER, plan.limit(ENCODER)), (TRUST, plan.limit(TRUST)), (MATRIX, 1)):
        assert longest < plan.clip(stage)
        for width in (2, 600, 6 * 3704):
            vector = np.full(width, longest / math.sqrt(width))
            assert np.linalg.norm(vector + step / 2) <= plan.clip(stage)


@pytest.mark.parametrize("stage", [ENCODER, MATRIX, TRUST, BACKBONE, CHOICE])
def test_a_share_of_noise_spans_a_thousand_steps_of_the_grid(stage: str) -> None:
    noise = plan_of().noise(stage)
    assert noise is not None
    assert noise.share * 2.0**24 >= 1000
    if stage in (ENCODER, TRUST, BACKBONE):
        with pytest.raises(UsageError, match=r"`clip` must be 0.05 or more"):
            plan_of(clip=1e-5)


def votes(own: int, second: int, third: int) -> np.ndarray:
    """What one validation device adds to the choice."""
    right = [own, second, third]
    return np.array([*right, second != own, third != own], float)


def test_all_sums_of_a_validation_device_spend_no_more() -> None:
    plan = plan_of()
    noise = plan.noise(CHOICE)
    assert noise is not None
    longest = max(
        np.linalg.norm(votes(*right)) for right in product((0, 1), repeat=len(CANDIDATES))
    )
    assert longest <= plan.clip(CHOICE)
    spent = plan.spent()
    assert spent is not None
    assert epsilon_for(1 / noise.sigma, 1e-5) <= spent[0] * (1 + 1e-9)


@pytest.mark.parametrize("protect", ["holders", "projection", "none"])
def test_exact_sums_promise_nothing(protect: str) -> None:
    plan = plan_of(protect=protect)
    assert plan.spent() is None
    assert plan.spent_on_edge() is None
    assert all(plan.noise(stage) is None for stage in (ENCODER, MATRIX, TRUST, BACKBONE, CHOICE))


def test_an_edge_between_validation_devices_is_in_the_account() -> None:
    """The edge changes what the second and third candidate say, at both ends."""
    plan = plan_of()
    noise, claimed = plan.noise(CHOICE), plan.spent_on_edge()
    assert noise is not None
    assert claimed is not None
    largest = max(
        float(np.linalg.norm(votes(own, *before) - votes(own, *after)))
        for own in (0, 1)
        for before in product((0, 1), repeat=2)
        for after in product((0, 1), repeat=2)
    )
    needed = epsilon_for(2 * largest / (noise.sigma * noise.clip), claimed[1])
    assert claimed[0] >= needed * (1 - 1e-9)


def test_an_edge_between_training_devices_is_in_the_account() -> None:
    """A vector of norm C that an edge turns into another of norm C moves by more than C."""
    plan = plan_of()
    clip, claimed = plan.clip(TRUST), plan.spent_on_edge()
    assert claimed is not None
    # One device has no neighbour, or one; what that says speaks for or against its class.
    own, log = np.array([[0.0, 1.0]]), np.array([[[2.0, -2.0], [-2.0, 2.0]]])
    alone = ReceivedSymbols(np.empty((0, 2)), np.empty(0, np.int64), 1)
    labels, train = np.array([0]), np.array([True])
    moved = 0.0
    for symbol, trust in product(np.eye(2), (0.5, -0.5)):
        joined = ReceivedSymbols(symbol[None, :], np.zeros(1, np.int64), 1)
        weights = np.array([1.0, trust, trust, trust, 0.0, 0.0])
        without, there = (
            Trust(own, [received], log).update(weights, labels, train, clip, each=True)[0]
            for received in (alone, joined)
        )
        assert max(np.linalg.norm(without), np.linalg.norm(there)) <= clip * (1 + 1e-9)
        moved = max(moved, float(np.linalg.norm(without - there)))
    # So at both ends in every epoch of trust; elsewhere as little as the plan counts on.
    square = 0.0
    for stage, steps in ((MATRIX, 1), (TRUST, 60), (BACKBONE, plan.backbone_epochs)):
        noise = plan.noise(stage)
        assert noise is not None
        far = moved / clip if stage == TRUST else 1.0
        square += steps * (2 * far / noise.sigma) ** 2
    assert claimed[0] >= epsilon_for(math.sqrt(square), claimed[1]) * (1 - 1e-9)


def test_too_few_epochs_are_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match=r"`epochs` must be above 160 .* 100 for the encoder, 60"):
        plan_of(epochs=160)
    assert plan_of(epochs=161).backbone_epochs == 1


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"update_epsilon": 0.0}, "`update_epsilon`"),
        ({"update_epsilon": float("nan")}, "`update_epsilon`"),
        ({"update_epsilon": float("inf")}, "`update_epsilon`"),
        ({"update_delta": 0.0}, "`update_delta`"),
        ({"update_delta": 1.0}, "`update_delta`"),
        ({"clip": 0.0}, "`clip`"),
        ({"clip": float("inf")}, "`clip`"),
        ({"encoder_rate": float("nan")}, "`encoder_rate`"),
        ({"min_holders": 0}, "`min_holders`"),
        ({"projection": 0}, "`projection`"),
        ({"encoder_epochs": 0}, "`encoder_epochs`"),
        ({"relay": 1}, "`relay`"),
        ({"relay": 9}, "`relay`"),
        ({"lifetime_epsilon": 0.0}, "`lifetime_epsilon`"),
        ({"protect": "hope"}, "protect"),
        ({"mechanism": "rappor"}, "mechanism"),
        ({"trainers_say": "nothing"}, "trainers.say"),
        ({"relay": "some"}, "`relay`"),
    ],
)
def test_settings_that_promise_nothing_are_refused(
    settings: dict[str, object], option: str
) -> None:
    with pytest.raises(UsageError, match=option):
        Config.of(profile="strict", **settings)

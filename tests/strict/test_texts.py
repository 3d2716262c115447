"""What reports say about strict runs."""

from typing import Any

import pytest

from lumos.strict.schedule import CANDIDATES
from lumos.strict.texts import texts
from lumos.training.config import Config
from lumos.training.texts import LOSS


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({}, {"evidence": 101, "tree network": 161}),
        ({"symbol": "codebook"}, {"codebook": 101, "evidence": 110, "tree network": 170}),
        ({"task": "link"}, {"evidence": 10, "tree network": 70}),
        ({"encoder_epochs": 3, "epochs": 66}, {"evidence": 4, "tree network": 64}),
    ],
)
def test_stages_begin_as_scheduled(settings: dict[str, Any], stages: dict[str, int]) -> None:
    """100 epochs of the encoder or as many as are asked for, 9 of a codebook, 60 of trust."""
    assert texts(Config.of(**settings)).stages == stages


def test_only_noisy_sums_have_a_noisy_loss() -> None:
    assert "may fall below 0" in texts(Config.of()).loss
    assert texts(Config.of(protect="none")).loss == LOSS


def test_every_candidate_is_described() -> None:
    assert set(texts(Config.of()).choices) == set(CANDIDATES)


def test_unused_settings_exist() -> None:
    config = Config.of()
    assert texts(config).unused_settings <= config.flat().keys()
    assert {"balancer", "pool"} <= texts(config).unused_settings

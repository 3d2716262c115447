"""What reports say about strict runs."""

from typing import Any

import pytest

from lumos.strict.classify_schedule import CANDIDATES
from lumos.strict.link_schedule import CANDIDATES as LINK_CANDIDATES
from lumos.strict.texts import texts
from lumos.training.config import Config
from lumos.training.texts import LOSS

BEFORE = {"encoder": 2, "scale": 18, "symbols": 19}


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({}, {**BEFORE, "opinions": 20, "trust": 22}),
        ({"opinions": 0}, {**BEFORE, "trust": 20}),
        ({"opinions": 3}, {**BEFORE, "opinions": 20, "trust": 23}),
        ({"tree_network": True}, {**BEFORE, "opinions": 20, "trust": 22, "tree network": 62}),
        (
            {"encoder_epochs": 3, "epochs": 10},
            {"encoder": 2, "scale": 5, "symbols": 6, "opinions": 7, "trust": 9},
        ),
        ({"task": "link"}, {"trust": 10, "tree network": 70}),
    ],
)
def test_stages_begin_as_scheduled(settings: dict[str, Any], stages: dict[str, int]) -> None:
    """1 epoch of counts, 16 of the encoder, 1 of scale, 1 of symbols, 1 of each opinion."""
    assert texts(Config.of(**settings)).stages == stages


def test_only_noisy_sums_have_a_noisy_loss() -> None:
    assert "may fall below 0" in texts(Config.of()).loss
    assert texts(Config.of(protect="none")).loss == LOSS


def test_every_candidate_is_described() -> None:
    assert {*CANDIDATES, *LINK_CANDIDATES} == set(texts(Config.of()).choices)


def test_unused_settings_exist() -> None:
    config = Config.of()
    assert texts(config).unused_settings <= config.flat().keys()
    assert {"balancer", "pool"} <= texts(config).unused_settings

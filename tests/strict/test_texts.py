"""What reports say about strict runs."""

from typing import Any

import pytest

from lumos.strict.classify.stages import CANDIDATES
from lumos.strict.link.levels import ALONE, WAYS
from lumos.strict.texts import texts
from lumos.training.config import Config
from lumos.training.profile import LOSS

BEFORE = {"encoder": 2, "scale": 18, "randomized_labels": 19}


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({}, {**BEFORE, "propagated_labels": 20, "evidence_weights": 22}),
        ({"propagated_labels": 0}, {**BEFORE, "evidence_weights": 20}),
        ({"propagated_labels": 3}, {**BEFORE, "propagated_labels": 20, "evidence_weights": 23}),
        (
            {"tree_network": True},
            {**BEFORE, "propagated_labels": 20, "evidence_weights": 22, "tree network": 62},
        ),
        (
            {"encoder_epochs": 3, "epochs": 10},
            {
                "encoder": 2,
                "scale": 5,
                "randomized_labels": 6,
                "propagated_labels": 7,
                "evidence_weights": 9,
            },
        ),
        ({"task": "link"}, {"products": 2, "whitening": 6, "random_marks": 7}),
        (
            {"task": "link", "propagated_labels": 0},
            {"products": 2, "whitening": 6, "random_marks": 7},
        ),
        ({"task": "link", "epochs": 7}, {"products": 2, "whitening": 3, "random_marks": 4}),
    ],
)
def test_stages_begin_as_scheduled(settings: dict[str, Any], stages: dict[str, int]) -> None:
    """1 epoch of counts, 16 of the encoder, 1 of scale, 1 of randomized labels, 1 of each
    propagated label."""
    assert texts(Config.of(**settings)).stages == stages


def test_only_noisy_sums_have_a_noisy_loss() -> None:
    assert "may be negative" in texts(Config.of()).loss
    assert texts(Config.of(protect="none")).loss == LOSS


def test_every_candidate_is_described() -> None:
    assert {*CANDIDATES, *WAYS, ALONE} == set(texts(Config.of()).choices)


@pytest.mark.parametrize(
    ("settings", "budget"),
    [
        ({}, "sums (8, 1e-05) · 16 score queries of 2 bits"),
        (
            {"feature_epsilon": 2.5, "score_queries": 0},
            "sums (2.5, 1e-05) · any number of score queries of 2 bits",
        ),
        ({"protect": "none", "query_bits": 3}, "exact sums · 16 score queries of 3 bits"),
    ],
)
def test_the_budget_of_links_names_sums_and_answers(settings: dict[str, Any], budget: str) -> None:
    found = texts(Config.of(task="link", **settings))
    assert (found.budget, found.own) == (budget, "the asker's own degree alone")


def test_unused_settings_exist() -> None:
    config = Config.of()
    assert texts(config).unused_settings <= config.flat().keys()
    assert {"balancer", "pool"} <= texts(config).unused_settings

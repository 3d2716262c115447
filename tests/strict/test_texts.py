"""What reports say about strict runs."""

from typing import Any

import pytest

from lumos.strict.classify.stages import CANDIDATES
from lumos.strict.link.levels import ALONE, WAYS
from lumos.strict.texts import texts
from lumos.training.config import Config
from lumos.training.profile import LOSS

BEGIN = {"randomized_labels": 2}


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({}, {**BEGIN, "propagated_labels": 3, "encoder": 5, "evidence_weights": 21}),
        ({"propagated_labels": 0}, {**BEGIN, "encoder": 3, "evidence_weights": 19}),
        (
            {"propagated_labels": 3},
            {**BEGIN, "propagated_labels": 3, "encoder": 6, "evidence_weights": 22},
        ),
        (
            {"participation": "all", "propagated_labels": 2},
            {
                **BEGIN,
                "propagated_labels": 3,
                "agreement": 4,
                "encoder": 5,
                "predicted_labels": 21,
                "last_propagated_label": 22,
                "evidence_weights": 23,
            },
        ),
        (
            {"tree_network": True},
            {
                **BEGIN,
                "propagated_labels": 3,
                "encoder": 5,
                "evidence_weights": 21,
                "tree network": 61,
            },
        ),
        (
            {"encoder_epochs": 3, "epochs": 10},
            {**BEGIN, "propagated_labels": 3, "encoder": 5, "evidence_weights": 8},
        ),
        ({"task": "link"}, {"random_marks": 2, "associations": 6, "whitening": 7}),
        (
            {"task": "link", "propagated_labels": 0},
            {"random_marks": 2, "associations": 3, "whitening": 4},
        ),
    ],
)
def test_stages_begin_as_scheduled(settings: dict[str, Any], stages: dict[str, int]) -> None:
    """1 epoch of counts, 1 of randomized labels, 1 of each propagated label, 16 of the encoder."""
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

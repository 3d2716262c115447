"""What reports say about the paper's runs."""

from typing import Any

import pytest
from reproduce.reported import LARGEST, claim
from tests.narrow import present

from lumos.paper.profile import MAX_WORKLOAD, run_texts
from lumos.training.config import Config


def test_the_largest_workloads_are_those_of_the_evaluation() -> None:
    reported = claim("workload", LARGEST)
    assert reported is not None
    assert {name: reported.of(name) for name in MAX_WORKLOAD} == MAX_WORKLOAD
    assert set(MAX_WORKLOAD) == {"facebook", "lastfm"}


@pytest.mark.parametrize(
    ("settings", "leaf"),
    [({}, "its features, with noise"), ({"epsilon": float("inf")}, "its features, as they are")],
)
def test_leaves(settings: dict[str, Any], leaf: str) -> None:
    assert present(run_texts(Config.of(profile="paper", **settings)).trees).other_leaf == leaf


def test_a_star_has_no_virtual_nodes() -> None:
    whole, star = (Config.of(profile="paper", virtual_nodes=some) for some in (True, False))
    assert present(run_texts(whole).trees).virtual_nodes
    assert not present(run_texts(star).trees).virtual_nodes

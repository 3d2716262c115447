"""What runs of `link` guarantee: no cell of the table claims more than the run gives."""

import re
from typing import Any

import pytest
from tests.strict.composition import DELTA, epsilon_of
from tests.strict.linking import linked, schedule
from tests.strict.strictly import small

from lumos.strict.guarantees import ANSWERS, MESSAGES, SUMS
from lumos.strict.guarantees import link_guarantees as guarantees
from lumos.strict.guarantees import link_reading as reading
from lumos.strict.guarantees import link_warnings as warnings
from lumos.strict.link.levels import ALONE, BOTH, TOKENS, WAYS, Reading
from lumos.training.guarantees import NO_GUARANTEE as NONE
from lumos.training.guarantees import cells_of

OTHERS, ZEROS, EDGE = (
    "features replaced",
    "contribution to the sums zeroed",
    "edge added or removed",
)


def table(devices: int = 1000, **settings: Any) -> dict[str, dict[str, str]]:
    return {row["about"]: row for row in guarantees(schedule(devices, **settings))}


def epsilon_in(cell: str) -> float:
    found = re.match(r"\(([0-9.]+), ", cell)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("devices", [60, 5000])
def test_sums_guarantee_what_they_cost(epsilon: float, devices: int) -> None:
    """By convolving privacy losses of all sums: the table never says less."""
    made = schedule(devices, feature_epsilon=epsilon)
    rows = table(devices, feature_epsilon=epsilon)
    assert epsilon_in(rows[OTHERS][SUMS]) == pytest.approx(epsilon, rel=1e-3)
    for about, question in ((OTHERS, "features"), (ZEROS, "norm")):
        moves = []
        for stage, step in made.sums:
            noise = stage.noise(step)
            assert noise is not None
            moves.append(getattr(stage.moves, question) / (noise.sigma * noise.clip))
        said = epsilon_in(rows[about][SUMS])
        found = epsilon_of(moves, DELTA)
        assert found <= said * 1.001
        assert said <= found * 1.02 + 0.01
    assert epsilon_in(rows[ZEROS][SUMS]) < epsilon_in(rows[OTHERS][SUMS])


def test_exact_sums_guarantee_nothing() -> None:
    for about in (OTHERS, ZEROS):
        assert table(protect="none")[about][SUMS].startswith(f"{NONE}: exact sums")


@pytest.mark.parametrize(
    "settings", [{}, {"propagated_labels": 0}, {"query_epsilon": 1.0}], ids=str
)
def test_edges_degrees_and_membership(settings: dict[str, Any]) -> None:
    """To predict an edge is to infer it: nothing is guaranteed, but for propagated labels."""
    rows = table(**settings)
    for about in (EDGE, "degree", "device absent"):
        for way in (SUMS, ANSWERS):
            assert rows[about][way].startswith(NONE)
    for about in ("degree", "device absent"):
        assert rows[about][MESSAGES].startswith(NONE)
    propagated_labels = settings.get("propagated_labels", 3)
    assert rows[EDGE][MESSAGES].startswith(f"ε = {4 * propagated_labels:g} ")
    assert f"{NONE} by proposals" in rows[EDGE][MESSAGES]


def test_labels_are_not_used_and_features_pass_no_neighbour() -> None:
    rows = table()
    assert set(cells_of(rows["label replaced"]).values()) == {"not used"}
    assert rows[OTHERS][MESSAGES] == "not used"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "34 bits at most in 16 score queries"),  # 2 of 3 bits, and 14 of 2
        ({"query_bits": 1, "score_queries": 4}, "8 bits at most in 4 score queries"),
        ({"query_bits": 3, "score_queries": 16}, "48 bits at most in 16 score queries"),
        ({"score_queries": 0}, "2 bits for each asker, any number of them"),
        ({"query_epsilon": 0.5}, "ε = 0.5 for each score query, 8 for all of them"),
        (
            {"query_epsilon": 2.0, "score_queries": 0},
            "ε = 2 for each score query, any number of them",
        ),
    ],
)
def test_answers_are_counted(settings: dict[str, Any], words: str) -> None:
    cell = table(**settings)[OTHERS][ANSWERS]
    assert cell.endswith(words)
    assert cell.startswith(NONE) == ("query_epsilon" not in settings)


def test_bits_of_a_run_are_within_those_that_the_table_says() -> None:
    run = linked(small(40), protect="none")
    assert run.ledger.device_comparison_bits.max() <= 2 * 3
    assert run.guarantees == guarantees(schedule(40, protect="none"))


def test_how_to_read_the_table() -> None:
    text = reading(schedule(), 30)
    assert "at most 16 score queries in this run" in text
    assert "in its life" in reading(schedule(account="account"), 30)
    assert "for measuring only" in reading(schedule(score_queries=0), 30)
    assert "semi-honest" in text
    assert "enrolling several devices" in text


def read(way: str) -> Reading:
    import numpy as np

    return Reading(
        way=way,
        kept=(3,),
        evidence=np.zeros(2),
        separation=dict.fromkeys(WAYS, 0.51) | {BOTH: 0.61},
        error=dict.fromkeys(WAYS, 0.12),
    )


def test_warning_says_why_nothing_was_used_and_where_noise_drowns_words() -> None:
    few, many = schedule(200), schedule(50_000)
    assert warnings(many, read(TOKENS), 100) == []
    (drowned,) = warnings(few, read(TOKENS), 4000)
    assert "200 devices are too few for 4,000 tokens" in drowned
    (fell_back,) = warnings(many, read(ALONE), 100)
    assert (
        "score buckets of both tell held-back edges from non-neighbours with an AUC of 0.61 ± 0.12"
        in (fell_back)
    )
    assert len(warnings(few, read(ALONE), 4000)) == 2
    assert warnings(schedule(200, protect="none"), read(TOKENS), 4000) == []

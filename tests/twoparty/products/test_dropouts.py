"""Devices that really stop: the sum opens without exactly the lost pairs, or not at all."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.twoparty.products.pairs import Dying, PairedRun, Problem

from lumos.secagg import AggregateSettings
from lumos.secagg.topics import DRAW_ROUNDS
from lumos.twoparty.product_sums import ATTEMPTS

TOTAL = 12
SETTINGS = AggregateSettings(neighbours=TOTAL - 1, threshold=7, minimum=5)
STAGES = (
    *("opening", "points", "columns", "correction", "ready"),
    *("wrapped", "left-out", "masked", "lost"),
    *("present", "objection", "verdict", "alive", "confirmed", "reveal", "sum"),
)
"""The rounds of a run with one step, after the draw of the mask graph and the agreement on keys."""
BEFORE = DRAW_ROUNDS + 1
STAYS = STAGES.index("verdict")
"""Who falls silent here, or later, is in the sum."""
FIRST = STAGES.index("correction")
"""Where a further attempt begins."""


def matched(problem: Problem, number: int) -> int:
    return problem.pairs()[number][0]


def run(problem: Problem, **interference: Any) -> tuple[PairedRun, list[Any]]:
    paired = PairedRun(
        problem,
        shards=TOTAL,
        settings=SETTINGS,
        toy=True,
        transport=partial(Dying, **interference),
    )
    heard, final = paired.run()
    gone = {*interference.get("deaths", {})}
    for number, got in enumerate(heard):
        if number not in gone:
            assert np.array_equal(got, final)
    return paired, final


def attempts(paired: PairedRun) -> int:
    return paired.made.rounds.count("products/correction")


def without(problem: Problem, gone: list[int], step: int = 0) -> np.ndarray:
    """The oracle: numpy's sum without the pairs of these devices, and without their noise."""
    pairs = [pair for pair in problem.pairs() if not set(pair) & set(gone)]
    there = np.setdiff1d(np.arange(TOTAL), gone)
    return problem.truth(step, SETTINGS.fraction_bits, pairs, there)


@pytest.mark.parametrize("stage", STAGES)
def test_a_matched_device_stops(stage: str) -> None:
    problem, silent = Problem(), STAGES.index(stage)
    device = matched(problem, 1)
    paired, final = run(problem, deaths={device: BEFORE + silent})
    assert np.array_equal(final[0], without(problem, [device] if silent < STAYS else []))
    in_vain = STAGES.index("ready") < silent < STAYS
    assert attempts(paired) == 1 + in_vain


@pytest.mark.parametrize("stage", STAGES[FIRST:])
def test_an_unmatched_device_stops(stage: str) -> None:
    problem, silent = Problem(), STAGES.index(stage)
    device = int(np.flatnonzero(problem.partner < 0)[0])
    paired, final = run(problem, deaths={device: BEFORE + silent})
    assert np.array_equal(final[0], without(problem, [device] if silent < STAYS else []))
    in_vain = STAGES.index("masked") < silent < STAYS
    assert attempts(paired) == 1 + in_vain


@pytest.mark.parametrize("stage", STAGES[FIRST:])
def test_another_device_stops_in_the_second_attempt(stage: str) -> None:
    problem, silent = Problem(), STAGES.index(stage)
    first, second = matched(problem, 0), matched(problem, 3)
    masked = BEFORE + STAGES.index("masked")
    again = BEFORE + STAYS + 1 + silent - FIRST  # after the verdict on the first attempt
    paired, final = run(problem, deaths={first: masked, second: again})
    gone = [first, second] if silent < STAYS else [first]
    assert np.array_equal(final[0], without(problem, gone))
    in_vain = STAGES.index("ready") < silent < STAYS
    assert attempts(paired) == 2 + in_vain


@pytest.mark.parametrize("stage", ["correction", "ready", "present"])
def test_one_direction_of_a_link_is_cut(stage: str) -> None:
    """Both devices live, and what one of them says no longer reaches the other."""
    problem = Problem()
    u, v = problem.pairs()[1]
    paired, final = run(problem, cut=(f"products/{stage}", v, u))
    pairs = [pair for pair in problem.pairs() if pair != (u, v)]
    truth = problem.truth(0, SETTINGS.fraction_bits, pairs, np.arange(TOTAL))
    assert np.array_equal(final[0], truth)  # their noise stays
    assert attempts(paired) == (1 if stage == "correction" else 2)


def test_both_ends_of_a_pair_stop() -> None:
    problem = Problem()
    u, v = problem.pairs()[1]
    masked = BEFORE + STAGES.index("masked")
    paired, final = run(problem, deaths={u: masked, v: masked})
    assert np.array_equal(final[0], without(problem, [u, v]))
    assert attempts(paired) == 1  # nobody is left who would object


def test_later_steps_go_on_without_the_lost_pair() -> None:
    problem = Problem(steps=3)
    device = matched(problem, 1)
    _, final = run(problem, deaths={device: BEFORE + STAGES.index("lost")})
    for step in range(3):
        assert np.array_equal(final[step], without(problem, [device], step))


def test_a_device_in_every_attempt_leaves_everybody_without_the_sum() -> None:
    problem = Problem(total=TOTAL, unmatched=0)
    rounds = STAYS - FIRST + 1
    masked = BEFORE + STAGES.index("masked")
    deaths = {matched(problem, n): masked + n * rounds for n in range(4)}
    assert unopened(problem, deaths)


def test_too_few_devices_open_nothing() -> None:
    problem = Problem()
    masked = BEFORE + STAGES.index("masked")
    assert unopened(problem, dict.fromkeys(range(8), masked))


def unopened(problem: Problem, deaths: dict[int, int]) -> bool:
    """Return whether nobody that is left, nor the coordinator, has any number of the sum."""
    paired = PairedRun(
        problem,
        shards=TOTAL,
        settings=SETTINGS,
        toy=True,
        transport=partial(Dying, deaths=deaths),
    )
    heard, [final] = paired.run()
    left = [heard[device][0] for device in range(TOTAL) if device not in deaths]
    return attempts(paired) == ATTEMPTS and bool(np.isnan([*left, final]).all())

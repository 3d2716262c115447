"""Draws of one label at several levels: laws by counting all randomness, in every order."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chi2
from tests.ldp.mechanisms.counting import at_most

from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.errors import InputError, UsageError
from lumos.ldp.labels import WORDS, LabelDraws, LabelForm, draw
from lumos.ldp.mechanisms import COIN
from lumos.typing import Ints, Words

WHOLE = 1 << 128
FORMS = [LabelForm(2, 1, 2), LabelForm(3, 1, 3), LabelForm(5, 1, 5), LabelForm(7, 2, 3)]
IDS = ["krr 2", "krr 3", "krr 5", "digits 7"]
LEVELS = (0.5, 2.0, 3.0)
Law = dict[tuple[int, int], dict[int, Fraction]]


# All randomness of one draw, counted.


def words(case: list[int], which: list[int]) -> Words:
    """[devices, 8] two numbers of 128 bits each."""
    parts = [
        [number >> shift & 0xFFFFFFFF for number in numbers for shift in (96, 64, 32, 0)]
        for numbers in (case, which)
    ]
    return np.hstack([np.array(part, np.uint32).reshape(-1, 4) for part in parts])


def pieces(outcome: Callable[[list[int]], Ints], many: int) -> list[tuple[list[int], list[int]]]:
    """Starts and lengths [devices] of the intervals of a random bit in which the outcome is
    constant."""
    found, start = [], [0] * many
    while any(place < WHOLE for place in start):
        here = outcome([min(place, WHOLE - 1) for place in start])
        low, high = list(start), [WHOLE] * many
        for _ in range(129):  # outcome(low) is `here`, outcome(high) is not
            middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
            same = outcome([min(place, WHOLE - 1) for place in middle]) == here
            for i, place in enumerate(middle):
                if high[i] - low[i] > 1:
                    (low if same[i] else high)[i] = place
        found.append((start, [b - a for a, b in zip(start, high, strict=True)]))
        start = high
    return found


@cache
def counted(form: LabelForm, epsilon: float, above_epsilon: float, below_epsilon: float) -> Law:
    """Probabilities of x for each pair (above, below) of one place; below is -1 for none."""
    pairs = [
        (above, below)
        for above in range(form.alphabet)
        for below in (range(form.alphabet) if below_epsilon else [-1])
        if below < 0 or above // form.base == below // form.base
    ]
    above, below = np.array(pairs).T

    def outcome(case: list[int], which: list[int]) -> Ints:
        return draw(
            form,
            epsilon,
            words(case, which),
            above=above,
            above_epsilon=above_epsilon,
            below=below if below_epsilon else None,
            below_epsilon=below_epsilon,
        )

    zero = [0] * len(pairs)
    law: Law = {pair: {} for pair in pairs}
    for starts, lengths in pieces(lambda case: outcome(case, zero), len(pairs)):
        case = [min(start, WHOLE - 1) for start in starts]
        for which, widths in pieces(lambda number, case=case: outcome(case, number), len(pairs)):  # type: ignore[misc]
            values = outcome(case, [min(start, WHOLE - 1) for start in which]).tolist()
            for pair, value, length, width in zip(pairs, values, lengths, widths, strict=True):
                share = Fraction(length, WHOLE) * Fraction(width, WHOLE)
                if share:
                    law[pair][value] = law[pair].get(value, Fraction(0)) + share
    assert all(sum(shares.values()) == 1 for shares in law.values())
    return law


@cache
def joint(form: LabelForm, exact: int, order: tuple[float, ...]) -> dict[tuple[int, ...], Fraction]:
    """Of all levels, smallest first, drawn in this order, for the value without noise `exact`."""
    laws: dict[tuple[tuple[float, int], ...], Fraction] = {(): Fraction(1)}
    for epsilon in order:
        longer = {}
        for drawn, chance in laws.items():
            larger = [pair for pair in drawn if pair[0] > epsilon]
            smaller = [pair for pair in drawn if pair[0] < epsilon]
            above_epsilon, above = min(larger, default=(math.inf, exact))
            below_epsilon, below = max(smaller, default=(0.0, -1))
            law = counted(form, epsilon, above_epsilon, below_epsilon)[above, below]
            for value, share in law.items():
                longer[tuple(sorted([*drawn, (epsilon, value)]))] = chance * share
        laws = longer
    return {tuple(value for _, value in drawn): chance for drawn, chance in laws.items()}


def closed_form(
    form: LabelForm, exact: int, levels: tuple[float, ...]
) -> dict[tuple[int, ...], Fraction]:
    """R(y → ỹ_max) · K(ỹ_max → …) · … by exact fractions."""
    base = form.base
    strength = {level: 1 - Fraction(base * form.other(level), COIN) for level in levels}
    strength[math.inf] = Fraction(1)
    digits = range(exact // base * base, exact // base * base + base)
    laws = {}
    for values in product(digits, repeat=len(levels)):
        chance, larger, above = Fraction(1), math.inf, exact
        for level, value in sorted(zip(levels, values, strict=True), reverse=True):
            stays = strength[level] / strength[larger]
            chance *= stays * (value == above) + (1 - stays) / base
            larger, above = level, value
        laws[values] = chance
    return laws


ORDERS = [order for many in (1, 2, 3) for order in permutations(LEVELS, many)]


@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_levels_asked_in_any_order_have_one_law(form: LabelForm) -> None:
    for order in ORDERS:
        for exact in range(form.alphabet):
            expected = closed_form(form, exact, tuple(sorted(order)))
            for values, chance in joint(form, exact, order).items():
                assert abs(chance / expected[values] - 1) < Fraction(1, 1 << 61)


@pytest.mark.parametrize("form", FORMS, ids=IDS)
def test_all_levels_together_cost_the_largest(form: LabelForm) -> None:
    """Exactly, for any two labels, at every place, whatever was asked first."""
    for order in ORDERS:
        for place in range(form.places):
            digits = range(place * form.base, (place + 1) * form.base)
            laws = [joint(form, exact, order) for exact in digits]
            for values in laws[0]:
                chances = [law[values] for law in laws]
                ratio = max(chances) / min(chances)
                assert at_most(ratio.numerator, ratio.denominator, max(order))


def test_levels_a_hair_apart_keep_the_bound() -> None:
    """The smallest probability that whole randomness can have."""
    form, order = LabelForm(3, 1, 3), (2.0, 2.0 + 2e-9)
    assert form.other(order[0]) - form.other(order[1]) in (1, 2)
    laws = [joint(form, exact, order) for exact in range(3)]
    for values in laws[0]:
        chances = [law[values] for law in laws]
        ratio = max(chances) / min(chances)
        assert at_most(ratio.numerator, ratio.denominator, max(order))


def test_levels_with_the_same_randomness_have_the_same_draws() -> None:
    form, randomness = LabelForm(3, 1, 3), words([WHOLE - 1] * 3, [0] * 3)
    assert form.other(40.0) == form.other(50.0)
    above = np.arange(3)
    assert_array_equal(draw(form, 40.0, randomness, above=above, above_epsilon=50.0), above)
    below = (above + 1) % 3
    again = draw(form, 50.0, randomness, above=above, below=below, below_epsilon=40.0)
    assert_array_equal(again, below)
    with pytest.raises(InputError, match="contradict"):
        draw(
            form, 45.0, randomness, above=above, above_epsilon=50.0, below=below, below_epsilon=40.0
        )


def test_other_places_and_levels_out_of_order_are_refused() -> None:
    form, randomness = LabelForm(7, 2, 3), words([0], [0])
    with pytest.raises(InputError, match="different places"):
        draw(form, 2.0, randomness, above=np.array([1]), below=np.array([4]), below_epsilon=1.0)
    with pytest.raises(UsageError, match="must be between 0 and 2, got 3"):
        draw(form, 3.0, randomness, above=np.array([1]), above_epsilon=2.0)


@pytest.mark.parametrize("form", FORMS[:3], ids=IDS[:3])
def test_one_coin_with_two_thresholds_tells_the_label(form: LabelForm) -> None:
    """The broken twin: draws at 2 and 3 from the same randomness."""
    generator = np.random.default_rng(1)
    randomness = generator.integers(0, COIN, (20_000, WORDS), dtype=np.uint32)
    labels = np.arange(20_000) % form.size
    weak, strong = (draw(form, epsilon, randomness, above=labels) for epsilon in (2.0, 3.0))
    differ = weak != strong
    assert differ.mean() > 0.05
    assert_array_equal(strong[differ], labels[differ])
    # Draws that one label has often and another never: no ε bounds that.
    pairs = np.zeros((form.size, form.size, form.size))
    np.add.at(pairs, (labels, weak, strong), 1)
    assert pairs[0, 1, 0] > 100
    assert pairs[1, 1, 0] == 0
    # In the chain, from the same beginning, every label has all of them.
    fresh = generator.integers(0, COIN, (20_000, WORDS), dtype=np.uint32)
    chained = draw(form, 3.0, fresh, above=labels, below=weak, below_epsilon=2.0)
    counts = np.zeros_like(pairs)
    np.add.at(counts, (labels, weak, chained), 1)
    assert (counts > 0).all()


# Many devices.

DEVICES = 60_000


def some(form: LabelForm, seed: int = 0, many: int = DEVICES) -> LabelDraws:
    rows = np.arange(many)
    randomness = PrivateRandomness(simulated_secrets(seed, rows))
    return LabelDraws.first(form, rows % form.size, randomness, rows)


@pytest.mark.parametrize("form", FORMS, ids=IDS)
@pytest.mark.parametrize(
    "order", [(3.0, 0.5, 2.0), pytest.param((0.5, 2.0, 3.0), marks=pytest.mark.long)]
)
def test_frequencies_are_those_of_the_chain(form: LabelForm, order: tuple[float, ...]) -> None:
    draws = some(form)
    for epsilon in order:
        draws.at(epsilon)
    values = draws.at(*LEVELS)
    places = values // form.base
    assert (places == places[0]).all()
    statistic, freedom = 0.0, 0
    for label, place in product(range(form.size), range(form.places)):
        here = values[:, draws.labels == label]
        expected_all = (draws.labels == label).sum() / form.places
        exact = int(form.at(np.array([label]), np.array([place]))[0])
        for drawn, chance in closed_form(form, exact, LEVELS).items():
            expected = float(chance) * expected_all
            count = (here == np.array(drawn)[:, None]).all(axis=0).sum()
            statistic += (count - expected) ** 2 / expected
            freedom += 1
    assert statistic < chi2.ppf(1 - 1e-5, freedom - form.size)
    for level, row in zip(LEVELS, values, strict=True):
        shares = np.zeros((form.size, form.alphabet))
        np.add.at(shares, (draws.labels, row), 1)
        shares /= shares.sum(axis=1, keepdims=True)
        assert np.abs(shares - form.table(level)).max() < 0.02


def test_devices_with_different_histories_are_drawn_together() -> None:
    """Each as if it were alone: what another device has drawn has no influence."""
    form = FORMS[3]
    alone = [some(form, many=6) for _ in range(3)]
    for draws, order in zip(alone, [(3.0, 0.5), (0.5, 3.0), (2.0,)], strict=True):
        draws.at(order[0])
        draws.at(*order)
    mixed = some(form, many=6)
    for level in LEVELS:
        rows = [draws.levels.get(level, np.full(6, -1)) for draws in alone]
        mixed.levels[level] = np.concatenate(
            [row[i : i + 2] for row, i in zip(rows, (0, 2, 4), strict=True)]
        )
    together = mixed.at(*LEVELS)
    for number, draws in enumerate(alone):
        here = slice(2 * number, 2 * number + 2)
        assert_array_equal(together[:, here], draws.at(*LEVELS)[:, here])


def test_lower_levels_do_not_read_the_label() -> None:
    draws = some(FORMS[3], many=2000)
    draws.at(3.0)
    poisoned = LabelDraws(
        form=draws.form,
        labels=np.zeros_like(draws.labels),
        randomness=draws.randomness,
        rows=draws.rows,
        changes=draws.changes,
        levels={3.0: draws.levels[3.0].copy()},
    )
    assert_array_equal(poisoned.at(0.5, 2.0), draws.at(0.5, 2.0))


def test_the_same_levels_are_never_drawn_twice() -> None:
    draws = some(FORMS[2], many=500)
    first = draws.at(3.0, 2.0)
    assert_array_equal(draws.at(2.0, 3.0), first[::-1])
    assert draws.has(2.0, 3.0)
    assert not draws.has(2.5)
    assert_array_equal(draws.at(2.5, 3.0)[1], first[0])
    assert_array_equal(some(FORMS[2], many=500).at(2.0, 3.0), first[::-1])  # one call, any order


def test_no_randomness_are_used_twice() -> None:
    used: list[tuple[str, int]] = []

    class Listed(PrivateRandomness):
        def words(self, rows: Ints, purpose: str, step: int, count: int) -> Words:
            used.append((purpose, step))
            return super().words(rows, purpose, step, count)

    rows = np.arange(6)
    randomness = Listed(simulated_secrets(0, rows))
    for form, classes, changes in [
        (FORMS[2], "", rows % 2),
        (FORMS[2], "names", rows * 0),
        (FORMS[1], "", rows * 0),
    ]:
        LabelDraws(
            form=form,
            labels=rows % 2,
            randomness=randomness,
            rows=rows,
            changes=changes,
            classes=classes,
        ).at(2.0, 3.0, 2.5)
    assert len(used) == len(set(used)) == 12


@pytest.mark.parametrize("epsilons", [(), (0.0,), (2.0, math.inf), (math.nan,)])
def test_levels_that_cannot_be_drawn_are_refused(epsilons: tuple[float, ...]) -> None:
    draws = some(FORMS[0], many=3)
    with pytest.raises(UsageError):
        draws.at(*epsilons)
    assert draws.levels == {}


def test_labels_out_of_range_are_refused_and_not_shown() -> None:
    rows = np.arange(2)
    randomness = PrivateRandomness(simulated_secrets(0, rows))
    with pytest.raises(UsageError, match=r"^labels must be in 0 … 4$"):
        LabelDraws.first(FORMS[2], np.array([4, 5]), randomness, rows)
    assert "[" not in repr(some(FORMS[2], many=3))

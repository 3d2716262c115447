"""The values of a label: their table against the mechanisms' randomness."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from lumos.errors import ProtocolError, UsageError
from lumos.ldp.labels import LabelForm
from lumos.ldp.mechanisms import COIN, make_mechanism

KRR, DIGITS = LabelForm(5, 1, 5), LabelForm(7, 2, 3)


@pytest.mark.parametrize(("name", "size"), [("krr", 2), ("krr", 5), ("digits", 18), ("digits", 64)])
def test_the_form_is_the_mechanisms(name: str, size: int) -> None:
    mechanism = make_mechanism(size, 1.0, name)
    form = LabelForm.of(mechanism)
    assert (form.size, form.alphabet, form.width) == (size, mechanism.alphabet, mechanism.width)
    assert form.other(1.0) == mechanism.other
    randomness = np.random.default_rng(0).integers(
        0, COIN, (500, mechanism.randomness), dtype=np.uint32
    )
    released = mechanism.release(np.arange(500) % size, randomness)
    values = form.values(released)
    assert_array_equal(values, mechanism.read(released).argmax(axis=1))
    assert_array_equal(form.messages(values), released)


def test_a_message_out_of_range_is_refused() -> None:
    with pytest.raises(ProtocolError):
        KRR.values(np.array([[5]], np.uint8))


def test_the_table_of_randomized_response() -> None:
    mechanism = make_mechanism(5, 1.5, "krr")
    table = KRR.table(1.5)
    assert_allclose(table.diagonal(), mechanism.truth / COIN, rtol=1e-15)
    assert_allclose(table[~np.eye(5, dtype=bool)], mechanism.other / COIN, rtol=1e-15)
    assert KRR.strength(1.5) == pytest.approx((math.exp(1.5) - 1) / (math.exp(1.5) + 4), rel=1e-8)
    assert_array_equal(KRR.table(math.inf), np.eye(5))
    assert KRR.strength(math.inf) == 1


def test_the_table_of_digits_counts_randomness() -> None:
    """7 classes in base 3: class 5 is 2 + 1·3."""
    other = DIGITS.other(1.0) / COIN
    truth = 1 - 2 * other
    table = DIGITS.table(1.0)
    assert table.shape == (7, 6)
    assert_allclose(table.sum(axis=1), 1)
    assert_allclose(table[5], np.array([other, other, truth, other, truth, other]) / 2)
    assert_array_equal(DIGITS.table(math.inf)[5], [0, 0, 0.5, 0, 0.5, 0])
    assert_array_equal(DIGITS.at(np.array([5, 5]), np.array([0, 1])), [2, 4])


@pytest.mark.parametrize("form", [KRR, DIGITS])
def test_a_class_agrees_where_its_column_is_larger(form: LabelForm) -> None:
    table = form.table(0.7)
    agrees = form.agrees(np.arange(form.size)[:, None], np.arange(form.alphabet))
    larger = table > (table.min() + table.max()) / 2
    assert_array_equal(agrees, larger)
    assert_array_equal(form.agrees(np.arange(4), np.array([1, 1, 1, 1])), larger[:4, 1])


def test_levels_that_randomness_cannot_tell_apart_are_refused() -> None:
    for epsilon in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match="must be above 0"):
            KRR.other(epsilon)
    with pytest.raises(UsageError, match="too little for randomness"):
        LabelForm(60000, 1, 60000).other(1e-6)

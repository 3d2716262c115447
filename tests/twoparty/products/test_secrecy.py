"""What a partner sees is uniform, whatever it hides; broken twins are caught.

χ² of bytes against the uniform distribution, 255 degrees of freedom, level 10^-7. The toy group
has the distributions of the real one, so many sessions can be run.
"""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.session_doubles import Stream, Toy
from tests.twoparty.products.conversation import LONG, SHORT, Pair

from lumos.crypto import entropy
from lumos.secagg import FixedPoint
from lumos.twoparty import products
from lumos.twoparty.products import PairSession

LIMIT = stats.chi2.ppf(1 - 1e-7, 255)
WORDS, WIDTH = 200, 24


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "draw", Stream(request.node.name))


def statistic(body: bytes) -> float:
    counts = np.bincount(np.frombuffer(body, np.uint8), minlength=256)
    expected = len(body) / 256
    return float(((counts - expected) ** 2).sum() / expected)


def extreme(bit: int, value: int) -> tuple[Any, Any]:
    chosen = (np.full(WORDS, bit, np.bool_),) * 2
    return chosen, (np.full(WIDTH, value, np.int8),) * 2


EXTREMES = pytest.mark.parametrize(("bit", "value"), [(0, 0), (1, 0), (0, 127), (1, -127)])


@EXTREMES
@pytest.mark.parametrize("fixed", [SHORT, LONG], ids=["32 bits", "64 bits"])
def test_messages_and_shares_are_uniform(bit: int, value: int, fixed: FixedPoint) -> None:
    chosen, numbers = extreme(bit, value)
    pair = Pair(chosen, fixed, group=Toy())
    shares = pair.multiply(numbers)
    assert statistic((shares[0] + shares[1]).tobytes()) > LIMIT  # the test has power
    for body in (
        *(share.tobytes() for share in shares),
        *(message[:-16] for message in pair.sent["columns"]),
        *(message[:-16] for message in pair.sent["correction 0 0"]),
    ):
        assert statistic(body) < LIMIT


def test_each_number_of_a_share_is_uniform_over_sessions() -> None:
    """One coordinate, many products of one session: nothing sticks to a place."""
    chosen, numbers = extreme(1, 127)
    pair = Pair(tuple(bits[:5] for bits in chosen), SHORT, group=Toy())
    seen = b""
    for step in range(400):
        one, _ = pair.multiply(tuple(z[:1] for z in numbers), step)
        seen += one[2].tobytes()
    assert statistic(seen) < LIMIT


def test_what_a_partner_sees_does_not_depend_on_the_other_input() -> None:
    """Two samples of the same message under opposite inputs: one distribution."""
    counts = []
    for bit, value in ((0, -127), (1, 127)):
        chosen, numbers = extreme(bit, value)
        pair = Pair(chosen, LONG, group=Toy())
        body = b""
        for step in range(4):
            pair.multiply(numbers, step)
            body += pair.sent[f"correction {step} 0"][0][:-16]
        body += pair.sent["columns"][0][:-16]
        counts.append(np.bincount(np.frombuffer(body, np.uint8), minlength=256))
    assert stats.chi2_contingency(np.array(counts)).pvalue > 1e-6


def test_the_other_pad_is_out_of_reach() -> None:
    """The chooser's rows are those of the pads it chose, and none of the others."""
    chosen, numbers = extreme(0, 100)
    pair = Pair(chosen, LONG, group=Toy())
    chooser, multiplier = pair.ends[1]._chooser, pair.ends[0]._multiplier
    assert chooser is not None
    assert multiplier is not None
    assert np.array_equal(chooser._rows, multiplier._rows)  # b = 0: t = q
    assert not (chooser._rows == (multiplier._rows ^ multiplier._s)).all(axis=1).any()
    pair.multiply(numbers)


# Broken twins


class SamePads(PairSession):
    """Pads that do not depend on the step."""

    def _label(self, index: tuple[int, int], *, mine: bool) -> bytes:
        return super()._label((0, 0), mine=mine)


@pytest.mark.parametrize("kind", [PairSession, SamePads])
def test_pads_that_repeat_show_differences_of_numbers(kind: type[PairSession]) -> None:
    chosen, first = extreme(0, 11)
    pair = Pair(chosen, LONG, group=Toy(), kind=kind)
    pair.multiply(first, 0)
    second = extreme(0, 17)[1]
    one, two = pair.multiply(second, 1)
    assert not (one + two).any()  # right in both
    before, after = (
        np.frombuffer(pair.sent[f"correction {step} 0"][0][:-16], "<u8") for step in range(2)
    )
    shown = (after - before) == (17 - 11) << (32 - 7)
    assert shown.all() if kind is SamePads else not shown.any()


def test_the_tests_notice_a_share_that_is_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(self: Any, numbers: Any, label: bytes) -> Any:
        zero = np.zeros((len(self._rows), len(numbers)), numbers.dtype)
        own = products.pads(self._rows, label, len(numbers), numbers.dtype)
        one = products.pads(self._rows ^ self._s, label, len(numbers), numbers.dtype)
        return own - one + numbers, zero - own * 0

    monkeypatch.setattr(products.Multiplier, "multiply", bare)
    with pytest.raises(AssertionError):
        test_messages_and_shares_are_uniform(0, 0, LONG)


def test_the_tests_notice_choices_that_are_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        products,
        "masked_columns",
        lambda one, other, chosen: np.tile(chosen, (128, 1)),
    )
    monkeypatch.setattr(products, "consistency", lambda *_: bytes(32))
    with pytest.raises(AssertionError):
        test_messages_and_shares_are_uniform(1, 0, LONG)


def test_the_tests_notice_columns_under_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the stream of the other seed, S takes its own off and reads the choices."""

    def half(one: Any, other: Any, chosen: Any) -> Any:
        return one ^ chosen

    for broken in (False, True):
        if broken:
            monkeypatch.setattr(products, "masked_columns", half)
            monkeypatch.setattr(products, "consistency", lambda *_: bytes(32))
        chosen, _ = extreme(1, 0)
        seen: list[Any] = []
        original = products.Multiplier.extend

        def spy(self: Any, columns: bytes, seen: Any = seen, original: Any = original) -> None:
            seeds = np.frombuffer(self._seeds, np.uint8).reshape(128, 32)
            received = np.frombuffer(columns[: -products.PROOF], np.uint8).reshape(128, -1)
            size = received.shape[1]
            words = (products.stretch(seeds, size) ^ received)[:, : size - 16]
            bare = np.unpackbits(words, axis=1, count=WORDS, bitorder="little")
            seen.append(bare.all(axis=1) | ~bare.any(axis=1))
            original(self, columns)

        monkeypatch.setattr(products.Multiplier, "extend", spy)
        Pair(chosen, LONG, group=Toy())
        assert seen[0].any() == broken
        monkeypatch.setattr(products.Multiplier, "extend", original)

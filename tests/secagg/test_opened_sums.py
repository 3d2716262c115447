"""Of every sum a device gives out shares once: the rule, and with a device that restarts."""

import pytest

from lumos.errors import AlreadyOpened
from lumos.secagg.openings import OpenedSums, Opening

FIRST = Opening(step=-3, number=2, told=b"these are in the sum")


def test_the_same_again_is_no_second_opening() -> None:
    written: list[Opening] = []
    opened = OpenedSums(write=written.append)
    opened.open(FIRST)
    opened.open(FIRST)
    assert written == [FIRST]
    OpenedSums([FIRST], written.append).open(FIRST)  # replayed after a restart
    assert written == [FIRST]


@pytest.mark.parametrize(
    "other",
    [
        FIRST._replace(told=b"and another one is lost"),
        Opening(step=-3, number=3, told=b"another attempt of the step"),
        Opening(step=-2, number=1, told=b"an earlier sum"),
    ],
)
def test_anything_else_of_it_is_refused_also_after_a_restart(other: Opening) -> None:
    written: list[Opening] = []
    for opened in (OpenedSums([FIRST], written.append), OpenedSums()):
        if opened.has(FIRST.step) is False:
            opened.open(FIRST)
        with pytest.raises(AlreadyOpened):
            opened.open(other)
    assert not written


def test_the_next_sum_is_opened() -> None:
    written: list[Opening] = []
    opened = OpenedSums([FIRST], written.append)
    after = Opening(step=-4, number=3, told=b"")
    opened.open(after)
    assert written == [after]
    opened.open(FIRST)  # both are replayed after a restart
    assert written == [after]
    opened.settle(3)
    assert opened.has(-4)
    assert not opened.has(-3)


def test_attempts_up_to_the_opened_one_are_replayed_and_no_later_one_is_made() -> None:
    opened = OpenedSums([FIRST])  # the second attempt of its step, after sum 1
    assert not opened.has(FIRST.step, before=FIRST.number - 1)
    with pytest.raises(AlreadyOpened):
        opened.open(FIRST._replace(number=FIRST.number - 1))
    assert not opened.has(FIRST.step, before=FIRST.number)
    opened.open(FIRST)
    assert opened.has(FIRST.step, before=FIRST.number + 1)


def test_nothing_is_given_out_that_could_not_be_noted() -> None:
    def full(_: Opening) -> None:
        raise OSError("no space left on the device")

    opened = OpenedSums(write=full)
    with pytest.raises(OSError, match="no space"):
        opened.open(FIRST)
    assert not opened.has(FIRST.step)

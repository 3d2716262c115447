"""Devices that withhold what they contribute to the mask graph: a run survives as many as it may
lose, and a device that shows something else is excluded."""

import dataclasses
from typing import Any

import pytest
from tests.secagg import test_bounded
from tests.secagg.test_bounded import TOTAL, check_sum, run, with_body

from lumos.device import Shard
from lumos.exchange import Program
from lumos.secagg import mask_graph
from lumos.secagg.bounded import BoundedAggregator
from lumos.secagg.parameters import mask_parameters
from lumos.secagg.topics import DRAW_CONTRIBUTION, DRAW_LIST

LIARS = (2, 5, 11)
"""As many as a run of these settings may lose."""


class Withholds(BoundedAggregator):
    """It withholds its contribution in one draw, and takes no part in later ones."""

    how = "nothing"

    def setup(self) -> Program[None]:
        program, draw = super().setup(), 0
        turn = LIARS.index(int(self._shard.devices[0]))
        outbox = next(program)
        while True:
            if outbox.topic is DRAW_CONTRIBUTION and draw == turn:
                if self.how == "nothing":
                    outbox = DRAW_CONTRIBUTION.nothing()
                else:
                    outbox = with_body(outbox, outbox.batch.body ^ 1)
            draw += outbox.topic is DRAW_LIST
            inbox = yield outbox
            try:
                outbox = program.send(inbox)
            except StopIteration:
                return


@pytest.fixture(autouse=True)
def enough_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device has enough mask neighbours without any three."""
    wide = dataclasses.replace(test_bounded.SETTINGS, neighbours=TOTAL - 1, threshold=10)
    monkeypatch.setattr(test_bounded, "SETTINGS", wide)


@pytest.fixture(autouse=True)
def zeros_once_barred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A barred device commits itself to zeros: so it finds its contribution in the list."""
    original = mask_graph.contributions_of

    def contributions_of(shard: Any, draw: int) -> Any:
        found = original(shard, draw).copy()
        for turn, liar in enumerate(LIARS):
            if turn < draw:
                found[shard.devices == liar] = 0
        return found

    monkeypatch.setattr(mask_graph, "contributions_of", contributions_of)


@pytest.mark.parametrize("how", ["nothing", "other"])
def test_sums_go_on_after_every_void_draw(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The sums are those of the devices that are left, in the clear."""
    parameters = mask_parameters(test_bounded.SETTINGS, TOTAL)
    assert len(LIARS) == TOTAL - parameters.minimum == parameters.draws - 1
    monkeypatch.setattr(Withholds, "how", how)
    outcome = run(dict.fromkeys(LIARS, Withholds), sums=2)
    if how == "nothing":  # silence is no lie
        assert not outcome.excluded
        check_sum(outcome, ())
    else:
        assert set(outcome.excluded) == set(LIARS)
        assert "had not committed" in outcome.excluded[LIARS[0]]
        check_sum(outcome, LIARS)


def test_with_fewer_draws_the_same_devices_would_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken variant: as many draws as there are liars, and not one more."""
    original = mask_graph.draw_seed

    def fewer(shard: Shard, draws: int) -> Program[bytes]:
        return original(shard, draws - 1)

    monkeypatch.setattr("lumos.secagg.device.draw_seed", fewer)
    with pytest.raises(Exception, match="declared 3 draws"):
        run(dict.fromkeys(LIARS, Withholds))

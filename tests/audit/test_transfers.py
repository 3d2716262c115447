"""A lying partner in the audit: caught as often as claimed, and never without the check."""

import pytest
from tests.session_doubles import Stream

from lumos import load
from lumos.audit import ATTACKS, Scene
from lumos.audit.attacks import transfers
from lumos.crypto import entropy


@pytest.mark.parametrize("checked", [True, False])
def test_a_bet_on_bits_passes_as_often_as_it_may(
    checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entropy, "draw", Stream("a lying partner"))
    if not checked:  # the broken variant takes any columns
        monkeypatch.setattr("lumos.twoparty.products.hmac.compare_digest", lambda *_: True)
    rows = list(ATTACKS["transfers"](Scene(load("demo:60"), {}, tasks=("link",))))
    assert [row.bound for row in rows] == [2.0**-bits for bits in transfers.GUESSED]
    for row in rows:
        low, _ = row.estimate.interval(0.999)
        assert row.bound is not None
        assert (low <= row.bound) == checked
    assert {row.attack for row in rows} == {"transfers"}

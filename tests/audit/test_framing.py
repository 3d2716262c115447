"""Honest devices are not framed; without the rule that each way is aimed at, they would be."""

from lumos.audit import ATTACKS, Scene
from lumos.graph import load


def test_no_way_frames_an_honest_device_and_every_broken_variant_is_framed() -> None:
    found = list(ATTACKS["framing"](Scene(load("demo:60"), {}, tasks=("classify",))))
    assert len(found) == 4
    for row in found:
        assert row.value == row.bound == 0.0, row.about
        assert row.undefended is not None
        assert row.undefended >= 1, row.about

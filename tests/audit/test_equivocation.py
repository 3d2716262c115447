"""Devices that are sent different things give nothing away; those that do not compare do."""

from lumos.audit import ATTACKS, Scene
from lumos.graph import load


def test_equivocation_gains_nothing_but_from_every_broken_variant() -> None:
    found = list(ATTACKS["equivocation"](Scene(load("demo:60"), {}, tasks=("classify",))))
    assert len(found) == 2
    for row in found:
        assert row.value == row.bound == 0.0, row.about
        assert row.undefended is not None
        assert row.undefended >= 1, row.about

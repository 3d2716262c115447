"""Ids of runs: the same run has the same id; whatever matters changes it, nothing else does."""

import math

import pytest

from lumos.experiments.cell import Cell, run_id

SETTINGS = {
    "profile": "paper",
    "task": "classify",
    "backbone": "gcn",
    "epsilon": 2.0,
    "epochs": 300,
    "control": True,
    "compare": "ideal",
}
OTHER = {
    "profile": "strict",
    "task": "link",
    "backbone": "gat",
    "epsilon": 2.5,
    "epochs": 299,
    "control": False,
    "compare": "secure",
}


def test_the_order_of_settings_and_the_form_of_numbers_do_not_matter() -> None:
    one = Cell.of("train", "demo", 0, **SETTINGS)
    turned = Cell.of("train", "demo", 0, **dict(reversed(SETTINGS.items())))
    whole = Cell.of("train", "demo", 0, **{**SETTINGS, "epsilon": 2})
    assert one == turned == whole
    assert run_id(one, "g") == run_id(turned, "g") == run_id(whole, "g")


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_changes_the_id(name: str) -> None:
    one = Cell.of("train", "demo", 0, **SETTINGS)
    other = Cell.of("train", "demo", 0, **{**SETTINGS, name: OTHER[name]})
    without = Cell.of("train", "demo", 0, **{k: v for k, v in SETTINGS.items() if k != name})
    assert len({run_id(cell, "g") for cell in (one, other, without)}) == 3


def test_seed_graph_and_kind_change_the_id_and_the_name_of_the_graph_does_not() -> None:
    cell = Cell.of("train", "demo", 0, **SETTINGS)
    assert run_id(cell, "g") != run_id(Cell.of("train", "demo", 1, **SETTINGS), "g")
    assert run_id(cell, "g") != run_id(cell, "h")
    assert run_id(cell, "g") != run_id(Cell.of("baseline", "demo", 0, **SETTINGS), "g")
    assert run_id(cell, "g") == run_id(Cell.of("train", "elsewhere", 0, **SETTINGS), "g")


def test_infinity_has_an_id() -> None:
    cell = Cell.of("train", "demo", 0, epsilon=math.inf)
    assert run_id(cell, "g") != run_id(Cell.of("train", "demo", 0, epsilon=1.0), "g")


def test_the_id_of_a_known_run() -> None:
    """Ids stand in the committed results: they must not change."""
    cell = Cell.of("trees", "facebook", 0, balancer="mcmc", compare="ideal", iterations=1000)
    assert run_id(cell, "0123456789abcdef") == "34b137e742b2b4ff"

"""What a plan of `link` promises: no cell of its table claims more than it gives."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lumos.aggregate.noise import mu_for
from lumos.errors import UsageError
from lumos.strict.link_promises import WHO, promises
from lumos.strict.link_schedule import (
    BACKBONE,
    CHOICE,
    CODEBOOK,
    MATRIX,
    SHARES,
    TRUST,
    LinkSchedule,
)
from lumos.strict.wording import NONE
from lumos.training.config import Config


def plan_of(devices: int = 1000, **settings: Any) -> LinkSchedule:
    config = Config.of(profile="strict", task="link", **settings)
    return LinkSchedule(config=config, devices=devices)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
@pytest.mark.parametrize("epochs", [70, 120, 400])
def test_the_parts_are_the_whole(epsilon: float, epochs: int) -> None:
    plan = plan_of(update_epsilon=epsilon, epochs=epochs)
    stages = [plan.stage(epoch) for epoch in range(epochs)]
    assert stages == [CODEBOOK] * 9 + [TRUST] * 60 + [BACKBONE] * (epochs - 69)
    square = 0.0
    for stage in [*stages, MATRIX, CHOICE]:
        noise = plan.noise(stage)
        assert noise is not None
        square += 1 / noise.sigma**2
    assert math.sqrt(square) == pytest.approx(mu_for(epsilon, 1e-5))
    assert sum(SHARES.values()) == pytest.approx(1)


def table(epsilon: float = 2.0, **settings: Any) -> dict[str, dict[str, str]]:
    plan = plan_of(epsilon=epsilon, **settings)
    ledger: Any = SimpleNamespace(epsilon_per_receiver=epsilon, epsilon_collusion=epsilon)
    return {row["about"]: row for row in promises(plan, ledger)}


@pytest.mark.parametrize("relay", ["auto", "none", 2, 8])
@pytest.mark.parametrize("protect", ["noise", "none", "holders", "projection"])
@pytest.mark.parametrize("colours", ["auto", "none"])
def test_links_promise_nothing_about_degrees_and_edges(
    relay: Any, protect: str, colours: Any
) -> None:
    """Not even without relay and colours: a neighbour's symbol is in every answer."""
    rows = table(relay=relay, protect=protect, colours=colours)
    for about in ("degree and workload", "edges"):
        for who in WHO:
            assert rows[about][who].startswith(NONE), (about, who)
            assert "(" not in rows[about][who]  # not a number among it
    assert {rows["label"][who] for who in WHO} == {"not used"}


@pytest.mark.parametrize(("epsilon", "update_epsilon"), [(2.0, 8.0), (0.5, 1.0), (1.234, 3.333)])
def test_features_have_the_symbol_and_the_updates(epsilon: float, update_epsilon: float) -> None:
    rows = table(epsilon=epsilon, update_epsilon=update_epsilon)
    spent = plan_of(epsilon=epsilon, update_epsilon=update_epsilon).spent()
    assert spent is not None
    for about in ("features", "losses"):
        for who in WHO[:-1]:
            number, delta = rows[about][who].strip("()").split(", ")
            assert float(number) >= (epsilon + spent[0]) * (1 - 1e-8)
            assert float(number) <= (epsilon + update_epsilon) * 1.01
            assert float(delta) == spent[1]
        assert rows[about]["the broker"].startswith(NONE)


@pytest.mark.parametrize("protect", ["none", "holders", "projection"])
def test_exact_sums_promise_nothing(protect: str) -> None:
    plan = plan_of(protect=protect)
    assert plan.spent() is None
    assert all(plan.noise(stage) is None for stage in SHARES)
    rows = table(protect=protect)
    for about in ("features", "losses"):
        for who in WHO[:-1]:
            assert rows[about][who].startswith("ε = 2 by the symbol; no promise by the weights")


def test_too_few_epochs_are_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match=r"above 69 .*9 for the codebook, 60 for trust; got 69"):
        plan_of(epochs=69)

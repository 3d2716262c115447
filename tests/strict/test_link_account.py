"""The account of link's updates: every sum of a run, and what its table says of it."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.strict.linking import linked, sums

from lumos.aggregate.noise import epsilon_for
from lumos.graph import Graph
from lumos.strict.link_promises import WHO
from lumos.strict.link_schedule import LinkSchedule
from lumos.strict.wording import NONE

pytestmark = pytest.mark.usefixtures("short")

STEP = 2.0**-24
"""Of the fixed point, to which vectors are rounded before they are masked."""


@pytest.mark.parametrize(
    ("aggregate", "settings"),
    [
        ("ideal", {}),
        ("ideal", {"update_epsilon": 1.0, "relay": "none", "colours": "none", "backbone": "gat"}),
        ("secure", {"relay": 2, "codebook": 3}),
    ],
)
def test_what_is_spent_is_what_all_sums_that_were_opened_tell(
    aggregate: str, settings: dict[str, Any], sixty: Graph
) -> None:
    """Vectors are no longer than the noise was made for, and the noise is really there."""
    with sums() as opened:
        result = linked(sixty, aggregate=aggregate, **settings)
    assert len(opened) == 15 + 2
    square, hiss = 0.0, []
    longest: dict[float, float] = {}
    for some in opened:
        assert some.noise is not None
        norms = np.linalg.norm(np.rint(some.vectors / STEP) * STEP, axis=1)
        assert norms.max() <= some.noise.clip * (1 + 1e-12)
        longest[some.noise.clip] = max(longest.get(some.noise.clip, 0), norms.max())
        square += 1 / some.noise.sigma**2
        hiss.append((some.total - some.vectors.sum(axis=0)) / some.noise.total)
    plan = LinkSchedule(config=result.config, devices=60)
    spent = plan.spent()
    assert spent is not None
    assert epsilon_for(math.sqrt(square), 1e-5) == pytest.approx(spent[0], rel=1e-6)
    assert spent[0] == pytest.approx(settings.get("update_epsilon", 8.0), rel=1e-6)
    everything = np.concatenate(hiss)
    assert everything.std() == pytest.approx(1, abs=6 / math.sqrt(2 * len(everything)))
    for one, other in pairwise(hiss[1:9]):  # no noise twice
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(len(one))
    # The bounds are used: in nearly every stage somebody comes near to its clip.
    assert sum(norm > 0.9 * clip for clip, norm in longest.items()) >= 2


def test_the_twin_that_does_not_clip_is_seen(sixty: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkSchedule, "limit", lambda self, stage: float("inf"))
    with sums() as opened:
        linked(sixty, relay="none", clip=0.05)
    above = [
        some.step
        for some in opened
        if some.noise is not None and np.linalg.norm(some.vectors, axis=1).max() > some.noise.clip
    ]
    assert {9, 10, 11, 12} <= set(above)  # those of trust, at least


def test_every_run_prints_the_table_with_its_own_figures(sixty: Graph) -> None:
    result = linked(sixty, relay="none", epsilon=1.0, update_epsilon=4.0)
    rows = {row["about"]: row for row in result.promises}
    assert {rows["features"][who] for who in WHO[:-1]} == {"(5, 1e-05)"}
    assert rows["features"]["the broker"].startswith(NONE)
    assert "several runs add up" in result.privacy.exposed

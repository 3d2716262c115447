"""Edges from the opened sum of associations: hidden by its noise, and found without it."""

import numpy as np
import pytest
from tests.audit.test_canary import verdict

from lumos.audit import Scene, attacker_models
from lumos.audit.attacks import link_associations
from lumos.audit.attacks.link_associations import AssociationSum, Received
from lumos.audit.table import NO_BOUND
from lumos.graph import Graph


def town(devices: int = 600, groups: int = 12, seed: int = 7) -> Graph:
    """Groups that share words and edges."""
    rng = np.random.default_rng(seed)
    group = np.arange(devices) % groups
    near = [np.flatnonzero(group == one) for one in range(groups)]
    pairs = np.array(
        [(one, other) for one in range(devices) for other in rng.choice(near[group[one]], 4)]
    )
    home = np.arange(6 * groups) // 6 == group[:, None]
    words = rng.random((devices, 6 * groups)) < np.where(home, 0.7, 0.02)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return Graph.from_edges(pairs, devices=devices, features=words.astype(np.float32))


@pytest.fixture(autouse=True)
def quick_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacker_models, "STEPS", 50)


def test_noise_hides_edges_and_without_it_they_are_found() -> None:
    guessed = {}
    for epsilon in (8.0, 1000.0):
        scene = Scene(town(), {"feature_epsilon": epsilon}, tasks=("link",))
        rows = list(link_associations.attack_link_associations(scene))
        assert set(verdict(*rows)) == {NO_BOUND}
        distance, guess, degree, _ = rows
        assert degree.value > 0
        guessed[epsilon] = guess.value
        assert 0 < distance.value < 4 * 1.1 * (20 if epsilon > 8 else 1)
    assert guessed[8.0] < 0.75
    assert guessed[1000.0] > 0.95


def test_sums_without_noise_have_no_rows() -> None:
    scene = Scene(town(60, 3), {"protect": "none"}, tasks=("link",))
    assert list(link_associations.attack_link_associations(scene)) == []


def test_the_sum_is_computed_as_devices_do() -> None:
    """With little noise the opened sum is the one that the attacker computes."""
    scene = Scene(town(), {"feature_epsilon": 1000.0}, tasks=("link",))
    known = AssociationSum.of(scene.recorded("link"))
    assert known.noise is not None
    found = (known.opened - known.exact()).std()
    assert found == pytest.approx(known.noise.total, rel=0.05)


def test_one_edge_changes_the_sketches_of_its_ends_only_if_it_changes() -> None:
    scene = Scene(town(), {}, tasks=("link",))
    known = AssociationSum.of(scene.recorded("link"))
    marks = Received.of(known)
    pairs = known.graph.edge_list()[:50]
    there = np.ones(len(pairs), np.bool_)
    one, other = pairs.T
    same = marks.sketches(known, one, other, there, with_edge=True)
    less = marks.sketches(known, one, other, there, with_edge=False)
    assert np.allclose(np.linalg.norm(same, axis=1), 1)
    assert (np.abs(same - less).max(axis=1) > 0).all()

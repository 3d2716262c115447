"""Whole baselines on small graphs: same splits and scores as `lumos train`, repeatable, honest."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from lumos.baselines import BaselineSettings, Measured, baseline
from lumos.baselines.lpgnn import LABEL_STEPS
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError, UsageError
from lumos.graph import Graph, load
from lumos.training.given_split import HeldOut
from lumos.training.metrics import LINK_SCORES, accuracy, device_scores, link_auc
from lumos.training.split import Role, split_edges, split_vertices

torch.set_num_threads(1)

SYSTEMS = ("centralized", "own", "lpgnn", "naive", "blink", "lpgnn-blink", "gap")


def measured(graph: Any = "demo:120", **settings: Any) -> Measured:
    return baseline(graph, **{"epochs": 6, **settings})


@pytest.mark.parametrize("system", SYSTEMS)
def test_accuracy_is_of_the_split_of_train(system: str) -> None:
    graph = load("demo:120")
    found = measured(graph, system=system, seed=3)
    assert graph.labels is not None
    roles = split_vertices(graph.labels, PublicRandomness(3))
    assert found.outputs.shape == (graph.devices, graph.class_count)
    assert found.metrics == device_scores(found.outputs, graph.labels, roles, graph.classes)
    assert found.metrics["test_accuracy"] == accuracy(found.outputs, graph.labels, roles, Role.TEST)
    table = np.array(found.metrics["test_confusion"])
    assert table.trace() / table.sum() == found.metrics["test_accuracy"]


@pytest.mark.parametrize("system", ["centralized", "own", "naive"])
def test_auc_is_of_the_split_of_train(system: str) -> None:
    graph = load("demo:120")
    found = measured(graph, system=system, task="link", seed=3)
    split = split_edges(graph, PublicRandomness(3))
    wanted = {
        "test_auc": link_auc(found.outputs, split.test, split.test_non_neighbours),
        "val_auc": link_auc(found.outputs, split.validation, split.validation_non_neighbours),
    }
    assert {name: found.metrics[name] for name in wanted} == wanted
    assert found.metrics.keys() == {
        f"{part}_{name}" for part in ("test", "val") for name in LINK_SCORES
    }


@pytest.mark.parametrize("system", ["centralized", "own", "naive"])
def test_links_know_of_training_edges_only(system: str) -> None:
    """Move the edges that test: with the same training edges, nothing that is learnt changes."""
    graph = load("demo:120")
    public = PublicRandomness(0)
    split = split_edges(graph, public)
    before = measured(graph, system=system, task="link")

    from lumos.baselines import measure

    moved = type(split)(
        training=split.training,
        validation=split.validation,
        test=split.test_non_neighbours,
        validation_non_neighbours=split.validation_non_neighbours,
        test_non_neighbours=split.test,
    )
    with pytest.MonkeyPatch.context() as patch:
        held_out = HeldOut(moved, "of a test", "a name", None)
        patch.setattr(measure, "edge_split", lambda *_: held_out)
        after = measured(split.training, system=system, task="link")
    assert_array_equal(before.outputs, after.outputs)
    assert after.metrics["test_auc"] == pytest.approx(1 - before.metrics["test_auc"])


@pytest.mark.parametrize("system", ["lpgnn", "naive", "blink", "lpgnn-blink", "gap"])
def test_test_labels_change_nothing_that_is_learnt(system: str) -> None:
    graph = load("demo:120")
    labels = np.array(graph.labels)
    test = split_vertices(labels, PublicRandomness(0)) == Role.TEST
    labels[test] = (labels[test] + 1) % graph.class_count
    other = Graph(
        offsets=graph.offsets,
        neighbours=graph.neighbours,
        ids=graph.ids,
        features=graph.features,
        labels=labels,
        classes=graph.classes,
    )
    one, two = measured(graph, system=system), measured(other, system=system)
    assert_array_equal(one.outputs, two.outputs)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_same_seed_gives_the_same_result(system: str) -> None:
    first, again = (measured(system=system, seed=1, dropout=0.3) for _ in range(2))
    other = measured(system=system, seed=2, dropout=0.3)
    assert_array_equal(first.outputs, again.outputs)
    assert first.history == again.history
    assert first.metrics == again.metrics
    assert not np.array_equal(first.outputs, other.outputs)


def test_a_run_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    measured(system="own")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("task", ["classify", "link"])
@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage"])
def test_naive_without_noise_is_centralized(task: str, backbone: str) -> None:
    same = {"task": task, "backbone": backbone, "dropout": 0.0, "weight_decay": 0.0}
    same |= {"learning_rate": 0.01, "hidden": 16}
    naive = measured(system="naive", feature_epsilon=math.inf, **same)
    central = measured(system="centralized", normalise=True, **same)
    assert_allclose(naive.outputs, central.outputs, atol=1e-6)


def test_lpgnn_without_noise_and_steps_is_centralized() -> None:
    same = {"dropout": 0.0, "weight_decay": 0.0, "learning_rate": 0.01, "hidden": 16}
    clear = {"feature_epsilon": math.inf, "label_epsilon": math.inf, "steps": 0, "label_steps": 0}
    lpgnn = measured(system="lpgnn", **clear, **same)
    central = measured(system="centralized", normalise=False, **same)
    losses = [[record["loss"] for record in found.history] for found in (lpgnn, central)]
    assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.parametrize("task", ["classify", "link"])
def test_the_graph_is_worth_something(task: str) -> None:
    score = "test_accuracy" if task == "classify" else "test_auc"
    found = {
        system: baseline("demo:600", system=system, task=task, epochs=60).metrics[score]
        for system in ("centralized", "own", "naive")
    }
    assert found["centralized"] > found["own"] + (0.05 if task == "classify" else 0)
    assert found["centralized"] > found["naive"] + 0.1


def test_the_best_epoch_is_chosen() -> None:
    found = measured(system="centralized", epochs=30)
    scores = [record["score"] for record in found.history]
    assert scores[found.best_epoch - 1] == max(scores)
    assert found.best_epoch == scores.index(max(scores)) + 1
    assert found.metrics["val_accuracy"] == pytest.approx(max(scores))


def test_patience_ends_a_run() -> None:
    scores = [record["score"] for record in measured(system="centralized", epochs=60).history]
    found = measured(system="centralized", epochs=60, patience=5)
    best = scores.index(max(scores[: len(found.history)])) + 1
    assert (found.best_epoch, len(found.history)) == (best, best + 5)
    assert [record["score"] for record in found.history] == scores[: best + 5]


def test_edge_sample_says_so() -> None:
    whole = measured(system="naive")
    some = measured(system="naive", edge_sample=500)
    assert any("500 of" in note for note in some.notes)
    assert not any("drawn once" in note for note in whole.notes)
    assert not np.array_equal(whole.outputs, some.outputs)
    more = measured(system="naive", edge_sample=10**9)  # more than there are: all of them
    assert_array_equal(whole.outputs, more.outputs)


def test_notes_state_the_total_epsilon() -> None:
    assert any("11 in total" in note for note in measured(system="lpgnn").notes)
    assert any("6 in total" in note for note in measured(system="naive").notes)
    link = measured(system="naive", task="link", feature_epsilon=1.5)
    assert any("3 in total" in note for note in link.notes)
    assert any("nothing is private" in note for note in measured(system="centralized").notes)


def test_validation_chooses_the_steps_of_drop() -> None:
    """auto is the better of its tries, by the likelihood of noisy validation labels."""
    auto = measured(system="lpgnn", epochs=20)
    tries = [measured(system="lpgnn", epochs=20, label_steps=steps) for steps in LABEL_STEPS]
    scores = [max(record["score"] for record in found.history) for found in tries]
    better = tries[int(np.argmax(scores))]
    assert_array_equal(auto.outputs, better.outputs)
    chosen = better.settings.label_steps
    assert any(f"labels chose {chosen}" in note for note in auto.notes)


def test_one_bit_releases_every_feature() -> None:
    found = measured(system="lpgnn", one_bit=True)
    width = load("demo:120").feature_count
    assert any(f"{width:,} leave each device" in note for note in found.notes)


def small(**changed: Any) -> Graph:
    arguments: dict[str, Any] = {
        "edges": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 5], [0, 3]],
        "devices": 12,
        "features": np.eye(12, 5, dtype=np.float32),
        "labels": np.arange(12) % 2,
    }
    return Graph.from_edges(**{**arguments, **changed})


@pytest.mark.parametrize("system", SYSTEMS)
def test_devices_without_neighbours_take_part(system: str) -> None:
    found = measured(small(), system=system)
    assert np.isfinite(found.outputs).all()
    assert all(math.isfinite(record["loss"]) for record in found.history)


def test_a_graph_without_edges() -> None:
    nobody = small(edges=np.empty((0, 2), np.int64))
    for system in ("centralized", "own", "naive"):
        assert np.isfinite(measured(nobody, system=system).outputs).all()
    with pytest.raises(InputError, match="`label_steps=0`"):
        measured(nobody, system="lpgnn", label_steps=4)
    assert np.isfinite(measured(nobody, system="lpgnn", label_steps=0).outputs).all()


@pytest.mark.parametrize("system", SYSTEMS)
def test_graphs_that_cannot_be_learnt_from(system: str) -> None:
    with pytest.raises(InputError, match="no labels"):
        measured(small(labels=None), system=system)
    with pytest.raises(InputError, match="no features"):
        measured(small(features=None), system=system)
    with pytest.raises(InputError, match="one class"):
        measured(small(labels=np.zeros(12, np.int64)), system=system)
    with pytest.raises(InputError, match="at least 4"):
        measured(small(labels=np.array([0, 1, 1] + 9 * [-1])), system=system)
    with pytest.raises(InputError, match="finite"):
        measured(small(features=np.full((12, 5), np.nan)), system=system)


def test_links_need_edges() -> None:
    with pytest.raises(InputError, match="at least 5"):
        measured(small(edges=[[0, 1]]), system="centralized", task="link")


@pytest.mark.parametrize("system", ["lpgnn", "naive"])
def test_features_lie_within_public_bounds(system: str) -> None:
    graph = small(features=3 * np.eye(12, 5, dtype=np.float32))
    with pytest.raises(InputError, match="`high`"):
        measured(graph, system=system)
    assert measured(graph, system=system, high=3.0).settings.high == 3.0


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"system": "server"}, "`system` must be one of"),
        ({"system": "lpgnn", "task": "link"}, "knows every edge"),
        ({"system": "own", "backbone": "gcn"}, "`backbone` has no effect for own"),
        ({"system": "centralized", "feature_epsilon": 2.0}, "`feature_epsilon` has no effect"),
        ({"system": "centralized", "steps": 2}, "`steps` has no effect"),
        ({"system": "naive", "label_steps": 2}, "`label_steps` has no effect"),
        ({"system": "naive", "task": "link", "label_epsilon": 2.0}, "`label_epsilon` has no"),
        ({"system": "lpgnn", "delta": 0.1}, "`delta` has no effect"),
        ({"system": "lpgnn", "edge_sample": 9}, "`edge_sample` has no effect"),
        ({"system": "naive", "feature_epsilon": 0.0}, "`feature_epsilon` must be above 0"),
        ({"system": "naive", "feature_epsilon": math.nan}, "`feature_epsilon` must be above 0"),
        ({"system": "lpgnn", "label_epsilon": -1}, "`label_epsilon` must be above 0"),
        ({"system": "gap", "edge_epsilon": 0.0}, "`edge_epsilon` must be above 0"),
        ({"system": "lpgnn", "edge_epsilon": 1.0}, "`edge_epsilon` has no effect"),
        ({"system": "blink", "variant": "soft"}, "`variant` must be one of"),
        ({"system": "blink", "variant": "hybrid", "backbone": "gat"}, "must be hard for gat"),
        ({"system": "gap", "task": "link"}, "gap cannot predict links"),
        ({"system": "naive", "delta": 0.0}, "`delta` must be between"),
        ({"system": "naive", "edge_sample": -1}, "`edge_sample` must be 0"),
        ({"system": "lpgnn", "low": 1.0}, "low < high"),
        ({"system": "own", "epochs": 0}, "`epochs` must be 1"),
        ({"system": "own", "hidden": 0}, "`hidden` must be 1"),
        ({"system": "own", "dropout": 1.0}, "`dropout` must be"),
        ({"system": "own", "learning_rate": math.nan}, "`learning_rate` must be"),
        ({"system": "own", "weight_decay": -1.0}, "`weight_decay` must be"),
        ({"system": "naive", "backbone": "gin"}, "`backbone` must be one of"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        BaselineSettings(**settings)


def test_settings_fill_in_what_the_system_has() -> None:
    # Settings that a system does not use are None, whatever their type.
    naive: Any = BaselineSettings(system="naive", feature_epsilon=1)
    assert (naive.feature_epsilon, naive.label_epsilon, naive.steps) == (1.0, 1.0, None)
    assert naive.edge_epsilon == 1.0
    lpgnn: Any = BaselineSettings(system="lpgnn")
    assert (lpgnn.feature_epsilon, lpgnn.label_epsilon, lpgnn.delta) == (8.0, 3.0, None)
    assert BaselineSettings(system="lpgnn", label_epsilon=math.inf).label_steps == 0
    inf = BaselineSettings(system="lpgnn", feature_epsilon=math.inf).plain()["feature_epsilon"]
    assert inf == "inf"
    assert BaselineSettings(**lpgnn.plain()) == lpgnn  # what --json prints makes them again


def test_one_way_of_saying_settings() -> None:
    with pytest.raises(UsageError, match="not both"):
        baseline("demo:60", BaselineSettings(), epochs=3)
    with pytest.raises(UsageError, match="no setting 'epoch'"):
        baseline("demo:60", epoch=3)

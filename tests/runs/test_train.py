"""Input that is odd or wrong: a defined behaviour, or one clear error."""

from typing import Any

import networkx
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from tests.narrow import present, sparse
from tests.runs.running import heard, losses, run

from lumos import Graph, LumosError, balance, load
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError, UsageError
from lumos.runs.train import train
from lumos.training.config import Config
from lumos.training.metrics import LINK_SCORES, PARTS
from lumos.training.split import Role, split_vertices
from lumos.trees.balancers import TreeSettings

TASKS = ["classify", "link"]


def changed(graph: Graph, **parts: Any) -> Graph:
    """The same graph with other features, labels or edges."""
    given: dict[str, Any] = {
        "features": graph.features,
        "labels": graph.labels,
        "classes": graph.classes,
        "edges": graph.edge_list(),
        **parts,
    }
    return Graph.from_edges(given.pop("edges"), devices=graph.devices, **given)


def refused(graph: Any, match: str, kind: type[LumosError] = LumosError, **settings: Any) -> None:
    with pytest.raises(kind, match=match) as error:
        run(graph, **settings)
    assert "\n" not in str(error.value)


# Labels


def test_unlabelled_devices_take_part_and_are_only_predicted(sixty: Graph) -> None:
    """Their features and embeddings travel; no loss, no score and no head gradient is theirs."""
    labels = np.array(sixty.labels)
    labels[::3] = -1
    result, wire = heard(changed(sixty, labels=labels))
    assert result.predict_proba().shape == (60, 6)
    assert_allclose(result.predict_proba().sum(axis=1), 1, rtol=1e-5)
    assert {message.sender for message in wire.all_of("train/leaf")} & {*range(0, 60, 3)}
    right = present(result.history[0].score) * 10  # 40 have labels: 10 validate
    assert right == pytest.approx(round(right))
    assert np.isfinite(losses(result)).all()


def test_what_the_label_of_a_device_without_a_role_would_be_does_not_matter() -> None:
    """Labels enter only where roles let them: test labels could be anything."""
    graph = load("demo:60")
    roles = split_vertices(np.asarray(graph.labels), PublicRandomness(0))
    labels = np.array(graph.labels)
    test = roles == Role.TEST
    labels[test] = (labels[test] + 1) % 6
    one, other = run(graph), run(changed(graph, labels=labels))
    assert losses(one) == losses(other)
    assert np.array_equal(one.embeddings, other.embeddings)
    assert one.metrics["val_accuracy"] == other.metrics["val_accuracy"]


def test_labels_that_cannot_be_learnt(sixty: Graph) -> None:
    refused(changed(sixty, labels=None), "has no labels; classify needs them", InputError)
    refused(changed(sixty, labels=np.zeros(60, int)), "all are of one class", InputError)
    few = np.full(60, -1)
    few[:3] = [0, 1, 0]
    refused(changed(sixty, labels=few), "3 devices have one; classify needs at least 4", InputError)
    refused(changed(sixty, labels=np.full(60, -1)), "labels: 0 devices have one", InputError)


def test_four_labels_are_enough(sixty: Graph) -> None:
    few = np.full(60, -1)
    few[:4] = [0, 1, 0, 1]
    result = run(changed(sixty, labels=few))
    assert {result.metrics["test_accuracy"], result.metrics["val_accuracy"]} <= {0.0, 1.0}


def test_links_need_no_labels(sixty: Graph) -> None:
    one, other = (run(graph, task="link") for graph in (sixty, changed(sixty, labels=None)))
    assert losses(one) == losses(other)
    assert set(one.metrics) == {f"{part}_{name}" for part in PARTS for name in LINK_SCORES}


# Features


@pytest.mark.parametrize("task", TASKS)
def test_without_features(task: str, sixty: Graph) -> None:
    refused(changed(sixty, features=None), "has no features, and training needs them", task=task)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_features_that_are_all_zero_run(task: str, dense: bool, sixty: Graph) -> None:
    zeros = np.zeros((60, 20), np.float32)
    graph = changed(sixty, features=zeros if dense else csr_array(zeros))
    for epsilon in (2.0, float("inf")):
        result = run(graph, task=task, epsilon=epsilon)
        assert np.isfinite(result.embeddings).all()
        assert np.isfinite(losses(result)).all()


@pytest.mark.parametrize("value", [1.5, -0.25])
@pytest.mark.parametrize("dense", [True, False])
def test_features_outside_the_bounds_are_refused(value: float, dense: bool, sixty: Graph) -> None:
    features = np.full((60, 4), 0.5, np.float32)
    features[7, 2] = value
    graph = changed(sixty, features=features if dense else csr_array(features))
    refused(graph, r"outside the public bounds \[0, 1\]", InputError)
    assert np.isfinite(losses(run(graph, low=-1, high=2))).all()


def test_dense_features_are_as_good_as_sparse_ones(sixty: Graph) -> None:
    dense = changed(sixty, features=sparse(sixty.features).toarray())
    (one, left), (two, right) = heard(sixty), heard(dense)
    assert left.of("train/features") == right.of("train/features")
    assert_allclose(losses(one), losses(two), rtol=1e-5)
    assert_allclose(one.embeddings, two.embeddings, atol=1e-4)


def test_too_many_features_for_epsilon_are_refused(sixty: Graph) -> None:
    refused(sixty, "too little to carry anything", UsageError, epsilon=1e-6)


# Edges


def isolated(graph: Graph, count: int) -> Graph:
    """The first `count` devices lose all their edges."""
    edges = graph.edge_list()
    return changed(graph, edges=edges[(edges >= count).all(axis=1)])


@pytest.mark.parametrize("virtual_nodes", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_isolated_devices_keep_to_themselves(task: str, virtual_nodes: bool, sixty: Graph) -> None:
    result, wire = heard(isolated(sixty, 5), task=task, virtual_nodes=virtual_nodes)
    for topic in ("train/carry", "train/features", "train/leaf", "train/leaf-gradient"):
        ends = {end for one in wire.all_of(topic) for end in (one.sender, one.receiver)}
        assert not ends & {*range(5)}
    assert np.isfinite(result.embeddings).all()
    assert (result.ledger.device_epsilon[:5] == 0).all()
    askers = {one.sender for one in wire.all_of("train/ask")}
    assert not askers & {*range(5)}


@pytest.mark.parametrize("balancer", ["none", "greedy", "mcmc", "optimal"])
def test_without_edges_only_own_features_count(balancer: str, sixty: Graph) -> None:
    lonely = changed(sixty, edges=np.empty((0, 2), np.int64))
    steps = {"iterations": 5} if balancer == "mcmc" else {}
    result, wire = heard(lonely, balancer=balancer, **steps)
    assert not {topic for topic in wire.topics() if topic.startswith("train/")}
    assert result.model.exposed == "Nothing left a device through the door `open`."
    floor = run(sixty, floor=True, epochs=3)
    assert result.metrics == floor.own  # the same as the local model, with edges
    refused(lonely, "0; link prediction needs at least 5", InputError, task="link")


def test_the_floor_is_own_features_only(sixty: Graph) -> None:
    result, wire = heard(sixty, floor=True)
    assert result.own is not None
    assert len(wire.of("train/features")) == 2
    assert [len(messages) > 0 for messages in wire.of("train/features")] == [False, True]
    assert not any(wire.of("train/leaf")[:3])  # three epochs on its own


def test_links_have_a_floor_too(sixty: Graph) -> None:
    result = run(sixty, floor=True, control=True, task="link")
    assert result.own is not None
    assert result.control is not None
    assert set(result.own) == set(result.control) == set(result.metrics)


def test_tiny_federations() -> None:
    """Below the least number that a masked sum needs, there is an error; from there on it runs."""
    for devices in (2, 3, 4, 5, 6):
        graph = Graph.from_edges(
            [[i, i + 1] for i in range(devices - 1)],
            features=np.eye(devices, dtype=np.float32),
            labels=np.arange(devices) % 2,
        )
        if devices < 4:
            refused(graph, "classify needs at least 4", InputError)
        else:
            assert np.isfinite(losses(run(graph))).all()


# Settings


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("-inf")])
def test_epsilon_must_be_above_zero(epsilon: float, sixty: Graph) -> None:
    refused(sixty, "`epsilon` must be above 0", UsageError, epsilon=epsilon)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"epsilom": 1.0}, "there is no setting 'epsilom'; did you mean `epsilon`"),
        ({"task": "cluster"}, "`task` must be one of classify, link, got 'cluster'"),
        ({"profile": "lax"}, "`profile` must be one of paper, strict"),
        ({"select": "first"}, "`select` must be one of validation, last"),
        ({"recovery": "none"}, "`recovery` must be one of shrunk, literal"),
        ({"aggregate": "plain"}, "`aggregate` must be one of ideal, secure"),
        ({"pool": "median"}, "pool must be one of average, sum, max, attention"),
        ({"backbone": "gnc"}, "'gnc' does not exist; use one of gcn, gat"),
        ({"epochs": 0}, "`epochs` must be 1 or more"),
        ({"patience": -1}, "`patience` must be 0 or more"),
        ({"local_steps": 0}, "`local_steps` must be 1 or more"),
        ({"local_steps": 2, "profile": "strict"}, "`local_steps` has no effect with"),
        ({"patience": 3, "select": "last"}, "`patience` goes by the validation score"),
        ({"patience": 3, "profile": "strict"}, "`patience` has no effect with `profile='strict'`"),
        ({"learning_rate": 0.0}, "`learning_rate` must be above 0"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be above 0"),
        ({"weight_decay": -1.0}, "`weight_decay` must be 0 or more"),
        ({"weight_decay": float("nan")}, "`weight_decay` must be 0 or more"),
        ({"checkpoint_every": 0}, "`checkpoint_every` must be 1 or more"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"low": 1.0, "high": 0.0}, "bounds must be finite, low < high"),
        ({"shards": 0}, "`shards` must be between 1 and"),
        ({"balancer": "fair"}, "balancer"),
        ({"compare": "Secure"}, "compare"),
        ({"randomness": "sytem"}, "randomness"),
    ],
)
def test_settings_that_do_not_exist(settings: dict[str, Any], match: str, sixty: Graph) -> None:
    refused(sixty, match, UsageError, **settings)


def test_a_config_and_single_settings_do_not_mix(sixty: Graph) -> None:
    with pytest.raises(UsageError, match="give a Config or single settings, not both"):
        train(sixty, Config.of(), epochs=1)
    config = Config.of(profile="paper", epochs=1, compare="ideal", balancer="greedy", floor=False)
    assert len(train(sixty, config).history) == 1


def test_a_rate_that_diverges_is_one_error(sixty: Graph) -> None:
    refused(sixty, "not finite", learning_rate=1e30, epochs=4)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("settings", [{"backbone": "sage"}, {"virtual_nodes": False}])
def test_any_backbone_and_stars_learn(settings: Any, task: str, sixty: Graph) -> None:
    result = run(sixty, task=task, epochs=6, epsilon=float("inf"), **settings)
    assert losses(result)[-1] < losses(result)[0]


# Graphs of other libraries


def test_a_pyg_data(sixty: Graph) -> None:
    from torch_geometric.data import Data

    edges = torch.from_numpy(np.array(sixty.edge_list().T))
    data = Data(
        x=torch.from_numpy(sparse(sixty.features).toarray()),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=torch.from_numpy(np.array(sixty.labels)),
    )
    one, other = run(data), run(changed(sixty, features=sparse(sixty.features).toarray()))
    assert losses(one) == losses(other)
    assert np.array_equal(one.embeddings, other.embeddings)


def test_a_networkx_graph_keeps_its_names(sixty: Graph) -> None:
    graph = networkx.Graph()
    features, labels = sparse(sixty.features).toarray(), present(sixty.labels)
    for device in range(60):
        label = sixty.classes[labels[device]]
        graph.add_node(f"device {device}", x=features[device].tolist(), y=label)
    for u, v in sixty.edge_list().tolist():
        graph.add_edge(f"device {u}", f"device {v}")
    result = run(graph)
    assert_allclose(losses(result), losses(run(sixty)), rtol=1e-5)
    assert np.array_equal(result.ids.rows(["device 7"]), [7])
    with pytest.raises(LumosError, match="is not the id of any device"):
        result.ids.rows(["device 60"])


def test_a_name() -> None:
    assert losses(run("demo:60")) == losses(run(load("demo:60")))
    refused("facebok", "facebok")


@pytest.mark.parametrize("thing", [None, 7, [[0, 1]], np.zeros((2, 2))])
def test_something_else_is_no_graph(thing: Any) -> None:
    refused(thing, f"graph: {type(thing).__name__} is neither a lumos.Graph", UsageError)


def test_trees_of_another_graph_are_refused(sixty: Graph) -> None:
    trees = balance(sixty, TreeSettings(balancer="greedy", compare="ideal"))
    mine = run(sixty, trees=trees)
    assert mine.trees.keep is trees.keep
    assert losses(mine) == losses(run(sixty))
    with pytest.raises(UsageError, match="they belong to another graph"):
        run(load("demo:60"), trees=trees)
    with pytest.raises(UsageError, match="they belong to another graph"):
        run(sixty, trees=trees, task="link")


def test_the_same_seed_gives_the_same_run_and_another_seed_another(sixty: Graph) -> None:
    one, same, other = (run(sixty, seed=seed) for seed in (0, 0, 1))
    assert losses(one) == losses(same)
    assert np.array_equal(one.embeddings, same.embeddings)
    assert losses(one) != losses(other)


@pytest.mark.real
def test_facebook_learns_and_beats_chance(data_dir: Any) -> None:
    result = train(
        "facebook", profile="paper", data_dir=data_dir, epsilon=float("inf"), epochs=6,
        compare="ideal", balancer="greedy", floor=False, learning_rate=0.05,
    )  # fmt: skip
    assert losses(result)[-1] < 0.8 * losses(result)[0]
    assert result.metrics["test_accuracy"] > 0.5
    assert result.ledger.topics["train/leaf"].messages == 7 * result.trees.workload.sum()

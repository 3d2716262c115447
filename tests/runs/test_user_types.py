"""Predictions in the types of the caller: PyG and scikit-learn go on without conversion."""

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score

import lumos
from lumos import Graph, InputError, Run, UsageError
from lumos.training.metrics import auc

Data: Any = pytest.importorskip("torch_geometric").data.Data

QUICK: dict[str, Any] = {"encoder_epochs": 2, "epochs": 47, "floor": False}
EDGES = Graph.edge_list(lumos.load("demo:60"))


def data_of(y: Any, **more: Any) -> Data:
    """The demo graph as a PyG user has it, with these labels."""
    demo = lumos.load("demo:60")
    both = torch.from_numpy(np.concatenate([EDGES, EDGES[:, ::-1]]).T.copy())
    features: Any = demo.features
    data = Data(x=torch.from_numpy(features.toarray()), edge_index=both, y=y)
    for name, value in more.items():
        data[name] = value
    return data


def labels() -> np.ndarray[Any, Any]:
    return np.array(lumos.load("demo:60").labels)


@pytest.fixture(scope="module")
def data() -> Data:
    part = torch.arange(60) % 4
    masks = {"train_mask": part < 2, "val_mask": part == 2, "test_mask": part == 3}
    return data_of(torch.from_numpy(labels() * 10 + 3), **masks)


@pytest.fixture(scope="module")
def run(data: Data) -> Run:
    return lumos.train(data, **QUICK)


@pytest.fixture(scope="module")
def links(data: Data) -> Run:
    return lumos.train(data, task="link", profile="paper", compare="ideal", epochs=2, iterations=5)


def test_scikit_learn_scores_predictions_as_they_are(data: Data, run: Run) -> None:
    test = data.test_mask
    truth, predicted, chances = data.y[test], run.predict(test), run.predict_proba(test)
    assert accuracy_score(truth, predicted) == pytest.approx(run.metrics["test_accuracy"])
    score = f1_score(truth, predicted, average="macro", zero_division=0)
    assert score == pytest.approx(run.metrics["test_macro_f1"])
    rows = [list(run.classes).index(label) for label in truth.tolist()]
    expected = -np.log(chances[np.arange(len(rows)), rows].astype(float)).mean()
    assert log_loss(truth, chances, labels=run.classes) == pytest.approx(expected, rel=1e-4)
    area = roc_auc_score(data.y, run.predict_proba(), multi_class="ovr", labels=run.classes)
    one_of_all = [
        auc(column[data.y == label], column[data.y != label])
        for label, column in zip(run.classes, run.predict_proba().T.astype(float), strict=True)
    ]
    assert area == pytest.approx(np.mean(one_of_all))
    assert (predicted == truth.numpy()).mean() == pytest.approx(run.metrics["test_accuracy"])


@pytest.mark.parametrize(
    "y",
    [
        torch.from_numpy(labels() * 7),
        torch.from_numpy(labels()).to(torch.int32),
        torch.from_numpy(labels()).to(torch.uint8),
        torch.from_numpy(labels()).float(),
        torch.from_numpy(labels() > 2),
        [f"team {label}" for label in labels()],
    ],
    ids=lambda y: str(getattr(y, "dtype", "text")),
)
def test_labels_keep_their_type_also_in_a_folder(y: Any, tmp_path: Path) -> None:
    array = np.asarray(y)
    data = data_of(y)
    run = lumos.train(data, **QUICK)
    assert_array_equal(run.classes, np.unique(array), strict=True)
    assert run.predict().dtype == array.dtype
    assert_array_equal(run.predict(), run.classes[run.predict_proba().argmax(axis=1)], strict=True)
    folder = run.save(tmp_path / "run")
    for again in (lumos.load_run(folder), lumos.load_run(folder, data)):
        assert_array_equal(again.predict(), run.predict(), strict=True)
        assert_array_equal(again.classes, run.classes, strict=True)


def test_numbers_with_names_stay_numbers_and_names_of_a_file_names() -> None:
    demo = lumos.load("demo:60")
    run = lumos.train(demo.to_pyg(), **QUICK)  # y has indices into class_names
    assert run.predict().dtype == np.int64
    assert run.class_names == list(demo.classes)
    named = lumos.train(demo, **QUICK)
    assert_array_equal(named.predict(), np.array(demo.classes)[run.predict()])
    club = demo.to_networkx()
    club.graph.clear()
    for node, label in zip(club, labels(), strict=True):
        club.nodes[node]["y"] = int(label)
    assert_array_equal(lumos.train(club, **QUICK).classes, run.classes, strict=True)


def test_a_damaged_type_of_labels_is_refused(run: Run, tmp_path: Path) -> None:
    folder = run.save(tmp_path / "run")
    about = json.loads((folder / "run.json").read_text())
    assert about["labels"] == {"type": "int64", "values": [3, 13, 23, 33, 43, 53]}
    for wrong in (
        {"type": "object", "values": [0] * 6},
        {"type": "int64", "values": [0]},
        {"type": "int8", "values": [10**9] * 6},
        {"type": "int64", "values": ["x"] * 6},
    ):
        (folder / "run.json").write_text(json.dumps({**about, "labels": wrong}))
        with pytest.raises(InputError, match=r"run\.json"):
            lumos.load_run(folder)


def test_positions_are_positions_whatever_the_ids_are(data: Data) -> None:
    named = data_of(data.y, device_ids=[f"d{60 - row}" for row in range(60)])
    run = lumos.train(named, **QUICK)
    every = run.predict()
    mask = np.arange(60) % 7 == 0
    rows = np.flatnonzero(mask)
    for chosen in (rows, rows.tolist(), mask, torch.from_numpy(mask), torch.from_numpy(rows)):
        assert_array_equal(run.predict(chosen), every[rows])
        assert_array_equal(run.predict_proba(chosen), run.predict_proba()[rows])
    assert_array_equal(run.predict(slice(10, 20)), every[10:20])
    assert_array_equal(run.predict([-1]), every[-1:])
    assert_array_equal(run.predict(5), every[5:6])
    assert_array_equal(run.predict([]), every[:0])
    assert_array_equal(run.predict(ids=["d60", "d1"]), every[[0, 59]])
    refused = "original ids go to `ids`"
    for wrong in (["d60"], [60], [-61], [0.5], [[0], [1]]):
        with pytest.raises(UsageError, match=refused):
            run.predict(wrong)
    with pytest.raises(UsageError, match="the mask has 2 values for 60 devices"):
        run.predict([True, False])
    with pytest.raises(UsageError, match="not both"):
        run.predict([0], ids=["d60"])
    with pytest.raises(InputError, match="'0' is not the id of any device"):
        run.predict(ids=[0])


def test_links_are_asked_by_edge_index(data: Data, links: Run) -> None:
    index = data.edge_index[:, :9]
    pairs = [(int(one), int(other)) for one, other in index.T]
    expected = links.predict_links(ids=pairs)
    assert_array_equal(links.predict_links(index), expected)
    assert_array_equal(links.predict_links(index.numpy()), expected)
    assert_array_equal(links.ask_links(index).probability, expected)
    for wrong, reason in (
        (index.T, r"shape \[9, 2\]; \[2, pairs\] is needed"),
        (pairs[:2], "a list of pairs of ids goes to `ids`"),
        (index + 60, "no device at position"),
        (index > 0, "truth values"),
        (torch.tensor([[1], [1]]), "twice the same device"),
        (None, "name pairs by `edge_index`"),
    ):
        with pytest.raises(UsageError, match=reason):
            links.predict_links(wrong)


def test_a_run_is_loaded_with_whatever_it_was_trained_on(data: Data, tmp_path: Path) -> None:
    """Also where options were needed to read it: the folder remembers them."""
    weighted = data_of(data.y, edge_weight=torch.ones(2 * len(EDGES)), train_mask=data.train_mask)
    settings: dict[str, Any] = {"weights": "drop", "split": "random", **QUICK}
    run = lumos.train(weighted, out=tmp_path / "pyg", **settings)
    again = lumos.load_run(tmp_path / "pyg", weighted)
    assert again.data.whole_graph().edges == len(EDGES)
    assert_array_equal(again.predict(), run.predict())
    with pytest.raises(InputError, match="the run is of another graph"):
        lumos.load_run(tmp_path / "pyg", data_of(data.y + 1).subgraph(torch.arange(59)))
    club = nx.Graph(map(tuple, EDGES.tolist()))
    for node in range(60):
        club.add_node(node, words=data.x[node].numpy(), team=int(data.y[node]))
    names: dict[str, Any] = {"features": "words", "labels": "team"}
    found = lumos.train(club, out=tmp_path / "club", **names, **QUICK)
    loaded = lumos.load_run(tmp_path / "club", club)
    assert_array_equal(loaded.predict(), found.predict(), strict=True)
    assert lumos.load_run(tmp_path / "club", club, **names).graph is not None
    named = lumos.train("demo:60", out=tmp_path / "demo", **QUICK)
    assert_array_equal(lumos.load_run(tmp_path / "demo", "demo:60").predict(), named.predict())

"""Splits that are given: masks, ids, shares, files, held-out edges; and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.narrow import present

import lumos
from lumos import Graph
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError, UsageError
from lumos.training.given_split import edge_split, given_again, vertex_split
from lumos.training.split import Role, split_edges, split_vertices

geometric = pytest.importorskip("torch_geometric")

QUICK: dict[str, Any] = {"encoder_epochs": 2, "epochs": 12}
N = 60


@pytest.fixture(scope="module")
def graph() -> Graph:
    return lumos.load(f"demo:{N}")


@pytest.fixture(scope="module")
def named() -> Graph:
    """The same with ids that are text."""
    demo = lumos.load(f"demo:{N}")
    return Graph.from_indices(
        demo.edge_list(),
        tuple(f"page {number}" for number in range(N)),
        features=demo.features,
        labels=demo.labels,
        classes=demo.classes,
    )


ROLES = np.array([0] * 25 + [1] * 10 + [2] * 20 + [-1] * 5)
TRAIN, VALIDATION, TEST = (np.flatnonzero(role == ROLES) for role in range(3))


def roles_of(graph: Graph, given: Any, seed: int = 0) -> Any:
    return vertex_split(graph, given, PublicRandomness(seed)).roles


def test_ids_masks_tensors_and_sets_say_the_same(graph: Graph) -> None:
    masks = [np.isin(np.arange(N), rows) for rows in (TRAIN, VALIDATION, TEST)]
    for parts in (
        (TRAIN, VALIDATION, TEST),
        (TRAIN.tolist(), set(VALIDATION.tolist()), range(35, 55)),
        masks,
        [mask.astype(int) for mask in masks],
        [torch.from_numpy(mask) for mask in masks],
        [torch.from_numpy(rows) for rows in (TRAIN, VALIDATION, TEST)],
        [rows.astype(float) for rows in (TRAIN, VALIDATION, TEST)],
    ):
        for names in (("train", "val", "test"), ("train_mask", "valid_mask", "test_mask")):
            given = dict(zip(names, parts, strict=True))
            assert np.array_equal(roles_of(graph, given), ROLES)


def test_original_ids_are_meant(named: Graph) -> None:
    parts = {"train": TRAIN, "valid": VALIDATION, "test": TEST}
    given = {name: [f"page {row}" for row in rows] for name, rows in parts.items()}
    assert np.array_equal(roles_of(named, given), ROLES)
    with pytest.raises(InputError, match="train names '0', which is not the id of any device"):
        roles_of(named, parts)


def test_masks_of_pyg_data_are_used(graph: Graph) -> None:
    data: Any = graph.to_pyg()
    for name, rows in (("train_mask", TRAIN), ("val_mask", VALIDATION), ("test_mask", TEST)):
        data[name] = torch.from_numpy(np.isin(np.arange(N), rows))
    run = lumos.train(data, **QUICK)
    assert np.array_equal(run.split.train, TRAIN)
    assert np.array_equal(run.split.validation, VALIDATION)
    assert np.array_equal(run.split.test, TEST)
    origin = "the split that came with the graph: 25 devices train, 10 validate, 20 test"
    assert run.split.origin == origin
    assert run.split_sizes.test == 20
    random = lumos.train(data, split="random", **QUICK)
    assert np.array_equal(random.split.test, lumos.train(graph, **QUICK).split.test)
    assert (
        "random, 50/25/25 of the labelled devices by seed 0: 30 devices train"
        in random.split.origin
    )


def test_without_validation_a_public_quarter_of_the_training_devices_keeps_its_label(
    graph: Graph,
) -> None:
    chosen = vertex_split(graph, {"train": TRAIN, "test": TEST}, PublicRandomness(0))
    assert np.array_equal(np.flatnonzero(chosen.roles == Role.TEST), TEST)
    both = np.flatnonzero((chosen.roles == Role.TRAIN) | (chosen.roles == Role.VALIDATION))
    assert np.array_equal(both, TRAIN)
    assert (chosen.roles == Role.VALIDATION).sum() == 6
    assert "nobody validates, so a random quarter of its trainers does" in chosen.origin
    again = vertex_split(graph, {"train": TRAIN, "test": TEST}, PublicRandomness(0))
    other = vertex_split(graph, {"train": TRAIN, "test": TEST}, PublicRandomness(1))
    assert np.array_equal(chosen.roles, again.roles)
    assert not np.array_equal(chosen.roles, other.roles)
    run = lumos.train(graph, split={"train": TRAIN, "test": TEST}, **QUICK)
    validating = run.split.validation
    assert (run.model.kept["released"][validating] == -1).all()


@pytest.mark.parametrize("text", ["60/20/20", "0.6,0.2,0.2", "60%,20%,20%", (0.6, 0.2, 0.2)])
def test_shares(graph: Graph, text: Any) -> None:
    chosen = vertex_split(graph, text, PublicRandomness(3))
    assert [(chosen.roles == role).sum() for role in range(3)] == [36, 12, 12]
    assert "60/20/20 of the labelled devices by seed 3: 36 devices" in chosen.origin


def test_shares_may_leave_devices_out(graph: Graph) -> None:
    roles = roles_of(graph, (0.1, 0.1, 0.2))
    assert [(roles == role).sum() for role in range(-1, 3)] == [36, 6, 6, 12]


def test_the_default_is_what_it_was(graph: Graph) -> None:
    assert np.array_equal(
        roles_of(graph, None), split_vertices(present(graph.labels), PublicRandomness(0))
    )
    assert vertex_split(graph, None, PublicRandomness(0)).name == ""
    assert edge_split(graph, None, PublicRandomness(0)).name == ""


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"train": [0, 1], "test": [1, 2]}, InputError, "1 devices are in train_mask and in test"),
        ({"train": [0, 1]}, InputError, "without test_mask; give both"),
        ({"train": [0, 0], "test": [2]}, InputError, "train names a device twice"),
        ({"train": [0, 99], "test": [2]}, InputError, "names '99', which is not the id"),
        ({"train": [0], "test": [45]}, InputError, "1 device trains and none validates"),
        ({"train": [True, False], "test": [2]}, InputError, r"shape \[2\]; one value per device"),
        ({"train": [0.5], "test": [2]}, InputError, "holds float64 values; use ids, or a mask"),
        ({"train": [0], "tset": [2]}, UsageError, "'tset' is no part of a split"),
        ({"val": [0], "valid": [2]}, UsageError, "validation is given twice"),
        ({"train": [0], "test_neg": [2]}, UsageError, "is for `task='link'`"),
        ((0.5, 0.5), UsageError, "three shares"),
        ((0.5, 0.5, 0.5), UsageError, "a sum of at most 1"),
        ("0/50/50", UsageError, "three shares"),
        (3, UsageError, "give three shares, a mapping of train, val and test, or a file; got int"),
        ("no such file.csv", InputError, "there is no such file"),
    ],
)
def test_what_is_no_split_is_refused(
    graph: Graph, given: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        roles_of(graph, given)


@pytest.mark.parametrize(
    ("roles", "reason"),
    [
        ([0] * 20 + [1] * 10 + [2] * 10, "2 devices of train_mask have no label"),
        ([2] * 20 + [1] * 20, "train_mask holds no device"),
        ([-1, -1] + [0] * 18 + [1] * 20, "test_mask holds no device"),
    ],
)
def test_roles_of_a_graph_are_checked_too(roles: list[int], reason: str) -> None:
    """The finding: devices without a label trained, until something else broke."""
    labels = np.arange(40) % 2
    labels[:2] = -1
    made = Graph.from_edges(
        [[0, 1], [1, 2]], devices=40, features=np.eye(40), labels=labels, roles=roles
    )
    with pytest.raises(InputError, match=reason):
        lumos.train(made, **QUICK)


def test_zeros_and_ones_are_a_mask_of_all_devices_or_ids(graph: Graph) -> None:
    """Never something in between: a device named twice, or a mask of other devices, is refused."""
    mask = np.isin(np.arange(graph.devices), TRAIN)
    parts = {"val": VALIDATION, "test": TEST}
    expected = vertex_split(graph, {"train": mask, **parts}, PublicRandomness(0)).roles
    for same in (mask.astype(np.int8), mask.astype(np.int64)[:, None], mask.tolist()):
        found = vertex_split(graph, {"train": same, **parts}, PublicRandomness(0)).roles
        assert np.array_equal(found, expected)
    for wrong, reason in (
        (mask.astype(np.int64)[:-1], "names a device twice"),
        (mask[:-1], "has the shape"),
        (mask.astype(np.float64), "names a device twice"),
        ([*TRAIN, TRAIN[0]], "names a device twice"),
    ):
        with pytest.raises(InputError, match=reason):
            vertex_split(graph, {"train": wrong, **parts}, PublicRandomness(0))


def test_devices_without_labels_cannot_train() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2], [2, 3]], labels=[0, -1, 1, 1], features=np.eye(4))
    with pytest.raises(InputError, match="1 devices of train_mask have no label"):
        roles_of(graph, {"train": [0, 1], "val": [2], "test": [3]})


# Files.


def written(path: Path, kind: str) -> Path:
    parts = {"train": TRAIN, "val": VALIDATION, "test": TEST}
    file = path / f"split.{kind}"
    if kind == "npz":
        np.savez(file, **parts)  # type: ignore[arg-type]
    elif kind == "json":
        file.write_text(json.dumps({name: rows.tolist() for name, rows in parts.items()}))
    else:
        mark = {"csv": ",", "tsv": "\t", "txt": " "}[kind]
        lines = [f"{row}{mark}{name}" for name, rows in parts.items() for row in rows]
        file.write_text("\n".join([f"id{mark}split", *lines, ""] if kind == "csv" else lines))
    return file


@pytest.mark.parametrize("kind", ["csv", "tsv", "txt", "json", "npz"])
def test_files(graph: Graph, tmp_path: Path, kind: str) -> None:
    file = written(tmp_path, kind)
    chosen = vertex_split(graph, str(file), PublicRandomness(0))
    assert np.array_equal(chosen.roles, ROLES)
    assert chosen.origin.startswith(f"the split of split.{kind}: 25 devices train")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "", "it holds no rows"),
        ("x.csv", "1,2,3,train", "4 columns; id,split or source,target,split"),
        ("x.csv", "1,train\n2", "line 2: 1 columns, but 2 before"),
        ("x.csv", ",train", "has an empty id"),
        ("x.json", "[1]", "an object .* is needed"),
        ("x.json", "{", "it is not valid JSON"),
        ("x.pt", "1", "a split is read from .csv"),
        ("x.npz", "1", "is damaged"),
    ],
)
def test_files_that_hold_no_split(
    graph: Graph, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        roles_of(graph, tmp_path / name)


# Edges.


def test_held_out_edges(graph: Graph, tmp_path: Path) -> None:
    random = split_edges(graph, PublicRandomness(5))
    validation, test = random.validation, random.test
    ids = np.asarray(graph.ids)
    both_ways = np.concatenate([ids[test], ids[test][:, ::-1]])
    held = edge_split(
        graph, {"val": ids[validation].T, "test": both_ways}, PublicRandomness(0)
    ).split
    assert np.array_equal(held.validation, validation)
    assert np.array_equal(held.test, test)
    assert np.array_equal(held.training.edge_list(), random.training.edge_list())
    file = tmp_path / "edges.csv"
    lines = [f"{u},{v},{n}" for n, p in (("val", validation), ("test", test)) for u, v in p]
    file.write_text("\n".join(lines))
    run = lumos.train(graph, task="link", split=str(file), out=tmp_path / "run")
    assert np.array_equal(run.split.test, test)
    again = lumos.load_run(tmp_path / "run", graph=graph)
    for part in ("train", "validation", "test"):
        assert np.array_equal(getattr(again.split, part), getattr(run.split, part))
    assert again.split.origin == run.split.origin
    pairs: Any = [(0, 7), (3, 30)]
    assert np.array_equal(run.predict_links(ids=pairs), again.predict_links(ids=pairs))
    lists = np.load(tmp_path / "run" / "split.npz")
    assert set(lists) == {"validation", "test"}


def test_non_neighbours_may_be_given(graph: Graph) -> None:
    random = split_edges(graph, PublicRandomness(5))
    given = {"val": random.validation, "test": random.test, "test_neg": random.test_non_neighbours}
    split = edge_split(graph, given, PublicRandomness(0)).split
    assert np.array_equal(split.test_non_neighbours, np.unique(random.test_non_neighbours, axis=0))
    assert len(split.validation_non_neighbours) == len(split.validation)


def test_what_is_no_split_of_edges_is_refused(graph: Graph) -> None:
    edges = graph.edge_list()
    for given, message in (
        ({"val": edges[:3], "test": edges[2:5]}, "an edge is in val and in test"),
        ({"val": edges[:3], "test": edges[3:]}, "hold all edges"),
        ({"val": edges[:3]}, "val and test are needed; test is missing"),
        ({"train": edges, "val": edges[:3], "test": edges[3:6]}, "leave train out"),
        ({"val": edges[:3], "test": [[0, 0]]}, "joins a device to itself"),
        ({"val": edges[:3], "test": [1, 2]}, r"pairs of ids are needed, \[edges, 2\]"),
        ({"val": edges[:3], "test": [[0, 999]]}, "names '999'"),
        ({"val": edges[:3], "test": edges[3:6], "test_neg": edges[:1]}, "is an edge"),
        ((0.5, 0.2, 0.2), "shares of edges must add up to 1"),
    ):
        with pytest.raises((InputError, UsageError), match=message):
            edge_split(graph, given, PublicRandomness(0))


# Runs.


def test_a_split_is_kept_read_and_audited_again(graph: Graph, tmp_path: Path) -> None:
    given = {"train": TRAIN, "val": VALIDATION, "test": TEST}
    run = lumos.train(graph, split=given, out=tmp_path / "run", **QUICK)
    again = lumos.load_run(tmp_path / "run", graph=graph)
    for part, rows in (("train", TRAIN), ("validation", VALIDATION), ("test", TEST)):
        assert np.array_equal(getattr(again.split, part), rows)
    kept = np.load(tmp_path / "run" / "split.npz")["roles"]
    assert np.array_equal(kept, ROLES)
    repeated = lumos.train(graph, split=given_again(again.split, graph), **QUICK)
    assert repeated.metrics == run.metrics
    with pytest.raises(UsageError, match="the run there has another `split`: the split that was"):
        lumos.train(graph, out=tmp_path / "run", resume=True, **QUICK)
    (tmp_path / "run" / "split.npz").unlink()
    with pytest.raises(InputError, match=r"split\.npz: there is no such file"):
        lumos.load_run(tmp_path / "run")


def test_another_split_has_other_noise(graph: Graph) -> None:
    """The same randomness over other summands would tell what differs between them."""
    given = {"train": TRAIN, "val": VALIDATION, "test": TEST}
    moved = {**given, "train": TRAIN[1:], "test": np.append(TEST, TRAIN[0])}
    randomness = []
    for split in (None, given, moved):
        roles, _, name = vertex_split(graph, split, PublicRandomness(0))
        config = lumos.Config.of(**QUICK)
        from lumos.training.problem import Problem

        problem = Problem.of(
            graph=graph,
            keep=None,
            roles=roles,
            held_back=np.empty((0, 2), np.int64),
            classes=graph.class_count,
            seed=0,
            shards=1,
            split=name,
        )
        randomness.append(config.profile.randomness(problem, config, control=False))
    assert len(set(randomness)) == 3


def test_baselines_have_the_same_split(graph: Graph) -> None:
    given = {"train": TRAIN, "val": VALIDATION, "test": TEST}
    measured = lumos.baseline(graph, system="own", epochs=2, split=given)
    right = measured.outputs[TEST].argmax(axis=1) == present(graph.labels)[TEST]
    assert measured.metrics["test_accuracy"] == pytest.approx(right.mean())
    assert measured.summary()["split_origin"].startswith(
        "the split that was given: 25 devices train"
    )


def test_a_data_object_alone() -> None:
    """PyG users pass data as it is; a mask over several splits is refused with the remedy."""
    generator = torch.Generator().manual_seed(0)
    data = geometric.data.Data(
        x=torch.rand(40, 5, generator=generator),
        y=torch.arange(40) % 2,
        edge_index=torch.stack([torch.arange(40), (torch.arange(40) + 20) % 40]),
        train_mask=torch.ones(40, 3, dtype=torch.bool),
        test_mask=torch.ones(40, 3, dtype=torch.bool),
    )
    with pytest.raises(InputError, match=r"split=\{'train': data.train_mask\[:, 0\]"):
        lumos.train(data)
    rows = torch.arange(40)
    chosen = {"train": rows < 20, "val": (rows >= 20) & (rows < 30), "test": rows >= 30}
    assert len(lumos.train(data, split=chosen, **QUICK).split.train) == 20

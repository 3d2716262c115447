"""Parts on disk hold, array by array, what a graph in memory is cut into."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.graph.parts.same_parts import assert_same, hosted, partitions, uneven, written

import lumos
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError, UsageError
from lumos.graph import Graph, load
from lumos.graph.facts import facts_of, fingerprint, parts_of
from lumos.graph.parts import PartsFolder, is_parts_folder
from lumos.graph.parts.manifest import equal_bounds
from lumos.training.given_split import edge_split, vertex_split


@pytest.mark.parametrize("how", ["one", "ranges", "uneven", "devices"])
def test_parts_are_those_of_the_graph_in_memory(how: str, sixty: Graph, tmp_path: Path) -> None:
    bounds = partitions(sixty)[how]
    folder = written(sixty, tmp_path / "parts", bounds, seed=3)
    assert folder.parts == len(bounds) - 1
    roles = vertex_split(sixty, None, PublicRandomness(3)).roles
    edges = edge_split(sixty, None, PublicRandomness(3)).split
    for number, part in enumerate(parts_of(sixty, hosted(bounds), roles)):
        assert_same(folder.part([number], "classify"), part)
    for number, part in enumerate(parts_of(edges.training, hosted(bounds), None, edges.validation)):
        assert_same(folder.part([number], "link"), part)
    assert folder.facts("classify") == facts_of(sixty)
    assert folder.facts("link") == facts_of(edges.training)
    pairs = (
        edges.validation,
        edges.test,
        edges.validation_non_neighbours,
        edges.test_non_neighbours,
    )
    for kept, drawn in zip(folder.held_out(), pairs, strict=True):
        np.testing.assert_array_equal(kept, drawn)


@pytest.mark.parametrize("how", ["ranges", "uneven"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_several_parts_are_one(how: str, ranks: int, sixty: Graph, tmp_path: Path) -> None:
    bounds = partitions(sixty)[how]
    folder = written(sixty, tmp_path / "parts", bounds)
    edges = edge_split(sixty, None, PublicRandomness(0)).split
    numbers = [folder.range_of(rank, ranks) for rank in range(ranks)]
    assert [number for some in numbers for number in some] == [*range(7)]
    of_ranks = hosted(bounds[[*(some.start for some in numbers), 7]])
    for some, part in zip(
        numbers, parts_of(edges.training, of_ranks, None, edges.validation), strict=True
    ):
        assert_same(folder.part(reversed(some), "link"), part)
        np.testing.assert_array_equal(folder.ids(some), part.devices)


def test_ranks_get_about_as_much_work(tmp_path: Path) -> None:
    """A star's hub, and everybody who knows many, are in the first part."""
    rows = [(u, v) for u in range(150) for v in range(u + 1, 150)]
    graph = Graph.from_edges([*rows, *((u, u + 1) for u in range(149, 1599))])
    folder = written(graph, tmp_path / "parts", equal_bounds(graph.devices, 16))
    assert folder.manifest.slots is not None
    assert sum(folder.manifest.slots) == 2 * graph.edges
    assert folder.range_of(0, 2) == range(1)  # 11,000 slots against 14,000 in all
    with pytest.raises(UsageError, match="has 16 parts, too few for 17 ranks; split the graph"):
        folder.range_of(0, 17)
    with pytest.raises(UsageError, match="too few for 0 ranks"):
        folder.range_of(0, 0)


def test_the_manifest_tells_nothing_of_a_single_device(sixty: Graph, tmp_path: Path) -> None:
    """Relabelled, with the same counts and names, all but the fingerprints stays the same."""
    order = np.random.default_rng(0).permutation(60)
    before = np.argsort(order)
    features: Any = sixty.features
    other = Graph.from_edges(
        order[sixty.edge_list()], devices=60, labels=np.asarray(sixty.labels)[before],
        classes=sixty.classes, features=features[before], name=sixty.name,
    )  # fmt: skip
    texts = []
    for number, graph in enumerate((sixty, other)):
        folder = written(graph, tmp_path / str(number), equal_bounds(60, 60))
        content = json.loads((folder.path / "manifest.json").read_text())
        del content["graph"]["simulation"]["fingerprint"], content["training"]["fingerprint"]
        texts.append(content)
    assert texts[0] == texts[1]
    assert texts[0]["slots"] is None  # they would be degrees


@pytest.mark.real
def test_facebook_in_parts(data_dir: Path, tmp_path: Path) -> None:
    graph = load("facebook", data_dir=data_dir)
    roles = vertex_split(graph, None, PublicRandomness(0)).roles
    edges = edge_split(graph, None, PublicRandomness(0)).split
    ranges = hosted(equal_bounds(22470, 4))
    folder = written(graph, tmp_path / "parts", equal_bounds(22470, 4))
    for one, part in enumerate(parts_of(graph, ranges, roles)):
        assert_same(folder.part([one], "classify"), part)
    for one, part in enumerate(parts_of(edges.training, ranges, None, edges.validation)):
        assert_same(folder.part([one], "link"), part)
    assert folder.facts("classify") == facts_of(graph)
    assert folder.facts("link") == facts_of(edges.training)


def to_dense(graph: Graph) -> Any:
    features: Any = graph.features
    return features.toarray()


def graphs() -> dict[str, Graph]:
    demo = load("demo:60")
    names = tuple(f"dévice {row}" for row in range(60))
    roles = np.where(np.asarray(demo.labels) > 3, 2, 0)
    dense = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    unknown = np.where(np.arange(60) % 5, np.asarray(demo.labels), -1)
    return {
        "demo": demo,
        "text": replace(demo, ids=names),
        "integers": replace(demo, ids=np.arange(60)[::-1] * 3),
        "roles": replace(demo, roles=roles),  # nobody validates: some are drawn
        "dense": replace(demo, features=dense, labels=unknown, notes=("made here",)),
        "bare": replace(demo, features=None, labels=None, classes=(), dropped_self_loops=4),
    }


@pytest.mark.parametrize("name", ["demo", "text", "integers", "roles", "dense", "bare"])
@pytest.mark.parametrize("how", ["ranges", "uneven"])
def test_the_whole_graph_comes_back(name: str, how: str, tmp_path: Path) -> None:
    graph = graphs()[name]
    folder = written(graph, tmp_path / "parts", partitions(graph)[how])
    again = lumos.load(folder.path)
    assert fingerprint(again) == fingerprint(graph)
    assert tuple(again.ids) == tuple(graph.ids)
    assert facts_of(again) == facts_of(graph) == folder.manifest.graph
    assert again.dropped_self_loops == graph.dropped_self_loops
    assert (again.roles is None) == (graph.roles is None)
    bare = load(folder.path, features=False)
    assert bare.features is None
    assert bare.edges == graph.edges


def test_a_split_that_is_not_the_default_comes_back_as_roles(sixty: Graph, tmp_path: Path) -> None:
    folder = written(sixty, tmp_path / "parts", split="60/20/20", seed=2)
    given = vertex_split(sixty, "60/20/20", PublicRandomness(2))
    again = load(folder.path)
    np.testing.assert_array_equal(again.roles, given.roles)
    assert (
        vertex_split(again, None, PublicRandomness(9)).name
        == given.name
        == folder.split("classify").name
    )
    assert load(folder.path, masks="ignore").roles is None


def test_reading_options_of_a_parts_folder(sixty: Graph, tmp_path: Path) -> None:
    path = written(sixty, tmp_path / "parts").path
    assert load(path, label_column="none").labels is None
    bounded = load(path, feature_bounds="0,2")
    halved, features = (to_dense(graph) for graph in (bounded, sixty))
    np.testing.assert_array_equal(halved, features / 2)
    for option in ({"label_column": "x"}, {"label_bins": 3}, {"categorical": "1"}):
        with pytest.raises(UsageError, match="leave out"):
            load(path, **option)


def test_damaged_folders_are_refused_in_one_line(sixty: Graph, tmp_path: Path) -> None:
    path = written(sixty, tmp_path / "parts", uneven(sixty, 3)).path
    assert is_parts_folder(path)
    (path / "part-00001.safetensors").unlink()
    folder = PartsFolder.open(path)
    assert len(folder.part([0, 2], "link").devices) > 0
    with pytest.raises(InputError, match=r"part-00001\.safetensors: there is no such file; split"):
        folder.part([1], "classify")
    with pytest.raises(InputError, match="part-00001"):
        load(path)
    with pytest.raises(UsageError, match=r"it has the parts 0 … 2; got \[3\]"):
        folder.part([3], "classify")
    with pytest.raises(UsageError, match="it has the parts"):
        folder.part([], "classify")
    (path / "observer.safetensors").unlink()
    with pytest.raises(InputError, match=r"observer\.safetensors: there is no such file"):
        folder.held_out()


def test_an_interrupted_split_is_recognised(sixty: Graph, tmp_path: Path) -> None:
    path = written(sixty, tmp_path / "parts").path
    (path / "manifest.json").unlink()
    (path / "unfinished").mkdir()
    assert is_parts_folder(path)
    for read in (load, PartsFolder.open):
        with pytest.raises(InputError, match="interrupted; delete the folder and split again"):
            read(path)
    with pytest.raises(UsageError, match="interrupted there; delete the folder first"):
        written(sixty, path)


def test_other_folders_are_none(tmp_path: Path) -> None:
    assert not is_parts_folder(tmp_path)
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    assert not is_parts_folder(tmp_path)
    with pytest.raises(InputError, match=r"manifest\.json: is damaged or of another version"):
        PartsFolder.open(tmp_path)
    with pytest.raises(InputError, match="give a folder that `lumos split` wrote"):
        PartsFolder.open(tmp_path / "none")


def test_one_part_takes_the_memory_of_one_part(tmp_path: Path) -> None:
    graph = load("demo:200000", features=False)
    path = written(graph, tmp_path / "parts", equal_bounds(200_000, 20), task="classify").path
    for other in range(1, 20):
        (path / f"part-{other:05d}.safetensors").unlink()
    tracemalloc.start()
    folder = PartsFolder.open(path)
    opened = tracemalloc.get_traced_memory()[0]
    part = folder.part([0], "classify")
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    own = sum(
        getattr(part, name).nbytes
        for name in ("devices", "offsets", "neighbours", "labels", "roles", "held_back")
    )
    everything = 8 * len(graph.neighbours)
    assert opened < 50_000
    assert kept - opened < own + 100_000
    assert peak < 3 * own + 100_000 < everything / 3

"""The splits in parts are those that a run draws; what cannot be split is left out and said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.graph.parts.same_parts import assert_same, hosted, uneven, written

from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.facts import facts_of, parts_of
from lumos.graph.parts.manifest import equal_bounds
from lumos.graph.parts.stored_part import StoredPart
from lumos.training.given_split import edge_split, vertex_split


def test_the_splits_are_described(sixty: Graph, tmp_path: Path) -> None:
    folder = written(sixty, tmp_path / "parts", seed=4, split=(0.5, 0.2, 0.3))
    devices = vertex_split(sixty, (0.5, 0.2, 0.3), PublicRandomness(4))
    edges = edge_split(sixty, (0.5, 0.2, 0.3), PublicRandomness(4))
    about = folder.split("classify")
    assert (about.origin, about.name, about.shares) == (devices.origin, devices.name, None)
    assert [about.train, about.validation, about.test] == [30, 12, 18]
    about = folder.split("link")
    assert (about.origin, about.name, about.shares) == (edges.origin, edges.name, edges.shares)
    split = edges.split
    counts = [split.training.edges, len(split.validation), len(split.test)]
    assert [about.train, about.validation, about.test] == counts
    assert folder.manifest.seed == 4


def test_a_split_of_devices_that_is_given(sixty: Graph, tmp_path: Path) -> None:
    given = {"train": [5, 1, 2, 9, 30, 31, 32], "val": [40, 41, 3], "test": [7, 8]}
    with pytest.raises(UsageError, match="is of one task; name it with `task`"):
        written(sixty, tmp_path / "parts", split=given)
    assert not (tmp_path / "parts").exists()
    folder = written(sixty, tmp_path / "parts", split=given, task="classify")
    roles = vertex_split(sixty, given, PublicRandomness(0)).roles
    for number, part in enumerate(parts_of(sixty, hosted(equal_bounds(60, 4)), roles)):
        assert_same(folder.part([number], "classify"), part)
    with pytest.raises(UsageError, match=r"not for `task='link'`: split the graph again without"):
        folder.part([0], "link")
    with pytest.raises(UsageError, match="not for `task='link'`"):
        folder.facts("link")
    with pytest.raises(UsageError, match="not for `task='link'`"):
        folder.held_out()


def test_held_out_edges_that_are_no_edges_of_the_graph(sixty: Graph, tmp_path: Path) -> None:
    """As PyG's RandomLinkSplit gives them: the graph has its training edges only."""
    edges = sixty.edge_list()
    known = {(u, v) for u, v in edges.tolist()}
    absent = [(u, v) for u in range(60) for v in range(u + 1, 60) if (u, v) not in known]
    given = {
        "val": [*absent[:9], *edges[:5].tolist()],
        "test": [*absent[9:20], *edges[5:9].tolist()],
        "test_negative": absent[20:30],
    }
    bounds = uneven(sixty, 3)
    folder = written(sixty, tmp_path / "parts", bounds, split=given, task="link")
    split = edge_split(sixty, given, PublicRandomness(0)).split
    parts = parts_of(split.training, hosted(bounds), None, split.validation)
    for number, part in enumerate(parts):
        assert_same(folder.part([number], "link"), part)
    assert sum(len(part.held_back) for part in parts) == 14
    assert_same(
        folder.part([0, 1, 2], "link"),
        parts_of(split.training, [np.arange(60)], None, split.validation)[0],
    )
    assert folder.facts("link") == facts_of(split.training)
    np.testing.assert_array_equal(folder.held_out().test_non_neighbours, absent[20:30])
    with pytest.raises(UsageError, match=r"not for `task='classify'`"):
        folder.split("classify")


def test_masks_of_the_graph_are_its_split(sixty: Graph, tmp_path: Path) -> None:
    graph = replace(sixty, roles=np.arange(60) % 4 - 1)
    folder = written(graph, tmp_path / "parts")
    drawn = vertex_split(graph, None, PublicRandomness(0))
    assert folder.split("classify").origin == drawn.origin
    np.testing.assert_array_equal(folder.part(range(4), "classify").roles, drawn.roles)
    assert folder.facts("classify") == facts_of(graph)


@pytest.mark.parametrize(
    ("change", "task", "reason"),
    [
        ({"labels": None, "classes": ()}, "classify", "has no labels; classify needs them"),
        ({"labels": np.zeros(60, int)}, "classify", "all are of one class"),
        ({"offsets": np.zeros(61, int), "neighbours": np.empty(0, int)}, "link", "edges: 0; link"),
    ],
)
def test_a_task_that_the_graph_does_not_allow(
    change: dict[str, Any], task: str, reason: str, sixty: Graph, tmp_path: Path
) -> None:
    graph = replace(sixty, **change)
    folder = written(graph, tmp_path / "parts")
    other = "link" if task == "classify" else "classify"
    assert {*folder.manifest.splits} == {other}
    with pytest.raises(UsageError, match=reason):
        folder.part([0], task)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=reason):
        written(graph, tmp_path / "again", task=task)
    assert not (tmp_path / "again").exists()


def test_a_graph_for_neither_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="edges: 3; link prediction needs at least 5"):
        written(Graph.from_edges([(0, 1), (1, 2), (2, 3)]), tmp_path / "parts")


def test_everything_is_for_its_owner_only(sixty: Graph, tmp_path: Path) -> None:
    folder = written(sixty, tmp_path / "parts", uneven(sixty, 3))
    assert folder.path.stat().st_mode & 0o777 == 0o700
    names = {file.name for file in folder.path.iterdir()}
    assert names == {
        "manifest.json",
        "observer.safetensors",
        *(f"part-0000{number}.safetensors" for number in range(3)),
    }
    for file in folder.path.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_not_empty_is_refused(sixty: Graph, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for path in (tmp_path, tmp_path / "mine"):
        with pytest.raises(UsageError, match="is there already and not empty; choose another"):
            written(sixty, path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir(mode=0o755)
    assert written(sixty, tmp_path / "empty").path.stat().st_mode & 0o777 == 0o700


def test_what_is_interrupted_takes_its_files_with_it(
    sixty: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    write = StoredPart.write

    def interrupt(self: StoredPart, folder: Path, number: int) -> None:
        if number == 0:
            return write(self, folder, number)
        seen.append(sorted(file.name for file in (tmp_path / "parts").iterdir()))
        raise KeyboardInterrupt

    monkeypatch.setattr(StoredPart, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        written(sixty, tmp_path / "parts")
    assert seen == [["part-00000.safetensors", "unfinished"]]  # what a kill would leave
    assert not (tmp_path / "parts").exists()

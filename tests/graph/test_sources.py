"""What may be written for GRAPH."""

from pathlib import Path

import numpy as np
import pytest
from tests.graph.writing import write_snap

from lumos.errors import InputError, LumosError, UsageError
from lumos.graph import Graph, demo_graph, load
from lumos.graph.sources import as_graph, data_directory


def test_demo_needs_nothing() -> None:
    assert load("demo").devices == 2000
    assert load("demo:60").devices == 60
    assert load("DEMO:60").name == "demo:60"
    assert load("demo:60", features=False).features is None
    assert np.array_equal(load("demo:60").neighbours, demo_graph(60).neighbours)


@pytest.mark.parametrize("spec", ["demo:", "demo:x", "demo:1.5", "demo:-3", "demo:_", "demo:0"])
def test_impossible_demos_are_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        load(spec)


@pytest.mark.parametrize("spec", ["nothing", "", "\0", "x" * 5000, "~nobody-here/x", "a/b.csv"])
def test_a_wrong_name_lists_the_right_ones_or_says_what_is_wrong(spec: str) -> None:
    with pytest.raises(LumosError) as caught:
        load(spec)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 6000


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(UsageError, match="demo, demo:60, facebook, lastfm, twitch-DE"):
        load("fecebook")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph.gml").write_text("graph []")
    with pytest.raises(UsageError, match=r"unknown format; use a SNAP folder or \.zip"):
        load(tmp_path / "graph.gml")


def test_an_empty_folder_says_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder holds one .*; found 0, 0 and 0 of these"):
        load(tmp_path)


def test_a_name_wins_over_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_snap(tmp_path).rename(tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    assert load("demo").devices == 2000
    assert load("./demo").devices == 4


def test_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LUMOS_DATA", raising=False)
    assert data_directory() == tmp_path / ".cache" / "lumos"
    monkeypatch.setenv("LUMOS_DATA", "~/graphs")
    assert data_directory() == tmp_path / "graphs"
    assert data_directory("here") == Path("here")


def test_a_graph_in_any_form(sixty: Graph, tmp_path: Path) -> None:
    assert as_graph(sixty) is sixty
    folder = write_snap(tmp_path)
    assert as_graph(folder).devices == as_graph(str(folder)).devices == 4
    for form in ("demo:60", sixty.to_networkx(), sixty.to_pyg()):
        graph = as_graph(form)
        assert np.array_equal(graph.neighbours, sixty.neighbours)
        assert graph.classes == sixty.classes
    with pytest.raises(UsageError, match=r"graph: list is neither a lumos\.Graph, a PyG Data"):
        as_graph([[0, 1]])


def test_a_graph_in_any_form_takes_options(sixty: Graph) -> None:
    data = sixty.to_pyg()
    data.train_mask, data.test_mask = np.ones((60, 10), bool), np.ones((60, 10), bool)
    with pytest.raises(InputError, match="train_mask has 10 columns"):
        as_graph(data)
    assert as_graph(data, masks="ignore").roles is None
    nodes = sixty.to_networkx(labels="team")
    assert as_graph(nodes, label_column="team").classes == sixty.classes

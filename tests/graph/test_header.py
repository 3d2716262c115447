"""Whether a first line names columns or is a row."""

from pathlib import Path
from typing import Any

import pytest
from lumos.graph.header import first_line
from tests.graph.writing import write_list

from lumos.errors import UsageError
from lumos.graph import load


def rows(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.split()]


TOLD: dict[str, tuple[str, int, bool, bool]] = {
    # text, columns of ids, is a header, is certain
    "numbers": ("1,2 2,3", 2, False, True),
    "names above numbers": ("a,b 1,2 2,3", 2, True, True),
    "source,target": ("source,target ann,bob", 2, True, True),
    "id1,id2": ("id1,id2 ann,bob", 2, True, True),
    "node_1,node_2": ("node_1,node_2 ann,bob", 2, True, True),
    "From,To": ("From,To ann,bob", 2, True, True),
    "src,dst": ("src,dst,weight ann,bob,2", 2, True, True),
    "u,v": ("u,v ann,bob bob,eve", 2, True, False),
    "u,v as vertices": ("u,v v,w w,u", 2, False, True),
    "first edge": ("alice,bob bob,carol carol,dave", 2, False, True),
    "one edge": ("alice,bob", 2, False, False),
    "pairs": ("alice,bob carol,dave erin,frank", 2, False, False),
    "unknown names": ("left,right ann,bob bob,eve eve,ann", 2, True, False),
    "weights below": ("left,right,strength ann,bob,1.5 eve,dan,2", 2, True, True),
    "names that are numbers too": ("alice,7 7,alice", 2, False, True),
    "pandas index": (",source 0,ann", 1, True, True),
    "id,label": ("id,label ann,x bob,y", 1, True, True),
    "class shared": ("ann,x bob,x eve,y", 1, False, False),
    "class names": ("who,team ann,x bob,x", 1, True, False),
    "numbers beside": ("who,age ann,30 bob,40", 1, True, True),
}


@pytest.mark.parametrize("case", TOLD)
def test_the_table_tells(case: str) -> None:
    text, ends, header, certain = TOLD[case]
    first, *rest = rows(text)
    assert first_line(first, rest, ends) == (header, certain)


@pytest.mark.parametrize(
    ("text", "ends", "known", "header"),
    [
        ("alice,bob carol,dave", 2, {"alice", "bob", "carol", "dave"}, False),
        ("left,right carol,dave", 2, {"carol", "dave"}, True),
        ("who,team ann,x", 1, {"ann", "bob"}, True),
        ("bob,x ann,y", 1, {"ann", "bob"}, False),
    ],
)
def test_ids_of_other_files_tell(text: str, ends: int, known: set[str], header: bool) -> None:
    first, *rest = rows(text)
    assert first_line(first, rest, ends, known) == (header, True)


PEOPLE = "alice,bob\nbob,carol\ncarol,dave\n"


def test_a_list_of_names_needs_no_header(tmp_path: Path) -> None:
    graph = load(write_list(tmp_path, PEOPLE))
    assert graph.ids == ("alice", "bob", "carol", "dave")
    assert graph.edges == 3
    assert not any("first line" in note for note in graph.notes)
    assert load(write_list(tmp_path / "h", "source,target\n" + PEOPLE)).edges == 3


def test_a_guess_is_said_and_can_be_corrected(tmp_path: Path) -> None:
    path = write_list(tmp_path, "left,right\n" + PEOPLE)
    graph = load(path)
    assert graph.edges == 3
    assert any(
        note == "graph.csv: its first line was read as names of columns; if that is wrong, use "
        "`header='no'`"
        for note in graph.notes
    )
    corrected = load(path, header="no")
    assert (corrected.edges, corrected.devices) == (4, 6)
    assert not any("first line" in note for note in corrected.notes)
    path = write_list(tmp_path / "pairs", "ann,bob\ncarol,dave\n")
    assert "read as a row like the others" in str(load(path).notes)
    assert load(path, header="yes").devices == 2
    with pytest.raises(UsageError, match="header must be one of auto, yes, no"):
        load(path, header="maybe")


@pytest.mark.parametrize(
    ("edges", "labels"),
    [
        ("ann,bob\nbob,eve\n", "ann,x\nbob,y\neve,x\n"),
        ("one,two\nann,bob\nbob,eve\n", "who,team\nann,x\nbob,y\neve,x\n"),
        ("ann,bob\nbob,eve\n", "id,label\nann,x\nbob,y\neve,x\n"),
        ("source,target\nann,bob\nbob,eve\n", "ann,x\nbob,y\neve,x\n"),
        ("one,two\nann,bob\nbob,eve\n", "ann,x\nbob,y\neve,x\n"),
    ],
)
def test_files_tell_of_one_another(tmp_path: Path, edges: str, labels: str) -> None:
    beside: dict[str, Any] = {"labels_csv": labels, "features_csv": "ann,1\nbob,2\neve,3\n"}
    graph = load(write_list(tmp_path, edges, **beside))
    assert graph.ids == ("ann", "bob", "eve")
    assert graph.edge_list().tolist() == [[0, 1], [1, 2]]
    assert graph.classes == ("x", "y")
    assert graph.feature_count == 1
    assert graph.notes == ()


def test_a_number_as_name_of_a_column(tmp_path: Path) -> None:
    path = write_list(tmp_path, "0,1\n10,20\n20,30\n")
    assert load(path).devices == 5
    assert load(path, header="yes").devices == 3

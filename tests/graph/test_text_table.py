"""Text tables: header, separator, comments, and the lines on which rows stand."""

from pathlib import Path

import pytest
from tests.graph.writing import write_list

from lumos.errors import InputError, UsageError
from lumos.graph import load
from lumos.graph.io import ReadOptions
from lumos.graph.io.tables import read_edges
from lumos.graph.io.text_table import table_of


def test_rows_know_their_lines() -> None:
    table = table_of('# one\n\nId, Name\n1,"a\nb"\n\n# two\n2,c\n', "f.csv")
    assert table.header == ("id", "name")
    assert table.comments == ((1, "one"),)
    assert list(table.rows()) == [(5, ["1", "a\nb"]), (8, ["2", "c"])]
    assert table.line_of_row(1) == 8
    assert table.column("NAME") == 1


@pytest.mark.parametrize(
    ("text", "separator"), [("1,2", ","), ("1\t2", "\t"), ("1;2", ";"), ("1 2", " ")]
)
def test_the_first_line_tells_the_separator(text: str, separator: str) -> None:
    table = table_of(text, "f.csv")
    assert table.separator == separator
    assert list(table.rows()) == [(1, ["1", "2"])]
    pairs = table.integer_pairs()
    assert pairs is not None
    assert pairs.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "text", ["1,2\n1.5,2", "1,-2", "1,2,3", "1,2\nx,2", "1,2\n3", "1,2\n3,1e3", "1,2\n3,0x1"]
)
def test_the_fast_reader_leaves_all_else_to_the_precise_one(text: str) -> None:
    assert table_of(text, "f.csv").integer_pairs() is None


@pytest.mark.parametrize("code", [0xB2, 0x0663, 0xFF11, 0x1D7D8, 0x20000, 0xE0031, 0x10FFFF])
def test_digits_beyond_ascii_are_no_integers(code: int) -> None:
    table = table_of(f"1,2\n3,{chr(code)}\n", "f.csv")
    assert table.integer_pairs() is None
    with pytest.raises(InputError, match=r"f\.csv, line 2: .* is not an integer"):
        read_edges(table, ReadOptions(), integers=True)


def test_blanks_beyond_ascii_around_ids() -> None:
    table = table_of("1,\u00a02\n3\u2009,4\n", "f.csv")
    assert read_edges(table, ReadOptions(), integers=True).tolist() == [[1, 2], [3, 4]]


def test_the_first_row_decides_what_ids_are() -> None:
    table = table_of("a,b\n1,x\n", "f.csv")
    assert table.has_integer_ids(0)
    assert not table.has_integer_ids(1)
    with pytest.raises(InputError, match=r"f.csv, line 2: 1 columns; column 2"):
        table_of("a,b\n1\n", "f.csv").has_integer_ids(1)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InputError, match=r"f.csv, line 1: there is no column 'label' .*id, name"):
        table_of("id,name\n1,a\n", "f.csv").column("label")


HEADERS: dict[str, tuple[str, int, bool]] = {
    # text, columns of ids, is a header
    "numbers": ("1,2 2,3", 2, False),
    "names above numbers": ("a,b 1,2 2,3", 2, True),
    "source,target": ("source,target ann,bob", 2, True),
    "id1,id2": ("id1,id2 ann,bob", 2, True),
    "node_1,node_2": ("node_1,node_2 ann,bob", 2, True),
    "From,To": ("From,To ann,bob", 2, True),
    "src,dst": ("src,dst,weight ann,bob,2", 2, True),
    "pandas index": (",source 0,ann", 1, True),
    "id,label": ("id,label ann,x bob,y", 1, True),
}


@pytest.mark.parametrize("case", HEADERS)
def test_well_known_names_and_numbers_tell_the_header(case: str) -> None:
    text, ids, header = HEADERS[case]
    table = table_of(text.replace(" ", "\n"), "f.csv", id_columns=ids)
    assert bool(table.header) == header


@pytest.mark.parametrize("text", ["alice,bob\nbob,carol\n", "left,right\nann,bob\n", "ann,bob"])
def test_any_other_first_line_is_asked_about(tmp_path: Path, text: str) -> None:
    path = write_list(tmp_path, text)
    with pytest.raises(
        InputError, match=r"graph.csv, line 1: does .* name the columns\? Say `header='yes'`"
    ):
        load(path)
    assert load(path, header="no").edges == text.count(",")
    with pytest.raises(UsageError, match="header must be one of auto, yes, no"):
        load(path, header="maybe")


def test_the_option_decides_for_all_tables(tmp_path: Path) -> None:
    path = write_list(
        tmp_path / "no",
        "ann,bob\nbob,eve\n",
        labels_csv="ann,x\nbob,y\neve,x\n",
        features_csv="ann,1\nbob,2\neve,3\n",
    )
    graph = load(path, header="no")
    assert (graph.ids, graph.classes, graph.edges) == (("ann", "bob", "eve"), ("x", "y"), 2)
    path = write_list(
        tmp_path / "yes",
        "one,two\nann,bob\nbob,eve\n",
        labels_csv="who,team\nann,x\nbob,y\neve,x\n",
        features_csv="who,age\nann,1\nbob,2\neve,3\n",
    )
    assert load(path, header="yes").edge_list().tolist() == graph.edge_list().tolist()


def test_a_number_as_name_of_a_column(tmp_path: Path) -> None:
    path = write_list(tmp_path, "0,1\n10,20\n20,30\n")
    assert load(path).devices == 5
    assert load(path, header="yes").devices == 3

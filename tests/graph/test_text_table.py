"""Text tables: header, separator, comments, and the lines on which rows stand."""

import pytest
from lumos.graph.tabular import read_edges
from lumos.graph.text_table import integer_pairs, integers_first, table_of

from lumos.errors import InputError
from lumos.graph.options import ReadOptions


def test_rows_know_their_lines() -> None:
    table = table_of('# one\n\nId, Name\n1,"a\nb"\n\n# two\n2,c\n', "f.csv")
    assert table.header == ("id", "name")
    assert table.comments == ((1, "one"),)
    assert list(table.rows()) == [(5, ["1", "a\nb"]), (8, ["2", "c"])]
    assert table.column("NAME") == 1


@pytest.mark.parametrize(
    ("text", "separator"), [("1,2", ","), ("1\t2", "\t"), ("1;2", ";"), ("1 2", " ")]
)
def test_the_first_line_tells_the_separator(text: str, separator: str) -> None:
    table = table_of(text, "f.csv")
    assert table.separator == separator
    assert list(table.rows()) == [(1, ["1", "2"])]
    pairs = integer_pairs(table)
    assert pairs is not None
    assert pairs.tolist() == [[1, 2]]


@pytest.mark.parametrize("text", ["1,2\n1.5,2", "1,-2", "1,2,3", "1,2\nx,2", "a,b\n", "1,2\n3"])
def test_the_fast_reader_leaves_all_else_to_the_precise_one(text: str) -> None:
    assert integer_pairs(table_of(text, "f.csv")) is None


@pytest.mark.parametrize("code", [0xB2, 0x0663, 0xFF11, 0x1D7D8, 0x20000, 0xE0031, 0x10FFFF])
def test_characters_beyond_ascii_are_not_left_to_numpy(code: int) -> None:
    """`numpy.loadtxt` looks up code points in a table of 256: it reads numbers, or crashes."""
    table = table_of(f"1,2\n3,{chr(code)}\n", "f.csv")
    assert integer_pairs(table) is None
    with pytest.raises(InputError, match=r"f\.csv, line 2: .* is not an integer"):
        read_edges(table, ReadOptions(), integers=True)


def test_blanks_beyond_ascii_around_ids() -> None:
    table = table_of("1,\u00a02\n3\u2009,4\n", "f.csv")
    assert read_edges(table, ReadOptions(), integers=True).tolist() == [[1, 2], [3, 4]]


def test_the_first_row_decides_what_ids_are() -> None:
    assert integers_first(table_of("a,b\n1,x\n", "f.csv"), 0)
    assert not integers_first(table_of("a,b\n1,x\n", "f.csv"), 1)
    with pytest.raises(InputError, match=r"f.csv, line 2: 1 columns; column 2"):
        integers_first(table_of("a,b\n1\n", "f.csv"), 1)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InputError, match=r"f.csv, line 1: there is no column 'label' .*id, name"):
        table_of("id,name\n1,a\n", "f.csv").column("label")

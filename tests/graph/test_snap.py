"""SNAP folders and archives, and one line for everything that may be wrong with them."""

from pathlib import Path

import numpy as np
import pytest
from tests.graph.writing import EDGES, TARGET, write_snap, zip_folder

from lumos.errors import InputError, MissingData, UsageError
from lumos.graph import Graph, load
from lumos.graph.catalog import CATALOG, checksums
from lumos.graph.io.folder import Folder


def check(graph: Graph, name: str = "facebook") -> None:
    assert graph.name == name
    assert graph.edge_list().tolist() == [[0, 1], [0, 2], [1, 2]]
    assert (graph.devices, graph.dropped_self_loops, graph.dropped_duplicates) == (4, 1, 1)
    assert graph.classes == ("company", "tvshow")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0, -1, 0]
    assert graph.feature_count == 4714
    row, column = graph.features.nonzero()  # type: ignore[union-attr]
    assert list(zip(row.tolist(), column.tolist(), strict=True)) == [
        (0, 1),
        (0, 3),
        (2, 4713),
        (3, 0),
    ]
    assert graph.features.max() == 1  # type: ignore[union-attr]
    assert graph.notes == ()


def test_a_named_graph_is_found_in_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_snap(tmp_path)
    check(load("facebook", data_dir=tmp_path))
    check(load("Facebook", data_dir=folder))
    check(load(folder))
    monkeypatch.setenv("LUMOS_DATA", str(tmp_path))
    check(load("facebook"))


@pytest.mark.parametrize("inside", ["facebook_large", "", "some/where/deep"])
def test_a_zip_is_read_in_place(tmp_path: Path, inside: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    archive = zip_folder(write_snap(tmp_path), data / "facebook_large.zip", inside)
    check(load("facebook", data_dir=data))
    check(load(archive))
    if inside:
        check(load(f"{archive}/{inside}"))
    assert [path.name for path in data.iterdir()] == ["facebook_large.zip"]


def test_lastfm_without_features_loads_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "lasftm_asia"
    folder.mkdir()
    (folder / "lastfm_asia_edges.csv").write_text("node_1,node_2\n0,1\n1,2\n")
    (folder / "lastfm_asia_target.csv").write_text("id,target\n0,10\n1,9\n2,9\n")
    graph = load("lastfm", data_dir=tmp_path)
    assert graph.features is None
    assert graph.notes[0].startswith("features absent: lastfm_asia_features.json is not in")
    # Classes that are numbers are sorted as numbers.
    assert graph.classes == ("9", "10")
    (folder / "lastfm_asia_features.json").write_text('{"0": [7841]}')
    graph = load("lastfm", data_dir=tmp_path)
    assert graph.feature_count == 7842
    assert "2 devices have no entry" in graph.notes[0]


def test_twitch_joins_on_new_id(tmp_path: Path) -> None:
    folder = tmp_path / "twitch" / "ENGB"
    folder.mkdir(parents=True)
    (folder / "musae_ENGB_edges.csv").write_text("from,to\n0,1\n")
    (folder / "musae_ENGB_features.json").write_text('{"1": [5], "0": []}')
    (folder / "musae_ENGB_target.csv").write_text(
        "id,days,mature,views,partner,new_id\n50,1,True,2,False,1\n60,1,False,2,False,0\n"
    )
    graph = load("twitch-ENGB", data_dir=tmp_path)
    assert graph.classes == ("False", "True")
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1]
    assert graph.ids.tolist() == [0, 1]  # type: ignore[union-attr]
    assert graph.feature_count == 3170
    with pytest.raises(InputError, match="name one of its folders: ENGB"):
        load(tmp_path / "twitch")
    archive = zip_folder(folder, tmp_path / "twitch.zip", "twitch/ENGB")
    zipped = tmp_path / "zipped"
    zipped.mkdir()
    archive.rename(zipped / "twitch.zip")
    assert load("twitch-engb", data_dir=zipped).devices == 2
    with pytest.raises(InputError, match=r"there is no musae_DE_edges.csv inside"):
        load("twitch-DE", data_dir=zipped)


def write_twitch(data_dir: Path, language: str, target: str, words: str) -> None:
    folder = data_dir / "twitch" / language
    folder.mkdir(parents=True)
    (folder / f"musae_{language}_edges.csv").write_text("from,to\n0,1\n1,2\n")
    (folder / words).write_text('{"1": [5], "0": [], "2": [3169]}')
    header = "id,days,mature,views,partner,new_id"
    (folder / f"musae_{language}_target.csv").write_text(f"{header}\n{target}")


TWITCH = "50,1,True,2,False,1\n60,1,False,2,False,0\n70,1,True,2,False,2\n"


def test_equal_rows_of_one_device_are_one_label(tmp_path: Path) -> None:
    """SNAP's Twitch FR lists a device twice, each time with the same label."""
    write_twitch(tmp_path, "FR", TWITCH + "70,1,True,2,False,2\n", "musae_FR_features.json")
    graph = load("twitch-FR", data_dir=tmp_path)
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 1]
    assert graph.notes == ("labels: 1 device is listed more than once, with the same label",)
    other = tmp_path / "other"
    write_twitch(other, "FR", TWITCH + "70,1,False,2,False,2\n", "musae_FR_features.json")
    with pytest.raises(InputError, match=r"line 5: device 2: more than one label"):
        load("twitch-FR", data_dir=other)


@pytest.mark.parametrize("words", ["musae_DE.json", "musae_DE_features.json", "DE.json"])
def test_the_words_of_twitch_de_have_any_of_their_names(tmp_path: Path, words: str) -> None:
    """In SNAP's archive they are `musae_DE.json`; all other languages have `_features.json`."""
    write_twitch(tmp_path, "DE", TWITCH, words)
    graph = load("twitch-DE", data_dir=tmp_path)
    assert graph.feature_count == 3170
    assert checksums(CATALOG["twitch-DE"], Folder(tmp_path / "twitch" / "DE")) == {
        "musae_DE_edges.csv": "unknown",
        words: "unknown",
        "musae_DE_target.csv": "unknown",
    }
    mine = tmp_path / "mine"
    (tmp_path / "twitch" / "DE").rename(mine)
    for file in mine.iterdir():
        file.rename(mine / file.name.replace("musae_DE", "XX").replace("DE", "XX"))
    assert load(mine).feature_count == 3170


def test_an_unknown_folder_in_snap_form_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my_edges.csv").write_text("a,b\n10,30\n30,20\n")
    (folder / "my_target.csv").write_text("id,target\n30,x\n20,y\n10,x\n")
    (folder / "my_features.json").write_text('{"10": [6], "20": [], "30": [1]}')
    graph = load(folder)
    assert graph.name == "mine"
    assert graph.ids.tolist() == [10, 20, 30]  # type: ignore[union-attr]
    assert graph.edge_list().tolist() == [[0, 2], [1, 2]]
    assert graph.feature_count == 7


def test_without_features_their_file_is_not_even_opened(tmp_path: Path) -> None:
    write_snap(tmp_path, words="{ this is no JSON")
    graph = load("facebook", data_dir=tmp_path, features=False)
    assert graph.features is None
    assert graph.notes == ("features absent: not asked for",)


def test_a_missing_graph_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"lumos data fetch facebook --data-dir .*facebook_large"):
        load("facebook", data_dir=tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (write_snap(tmp_path) / "musae_facebook_edges.csv").unlink()
    with pytest.raises(InputError, match=r"musae_facebook_edges.csv: no such file"):
        load("facebook", data_dir=tmp_path)


WRONG = {
    "unknown id": ({"edges": "id_1,id_2\n0,1\n1,77\n"}, r"edges.csv, line 3: the id '77'.*target"),
    "negative id": ({"edges": "id_1,id_2\n0,1\n-1,2\n"}, "edges.csv, line 3: the id -1 is neg"),
    "no integer": ({"edges": "id_1,id_2\n0,1\n\n1.5,2\n"}, r"edges.csv, line 4: '1.5' is not an"),
    "text as id": ({"edges": "id_1,id_2\n0,x\n"}, "edges.csv, line 2: 'x' is not an integer"),
    "nan as id": ({"edges": "id_1,id_2\n0,nan\n"}, "edges.csv, line 2: 'nan' is not an integer"),
    "huge id": ({"edges": f"id_1,id_2\n0,{10**30}\n"}, "edges.csv, line 2: the id .* too large"),
    "one id": ({"edges": "id_1,id_2\n0\n"}, "edges.csv, line 2: '0' is one id"),
    "no second id": ({"edges": "id_1,id_2\n0,\n"}, "edges.csv, line 2: an id is missing"),
    "weights": (
        {"edges": "id_1,id_2,w\n0,1,0.5\n"},
        r"line 2: '0.5' in column 3 .*`weights='drop'`",
    ),
    "no edges": ({"edges": "id_1,id_2\n"}, "edges.csv, line 2: there is no edge"),
    "empty file": ({"edges": ""}, "edges.csv, line 1: the file holds no rows"),
    "only loops": ({"edges": "id_1,id_2\n1,1\n"}, "edges.csv: every row joins a device to itself"),
    "label gap": (
        {"target": TARGET.replace("2,7,c,\n", "")},
        r"line 3: the id '2' .*target.*empty",
    ),
    "short row": ({"target": TARGET + "4,1\n"}, "target.csv, line 6: 2 columns"),
    "no column": ({"target": "id,kind\n0,a\n"}, "line 1: there is no column 'page_type'"),
    "no header": ({"target": "0,1,a,b\n"}, "no column 'id' .*no header"),
    "two labels": (
        {"target": TARGET + "1,8,b,tvshow\n"},
        r"line 6: device 1: .*`multilabel='first'`",
    ),
    "inf label": ({"target": TARGET + "4,8,b,inf\n"}, "line 6: the label is 'inf'"),
    "label id": ({"target": TARGET + "x,8,b,tvshow\n"}, "target.csv, line 6: 'x' is not an int"),
    "word range": ({"words": '{\n"0": [1],\n"1": [4714]}'}, r"line 3: .*4714 is not in 0 … 4713"),
    "word below": ({"words": '{"1": [-1]}'}, r"line 1: device '1': the word -1 is not in"),
    "word kind": ({"words": '{"1": [1.5]}'}, r"the word '1.5' is no integer"),
    "word nan": ({"words": '{"1": [NaN]}'}, r"the word 'nan' is no integer"),
    "word bool": ({"words": '{"1": [true]}'}, r"the word 'True' is no integer"),
    "no list": ({"words": '{"1": 5}'}, r"device '1' needs a list of words; got '5'"),
    "word device": ({"words": '{"8": [1]}'}, r"device '8' is not a device of this graph"),
    "word id": ({"words": '{"x": [1]}'}, r"'x' is not an integer id"),
    "word twice": ({"words": '{"1": [1], "1": [2]}'}, r"device '1' occurs twice"),
    "no object": ({"words": "[1]"}, r"an object .* is needed; got list"),
    "no json": ({"words": '{"1": [1],\n'}, r"features.json, line 2: .*not valid JSON"),
    "deep json": ({"words": "[" * 100_000}, r"features.json, line 1: it is not readable JSON"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, case: str) -> None:
    files, message = WRONG[case]
    write_snap(tmp_path, **files)
    with pytest.raises(InputError, match=message) as caught:
        load("facebook", data_dir=tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_text_that_is_no_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    folder = write_snap(tmp_path)
    (folder / "musae_facebook_edges.csv").write_bytes(b"id_1,id_2\n0,1\n\xff,2\n")
    with pytest.raises(InputError, match=r"edges.csv, line 3: byte 0xff is not UTF-8"):
        load("facebook", data_dir=tmp_path)


def test_a_byte_order_mark_and_windows_line_ends_are_no_mistake(tmp_path: Path) -> None:
    folder = write_snap(tmp_path)
    edges = b"\xef\xbb\xbf" + EDGES.replace("\n", "\r\n").encode()
    (folder / "musae_facebook_edges.csv").write_bytes(edges)
    check(load("facebook", data_dir=tmp_path))


def test_each_conversion_can_be_asked_for(tmp_path: Path) -> None:
    write_snap(tmp_path / "w", edges=EDGES.replace("0,1\n", "0,1,0.5\n"))
    check(load("facebook", data_dir=tmp_path / "w", weights="drop"))
    write_snap(tmp_path / "d", edges="# Directed graph\n" + EDGES)
    with pytest.raises(InputError, match=r"'Directed graph': .*`directed='symmetrise'`"):
        load("facebook", data_dir=tmp_path / "d")
    check(load("facebook", data_dir=tmp_path / "d", directed="symmetrise"))
    write_snap(tmp_path / "m", target=TARGET + "1,8,b,tvshow\n")
    check(load("facebook", data_dir=tmp_path / "m", multilabel="first"))
    write_snap(tmp_path / "g", target=TARGET.replace("2,7,c,\n", ""))
    check(load("facebook", data_dir=tmp_path / "g", missing_labels="unknown"))


def test_wrong_options_list_the_right_ones() -> None:
    with pytest.raises(UsageError, match=r"no option 'weight' .*; did you mean `weights`\?$"):
        load("demo", weight="drop")
    with pytest.raises(UsageError, match=r"no option 'xyz' .*; use directed, weights, "):
        load("demo", xyz="drop")
    with pytest.raises(UsageError, match="weights must be one of refuse, drop; got 'x'"):
        load("demo", weights="x")


@pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\x03\x04" + bytes(40)])
def test_an_unreadable_zip_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "facebook_large.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"facebook_large.zip: it cannot be read .*again"):
        load("facebook", data_dir=tmp_path)


def test_a_zip_cut_short_or_with_a_flipped_bit_is_named(tmp_path: Path) -> None:
    archive = zip_folder(write_snap(tmp_path / "x"), tmp_path / "facebook_large.zip", "f")
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"facebook_large.zip: it cannot be read"):
        load("facebook", data_dir=tmp_path)
    damaged = bytearray(content)
    damaged[60] ^= 0xFF
    archive.write_bytes(damaged)
    with pytest.raises(InputError, match=r"facebook_large.zip/f/.*edges.csv: it cannot be read"):
        load("facebook", data_dir=tmp_path)


def test_the_order_of_the_rows_makes_no_difference(tmp_path: Path) -> None:
    header, *rows = TARGET.splitlines()
    write_snap(tmp_path, target="\n".join([header, *reversed(rows)]))
    check(load("facebook", data_dir=tmp_path))
    assert np.array_equal(load("facebook", data_dir=tmp_path).ids, np.arange(4))

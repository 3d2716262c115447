"""Which column of a label file is the label: known names, else the caller says."""

from pathlib import Path

import pytest
from tests.graph.writing import write_list, zip_folder

from lumos.errors import InputError
from lumos.graph import load

TWITCH = "id,days,mature,views,partner,new_id"
DEVICES = 40


def twitch(folder: Path, stem: str, header: str = TWITCH) -> Path:
    """A folder like those of Twitch: `id` is foreign, edges and features speak of `new_id`."""
    folder.mkdir(parents=True)
    ring = "\n".join(f"{device},{(device + 1) % DEVICES}" for device in range(DEVICES))
    (folder / f"{stem}_edges.csv").write_text(f"from,to\n{ring}\n")
    rows = [
        f"{1000 + 7 * d},{d // 3},{d % 2 == 0},{d * d},{d % 5 == 0},{d}" for d in range(DEVICES)
    ]
    (folder / f"{stem}_target.csv").write_text("\n".join([header, *reversed(rows)]))
    words = ", ".join(f'"{device}": [{device % 4}]' for device in range(DEVICES))
    (folder / f"{stem}_features.json").write_text(f"{{{words}}}")
    return folder


@pytest.mark.parametrize(
    ("name", "stem"), [("DE", "musae_DE"), ("renamed", "musae_DE"), ("KR", "KR"), ("x", "gamers")]
)
def test_twitch_of_any_language_loads_by_its_columns(tmp_path: Path, name: str, stem: str) -> None:
    graph = load(twitch(tmp_path / name, stem))
    assert graph.classes == ("False", "True")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0] * (DEVICES // 2)
    assert graph.ids.tolist() == list(range(DEVICES))  # type: ignore[union-attr]
    assert graph.edges == DEVICES
    partner = load(tmp_path / name, label_column="partner")
    assert partner.labels is not None
    assert partner.labels.tolist() == [int(d % 5 == 0) for d in range(DEVICES)]
    # Counted from 1, as in errors.
    third = load(tmp_path / name, label_column=3)
    assert third.labels is not None
    assert third.labels.tolist() == graph.labels.tolist()


def test_the_choice_is_said(tmp_path: Path) -> None:
    graph = load(twitch(tmp_path / "x", "gamers"))
    assert f"labels are the column 'mature' of {TWITCH.replace(',', ', ')}" in graph.notes


def test_a_zip_of_a_renamed_folder(tmp_path: Path) -> None:
    archive = zip_folder(twitch(tmp_path / "x", "gamers"), tmp_path / "a.zip", "some")
    assert load(archive).classes == ("False", "True")


def test_numbers_of_views_and_days_are_never_taken_in_silence(tmp_path: Path) -> None:
    header = TWITCH.replace("mature", "adult").replace("partner", "paid")
    folder = twitch(tmp_path / "x", "gamers", header)
    with pytest.raises(
        InputError,
        match=r"gamers_target.csv, line 1: which column is the label\? It has id, days, adult, "
        r"views, paid, new_id; name one with `label_column=",
    ):
        load(folder)
    assert load(folder, label_column="adult").classes == ("False", "True")
    with pytest.raises(InputError, match=r"column 'views': 40 different labels .*`label_bins=4`"):
        load(folder, label_column="Views")
    assert load(folder, label_column="views", label_bins=4).class_count == 4
    with pytest.raises(InputError, match=r"line 1: there is no column 'age'.*id, days, adult"):
        load(folder, label_column="age")
    with pytest.raises(InputError, match="column 'new_id' holds the ids"):
        load(folder, label_column="new_id")
    with pytest.raises(InputError, match=r"column 'id': 40 different labels on 40 devices"):
        load(folder, label_column="id")


EDGES = "source,target\n1,2\n2,3\n"


@pytest.mark.parametrize(
    "labels",
    [
        "id,label\n1,a\n2,b\n3,a\n",
        "id,team\n1,a\n2,b\n3,a\n",
        "id,name,class,age\n1,Ann,a,30\n2,Bob,b,40\n3,Eve,a,50\n",
        "id,type,label\n1,p,a\n2,p,b\n3,q,a\n",
        "1,a\n2,b\n3,a\n",
    ],
)
def test_labels_beside_an_edge_list(tmp_path: Path, labels: str) -> None:
    graph = load(write_list(tmp_path, EDGES, labels_csv=labels))
    assert graph.classes == ("a", "b")
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 0]


def test_several_columns_need_a_choice(tmp_path: Path) -> None:
    path = write_list(tmp_path, EDGES, labels_csv="id,one,two\n1,a,x\n2,b,x\n3,a,y\n")
    with pytest.raises(InputError, match=r"which column is the label\? It has id, one, two"):
        load(path)
    assert load(path, label_column="two").classes == ("x", "y")
    path = write_list(tmp_path / "bare", EDGES, labels_csv="1,a,x\n2,b,x\n3,a,y\n")
    with pytest.raises(InputError, match=r"It has 3 columns without names; .*`label_column=2`"):
        load(path)
    assert load(path, label_column=3).classes == ("x", "y")
    with pytest.raises(InputError, match=r"no column '4'.* 3 columns without names"):
        load(path, label_column=4)
    path = write_list(tmp_path / "none", EDGES)
    with pytest.raises(InputError, match=r"there is no graph.labels.csv"):
        load(path, label_column="x")


def test_a_column_of_ids_is_refused_as_such(tmp_path: Path) -> None:
    ring = "\n".join(f"{device},{(device + 1) % DEVICES}" for device in range(DEVICES))
    same = "\n".join(f"{device},{device}" for device in range(DEVICES))
    path = write_list(tmp_path, ring, labels_csv=f"id,label\n{same}")
    with pytest.raises(InputError, match=r"labels.csv: column 'label': 40 .* are the ids again"):
        load(path)

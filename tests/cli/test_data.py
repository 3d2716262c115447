"""`lumos data`: its JSON, its lines for people, its exit statuses."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos.cli.main import run
from lumos.graph import load

FACEBOOK = "facebook_large/musae_facebook"


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LUMOS_DATA", str(tmp_path))
    # Nothing listens there: a test never reaches the network.
    monkeypatch.setenv("LUMOS_SNAP_URL", "http://127.0.0.1:1")


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command with --json, and return its one JSON object."""

    def ask(*arguments: str) -> Any:
        assert run(["data", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that is refused with status 2, and return its one line."""

    def ask(*arguments: str) -> str:
        assert run(["data", *arguments]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    return ask


def write_facebook(folder: Path) -> None:
    (folder / "facebook_large").mkdir()
    (folder / f"{FACEBOOK}_edges.csv").write_text("id_1,id_2\n0,1\n1,1\n1,0\n")
    (folder / f"{FACEBOOK}_target.csv").write_text("id,page_type\n0,a\n1,\n2,b\n")


def test_check_counts_what_the_graph_holds(answer: Callable[..., Any]) -> None:
    result = answer("check", "demo:60")
    graph = load("demo:60")
    assert result == {
        "name": "demo:60",
        "devices": 60,
        "edges": graph.edges,
        "features": 600,
        "classes": 6,
        "dropped_self_loops": 0,
        "dropped_duplicates": 0,
        "isolated": int((graph.degrees == 0).sum()),
        "max_degree": int(graph.degrees.max()),
        "labelled": 60,
        "notes": [],
        "checksums": {},
    }


def test_check_of_a_file_with_conversions(
    answer: Callable[..., Any], refusal: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("# Directed graph\n1,2,0.5\n2,3,0.5\n")
    (tmp_path / "graph.labels.csv").write_text("1,a\n2,\n")
    assert "--directed symmetrise" in refusal("check", str(path))
    chosen = ["--directed", "symmetrise"]
    line = refusal("check", str(path), *chosen)
    assert f"{path}, line 2: '0.5' in column 3 is a weight" in line
    chosen += ["--weights", "drop"]
    assert "--missing-labels unknown" in refusal("check", str(path), *chosen)
    result = answer("check", str(path), *chosen, "--missing-labels", "unknown")
    assert (result["devices"], result["edges"], result["labelled"]) == (3, 2, 1)
    assert result["notes"][0].startswith("features absent")


def test_check_prints_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "check", "demo"]) == 0
    printed = capsys.readouterr()
    assert "2,000" in printed.out
    assert "dropped self loops" in printed.out
    assert printed.err == ""


def test_check_fails_on_another_checksum_after_its_counts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_facebook(tmp_path)
    assert run(["data", "check", "facebook", "--json"]) == 2
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert (result["devices"], result["dropped_duplicates"], result["isolated"]) == (3, 1, 1)
    assert result["checksums"]["musae_facebook_edges.csv"] == "differs"
    assert result["checksums"]["musae_facebook_features.json"] == "absent"
    assert "musae_facebook_edges.csv: its SHA-256 is not 7c50d8f02a75cc08…" in printed.err


def test_list_says_what_is_here(
    answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_facebook(tmp_path)
    (tmp_path / "lastfm_asia.zip").write_bytes(b"junk")
    rows = {row["name"]: row for row in answer("list")["graphs"]}
    assert rows["demo"]["path"] == "embedded"
    assert rows["facebook"]["path"] == str(tmp_path / "facebook_large")
    assert rows["lastfm"]["path"].startswith("unreadable: ")
    assert rows["twitch-ENGB"]["path"] is None
    assert rows["twitch-ENGB"]["url"] == "https://snap.stanford.edu/data/twitch.zip"
    assert run(["data", "list"]) == 0
    assert "twitch-PTBR" in capsys.readouterr().out


def test_data_dir_wins_over_the_environment(answer: Callable[..., Any], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_facebook(other)
    rows = answer("list", "--data-dir", str(other))["graphs"]
    assert [row["path"] for row in rows if row["name"] == "facebook"] == [
        str(other / "facebook_large")
    ]


def test_fetch_of_demo_needs_no_network(answer: Callable[..., Any]) -> None:
    assert answer("fetch", "demo") == {
        "name": "demo",
        "path": None,
        "fetched": False,
        "checksums": {},
    }


def test_fetch_without_network_says_what_to_do(refusal: Callable[..., str], tmp_path: Path) -> None:
    line = refusal("fetch", "facebook")
    assert "download https://snap.stanford.edu/data/facebook_large.zip in a browser" in line
    assert f"put it at {tmp_path / 'facebook_large.zip'}" in line
    assert "lumos data check facebook" in line
    assert list(tmp_path.iterdir()) == []


def test_fetch_refuses_an_archive_with_other_contents(
    refusal: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_facebook(tmp_path)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    with zipfile.ZipFile(mirror / "facebook_large.zip", "w") as archive:
        for file in (tmp_path / "facebook_large").iterdir():
            archive.write(file, f"facebook_large/{file.name}")
    monkeypatch.setenv("LUMOS_SNAP_URL", mirror.as_uri())
    data = tmp_path / "data"
    assert "its SHA-256 is not" in refusal("fetch", "facebook", "--data-dir", str(data))
    assert list(data.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "fecebook"], "choose from facebook, lastfm"),
        (["check", "nothing"], "'nothing' is no file"),
        (["check", "facebook"], "lumos data fetch facebook"),
        (["check", "demo:1"], "demo needs 2 to"),
        (["check", "demo", "--weights", "x"], "--weights"),
        (["check"], "lumos data check --help"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    refusal: Callable[..., str], arguments: list[str], message: str
) -> None:
    assert message in refusal(*arguments)


def test_check_of_a_file_with_columns_to_choose(
    answer: Callable[..., Any], refusal: Callable[..., str], tmp_path: Path
) -> None:
    ring = [f"u{device},u{(device + 1) % 30}" for device in range(30)]
    people = [f"u{device},{'ab'[device % 2]},{device / 4}" for device in range(30)]
    path = tmp_path / "graph.csv"
    path.write_text("\n".join(ring))
    assert "--header" in refusal("check", str(path))
    path.write_text("\n".join(["source,target", *ring]))
    (tmp_path / "graph.labels.csv").write_text("\n".join(["id,team,score", *people]))
    (tmp_path / "graph.features.csv").write_text(
        "\n".join(["id,city,age", *(f"u{device},{'xyz'[device % 3]},-1" for device in range(30))])
    )
    check = ("check", str(path))
    assert "--label-column team" in refusal(*check)
    chosen = ["--label-column", "score"]
    assert "--categorical city" in refusal(*check, *chosen)
    chosen += ["--categorical", "city", "--feature-bounds=-1,1"]
    assert "--label-bins 4" in refusal(*check, *chosen)
    chosen += ["--label-bins", "3"]
    result = answer(*check, *chosen)
    assert (result["devices"], result["classes"], result["features"]) == (30, 3, 4)
    assert "--label-bins" in refusal(*check, "--label-bins", "1")
    assert "--label-bins" in refusal(*check, "--label-bins", "x")


def test_check_counts_a_split(answer: Callable[..., Any], tmp_path: Path) -> None:
    masks: dict[str, Any] = {"train_mask": [1, 1, 0, 0], "test_mask": [0, 0, 1, 0]}
    np.savez(tmp_path / "g.npz", edges=[[0, 1], [2, 3]], y=[0, 1, 0, -1], **masks)
    result = answer("check", str(tmp_path / "g.npz"))
    assert (result["train"], result["validation"], result["test"]) == (2, 0, 1)

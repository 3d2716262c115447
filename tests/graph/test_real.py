"""The real graphs: the figures that SNAP and our notes give for them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lumos.graph import load
from lumos.graph.catalog import CATALOG, checksums, find_entry

SIBLING = Path(__file__).parents[3] / "shared" / "data"
DATA = Path(os.environ.get("LUMOS_DATA") or SIBLING)

pytestmark = pytest.mark.real


def need(name: str) -> None:
    if not (DATA / CATALOG[name].folders[0]).is_dir():
        pytest.skip(f"{name} is not here; set LUMOS_DATA to the folder that holds it")


@pytest.mark.parametrize(
    ("name", "classes", "self_loops", "largest"),
    [("facebook", 4, 179, 709), ("lastfm", 18, 0, 216), ("twitch-ENGB", 2, 0, 720)],
)
def test_counts(name: str, classes: int, self_loops: int, largest: int) -> None:
    need(name)
    graph = load(name, data_dir=DATA)
    entry = CATALOG[name]
    assert (graph.devices, graph.edges) == (entry.devices, entry.edge_count)
    assert graph.class_count == classes
    assert (graph.dropped_self_loops, graph.dropped_duplicates) == (self_loops, 0)
    assert graph.degrees.max() == largest
    assert graph.labels is not None
    assert graph.labels.min() == 0
    if entry.features in find_entry(entry, DATA).names():
        assert graph.feature_count == entry.feature_count
        assert graph.notes == ()
    else:
        assert graph.features is None
        assert graph.notes[0].startswith(f"features absent: {entry.features}")


def test_facebook_words() -> None:
    need("facebook")
    words = load("facebook", data_dir=DATA).features
    assert words is not None
    assert words.sum() / words.shape[0] == pytest.approx(14, abs=0.5)
    assert words.max() == 1


@pytest.mark.parametrize("name", ["facebook", "lastfm", "twitch-ENGB"])
def test_checksums(name: str) -> None:
    need(name)
    status = checksums(CATALOG[name], find_entry(CATALOG[name], DATA))
    assert "differs" not in status.values()
    assert list(status.values()).count("ok") >= 2


def test_twitch_labels_are_joined_on_new_id() -> None:
    need("twitch-ENGB")
    graph = load("twitch-ENGB", data_dir=DATA)
    rows = (DATA / "twitch/ENGB/musae_ENGB_target.csv").read_text().splitlines()[1:]
    ids = list(graph.ids)
    for row in rows[:200]:
        _, _, mature, _, _, new_id = row.split(",")
        assert graph.labels is not None
        assert graph.classes[graph.labels[ids.index(int(new_id))]] == mature


def test_the_structure_of_facebook_needs_little_memory() -> None:
    need("facebook")
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process is read from /proc, which is not here")
    # Not getrusage: a child inherits the peak of the process that started it.
    program = (
        "import lumos.graph; lumos.graph.load('facebook', features=False); "
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    environment = os.environ | {"LUMOS_DATA": str(DATA)}
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert int(answer.stdout) < 200_000, "kB at the peak"


def test_features_do_not_change_the_structure() -> None:
    need("facebook")
    bare = load("facebook", data_dir=DATA, features=False)
    assert np.array_equal(bare.neighbours, load("facebook", data_dir=DATA).neighbours)

"""What is public of a graph in parts: written, read, and refused where it was changed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.graph.parts.same_parts import written

from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import equal_bounds, public_slots


@pytest.mark.parametrize(("devices", "parts"), [(1, 1), (10, 3), (60, 60), (1000, 7)])
def test_contiguous_ranges_are_about_equal(devices: int, parts: int) -> None:
    sizes = np.diff(equal_bounds(devices, parts))
    assert sizes.sum() == devices
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("parts", [0, -1, 11])
def test_parts_need_devices(parts: int) -> None:
    with pytest.raises(UsageError, match=r"`parts` must be between 1 and the number of devices"):
        equal_bounds(10, parts)


def test_slots_are_public_in_a_crowd() -> None:
    assert public_slots(np.array([7, 8]), np.array([100, 200])) == [7, 8]
    assert public_slots(np.array([7, 8]), np.array([99, 200])) is None


@pytest.mark.parametrize(
    "change",
    [
        {"lumos_parts": 1},
        {"lumos_parts": "2"},
        {"parts": 0},
        {"parts": 3},
        {"bounds": [0, 15, 30, 45, 61]},
        {"bounds": [0, 15, 15, 45, 60]},
        {"bounds": [0, 30, 15, 45, 60]},
        {"bounds": [0, 15.5, 30, 45, 60]},
        {"slots": [1, 2]},
        {"training": None},
        {"ids": "pickled"},
        {"splits": {"other": {}}},
        {"graph": {"devices": "many"}},
        {"seed": None},
    ],
)
def test_a_manifest_that_was_changed_is_refused(
    change: dict[str, Any], sixty: Graph, tmp_path: Path
) -> None:
    path = written(sixty, tmp_path / "parts").path
    file = path / "manifest.json"
    content = json.loads(file.read_text())
    assert next(iter(content)) == "lumos_parts"
    file.write_text(json.dumps({**content, **change}))
    with pytest.raises(InputError, match=r"manifest.json: .*; split the graph again$") as refused:
        PartsFolder.open(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", '{"lumos_parts": 1}', "[" * 100_000])
def test_a_manifest_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json: is damaged or of another version"):
        PartsFolder.open(tmp_path)

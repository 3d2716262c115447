"""A demo graph made part by part is, byte by byte, the one that is made in memory."""

from pathlib import Path

import numpy as np
import pytest
from tests.graph.parts.same_parts import assigned, written

from lumos.errors import UsageError
from lumos.graph import demo, load
from lumos.graph.demo import DemoDraws
from lumos.graph.parts.manifest import Partition
from lumos.graph.parts.part_source import StreamedDemo
from lumos.training.write_parts import write_parts


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("parts", [1, 3, 40])
@pytest.mark.parametrize("features", [True, False])
def test_all_files_are_the_same(
    parts: int, features: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = load("demo:1500", features=features)
    partition = Partition.equal(1500, parts)
    whole = written(graph, tmp_path / "whole", partition, seed=1)
    monkeypatch.setattr(demo, "SLICE", 700)  # several slices of draws and of devices
    source = StreamedDemo(1500, features=features)
    streamed = write_parts(source, tmp_path / "streamed", partition, seed=1)
    assert contents(streamed.path) == contents(whole.path)
    assert {*streamed.manifest.splits} == {"classify", "link"}


@pytest.mark.parametrize("devices", [2, 3, 17])
def test_slices_of_words_are_those_of_all(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = DemoDraws(devices)
    whole = draws.words(0, devices).toarray()
    pairs = np.concatenate([*draws.pairs()])
    monkeypatch.setattr(demo, "SLICE", 4)
    sliced = DemoDraws(devices)
    for low in range(devices):
        for high in range(low, devices + 1):
            np.testing.assert_array_equal(sliced.words(low, high).toarray(), whole[low:high])
    np.testing.assert_array_equal(np.concatenate([*sliced.pairs()]), pairs)


def test_streamed_parts_are_contiguous(tmp_path: Path) -> None:
    partition = assigned(load("demo:60"), 3)
    with pytest.raises(UsageError, match="contiguous ranges; use `parts` in place of `assign`"):
        write_parts(StreamedDemo(60), tmp_path / "parts", partition)
    assert not (tmp_path / "parts").exists()  # nothing is left of what was refused

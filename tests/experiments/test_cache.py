"""Kept results: by exact key, from a folder or a collection, never half-written."""

import json
import math
import re
from pathlib import Path

import pytest

from lumos.errors import InputError, UsageError
from lumos.experiments.cache import Key, ResultCache, keep, key_of, read_kept, record_of
from lumos.experiments.cell import Cell
from lumos.experiments.result_versions import VERSIONS

CELL = Cell.of("trees", "demo", 0, balancer="greedy")
KEY = Key("run1", 1)


def test_what_is_put_is_found_by_its_key_only(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, CELL, {"score": 1.5})
    cached = ResultCache(tmp_path).get(KEY)
    assert cached is not None
    assert cached.result == {"score": 1.5}
    assert not cached.other_version
    assert cache.get(Key("run1", 2)) is None
    assert cache.get(Key("run2", 1)) is None


def test_the_key_holds_the_version_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(CELL, "g")
    monkeypatch.setitem(VERSIONS, "trees", before.version + 1)
    assert key_of(CELL, "g") == Key(before.run, before.version + 1)


def test_a_file_that_was_never_finished_is_no_cell(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    path = cache.path(KEY)
    path.parent.mkdir()
    path.with_name(path.name + ".new").write_text('{"result": {"sc')
    assert cache.get(KEY) is None


@pytest.mark.parametrize("content", ["", "[]", '{"result": 3}', '{"format": 1}'])
def test_a_damaged_cell_is_named(tmp_path: Path, content: str) -> None:
    cache = ResultCache(tmp_path)
    cache.put(KEY, CELL, {})
    cache.path(KEY).write_text(content)
    with pytest.raises(InputError, match=re.escape(cache.path(KEY).name)):
        cache.get(KEY)


def test_kept_results_need_the_same_version_unless_any_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "docs" / "reproduce-demo.json"
    keep(file, [record_of(KEY, CELL, {"score": 2.0})])
    exact, lenient = ResultCache(tmp_path, [file]), ResultCache(tmp_path, [file], any_version=True)
    cached = exact.get(KEY)
    assert cached is not None
    assert (cached.result, cached.collection, cached.other_version) == (
        {"score": 2.0},
        file.name,
        False,
    )
    other = Key("run1", 2)
    assert exact.get(other) is None
    cached = lenient.get(other)
    assert cached is not None
    assert cached.other_version
    assert lenient.get(Key("run2", 1)) is None


def test_cells_of_the_folder_come_first(tmp_path: Path) -> None:
    file = tmp_path / "reproduce-demo.json"
    keep(file, [record_of(KEY, CELL, {"score": 2.0})])
    cache = ResultCache(tmp_path, [file])
    cache.put(KEY, CELL, {"score": 3.0})
    cached = cache.get(KEY)
    assert cached is not None
    assert cached.result == {"score": 3.0}


def test_a_collection_does_not_depend_on_the_order_and_is_read_again(tmp_path: Path) -> None:
    records = [record_of(Key(f"run{n}", 1), CELL, {"n": n}) for n in range(3)]
    keep(tmp_path / "one.json", records)
    keep(tmp_path / "other.json", reversed(records))
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()
    assert [record["result"]["n"] for record in read_kept(tmp_path / "one.json")] == [0, 1, 2]


def test_a_collection_grows_and_a_newer_result_replaces_the_older(tmp_path: Path) -> None:
    file = tmp_path / "reproduce-demo.json"
    keep(file, [record_of(Key(run, 1), CELL, {"score": 1.0}) for run in ("a", "b")])
    keep(file, [record_of(Key(run, 2), CELL, {"score": 2.0}) for run in ("b", "c")])
    cached = {record["run"]: (record["version"], record["result"]) for record in read_kept(file)}
    new = (2, {"score": 2.0})
    assert cached == {"a": (1, {"score": 1.0}), "b": new, "c": new}


def test_what_is_no_number_is_nothing(tmp_path: Path) -> None:
    result = {"final_loss": math.nan, "per": {"x": [math.inf, 1.0]}, "score": 0.5}
    keep(tmp_path / "kept.json", [record_of(KEY, CELL, result)])
    (record,) = read_kept(tmp_path / "kept.json")
    assert record["result"] == {"final_loss": None, "per": {"x": [None, 1.0]}, "score": 0.5}


@pytest.mark.parametrize("content", ["{}", "[3]", '[{"run": "a"}]', "no"])
def test_something_else_is_no_collection(tmp_path: Path, content: str) -> None:
    file = tmp_path / "reproduce-x.json"
    file.write_text(content)
    with pytest.raises(InputError, match="reproduce-x"):
        ResultCache(tmp_path, [file])


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        ResultCache(tmp_path).locked(),
        pytest.raises(UsageError, match="at work"),
        ResultCache(tmp_path).locked(),
    ):
        pass
    with ResultCache(tmp_path).locked():  # free again
        pass


def test_a_record_is_plain_json(tmp_path: Path) -> None:
    cell = Cell.of("train", "demo", 0, epsilon=float("inf"))
    text = json.dumps(record_of(KEY, cell, {}), allow_nan=False)
    assert json.loads(text)["settings"] == {"epsilon": "inf"}

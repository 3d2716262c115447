"""Results that are there: found by exact key, read from collections, never half."""

import json
import math
import re
from pathlib import Path

import pytest

from lumos.errors import InputError, UsageError
from lumos.experiments.cache import ResultCache, keep, read_kept, record_of
from lumos.experiments.cell import Cell, Key

CELL = Cell.of("trees", "demo", 0, balancer="greedy")
KEY = Key("run1", "code1")


def test_what_is_put_is_found_by_its_key_only(tmp_path: Path) -> None:
    store = ResultCache(tmp_path)
    assert store.get(KEY) is None
    store.put(KEY, CELL, {"score": 1.5})
    found = ResultCache(tmp_path).get(KEY)
    assert found is not None
    assert found.result == {"score": 1.5}
    assert not found.other_code
    assert store.get(Key("run1", "code2")) is None
    assert store.get(Key("run2", "code1")) is None


def test_a_file_that_was_never_finished_is_no_cell(tmp_path: Path) -> None:
    store = ResultCache(tmp_path)
    place = store.place(KEY)
    place.parent.mkdir()
    place.with_name(place.name + ".new").write_text('{"result": {"sc')
    assert store.get(KEY) is None


@pytest.mark.parametrize("content", ["", "[]", '{"result": 3}', '{"format": 1}'])
def test_a_damaged_cell_is_named(tmp_path: Path, content: str) -> None:
    store = ResultCache(tmp_path)
    store.put(KEY, CELL, {})
    store.place(KEY).write_text(content)
    with pytest.raises(InputError, match=re.escape(store.place(KEY).name)):
        store.get(KEY)


def test_kept_results_need_the_same_code_unless_any_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "docs" / "reproduce-demo.json"
    keep(file, [record_of(KEY, CELL, {"score": 2.0})])
    exact, lenient = ResultCache(tmp_path, [file]), ResultCache(tmp_path, [file], any_code=True)
    found = exact.get(KEY)
    assert found is not None
    assert (found.result, found.kept, found.other_code) == ({"score": 2.0}, file.name, False)
    other = Key("run1", "code2")
    assert exact.get(other) is None
    found = lenient.get(other)
    assert found is not None
    assert found.other_code
    assert lenient.get(Key("run2", "code1")) is None


def test_cells_of_the_folder_come_first(tmp_path: Path) -> None:
    file = tmp_path / "reproduce-demo.json"
    keep(file, [record_of(KEY, CELL, {"score": 2.0})])
    store = ResultCache(tmp_path, [file])
    store.put(KEY, CELL, {"score": 3.0})
    found = store.get(KEY)
    assert found is not None
    assert found.result == {"score": 3.0}


def test_a_collection_does_not_depend_on_the_order_and_is_read_again(tmp_path: Path) -> None:
    records = [record_of(Key(f"run{n}", "c"), CELL, {"n": n}) for n in range(3)]
    keep(tmp_path / "one.json", records)
    keep(tmp_path / "other.json", reversed(records))
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()
    assert [record["result"]["n"] for record in read_kept(tmp_path / "one.json")] == [0, 1, 2]


def test_a_collection_grows_and_a_newer_result_replaces_the_older(tmp_path: Path) -> None:
    file = tmp_path / "reproduce-demo.json"
    keep(file, [record_of(Key(run, "old"), CELL, {"score": 1.0}) for run in ("a", "b")])
    keep(file, [record_of(Key(run, "new"), CELL, {"score": 2.0}) for run in ("b", "c")])
    found = {record["run"]: (record["code"], record["result"]) for record in read_kept(file)}
    new = ("new", {"score": 2.0})
    assert found == {"a": ("old", {"score": 1.0}), "b": new, "c": new}


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
        ResultCache(tmp_path).alone(),
        pytest.raises(UsageError, match="at work"),
        ResultCache(tmp_path).alone(),
    ):
        pass
    with ResultCache(tmp_path).alone():  # free again
        pass


def test_a_record_is_plain_json(tmp_path: Path) -> None:
    cell = Cell.of("train", "demo", 0, epsilon=float("inf"))
    text = json.dumps(record_of(KEY, cell, {}), allow_nan=False)
    assert json.loads(text)["settings"] == {"epsilon": "inf"}

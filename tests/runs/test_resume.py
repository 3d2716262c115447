"""Interrupted runs go on exactly; a run folder that does not fit is refused and left alone."""

import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from tests.narrow import present, sparse
from tests.runs.running import run

from lumos import EpochEvent, Graph, LumosError, load
from lumos.runs.run import Run
from lumos.storage import read_arrays

SETTINGS: dict[str, Any] = {
    "epochs": 7,
    "checkpoint_every": 3,
    "floor": True,
    "control": True,
    "dropout": 0.1,
}
VARIANTS = ("own", "control", "run")


class Pulled(KeyboardInterrupt):
    """Somebody pulled the plug."""


def until(variant: str, epoch: int) -> Callable[[EpochEvent], None]:
    def interrupt(event: EpochEvent) -> None:
        if (event.variant, event.epoch) == (variant, epoch):
            raise Pulled

    return interrupt


def without_time(history: Sequence[EpochEvent]) -> list[EpochEvent]:
    return [structs.replace(event, seconds=0) for event in history]


def as_lines(history: Sequence[EpochEvent]) -> list[dict[str, Any]]:
    records = [structs.asdict(event) for event in without_time(history)]
    return [{name: record[name] for name in record if name != "variant"} for record in records]


def lines(path: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{**record, "seconds": 0} for record in records]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def same(one: Run, other: Run, differences: Callable[..., list[str]]) -> None:
    """Everything but the time that it took."""
    assert without_time(one.history) == without_time(other.history)
    assert (one.metrics, one.own, one.control) == (other.metrics, other.own, other.control)
    assert np.array_equal(one.embeddings, other.embeddings)
    if one.model.logits is None or other.model.logits is None:
        assert one.model.logits is other.model.logits
    else:
        assert np.array_equal(one.model.logits, other.model.logits)
    assert one.model.weights.keys() == other.model.weights.keys()
    assert all(
        np.array_equal(one.model.weights[name], other.model.weights[name])
        for name in one.model.weights
    )
    assert np.array_equal(one.trees.keep, other.trees.keep)
    assert np.array_equal(one.trees.workload, other.trees.workload)
    assert one.trees.history == other.trees.history
    assert differences(one.trees.ledger, other.trees.ledger) == []
    assert differences(one.ledger, other.ledger) == []
    assert (one.model.best_epoch, one.cost.per_epoch) == (
        other.model.best_epoch,
        other.cost.per_epoch,
    )
    assert one.model.exposed == other.model.exposed
    left, right = one.summary(), other.summary()
    for name in ("seconds", "seconds_per_epoch", "peak_rss_mb", "ranks"):
        left.pop(name), right.pop(name)
    assert left == right


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Run, Path]]:
    """By task, a run that nobody interrupted."""
    graph, found = load("demo:60"), {}
    for task, floor in (("classify", True), ("link", False)):
        out = tmp_path_factory.mktemp("whole") / task
        found[task] = run(graph, task=task, out=out, **{**SETTINGS, "floor": floor}), out
    return found


@pytest.mark.parametrize(
    ("variant", "epoch"),
    [
        ("own", 2),
        ("own", 7),
        ("control", 5),
        ("run", 1),
        ("run", 3),
        ("run", 5),
        ("run", 7),
    ],
)
def test_an_interrupted_run_goes_on_exactly(
    variant: str, epoch: int, whole: Any, sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    with pytest.raises(Pulled):
        run(sixty, out=tmp_path / "run", on_epoch=until(variant, epoch), **SETTINGS)
    assert not (tmp_path / "run" / "result.json").exists()
    resumed = run(sixty, out=tmp_path / "run", resume=True, **SETTINGS)
    expected, folder = whole["classify"]
    same(expected, resumed, ledger_differences)
    for place in ("own", "control", "."):
        name = Path(place) / "metrics.jsonl"
        assert lines(folder / name) == lines(tmp_path / "run" / name)
    for file in ("model.npz", "devices.npz", "trees.npz"):
        one, other = read_arrays(folder / file), read_arrays(tmp_path / "run" / file)
        one.pop("about", None), other.pop("about", None)
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)


def test_links_and_many_interruptions(
    whole: Any, sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    settings: dict[str, Any] = {**SETTINGS, "floor": False, "task": "link"}
    with pytest.raises(Pulled):
        run(sixty, out=tmp_path, on_epoch=until("control", 4), **settings)
    for epoch in (2, 4, 5, 7):
        with pytest.raises(Pulled):
            run(sixty, out=tmp_path, on_epoch=until("run", epoch), resume=True, **settings)
    resumed = run(sixty, out=tmp_path, resume=True, **settings)
    same(whole["link"][0], resumed, ledger_differences)


def test_in_shards_and_with_masked_sums(
    sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    settings: dict[str, Any] = {
        "epochs": 3,
        "checkpoint_every": 1,
        "aggregate": "secure",
        "shards": 3,
    }
    expected = run(sixty, out=tmp_path / "whole", **settings)
    with pytest.raises(Pulled):
        run(sixty, out=tmp_path / "run", on_epoch=until("run", 2), **settings)
    resumed = run(sixty, out=tmp_path / "run", resume=True, **settings)
    same(expected, resumed, ledger_differences)


@pytest.mark.parametrize(("patience", "every"), [(1, 25), (4, 3), (6, 1)])
def test_patience_ends_a_run_where_its_history_says(
    patience: int, every: int, sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    settings: dict[str, Any] = {"epochs": 40, "learning_rate": 0.1, "checkpoint_every": every}
    scores = [present(record.score) for record in run(sixty, **settings).history]
    best, last = 1, 40
    for epoch, score in enumerate(scores, start=1):
        if score > scores[best - 1]:
            best = epoch
        if epoch - best == patience:
            last = epoch
            break
    found = run(sixty, patience=patience, out=tmp_path / "whole", **settings)
    assert last < 40  # or nothing is tested
    assert (len(found.history), found.model.best_epoch) == (last, best)
    assert found.summary()["epochs"] == last
    assert [record.score for record in found.history] == scores[:last]
    with pytest.raises(Pulled):
        run(
            sixty,
            patience=patience,
            out=tmp_path / "run",
            on_epoch=until("run", last - 1),
            **settings,
        )
    resumed = run(sixty, patience=patience, out=tmp_path / "run", resume=True, **settings)
    same(found, resumed, ledger_differences)


def test_an_interruption_while_trees_are_balanced(
    whole: Any, sixty: Graph, tmp_path: Path, ledger_differences: Any, monkeypatch: Any
) -> None:
    def pulled(*_: Any, **__: Any) -> None:
        raise Pulled

    with monkeypatch.context() as patch:
        patch.setattr("lumos.runs.loop.balance_parts", pulled)
        with pytest.raises(Pulled):
            run(sixty, out=tmp_path, **SETTINGS)
    resumed = run(sixty, out=tmp_path, resume=True, **SETTINGS)
    same(whole["classify"][0], resumed, ledger_differences)


def test_a_finished_run_can_be_resumed_and_is_the_same(
    whole: Any, sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    expected, folder = whole["classify"]
    shutil.copytree(folder, tmp_path / "run")
    again = run(sixty, out=tmp_path / "run", resume=True, **SETTINGS)
    same(expected, again, ledger_differences)


@pytest.fixture
def stopped(sixty: Graph, tmp_path: Path) -> Path:
    """The folder of a run that was interrupted after its first checkpoint."""
    with pytest.raises(Pulled):
        run(sixty, out=tmp_path / "run", on_epoch=until("run", 5), **SHORT)
    return tmp_path / "run"


SHORT = {"epochs": 7, "checkpoint_every": 3}


def refused(folder: Path, match: str, graph: Any, **settings: Any) -> None:
    """One clear error, and no file of the run is touched."""
    before = contents(folder)
    with pytest.raises(LumosError, match=match) as error:
        run(graph, out=folder, **{**SHORT, "resume": True, **settings})
    assert "\n" not in str(error.value)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"seed": 1}, "the run there has `seed=0`, not 1"),
        ({"epsilon": 1.0}, "has `epsilon=2.0`, not 1.0"),
        ({"epsilon": float("inf")}, "has `epsilon=2.0`, not 'inf'"),
        ({"epochs": 8}, "has `epochs=7`, not 8"),
        ({"backbone": "gat"}, "has `backbone='gcn'`, not 'gat'"),
        ({"task": "link"}, "has `task='classify'`, not 'link'"),
        ({"balancer": "mcmc"}, "has `balancer='greedy'`, not 'mcmc'"),
        ({"resume": False}, "there is a run already; go on with `resume`"),
        ({"randomness": "system"}, "randomness"),
    ],
)
def test_another_run_is_refused(
    settings: dict[str, Any], match: str, stopped: Path, sixty: Graph
) -> None:
    refused(stopped, match, sixty, **settings)


def test_another_graph_is_refused(stopped: Path, sixty: Graph) -> None:
    edges, features, labels = sixty.edge_list(), sparse(sixty.features), present(sixty.labels)
    moved = labels[::-1]
    for other in (
        load("demo:61"),
        Graph.from_edges(edges[1:], features=features, labels=labels, classes=sixty.classes),
        Graph.from_edges(edges, features=features * 0.5, labels=labels, classes=sixty.classes),
        Graph.from_edges(edges, features=features, labels=moved, classes=sixty.classes),
    ):
        refused(stopped, "the run there is of another graph", other)


@pytest.mark.parametrize("name", ["checkpoint.npz", "trees.npz", "run.json"])
@pytest.mark.parametrize("how", ["cut", "empty", "noise"])
def test_a_damaged_file_is_refused(name: str, how: str, stopped: Path, sixty: Graph) -> None:
    path = stopped / name
    content = path.read_bytes()
    noise = bytes(np.random.default_rng(0).integers(0, 256, 500, np.uint8))
    path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "noise": noise}[how])
    refused(stopped, name, sixty)


@pytest.mark.parametrize("name", ["checkpoint.npz", "trees.npz"])
def test_a_file_with_a_flipped_byte_is_refused(name: str, stopped: Path, sixty: Graph) -> None:
    path = stopped / name
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    content = bytearray(path.read_bytes())
    # Not in a header of the zip, parts of which nobody reads: in the middle of an array.
    content[largest.header_offset + largest.file_size // 2 + 100] ^= 0x40
    path.write_bytes(bytes(content))
    refused(stopped, name, sixty)


def test_a_checkpoint_that_lacks_something_is_refused(stopped: Path, sixty: Graph) -> None:
    np.savez(stopped / "checkpoint.npz", epoch=np.array(3))
    refused(stopped, "checkpoint.npz", sixty)


def test_a_checkpoint_of_another_model_is_refused(stopped: Path, sixty: Graph) -> None:
    state: dict[str, Any] = read_arrays(stopped / "checkpoint.npz")
    for name in ("optimizer/weights", "optimizer/mean", "optimizer/square", "best"):
        state[f"trainer/{name}"] = state[f"trainer/{name}"][:-1]
    np.savez(stopped / "checkpoint.npz", **state)
    refused(stopped, "checkpoint.npz is of another model", sixty)


@pytest.mark.parametrize("content", ["{}", "[]", '{"format": 5}', '{"format": 1}'])
def test_a_run_of_another_version_is_refused(content: str, stopped: Path, sixty: Graph) -> None:
    (stopped / "run.json").write_text(content)
    refused(stopped, "run", sixty)


def test_metrics_that_do_not_reach_the_checkpoint_are_refused(stopped: Path, sixty: Graph) -> None:
    path = stopped / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    refused(stopped, "2 lines for 3 epochs", sixty)


def test_a_line_that_was_cut_in_the_middle_does_no_harm(
    whole: Any, sixty: Graph, tmp_path: Path, ledger_differences: Any
) -> None:
    with pytest.raises(Pulled):
        run(sixty, out=tmp_path, on_epoch=until("run", 5), **SETTINGS)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    resumed = run(sixty, out=tmp_path, resume=True, **SETTINGS)
    same(whole["classify"][0], resumed, ledger_differences)


def test_system_randomness_cannot_be_resumed(sixty: Graph, tmp_path: Path) -> None:
    with pytest.raises(Pulled):
        run(sixty, out=tmp_path, on_epoch=until("run", 5), randomness="system", epochs=7)
    with pytest.raises(LumosError, match="secrets were never written; start a new one"):
        run(sixty, out=tmp_path, randomness="system", epochs=7, resume=True)


def test_there_must_be_something_to_resume(sixty: Graph, tmp_path: Path) -> None:
    with pytest.raises(LumosError, match="there is no run to resume"):
        run(sixty, out=tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()
    with pytest.raises(LumosError, match="`resume` needs `out`"):
        run(sixty, resume=True)


def test_a_file_is_no_run_folder(sixty: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(LumosError, match="file"):
        run(sixty, out=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_bad_input_leaves_no_run_in_the_way(sixty: Graph, tmp_path: Path) -> None:
    """After a refusal the same command, with the input put right, works."""
    wrong = Graph.from_edges(
        sixty.edge_list(), features=sparse(sixty.features) * 2, labels=sixty.labels
    )
    with pytest.raises(LumosError, match="outside the public bounds"):
        run(wrong, out=tmp_path / "run")
    run(sixty, out=tmp_path / "run", epochs=1)


def test_the_folder_holds_what_the_result_does(whole: Any, sixty: Graph) -> None:
    result, folder = whole["classify"]
    weights = read_arrays(folder / "model.npz")
    assert weights.keys() == result.model.weights.keys()
    assert all(np.array_equal(weights[name], result.model.weights[name]) for name in weights)
    saved = read_arrays(folder / "devices.npz")
    assert np.array_equal(saved["embeddings"], result.embeddings)
    assert np.array_equal(saved["logits"], result.model.logits)
    by_hand = result.embeddings @ weights["head.weight"].T + weights["head.bias"]
    assert np.allclose(by_hand, result.model.logits, atol=1e-5)
    assert np.array_equal(saved["ids"], sixty.ids)
    summary = json.loads((folder / "result.json").read_text())
    assert summary == json.loads(json.dumps(result.summary())) | {
        "peak_rss_mb": summary["peak_rss_mb"]
    }
    assert lines(folder / "metrics.jsonl") == as_lines(result.history)
    assert not list(folder.rglob("*.new"))
    assert result.ids.rows([7]).tolist() == [7]

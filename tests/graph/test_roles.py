"""Masks of a source become roles, or are refused with the reason and the way around."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.graph.round_trips import made

from lumos.errors import InputError
from lumos.graph import Graph, load
from lumos.graph.facts import fingerprint
from lumos.graph.io import ReadOptions
from lumos.graph.labels import Role, masks_of, roles_in, roles_of_masks
from lumos.training.split import Role as RoleOfSplit

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")

LABELS = np.array([0, 1, 0, 1, 0, -1])


def mask(*rows: int, devices: int = 6) -> Any:
    return np.isin(np.arange(devices), rows)


def data(**more: Any) -> Any:
    index = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])
    return geometric.data.Data(edge_index=index, y=torch.from_numpy(LABELS), num_nodes=6, **more)


def test_there_is_one_role() -> None:
    assert Role is RoleOfSplit


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64])
def test_masks_say_who_does_what(kind: Any) -> None:
    train, validation, test = (m.astype(kind) for m in (mask(0, 3), mask(1), mask(2)))
    assert roles_of_masks(train, validation, test, LABELS, "").tolist() == [0, 1, 2, 0, -1, -1]
    assert roles_of_masks(train, None, test, LABELS, "").tolist() == [0, -1, 2, 0, -1, -1]
    none = mask().astype(kind)
    assert roles_of_masks(train[:, None], none, test, LABELS, "").tolist() == [0, -1, 2, 0, -1, -1]


WRONG: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    "overlap": ((mask(0, 1), None, mask(1, 2)), "1 devices are in train_mask and in test_mask.*1;"),
    "validation": ((mask(0), mask(0), mask(1)), "in train_mask and in val_mask"),
    "length": ((mask(0, devices=5), None, mask(1)), r"train_mask has the shape \[5\]; .*\[6\]"),
    "numbers": ((mask(0) * 2, None, mask(1)), "train_mask holds int64 values; use truth values"),
    "floats": ((mask(0) * 0.5, None, mask(1)), "train_mask holds float64 values"),
    "several": ((np.ones((6, 10), bool), None, mask(1)), r"10 columns.*`split=\{'train': data.tra"),
    "nobody trains": ((mask(), None, mask(1)), "train_mask holds no device"),
    "nobody tests": ((mask(0), None, mask()), "test_mask holds no device"),
    "no test": ((mask(0), mask(1), None), "train_mask, val_mask without test_mask; give both"),
    "no train": ((None, None, mask(1)), "test_mask without train_mask; give both"),
    "no label": ((mask(0), None, mask(2, 5)), "1 devices of test_mask have no label.* row 5"),
}


@pytest.mark.parametrize("case", WRONG)
def test_masks_that_cannot_be_meant(case: str) -> None:
    (train, validation, test), message = WRONG[case]
    with pytest.raises(InputError, match=f"^here: .*{message}") as caught:
        roles_of_masks(train, validation, test, LABELS, "here")
    assert "\n" not in str(caught.value)
    given = {"train_mask": train, "val_mask": validation, "test_mask": test}
    with pytest.raises(InputError, match=r"or ignore this split with `masks='ignore'`$"):
        roles_in(given, LABELS, ReadOptions())
    roles, notes = roles_in(given, LABELS, ReadOptions(masks="ignore"))
    assert roles is None
    assert "ignored, as asked" in notes[0]


def test_masks_of_pyg_are_used_and_given_back() -> None:
    masks = {"train_mask": mask(0, 3), "val_mask": mask(1), "test_mask": mask(2, 4)}
    source = data(**{name: torch.from_numpy(one) for name, one in masks.items()})
    graph = Graph.from_pyg(source)
    assert graph.roles is not None
    assert graph.roles.tolist() == [0, 1, 2, 0, 2, -1]
    assert graph.notes == ()
    back = graph.to_pyg()
    for name, one in masks.items():
        assert back[name].tolist() == one.tolist() == masks_of(graph.roles)[name].tolist()
    again = Graph.from_pyg(back)
    assert fingerprint(again) == fingerprint(graph)
    free = Graph.from_pyg(source, masks="ignore")
    assert free.roles is None
    assert free.notes == ("test_mask, train_mask, val_mask: ignored, as asked",)
    assert fingerprint(free) != fingerprint(graph)
    assert "train_mask" not in free.to_pyg()


def test_several_splits_of_pyg_are_refused_until_one_is_chosen() -> None:
    masks = {name: torch.ones(6, 10, dtype=torch.bool) for name in ("train_mask", "test_mask")}
    with pytest.raises(InputError, match=r"train_mask has 10 columns.*`masks='ignore'`"):
        Graph.from_pyg(data(**masks))


def test_masks_without_labels_split_nothing() -> None:
    source = data(train_mask=torch.ones(6, dtype=torch.bool))
    del source.y
    graph = Graph.from_pyg(source)
    assert graph.roles is None
    assert graph.notes == ("train_mask: not used, because no device has a label",)


@pytest.mark.parametrize(
    "arrays",
    [
        {"train_mask": mask(0, 3), "val_mask": mask(1), "test_mask": mask(2)},
        {"train_idx": [3, 0], "valid_idx": [1], "test_idx": [2]},
        {"idx_train": [0, 3], "idx_val": [1], "idx_test": [2]},
    ],
)
def test_npz_with_masks_or_lists_of_rows(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "g.npz", edges=[[0, 1], [2, 5]], y=LABELS, **arrays)
    graph = load(tmp_path / "g.npz")
    assert graph.roles is not None
    assert graph.roles.tolist() == [0, 1, 2, 0, -1, -1]
    assert load(tmp_path / "g.npz", masks="ignore").roles is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 6], "train_idx holds rows beyond 0 … 5"),
        ([0, 0], "a row twice"),
        ([0.5], "no list of rows"),
        ([2], "in train_idx and in test_idx"),
    ],
)
def test_lists_that_cannot_be_meant(tmp_path: Path, rows: Any, message: str) -> None:
    np.savez(tmp_path / "g.npz", edges=[[0, 1], [2, 5]], y=LABELS, train_idx=rows, test_idx=[2])
    with pytest.raises(InputError, match=rf"g.npz: .*{message}.*`masks='ignore'`"):
        load(tmp_path / "g.npz")


def test_a_graph_checks_its_roles() -> None:
    edges, labels = [[0, 1], [1, 2]], [0, 1, 0]
    graph = Graph.from_edges(edges, labels=labels, roles=[0, 2, -1])
    assert graph.roles is not None
    assert not graph.roles.flags.writeable
    for roles, message in (
        ([0, 1], r"\[3\]; got \[2\]"),
        ([0, 1, 3], "0 trains"),
        ([0.0] * 3, "0"),
    ):
        with pytest.raises(InputError, match=f"roles: .*{message}"):
            Graph.from_edges(edges, labels=labels, roles=roles)


def test_the_fingerprint_without_roles_is_what_it_was() -> None:
    assert fingerprint(made("everything")) == "4f8605a211ffceb5"

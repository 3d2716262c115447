"""Files of parts that do not fit their manifest are refused, whatever is wrong with them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.graph.parts.same_parts import hosted, uneven, written

from lumos.errors import InputError
from lumos.graph import Graph
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.stored_part import read_layout, write_layout
from lumos.typing import Arrays

Damage = Callable[[Arrays], object]


def with_first(array: np.ndarray, value: object) -> np.ndarray:
    array = array.copy()
    array.flat[0] = value
    return array


def changed(name: str, value: object) -> Damage:
    return lambda arrays: arrays.update({name: with_first(arrays[name], value)})


DAMAGES: dict[str, Damage] = {
    "no offsets": lambda arrays: arrays.pop("offsets"),
    "no roles": lambda arrays: arrays.pop("roles"),
    "no ids": lambda arrays: arrays.pop("id_bytes"),
    "offsets from 1": changed("offsets", 1),
    "offsets of fewer": lambda arrays: arrays.update(offsets=arrays["offsets"][:-1]),
    "a far neighbour": changed("neighbours", 60),
    "a negative neighbour": changed("neighbours", -1),
    "unsorted neighbours": lambda arrays: arrays.update(
        neighbours=arrays["neighbours"][::-1].copy()
    ),
    "a fourth role": changed("roles", 3),
    "a fourth role of edges": changed("edge_roles", 3),
    "roles as real numbers": lambda arrays: arrays.update(roles=arrays["roles"].astype("f4")),
    "edge roles of fewer": lambda arrays: arrays.update(edge_roles=arrays["edge_roles"][1:]),
    "somebody else's edge": changed("held_back", 0),
    "pairs in a row": lambda arrays: arrays.update(held_back=arrays["held_back"].ravel()),
    "a seventh class": changed("labels", 6),
    "a far word": changed("indices", 600),
    "not a number": changed("values", np.nan),
    "infinite": changed("values", np.inf),
    "rows of words": changed("indptr", 7),
    "no text": changed("id_bytes", 0xFF),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_fit_is_refused(damage: str, sixty: Graph, tmp_path: Path) -> None:
    named = replace(sixty, ids=tuple(f"é{row}" for row in range(60)))
    path = written(named, tmp_path / "parts", np.array([0, 20, 40, 60])).path
    file = path / "part-00001.safetensors"
    arrays = {name: array.copy() for name, array in read_layout(file, "").items()}
    assert len(arrays["held_back"])
    DAMAGES[damage](arrays)
    file.unlink()
    write_layout(file, arrays)
    with pytest.raises(InputError, match=r"part-00001.*; split the graph again$") as refused:
        PartsFolder.open(path).part([1], "classify")
    assert "\n" not in str(refused.value)


def test_names_of_devices_come_back(sixty: Graph, tmp_path: Path) -> None:
    names = (*(f"{'é' * (row % 4)}{row}" for row in range(59)), "")
    named = replace(sixty, ids=names)
    bounds = uneven(named, 3)
    folder = written(named, tmp_path / "parts", bounds)
    for number, devices in enumerate(hosted(bounds)):
        assert folder.ids([number]) == tuple(names[row] for row in devices)
    assert folder.ids(range(3)) == names

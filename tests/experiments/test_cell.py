"""Keys: the same run has the same key, anything that matters changes it, nothing else does."""

import ast
import math
import shutil
from pathlib import Path

import pytest

from lumos.experiments.cell import _PARTS, SOURCE, Cell, Kind, code_version, key_of

SETTINGS = {
    "profile": "paper",
    "task": "classify",
    "backbone": "gcn",
    "epsilon": 2.0,
    "epochs": 300,
    "control": True,
    "compare": "ideal",
}
OTHER = {
    "profile": "strict",
    "task": "link",
    "backbone": "gat",
    "epsilon": 2.5,
    "epochs": 299,
    "control": False,
    "compare": "secure",
}
KINDS: tuple[Kind, ...] = ("train", "baseline", "trees", "cost")


def test_the_order_of_settings_and_the_form_of_numbers_do_not_matter() -> None:
    one = Cell.of("train", "demo", 0, **SETTINGS)
    turned = Cell.of("train", "demo", 0, **dict(reversed(SETTINGS.items())))
    whole = Cell.of("train", "demo", 0, **{**SETTINGS, "epsilon": 2})
    assert one == turned == whole
    assert key_of(one, "g") == key_of(turned, "g") == key_of(whole, "g")


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_changes_the_key(name: str) -> None:
    one = Cell.of("train", "demo", 0, **SETTINGS)
    other = Cell.of("train", "demo", 0, **{**SETTINGS, name: OTHER[name]})
    without = Cell.of("train", "demo", 0, **{k: v for k, v in SETTINGS.items() if k != name})
    assert len({key_of(cell, "g").run for cell in (one, other, without)}) == 3


def test_seed_graph_and_kind_change_the_key_and_the_name_of_the_graph_does_not() -> None:
    cell = Cell.of("train", "demo", 0, **SETTINGS)
    assert key_of(cell, "g").run != key_of(Cell.of("train", "demo", 1, **SETTINGS), "g").run
    assert key_of(cell, "g").run != key_of(cell, "h").run
    assert key_of(cell, "g").run != key_of(Cell.of("baseline", "demo", 0, **SETTINGS), "g").run
    assert key_of(cell, "g") == key_of(Cell.of("train", "elsewhere", 0, **SETTINGS), "g")


def test_infinity_has_a_key() -> None:
    cell = Cell.of("train", "demo", 0, epsilon=math.inf)
    assert key_of(cell, "g").run != key_of(Cell.of("train", "demo", 0, epsilon=1.0), "g").run


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The sources, to be changed at will."""
    place = tmp_path / "lumos"
    shutil.copytree(SOURCE, place, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def versions(source: Path) -> dict[tuple[Kind, bool], str]:
    code_version.cache_clear()
    return {
        (kind, strict): code_version(kind, strict, source) for kind in KINDS for strict in (0, 1)
    }


WHO = {
    "cli": set(),
    "report": set(),
    "errors.py": set(),
    "experiments/figures.py": set(),
    "experiments/settings.toml": set(),
    "experiments/cost.py": {"cost"},
    "experiments/structure.py": {"trees"},
    "trees": {"train", "trees", "cost"},
    "compare": {"train", "trees", "cost"},
    "exchange": {"train", "trees", "cost"},
    "graph": {"train", "trees", "cost", "baseline"},
    "device": {"train", "trees", "cost", "baseline"},
    "encode": {"train", "cost", "baseline"},
    "training/split.py": {"train", "cost", "baseline"},
    "training/metrics.py": {"train", "cost", "baseline"},
    "paper/trainer.py": {"train", "cost"},
    "model/network.py": {"train", "cost", "baseline"},
    "aggregate/ideal.py": {"train", "cost"},
    "baselines": {"baseline"},
    "strict": {"strict"},
}
"""Which kinds of cells a source can change; "strict": any with the strict profile."""


@pytest.mark.parametrize("part", WHO)
def test_a_source_changes_exactly_the_cells_that_depend_on_it(copied: Path, part: str) -> None:
    before = versions(copied)
    path = copied / part
    file = path if path.is_file() else sorted(path.rglob("*.py"))[-1]
    file.write_text(file.read_text("utf-8") + "\n# another line\n", "utf-8")
    after = versions(copied)
    changed = {key for key in before if before[key] != after[key]}
    kinds = WHO[part]
    expected = {key for key in before if key[0] in kinds or ("strict" in kinds and key[1])}
    assert changed == expected


def test_a_new_and_a_renamed_source_change_the_version(copied: Path) -> None:
    before = versions(copied)["trees", False]
    (copied / "trees" / "more.py").write_text("", "utf-8")
    added = versions(copied)["trees", False]
    (copied / "trees" / "more.py").rename(copied / "trees" / "most.py")
    renamed = versions(copied)["trees", False]
    assert len({before, added, renamed}) == 3


HARMLESS = {
    "lumos",
    "lumos.errors",
    "lumos.memory",
    "lumos.runs.train",  # baselines: turns a name into a graph
    "lumos.strict.settings",  # paper: defaults that only the strict profile reads
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_part_imports_is_a_part(kind: Kind) -> None:
    """A cell's code is complete: no module of it leans on one that is not counted."""
    parts = _PARTS[kind]
    inside = {f"lumos.{part.removesuffix('.py').replace('/', '.')}" for part in parts}
    missing = set()
    for part in parts:
        path = SOURCE / part
        for file in [path] if path.is_file() else path.rglob("*.py"):
            for node in ast.parse(file.read_text("utf-8")).body:  # what is imported at once
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lumos"):
                    name = node.module or ""
                    if name not in HARMLESS and not any(
                        name == one or name.startswith(f"{one}.") for one in inside
                    ):
                        missing.add((file.relative_to(SOURCE).as_posix(), name))
    if kind in ("baseline", "cost"):  # single files do not stand for all that they import
        missing = {
            (file, name) for file, name in missing if file.startswith(("baselines", "exper"))
        }
    assert not missing


def test_the_papers_profile_knows_nothing_of_symbols(tmp_path: Path) -> None:
    """So what they are changes the strict cells only: no other module of it imports them."""
    for part in _PARTS["train"]:
        for file in (SOURCE / part).rglob("*.py"):
            if "mechanisms" not in file.parts:
                assert "encode.mechanisms" not in file.read_text("utf-8"), file
    copy = tmp_path / "lumos"
    shutil.copytree(SOURCE, copy)
    before = {
        (kind, strict): code_version(kind, strict, copy)
        for kind, strict in (("train", False), ("train", True), ("baseline", False))
    }
    (copy / "encode" / "mechanisms" / "krr.py").write_text("changed")
    code_version.cache_clear()
    changed = {what for what, code in before.items() if code_version(*what, copy) != code}
    assert changed == {("train", True), ("baseline", False)}

"""The import graph: packages depend on those before them, and only the registry knows profiles."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lumos
from lumos.training.profile import PROFILES

SOURCE = Path(lumos.__file__).parent

PACKAGES = (
    "errors",
    "typing",
    "registry",
    "display",
    "machine",
    "storage",
    "graph",
    "crypto",
    "device",
    "ranks",
    "exchange",
    "secagg",
    "twoparty",
    "trees",
    "ldp",
    "model",
    "training",
    "paper",
    "strict",
    "runs",
    "baselines",
    "audit",
    "report",
    "evaluation",
    "deploy",
    "cli",
    "__main__",
)
"""In the order in which they may import: each from those before it, never from one after it."""
INDEPENDENT = {("strict", "paper"), ("baselines", "runs"), ("report", "baselines")}
"""Packages that could import one another by their order, and must not."""


@cache
def modules(source: Path) -> tuple[tuple[str, ast.Module], ...]:
    """Every module by its dotted name below `lumos`, and its syntax tree, which nobody changes."""

    def name(path: Path) -> str:
        parts = path.relative_to(source).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    return tuple((name(path), ast.parse(path.read_text())) for path in sorted(source.rglob("*.py")))


@pytest.fixture(scope="module", autouse=True)
def _trees_are_forgotten() -> Iterator[None]:
    """They are half a million objects."""
    yield
    modules.cache_clear()


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules of Lumos that a module imports anywhere in it, below `lumos`.

    What stands under `if TYPE_CHECKING` counts too: types are dependencies of a reader.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module == "lumos":
                yield from (alias.name for alias in node.names)
            elif node.module.startswith("lumos."):
                yield node.module.removeprefix("lumos.")
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix("lumos.")
                for alias in node.names
                if alias.name.startswith("lumos.")
            )


def wrong_edges(source: Path = SOURCE) -> list[str]:
    """Imports that point from a package to one after it, or between packages that stand apart."""
    wrong = []
    for name, tree in modules(source):
        package = name.split(".")[0]
        if not package:
            continue  # lumos/__init__.py names what is public
        for target in imported(tree):
            other = target.split(".")[0]
            if other not in PACKAGES:
                continue
            later = PACKAGES.index(other) > PACKAGES.index(package)
            if later or (package, other) in INDEPENDENT:
                wrong.append(f"lumos.{name} imports lumos.{target}")
    return wrong


def profile_names(source: Path = SOURCE) -> list[str]:
    """Where a profile is named outside its own folder and the registry."""
    names = set(PROFILES)
    found = []
    for name, tree in modules(source):
        if name.split(".")[0] in names or name == "training.profile":
            continue
        if name.startswith("audit.attacks."):
            continue  # an attack belongs to what it attacks
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in names:
                found.append(f"lumos.{name}:{node.lineno} has {node.value!r}")
        found += [
            f"lumos.{name} imports lumos.{target}"
            for target in imported(tree)
            if target.split(".")[0] in names
        ]
    return found


def test_every_folder_is_listed() -> None:
    there = {name.split(".")[0] for name, _ in modules(SOURCE)} - {""}
    assert there == set(PACKAGES)


def test_imports_point_one_way() -> None:
    assert wrong_edges() == []


def test_no_profile_is_named_outside_its_folder_and_the_registry() -> None:
    assert profile_names() == []


def test_nobody_outside_the_exchange_names_a_transport() -> None:
    named = [
        name
        for name, tree in modules(SOURCE)
        if not name.startswith("exchange")
        and any(isinstance(node, ast.Name) and node.id == "Loopback" for node in ast.walk(tree))
    ]
    assert named == []


@pytest.mark.parametrize(
    ("path", "text", "check"),
    [
        ("training/broken.py", "from lumos.runs.run import Run", wrong_edges),
        ("strict/broken.py", "def f():\n    from lumos.paper import tasks", wrong_edges),
        ("runs/broken.py", "if config.train.profile == 'strict': ...", profile_names),
        ("report/broken.py", "import lumos.strict.stages", profile_names),
    ],
)
def test_the_tests_would_notice(path: str, text: str, check: object, tmp_path: Path) -> None:
    assert callable(check)
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert len(check(tmp_path)) == 1

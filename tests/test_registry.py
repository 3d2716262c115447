"""Registries: lazy, extensible, and helpful with a wrong name."""

import sys
from pathlib import Path

import pytest

from lumos.errors import UsageError
from lumos.registry import Registry


@pytest.fixture
def registry() -> Registry[object]:
    return Registry("colour", {"pi": "math:pi", "nothing": "no_such_module:NOTHING"})


def test_an_entry_is_imported_when_it_is_asked_for(registry: Registry[object]) -> None:
    assert registry.names() == ("pi", "nothing")
    assert registry["pi"] == pytest.approx(3.14159, abs=1e-5)
    with pytest.raises(ModuleNotFoundError):
        registry["nothing"]


def test_a_wrong_name_is_answered_with_the_right_ones(registry: Registry[object]) -> None:
    with pytest.raises(UsageError, match="`colour` must be one of pi, nothing, got 'red'"):
        registry["red"]


def test_entries_are_added_and_taken_back(registry: Registry[object]) -> None:
    registry.register("mine", 7)
    assert registry["mine"] == 7
    assert list(registry) == ["pi", "nothing", "mine"]
    with pytest.raises(UsageError, match="there is a colour called 'mine' already"):
        registry.register("mine", 8)
    registry.remove("mine")
    assert "mine" not in registry
    with pytest.raises(UsageError, match="'pi' was not added by `register` and stays"):
        registry.remove("pi")


def test_installed_packages_add_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By entry points; one that takes a name of ours is passed over."""
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[lumos.colour]\nblue = theirs:BLUE\npi = theirs:BLUE\n"
    )
    (tmp_path / "theirs.py").write_text("BLUE = 'blue'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    registry: Registry[object] = Registry("colour", {"pi": "math:pi"})
    assert registry.names() == ("pi", "blue")
    assert registry["blue"] == "blue"
    assert registry["pi"] != "blue"

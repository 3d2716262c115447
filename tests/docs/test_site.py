"""The site builds without a warning, is whole, and loads nothing from a network."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from tests.docs.site import HtmlPage

import lumos

ROOT = Path(__file__).parents[2]
STYLE_LOADS = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)")


@cache
def page(path: Path) -> HtmlPage:
    return HtmlPage(path)


def pages(site: Path) -> list[HtmlPage]:
    return [page(path) for path in sorted(site.rglob("*.html"))]


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for made in pages(site):
        remote = [target for target in made.loads if urlsplit(target).scheme or "//" in target]
        assert not [target for target in remote if not target.startswith("data:")], made.path


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    sheets = [*site.rglob("*.css"), *site.rglob("*.html"), *site.rglob("*.svg")]
    assert any(sheet.suffix == ".css" for sheet in sheets)
    for sheet in sheets:
        assert not STYLE_LOADS.findall(sheet.read_text("utf-8")), sheet


def test_no_page_asks_a_script_for_diagrams_or_formulas(site: Path) -> None:
    """The theme fetches these from a network, so pages must not use them."""
    for made in pages(site):
        text = made.path.read_text("utf-8")
        assert 'class="mermaid"' not in text
        assert "mathjax" not in text.lower()


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    for made in pages(site):
        for link in [*made.links, *made.loads]:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("data:") or made.path.name == "404.html":
                continue
            target = made.path
            if parts.path:
                target = (made.path.parent / unquote(parts.path)).resolve()
                target = target / "index.html" if target.is_dir() else target
                assert target.is_file(), f"{made.path}: {link}"
            if parts.fragment and target.suffix == ".html":
                assert unquote(parts.fragment) in page(target).anchors, f"{made.path}: {link}"


def test_every_page_of_the_folder_is_in_the_navigation() -> None:
    text = re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text("utf-8"))
    listed = set(_leaves(yaml.safe_load(text)["nav"]))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert there <= listed


def _leaves(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    assert isinstance(inner, list | type({}.values()))
    return [leaf for part in inner for leaf in _leaves(part)]


def test_the_reference_has_every_public_name_with_its_docstring(site: Path) -> None:
    text = {path.stem: path.read_text("utf-8") for path in (site / "api").glob("*.html")}
    everything = "".join(text.values())
    for name in lumos.__all__:
        assert f'id="{lumos._HOMES[name]}.{name}"' in everything, name


def test_the_reference_has_shapes_fields_and_errors(site: Path) -> None:
    run = "".join(page(site / "api" / "run.html").text)
    assert "[devices, width], in the order of the ids" in run  # a field's docstring
    assert "run.json" in run or "the graph was in memory only" in run  # Raises
    settings = page(site / "api" / "settings.html")
    assert "lumos.strict.settings.StrictSettings.epsilon" in settings.anchors
    graph = "".join(page(site / "api" / "graph.html").text)
    assert "[2 · edges]: ascending within each device" in graph


def test_the_command_line_is_there(site: Path) -> None:
    commands = page(site / "commands.html")
    assert {"lumos-train", "lumos-predict", "lumos-audit", "lumos-data-check"} <= commands.anchors
    text = "".join(commands.text)
    for option in ("--epsilon", "--feature-epsilon", "--control", "--directed"):
        assert option in text


def test_lists_and_tables_are_read_as_code_hosts_read_them(site: Path) -> None:
    """Each of these follows a line of text without a blank line, or lies in a list item."""
    protocols = (site / "protocols.html").read_text("utf-8")
    assert "<li><em>Surrounded.</em>" in protocols.replace("<p>", "")
    assert not re.search(r"<p>[^<]*\n- ", protocols)
    for made in pages(site):
        assert not re.search(r"^\|[^|\n]+\|.*\|$", "".join(made.text), re.MULTILINE), made.path

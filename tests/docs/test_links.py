"""Links between pages, and from pages to files, work as the repository lies on a code host."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^ {0,3}(```+).*?^ {0,3}\1[ \t]*$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)[ #]*$", re.MULTILINE)


def markdown_pages() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split()
    return listed or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.md")]


def anchors(path: Path) -> set[str]:
    """As GitHub makes them: lower case, punctuation gone, a hyphen for each space."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", path.read_text("utf-8"))):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        again = sum(name == slug or name.startswith(f"{slug}-") for name in found)
        found.add(f"{slug}-{again}" if slug in found else slug)
    return found


@pytest.mark.parametrize("name", markdown_pages())
def test_every_link_leads_to_a_file_and_its_heading(name: str) -> None:
    page = ROOT / name
    text = INLINE.sub("", FENCED.sub("", page.read_text("utf-8")))
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name} links to {target}"
        assert file.is_relative_to(ROOT), f"{name} links to {target}, outside the repository"
        if anchor:
            assert anchor in anchors(file), f"{name} links to {target}: no such heading"

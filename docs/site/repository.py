"""The repository as the site shows it: which file has which page, and links between them.

Pages link to files as they lie in the repository, so that links work on a code host. On the site
each file of the repository that a page links to has a page of its own.
"""

import json
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRONT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
}
"""Pages that lie beside the folder `docs`, and where the site has them."""
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash", ".cff": "yaml", ".json": "json"}
_BLOCK = r"^ {0,3}(?P<fence>```+|~~~+).*?^ {0,3}(?P=fence)[ \t]*$"
_INLINE = r"(?P<tick>`+)(?!`).*?(?<!`)(?P=tick)(?!`)"
_TARGET = r"\]\((?P<target>[^)\s]+)\)"
LINK = re.compile(f"{_BLOCK}|{_INLINE}|{_TARGET}", re.DOTALL | re.MULTILINE)
"""Code, which is left alone, or the target of a link."""


def targets(markdown: str) -> list[str]:
    """The targets of all links on a page."""
    return [found["target"] for found in LINK.finditer(markdown) if found["target"]]


def with_site_links(markdown: str, source: str) -> str:
    """The same page, with links as the site needs them.

    Args:
        markdown: the page.
        source: where the page lies in the repository, as `docs/paper.md`.
    """
    here = page_of(source)

    def replaced(found: re.Match[str]) -> str:
        target = found["target"]
        if not target or _elsewhere(target):
            return found.group()
        path, _, anchor = target.partition("#")
        page = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)))
        relative = posixpath.relpath(page, posixpath.dirname(here) or ".")
        return f"]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(replaced, markdown)


def page_of(path: str) -> str:
    """Where the site has a file of the repository."""
    if path in FRONT:
        return FRONT[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}.md"


def linked_files(markdown: str, source: str) -> set[str]:
    """The files outside `docs` that a page links to and that are no pages themselves."""
    files = set()
    for target in targets(markdown):
        if _elsewhere(target):
            continue
        path = posixpath.normpath(
            posixpath.join(posixpath.dirname(source), target.partition("#")[0])
        )
        if path not in FRONT and not path.startswith("docs/") and (ROOT / path).is_file():
            files.add(path)
    return files


def listing(path: str) -> str:
    """A page that shows a file of the repository."""
    text = (ROOT / path).read_text("utf-8")
    shown = _cells(text) if path.endswith(".ipynb") else _fenced(text, path)
    return f"# {path}\n\n{shown}"


def _fenced(text: str, path: str) -> str:
    return f"````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n````\n"


def _cells(text: str) -> str:
    """The cells of a notebook: text as it is, code in boxes."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts.append(f"````python\n{source}\n````")
        else:
            parts.append(re.sub(r"^#", "##", source, flags=re.MULTILINE))
    return "\n\n".join(parts) + "\n"


def _elsewhere(target: str) -> bool:
    """Whether a link leaves the repository, or stays on its page."""
    return target.startswith("#") or re.match(r"[a-z]+:", target) is not None

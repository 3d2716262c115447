"""A built site, as a reader's browser finds it."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

LOADS = {
    "link": "href",
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "embed": "src",
}
"""What a browser loads without being asked, by element."""
NOT_LOADED = {"canonical", "next", "prev", "alternate", "me", "license"}
"""Relations of `link` that name a page and load nothing."""


@dataclass
class HtmlPage(HTMLParser):
    """What one page has: anchors, links that a reader may follow, and what the browser loads."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        wanted = LOADS.get(tag)
        if wanted in found and not NOT_LOADED & set(found.get("rel", "").split()):
            self.loads.append(found[wanted])

    def handle_data(self, data: str) -> None:
        self.text.append(data)

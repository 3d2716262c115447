"""Reads a page as a strict parser does: every tag closed, in order."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr"}


@dataclass
class Node:
    """An element: its tag, its attributes, and its children, which are elements or text."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list["Node | str"] = field(default_factory=list)

    def all(self, tag: str) -> list["Node"]:
        nodes = [self] if self.tag == tag else []
        for child in self.children:
            if isinstance(child, Node):
                nodes += child.all(tag)
        return nodes

    def text(self) -> str:
        parts = [child if isinstance(child, str) else child.text() for child in self.children]
        return " ".join(" ".join(parts).split())

    def words(self, *without: str) -> str:
        """The text outside of some tags."""
        parts = [
            child if isinstance(child, str) else child.words(*without)
            for child in self.children
            if isinstance(child, str) or child.tag not in without
        ]
        return " ".join(" ".join(parts).split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("root")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(html: str) -> Node:
    """The page as a tree."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert [node.tag for node in reader.open] == ["root"]
    return reader.root


Rows = list[list[str]]


def tables(page: Node) -> dict[str, tuple[list[str], Rows]]:
    """By caption: headings and rows."""
    by_caption = {}
    for table in page.all("table"):
        (caption,), (head,), (body,) = (table.all(tag) for tag in ("caption", "thead", "tbody"))
        columns = [cell.text() for cell in head.all("th")]
        rows = [
            [cell.text() for cell in row.children if isinstance(cell, Node)]
            for row in body.all("tr")
        ]
        assert all(len(row) == len(columns) for row in rows)
        by_caption[caption.text()] = (columns, rows)
    return by_caption


def number(text: str) -> float:
    """12,345 and 83.00 % as numbers (0.83)."""
    match = re.fullmatch(r"([\d,.]+)(\s?%)?", text)
    assert match, text
    return float(match[1].replace(",", "")) / (100 if match[2] else 1)

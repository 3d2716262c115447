"""The page and its blocks: well formed, escaped, complete in itself, the same every time."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.page_reading import Node, read, tables
from tests.report.run_files import html

import lumos
from lumos.errors import UsageError
from lumos.report import Code, Fact, Facts, Figure, Page, Section, Table, Text, dots
from lumos.report.run_page import page_of

EVIL = "</td></script><script>alert(1)</script>\"'<!-- &amp; `x` ]]>"


def page(words: str) -> Page:
    """A page with `words` wherever it takes text."""
    return Page(
        words,
        [words, Facts([Fact(words, words, words, strong=True)])],
        [
            Section(
                words,
                [
                    Text(words),
                    Code(words, words),
                    Table([words, words], [[words, 7], [words, None]], words, stacked=True),
                    Figure(dots([words], [words, words], [[1.0, 2.0]], title=words), words),
                ],
            )
        ],
        subtitle=words,
    )


def test_every_text_is_escaped() -> None:
    tree = read(page(EVIL).html())
    assert tree.all("script") == []
    shown = " ".join(EVIL.replace("`", "").split())
    assert tree.all("h1")[0].text() == " ".join(EVIL.split())
    assert tree.all("title")[0].text() == " ".join(EVIL.split())
    assert tree.all("pre")[0].text() == " ".join(EVIL.split())
    for tag in ("p", "caption", "figcaption"):
        words = tree.all(tag)[1 if tag == "p" else 0].text().replace(" x ", "x")
        assert words.replace(" ", "") == shown.replace(" ", ""), tag
    svg = tree.all("svg")[0]
    assert svg.all("title")[0].text() == " ".join(EVIL.split())


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
@settings(max_examples=25)
def test_any_words_make_a_well_formed_page(words: str) -> None:
    tree = read(page(words).html())
    assert tree.all("script") == []
    assert len(tree.all("table")) == len(tree.all("svg")) == 1


def test_the_outline(run: Path) -> None:
    """One h1, then h2 for each section; every figure and table says what it is."""
    tree = read(html(run))
    (root,) = tree.all("html")
    assert root.attributes["lang"] == "en"
    assert len(tree.all("h1")) == 1
    assert [heading for level in "3456" for heading in tree.all(f"h{level}")] == []
    links = [link.attributes["href"] for link in tree.all("a")]
    places = [f"#{section.attributes['id']}" for section in tree.all("section")]
    assert places == ["#summary", *links]
    assert len(set(places)) == len(places)
    assert [link.text() for link in tree.all("a")] == [h2.text() for h2 in tree.all("h2")]
    for svg in tree.all("svg"):
        assert svg.attributes["role"] == "img"
        assert svg.all("title")[0].text()
        assert svg.all("desc")[0].text()
    for table in tree.all("table"):
        assert table.all("caption")[0].text()
        assert all(cell.attributes["scope"] in ("row", "col") for cell in table.all("th"))
    assert tree.all("meta")[2].attributes["content"] == "width=device-width, initial-scale=1"


def test_nothing_is_loaded(run: Path) -> None:
    text = html(run)
    tree = read(text)
    for tag in ("script", "img", "link", "iframe", "object", "embed", "video", "audio", "base"):
        assert tree.all(tag) == [], tag

    def attributes(node: Node) -> list[tuple[str, str | None]]:
        inner = [child for child in node.children if isinstance(child, Node)]
        return [*node.attributes.items(), *(pair for child in inner for pair in attributes(child))]

    for name, value in attributes(tree):
        assert not name.startswith("on"), name
        if name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
            assert value is not None
            assert value.startswith("#"), (name, value)
    assert not re.search(r"url\((?!#)|@import|@font-face", text)
    assert "prefers-color-scheme: dark" in text
    assert all(text.count(f"{name}:") == 2 for name in set(re.findall(r"var\((--series-\d)", text)))
    policy = tree.all("meta")[1].attributes
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    written = page_of(lumos.load_run(run)).write(tmp_path / "new" / "folder" / "one.html")
    assert written.read_bytes() == html(run).encode()
    assert len(written.read_bytes()) < 200_000


def test_numbers_are_set_flush_right() -> None:
    rows: list[list[str | int | None]] = [["a", 1234, "1.5 ± 0.1", "x 1"], ["b", None, "90 %", ""]]
    table = Table(["name", "n", "score", "words"], rows, "numbers")
    assert table.cells == [["a", "1,234", "1.5 ± 0.1", "x 1"], ["b", "–", "90 %", ""]]
    assert table.numeric == [False, True, True, False]
    tree = read(Page("t", [], [Section("s", [table])]).html())
    assert tables(tree)["numbers"] == (["name", "n", "score", "words"], table.cells)
    first = tree.all("tbody")[0].all("tr")[0]
    assert [cell.attributes.get("class") for cell in first.all("td")] == ["number", "number", None]


def test_backticks_and_options_are_code() -> None:
    text = Text("The door `open`, with --aggregate secure, e^-1--x and a lone ` stays.")
    tree = read(Page("t", [text]).html())
    assert [code.text() for code in tree.all("p")[0].all("code")] == ["open", "--aggregate"]
    assert tree.all("p")[0].text().endswith("a lone ` stays.")


def test_paragraphs() -> None:
    assert Text(" one\n two \n\n\n\nthree ").paragraphs == ["one two", "three"]


def test_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="rows must have 2 cells"):
        Table(["a", "b"], [["x"]], "wrong")
    with pytest.raises(UsageError, match="two sections have the same title"):
        Page("t", [], [Section("One!", []), Section("one", [])]).html()


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"page\.html: cannot be written"):
        Page("t", []).write(tmp_path / "file" / "page.html")
    with pytest.raises(UsageError, match="cannot be written"):
        Page("t", []).write(tmp_path)


def test_templates_are_in_the_package() -> None:
    names = {file.name for file in (files("lumos.report") / "templates").iterdir()}
    assert {"page.html", "style.css"} <= names

"""The page and its blocks: well formed, escaped, complete in itself, the same every time."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.reading import Node, read, tables

from lumos.errors import UsageError
from lumos.report import Code, Fact, Facts, Figure, Page, Section, Table, Text, dots
from lumos.report.run import page_of

EVIL = "</td></script><script>alert(1)</script>\"'<!-- &amp; `x` ]]>"


def page(words: str) -> Page:
    """A page that says `words` wherever something can be said."""
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


def test_whatever_is_said_is_text() -> None:
    found = read(page(EVIL).html())
    assert found.all("script") == []
    shown = " ".join(EVIL.replace("`", "").split())
    assert found.all("h1")[0].text() == " ".join(EVIL.split())
    assert found.all("title")[0].text() == " ".join(EVIL.split())
    assert found.all("pre")[0].text() == " ".join(EVIL.split())
    for tag in ("p", "caption", "figcaption"):
        words = found.all(tag)[1 if tag == "p" else 0].text().replace(" x ", "x")
        assert words.replace(" ", "") == shown.replace(" ", ""), tag
    svg = found.all("svg")[0]
    assert svg.all("title")[0].text() == " ".join(EVIL.split())


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_words_make_a_well_formed_page(words: str) -> None:
    found = read(page(words).html())
    assert found.all("script") == []
    assert len(found.all("table")) == len(found.all("svg")) == 1


def test_the_outline(run: Path) -> None:
    """One h1, then h2 for each section; every figure and table says what it is."""
    found = read(page_of(run).html())
    (html,) = found.all("html")
    assert html.attributes["lang"] == "en"
    assert len(found.all("h1")) == 1
    assert [heading for level in "3456" for heading in found.all(f"h{level}")] == []
    links = [link.attributes["href"] for link in found.all("a")]
    places = [f"#{section.attributes['id']}" for section in found.all("section")]
    assert places == ["#summary", *links]
    assert len(set(places)) == len(places)
    assert [link.text() for link in found.all("a")] == [h2.text() for h2 in found.all("h2")]
    for svg in found.all("svg"):
        assert svg.attributes["role"] == "img"
        assert svg.all("title")[0].text()
        assert svg.all("desc")[0].text()
    for table in found.all("table"):
        assert table.all("caption")[0].text()
        assert all(cell.attributes["scope"] in ("row", "col") for cell in table.all("th"))
    assert found.all("meta")[2].attributes["content"] == "width=device-width, initial-scale=1"


def test_nothing_is_loaded(run: Path) -> None:
    html = page_of(run).html()
    found = read(html)
    for tag in ("script", "img", "link", "iframe", "object", "embed", "video", "audio", "base"):
        assert found.all(tag) == [], tag

    def attributes(node: Node) -> list[tuple[str, str | None]]:
        inner = [child for child in node.children if isinstance(child, Node)]
        return [*node.attributes.items(), *(pair for child in inner for pair in attributes(child))]

    for name, value in attributes(found):
        assert not name.startswith("on"), name
        if name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
            assert value is not None
            assert value.startswith("#"), (name, value)
    assert not re.search(r"url\(|@import|@font-face", html)
    policy = found.all("meta")[1].attributes
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    one = page_of(run).write(tmp_path / "new" / "folder" / "one.html")
    other = page_of(run).write(tmp_path / "other.html")
    assert one.read_bytes() == other.read_bytes()
    assert len(one.read_bytes()) < 200_000


def test_numbers_are_set_flush_right() -> None:
    rows: list[list[str | int | None]] = [["a", 1234, "1.5 ± 0.1", "x 1"], ["b", None, "90 %", ""]]
    table = Table(["name", "n", "score", "words"], rows, "numbers")
    assert table.cells == [["a", "1,234", "1.5 ± 0.1", "x 1"], ["b", "–", "90 %", ""]]
    assert table.numeric == [False, True, True, False]
    found = read(Page("t", [], [Section("s", [table])]).html())
    assert tables(found)["numbers"] == (["name", "n", "score", "words"], table.cells)
    first = found.all("tbody")[0].all("tr")[0]
    assert [cell.attributes.get("class") for cell in first.all("td")] == ["number", "number", None]


def test_backticks_and_options_are_code() -> None:
    said = Text("The door `open`, with --aggregate secure, e^-1--x and a lone ` stays.")
    found = read(Page("t", [said]).html())
    assert [code.text() for code in found.all("p")[0].all("code")] == ["open", "--aggregate"]
    assert found.all("p")[0].text().endswith("a lone ` stays.")


def test_paragraphs() -> None:
    assert Text(" one\n two \n\n\n\nthree ").paragraphs == ["one two", "three"]


def test_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="a row has not 2 cells"):
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

"""The reader of snippets finds what pages show, and notices where it is not what comes out."""

from pathlib import Path

from tests.docs.snippets import commands, matches, printed, snippets

PAGE = """
<!-- not run: it would download something large -->
```console
$ lumos data fetch facebook
```
```python
print(1 + 1)  # 2
for n in (1, 2):
    print(n)
# 1
# 2
print(3)  # 3
# no output
```
"""


def test_blocks_and_marks(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    console, python = snippets(tmp_path / "page.md")
    assert console.not_run == "it would download something large"
    assert (python.language, python.not_run, python.line) == ("python", "", 6)
    assert printed(python.text) == ["2", "1", "2", "3"]


def test_commands_and_their_output() -> None:
    one, other = commands("$ lumos a --b 1   # why\nshown\n…\n$ lumos c\n")
    assert (one.words, one.output) == ("lumos a --b 1", ["shown", "…"])
    assert (other.words, other.output) == ("lumos c", [])


def test_lines_are_compared_in_order_with_blanks_alike() -> None:
    out = "title\n a   1.00 %\n b   2.00 %\n3.2 s\n"
    assert matches(["a 1.00 %", "…", "b 2.00 %", "… s"], out) == ""
    assert matches(["b 2.00 %", "a 1.00 %"], out) == "a 1.00 %"
    assert matches(["a 1.01 %"], out) == "a 1.01 %"
    assert matches(["a 1.00"], out) == "a 1.00"


def test_a_paragraph_may_be_wrapped_on_the_page() -> None:
    out = "one two three four\nfive\n"
    assert matches(["one two", "three four", "five"], out) == ""
    assert matches(["one two", "four", "five"], out) == "one two"
    assert matches(["one two three", "four five"], out) == "one two three"

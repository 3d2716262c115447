"""Every erratum that the source cites is in docs/errata.md, under the same number."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "docs" / "errata.md"
HEADING = re.compile(r"^### (\d+[a-e]?|[A-H])\. ", re.MULTILINE)
CITED = re.compile(r"\berrat(?:a|um)\s+((?:\d+[a-e]?|[A-H])\b(?:\s+to\s+[A-H]\b)?)", re.IGNORECASE)


def cited_numbers() -> dict[str, list[str]]:
    """The citing files of each number; a range as "A to H" counts for every letter in it."""
    cited: dict[str, list[str]] = {}
    files = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "docs").glob("*.md"),
    ]
    for file in files:
        if file in (LIST, Path(__file__)):
            continue
        for found in CITED.finditer(file.read_text("utf-8")):
            first, _, last = found[1].partition(" to ")
            letters = [chr(code) for code in range(ord(first), ord(last) + 1)] if last else [first]
            for number in letters:
                cited.setdefault(number, []).append(str(file.relative_to(ROOT)))
    return cited


def test_every_cited_number_is_there() -> None:
    there = HEADING.findall(LIST.read_text("utf-8"))
    assert len(there) == len(set(there))
    missing = {number: files for number, files in cited_numbers().items() if number not in there}
    assert not missing


def test_the_citations_are_found() -> None:
    """Guards the pattern: these were cited when the list was written."""
    cited = cited_numbers()
    assert {"1", "4", "5", "6", "7", "8", "8b", "8c", "8d", "9", *"ABCDEFGH"} <= cited.keys()
    assert "src/lumos/trees/balancers/mcmc.py" in cited["8c"]

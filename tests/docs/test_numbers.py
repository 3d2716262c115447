"""Numbers of README and docs are those of docs/results."""

import json
import re
import shutil
from pathlib import Path

import pytest
from benchmarks.committed import computed_guarantees
from PIL import Image
from reproduce.documents import (
    BLOCK,
    BLOCKS,
    CURVES,
    PAGES,
    ROOT,
    TRADEOFF,
    Kept,
    regenerated,
    write_documents,
)
from reproduce.picture import PICTURE, numbers, numbers_in
from reproduce.sentences import SENTENCES, pattern

from lumos.errors import InputError


@pytest.fixture(scope="module")
def kept() -> Kept:
    return Kept()


@pytest.mark.parametrize("page", PAGES)
def test_generated_blocks_are_up_to_date(page: str, kept: Kept) -> None:
    """`python -m reproduce --write-docs` writes them."""
    text = (ROOT / page).read_text("utf-8")
    assert BLOCK.search(text) or page in SENTENCES
    assert regenerated(text, kept, page) == text


def test_every_block_is_in_a_page_once() -> None:
    found = [match[2] for page in PAGES for match in BLOCK.finditer((ROOT / page).read_text())]
    assert sorted(found) == sorted(BLOCKS)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_changed_number_is_seen_and_written_again(name: str, kept: Kept) -> None:
    """In a copy, one digit of one block differs."""
    page = next(
        page for page in PAGES if f"<!-- generated: {name} -->" in (ROOT / page).read_text()
    )
    text = (ROOT / page).read_text("utf-8")
    match = next(match for match in BLOCK.finditer(text) if match[2] == name)
    digit = re.search(r"\d", match[3])
    assert digit is not None
    place = match.start(3) + digit.start()
    wrong = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
    assert regenerated(wrong, kept, page) == text != wrong


SENTENCE = [(page, place) for page, found in SENTENCES.items() for place in range(len(found))]


@pytest.mark.parametrize(("page", "place"), SENTENCE)
def test_a_changed_number_in_a_sentence_is_seen(page: str, place: int, kept: Kept) -> None:
    """The last number of the sentence is another one in a copy."""
    text = (ROOT / page).read_text("utf-8")
    match = re.search(pattern(SENTENCES[page][place]), text)
    assert match is not None
    last = match.end(match.re.groups) - 1
    wrong = text[:last] + ("2" if text[last] == "1" else "1") + text[last + 1 :]
    assert regenerated(wrong, kept, page) == text


def test_a_sentence_that_is_gone_is_refused(kept: Kept) -> None:
    with pytest.raises(InputError, match=r"docs/strict\.md: the sentence .* is not there"):
        regenerated("", kept, "docs/strict.md")


def test_quoted_guarantees_are_those_of_the_code() -> None:
    """`python -m benchmarks.committed guarantees` writes them."""
    assert json.loads((ROOT / "docs/results/guarantees.json").read_text()) == computed_guarantees()


def test_a_changed_result_changes_the_page(tmp_path: Path) -> None:
    for name in (*PAGES, PICTURE, TRADEOFF, CURVES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "docs" / "results")
    assert write_documents(tmp_path) == []
    path = tmp_path / "docs" / "results" / "reproduce-structure.json"
    path.write_text(path.read_text().replace('"max_workload": 22', '"max_workload": 23'))
    assert write_documents(tmp_path) == ["docs/paper.md"]
    assert "| 16 | 23 | 15 |" in (tmp_path / "docs" / "paper.md").read_text()
    path = tmp_path / "docs" / "results" / "guarantees.json"
    found = json.loads(path.read_text())
    for row in found["default"]:
        if row["about"].startswith("edge"):
            row["validation devices"] = "(99.9, 1e-05)"
    path.write_text(json.dumps(found))
    pages = {"README.md", "docs/faq.md", "docs/strict-guarantees.md", "docs/strict.md"}
    assert pages < set(write_documents(tmp_path))
    assert "e^99.9 ≈ 10⁴³" in (tmp_path / "README.md").read_text()


def test_the_picture_has_the_numbers_of_the_results(kept: Kept, tmp_path: Path) -> None:
    assert numbers_in(ROOT / PICTURE) == numbers(kept)
    rows = {(row["system"], row["backbone"]): row for row in numbers(kept)["classify"]}
    assert rows["Lumos paper", "GCN"]["paper"] == 78.8  # our centralized model, less 16.29 points
    assert rows["LPGNN", "GCN"]["paper"] == 72.4  # and less 6.44 more
    Image.new("RGB", (1, 1)).save(tmp_path / "other.png")
    assert numbers_in(tmp_path / "other.png") is None


def test_an_unknown_block_is_refused(kept: Kept) -> None:
    with pytest.raises(InputError, match=r"a\.md: there is no generated block 'nothing'"):
        regenerated("<!-- generated: nothing -->\n<!-- end -->", kept, "a.md")


STALE = {
    "16 after 15,000": "LastFM has 17 after 15,000 steps",
    "lumos reproduce": "the command is `python -m reproduce`",
    "true labels in sums": "there is no such setting",
}
"""Phrases of former versions, and the reason that they are wrong."""


@pytest.mark.parametrize("phrase", STALE)
def test_former_contradictions_do_not_come_back(phrase: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "reproduce").glob("*.py")]
    assert [str(page) for page in pages if phrase in page.read_text("utf-8")] == []

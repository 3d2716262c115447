"""The page in a real browser: without scripts, without network, on a desk and on a telephone."""

import io
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from tests.report.chromium import Browser, Tab
from tests.report.page_reading import read, tables
from tests.shared_runs import SharedFolders

import lumos
from lumos.report import (
    Figure,
    Page,
    Section,
    Table,
    Text,
    bars,
    cdf,
    confusion_block,
    dots,
    lines,
    seeds_figure,
)

WIDTHS = (1280, 390, 320)
LEGIBLE = 9.5
"""Least size of words in figures on a telephone, in pixels."""

SIZES = """(() => {
  const wide = document.documentElement.clientWidth;
  const inside = (e) => e.closest('.scroll') || e.parentElement.closest('svg');
  const out = [...document.body.querySelectorAll('*')].filter(
    (e) => !inside(e) && e.getClientRects().length && e.getBoundingClientRect().right > wide + 1);
  return {client: wide, scroll: document.documentElement.scrollWidth,
          out: out.map((e) => e.outerHTML.slice(0, 120))};
})()"""

DRAWN = """[...document.querySelectorAll('svg')].map((svg) => {
  const frame = svg.getBoundingClientRect();
  const scale = frame.width / svg.viewBox.baseVal.width;
  return {title: svg.querySelector('title').textContent,
          frame: [frame.left, frame.top, frame.right, frame.bottom],
          texts: [...svg.querySelectorAll('text')].map((t) => {
            const r = t.getBoundingClientRect();
            return {words: t.textContent, size: scale * parseFloat(getComputedStyle(t).fontSize),
                    box: [r.left, r.top, r.right, r.bottom]};
          })};
})"""


@pytest.fixture(scope="session")
def pages(runs: dict[str, Path], shared: SharedFolders) -> dict[str, Path]:
    """A page of every kind of run, one of all kinds of figures, one of hostile names."""

    def write(folder: Path) -> None:
        folder.mkdir()
        for kind, run in runs.items():
            lumos.load_run(run).report(folder / f"{kind}.html")
        figures().write(folder / "figures.html")
        hostile().write(folder / "hostile.html")

    folder = shared.made("pages", write)
    return {page.stem: page for page in folder.glob("*.html")}


def figures() -> Page:
    systems = ["centralized GCN", "Lumos, strict profile", "Lumos, paper profile", "LPGNN"]
    values: list[list[float | None]] = [[94.6, 90.0, 90.4, None], [94.8, 89.9, 91.6, 93.0]]
    spread: list[list[float | None]] = [[0.1, 0.5, None, None], [0.2, 0.4, 0.1, 0.2]]
    paper: list[list[float | None]] = [[93.3, 77.4, None, None], [None, 78.1, None, 81.2]]
    groups = ["facebook, GCN", "facebook, GAT"]
    sizes = np.arange(2000) ** 2 // 1000
    series: dict[str, tuple[list[float | None], list[float | None] | None]] = {
        "strict": ([87.4, 88.2, 90.0, 91.7], [0.4, 0.4, 0.5, 0.5]),
        "control": ([86.9, None, 86.9, 86.8], None),
    }
    drawn = [
        bars(groups, systems, values, spread, paper, unit="%", title="Accuracy"),
        dots(groups, systems, values, spread, paper, unit="%", title="Accuracy, close"),
        bars(["messages"], ["kept", "trimmed"], [[30.4, 19.9]], digits=1, title="Messages"),
        lines([0.5, 1, 2, 4], series, {"strict": [70, None, 77, 79]}, unit="%", title="Over ε",
              x_title="ε", at_points=True),
        lines(list(range(1, 101)), {"a run": ([1 / n for n in range(1, 101)], None)},
              title="Loss", levels={"own 0.30": 0.3, "control 0.31": 0.31}, notes=["A note " * 20],
              reference_lines={"weights of epoch 80": 80}),
        cdf({"every neighbour kept": sizes, "after mcmc": sizes // 99}, title="Workload",
            x_title="workload", marks={"paper: largest 39": 39, "least possible: 37": 37}),
    ]  # fmt: skip
    matrices = [confusion_matrix(classes) for classes in (2, 6, 9, 20, 100)]
    seeds = seeds_figure({"strict": [91.0, 92.5, 90.1], "own": [73.0], "LPGNN": []}, "Seeds")
    blocks = [*(Figure(svg, "…") for svg in drawn), *matrices, seeds]
    return Page("Figures", ["All kinds."], [Section("All", blocks)])


def confusion_matrix(classes: int) -> Figure | Table:
    """Many confusions of classes with long names; the counts of some cells have six digits."""
    counts = np.random.default_rng(classes).integers(0, 12, (classes, classes)) ** 2
    counts[0, 0] += 123_456
    names = [f"{'a rather long name' if n % 3 else 'class'} {n}" for n in range(classes)]
    return confusion_block(names, counts.tolist(), f"{classes} classes")


def hostile() -> Page:
    long = "a" * 400
    evil = '</title><script>console.error("ran")</script><img src="http://example.org/x.png">'
    table = Table([evil, long], [[evil, long], [long, evil]], evil, stacked=True)
    numbers = Table(["n"] * 30, [[10**12] * 30], "wide")
    drawn = Figure(dots([evil], [evil, evil], [[1.0, 2.0]], title=evil), evil)
    return Page(evil, [evil, Text(long)], [Section(evil, [table, numbers, drawn])], subtitle=evil)


KINDS = ["strict", "paper", "link", "strict link", "star", "figures", "hostile"]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_fit_every_width(chromium: Browser, pages: dict[str, Path], kind: str) -> None:
    """No script, no request, no complaint; nothing is wider than the screen; words in figures lie
    inside their drawing, none on another, and are large enough on a telephone."""
    for width in WIDTHS:
        with chromium.tab(width) as tab:
            tab.open(pages[kind])
            assert tab.complaints == []
            assert tab.requests == [pages[kind].as_uri()]
            sizes = tab.measure(SIZES)
            assert (sizes["client"], sizes["scroll"], sizes["out"]) == (width, width, [])
            if width == 390 and kind != "hostile":
                check_words(tab.measure(DRAWN))
            if width != WIDTHS[0]:
                continue
            seen, written = read(tab.html()), read(pages[kind].read_text("utf-8"))
            assert seen.all("h1")[0].text() == written.all("h1")[0].text()
            assert tables(seen) == tables(written)
            for tag in ("svg", "p"):
                assert [e.text() for e in seen.all(tag)] == [e.text() for e in written.all(tag)]
            assert not tab.measure("document.scripts.length + document.images.length")
            assert tab.measure("document.compatMode") == "CSS1Compat"


def check_words(drawings: list[dict[str, Any]]) -> None:
    assert drawings
    for drawing in drawings:
        left, top, right, bottom = drawing["frame"]
        for text in drawing["texts"]:
            box = text["box"]
            inside = left - 1 <= box[0] and box[2] <= right + 1
            inside = inside and top - 1 <= box[1] and box[3] <= bottom + 1
            assert inside, (drawing["title"], text["words"])
            assert text["size"] >= LEGIBLE, (drawing["title"], text)
        for first, other in combinations(drawing["texts"], 2):
            a, b = first["box"], other["box"]
            across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            meet = across > 0.5 and down > 2
            assert not meet, (drawing["title"], first["words"], other["words"])


Channels = np.ndarray[tuple[int], np.dtype[np.float64]]


def channels(colour: str) -> Channels:
    """[3] red, green and blue from 0 to 1."""
    return np.array([int(part) for part in re.findall(r"\d+", colour)[:3]]) / 255


def contrast(one: Channels, other: Channels) -> float:
    """The WCAG's, of two colours."""
    brightness = []
    for colour in (one, other):
        linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
        brightness.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(brightness) / min(brightness)


def of_scheme(tab: Tab, scheme: str) -> None:
    """Let the tab prefer light or dark pages."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    tab.call("Emulation.setEmulatedMedia", features=[feature])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["paper", "figures"])
def test_colours_and_words_stand_out(
    chromium: Browser, pages: dict[str, Path], kind: str, scheme: str
) -> None:
    """All words have a contrast of 4.5 or more on the page; so do those on cells of a matrix, and
    lines and shapes have 3. What is seen is mostly paper, with words on it."""
    with chromium.tab(1280, 850) as tab:
        of_scheme(tab, scheme)
        tab.open(pages[kind])
        paper = channels(tab.measure("getComputedStyle(document.body).backgroundColor"))
        assert (paper.mean() > 0.5) == (scheme == "light")
        words = tab.measure(
            "[...new Set([...document.querySelectorAll('body *')].map((e) => "
            "e instanceof SVGTextElement ? getComputedStyle(e).fill : getComputedStyle(e).color))]"
        )
        shapes = tab.measure(
            "[...document.querySelectorAll('svg path, svg use')].filter((e) => "
            "!e.closest('defs')).map((e) => getComputedStyle(e)).map((s) => [s.fill, s.stroke, "
            "Number(s.opacity) * Number(s.fillOpacity), s.fillOpacity < 1])"
        )
        picture = imread(io.BytesIO(tab.screenshot()), format="png")[..., :3]
    assert picture.shape == (850, 1280, 3)
    assert (abs(picture - paper).max(axis=2) < 0.03).mean() > 0.6
    assert 0.01 < (abs(picture - paper).max(axis=2) > 0.5).mean() < 0.3
    assert words
    for colour in words:
        assert contrast(channels(colour), paper) >= 4.5, colour
    ink = channels(next(colour for colour in words if colour))
    cells = [(fill, opacity) for fill, _, opacity, band in shapes if opacity < 1 and not band]
    assert cells  # of confusion matrices
    for colour, opacity in cells:
        shade = opacity * channels(colour) + (1 - opacity) * paper
        assert contrast(ink, shade) >= 4.5, (colour, opacity)
    grid = channels("213, 213, 213" if scheme == "light" else "54, 60, 66")
    for fill, stroke, opacity, _ in shapes:
        for colour in (fill, stroke) if opacity == 1 else ():
            if colour != "none" and not any(
                np.allclose(channels(colour), other) for other in (paper, grid)
            ):
                assert contrast(channels(colour), paper) >= 3, colour


def test_it_prints(chromium: Browser, pages: dict[str, Path]) -> None:
    with chromium.tab(1280) as tab:
        tab.open(pages["paper"])
        printed = tab.pdf()
    assert printed.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 10


def test_the_tests_would_notice(chromium: Browser, tmp_path: Path) -> None:
    """What the tests above look for is found where it is."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!DOCTYPE html><title>bad</title><meta name=viewport content='width=device-width'>"
        "<body><img src='http://example.org/x.png'><div style='width:900px'>wide</div>"
        "<script>console.error('ran')</script>"
    )
    with chromium.tab(390, scripts=True) as tab:
        tab.open(bad)
        assert "http://example.org/x.png" in tab.requests
        assert any("console.error: ran" in line for line in tab.complaints)
        assert any("ERR_" in line for line in tab.complaints)
        assert tab.measure(SIZES)["out"]
    with chromium.tab(390) as tab:
        tab.open(bad)
        assert not any("ran" in line for line in tab.complaints)  # scripts are disabled indeed

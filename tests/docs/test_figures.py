"""The pictures are those that `make figures` draws, and every word in them can be read."""

import runpy
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
DRAWING: dict[str, Any] = runpy.run_path(str(FOLDER / "draw.py"))
NAMES = list(DRAWING["PICTURES"])


def test_the_committed_pictures_are_drawn(tmp_path: Path) -> None:
    DRAWING["draw"](tmp_path)
    for name in NAMES:
        drawn, committed = ((folder / f"{name}.svg").read_bytes() for folder in (tmp_path, FOLDER))
        assert drawn == committed, f"{name}.svg is another one; type: make figures"


@pytest.mark.parametrize("name", NAMES)
def test_words_do_not_overlap_and_stay_in_the_panel(name: str) -> None:
    with DRAWING["style"]():
        figure = DRAWING["picture"](name)
        renderer = FigureCanvasAgg(figure).get_renderer()
        panel = figure.get_window_extent(renderer)
        places = {
            (place, text.get_text()): text.get_window_extent(renderer)
            for place, text in enumerate(figure.axes[0].texts)
            if text.get_text()
        }
    for words, box in places.items():
        assert panel.x0 + 10 < box.x0 < box.x1 < panel.x1 - 10, words
        assert panel.y0 + 10 < box.y0 < box.y1 < panel.y1 - 10, words
    for (words, box), (others, other) in combinations(places.items(), 2):
        apart = (
            box.x1 <= other.x0
            or other.x1 <= box.x0
            or box.y1 <= other.y0 + 2  # descenders of a line, ascenders of the next
            or other.y1 <= box.y0 + 2
        )
        assert apart, (words, others)

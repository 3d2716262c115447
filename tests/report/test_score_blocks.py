"""Scores of several systems and seeds."""

import numpy as np
from tests.report.svg_reading import axis, elements, texts

from lumos.report import seeds_figure
from lumos.report.svg import COLOURS


def test_means_and_every_seed() -> None:
    scores = {"strict": [91.0, 92.5, 90.1], "own": [73.0], "nobody": []}
    figure = seeds_figure(scores, "Accuracy", unit="%", digits=1)
    mean, spread = np.mean(scores["strict"]), np.std(scores["strict"], ddof=1)
    drawn = texts(figure.svg)
    assert f"{mean:.1f} ± {spread:.1f} %" in drawn
    assert "73.0 %" in drawn
    assert "none" in drawn
    slope, start = axis(figure.svg, "%")
    strokes = [line for line in elements(figure.svg, "line") if line["stroke"] == COLOURS[0]]
    found = sorted((float(line["x1"]) - start) / slope for line in strokes)
    np.testing.assert_allclose(found, sorted(scores["strict"]), atol=0.1)
    assert "Means of 3 seeds; a stroke is one seed." in figure.caption


def test_one_seed_has_no_spread() -> None:
    figure = seeds_figure({"strict": [91.0]}, "Accuracy")
    assert figure.caption.startswith("One seed.")
    assert "±" not in "".join(texts(figure.svg))

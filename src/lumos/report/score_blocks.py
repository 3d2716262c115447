"""A figure of scores of several systems, each measured with several seeds."""

import statistics
from collections.abc import Mapping, Sequence

from lumos.report.bar_chart import dots
from lumos.report.page import Figure


def seeds_figure(
    scores: Mapping[str, Sequence[float]],
    title: str,
    *,
    unit: str = "",
    digits: int = 2,
    caption: str = "",
) -> Figure:
    """The mean of each system, its standard deviation over seeds, and every seed by itself.

    Args:
        scores: by name of the system, a score for each seed; none where it could not be run.
        title: above the drawing.
        unit: behind every number, as "%".
        digits: decimals of the numbers.
        caption: a sentence more below the drawing.
    """
    means = [statistics.fmean(values) if values else None for values in scores.values()]
    spread = [statistics.stdev(values) if len(values) > 1 else None for values in scores.values()]
    most = max((len(values) for values in scores.values()), default=0)
    drawing = dots(
        [title],
        list(scores),
        [means],
        [spread],
        unit=unit,
        title=title,
        digits=digits,
        singles=[[values if len(values) > 1 else () for values in scores.values()]],
    )
    about = "One seed." if most < 2 else f"Means of {most} seeds; a stroke is one seed."
    if most > 1:
        about += " ± is the standard deviation over seeds."
    return Figure(drawing, f"{about} The axis does not begin at 0. {caption}".rstrip())

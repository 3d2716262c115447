"""A picture of the balance: how many devices carry at most so many branches."""

import os
from pathlib import Path

import numpy as np

from lumos.errors import UsageError
from lumos.typing import Ints

_ENDINGS = (".png", ".svg", ".pdf")
_TICKS = (0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 20000, 100000)


def check_plot(path: Path) -> None:
    """Refuse a path that no picture can be written to, before anything long is run."""
    if path.suffix not in _ENDINGS:
        raise UsageError(f"`plot` {path}: the name must end in {', '.join(_ENDINGS)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"`plot` {path}: cannot be written ({error.strerror})") from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"`plot` {path}: cannot be written")


def plot_workloads(
    path: Path, before: Ints, after: Ints, optimum: int, title: str, label: str
) -> None:
    """Write the workload distribution with and without trimming, the optimum marked.

    Args:
        path: where to; the ending decides the format (png, svg, pdf).
        before: [devices] workloads without trimming, that is degrees.
        after: [devices] workloads.
        optimum: least possible largest workload.
        title: above the picture.
        label: name of the balancer.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    curves = (
        (before, f"without trimming: largest {before.max(initial=0):,}", "#b0654a"),
        (after, f"{label}: largest {after.max(initial=0):,}", "#22577a"),
    )
    for workload, name, colour in curves:
        values = np.sort(workload)
        share = np.arange(1, len(values) + 1) / len(values)
        axes.step(values, share, where="post", label=name, color=colour, linewidth=1.8)
        axes.plot(values[-1:], share[-1:], "o", color=colour, markersize=5)
    axes.axvline(optimum, color="#555555", linestyle="--", linewidth=1)
    axes.annotate(
        f"least possible: {optimum}",
        (optimum, 0.03),
        xytext=(6, 0),
        textcoords="offset points",
        color="#555555",
    )
    axes.set_xscale("symlog", linthresh=10)
    most = max(10, 1.3 * before.max(initial=0))
    axes.set_xticks([tick for tick in _TICKS if tick <= most])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("workload: neighbours kept in a device's tree")
    axes.set_ylabel("share of devices with at most so many")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.12), frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)

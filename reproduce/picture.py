"""The picture of the reproduction, docs/figures/reproduction.png, from committed results.

Its numbers are also stored in the file as text, so that a test can compare them.
"""

import json
from pathlib import Path
from typing import Any

from lumos.report.charts import COLOURS
from reproduce import claims
from reproduce.evaluation import MEASURES, SYSTEM_NAMES
from reproduce.plots import STYLES
from reproduce.runs import LITERAL

PICTURE = "docs/figures/reproduction.png"
KEY = "Numbers"
"""Name of the numbers among the texts of the file."""
SIZE = (10.0, 7.6)
SHOWN = {"classify": "Fig. 3: test accuracy, %", "link": "Fig. 4: test ROC-AUC"}
DIGITS = {"classify": 1, "link": 3}


def numbers(kept: Any) -> dict[str, Any]:
    """Return what is drawn: by task, by system and backbone, ours and the paper's."""
    found: dict[str, Any] = {}
    for task in MEASURES:
        theirs = claims.filled_in(kept.facebook, task)
        digits = DIGITS[task]
        rows = []
        for key, system, _ in claims.SYSTEMS:
            for place, backbone in enumerate(claims.BACKBONES):
                scores = claims.system_scores(kept.facebook, system, task, backbone)
                values = list(scores.by_seed.values())
                if values:
                    paper = theirs.get(key, (None, None))[place]
                    mean = sum(values) / len(values)
                    rows.append(
                        {
                            "system": SYSTEM_NAMES[system],
                            "backbone": backbone.upper()
                            if claims.has_backbone(system, task)
                            else "",
                            "ours": round(mean, digits),
                            "paper": None if paper is None else round(paper, digits),
                        }
                    )
                if not claims.has_backbone(system, task):
                    break
        found[task] = rows
    return found


def colour(system: str) -> str:
    """Return the colour of a system, as in every plot of the page."""
    return COLOURS[STYLES[system] % len(COLOURS)]


def draw(path: Path, kept: Any) -> None:
    """Write the picture."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    content = numbers(kept)
    with mpl.rc_context():
        mpl.rcdefaults()
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, 2)
        for axis, (task, rows) in zip(axes, content.items(), strict=True):
            _panel(axis, rows, SHOWN[task], DIGITS[task])
        axes[1].legend(
            handles=[
                mpl.lines.Line2D([], [], color="#555555", linewidth=8, label="ours"),
                mpl.lines.Line2D([], [], **_DIAMOND, label="paper, filled in from its differences"),
            ],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.06),
            frameon=False,
            ncols=2,
        )
        figure.suptitle("Facebook, ε = 2: the paper's evaluation, reproduced", fontsize=14)
        texts = {KEY: json.dumps(content, ensure_ascii=True, sort_keys=True), "Software": None}
        figure.savefig(path, dpi=110, facecolor="white", metadata=texts)


_DIAMOND: dict[str, Any] = {
    "marker": "D",
    "markersize": 8,
    "linestyle": "none",
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "markeredgewidth": 1.6,
}


def _panel(axes: Any, rows: list[dict[str, Any]], title: str, digits: int) -> None:
    """Draw a bar for each row, the paper's number as a diamond, and both as text."""
    for place, row in enumerate(rows):
        hatch = "//" if row["system"] == SYSTEM_NAMES[LITERAL] else None
        axes.barh(place, row["ours"], 0.5, color=colour(row["system"]), hatch=hatch, alpha=0.85)
        text = f"{row['ours']:.{digits}f}"
        if row["paper"] is not None:
            axes.plot(row["paper"], place, **_DIAMOND)
            text += f"   paper {row['paper']:.{digits}f}"
        words = f" {row['system']} {row['backbone']}".rstrip()
        axes.text(0, place - 0.32, f"{words}: {text}", fontsize=9.5, va="bottom")
    axes.set_ylim(len(rows) - 0.4, -0.9)
    axes.set_yticks([])
    axes.set_xlim(0, 100 if digits == 1 else 1.0)
    axes.set_title(title, loc="left", fontsize=12)
    axes.grid(axis="x", alpha=0.4)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def numbers_in(path: Path) -> Any:
    """Return the numbers that a picture was drawn from; None if it has none."""
    from PIL import Image

    with Image.open(path) as image:
        text = getattr(image, "text", {}).get(KEY)
    return None if text is None else json.loads(text)

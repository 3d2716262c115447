"""Accuracy against the share of training devices: strict, its local model, LPGNN, centralized GCN.

    python benchmarks/learning_curves.py [--graph demo] [--graph facebook] [--systems strict lpgnn]
    python benchmarks/learning_curves.py --plot docs/figures/learning-curves.svg

As many devices validate as train, up to a quarter; all others test. Label ε = 3, features ε = 8.
*Strict, labelled* has `participation="labelled"`; *local* is the local model of that run, the one
that everything is compared with. *Strict before* was measured with the same script on the commit
before one end used an edge and before all devices took part; its cells stay as they are.
Finished cells are kept in OUT/learning-curves.json, so an interrupted run goes on; `--again`
computes those of `--systems` anew.
"""

import argparse
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

import lumos
from lumos.baselines.measure import baseline

SHARES = (0.01, 0.02, 0.05, 0.10, 0.25, 0.50)
GRAPHS = ("demo", "facebook")
LPGNN = {"system": "lpgnn", "backbone": "gcn", "feature_epsilon": 8.0, "label_epsilon": 3.0}
SYSTEMS = ("strict", "labelled", "lpgnn", "centralized")
BEFORE = "before"
"""Cells of the earlier commit: strict there, as `--before` measures it."""
TITLES = {
    "strict": "strict",
    "labelled": "strict, labelled devices only",
    BEFORE: "strict before",
    "lpgnn": "LPGNN, whose server knows all edges",
    "centralized": "centralized GCN",
    "local": "local model",
}
SEEDS = 3
Cells = dict[str, dict[str, dict[str, Any]]]
"""By graph, by system and share, by seed."""


def measured(graph: lumos.Graph, system: str, share: float, seed: int) -> dict[str, float]:
    """Return test accuracies of one run."""
    split = (share, min(share, 0.25), 1 - share - min(share, 0.25))
    if system in ("lpgnn", "centralized"):
        chosen: Any = LPGNN if system == "lpgnn" else {"system": system, "backbone": "gcn"}
        run = baseline(graph, **chosen, split=split, seed=seed, patience=100)
        return {"test": run.metrics["test_accuracy"]}
    settings: Any = {"participation": "labelled"} if system == "labelled" else {}
    result = lumos.train(graph, split=split, seed=seed, **settings)
    local = result.own or {}
    return {"test": result.metrics["test_accuracy"], "own": local["test_accuracy"]}


def mean(cells: Cells, graph: str, system: str, share: float) -> float | None:
    """Return the mean over seeds in percent; None if nothing was measured."""
    of, name = ("labelled", "own") if system == "local" else (system, "test")
    found = cells.get(graph, {}).get(f"{of} {share:g}", {})
    return 100 * float(np.mean([cell[name] for cell in found.values()])) if found else None


def table(cells: Cells, graph: str) -> str:
    """Return the rows of a Markdown table."""
    rows = ["| | " + " | ".join(f"{100 * share:g} %" for share in SHARES) + " |"]
    rows.append("|---" * (1 + len(SHARES)) + "|")
    for system, title in TITLES.items():
        means = [mean(cells, graph, system, share) for share in SHARES]
        if any(value is not None for value in means):
            shown = ("–" if value is None else f"{value:.1f}" for value in means)
            rows.append(f"| {title} | " + " | ".join(shown) + " |")
    return "\n".join(rows)


def draw(cells: Cells) -> str:
    """Return an SVG with one panel for each graph, and a line for each system."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "lumos"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(cells), figsize=(5.2 * len(cells), 4.2), sharey=True)
    styles = {"local": ":", BEFORE: "--", "labelled": "-."}
    for panel, graph in zip(np.atleast_1d(panels), cells, strict=True):
        for system, title in TITLES.items():
            means = [mean(cells, graph, system, share) for share in SHARES]
            points = [(100 * x, y) for x, y in zip(SHARES, means, strict=True) if y is not None]
            if points:
                x, y = zip(*points, strict=True)
                panel.plot(x, y, styles.get(system, "-"), marker="o", markersize=4, label=title)
        panel.set_xscale("log")
        panel.set_xticks([100 * share for share in SHARES], [f"{100 * s:g}" for s in SHARES])
        panel.minorticks_off()
        panel.set_xlabel("training devices, %")
        panel.set_title(graph)
        panel.grid(alpha=0.3)
    np.atleast_1d(panels)[0].set_ylabel("test accuracy, %")
    np.atleast_1d(panels)[-1].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return re.sub(r" +$", "", text.getvalue(), flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", action="append", help="demo and facebook by default")
    parser.add_argument("--systems", nargs="*", default=SYSTEMS)
    parser.add_argument("--again", action="store_true", help="compute stored cells anew")
    parser.add_argument("--before", action="store_true", help="store strict as strict before")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    path = options.out / "learning-curves.json"
    cells: Cells = json.loads(path.read_text()) if path.is_file() else {}
    systems = ["strict"] if options.before else options.systems
    for name in options.graph or GRAPHS:
        graph = lumos.load(name)
        for system in systems:
            row = BEFORE if options.before else system
            for share in SHARES:
                kept = cells.setdefault(name, {}).setdefault(f"{row} {share:g}", {})
                for seed in range(SEEDS):
                    if options.again or str(seed) not in kept:
                        kept[str(seed)] = measured(graph, system, share, seed)
                        path.write_text(json.dumps(cells, indent=1, sort_keys=True) + "\n")
        print(f"{name}\n\n{table(cells, name)}\n")
    if options.plot:
        options.plot.write_text(draw(cells), "utf-8")


if __name__ == "__main__":
    main()

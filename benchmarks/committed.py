"""Results in docs/results that tables of the docs are written from, computed anew.

    python -m benchmarks.committed evaluate [GRAPH ...]    # docs/evaluate.md, README
    python -m benchmarks.committed evaluate --systems strict own control    # only these rows
    python -m benchmarks.committed paper                   # README: `--profile paper`, `--literal`
    python -m benchmarks.committed labels                  # docs/faq.md: how many labels
    python -m benchmarks.committed guarantees              # ε of every relation, in all pages

Afterwards `python -m reproduce --write-docs` writes the pages. An interrupted `evaluate`
continues.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lumos
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.guarantees import classify_guarantees
from lumos.training.config import Config

RESULTS = Path("docs/results")
SEEDS = 3
GRAPHS = ("facebook", "demo", "twitch-ENGB", "demo:600")
FIELDS = ("system", "key", "metric", "mean", "sd", "seeds", "minus_local", "minus_local_se",
          "by_seed", "protects")  # fmt: skip
PAPER: dict[str, dict[str, Any]] = {
    "corrected": {"profile": "paper", "compare": "ideal", "control": True},
    "literal": {
        "profile": "paper",
        "literal": True,
        "compare": "ideal",
        "control": True,
        "floor": False,
    },
}
LABELS = {
    "demo": ("5/5/90", "10/10/80", "25/25/50"),
    "facebook": ("2/2/96", "5/5/90", "10/10/80"),
}
"""By graph, splits with few labels."""

FACEBOOK: dict[str, Any] = {
    "devices": 22_470,
    "training": 11_234,
    "validation": 5_618,
    "classes": 4,
}
DEMO: dict[str, Any] = {"devices": 2_000, "training": 1_000, "validation": 500, "classes": 6}
FEW: dict[str, Any] = {**FACEBOOK, "training": 449, "validation": 449}
GUARANTEES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": (FACEBOOK, {}),
    "no propagated label": (FACEBOOK, {"propagated_labels": 0}),
    "tree network": (FACEBOOK, {"tree_network": True}),
    "demo": (DEMO, {}),
    "demo, one propagated label": (DEMO, {"propagated_labels": 1}),
    "few labels": (FEW, {}),
    "few labels, labelled devices only": (FEW, {"participation": "labelled"}),
}
"""By name, public sizes of a graph and settings of strict classification whose guarantees the docs
quote."""


def evaluate(graphs: list[str], systems: list[str]) -> None:
    """Compare systems on graphs, with equal budgets; rows of others stay."""
    path = RESULTS / "evaluate.json"
    found = json.loads(path.read_text("utf-8"))
    for name in graphs or GRAPHS:
        evaluation = lumos.evaluate(
            name, seeds=SEEDS, systems=systems or None, out=Path("out/committed") / name
        )
        rows = [asdict(row) for row in evaluation.rows if row.metric == evaluation.metrics[0]]
        new = {row["key"]: row for row in rows}
        if systems:
            rows = [new.get(row["key"], row) for row in found[name]["rows"]]
        graph = lumos.load(name)
        found[name] = {
            "command": f"lumos evaluate {name} --seeds {SEEDS}",
            "devices": graph.devices,
            "edges": graph.edges,
            "rows": [{field: row[field] for field in FIELDS} for row in rows],
        }
        _write(path, found)


def paper() -> None:
    """Run the paper profile on Facebook, seed 0, as printed and corrected."""
    found = {}
    for name, settings in PAPER.items():
        summary = lumos.train("facebook", **settings).summary()
        scores = {key: value for key, value in summary.items() if key.endswith("test_accuracy")}
        found[name] = {"settings": settings, "result": scores}
        _write(RESULTS / "paper-facebook.json", found)


def labels() -> None:
    """Run the strict profile with few labels."""
    found = []
    for name, splits in LABELS.items():
        graph = lumos.load(name)
        for split in splits:
            runs = [lumos.train(graph, split=split, seed=seed) for seed in range(SEEDS)]
            row = {"graph": name, "split": split, "training": runs[0].split_sizes.train}
            row["run"] = [run.metrics["test_accuracy"] for run in runs]
            row["local"] = [run.own["test_accuracy"] for run in runs if run.own is not None]
            found.append(row)
            _write(RESULTS / "labels.json", found)


def computed_guarantees() -> dict[str, Any]:
    """Return the table of guarantees by name; it depends on public numbers and settings alone."""
    found = {}
    for name, (sizes, settings) in GUARANTEES.items():
        config = Config.of(profile="strict", **settings)
        rows = classify_guarantees(ClassifySchedule(config=config, signed=False, **sizes))
        columns = ("about", "training devices", "validation devices", "other devices")
        found[name] = [{column: row[column] for column in columns} for row in rows]
    return found


def guarantees() -> None:
    """Write the guarantees of strict classification."""
    _write(RESULTS / "guarantees.json", computed_guarantees())


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["evaluate", "paper", "labels", "guarantees"])
    parser.add_argument("graphs", nargs="*", help=f"only these of {', '.join(GRAPHS)}")
    parser.add_argument("--systems", nargs="*", default=[], help="evaluate: only these rows")
    options = parser.parse_args()
    if options.what == "evaluate":
        evaluate(options.graphs, options.systems)
    else:
        {"paper": paper, "labels": labels, "guarantees": guarantees}[options.what]()


if __name__ == "__main__":
    main()

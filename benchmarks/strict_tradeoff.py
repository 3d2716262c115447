"""What the strict profile gives for which privacy: one table and one plot, over several seeds.

    python benchmarks/strict_tradeoff.py [--graph facebook] [--task classify] [--seeds 5]
    python benchmarks/strict_tradeoff.py --graph lastfm --words
    python benchmarks/strict_tradeoff.py --communities 100

Every cell is `lumos.train` with the strict profile and its control (symbols that say nothing) on
the same split; own features under the same protection stand beside it, and for links colours alone.
Finished cells are kept in OUT/strict-GRAPH.json (strict-link-GRAPH.json), so an interrupted run
goes on. `--plot FILE` draws accuracy against ε.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array

import lumos
from lumos.graph.demo import words_for

LINKS: dict[str, dict[str, Any]] = {
    "ε = 2": {"epsilon": 2.0},
    "ε = 0.5": {"epsilon": 0.5},
    "ε = 1": {"epsilon": 1.0},
    "ε = 4": {"epsilon": 4.0},
    "ε = 2, gat": {"epsilon": 2.0, "backbone": "gat"},
    "ε = 2, answers of 16": {"epsilon": 2.0, "answer": 16},
    "ε = 2, answers of 1": {"epsilon": 2.0, "answer": 1},
    "ε = 2, no colours": {"epsilon": 2.0, "colours": "none"},
    "ε = 2, no relay": {"epsilon": 2.0, "relay": "none"},
    "ε = 2, unprotected sums": {"epsilon": 2.0, "protect": "none"},
}
CELLS: dict[str, dict[str, Any]] = {
    "ε = 0.5": {"epsilon": 0.5},
    "ε = 1": {"epsilon": 1.0},
    "ε = 2": {"epsilon": 2.0},
    "ε = 4": {"epsilon": 4.0},
    "ε = 2, gat": {"epsilon": 2.0, "backbone": "gat"},
    "ε = 2, relay 4": {"epsilon": 2.0, "relay": 4},
    "ε = 2, trainers say what their encoder says": {"epsilon": 2.0, "trainers_say": "prediction"},
    "ε = 2, randomized response": {"epsilon": 2.0, "mechanism": "krr"},
    "ε = 2, digits": {"epsilon": 2.0, "mechanism": "digits"},
    "ε = 2, unary encoding": {"epsilon": 2.0, "mechanism": "oue"},
    "ε = 2, multi-bit": {"epsilon": 2.0, "mechanism": "multibit"},
    "ε = 2, codebook of 8": {"epsilon": 2.0, "symbol": "codebook"},
    "ε = 2, updates ε 4": {"epsilon": 2.0, "update_epsilon": 4.0},
    "ε = 2, updates ε 2": {"epsilon": 2.0, "update_epsilon": 2.0},
    "ε = 2, holders": {"epsilon": 2.0, "protect": "holders"},
    "ε = 2, projection": {"epsilon": 2.0, "protect": "projection"},
    "ε = 2, unprotected sums": {"epsilon": 2.0, "protect": "none"},
}


def cell(graph: lumos.Graph, task: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    run = lumos.train(graph, profile="strict", task=task, control=True, seed=seed, **settings)
    score = {"classify": "test_accuracy", "link": "test_auc"}[task]
    beside = {"own": run.own, "ids": run.by_ids, "control": run.control}
    return {
        "test": run.metrics[score],
        **{name: scores[score] for name, scores in beside.items() if scores is not None},
        "choice": run.training.choice,
        "seconds_per_epoch": round(run.cost.seconds_per_epoch, 4),
        "bytes_per_epoch": run.cost.per_epoch.bytes_sent_mean,
    }


def communities(graph: lumos.Graph, many: int) -> np.ndarray:
    """[devices] a class for each: labels spread from `many` random devices, large ones slower."""
    coins, devices = np.random.default_rng(0), graph.devices
    ends = graph.edge_list()
    both = np.concatenate([ends, ends[:, ::-1]])
    near = csr_array((np.ones(len(both)), (both[:, 0], both[:, 1])), shape=(devices, devices))
    labels = np.full(devices, -1)
    labels[coins.choice(devices, many, replace=False)] = np.arange(many)
    for _ in range(30):
        known = np.flatnonzero(labels >= 0)
        ones = csr_array((np.ones(len(known)), (known, labels[known])), shape=(devices, many))
        sizes = np.maximum(np.bincount(labels[known], minlength=many), 1)
        votes = (near @ ones).toarray() / np.sqrt(sizes)
        labels = np.where(votes.max(axis=1) > 0, votes.argmax(axis=1), labels)
    return np.where(labels < 0, coins.integers(0, many, devices), labels)


def show(results: dict[str, dict[str, Any]], title: str, task: str) -> None:
    scale, digits = {"classify": (100, 2), "link": (1, 4)}[task]
    names = ("own", "control") if task == "classify" else ("own", "ids", "control")
    table = Table(title=title)
    table.add_column("")
    for name in ("test", *names, "above own", "above control", "seeds"):
        table.add_column(name, justify="right")
    for row_name, by_seed in results.items():
        rows = list(by_seed.values())
        of = {
            name: scale * np.array([row.get(name, np.nan) for row in rows])
            for name in ("test", *names)
        }
        spread = of["test"].std(ddof=1) if len(rows) > 1 else 0
        table.add_row(
            row_name,
            f"{of['test'].mean():.{digits}f} ± {spread:.{digits}f}",
            *(
                "" if np.isnan(of[name]).any() else f"{of[name].mean():.{digits}f}"
                for name in names
            ),
            f"{(of['test'] - of['own']).mean():+.{digits}f}",
            f"{(of['test'] - of['control']).mean():+.{digits}f}",
            str(len(rows)),
        )
    Console(width=120).print(table)


def plot(results: dict[str, dict[str, Any]], path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    lines = (
        ("test", "strict", "o-"),
        ("control", "control: symbols that say nothing", "s--"),
        ("own", "own features, same protection", "^:"),
    )
    epsilons = [0.5, 1, 2, 4]
    for key, label, style in lines:
        of = [
            100 * np.array([row[key] for row in results[f"ε = {e:g}"].values()]) for e in epsilons
        ]
        axes.errorbar(
            epsilons,
            [values.mean() for values in of],
            [values.std(ddof=1) if len(values) > 1 else 0 for values in of],
            fmt=style,
            capsize=3,
            label=label,
        )
    for name, marker in (("ε = 2, relay 4", "D"), ("ε = 2, updates ε 2", "v")):
        values = 100 * np.array([row["test"] for row in results.get(name, {}).values()])
        if len(values):
            axes.plot([2], [values.mean()], marker, color="black", label=name, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
    axes.set_xlabel("ε of the one release")
    axes.set_ylabel("test accuracy, %")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--task", choices=["classify", "link"], default="classify")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--cells", nargs="*", help="only these rows")
    parser.add_argument(
        "--words", action="store_true", help="generate features from labels, as the demo graph's"
    )
    parser.add_argument(
        "--communities", type=int, help="so many communities of the graph for classes, with words"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cells = LINKS if options.task == "link" else CELLS
    name = options.graph + f"-{options.communities}" * bool(options.communities)
    path = options.out / f"strict-{'link-' * (options.task == 'link')}{name}.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    graph = lumos.load(options.graph)
    if options.communities:
        found = communities(graph, options.communities)
        names = tuple(map(str, range(options.communities)))
        graph = dataclasses.replace(graph, labels=found, classes=names)
    if options.words or options.communities:
        words = words_for(np.asarray(graph.labels), np.random.default_rng(0))
        graph = dataclasses.replace(graph, features=words)
    for seed in range(options.seeds):
        for row in options.cells or cells:
            by_seed = results.setdefault(row, {})
            if str(seed) not in by_seed:
                by_seed[str(seed)] = cell(graph, options.task, cells[row], seed)
                path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    notes = f", {options.communities} communities" * bool(options.communities)
    notes += ", generated words" * bool(options.words or options.communities)
    title = f"{options.graph}{notes}, strict profile"
    what = "test accuracy in %" if options.task == "classify" else "ROC-AUC"
    show(results, f"{title}, {what} (mean ± standard deviation)", options.task)
    if options.plot is not None:
        plot(results, options.plot, title)


if __name__ == "__main__":
    main()

"""Scores of the strict profile by ε and by other settings, over several seeds.

    python benchmarks/strict_tradeoff.py [--graph facebook] [--task classify] [--seeds 5]
    python benchmarks/strict_tradeoff.py --again [--cells label features]
    python benchmarks/strict_tradeoff.py --graph lastfm --words --cells label
    python benchmarks/strict_tradeoff.py --communities 100 --cells "label 3"
    python benchmarks/strict_tradeoff.py --family heterophilous --cells "label 3"
    python benchmarks/strict_tradeoff.py --cells label rivals        # and --graph, --family …
    python benchmarks/strict_tradeoff.py --task link --seeds 3

Every cell is `lumos.train` with the strict profile and its control (releases without information)
on the same split. Beside it stands `own`: the local model under the same protection, and for links
the asker's own degree.
Finished cells are stored in OUT/strict-GRAPH.json (strict-link-GRAPH.json) with their settings, so
an interrupted run continues. `--again` computes every stored cell anew, or those of `--cells`,
after the trainer has changed. `python -m reproduce --write-docs` writes tables and picture of
docs/strict-results.md from these files.
"""

import argparse
import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array

import lumos
from lumos.baselines.measure import baseline
from lumos.evaluation.pool import plain_settings
from lumos.graph.demo import demo_graph, words_for
from lumos.report import lines
from lumos.report.charts import COLOURS, SYSTEM_STYLES
from lumos.training.config import Task

Settings = dict[str, Any]
Results = dict[str, dict[str, dict[str, Any]]]
"""By row and seed."""
Line = tuple[list[float | None], list[float | None] | None]
"""Means and standard deviations."""

EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)
FEATURES = (8.0, 4.0, 2.0)
"""ε of features that have a line; the first is the default, and LPGNN's."""
ZEROED = {"classify": 12.3, "link": 11.95}
"""By task, ε for features replaced at which it is 8 for a contribution to the sums zeroed."""
LINKS: dict[str, dict[str, Settings]] = {
    "default": {"default": {}},
    "features": {
        f"features {e:g}": {"feature_epsilon": e} for e in (ZEROED["link"], 4.0, 2.0, 1.0)
    },
    "queries": {
        "queries 8": {"score_queries": 8},
        "queries 32": {"score_queries": 32},
        "queries unlimited": {"score_queries": 0},
        "query bits 1": {"query_bits": 1},
        "query bits 3": {"query_bits": 3},
        **{f"query ε {e:g}": {"query_epsilon": e} for e in (4.0, 2.0)},
    },
    "propagated_labels": {
        f"propagated labels {many}": {"propagated_labels": many} for many in (0, 1, 2)
    },
    "baselines": {"local model, unprotected": {"system": "own"}},
}
"""By group, which `--cells` may name, and row."""


def label_row(epsilon: float, features: float = FEATURES[0]) -> str:
    """Return the name of the row of a label ε."""
    name = f"label {epsilon:g}"
    return name if features == FEATURES[0] else f"{name}, features {features:g}"


def lpgnn_row(epsilon: float) -> str:
    return f"LPGNN, label {epsilon:g}, features {FEATURES[0]:g}"


EDGE, SERVER_EDGE = "strict", 16.0
"""ε of an edge for LPGNN on Blink's edges: that of strict on the graph, and its own default."""


def blink_row(epsilon: float, edge: float | str = EDGE) -> str:
    return f"LPGNN on Blink's edges, label {epsilon:g}, edge {edge}"


CLASSIFY: dict[str, dict[str, Settings]] = {
    "label": {label_row(e): {"label_epsilon": e} for e in EPSILONS},
    "features": {
        label_row(e, features): {"label_epsilon": e, "feature_epsilon": features}
        for features in (*FEATURES[1:], ZEROED["classify"])
        for e in EPSILONS
        if e >= 2 or features in FEATURES
    },
    "propagated_labels": {
        **{f"label 3, propagated labels {many}": {"propagated_labels": many} for many in range(4)},
        **{f"label 3, propagated labels at ε {e:g}": {"propagated_epsilon": e} for e in (2.0, 3.0)},
    },
    "network": {
        f"label 3, tree network {name.upper()}": {"tree_network": True, "backbone": name}
        for name in ("gcn", "gat")
    },
    "mechanism": {f"label 3, {name}": {"mechanism": name} for name in ("krr", "digits")},
    "protection": {
        "label 3, sums without noise": {"protect": "none"},
        "label 3, signed features": {"signs": "signed"},
    },
    "baselines": {
        "local model, unprotected": {"system": "own"},
        "centralized GCN": {"system": "centralized", "backbone": "gcn"},
        **{
            lpgnn_row(e): {
                "system": "lpgnn",
                "backbone": "gcn",
                "feature_epsilon": FEATURES[0],
                "label_epsilon": e,
            }
            for e in EPSILONS
        },
    },
    "rivals": {
        row: {
            "system": system,
            "backbone": "gcn",
            "feature_epsilon": FEATURES[0],
            "label_epsilon": e,
            **edge,
        }
        for e in (2.0, 3.0, 4.0)
        for row, system, edge in (
            (lpgnn_row(e), "lpgnn", {}),
            (blink_row(e), "lpgnn-blink", {"edge_epsilon": EDGE}),
            (blink_row(e, SERVER_EDGE), "lpgnn-blink", {"edge_epsilon": SERVER_EDGE}),
        )
    },
}
"""By group, which `--cells` may name, and row."""
SCORES = {"classify": "test_accuracy", "link": "test_auc"}
MEASURES = {
    "test_macro_f1": "macro_f1",
    "selected_accuracy": "selected",
    "selected_accuracy_error": "selected_error",
}
"""By name in a run's metrics and estimates: the name in a cell."""


NUMBER = r"\d+(?:\.\d+)?"
ROLES = ("training", "validation", "other")
EDGES = ("edge added or removed", "edge replaced at one end")


def edge_epsilons(run: lumos.Run) -> list[float]:
    """Return the largest ε of a role for an edge added or removed, and for one replaced."""
    rows = {row["about"]: row for row in run.guarantees}
    cells = [[str(rows[about][f"{role} devices"]) for role in ROLES] for about in EDGES]
    return [max(float(re.findall(NUMBER, cell)[0]) for cell in of) for of in cells]


def cell(graph: lumos.Graph, task: Task, settings: Settings, seed: int) -> dict[str, Any]:
    """One run, as numbers."""
    if "system" in settings:
        given = dict(settings)
        if given.get("edge_epsilon") == EDGE:
            given["edge_epsilon"] = edge_epsilons(lumos.train(graph, floor=False, seed=seed))[0]
        rival = baseline(graph, **given, task=task, patience=100, seed=seed)
        found = {"test": rival.metrics[SCORES[task]], "settings": plain_settings(settings)}
        rebuilt = [re.search(rf"contains ({NUMBER}) % of the", note) for note in rival.notes]
        for match in filter(None, rebuilt):
            found |= {"edges": [given["edge_epsilon"]], "recovered": float(match[1]) / 100}
        return found
    run = lumos.train(graph, profile="strict", task=task, control=True, seed=seed, **settings)
    score, noisy = SCORES[task], "protect" not in settings
    beside = {"own": run.own, "control": run.control}
    measured = {**run.metrics, **run.model.estimates}
    return {
        "test": run.metrics[score],
        **{name: scores[score] for name, scores in beside.items() if scores is not None},
        **{name: measured[key] for key, name in MEASURES.items() if key in measured},
        "choice": run.model.choice,
        **({"edges": edge_epsilons(run)} if (task, noisy) == ("classify", True) else {}),
        "seconds_per_epoch": round(run.cost.seconds_per_epoch, 4),
        "bytes_per_epoch": run.cost.per_epoch.bytes_sent_mean,
        "settings": plain_settings(settings),
    }


def communities(graph: lumos.Graph, many: int) -> np.ndarray:
    """[devices] a class for each: labels spread from `many` random devices, large ones slower."""
    randomness, devices = np.random.default_rng(0), graph.devices
    ends = graph.edge_list()
    both = np.concatenate([ends, ends[:, ::-1]])
    near = csr_array((np.ones(len(both)), (both[:, 0], both[:, 1])), shape=(devices, devices))
    labels = np.full(devices, -1)
    labels[randomness.choice(devices, many, replace=False)] = np.arange(many)
    for _ in range(30):
        known = np.flatnonzero(labels >= 0)
        ones = csr_array((np.ones(len(known)), (known, labels[known])), shape=(devices, many))
        sizes = np.maximum(np.bincount(labels[known], minlength=many), 1)
        selections = (near @ ones).toarray() / np.sqrt(sizes)
        labels = np.where(selections.max(axis=1) > 0, selections.argmax(axis=1), labels)
    return np.where(labels < 0, randomness.integers(0, many, devices), labels)


def heterophilous() -> lumos.Graph:
    """4,000 devices of 4 classes with words; 7 of 10 edges lead to the next class."""
    randomness, devices, classes, degree = np.random.default_rng(0), 4000, 4, 10
    labels = randomness.integers(0, classes, devices)
    members = [np.flatnonzero(labels == c) for c in range(classes)]
    first = randomness.integers(0, devices, devices * degree // 2)
    to_next = randomness.random(len(first)) < 0.7
    wanted = np.where(
        to_next, (labels[first] + 1) % classes, randomness.integers(0, classes, len(first))
    )
    second = np.array([randomness.choice(members[c]) for c in wanted])
    apart = first != second
    return lumos.Graph.from_edges(
        np.stack([first, second], axis=1)[apart],
        devices=devices,
        features=words_for(labels, randomness),
        labels=labels,
        name="heterophilous",
    )


def gaussian() -> lumos.Graph:
    """The demo graph with 64 dense features of both signs, off centre: a mean for each class."""
    graph, randomness = demo_graph(), np.random.default_rng(0)
    labels = np.asarray(graph.labels)
    means = 0.25 * randomness.standard_normal((labels.max() + 1, 64))
    features = 0.5 + means[labels] + randomness.standard_normal((graph.devices, 64))
    return dataclasses.replace(graph, features=features.astype(np.float32), name="gaussian")


def few_labels() -> lumos.Graph:
    """Facebook, where 2 % of the devices have a label."""
    graph, randomness = lumos.load("facebook"), np.random.default_rng(0)
    labels = np.asarray(graph.labels).copy()
    hidden = randomness.permutation(graph.devices)[graph.devices // 50 :]
    labels[hidden] = -1
    return dataclasses.replace(graph, labels=labels, name="few-labels")


CITED = (351, 217, 418, 818, 426, 298, 180)
"""Devices of each class in the graph `citation`: those of Cora, which is not part of this
repository."""


def citation() -> lumos.Graph:
    """2,708 devices of 7 classes in the shape of Cora: 5,278 edges, 4 of 5 in a class, words."""
    randomness, devices = np.random.default_rng(0), sum(CITED)
    labels = randomness.permutation(np.repeat(np.arange(len(CITED)), CITED))
    members = [np.flatnonzero(labels == c) for c in range(len(CITED))]
    first, second = randomness.integers(0, devices, (2, 5278))
    same = randomness.random(len(first)) < 0.77  # by chance, 0.18 of the others
    second[same] = [randomness.choice(members[c]) for c in labels[first[same]]]
    topics, held = len(CITED), 18 * devices  # 18 of 1,433 words, one in four of the class
    holder, rank = np.repeat(np.arange(devices), 18), randomness.random(held)
    own = randomness.random(held) < 0.25
    word = np.where(own, labels[holder] + topics * (204 * rank).astype(int), 1433 * rank)
    words = np.zeros((devices, 1433), np.float32)
    words[holder, word.astype(int)] = 1
    return lumos.Graph.from_edges(
        np.stack([first, second], axis=1)[first != second],
        devices=devices,
        features=csr_array(words),
        labels=labels,
        name="citation",
    )


FAMILIES: dict[str, Callable[[], lumos.Graph]] = {
    "heterophilous": heterophilous,
    "gaussian": gaussian,
    "small": lambda: demo_graph(300),
    "few-labels": few_labels,
    "citation": citation,
}


def make_graph(options: argparse.Namespace) -> tuple[lumos.Graph, str, str]:
    """The graph, its name in files and in titles."""
    if options.family:
        return FAMILIES[options.family](), options.family, options.family
    graph, name, title = lumos.load(options.graph), options.graph, options.graph
    if options.communities:
        classes = tuple(map(str, range(options.communities)))
        labels = communities(graph, options.communities)
        graph = dataclasses.replace(graph, labels=labels, classes=classes, class_values=None)
        name += f"-{options.communities}"
        title += f", {options.communities} communities"
    if options.words or options.communities:
        words = words_for(np.asarray(graph.labels), np.random.default_rng(0))
        graph = dataclasses.replace(graph, features=words)
        title += ", generated words"
    return graph, name, title


def chosen_rows(task: str, asked: list[str] | None) -> dict[str, Settings]:
    """The rows that were asked for by their own name or that of their group; all by default."""
    groups = LINKS if task == "link" else CLASSIFY
    rows = {row: settings for group in groups.values() for row, settings in group.items()}
    if asked is None:
        return rows
    chosen: dict[str, Settings] = {}
    for name in asked:
        if name not in groups and name not in rows:
            raise SystemExit(f"no cells {name!r}; there are {', '.join((*groups, *rows))}")
        chosen |= groups.get(name) or {name: rows[name]}
    return chosen


def values(results: Results, row: str, name: str = "test", scale: float = 100.0) -> np.ndarray:
    """[seeds] one number of a row; NaN where a cell does not have it."""
    return scale * np.array([found.get(name, np.nan) for found in results.get(row, {}).values()])


def show(results: Results, rows: Iterable[str], title: str, task: str) -> None:
    """Print the table."""
    scale, digits = {"classify": (100, 2), "link": (1, 4)}[task]
    names = ("macro_f1", "selected", "own", "control") if task == "classify" else ("own", "control")
    titles = {"macro_f1": "macro-F1", "selected": "by model selection"}
    table = Table(title=title)
    table.add_column("")
    beside = [titles.get(name, name) for name in names]
    for name in ("test", *beside, "above own", "above control", "seeds"):
        table.add_column(name, justify="right")

    def mean(numbers: np.ndarray, sign: str = "") -> str:
        return "" if np.isnan(numbers).any() else f"{numbers.mean():{sign}.{digits}f}"

    for row in (row for row in rows if results.get(row)):
        of = {name: values(results, row, name, scale) for name in ("test", *names)}
        spread = of["test"].std(ddof=1) if len(of["test"]) > 1 else 0
        table.add_row(
            row,
            f"{of['test'].mean():.{digits}f} ± {spread:.{digits}f}",
            *(mean(of[name]) for name in names),
            mean(of["test"] - of["own"], "+"),
            mean(of["test"] - of["control"], "+"),
            str(len(of["test"])),
        )
    Console(width=140).print(table)


def paper_profile(path: Path) -> dict[str, float]:
    """Accuracy of the paper's profile at ε = 2, by backbone: committed by `python -m reproduce`."""
    plain = {"profile": "paper", "task": "classify", "epsilon": 2, "balancer": "mcmc"}
    scores: dict[str, list[float]] = {}
    for record in json.loads(path.read_text()):
        settings = record["settings"]
        changed = {"recovery", "virtual_nodes"} & settings.keys()
        if record["kind"] == "train" and plain.items() <= settings.items() and not changed:
            score = record["result"]["test_accuracy"]
            scores.setdefault(settings["backbone"], []).append(score)
    return {backbone: 100 * float(np.mean(of)) for backbone, of in scores.items()}


def plot(results: Results, paper: dict[str, float], title: str) -> str:
    """Return an SVG: accuracy against the label's ε, a line for each ε of features."""
    x = EPSILONS

    def line(rows: Iterable[str], name: str = "test") -> Line:
        found = [values(results, row, name) for row in rows]
        means = [float(of.mean()) if len(of) else None for of in found]
        return means, [float(of.std(ddof=1)) if len(of) > 1 else None for of in found]

    default = [label_row(e) for e in x]
    series: dict[str, Line] = {
        f"strict, features ε {features:g}": line([label_row(e, features) for e in x])
        for features in FEATURES
    }
    numbers = [SYSTEM_STYLES["strict"] + form * len(COLOURS) for form in range(4)]
    styles = dict(zip([*series, "control of strict"], numbers, strict=True))
    others = {f"LPGNN, features ε {FEATURES[0]:g}": "lpgnn", "local model in strict": "own"}
    styles |= {name: SYSTEM_STYLES[system] for name, system in others.items()}
    lpgnn, local = others
    series[lpgnn] = line([lpgnn_row(e) for e in x])
    series[local] = line(default, "own")[0], None
    series["control of strict"] = line(default, "control")[0], None
    found = {
        "centralized GCN": values(results, "centralized GCN"),
        "local, unprotected": values(results, "local model, unprotected"),
    }
    levels = {name: float(of.mean()) for name, of in found.items() if len(of)}
    levels |= {f"paper, {name.upper()}": score for name, score in paper.items()}
    notes = [
        "LPGNN's server knows every edge. Bands: standard deviation.",
        "Features: (ε, 1e-5), features replaced; LPGNN: ε. Local and control: ε = 8.",
    ]
    series = {name: of for name, of in series.items() if any(v is not None for v in of[0])}
    first = [of[0][0] for of in series.values()]
    least = min((v for of in series.values() for v in of[0][1:] if v is not None), default=0) - 1
    if any(value is not None and value < least for value in first):
        cut = " / ".join("–" if value is None else f"{value:.1f}" for value in first)
        notes.append(f"At ε = {x[0]:g}, below the axis where it is cut: {cut}.")
    if paper:
        notes.append("Paper: profile paper, ε = 2, mean of three seeds.")
    return lines(
        x,
        series,
        unit="%",
        title=f"Strict classification, {title}",
        x_title="ε of a label",
        y_title="test accuracy",
        at_points=True,
        levels={f"{name} {score:.1f}": score for name, score in levels.items()},
        notes=notes,
        height=400,
        least=least,
        styles=styles,
    )


def draw_committed(folder: Path = Path("docs/results")) -> str:
    """Return the picture of docs/strict-results.md, from committed results."""
    results = json.loads((folder / "strict-facebook.json").read_text("utf-8"))
    return plot(results, paper_profile(folder / "reproduce-facebook.json"), "Facebook")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--family", choices=FAMILIES, help="a graph made here, in place of --graph")
    parser.add_argument("--task", choices=["classify", "link"], default="classify")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--again", action="store_true", help="compute every stored cell anew")
    parser.add_argument(
        "--cells",
        nargs="*",
        help=f"only these rows or groups (classify: {', '.join(CLASSIFY)}; link: "
        f"{', '.join(LINKS)})",
    )
    parser.add_argument(
        "--words", action="store_true", help="generate features from labels, as the demo graph's"
    )
    parser.add_argument(
        "--communities", type=int, help="classes: this number of communities, with generated words"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    task, rows = options.task, chosen_rows(options.task, options.cells)
    graph, name, title = make_graph(options)
    path = options.out / f"strict-{'link-' * (task == 'link')}{name}.json"
    known = chosen_rows(task, None)
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    results = {row: results[row] for row in known if row in results}
    if options.again:
        wanted = [(row, seed) for row in results if row in rows for seed in results[row]]
    else:
        wanted = [(row, str(seed)) for seed in range(options.seeds) for row in rows]
    for row, seed in wanted:
        by_seed = results.setdefault(row, {})
        same = plain_settings(known[row])
        stored = by_seed.get(seed, {"settings": None}).get("settings", same)
        if options.again or stored != same:
            by_seed[seed] = cell(graph, task, known[row], int(seed))
            path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    what = "test accuracy in %" if task == "classify" else "ROC-AUC"
    heading = f"{title}, strict profile, {what} (mean ± standard deviation)"
    show(results, known, heading, task)


if __name__ == "__main__":
    main()

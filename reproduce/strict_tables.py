"""Tables of docs/strict-results.md, from the committed results of `benchmarks/`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from reproduce.claims import NONE


class Setting(NamedTuple):
    """A row of a table: its name, the file of results, and the row there."""

    name: str
    file: str
    row: str


def _facebook(name: str, row: str) -> Setting:
    return Setting(name, "strict-facebook.json", row)


FACEBOOK = (
    _facebook("label ε = 0.5", "label 0.5"),
    _facebook("1", "label 1"),
    _facebook("2", "label 2"),
    _facebook("**3 (default)**", "label 3"),
    _facebook("4", "label 4"),
    _facebook("3; (8, 1e-5) for *contribution to the sums zeroed*", "label 3, features 12.3"),
    _facebook("3; `--feature-epsilon 4`", "label 3, features 4"),
    _facebook("3; `--feature-epsilon 2`", "label 3, features 2"),
    _facebook("3; no propagated label", "label 3, propagated labels 0"),
    _facebook("3; two propagated labels", "label 3, propagated labels 2"),
    _facebook("3; three propagated labels", "label 3, propagated labels 3"),
    _facebook("3; tree network, GCN", "label 3, tree network GCN"),
    _facebook("3; tree network, GAT", "label 3, tree network GAT"),
    _facebook("3; sums without noise", "label 3, sums without noise"),
    _facebook("3; features treated as signed", "label 3, signed features"),
)
OTHERS = (
    Setting("demo, 6 classes, ε = 2", "strict-demo.json", "label 2"),
    Setting("demo, ε = 3", "strict-demo.json", "label 3"),
    Setting("demo, ε = 4", "strict-demo.json", "label 4"),
    Setting(
        "demo, ε = 3, (8, 1e-5) for *contribution to the sums zeroed*",
        "strict-demo.json",
        "label 3, features 12.3",
    ),
    Setting(
        "demo, ε = 3, one propagated label", "strict-demo.json", "label 3, propagated labels 1"
    ),
    Setting("Twitch ENGB, 2 classes, ε = 2", "strict-twitch-ENGB.json", "label 2"),
    Setting("Twitch ENGB, ε = 3", "strict-twitch-ENGB.json", "label 3"),
    Setting("Twitch ENGB, ε = 4", "strict-twitch-ENGB.json", "label 4"),
    Setting("LastFM's structure, 18 classes, ε = 2", "strict-lastfm.json", "label 2"),
    Setting("LastFM's structure, ε = 3", "strict-lastfm.json", "label 3"),
    Setting("LastFM's structure, ε = 4", "strict-lastfm.json", "label 4"),
    Setting(
        "LastFM's structure, ε = 3, one propagated label",
        "strict-lastfm.json",
        "label 3, propagated labels 1",
    ),
    Setting("Facebook's structure, 100 classes, ε = 3", "strict-facebook-100.json", "label 3"),
    Setting("heterophilous (generated), ε = 3", "strict-heterophilous.json", "label 3"),
    Setting("dense Gaussian features with signs, ε = 3", "strict-gaussian.json", "label 3"),
    Setting("300 devices, ε = 3", "strict-small.json", "label 3"),
    Setting("2 % of Facebook labelled, ε = 3", "strict-few-labels.json", "label 3"),
)
FRONTIER = {
    "Facebook": "facebook",
    "demo": "demo",
    "Twitch ENGB": "twitch-ENGB",
    "LastFM's structure": "lastfm",
    "heterophilous": "heterophilous",
    "dense Gaussian": "gaussian",
    "300 devices": "small",
    "shape of Cora": "citation",
}
"""Graphs of the table before and after, by name, with their file of results."""
BEFORE = "strict-before.json"
"""Scores of the same runs when both ends used every edge, by graph, row and seed."""
BEFORE_AFTER = "strict-before-after.json"
"""Costs and link scores of both versions, of `benchmarks/before_after.py`."""
LINK_GRAPHS = {
    "Facebook": "strict-link-facebook.json",
    "Twitch ENGB": "strict-link-twitch-ENGB.json",
    "LastFM's structure": "strict-link-lastfm.json",
}
LINKS = {
    "**default**": ("default", "test"),
    "`--feature-epsilon 11.95`": ("features 11.95", "test"),
    "`--feature-epsilon 4`": ("features 4", "test"),
    "`--feature-epsilon 2`": ("features 2", "test"),
    "`--feature-epsilon 1`": ("features 1", "test"),
    "`--score-queries 8`": ("queries 8", "test"),
    "`--score-queries 32`": ("queries 32", "test"),
    "`--score-queries 0` (no limit)": ("queries unlimited", "test"),
    "`query_bits=1`": ("query bits 1", "test"),
    "`query_bits=3`": ("query bits 3", "test"),
    "`query_epsilon=4`": ("query ε 4", "test"),
    "`query_epsilon=2`": ("query ε 2", "test"),
    "`--propagated-labels 0`": ("propagated labels 0", "test"),
    "`--propagated-labels 1`": ("propagated labels 1", "test"),
    "`--propagated-labels 2`": ("propagated labels 2", "test"),
    "control of the default": ("default", "control"),
    "asker's degree alone": ("default", "own"),
    "own features, unprotected": ("local model, unprotected", "test"),
}
"""By name in the table: the row of a file of results, and the score there."""
LEAKS = (
    ("Facebook (majority {majority:.3f}), 1 bit", "facebook", "1 bits"),
    ("**2 bits (default)**", "facebook", "2 bits"),
    ("3 bits", "facebook", "3 bits"),
    ("2 bits, askers choose their vectors", "facebook", "2 bits, liars, principal"),
    ("2 bits, those who are asked choose their tables", "facebook", "2 bits, tables of one's own"),
    ("2 bits, `query_epsilon=2`", "facebook", "2 bits, answer ε = 2"),
    ("Twitch ENGB, 2 bits (majority {majority:.3f})", "twitch-ENGB", "2 bits"),
    ("LastFM's structure, 2 bits (majority {majority:.3f})", "lastfm", "2 bits"),
)


def scores(cells: Any, name: str = "test") -> list[float]:
    """Return one number of a row, of the seeds that have it."""
    return [cell[name] for cell in cells.values() if name in cell]


def spread(values: Sequence[float], digits: int, scale: float = 1.0) -> str:
    """Return mean and standard deviation."""
    mean = f"{scale * np.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {scale * np.std(values, ddof=1):.{digits}f}"


CLASSIFY_HEADINGS = ["", "test", "macro-F1", "local model", "control", "seeds"]


def classify_rows(read: Any, settings: Sequence[Setting]) -> list[list[str]]:
    """Return accuracies in %, with local model and control."""
    rows = []
    for setting in settings:
        cells = read(setting.file).get(setting.row)
        if not cells:
            rows.append([setting.name, *[NONE] * 4, "0"])
            continue
        means = [
            f"{100 * np.mean(scores(cells, name)):.2f}" for name in ("macro_f1", "own", "control")
        ]
        rows.append([setting.name, spread(scores(cells), 2, 100), *means, str(len(cells))])
    return rows


FRONTIER_HEADINGS = [
    "graph, label ε",
    "before: test, edge ε",
    "now: test, edge ε",
    "local model",
    "control",
    "LPGNN",
    "LPGNN on Blink's edges, edge ε as ours",
    "the same, edge ε = 16",
    "seeds",
]


def frontier_rows(read: Any) -> list[list[str]]:
    """Return scores and ε of an edge before and after, beside rivals with equal budgets."""
    rows, before = [], read(BEFORE)
    for name, graph in FRONTIER.items():
        found = read(f"strict-{graph}.json")
        for epsilon in (2, 3, 4):
            now = found[f"label {epsilon}"]
            old = before["graphs"][graph][f"label {epsilon}"]
            edges = " / ".join(f"{one:g}" for one in next(iter(now.values()))["edges"])
            rivals = [
                f"LPGNN, label {epsilon}, features 8",
                f"LPGNN on Blink's edges, label {epsilon}, edge strict",
                f"LPGNN on Blink's edges, label {epsilon}, edge 16.0",
            ]
            rows.append(
                [
                    f"{name}, {epsilon}",
                    f"{spread(list(old.values()), 2, 100)}, {before['edges']}",
                    f"{spread(scores(now), 2, 100)}, {edges}",
                    *(f"{100 * np.mean(scores(now, of)):.2f}" for of in ("own", "control")),
                    *(_rival(found.get(row, {})) for row in rivals),
                    str(len(now)),
                ]
            )
    return rows


def _rival(cells: Any) -> str:
    """Return the mean score, and the share of edges that a server rebuilds."""
    if not cells:
        return NONE
    mean, shares = f"{100 * np.mean(scores(cells)):.2f}", scores(cells, "recovered")
    return f"{mean} (rebuilds {100 * np.mean(shares):.1f} %)" if shares else mean


COST_HEADINGS = [
    "graph, run",
    "bytes before",
    "bytes now",
    "milliseconds before",
    "milliseconds now",
]


def cost_rows(read: Any) -> list[list[str]]:
    """Return bytes that a device sends, and processor time of its simulation, before and now."""
    found = read(BEFORE_AFTER)
    rows = []
    for name, now in found["now"]["costs"].items():
        both = found["before"]["costs"][name], now
        rows.append(
            [
                name,
                *(f"{one['bytes']:,.0f}" for one in both),
                *(f"{1000 * one['seconds']:.3f}" for one in both),
            ]
        )
    return rows


SMALL_LINK_HEADINGS = ["graph", "before", "now", "exact sums", "gain by seed", "gain"]


def small_link_rows(read: Any) -> list[list[str]]:
    """Return ROC-AUC on small graphs before and now."""
    found = read(BEFORE_AFTER)
    rows = []
    for name, now in found["now"]["links"].items():
        old = found["before"]["links"][name]
        gains = np.subtract(now, old)
        by_seed = ", ".join(f"{gain:+.3f}" for gain in gains)
        scored = [spread(some, 3) for some in (old, now, found["exact"]["links"][name])]
        rows.append([name, *scored, by_seed, f"{gains.mean():+.3f}"])
    return rows


def link_rows(read: Any) -> list[list[str]]:
    """Return ROC-AUC by setting and graph."""
    rows = []
    for name, (row, score) in LINKS.items():
        cells = [read(file).get(row) for file in LINK_GRAPHS.values()]
        rows.append([name, *(spread(scores(of, score), 4) if of else NONE for of in cells)])
    return rows


LEAK_HEADINGS = ["m = 1 / 4 / 16", "edge", "degree", "words", "label"]


def leak_rows(read: Any) -> list[list[str]]:
    """Return what 1, 4 and 16 askers infer from score buckets."""
    rows = []
    for name, graph, answers in LEAKS:
        found = read(f"strict-link-leak-{graph}.json")
        by_askers = {row["m"]: row for row in found["askers"] if row["answers"] == answers}
        cells = [
            " / ".join(f"{by_askers[m][about]:.3f}" for m in ("1", "4", "16"))
            for about in LEAK_HEADINGS[1:]
        ]
        rows.append([name.format(**found["base"][0]), *cells])
    return rows

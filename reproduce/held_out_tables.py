"""Tables of the held-out battery, from docs/results/held-out.json (`benchmarks/held_out.py`)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from reproduce.claims import NONE

Cells = dict[str, Any]
"""Scores of all variants on one graph and split."""
MORE = "no further propagated label where labels are few"
LARGE, CHOICE = 10_000, 5_000
"""Numbers of devices from which on there are more random marks, and more vectors to compare."""


class Choice(NamedTuple):
    """A choice, and an alternative to it."""

    present: str
    alternative: str
    key: str
    applies: Callable[[Cells, Cells], bool] = lambda graph, cells: True
    """By facts of a graph and scores of a split: whether the alternative is another run."""


def _all_take_part(graph: Cells, cells: Cells) -> bool:
    """One propagated label less is another run exactly where all devices take part."""
    same: bool = cells[MORE] == {"strict": cells["now"]["strict"]}
    return not same


def _labelled(graph: Cells, cells: Cells) -> bool:
    return not _all_take_part(graph, cells)


def _many(graph: Cells, cells: Cells) -> bool:
    return _labelled(graph, cells) and graph["devices"] >= 2000 * graph["classes"]


def _not_many(graph: Cells, cells: Cells) -> bool:
    return _labelled(graph, cells) and graph["devices"] < 2000 * graph["classes"]


CHOICES = (
    Choice("no class where evidence names none", "a class at random",
           "a class drawn at random in place of no class"),
    Choice("few labels: all devices take part", "labelled ones only",
           "only labelled devices take part", _all_take_part),
    Choice("otherwise: labelled devices take part", "all devices", "all devices take part",
           _labelled),
    Choice("few labels: one more propagated label", "not one more", MORE),
    Choice("from 2,000 devices per class on, one propagated label", "two",
           "two propagated labels", _many),
    Choice("below that, two", "one", "one propagated label", _not_many),
    Choice("matrices shrunk as noise explains", "whole", "whole matrices"),
    Choice("matrices shrunk as noise explains", "one parameter", "matrices of one parameter"),
    Choice("first weights of propagated labels 0.7, 0.5, 0.4", "1",
           "all evidence weights begin with 1"),
    Choice("smaller steps where gradients are noise", "usual steps",
           "steps of evidence weights whatever the noise"),
    Choice("few validation devices: larger shares", "usual shares",
           "no larger share of few validation devices"),
    Choice("gradients without their part along the mean row", "with it",
           "gradients with their part along the mean row"),
)  # fmt: skip
"""Of classification."""


def _below(limit: int) -> Callable[[Cells, Cells], bool]:
    return lambda graph, cells: bool(graph["devices"] < limit)


def _from(limit: int) -> Callable[[Cells, Cells], bool]:
    return lambda graph, cells: bool(graph["devices"] >= limit)


LINK_CHOICES = (
    Choice("embeddings from sketches", "from products of tokens", "products of tokens"),
    Choice("below 10,000 devices: 24 random marks", "16", "16 random marks", _below(LARGE)),
    Choice("below 10,000 devices: 24 random marks", "32", "32 random marks", _below(LARGE)),
    Choice("from 10,000 on: 32 random marks", "24", "24 random marks", _from(LARGE)),
    Choice("whitening half way", "none", "no whitening"),
    Choice("below 5,000 devices: one vector", "three", "three vectors to calibrate",
           _below(CHOICE)),
    Choice("from 5,000 on: three vectors", "one", "one vector to calibrate", _from(CHOICE)),
    Choice("one vector: 1 standard error", "1.5", "1.5 standard errors for one vector"),
    Choice("one vector: norm 1.5 of the sketch", "0.7", "norm 0.7 of the sketch"),
    Choice("rounds of marks count half as much as the next", "the last round only",
           "sketch of the last round"),
    Choice("rounds of marks count half as much as the next", "all alike",
           "sketch of all rounds alike"),
    Choice("noise in the sums", "none", "sums without noise"),
)  # fmt: skip
"""Of links."""
BEFORE = Choice("all of it", "version before one end used an edge", "before")
CHOICE_HEADINGS = ["choice", "alternative", "graphs", "present less alternative", "verdict"]


def gains(found: Cells, choice: Choice, splits: tuple[str, ...]) -> list[float]:
    """Return, for each graph where the alternative is another run, the mean gain of the present."""
    gained = []
    for graph in found["graphs"].values():
        here = [
            cells["now"]["strict"] - cells[choice.key]["strict"]
            for split in splits
            if {"now", choice.key} <= (cells := graph["scores"].get(split, {})).keys()
            and (choice is BEFORE or choice.applies(graph, cells))
        ]
        changed = [one for one in here if one]
        if changed:
            gained.append(float(np.mean(changed)))
    return gained


def verdict(mean: float, error: float) -> str:
    """Return in words what a difference and its standard error show."""
    if abs(mean) <= 2 * error:
        return "not told apart"
    return "confirmed" if mean > 0 else "**loses**"


def choice_rows(found: Cells) -> list[list[str]]:
    """Return every choice, its alternative, and the paired difference."""
    rows = []
    for choices, splits, kind, digits in (
        ((BEFORE, *CHOICES), ("half", "few"), "", 2),
        ((BEFORE, *LINK_CHOICES), ("links",), "links: ", 2),
    ):
        for choice in choices:
            gained = gains(found, choice, splits)
            if len(gained) < 2:
                continue
            mean, error = np.mean(gained), np.std(gained, ddof=1) / len(gained) ** 0.5
            shows = verdict(float(mean), float(error)) if choice.key != "sums without noise" else ""
            rows.append([
                kind + choice.present, choice.alternative, str(len(gained)),
                f"{mean:+.{digits}f} ± {error:.{digits}f}", shows,
            ])  # fmt: skip
    return rows


FAMILY_HEADINGS = [
    "edges", "graphs", "half train: strict", "local", "control", "strict less local",
    "less the earlier version", "few train: strict", "local", "control", "strict less local",
    "less the earlier version",
]  # fmt: skip


def family_rows(found: Cells) -> list[list[str]]:
    """Return scores by family of edges, and paired differences.

    They are those to the local model, and to the version before one end used an edge.
    """
    graphs = [graph for graph in found["graphs"].values() if "half" in graph["scores"]]
    rows = []
    for family in dict.fromkeys(graph["edges"] for graph in graphs):
        members = [graph["scores"] for graph in graphs if graph["edges"] == family]
        row = [family, str(len(members))]
        for split in ("half", "few"):
            scores = [
                [one[split]["now"][name] for name in ("strict", "local", "control")]
                for one in members
            ]
            row += [f"{score:.1f}" for score in np.mean(scores, axis=0)]
            local = [(one[split]["now"], one[split]["now"]["local"]) for one in members]
            before = [
                (one[split]["now"], one[split]["before"]["strict"])
                for one in members
                if "before" in one[split]
            ]
            row += [_apart([now["strict"] - other for now, other in of]) for of in (local, before)]
        rows.append(row)
    return rows


def _apart(gains: list[float]) -> str:
    """Return a mean difference with its standard error."""
    if not gains:
        return NONE
    error = np.std(gains, ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return f"{np.mean(gains):+.1f} ± {error:.1f}"


def below_local(found: Cells) -> list[tuple[float, float, Cells, str]]:
    """Return runs below their local model: points, and standard errors if tests were independent.

    Both are tested on the same devices, so these errors are too large rather than too small.
    """
    runs = []
    for graph in found["graphs"].values():
        for split, cells in graph["scores"].items():
            if split not in ("half", "few"):
                continue
            share = 0.25 if split == "half" else 1 - 2 * graph["few"]
            here, local = (cells["now"][name] / 100 for name in ("strict", "local"))
            devices = share * graph["devices"]
            error = 100 * ((here * (1 - here) + local * (1 - local)) / devices) ** 0.5
            if here < local:
                runs.append((100 * (here - local), error, graph, split))
    return sorted(runs, key=lambda run: run[0] / max(run[1], 1e-9))

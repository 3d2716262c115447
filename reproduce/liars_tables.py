"""Tables of docs/liars.md, from docs/results/liars.json (`python benchmarks/liars.py`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Read = Callable[[str], Any]
GRAPHS = {"demo": "demo", "facebook": "Facebook"}
STRATEGIES = {
    "labels": "wrong label, otherwise honest",
    "messages": "forged randomized and propagated labels",
    "reverse": "encoder: against the honest gradient",
    "wrong class": "encoder: test devices to their most likely wrong class",
    "next class": "encoder: all devices to the next class",
    "one class": "encoder: all devices to one class",
    "counts": "counts: telling features lose their weight",
    "matrices": "matrices: messages seem to name another class",
    "weights": "evidence weights: all lowered",
    "selection": "model selection: the worse candidate",
    "all, reverse": "all of these, with the first kind of gradient",
    "all, wrong class": "all of these, with the second",
    "all, next class": "all of these, with the third",
}
DEFENCES = {
    "none": "none",
    "proof of the honest bound": "if the honest bound itself were proved for wide sums",
    "proof of the clip, without noise": "if vectors without noise were proved to be clipped",
    "steps half as long": "encoder: steps half as long",
    "4 encoder epochs": "`encoder_epochs=4`",
    "go back when the loss rises": "encoder: go back when the loss rises",
    "evidence weights near their start": "evidence weights kept near their start, local classifier "
    "only by a wide margin",
}


def results(read: Read) -> Any:
    """Return the committed results."""
    return read("liars.json")


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f}"


def lost(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the points that the worst seed loses."""
    return max(0.0, *(one - two for one, two in zip(before, after, strict=True)))


def worst(graph: Mapping[str, Any], number: str) -> float:
    """Return the points that the worst strategy and seed lose."""
    return max(lost(graph["undisturbed"], after) for after in graph["liars"][number].values())


POISONER_HEADINGS = ["test accuracy, %", "undisturbed", "no proofs", "the run reports", "proofs"]


def poisoner_rows(read: Read) -> list[list[str]]:
    """Return accuracy with one device that sends numbers of its choice."""
    rows = []
    for name, found in results(read)["poisoner"].items():
        for title in sorted({key.split(",")[0] for key in found if key != "undisturbed"}):
            trusted, proved = (found[f"{title}, {how}"] for how in ("no proofs", "proofs"))
            told = [value for value in trusted["estimate"] if value is not None]
            rows.append(
                [
                    f"{GRAPHS[name]}, {title}",
                    ", ".join(f"{value:.1f}" for value in found["undisturbed"]),
                    ", ".join(f"{value:.1f}" for value in trusted["accuracy"]),
                    f"{_mean(told)} %" if told else "stages left out",
                    ", ".join(f"{value:.1f}" for value in proved["accuracy"]),
                ]
            )
    return rows


def bounds_table(read: Read) -> tuple[list[str], list[list[str]]]:
    """Return what is proved in clips, of the first and the last sum of a stage."""
    found = results(read)["bounds"]
    headings = ["clips", *(f"n = {graph['devices']:,}" for graph in found.values())]
    stages = next(iter(found.values()))["stages"]
    rows = []
    for stage in stages:
        cells = [f"`{stage}`"]
        for graph in found.values():
            one = graph["stages"][stage]
            honest, proved = (_range(one[kind]) for kind in ("honest", "proved"))
            cells.append(honest if honest == proved else f"{honest}; proved {proved}")
        rows.append(cells)
    return headings, rows


def ranges(read: Read) -> str:
    """Return what ranges would be worth in model selection, on demo."""
    gain = results(read)["bounds"]["demo"]["gain"]
    return (
        "In model selection on demo, one liar moves the difference of two counts by "
        f"{gain['norm']:.1f}; if ranges of single counts were proved in place of norms, by "
        f"{gain['ranges']:.1f}.\n"
    )


def _range(ends: Sequence[float]) -> str:
    first, last = (f"{end:.1f}" for end in ends)
    return first if first == last else f"{first} … {last}"


def strategy_table(read: Read) -> tuple[list[str], list[list[str]]]:
    """Return mean accuracy by strategy and number of liars."""
    found = {name: results(read)["liars"][name] for name in GRAPHS}
    headings = ["test accuracy, %"]
    first = ["nobody lies"]
    for name, graph in found.items():
        for number in graph["liars"]:
            headings.append(f"{GRAPHS[name]}, {int(number):,}")
            first.append(_mean(graph["undisturbed"]))
    rows = [first]
    for strategy, words in STRATEGIES.items():
        cells = [words]
        for graph in found.values():
            cells += [_mean(graph["liars"][number][strategy]) for number in graph["liars"]]
        rows.append(cells)
    lost_most = ["**points lost at worst, of all seeds**"]
    for graph in found.values():
        lost_most += [f"**{worst(graph, number):.1f}**" for number in graph["liars"]]
    return headings, [*rows, lost_most]


SMALL_HEADINGS = ["test accuracy, %", "undisturbed", "1 liar, worst", "2 liars, worst"]


def small_rows(read: Read) -> list[list[str]]:
    """Return small federations: the strategy with the lowest mean."""
    rows = []
    for name, graph in results(read)["liars"].items():
        if name not in GRAPHS:
            lowest = [
                min(float(np.mean(values)) for values in graph["liars"][number].values())
                for number in graph["liars"]
            ]
            cells = [f"{graph['devices']:,} devices", _mean(graph["undisturbed"])]
            rows.append([*cells, *(f"{value:.1f}" for value in lowest)])
    return rows


DEFENCE_HEADINGS = ["test accuracy, %", "demo, nobody lies", "5 liars", "20 liars"]
DEFENCE_HEADINGS += ["Facebook, nobody lies", "20 liars", "100 liars"]


def defence_rows(read: Read) -> list[list[str]]:
    """Return mean accuracy under each defence, with its worst strategy."""
    found = results(read)["defences"]
    return [
        [
            words,
            *(
                _mean(row if isinstance(row, list) else row["accuracy"])
                for graph in GRAPHS
                for row in found[graph][defence].values()
            ),
        ]
        for defence, words in DEFENCES.items()
    ]


MEDIAN_HEADINGS = ["test accuracy, %", "one sum", "medians, nobody lies", "1 liar", "2 liars"]


def median_rows(read: Read) -> list[list[str]]:
    """Return mean accuracy of medians of group sums."""
    names = {"demo:60": "60", "demo:200": "200", "demo:600": "600", "demo": "2,000"}
    return [
        [f"{names[name]} devices", *(_mean(values) for values in found.values())]
        for name, found in results(read)["medians"].items()
    ]

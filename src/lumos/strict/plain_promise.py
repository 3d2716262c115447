"""The whole promise of a strict run in plain words, from its table of promises and nothing else."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lumos.strict.disclosed import FOR_LIFE
from lumos.strict.link_promises import ANSWERS, SUMS
from lumos.training.profile import NO_PROMISE

PRIOR = 0.25
"""Probability of a right guess without a device, in the example that is printed."""
_LABEL = "label: this one or another"
_NUMBER = r"[\d.e+-]+"
_FIGURE = re.compile(
    rf"ε = (?P<pure>{_NUMBER}), pure|\((?P<both>{_NUMBER}), (?P<delta>{_NUMBER})\)"
)
_ASKED = {
    _LABEL: "one label or another",
    "features: these or others": "one device's features or any others",
    "whole record: this or another": "a whole record or another",
    "one edge: there or not": "one edge there or not",
}
"""By row of the table of `classify`: the two cases that somebody might tell apart."""
_NOT_PROMISED = {
    "one edge": "edges",
    "degree": "degrees",
    "membership: there or not there at all": "membership",
}
"""By row: what is named where nothing is promised."""


class _Figure(NamedTuple):
    epsilon: float
    delta: str

    def __str__(self) -> str:
        return f"ε = {self.epsilon:g}" + f", δ = {self.delta}" * bool(self.delta)


def guess_bound(epsilon: float, prior: float) -> float:
    """Return the largest probability of guessing a label that has pure ε.

    Args:
        prior: the probability of guessing it without the device.
    """
    likelier = prior * math.exp(epsilon)
    return likelier / (1 - prior + likelier)


def classify_in_words(promises: Sequence[Mapping[str, str]]) -> str:
    """Return one sentence with the figures, one on the label, one on what is not protected."""
    figures: dict[str, _Figure] = {}
    nothing: list[str] = []
    for row in promises:
        about = row["about"]
        figure = _worst(row)
        if about in _ASKED and figure is not None:
            figures[about] = figure
        elif about in _ASKED:
            nothing.append(_ASKED[about])
        elif about in _NOT_PROMISED:
            nothing.append(_NOT_PROMISED[about])
    return _sentences(promises, "every message", figures, nothing)


def link_in_words(promises: Sequence[Mapping[str, str]]) -> str:
    """Return the same for links: features leave by sums and by answers, which are counted."""
    features = next(row for row in promises if row["about"] == "features: these or others")
    figure = _worst({name: cell for name, cell in features.items() if name.startswith(SUMS)})
    figures, nothing = {}, []
    if figure is None:
        nothing.append(_ASKED[features["about"]])
    else:
        figures[features["about"]] = figure
    nothing += [words for row in promises if (words := _NOT_PROMISED.get(row["about"]))]
    counted = features[ANSWERS].removeprefix(f"{NO_PROMISE} beyond their number: ")
    counted = counted.removeprefix(f"{NO_PROMISE}: ")
    return f"{_sentences(promises, 'every sum', figures, nothing)} Answers add: {counted}."


def _sentences(
    promises: Sequence[Mapping[str, str]],
    seen: str,
    figures: Mapping[str, _Figure],
    nothing: list[str],
) -> str:
    life = any(name.endswith(FOR_LIFE) for row in promises for name in row)
    where = " of all runs with this book" * life
    sentences = []
    if figures:
        told = "; ".join(f"{_ASKED[about]}: {figure}" for about, figure in figures.items())
        sentences.append(f"To whoever sees {seen} and the model{where}, {told}.")
    label = figures.get(_LABEL)
    if label is not None and not label.delta:
        bound = guess_bound(label.epsilon, PRIOR)
        sentences.append(
            "Whoever would guess a label with probability p without this device guesses it with at "
            f"most p·e^ε/(1 - p + p·e^ε): from {100 * PRIOR:g} to {100 * bound:.3g} %."
        )
    if nothing:
        sentences.append(f"Not protected: {', '.join(nothing)}.")
    return " ".join(sentences)


def _worst(row: Mapping[str, str]) -> _Figure | None:
    """The largest figure of any column; None where one of them promises nothing."""
    worst = _Figure(0.0, "")
    for name, cell in row.items():
        if name == "about":
            continue
        if NO_PROMISE in cell:
            return None
        if (found := _FIGURE.fullmatch(cell)) is not None:
            epsilon = float(found["pure"] or found["both"])
            worst = max(worst, _Figure(epsilon, found["delta"] or ""))
    return worst

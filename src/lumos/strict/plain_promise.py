"""The whole promise of a strict run in plain words, from its table of promises and nothing else."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lumos.strict.disclosed import FOR_LIFE
from lumos.strict.link_promises import ANSWERS, SUMS
from lumos.training.profile import NO_PROMISE

HARDLY = 10.0
"""Largest ε of which "can hardly tell" is said."""

_NUMBER = r"[\d.e+-]+"
_FIGURE = re.compile(
    rf"ε = (?P<pure>{_NUMBER}), pure|\((?P<both>{_NUMBER}), (?P<delta>{_NUMBER})\)"
)
_ASKED = {
    "label: this one or another": "one label from another",
    "features: these or others": "one device's features from any others",
    "whole record: this or another": "a whole record from another",
    "one edge: there or not": "whether one edge is there",
}
"""By row of the table of `classify`: what somebody might tell."""
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


def classify_in_words(promises: Sequence[Mapping[str, str]]) -> str:
    """One sentence on what can hardly be told, one on what is less protected, one on the rest."""
    hardly: list[str] = []
    less: list[str] = []
    nothing: list[str] = []
    for row in promises:
        about = row["about"]
        figure = _worst(row)
        if about in _ASKED and figure is not None:
            (hardly if figure.epsilon <= HARDLY else less).append(f"{_ASKED[about]} ({figure})")
        elif about in _ASKED:
            nothing.append(_ASKED[about])
        elif about in _NOT_PROMISED:
            nothing.append(_NOT_PROMISED[about])
    return _sentences(promises, "every message", hardly, less, nothing)


def link_in_words(promises: Sequence[Mapping[str, str]]) -> str:
    """The same for links: features leave by sums and by answers, which are counted."""
    features = next(row for row in promises if row["about"] == "features: these or others")
    told = "one device's features from any others"
    figure = _worst({name: cell for name, cell in features.items() if name.startswith(SUMS)})
    hardly: list[str] = []
    less: list[str] = []
    nothing: list[str] = []
    if figure is None:
        nothing.append(told)
    else:
        (hardly if figure.epsilon <= HARDLY else less).append(f"{told} ({figure})")
    nothing += [words for row in promises if (words := _NOT_PROMISED.get(row["about"]))]
    counted = features[ANSWERS].removeprefix(f"{NO_PROMISE} beyond their number: ")
    counted = counted.removeprefix(f"{NO_PROMISE}: ")
    return f"{_sentences(promises, 'every sum', hardly, less, nothing)} Answers add: {counted}."


def _sentences(
    promises: Sequence[Mapping[str, str]],
    seen: str,
    hardly: list[str],
    less: list[str],
    nothing: list[str],
) -> str:
    life = any(name.endswith(FOR_LIFE) for row in promises for name in row)
    where = " of all runs with this book" * life
    sentences = []
    if hardly:
        sentences.append(
            f"Someone who sees {seen} and the model{where} can hardly tell {_listed(hardly)}."
        )
    if less:
        sentences.append(f"Less protected: {', '.join(less)}.")
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


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"

"""The name of the coins of a simulated strict run.

Two releases, or two sums with noise, drawn with the same coins reveal more than their ε together.
So strict runs that differ in any setting have different coins: a run with one seed repeats itself
exactly, and shares no coin with another. Settings that do not change the run itself (a control
beside it, the checkpoint interval, the comparison of workloads) do not change its coins.

With a book a run also depends on what the book has of its devices: draws of their labels, and
partners. So their ids are in the name, and which draws are used: a label that has changed, and
changed back, is drawn anew, and the run that uses the new draw is another one, with noise and
charges of its own. Where the book lies does not matter; the state in which the run finds it does
(`name_with_book`). The control uses no book, so its name has none.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from lumos.strict.feature_form import feature_form
from lumos.strict.settings import CLASSIFY_ONLY, LINK_ONLY, settings_of
from lumos.training.profile import Problem
from lumos.training.settings import UPDATES

if TYPE_CHECKING:
    from lumos.training.config import Config

_WITHOUT_EFFECT: dict[str, Any] = {
    "control": True,
    "floor": True,
    "checkpoint_every": 25,
    "iterations": 1000,
    "compare": "secure",
    "comparison_budget": None,
    "workers": None,
    "select": "validation",
    "recovery": "shrunk",
    "virtual_nodes": True,
    "low": 0.0,
    "high": 1.0,
    "bins": False,
    "book": None,
    "lifetime_epsilon": 4.0,
    "lifetime_opinion_epsilon": 64.0,
    "min_holders": 5,
}
"""In the name with these values, whatever the settings say: the name is hashed, and the settings
in it when results were first kept stay in it, so that they can be repeated to the last digit."""
_CLASSIFY_NAME: dict[str, Any] = {
    "relay": "auto",
    "codebook": 8,
    "colours": "auto",
    "answer": 8,
    "projection": 1024,
}
_LINK_NAME: dict[str, Any] = {"word_buckets": 0, "score_degrees": False}
"""The same by task: settings that there were when results of the task were kept."""

_ADDED_LATER = frozenset({"lifetime_update_epsilon", "scaling", "group"})
"""Settings that there were not when results were first kept, and that do not change a run, or are
named by what they do."""


def coin_name(problem: Problem, config: "Config", *, control: bool, drawn: str = "") -> str:
    """A name for the coins of a run, or of its control.

    Args:
        drawn: with a book, which draws of labels the run uses.
    """
    settings = {**config.flat(), **_WITHOUT_EFFECT}
    settings = {name: settings[name] for name in settings.keys() - _ADDED_LATER}
    if config.train.task == "link":
        settings = {name: settings[name] for name in settings.keys() - CLASSIFY_ONLY} | _LINK_NAME
    else:
        own = {name: settings[name] for name in settings.keys() - LINK_ONLY}
        settings = own | _CLASSIFY_NAME
    parts = [problem.facts.fingerprint, repr(sorted(settings.items()))]
    scaling = feature_form(problem.facts, settings_of(config))["scaling"]
    if scaling != "none":
        parts.append(f"features scaled by {scaling}")
    if problem.split:
        parts.append(f"split {problem.split}")
    if config.updates != UPDATES:
        parts.append(repr(config.updates))
    facts = problem.facts
    unused = problem.classes - 1 - facts.highest_label if facts.labelled else 0
    if unused:
        parts.append(f"{unused} classes that no device has")
    if settings_of(config).book is not None and not control:
        parts += [repr(problem.in_memory("book").ids_as_text()), drawn]
    digest = blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()
    return ("/control" if control else "") + "/" + digest


def name_with_book(name: str, state: str) -> str:
    """The name of the coins of a run with a book.

    A book draws a random mark whenever it is written, so two books in one state have the same
    content, wherever they lie. Then two runs of the same name use the same draws and partners: they
    are one run, and the same noise hides the same numbers. In different states the draws, and so
    the numbers, may differ, and the coins do.

    Args:
        name: as `coin_name` gives it.
        state: the last mark of the book when the run began; empty if there was no book.
    """
    if not state:
        return name
    return "/" + blake2b(f"{name} {state}".encode(), digest_size=16).hexdigest()

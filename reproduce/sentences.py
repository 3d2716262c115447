"""Sentences of README and docs that quote results, with their numbers written from docs/results.

A sentence is found by its words, and only its numbers are written anew. A field in braces is a
number of `facts`, with its format.
"""

import math
import re
import string
from collections.abc import Mapping
from typing import Any

import numpy as np

from lumos.audit import AuditReport
from lumos.errors import InputError
from lumos.training.profile import PAPER
from reproduce import claims
from reproduce.strict_tables import scores

NUMBER = r"[-+]?[\d⁰¹²³⁴⁵⁶⁷⁸⁹](?:[\d.,⁰¹²³⁴⁵⁶⁷⁸⁹]*[\d⁰¹²³⁴⁵⁶⁷⁸⁹])?"
SENTENCES: dict[str, tuple[str, ...]] = {
    "README.md": (
        "On Facebook it reaches {literal:.1f} %, and `--profile paper` {corrected:.1f} %.",
        "The control, whose releases carry no information, reaches {literal_control:.1f} %.",
        "comes from the unprotected embeddings: the control reaches {corrected_control:.1f} %.",
        "Load: {none} edges at the busiest Facebook device, {mcmc} after the paper's 1,000 steps, "
        "{optimal} with `lumos trees facebook`",
        "exceeds no bound in {audit_rows} rows; in the paper profile a neighbour reads a label off "
        "one gradient in {gradient_hits:,} of {gradient_trials:,} cases.",
        "ε = {edge_replaced} does not hide an edge: e^{edge_replaced} ≈ 10{edge_power}.",
        "300 devices reach {small:.0f} % where 2,000 similar ones reach {demo:.0f} %.",
        "On Twitch ENGB, neighbours add {twitch:.1f} points to `strict`",
    ),
    "docs/faq.md": (
        "`--profile paper` reaches {corrected:.1f} % (mean of three seeds",
        "`--profile paper --literal` reaches {literal:.1f} % on seed 0",
        "whose encoded features carry no information, reaches {literal_control:.1f} %.",
        "On seed 0 the run reaches {corrected_seed:.1f} % and its control "
        "{corrected_control:.1f} %.",
        "the encoded features add {literal_gain:.1f} points in the first case",
        "On Facebook it reaches {tree_gcn:.2f} % (GCN) and {tree_gat:.2f} % (GAT), and the default "
        "{strict_three:.2f} % on the same three seeds",
        "An added or removed edge then costs ε = {edge_tree} instead of {edge}.",
        "(e^{edge_replaced} ≈ 10{edge_power}). `--propagated-labels 0` lowers the first to "
        "{edge_none}, at {no_propagated:.1f} instead of {strict_three:.1f} % on Facebook.",
        "demo (1,000 training devices) reaches {demo:.1f} % and Facebook (11,235) {strict:.2f} % "
        "on five seeds",
    ),
    "docs/strict.md": (
        "({tree_gcn:.2f} % with GCN, {tree_gat:.2f} % with GAT, {strict_three:.2f} % without)",
        "raises the ε of an edge from {edge} to {edge_tree}.",
    ),
    "docs/strict-guarantees.md": (
        "`--propagated-labels 0` lowers {edge} to {edge_none} and {edge_replaced} to "
        "{edge_none_replaced} on Facebook.",
        "`--propagated-labels 1` lowers {edge_demo} to {edge_one} and {edge_demo_replaced} to "
        "{edge_one_replaced} on demo",
        "on demo, {demo_one:.1f} % with one propagated label and {demo:.1f} % with two.",
    ),
    "docs/howto/read-guarantees.md": (
        "the largest figures are ({edge}, 1e-5) and ({edge_replaced}, 1e-5).",
        "e^{edge_replaced} ≈ 10{edge_power}.",
    ),
    "docs/evaluate.md": ("the edge of strict is ({edge}, 1e-5) added or removed",),
    "docs/audit.md": (
        "The strict profile has {audit_rows} rows, {audit_bounds} of them with a bound, of which "
        "{audit_power} have power",
    ),
}
"""By page, sentences or parts of them; the fields are named in `facts`."""


def facts(kept: Any) -> dict[str, Any]:
    """Return the numbers that sentences quote, by name."""
    strict, demo = kept.read("strict-facebook.json"), kept.read("strict-demo.json")
    twitch = kept.read("strict-twitch-ENGB.json")
    single = kept.read("paper-facebook.json")
    paper = claims.variant_scores(kept.facebook, PAPER, "classify", "gcn")
    audited = AuditReport.from_json(kept.read("audit-facebook-strict.json"))
    gradient = next(
        row["estimate"]
        for row in kept.read("audit-facebook-paper.json")["rows"]
        if row["attack"] == "gradient-labels" and row["about"].endswith("1 epoch")
    )
    trees = {
        run["settings"]["balancer"]: run["result"]["max_workload"]
        for run in kept.read("reproduce-structure.json")
        if (run["kind"], run["graph"]) == ("trees", "facebook")
    }
    literal = {name: 100 * value for name, value in single["literal"]["result"].items()}
    added, other = "edge added or removed", "edge replaced at one end"
    replaced = _epsilon(kept, "default", other)
    return {
        "literal": literal["test_accuracy"],
        "literal_control": literal["control_test_accuracy"],
        "literal_gain": literal["test_accuracy"] - literal["control_test_accuracy"],
        "corrected": float(np.mean(list(paper.by_seed.values()))),
        "corrected_seed": paper.by_seed[0],
        "corrected_control": paper.control[0],
        **{name: trees[name] for name in ("none", "mcmc", "optimal")},
        "audit_rows": len(audited.rows),
        "audit_bounds": len(audited.claimed),
        "audit_power": len(audited.powered),
        "gradient_hits": gradient["hits"],
        "gradient_trials": gradient["trials"],
        "edge": _epsilon(kept, "default", added),
        "edge_power": f"{round(float(replaced) / math.log(10))}".translate(_RAISED),
        "edge_replaced": replaced,
        "edge_none": _epsilon(kept, "no propagated label", added),
        "edge_none_replaced": _epsilon(kept, "no propagated label", other),
        "edge_demo": _epsilon(kept, "demo", added),
        "edge_demo_replaced": _epsilon(kept, "demo", other),
        "edge_one": _epsilon(kept, "demo, one propagated label", added),
        "edge_one_replaced": _epsilon(kept, "demo, one propagated label", other),
        "edge_tree": _epsilon(kept, "tree network", added),
        "strict": _percent(strict, "label 3"),
        "strict_three": _percent({"label 3": dict(list(strict["label 3"].items())[:3])}, "label 3"),
        "no_propagated": _percent(strict, "label 3, propagated labels 0"),
        "tree_gcn": _percent(strict, "label 3, tree network GCN"),
        "tree_gat": _percent(strict, "label 3, tree network GAT"),
        "demo": _percent(demo, "label 3"),
        "demo_one": _percent(demo, "label 3, propagated labels 1"),
        "small": _percent(kept.read("strict-small.json"), "label 3"),
        "twitch": _percent(twitch, "label 3") - _percent(twitch, "label 3", "own"),
    }


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _percent(results: Any, row: str, name: str = "test") -> float:
    return 100 * float(np.mean(scores(results[row], name)))


def _epsilon(kept: Any, settings: str, about: str) -> str:
    """Return the largest ε of a relation, of all roles, as it is printed."""
    row = next(row for row in kept.read("guarantees.json")[settings] if row["about"] == about)
    found = [re.match(rf"\(({NUMBER}), |ε = ({NUMBER})", cell) for cell in row.values()]
    return max((match[1] or match[2] for match in found if match), key=float)


def pattern(sentence: str) -> str:
    """Return a regular expression that finds a sentence, with a group for each number."""
    found = ""
    for words, field, _, _ in string.Formatter().parse(sentence):
        found += r"\s+".join(map(re.escape, re.split(r"\s+", words)))
        found += f"({NUMBER})" * (field is not None)
    return found


def written(text: str, page: str, numbers: Mapping[str, Any]) -> str:
    """Return a page with the numbers of its sentences written anew.

    Raises:
        InputError: the page does not have a sentence.
    """
    for sentence in SENTENCES.get(page, ()):
        values = [
            format(numbers[field], form or "")
            for _, field, form, _ in string.Formatter().parse(sentence)
            if field is not None
        ]
        found = re.search(pattern(sentence), text)
        if found is None:
            raise InputError(
                f"{page}: the sentence {sentence!r} is not there; change it in "
                "reproduce/sentences.py too"
            )
        for place in range(len(values), 0, -1):
            text = text[: found.start(place)] + values[place - 1] + text[found.end(place) :]
    return text

"""What is public about the features of a graph, and what follows for a run.

Where a setting is `auto`, a fact about all features of the graph decides it: whether any is
negative, whether all lie between -1 and 1, whether they are stored sparse. Such facts belong to a
public schema, which real devices agree on before they meet; the run says that they are public.
"""

from typing import TypedDict

from lumos.errors import UsageError
from lumos.graph.facts import GraphFacts
from lumos.strict.feature_scaling import Scaling
from lumos.strict.settings import StrictSettings


class FeatureForm(TypedDict):
    """What a schedule needs to know of features."""

    signed: bool
    """Whether they may be negative when they are used."""
    scaling: Scaling
    """How they are scaled; never `auto`."""
    bounded: bool
    """Whether all of them lie between -1 and 1."""


def feature_form(facts: GraphFacts, strict: StrictSettings) -> FeatureForm:
    """The form of the features of a graph under these settings.

    Raises:
        UsageError: they cannot be scaled as asked.
    """
    scaling = _scaling(facts, strict)
    shifted = scaling == "standard"
    return FeatureForm(
        signed=shifted or may_be_negative(facts, strict),
        scaling=scaling,
        bounded=facts.of_one_scale,
    )


def may_be_negative(facts: GraphFacts, strict: StrictSettings) -> bool:
    """Whether features may be negative. With `auto`, a public fact about the graph."""
    if strict.signs != "auto":
        return strict.signs == "signed"
    return facts.lowest < 0


def _scaling(facts: GraphFacts, strict: StrictSettings) -> Scaling:
    sparse = facts.sparse
    if strict.scaling == "auto":
        if facts.of_one_scale:
            return "none"
        return "size" if sparse or strict.signs == "nonnegative" else "standard"
    if strict.scaling == "standard" and sparse:
        raise UsageError(
            "`scaling='standard'` would fill the zeros of sparse features; use `scaling='size'`"
        )
    if strict.scaling == "standard" and strict.signs == "nonnegative":
        raise UsageError(
            "`scaling='standard'` shifts features below 0, and `signs='nonnegative'` cuts them off "
            "there; use `scaling='size'`, or leave `signs` out"
        )
    return strict.scaling

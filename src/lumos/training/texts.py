"""What a profile says about its runs, for reports: sentences and names, no figures of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lumos.typing import Arrays

NO_PROMISE = "no promise"
"""How a cell of a table of promises begins that makes none."""
PromiseInWords = Callable[[Sequence[Mapping[str, str]]], str]
"""From the table of promises of a run to a few plain sentences."""


def _by_table(promises: Sequence[Mapping[str, str]]) -> str:
    """For a profile without words of its own."""
    return "What is promised is in the table of promises." if promises else "Nothing is promised."


LOSS = "Mean training loss of each epoch, as all devices learn it from a sum."


@dataclass(frozen=True, kw_only=True)
class TreeTexts:
    """How a profile's trees are described."""

    workload: str
    """What a workload is, and who carries an edge."""
    own_leaf: str
    """What stands on the leaves of the device itself."""
    other_leaf: str
    """What stands on the leaves of its neighbours."""
    builder: str
    """Who builds a tree."""
    virtual_nodes: bool = True
    """Whether trees have a root and parents, as in the paper; a star otherwise."""
    reported_largest: Mapping[str, float] = field(default_factory=dict)
    """By name of the graph, the largest workload that a publication reports for these trees."""


@dataclass(frozen=True, kw_only=True)
class RunSizes:
    """What the widths of sums depend on; all of it is public."""

    epochs: int
    """That were trained."""
    devices: int
    features: int
    classes: int
    """0 for link."""
    weights: Arrays = field(repr=False)
    """The trained weights by name."""


@dataclass(frozen=True, kw_only=True)
class SumStage:
    """Epochs, or single sums after the last epoch, whose sums are of one kind."""

    name: str
    """As a heading has it."""
    learns: str
    """What is learnt from its sums, by whom."""
    first: int
    """Its first epoch; 1 is the first of the run. Below 1 for sums before, past the last epoch for
    sums after training."""
    last: int
    """Its last epoch."""
    numbers: int
    """Numbers in one of its sums."""
    loss: str = ""
    """What the loss of its epochs is of, and what to see in it; empty where they have none."""


@dataclass(frozen=True, kw_only=True)
class ProfileTexts:
    """What a profile says about a run with certain settings."""

    trees: TreeTexts | None
    """None where no tree is built."""
    promise: PromiseInWords = _by_table
    """The whole promise in plain words, or what is not protected."""
    design: str = ""
    """Whose design it is that messages leave through the door `open`: a sentence that follows
    "Privacy:" and begins with a small letter."""
    loss: str = LOSS
    """What the training loss is."""
    stages: Mapping[str, int] = field(default_factory=dict)
    """By name, the first epoch of each stage of training after the first; 1 is the first epoch."""
    first_stage: str = "first stage"
    """Name of the stage before them."""
    sums: Callable[[RunSizes], Sequence[SumStage]] | None = None
    """The stages of a finished run in order, with the widths of their sums; None: not described."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """By candidate, as `Outcome.choice` names it: what it predicts from."""
    budget: str = ""
    """What a run may spend, where ε of a release does not say it."""
    own: str = "own features only, no neighbour"
    """What the arm `own` predicts from."""
    control: str = "releases without information"
    """What the control has in place of what the run has."""
    chooser: str = "validation devices"
    """Who or what chose the candidate that predicts."""
    validation: str = ""
    """What validation devices or edges are used for, in one sentence."""
    unused_settings: frozenset[str] = frozenset()
    """Settings of every profile that have no effect in this one."""

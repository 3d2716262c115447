"""A row: one line of a figure's table."""

from dataclasses import asdict, dataclass
from typing import Any

LEFT_OUT = "left out of the quick form"
"""Note of a row without a figure because a run does not fit into the time."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of one system beside the paper's."""

    figure: str
    dataset: str
    system: str
    measure: str
    task: str = ""
    backbone: str = ""
    epsilon: float | None = None
    paper: float | None = None
    """What the paper reports."""
    paper_shown: str = ""
    """The same as the paper writes it, where it is a bound."""
    ours: float | None = None
    """Mean over the seeds."""
    spread: float | None = None
    """Standard deviation over the seeds, from two on."""
    seeds: int = 0
    control: float | None = None
    """The same figure where releases carry no information."""
    over_control: float | None = None
    """Of a score: mean difference to the control, on the seeds that have one."""
    notes: tuple[str, ...] = ()
    """What a reader should know, a sentence each."""
    why: str = ""
    """Where it disagrees with the paper: the reason."""
    digits: int = 2
    cut: int = 0
    """Epochs at which its runs were cut; 0: they finished."""

    @property
    def left_out(self) -> bool:
        """Whether it has no figure because the form leaves a run out."""
        return self.ours is None and LEFT_OUT in self.notes

    def as_json(self) -> dict[str, Any]:
        """The row as a JSON object."""
        content = asdict(self)
        del content["digits"], content["notes"]
        return {**content, "note": "; ".join(self.notes)}

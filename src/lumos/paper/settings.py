"""Settings of the paper's profile: what a device releases, what receivers make of it, the trees."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from lumos.encode.one_bit import EncoderSettings
from lumos.errors import UsageError, one_of

if TYPE_CHECKING:
    from lumos.training.config import Config

Selection = Literal["validation", "last"]
Recovery = Literal["shrunk", "letter"]


@dataclass(frozen=True, kw_only=True)
class PaperSettings(EncoderSettings):
    """The paper's profile (section VIII-B, errata 9)."""

    recovery: Recovery = "shrunk"
    """What receivers put on a leaf. letter: the paper's unbiased features, midpoint where nothing
    was received. shrunk: the same, less the midpoint, times their reliability tanh(ε'/2)²."""
    virtual_nodes: bool = True
    """Trees as in the paper; without virtual nodes, stars."""
    select: Selection = "validation"
    """validation: keep the weights that scored best on validation devices or edges; last: the
    paper's, those of the last epoch."""
    patience: int = 0
    """Stop after this many epochs without a better validation score; 0: never. The score is in
    every epoch's sum, so all devices stop at the same epoch without another message."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("recovery", self.recovery, get_args(Recovery))
        one_of("select", self.select, get_args(Selection))
        if self.patience < 0:
            raise UsageError(f"`patience` must be 0 or more, got {self.patience}")
        if self.patience and self.select == "last":
            raise UsageError("`patience` goes by the validation score; leave out `select='last'`")

    def ignored(self, name: str) -> str:
        """With which of these settings another one has no effect; empty where it has one."""
        if name == "bins" and self.noisy:
            return "a finite `epsilon`, only with `epsilon=inf`"
        if name == "recovery" and not self.noisy and not self.bins:
            return "`epsilon=inf`, only with a finite `epsilon` or with `bins`"
        return ""


def settings_of(config: "Config") -> PaperSettings:
    """The settings of this profile."""
    return config.settings_as(PaperSettings)

"""Questions about pairs of devices to a finished run that predicts links, and the answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lumos.crypto.group import AUTO
from lumos.exchange.ledger_report import LedgerReport
from lumos.graph import Graph
from lumos.typing import Arrays, Doubles, Flags, Floats, Ints

if TYPE_CHECKING:
    from lumos.training.config import Config

ANSWERS = "answers"
"""In the memory of a run: the store of what its devices answered, which moves to its folder."""
OnAnswers = Callable[[int, int], None]
"""Callback `(pairs answered, pairs asked)`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedLinks:
    """What a finished run knows, and where it keeps what devices answer."""

    config: "Config"
    seed: int
    weights: Arrays = field(repr=False)
    """As `Trainer.arrays` gave them."""
    kept: Arrays = field(repr=False)
    """What `Outcome.kept` had."""
    embeddings: Floats | None = field(repr=False)
    """[devices, width] where a run folder keeps them."""
    graph: Callable[[], Graph] = field(repr=False)
    """Finds the graph of the run with its training edges, for profiles that need it."""
    split: str = ""
    """Digest of the split, as `Problem` has it."""
    ids: Sequence[str] = field(default=(), repr=False)
    """Original ids of the devices, by which a book finds their entries."""
    folder: Path | None = None
    """The run folder, if there is one."""
    memory: dict[str, Any] = field(default_factory=dict, repr=False)
    """What a run keeps from one question to the next."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedPairs:
    """Pairs to be scored; the first end asks."""

    pairs: Ints = field(repr=False)
    """[pairs, 2] positions; a pair may be there twice, in either order."""
    secure: bool = False
    """Real cryptography between the two ends; otherwise scores are computed in the clear."""
    workers: int | None = None
    """Processes for the cryptography; None: one per core."""
    group: str = AUTO
    """Group of the cryptography, or of what is booked for it, as `TreeSettings.group` has it."""
    progress: OnAnswers | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairAnswers:
    """What the askers know afterwards."""

    scores: Doubles = field(repr=False)
    """[pairs] logits of being an edge."""
    answered: Flags = field(repr=False)
    """[pairs] whether the other end answered; otherwise the score is what the asker knew alone."""
    ledger: LedgerReport | None = field(default=None, repr=False)
    """What passed; None where nothing did."""

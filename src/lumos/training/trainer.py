"""Optimizers on one flat vector: every device runs them and ends with equal weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import msgspec
import numpy as np

from lumos.crypto.groups import AUTO, Group
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.messages import Topic
from lumos.exchange.observer import LedgerReport
from lumos.graph import Graph
from lumos.secagg.openings import OpenedSums
from lumos.typing import Arrays, Doubles, Flags, Floats, Ints, StatePart

if TYPE_CHECKING:
    from lumos.training.config import Config


class Optimizer(Protocol):
    """Weights that step by gradients."""

    weights: Doubles

    def step(self, gradient: Doubles) -> None:
        """One step down the gradient."""
        ...

    def state_dict(self, name: str) -> Arrays:
        """Weights and all else that the next steps depend on; names begin with `name`."""
        ...

    def load_state_dict(self, state: Arrays, name: str) -> None:
        """Go on from what `state_dict` returned."""
        ...


@dataclass(eq=False)
class Adam:
    """Adam (Kingma & Ba 2015): weights and their moments.

    All devices start alike and see the same sums.
    """

    weights: Doubles = field(repr=False)
    rate: float
    decay: float = 0.0
    """L2: this share of each weight is added to its gradient, as in `torch.optim.Adam`."""
    mean: Doubles = field(repr=False, default_factory=lambda: np.empty(0))
    square: Doubles = field(repr=False, default_factory=lambda: np.empty(0))
    steps: int = 0
    epsilon: float = 1e-8
    """Added to the root of the mean squared gradient: gradients that are small beside it make small
    steps."""

    BETAS = (0.9, 0.999)

    def __post_init__(self) -> None:
        if not len(self.mean):
            self.mean = np.zeros_like(self.weights)
            self.square = np.zeros_like(self.weights)

    def state_dict(self, name: str) -> Arrays:
        """Weights, moments and number of steps, under names that begin with `name`."""
        return {
            f"{name}/weights": self.weights,
            f"{name}/mean": self.mean,
            f"{name}/square": self.square,
            f"{name}/steps": np.array(self.steps),
        }

    def load_state_dict(self, state: Arrays, name: str) -> None:
        """Go on from what `state_dict` returned."""
        self.weights, self.mean = state[f"{name}/weights"], state[f"{name}/mean"]
        self.square, self.steps = state[f"{name}/square"], int(state[f"{name}/steps"])

    def step(self, gradient: Doubles) -> None:
        """One step down the gradient."""
        if self.decay:
            gradient = gradient + self.decay * self.weights
        first, second = self.BETAS
        self.steps += 1
        self.mean = first * self.mean + (1 - first) * gradient
        self.square = second * self.square + (1 - second) * gradient**2
        root = np.sqrt(self.square / (1 - second**self.steps)) + self.epsilon
        self.weights = self.weights - self.rate / (1 - first**self.steps) * self.mean / root


# The programs of a training run: what every profile's trainer and coordinator must offer.
#
# A run is `setup`, any number of calls of `epochs`, `finish`. Between two calls it can be
# interrupted: `state_dict` has everything that the next epochs depend on.

MAIN, OWN, CONTROL = "run", "own", "control"
"""The variants: the run itself, what a device knows alone, releases that carry no information."""

PairScores = Callable[[Ints], Doubles]
"""[pairs, 2] → [pairs] scores of being an edge, or [2, pairs]: as the first ends have them, and as
the second ends do."""
Evaluated = Floats | PairScores
"""Input of the scores: [devices, classes] logits, or a function that scores pairs."""


class EpochEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch of one variant is over."""

    variant: str
    """`run`, or what is trained beside it: `own`, `control`."""
    epoch: int
    """1 for the first."""
    loss: float | None
    """Mean training loss; None where nothing is predicted yet."""
    score: float | None
    """Validation score of the weights that the epoch started with; None where nobody validates."""
    seconds: float
    """Duration of the epoch."""


EpochCallback = Callable[[EpochEvent], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """The result of one variant. A trainer fills in the first part, the loop the second."""

    embeddings: Floats | None = field(repr=False)
    """[devices, width], in the order of the ids; the logits where a profile has no embeddings; None
    where the run was read from a folder that does not keep them."""
    logits: Floats | None = field(repr=False)
    """[devices, classes], for classify."""
    evaluated: dict[str, Evaluated] = field(default_factory=dict, repr=False)
    """By variant: the run itself, and those that are part of it; empty where the run was read."""
    best_epoch: int
    """Epoch whose weights were kept."""
    exposed: str
    """Description of what left the devices unprotected, and to whom."""
    guarantees: list[dict[str, Any]] = field(repr=False)
    """The table of guarantees, row by row; empty where none is made."""
    ledger: LedgerReport = field(repr=False)
    """Counts of what passed in training; of single devices too where the run was just trained, and
    in the paper profile."""
    choice: str = ""
    """The candidate that validation devices chose; empty where there is no choice."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for a reader of the scores and what would help, one sentence each. Those that
    compare scores on the test set are the observer's; all others follow from public numbers and
    noisy sums."""
    estimates: dict[str, float] = field(default_factory=dict)
    """Scores that the run measured by itself, without any true label: `selected_accuracy` from the
    validation devices' noisy model selection, its standard error `selected_accuracy_error`, and
    both for own features; empty in profiles that measure none."""
    kept: Arrays = field(default_factory=dict, repr=False)
    """Arrays that a prediction needs beside weights and embeddings, as the profile keeps them."""

    weights: Arrays = field(default_factory=dict, repr=False)
    """The trained weights by name."""
    history: list[EpochEvent] = field(default_factory=list, repr=False)
    """One event per epoch."""
    per_epoch: dict[str, float] = field(default_factory=dict, repr=False)
    """Messages and bytes of a device in one epoch (mean, largest), and rounds."""
    seconds: float = 0.0
    """Seconds of all epochs, over all sessions of an interrupted run."""


ANSWERS = "answers"
"""In the memory of a run: the store of what its devices answered, which moves to its folder."""
OnAnswers = Callable[[int, int], None]
"""Callback `(pairs answered, pairs asked)`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedLinks:
    """State of a finished run that predicts links, and the place of devices' answers."""

    config: "Config"
    seed: int
    weights: Arrays = field(repr=False)
    """The part `model` of `Trainer.state_dict`."""
    kept: Arrays = field(repr=False)
    """Arrays of `Outcome.kept`."""
    embeddings: Floats | None = field(repr=False)
    """[devices, width] where a run folder keeps them."""
    graph: Callable[[], Graph] = field(repr=False)
    """Finds the graph of the run with its training edges, for profiles that need it."""
    split: str = ""
    """Digest of the split, as `Problem` has it."""
    ids: Sequence[str] = field(default=(), repr=False)
    """Original ids of the devices, by which a privacy account finds their entries."""
    folder: Path | None = None
    """The run folder, if there is one."""
    memory: dict[str, Any] = field(default_factory=dict, repr=False)
    """Values kept from one question to the next."""


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
class LinkPredictions:
    """Predictions about pairs, as the first device of each pair has them."""

    scores: Doubles = field(repr=False)
    """[pairs] logits of being an edge."""
    answered: Flags = field(repr=False)
    """[pairs] whether the second device answered; otherwise the score is what the first knew
    alone."""
    ledger: LedgerReport | None = field(default=None, repr=False)
    """Ledger of the messages; None where none was sent."""

    @property
    def probability(self) -> Doubles:
        """[pairs] of an edge."""
        chance: Doubles = 1 / (1 + np.exp(-self.scores))
        return chance

    def __repr__(self) -> str:
        return (
            f"LinkPredictions({len(self.scores):,} pairs, {int(self.answered.sum()):,} "
            "answered by the second device)"
        )


def weights_digest(weights: Arrays) -> str:
    """SHA-256 of the names, types, shapes and bytes of all weights, in hexadecimal."""
    digest = sha256()
    for name, array in sorted(weights.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class EpochRecord(NamedTuple):
    """Public figures of an epoch, from its sum."""

    epoch: int
    """1 for the first."""
    loss: float | None
    """Mean training loss; None where nothing is predicted yet."""
    score: float | None
    """Validation score of the weights that this epoch started with, higher is better; None where
    nobody validates."""


OnEpoch = Callable[[EpochRecord], None]


class ShardResult(Protocol):
    """The results of the devices of one shard."""

    def state_dict(self) -> Arrays:
        """Return the state of hosted devices, [hosted, …] each; all else is the same at every
        shard."""
        ...

    def load_state_dict(self, rows: Arrays) -> Self:
        """The same result with the rows of all devices, in the order of the ids."""
        ...


Result = TypeVar("Result", bound=ShardResult)


class Trainer(Protocol[Result]):
    """The program of one shard."""

    def setup(self) -> Program[None]:
        """Before the first epoch."""
        ...

    def rejoin(self, epoch: int) -> Program[None]:
        """After `load_state_dict`, instead of the first `epoch` epochs."""
        ...

    def epochs(self, first: int, last: int, on_epoch: OnEpoch | None = None) -> Program[None]:
        """Epochs `first` + 1 … `last`; `on_epoch` is called after each."""
        ...

    def last_epoch(self) -> int:
        """The last epoch, as known so far."""
        ...

    def finish(self) -> Program[Result]:
        """After the last epoch: results of the hosted devices."""
        ...

    def outcome(self, result: Result, ledger: LedgerReport) -> Outcome:
        """The outcome, from the joined results of all shards."""
        ...

    def state_dict(self, part: StatePart = "run") -> Arrays:
        """A part of the state by name: `run`, the same at every shard, or `model`."""
        ...

    def load_state_dict(self, state: Arrays, part: StatePart = "run") -> None:
        """Go on from a part of a state.

        Args:
            state: for `model`, together with `Outcome.kept` of that run.

        Raises:
            InputError: it does not match this model.
        """
        ...

    def predict_new_devices(self) -> Program[Floats]:
        """[hosted, classes] logits by the loaded weights, new devices included."""
        ...


@runtime_checkable
class RestartableTrainer(Trainer[Any], Protocol):
    """A trainer whose one device can be killed between any two messages, and come back.

    After a restart it sends the same messages again, byte by byte, as far as they are repeated. Its
    state has a part `device` too, once it is set up, without any key, mask or nonce; a trainer that
    was not set up loads it. At the coordinator it has no rows of devices.
    """

    def warm_up(self) -> None:
        """Load what epochs need, in a process that devices are forked from."""
        ...

    def enrol(self) -> Program[None]:
        """`setup`, without what needs sessions of two devices: epochs make up for it."""
        ...

    def replay_received(self, epoch: int) -> Program[None]:
        """Receive the releases of the first `epoch` epochs again, once the state is loaded."""
        ...

    def noise_added(self) -> str:
        """Return a sentence on the devices and the noise in each sum, as the coordinator counts."""
        ...

    def remember_openings(self, opened: OpenedSums) -> None:
        """Note there what the device gives out shares for."""
        ...

    def compare_told(self) -> Program[None]:
        """Compare with other devices, after `finish`, what the coordinator sent in all sums.

        Raises:
            ProtocolError: the coordinator sent devices different things.
        """
        ...

    def last_epoch(self) -> int:
        """As in `Trainer`."""
        ...

    def is_replayed(self, topic: Topic) -> bool:
        """Return whether `replay_received` receives messages of a topic again."""
        ...

    def refused(self) -> list[int]:
        """Senders of messages of sums that were dropped since the last call."""
        ...

    def excluded(self) -> dict[int, str]:
        """Devices that lied in sums, and how, at the coordinator."""
        ...

    def evidence_files(self) -> dict[int, bytes]:
        """Files of evidence against devices that lied in sums, at the coordinator."""
        ...

    def has_sessions(self, epoch: int) -> bool:
        """Return True if two devices have sessions in epoch `epoch` + 1; after the last epoch, in
        `finish`."""
        ...

    def begin_attempt(self, number: int) -> None:
        """Begin this attempt: sums of another one have other masks, and sessions are opened
        anew."""
        ...


class PairAnswer(NamedTuple):
    """Result of a question about a pair, for one of its ends."""

    score: float
    """Logit of being an edge, as this end has it."""
    answered: bool
    """True if the other end answered; otherwise the score uses only what this end knows."""


@runtime_checkable
class AnswersPairs(Protocol):
    """The result of a device that can be asked about pairs after the training."""

    def question(
        self,
        shard: Shard,
        endpoint: Endpoint,
        group: Group,
        peer: int,
        *,
        asks: bool,
        willing: bool = True,
    ) -> Program[PairAnswer]:
        """One question, at one of its two ends.

        Args:
            shard: the device, without neighbours.
            endpoint: through which the messages pass.
            group: of the sessions.
            peer: the other end.
            asks: whether this end asks; the other one answers.
            willing: whether this end agrees to be scored. Where it does not, it refuses to answer,
                and to its own question it gives the score of what it knows alone.
        """
        ...

    @property
    def used(self) -> tuple[int, int]:
        """Return the numbers of questions that the device asked and answered."""
        ...

    def resume(self, used: Sequence[int]) -> None:
        """Count on from earlier questions: those asked, answered, and of the calibration if known.

        A count never becomes smaller.
        """
        ...

    def state_dict(self, part: StatePart = "run") -> Arrays:
        """As in `ShardResult`; `device` has all that `RestoresAnswers` needs after a restart."""
        ...


@runtime_checkable
class RestoresAnswers(Protocol):
    """A profile whose devices answer about pairs again after a restart."""

    def answers_of(self, config: "Config", seed: int, kept: Arrays) -> AnswersPairs:
        """The result of a device, from the part `device` of `AnswersPairs.state_dict`.

        Raises:
            InputError: an array is missing, or is of another run.
        """
        ...


class CoordinatorProgram(Protocol):
    """The coordinator's program, in the same parts."""

    def setup(self) -> Program[None]:
        """Before the first epoch."""
        ...

    def epochs(self, first: int, last: int) -> Program[None]:
        """Epochs `first` + 1 … `last`."""
        ...

    def finish(self) -> Program[None]:
        """After the last epoch."""
        ...

"""The programs of a training run: what every profile's trainer and coordinator must offer.

A run is `setup`, any number of calls of `epochs`, `finish`. Between two calls it can be
interrupted: `state` has everything that the next epochs depend on.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from lumos.aggregate.opened_sums import OpenedSums
from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger_report import LedgerReport
from lumos.training.outcome import Outcome
from lumos.typing import Arrays, Floats

if TYPE_CHECKING:
    from lumos.training.config import Config


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

    def rows(self) -> Arrays:
        """What hosted devices have, [hosted, …] each; all else is the same at every shard."""
        ...

    def with_rows(self, rows: Arrays) -> Self:
        """The same result with the rows of all devices, in the order of the ids."""
        ...


Result = TypeVar("Result", bound=ShardResult)


class Trainer(Protocol[Result]):
    """The program of one shard."""

    def setup(self) -> Program[None]:
        """Before the first epoch."""
        ...

    def rejoin(self, epoch: int) -> Program[None]:
        """After `restore`, instead of the first `epoch` epochs."""
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

    def state(self) -> Arrays:
        """Everything that the next epochs depend on; the same at every shard."""
        ...

    def restore(self, state: Arrays) -> None:
        """Go on from a state."""
        ...

    def arrays(self) -> Arrays:
        """The trained weights by name; call after `finish`."""
        ...

    def load(self, weights: Arrays, kept: Arrays) -> None:
        """Take the weights of an earlier run, and what else it kept.

        Raises:
            InputError: they are of another model.
        """
        ...

    def welcome(self) -> Program[Floats]:
        """[hosted, classes] logits by the loaded weights, newcomers included."""
        ...


@runtime_checkable
class RestartableTrainer(Protocol):
    """A trainer whose one device can be killed between any two messages, and come back.

    After a restart it sends the same messages again, byte by byte, as far as they are repeated.
    """

    def enrol(self) -> Program[None]:
        """`setup`, without what needs sessions of two devices: epochs make up for it."""
        ...

    def rehear(self, epoch: int) -> Program[None]:
        """After `revive`, instead of the first `epoch` epochs: hear again what was released."""
        ...

    def epochs(self, first: int, last: int, on_epoch: OnEpoch | None = None) -> Program[None]:
        """As in `Trainer`."""
        ...

    def finish(self) -> Program[ShardResult]:
        """As in `Trainer`."""
        ...

    def state(self) -> Arrays:
        """As in `Trainer`."""
        ...

    def arrays(self) -> Arrays:
        """As in `Trainer`."""
        ...

    def snapshot(self) -> Arrays:
        """What it needs to go on after a restart, once it is set up; no key, mask or nonce."""
        ...

    def revive(self, snapshot: Arrays) -> None:
        """Go on from a snapshot, in a trainer that was not set up."""
        ...

    def remember_openings(self, opened: OpenedSums) -> None:
        """Note there what the device gives out shares for."""
        ...

    def compare_told(self) -> Program[None]:
        """After `finish`: compare with others what was told in all sums.

        Raises:
            ProtocolError: the coordinator told devices different things.
        """
        ...

    def refused(self) -> list[int]:
        """Senders of messages of sums that were dropped since the last call."""
        ...

    def has_sessions(self, epoch: int) -> bool:
        """Whether sessions of two devices are open in epoch `epoch` + 1; after the last epoch, in
        `finish`."""
        ...

    def begin_attempt(self, number: int) -> None:
        """What follows is of this attempt: sums of another one have other masks, and sessions are
        opened anew."""
        ...


class PairAnswer(NamedTuple):
    """What a device learns of a pair of which it is an end."""

    score: float
    """Logit of being an edge, as this end has it."""
    answered: bool
    """Whether the other end answered; otherwise the score is of what this end knows alone."""


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
        """How many questions the device asked, and how many of others it answered."""
        ...

    def resume(self, used: tuple[int, int]) -> None:
        """Count on from `used` before a restart; a count never becomes smaller."""
        ...

    def kept(self) -> Arrays:
        """What the device needs to answer after a restart, for `RestoresAnswers`."""
        ...


@runtime_checkable
class RestoresAnswers(Protocol):
    """A profile whose devices answer about pairs again after a restart."""

    def answers_of(self, config: "Config", seed: int, kept: Arrays) -> AnswersPairs:
        """The result of a device, from what `AnswersPairs.kept` gave.

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

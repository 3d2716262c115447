"""Running small federations and listening to everything that passes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.narrow import present

from lumos.exchange.messages import Inbox, Outbox, Topic
from lumos.exchange.transports.loopback import Router
from lumos.graph import Graph
from lumos.runs.run import Run
from lumos.runs.train import train

QUICK = {
    "profile": "paper",
    "compare": "ideal",
    "balancer": "greedy",
    "epochs": 3,
    "floor": False,
}
"""Settings of a run of a fraction of a second, in the paper's profile."""


def run(graph: Any, *, seed: int = 0, shards: int = 1, **settings: Any) -> Run:
    """A short run; keywords are `train`'s and those of `Config.of`."""
    return train(graph, seed=seed, shards=shards, **{**QUICK, **settings})


def findings(run: Run) -> dict[str, Any]:
    """What a run says about its training, without arrays."""
    names = ("best_epoch", "choice", "warnings", "estimates")
    return {"split": run.split_sizes, **{name: getattr(run.model, name) for name in names}}


class Message(NamedTuple):
    """One message, as it passed."""

    sender: int
    receiver: int
    body: bytes
    epsilon: float | None


def _first(body: np.ndarray, length: int) -> np.ndarray:
    return body[:length]


@dataclass
class Wire:
    """Everything that passed, round by round, in the order of receivers and senders."""

    rounds: list[tuple[str, list[Message]]] = field(default_factory=list)

    def hear(self, topic: Topic, outboxes: Sequence[Outbox]) -> None:
        """Take down one round."""
        messages: list[Message] = []
        for batch in (outbox.batch for outbox in outboxes):
            lengths, spent = batch.lengths, batch.epsilon
            bodies = batch.body if lengths is None else map(_first, batch.body, lengths.tolist())
            messages += map(
                Message,
                batch.sender.tolist(),
                batch.receiver.tolist(),
                (body.tobytes() for body in bodies),
                repeat(None) if spent is None else spent.tolist(),
            )
        # A stable sort: messages of one pair keep their order.
        messages.sort(key=lambda message: (message.receiver, message.sender))
        self.rounds.append((topic.name, messages))

    def of(self, name: str) -> list[list[Message]]:
        """The rounds of one topic."""
        return [messages for topic, messages in self.rounds if topic == name]

    def all_of(self, name: str) -> list[Message]:
        """The messages of one topic, over all rounds."""
        return [message for messages in self.of(name) for message in messages]

    def counts(self) -> Counter[tuple[str, Message]]:
        """How often each message passed."""
        return Counter((topic, message) for topic, messages in self.rounds for message in messages)

    def topics(self) -> set[str]:
        """The topics of which something was sent."""
        return {topic for topic, messages in self.rounds if messages}


@contextmanager
def listening() -> Iterator[Wire]:
    """Hear every round, when every party has handed in its outbox and nobody has been resumed."""
    wire, route = Wire(), Router.route

    def heard(self: Router, topic: Topic, outboxes: Sequence[Outbox]) -> list[Inbox]:
        wire.hear(topic, outboxes)
        return route(self, topic, outboxes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Router, "route", heard)
        yield wire


def heard(graph: Any, **settings: Any) -> tuple[Run, Wire]:
    """A short run, and everything that passed."""
    with listening() as wire:
        result = run(graph, **settings)
    return result, wire


def receivers_of(graph: Graph, keep: np.ndarray) -> np.ndarray:
    """[devices] ρ: how many trees have a leaf for the device."""
    return np.bincount(graph.neighbours[keep], minlength=graph.devices)


def losses(result: Run) -> list[float]:
    """The training loss of every epoch."""
    return [present(record.loss) for record in result.history]

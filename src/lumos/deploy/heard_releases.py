"""What a device heard from its neighbours: a snapshot has it, and a trainer hears it again."""

from collections.abc import Collection
from typing import Any

import numpy as np

from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.endpoint import Program
from lumos.exchange.programs import run_alone
from lumos.exchange.topic import TOPICS
from lumos.typing import Arrays

_PREFIX = "heard/"


class HeardReleases:
    """The messages of all rounds in which devices release something to each other, in order."""

    def __init__(self) -> None:
        self._rounds: list[tuple[str, Batch]] = []
        """Topic and messages of each."""

    def add(self, topic: str, batch: Batch) -> None:
        """Keep the messages of a round."""
        self._rounds.append((topic, batch))

    def arrays(self) -> Arrays:
        """All of it, for a snapshot."""
        arrays: Arrays = {}
        for number, (topic, batch) in enumerate(self._rounds):
            lengths = np.empty(0, np.int64) if batch.lengths is None else batch.lengths
            arrays |= {
                f"{_PREFIX}{number}/{topic}/sender": batch.sender,
                f"{_PREFIX}{number}/{topic}/body": batch.body,
                f"{_PREFIX}{number}/{topic}/lengths": lengths,
            }
        return arrays

    @staticmethod
    def of(arrays: Arrays, me: int, absent: Collection[int]) -> "HeardReleases":
        """From a snapshot, without what devices said that are left out since.

        Raises:
            ValueError: a topic does not exist.
            KeyError: an array is missing.
        """
        found: dict[int, tuple[str, dict[str, Any]]] = {}
        for name, array in arrays.items():
            if name.startswith(_PREFIX):
                _, number, *words, field = name.split("/")
                found.setdefault(int(number), ("/".join(words), {}))[1][field] = array
        heard = HeardReleases()
        for _, (topic, fields) in sorted(found.items()):
            if topic not in TOPICS:
                raise ValueError("a topic that does not exist")
            sender = fields["sender"]
            lengths = fields["lengths"] if TOPICS[topic].shape is None else None
            receiver = np.full(len(sender), me, np.int64)
            batch = Batch(sender, receiver, fields["body"], None, lengths)
            heard.add(topic, batch.take(np.flatnonzero(~np.isin(sender, sorted(absent)))))
        return heard

    def hear_again(self, program: Program[None]) -> None:
        """Run a program to its end, in which nothing is sent, and this is heard.

        Raises:
            ValueError: the program has other rounds.
        """
        rounds = iter(self._rounds)

        def answer(outbox: Outbox) -> Inbox:
            topic, batch = next(rounds, ("", outbox.topic.no_messages))
            if topic != outbox.topic.name:
                raise ValueError("what the device heard")
            return Inbox(batch, quiet=False)

        run_alone(program, answer)

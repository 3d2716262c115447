"""Two parties in one test: how they talk, and what they should say."""

from collections.abc import Callable, Sequence

import pytest

from lumos.crypto.groups import GROUPS
from lumos.twoparty.comparison import Kind, Receiver, Sender, Spec
from lumos.twoparty.session import Message

Item = tuple[Spec, int, int]


class Conversation:
    """Runs batches between a sender and a receiver and keeps every message."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self.sender = sender
        self.receiver = receiver
        self.sent: list[tuple[bool, bytes]] = []

    def run(
        self, items: Sequence[Item], tamper: Callable[[int, bytes], bytes] = lambda _, m: m
    ) -> tuple[list[int | None], list[int | None]]:
        self.sent = []
        self.sender.begin([(spec, x) for spec, x, _ in items])
        speaker, listener = (
            (self.receiver, self.sender) if self.receiver.number else (self.sender, self.receiver)
        )
        self.receiver.begin([(spec, y) for spec, _, y in items])
        message = speaker.step()
        while message is not None:
            self.sent.append((speaker is self.receiver, message))
            message = listener.step(tamper(len(self.sent) - 1, message))
            speaker, listener = listener, speaker
        return self.sender.results, self.receiver.results

    def shape(self) -> tuple[Message, ...]:
        return tuple(Message(to_sender, len(message)) for to_sender, message in self.sent)


def plain(spec: Spec, x: int, y: int) -> int:
    """The oracle: what the comparison says in the clear."""
    if spec.kind is Kind.LT:
        return int(x < y)
    return (x > y) - (x < y)


def agrees(item: Item, at_sender: int | None, at_receiver: int | None) -> bool:
    """Whether both ends hold the outcome."""
    return at_sender == at_receiver == plain(*item)


@pytest.fixture
def talk() -> Callable[..., Conversation]:
    """Opens a fresh session between devices 3 and 8; `group` names that of its points."""

    def opened(group: str = "ed25519") -> Conversation:
        chosen = GROUPS[group]
        return Conversation(Sender(3, 8, group=chosen), Receiver(8, 3, group=chosen))

    return opened


@pytest.fixture(name="agrees")
def _agrees() -> Callable[[Item, int | None, int | None], bool]:
    return agrees

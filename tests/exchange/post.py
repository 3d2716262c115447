"""Every message as bytes, routed by plain Python: a second propagated label on `Router` and
`Ledger`."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from lumos.device import COORDINATOR
from lumos.errors import ProtocolError
from lumos.exchange import TOPICS, Batch, Inbox, Outbox, Topic


class Letter(msgspec.Struct, array_like=True, frozen=True):
    sender: int
    receiver: int
    body: bytes
    epsilon: float | None = None


class Post(msgspec.Struct, tag="post"):
    """What one party sends, or gets, in one round."""

    topic: str
    letters: list[Letter]
    quiet: bool = False


Tamper = Callable[[str, list[Letter]], list[Letter]]


def packed(outbox: Outbox) -> bytes:
    """Padding does not travel: of a message of any length only its bytes do."""
    batch = outbox.batch
    letters = []
    for row in range(batch.messages):
        body = batch.body[row].tobytes()
        if batch.lengths is not None:
            body = body[: batch.lengths[row]]
        epsilon = None if batch.epsilon is None else float(batch.epsilon[row])
        letters.append(Letter(int(batch.sender[row]), int(batch.receiver[row]), body, epsilon))
    return msgspec.msgpack.encode(Post(outbox.topic.name, letters))


def unpacked(post: Post) -> Inbox:
    topic, letters = TOPICS[post.topic], post.letters
    if not letters:
        return Inbox(topic.no_messages, post.quiet)
    lengths = None
    if topic.shape is None:
        lengths = np.array([len(literal.body) for literal in letters])
        width = int(lengths.max())
        joined = b"".join(literal.body.ljust(width, b"\0") for literal in letters)
        shape: tuple[int, ...] = (width,)
    else:
        joined, shape = b"".join(literal.body for literal in letters), topic.shape
    body = np.frombuffer(joined, topic.dtype).reshape(len(letters), *shape).copy()
    epsilons = [literal.epsilon for literal in letters if literal.epsilon is not None]
    batch = Batch(
        np.array([literal.sender for literal in letters]),
        np.array([literal.receiver for literal in letters]),
        body,
        np.array(epsilons) if epsilons else None,
        lengths,
    )
    return Inbox(batch, post.quiet)


class PostOffice:
    """Takes the post of all parties of a round, hands each its own, and counts what it handed out.

    Args:
        hosts: party that hosts each device; the coordinator is the last party.
        tamper: may change letters on their way; told the topic and all letters of the round.
    """

    def __init__(self, hosts: Sequence[int], tamper: Tamper | None = None) -> None:
        self._hosts = {**dict(enumerate(hosts)), COORDINATOR: max(hosts) + 1}
        self._tamper = tamper
        self.rounds = 0
        self.sent: Counter[int] = Counter()
        self.received: Counter[int] = Counter()
        self.bytes_sent: Counter[int] = Counter()
        self.bytes_received: Counter[int] = Counter()
        self.took_part: Counter[int] = Counter()
        self.of_topic: Counter[str] = Counter()
        self.bytes_of_topic: Counter[str] = Counter()

    def topic_of(self, post: bytes) -> Topic:
        return TOPICS[msgspec.msgpack.decode(post, type=Post).topic]

    def deliver(self, posts: Sequence[bytes]) -> list[bytes]:
        """`posts` of all devices' parties and, if the topic has it, of the coordinator."""
        opened = [msgspec.msgpack.decode(post, type=Post) for post in posts]
        topic = opened[0].topic
        if any(post.topic != topic for post in opened):
            raise ProtocolError(f"the parties are out of step at topic {topic!r}")
        letters = [literal for post in opened for literal in post.letters]
        letters.sort(key=lambda literal: (literal.receiver, literal.sender))
        self._count(topic, letters)
        if self._tamper is not None:
            letters = self._tamper(topic, letters)
        handed: list[list[Letter]] = [[] for _ in posts]
        for literal in letters:
            handed[self._hosts[literal.receiver]].append(literal)
        return [msgspec.msgpack.encode(Post(topic, own, quiet=not letters)) for own in handed]

    def _count(self, topic: str, letters: list[Letter]) -> None:
        self.rounds += 1
        for literal in letters:
            size = len(literal.body)
            self.sent[literal.sender] += 1
            self.received[literal.receiver] += 1
            self.bytes_sent[literal.sender] += size
            self.bytes_received[literal.receiver] += size
            self.of_topic[topic] += 1
            self.bytes_of_topic[topic] += size
        self.took_part.update(
            {end for literal in letters for end in (literal.sender, literal.receiver)}
        )

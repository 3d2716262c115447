"""Two parties in one test: how they talk, what they should say, and repeatable entropy."""

import hashlib
from collections.abc import Callable, Sequence

import pytest

from lumos.compare import Kind, Message, Receiver, Reveal, Sender, Spec
from lumos.crypto import entropy

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
    if spec.kind is Kind.LE:
        return int(x <= y)
    return (x > y) - (x < y)


def agrees(item: Item, at_sender: int | None, at_receiver: int | None) -> bool:
    """Whether both ends hold what the spec says that they learn, and no more."""
    spec, x, y = item
    right = plain(spec, x, y)
    if spec.reveal is Reveal.SHARES:
        assert at_sender is not None
        assert at_receiver is not None
        bits = at_sender ^ at_receiver
        return (bits if spec.kind is not Kind.THREE_WAY else {0: 1, 1: -1, 2: 0}[bits]) == right
    learned = {
        Reveal.BOTH: (right, right),
        Reveal.SENDER: (right, None),
        Reveal.RECEIVER: (None, right),
    }
    return (at_sender, at_receiver) == learned[spec.reveal]


class Stream:
    """A repeatable stream of bytes in place of the operating system's."""

    def __init__(self, seed: str) -> None:
        self._seed = seed.encode()
        self._block = 0
        self._pool = b""

    def __call__(self, count: int) -> bytes:
        while len(self._pool) < count:
            label = self._seed + self._block.to_bytes(8, "little")
            self._pool += hashlib.shake_256(label).digest(1 << 16)
            self._block += 1
        drawn, self._pool = self._pool[:count], self._pool[count:]
        return drawn


class Toy:
    """The integers modulo a prime under addition: the right distributions, no hardness.

    It lets statistical tests run many sessions. What they test lies above the group; that
    logarithms are hard in edwards25519 is an assumption no sample can test.
    """

    identity = bytes(32)
    order = 2**255 - 19
    generator = 0x9E3779B97F4A7C15F39CC0605CEDC834

    def _point(self, value: int) -> bytes:
        return (value % self.order).to_bytes(32, "little")

    def _draw(self) -> int:
        return int.from_bytes(entropy.draw(40), "little") % self.order

    def key(self) -> tuple[bytes, bytes, bytes]:
        a = self._draw()
        return self._point(a), self._point(a * self.generator), self._point(a * a * self.generator)

    def pair(self) -> tuple[bytes, bytes]:
        b = self._draw()
        return self._point(b), self._point(b * self.generator)

    def multiply(self, scalar: bytes, point: bytes) -> bytes:
        product = int.from_bytes(scalar, "little") * int.from_bytes(point, "little")
        return self._point(product)

    def add(self, left: bytes, right: bytes) -> bytes:
        return self._point(int.from_bytes(left, "little") + int.from_bytes(right, "little"))

    def subtract(self, left: bytes, right: bytes) -> bytes:
        return self._point(int.from_bytes(left, "little") - int.from_bytes(right, "little"))


@pytest.fixture
def talk() -> Callable[[], Conversation]:
    """Opens a fresh session between devices 3 and 8."""
    return lambda: Conversation(Sender(me=3, peer=8), Receiver(me=8, peer=3))


@pytest.fixture(name="agrees")
def _agrees() -> Callable[[Item, int | None, int | None], bool]:
    return agrees


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def seeded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entropy that depends only on the test's name, so that its statistics never flicker."""
    monkeypatch.setattr(entropy, "draw", Stream(request.node.name))


@pytest.fixture
def stream() -> type[Stream]:
    return Stream

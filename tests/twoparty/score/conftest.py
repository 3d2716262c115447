"""Two parties in one test: how they talk, and vectors that they may hold."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from lumos.twoparty.score import LevelSpec, ScoreReceiver, ScoreSender, Shifted
from lumos.twoparty.session import Message

Item = tuple[LevelSpec, Any, Any]


class ScoreConversation:
    """Runs batches between a sender and a receiver and keeps every message."""

    def __init__(self, **settings: Any) -> None:
        self.sender = ScoreSender(3, 8, **settings)
        self.receiver = ScoreReceiver(8, 3, **settings)
        self.sent: list[tuple[bool, bytes]] = []

    def run(
        self, items: Sequence[Item], tamper: Callable[[int, bytes], bytes] = lambda _, m: m
    ) -> tuple[list[int | None], list[int | None]]:
        self.sent = []
        speaker: ScoreSender | ScoreReceiver = self.sender
        listener: ScoreSender | ScoreReceiver = self.receiver
        if self.receiver.number:
            speaker, listener = listener, speaker
        self.sender.begin([(spec, s) for spec, s, _ in items])
        self.receiver.begin([(spec, v) for spec, _, v in items])
        message = speaker.step()
        while message is not None:
            self.sent.append((speaker is self.receiver, message))
            message = listener.step(tamper(len(self.sent) - 1, message))
            speaker, listener = listener, speaker
        return self.sender.results, self.receiver.results

    def shape(self) -> tuple[Message, ...]:
        return tuple(Message(to_sender, len(message)) for to_sender, message in self.sent)


def plain_level(spec: LevelSpec, s: Any, v: Any) -> int:
    """The oracle: what the score says in the clear, without shifts."""
    s, v = (value.vector if isinstance(value, Shifted) else value for value in (s, v))
    product = sum(int(a) * int(b) for a, b in zip(s, v, strict=True))
    return sum(t <= product for t in spec.thresholds)


def plain_levels(items: Sequence[Item]) -> tuple[list[int], list[int]]:
    """The oracle of a batch: what S learns, and what R does. Each has the other's shift."""
    learnt: tuple[list[int], list[int]] = ([], [])
    for spec, s, v in items:
        for of_end, other in zip(learnt, (v, s), strict=True):
            shift = other.shift if isinstance(other, Shifted) else 0
            of_end.append((plain_level(spec, s, v) + shift) % spec.levels)
    return learnt


def short_vector(spec: LevelSpec, randomness: np.random.Generator) -> np.ndarray:
    """A random vector of the spec, cut down until it is short enough."""
    half = 1 << (spec.bits - 1)
    vector = randomness.integers(-half, half, spec.width)
    while (vector**2).sum() > spec.largest_norm:
        vector[randomness.integers(spec.width)] //= 2
        vector[randomness.integers(spec.width)] = 0
    return vector


@pytest.fixture
def talk() -> Callable[..., ScoreConversation]:
    """Opens a fresh session between devices 3 and 8."""
    return ScoreConversation


@pytest.fixture(name="plain_level")
def _plain_level() -> Callable[[LevelSpec, Any, Any], int]:
    return plain_level


@pytest.fixture(name="plain_levels")
def _plain_levels() -> Callable[[Sequence[Item]], tuple[list[int], list[int]]]:
    return plain_levels


@pytest.fixture(name="short_vector")
def _short_vector() -> Callable[[LevelSpec, np.random.Generator], np.ndarray]:
    return short_vector

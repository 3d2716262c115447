"""Who is in a round, and what passes in it: a public function of who falls silent where.

The ideal backend decides and books by it; the secure one is held to it by tests.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.parameters import MaskParameters
from lumos.aggregate.topics import (
    ALIVE,
    LEFT_OUT,
    LOST,
    MASKED,
    REVEAL,
    SHARE,
    SHARES,
    SUM,
    WRAPPED,
    Stage,
    wrapped_bytes,
)
from lumos.exchange.topic import Topic
from lumos.typing import Flags, Ints


class RoundOutcome(NamedTuple):
    """What became of every device in one round, [total] each."""

    shared: Flags
    """Sent its shares."""
    wrapped: Flags
    """Left its wrapped seeds with the coordinator."""
    joined: Flags
    """Is in the round: all of those, or nobody if they are too few."""
    arrived: Flags
    """Its masked vector arrived: it is in the sum, if there is one."""
    asked: Flags
    """Was asked for shares: all of those, or nobody if they are too few."""
    alive: Flags
    """Told its mask neighbours that it was not called lost."""
    answering: Flags
    """Gave shares, and receives the sum."""
    opened: bool
    """Whether there is a sum."""


def round_outcome(
    graph: MaskGraph, parameters: MaskParameters, drop_stage: npt.NDArray[np.int8]
) -> RoundOutcome:
    """The outcome for `drop_stage`: [total] the `Stage` in which each device falls silent."""
    nobody = np.zeros(graph.total, np.bool_)
    wrapped = drop_stage > Stage.WRAPPED
    joined = wrapped if wrapped.sum() >= parameters.minimum else nobody
    enough = graph.count(joined) >= parameters.threshold
    arrived = joined & enough & (drop_stage > Stage.MASKED)
    asked = arrived if arrived.sum() >= parameters.minimum else nobody
    enough = graph.count(arrived) >= parameters.threshold
    alive = asked & enough & (drop_stage > Stage.ALIVE)
    answering = alive & (drop_stage > Stage.REVEAL)
    # A lost device matters if one that is not lost masked with it.
    needed = asked | (joined & ~arrived & (graph.count(asked) > 0))
    opened = asked.any() and (graph.count(answering) >= parameters.threshold)[needed].all()
    return RoundOutcome(
        drop_stage > Stage.SHARES, wrapped, joined, arrived, asked, alive, answering, bool(opened)
    )


class MessageFlow(NamedTuple):
    """Messages and bytes of one topic at each device, [total] each."""

    topic: Topic
    messages: Ints
    bytes: Ints
    up: bool
    """From the devices to the coordinator; else from the coordinator."""


def bookings_among_devices(graph: MaskGraph, outcome: RoundOutcome) -> dict[Topic, Ints]:
    """By topic, [total, 4] what passes among devices comes to at each, as `Booking`s."""
    bookings = {}
    for topic, speaking in ((SHARES, outcome.shared), (ALIVE, outcome.alive)):
        sent, received = graph.neighbours * speaking, graph.count(speaking)
        columns = [sent, received, topic.size * sent, topic.size * received]
        bookings[topic] = np.stack(columns, axis=1)
    return bookings


def flows_of(graph: MaskGraph, outcome: RoundOutcome, vector_bytes: int) -> list[MessageFlow]:
    """What passes between the devices and the coordinator, topic by topic."""
    lost = outcome.joined & ~outcome.arrived
    left_out = outcome.joined * (graph.count(~outcome.wrapped) + 1)
    named_lost = outcome.asked * (graph.count(lost) + 1)
    wrapped, arrived, answering = (
        flags.astype(np.int64) for flags in (outcome.wrapped, outcome.arrived, outcome.answering)
    )
    receiving = answering * outcome.opened
    return [
        MessageFlow(WRAPPED, wrapped, wrapped_bytes(graph.neighbours) * wrapped, True),
        MessageFlow(LEFT_OUT, left_out, LEFT_OUT.size * left_out, False),
        MessageFlow(MASKED, arrived, vector_bytes * arrived, True),
        MessageFlow(LOST, named_lost, LOST.size * named_lost, False),
        MessageFlow(REVEAL, answering, SHARE * graph.count(outcome.joined) * answering, True),
        MessageFlow(SUM, receiving, vector_bytes * receiving, False),
    ]

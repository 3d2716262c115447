"""Who is in a round, and what passes in it: a public function of who falls silent where.

The ideal backend decides and books by it; the secure one is held to it by tests. Its arrays have
the size of the federation: it is for sums in which somebody falls silent.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.pair_keys import WORD
from lumos.aggregate.parameters import MaskParameters
from lumos.aggregate.topics import (
    ALIVE,
    CONFIRMED,
    LEFT_OUT,
    LOST,
    MASKED,
    REVEAL,
    SHARE,
    SUM,
    WRAPPED,
    Stage,
    confirmed_bytes,
    published_bytes,
    wrapped_bytes,
)
from lumos.exchange.topic import Topic
from lumos.exchange.traffic import Booking
from lumos.typing import Flags, Ints


class RoundOutcome(NamedTuple):
    """What became of every device in one round, [total] each."""

    wrapped: Flags
    """Left its wrapped seeds with the coordinator."""
    joined: Flags
    """Is in the round: all of those, or nobody if they are too few."""
    arrived: Flags
    """Its masked vector arrived: it is in the sum, if there is one."""
    asked: Flags
    """Was asked for shares: all of those, or nobody if they are too few."""
    alive: Flags
    """Confirmed to its mask neighbours that it has them in the sum."""
    answering: Flags
    """Was confirmed by enough of them, gave shares, and receives the sum."""
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
    confirmed = graph.count(alive) >= parameters.threshold
    answering = alive & confirmed & (drop_stage > Stage.REVEAL)
    # A lost device matters if one that is not lost masked with it.
    needed = asked | (joined & ~arrived & (graph.count(asked) > 0))
    opened = asked.any() and (graph.count(answering) >= parameters.threshold)[needed].all()
    return RoundOutcome(wrapped, joined, arrived, asked, alive, answering, bool(opened))


def bookings_of_everyone(parameters: MaskParameters, vector_bytes: int) -> dict[Topic, Booking]:
    """By topic, what one sum comes to at each device if nobody falls silent.

    Then all devices are in the sum, and each of them is confirmed by all its mask neighbours: there
    are `minimum` devices or more, and k ≥ t.
    """
    k, t = parameters.neighbours, parameters.threshold
    return {
        WRAPPED: Booking(1, 0, wrapped_bytes(k, t), 0),
        LEFT_OUT: Booking(0, 1, 0, LEFT_OUT.size),
        MASKED: Booking(1, 0, vector_bytes + published_bytes(k, t), 0),
        LOST: Booking(0, 1, 0, LOST.size),
        ALIVE: Booking(1, 0, WORD * k, 0),
        CONFIRMED: Booking(0, 1, 0, confirmed_bytes(k)),
        REVEAL: Booking(1, 0, SHARE * k, 0),
        SUM: Booking(0, 1, 0, vector_bytes),
    }


class MessageFlow(NamedTuple):
    """Messages and bytes of one topic at each device, [total] each."""

    topic: Topic
    messages: Ints
    bytes: Ints
    up: bool
    """From the devices to the coordinator; else from the coordinator."""


def flows_of(
    graph: MaskGraph, parameters: MaskParameters, outcome: RoundOutcome, vector_bytes: int
) -> list[MessageFlow]:
    """What passes between the devices and the coordinator, topic by topic."""
    k, t = parameters.neighbours, parameters.threshold
    lost = outcome.joined & ~outcome.arrived
    holders = graph.count(outcome.joined)
    left_out = outcome.joined * (graph.count(~outcome.wrapped) + 1)
    named_lost = outcome.asked * (graph.count(lost) + 1)
    wrapped, arrived, alive, answering = (
        flags.astype(np.int64)
        for flags in (outcome.wrapped, outcome.arrived, outcome.alive, outcome.answering)
    )
    receiving = answering * outcome.opened
    masked = vector_bytes + published_bytes(0, t) + SHARE * holders
    return [
        MessageFlow(WRAPPED, wrapped, wrapped_bytes(k, t) * wrapped, True),
        MessageFlow(LEFT_OUT, left_out, LEFT_OUT.size * left_out, False),
        MessageFlow(MASKED, arrived, masked * arrived, True),
        MessageFlow(LOST, named_lost, LOST.size * named_lost, False),
        MessageFlow(ALIVE, alive, WORD * k * alive, True),
        MessageFlow(CONFIRMED, alive, confirmed_bytes(k) * alive, False),
        MessageFlow(REVEAL, answering, SHARE * holders * answering, True),
        MessageFlow(SUM, receiving, vector_bytes * receiving, False),
    ]

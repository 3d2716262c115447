"""The oracle of a masked sum: its outcome and messages, by who falls silent where."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.exchange.messages import Topic
from lumos.secagg import MaskParameters, Stage
from lumos.secagg.mask_graph import MaskGraph
from lumos.secagg.masks import WORD
from lumos.secagg.topics import (
    ALIVE,
    CONFIRMED,
    LEFT_OUT,
    LOST,
    MASKED,
    REVEAL,
    SHARE,
    SUM,
    WRAPPED,
    confirmed_bytes,
    published_bytes,
    wrapped_bytes,
)
from lumos.typing import Flags, Ints


class RoundOutcome(NamedTuple):
    """The state of every device at the end of one round, [total] each."""

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
    """True if there is a sum."""


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
    """List what passes between the devices and the coordinator, topic by topic."""
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

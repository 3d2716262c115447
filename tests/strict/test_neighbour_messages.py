"""Messages over some slots: what leaves, what arrives, and what is refused."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lumos.device import Shard, cut
from lumos.errors import ProtocolError
from lumos.exchange import Batch, Inbox
from lumos.graph import Graph
from lumos.strict.messages import PROPAGATED_LABEL, send_over

EDGES = np.array([[0, 1], [0, 2], [1, 2], [3, 4]])


def shard() -> Shard:
    """Devices 0, 1 and 2 know each other, 3 and 4 too; 5 is alone."""
    return cut(Graph.from_edges(EDGES, devices=6), 1, seed=0)[0]


def started(slots: Any = None, width: int = 2) -> tuple[Any, Any]:
    """A program that has sent its messages, and these."""
    hosted = shard()
    over = np.arange(len(hosted.owner)) if slots is None else np.asarray(slots, np.int64)
    bodies = np.stack([hosted.owner[over], over], axis=1).astype(np.uint8)[:, :width]
    program = send_over(PROPAGATED_LABEL, hosted, over, bodies, 4.0, len)
    return program, next(program)


def finished(program: Any, pairs: list[tuple[int, int]], lengths: Any = 2, width: int = 2) -> Any:
    """What it returns when these (sender, receiver) arrive."""
    many = len(pairs)
    body = np.zeros((many, width), np.uint8)
    if many:
        body[:, 0] = [sender & 0xFF for sender, _ in pairs]
    inbox = Inbox(
        Batch(
            np.array([sender for sender, _ in pairs], np.int64),
            np.array([receiver for _, receiver in pairs], np.int64),
            body,
            lengths=np.broadcast_to(np.asarray(lengths, np.int64), many).copy(),
        ),
        quiet=not pairs,
    )
    with pytest.raises(StopIteration) as done:
        program.send(inbox)
    return done.value.value


def test_one_message_leaves_over_each_slot() -> None:
    hosted = shard()
    slots = [0, 2, 5]
    _, outbox = started(slots)
    batch = outbox.batch
    assert outbox.topic is PROPAGATED_LABEL
    assert_array_equal(batch.sender, hosted.owner[slots])
    assert_array_equal(batch.receiver, hosted.neighbours[slots])
    assert_array_equal(batch.body[:, 1], slots)
    assert_array_equal(batch.epsilon, [4.0] * 3)
    assert_array_equal(batch.lengths, [2] * 3)


def test_neighbours_need_not_all_send() -> None:
    program, _ = started()
    received = finished(program, [(1, 0), (2, 0), (4, 3)])
    assert_array_equal(received.receiver, [0, 0, 3])
    assert_array_equal(received.body[:, 0], [1, 2, 4])


def test_nobody_sends() -> None:
    program, outbox = started(slots=[])
    assert outbox.batch.messages == 0
    received = finished(program, [], width=0)
    assert received.receiver.shape == (0,)
    assert received.body.shape == (0, 2)


@pytest.mark.parametrize(
    ("pairs", "lengths", "reason"),
    [
        ([(3, 0)], 2, "a non-neighbour"),
        ([(5, 0)], 2, "a non-neighbour"),
        ([(0, 0)], 2, "a non-neighbour"),
        ([(-1, 0)], 2, "a non-neighbour"),
        ([(1, 0), (1, 0)], 2, "came twice"),
        ([(1, 0), (2, 0)], [2, 1], "wrong length"),
        ([(1, 0)], 0, "wrong length"),
    ],
)
def test_what_no_neighbour_would_send_is_refused(
    pairs: list[tuple[int, int]], lengths: Any, reason: str
) -> None:
    program, _ = started()
    with pytest.raises(ProtocolError, match=reason):
        finished(program, pairs, lengths)


def test_a_longer_message_is_refused() -> None:
    program, _ = started()
    with pytest.raises(ProtocolError, match="wrong length"):
        finished(program, [(1, 0)], 3, width=3)

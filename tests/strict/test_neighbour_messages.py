"""Messages over some slots: what leaves, what arrives, and what is refused."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lumos.device import Shard, cut
from lumos.errors import ProtocolError
from lumos.exchange import Batch, Inbox
from lumos.graph import Graph
from lumos.strict.messages import PROPAGATED_LABEL, send_over, uses_edge

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


# The user of an edge.

KNOWN = "011010111101001101111110110111000111"
"""1 where the larger id is the user."""


def test_the_user_of_an_edge_is_fixed_for_ever() -> None:
    """Known answers of the public hash, also by plain integers: devices of all versions agree."""

    def mix(x: int) -> int:
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x = (x ^ x >> shift) * factor % 2**64
        return x

    g = 0x9E3779B97F4A7C15
    ids = [0, 1, 2, 3, 7, 1000, 22_469, 2**31, 2**53 + 1]
    pairs = np.array(list(combinations(ids, 2)))
    larger = [
        mix((mix((small + g) % 2**64) + large + g) % 2**64) >> 63 == 1
        for small, large in pairs.tolist()
    ]
    assert_array_equal(uses_edge(pairs[:, 1], pairs[:, 0]), larger)
    assert_array_equal(uses_edge(pairs[:, 0], pairs[:, 1]), np.logical_not(larger))
    assert "".join("01"[flag] for flag in larger) == KNOWN


def test_users_are_balanced() -> None:
    """Half of all pairs, of each device's pairs, of neighbouring ids, and of any stride."""
    many = 1200
    one, two = np.divmod(np.arange(many * many), many)
    uses = uses_edge(one, two).reshape(many, many)
    apart = ~np.eye(many, dtype=np.bool_)
    assert (uses ^ uses.T)[apart].all()
    assert uses[apart].mean() == 0.5
    assert np.abs(uses.mean(axis=1) - 0.5).max() < 4.5 * 0.5 / np.sqrt(many)
    for stride in (1, 2, 3, 64, 256):
        ids = np.arange(50_000)
        assert abs(uses_edge(ids, ids + stride).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(len(ids))


def test_of_two_roles_the_device_that_received_a_label_is_the_user() -> None:
    one, two = np.arange(40), np.arange(40) + 1
    yes, no = np.ones(40, np.bool_), np.zeros(40, np.bool_)
    assert not uses_edge(one, two, yes, no).any()
    assert uses_edge(one, two, no, yes).all()
    for same in (yes, no):
        assert_array_equal(uses_edge(one, two, same, same), uses_edge(one, two))

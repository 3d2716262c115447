"""Batches: an order that does not depend on how devices are spread over shards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.exchange import Batch, Outbox
from lumos.exchange import messages as batch
from lumos.exchange.transports.loopback import Router
from lumos.secagg import openings

ids = st.integers(-1, 6)
messages = st.lists(st.tuples(ids, ids), max_size=40)


def batch_of(rows: list[tuple[int, int, int]]) -> Batch:
    """(sender, receiver, number): the number is the first byte of a message of 1 to 3 bytes."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    number = table[:, 2]
    body = np.zeros((len(rows), 3), np.uint8)
    body[:, 0] = number
    return Batch(table[:, 0], table[:, 1], body, number / 8, 1 + number % 3)


def rows_of(batch: Batch) -> list[tuple[int, int, int]]:
    assert batch.epsilon is not None
    assert batch.lengths is not None
    number = batch.body[:, 0].astype(np.int64)
    assert np.array_equal(batch.epsilon, number / 8)
    assert np.array_equal(batch.lengths, 1 + number % 3)
    return list(zip(batch.sender.tolist(), batch.receiver.tolist(), number.tolist(), strict=True))


@given(messages, st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_order_is_stable_and_does_not_depend_on_the_split(
    pairs: list[tuple[int, int]], home: list[int]
) -> None:
    rows = [(sender, receiver, number) for number, (sender, receiver) in enumerate(pairs)]
    expected = sorted(rows, key=lambda row: (row[1], row[0]))  # stable: the number decides last
    assert rows_of(batch_of(rows).in_order()) == expected
    split = [[row for row in rows if home[row[0] + 1] == shard] for shard in range(4)]
    batches = [batch_of(part) for part in split if part]
    if batches:
        assert rows_of(Batch.joined(batches).in_order()) == expected


@pytest.mark.parametrize("by_sender", [True, False])
def test_many_messages_are_ordered_by_counting(
    by_sender: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_MANY", 1)
    rng = np.random.default_rng(0)
    for ids in (1, 3, 40, 2000):
        sender, receiver = rng.integers(-1, ids, (2, 200))
        sender = np.sort(sender) if by_sender else sender
        number, every = np.arange(200), np.broadcast_to(np.float64(0.5), 200)
        ordered = Batch(sender, receiver, number, every).in_order()
        expected = np.lexsort((number, sender, receiver))
        assert np.array_equal(ordered.body, expected)
        assert np.array_equal(ordered.sender, sender[expected])
        assert np.array_equal(ordered.receiver, receiver[expected])
        assert ordered.epsilon is not None
        assert ordered.epsilon.shape == (200,)
        assert ordered.epsilon.strides == (0,)  # one number for all is not copied for each


@given(messages, st.lists(st.integers(0, 3), min_size=7, max_size=7))
def test_every_party_gets_what_is_addressed_to_it(
    pairs: list[tuple[int, int]], home: list[int]
) -> None:
    rows = [(sender, receiver, number) for number, (sender, receiver) in enumerate(pairs)]
    router = Router(np.array(home), 4)
    outbox = Outbox(openings.SHARE, batch_of(rows))
    inboxes = router.route(openings.SHARE, [outbox])
    assert [inbox.quiet for inbox in inboxes] == [not rows] * 5
    for party, inbox in enumerate(inboxes):
        due = [row for row in rows if (home[row[1]] if row[1] >= 0 else 4) == party]
        got = rows_of(inbox.batch) if inbox.batch.messages else []
        assert got == sorted(due, key=lambda row: (row[1], row[0]))


def test_bodies_are_not_shown() -> None:
    shown = repr(batch_of([(0, 1, 123)]))
    assert shown == "Batch(messages=1)"


@given(st.lists(st.tuples(st.integers(0, 4), st.binary(min_size=6, max_size=6)), max_size=20))
def test_packing_keeps_the_messages_and_nothing_else(rows: list[tuple[int, bytes]]) -> None:
    lengths = np.array([length for length, _ in rows], np.int64)
    body = np.frombuffer(b"".join(text for _, text in rows), np.uint8).reshape(-1, 6)
    ids = np.arange(len(rows))
    packed = Batch(ids, ids, body, lengths=lengths).packed()
    assert packed.body.shape == (len(rows), max(lengths, default=0))
    for (length, text), row in zip(rows, packed.body, strict=True):
        assert row.tobytes() == text[:length].ljust(packed.body.shape[1], b"\0")
    assert packed.packed() is packed


def test_packing_many_messages_goes_block_by_block() -> None:
    body = np.full((10_000, 3), 7, np.uint8)
    lengths = np.arange(10_000) % 4
    ids = np.arange(10_000)
    packed = Batch(ids, ids, body, lengths=lengths).packed()
    assert np.array_equal(packed.body, np.where(np.arange(3) < lengths[:, None], 7, 0))
    assert (body == 7).all()


def test_one_body_for_all_receivers_is_not_copied_for_each() -> None:
    body = np.broadcast_to(np.arange(5, dtype=np.uint8), (4, 5))
    batch = Batch(np.full(4, -1), np.arange(4), body, None, np.full(4, 5))
    for rows in (np.array([2, 0]), np.arange(4) > 1, np.empty(0, np.int64)):
        taken = batch.take(rows)
        assert taken.body.strides[0] == 0 or not taken.messages
        assert np.array_equal(taken.body, body[rows])
        assert np.array_equal(taken.receiver, np.arange(4)[rows])

"""Batches: an order that does not depend on how devices are spread over shards."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lumos.exchange import Batch, Outbox, masked
from lumos.exchange.loopback import Router

ids = st.integers(-1, 6)
messages = st.lists(st.tuples(ids, ids), max_size=40)


def batch_of(rows: list[tuple[int, int, int]]) -> Batch:
    table = np.array(rows, np.int64).reshape(-1, 3)
    lengths = table[:, 2] % 3
    return Batch(table[:, 0], table[:, 1], table[:, 2], table[:, 2] / 8, lengths)


def rows_of(batch: Batch) -> list[tuple[int, int, int]]:
    assert batch.epsilon is not None
    assert batch.lengths is not None
    assert np.array_equal(batch.epsilon, batch.body / 8)
    assert np.array_equal(batch.lengths, batch.body % 3)
    return list(
        zip(batch.sender.tolist(), batch.receiver.tolist(), batch.body.tolist(), strict=True)
    )


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


@given(messages, st.lists(st.integers(0, 3), min_size=7, max_size=7))
def test_every_party_gets_what_is_addressed_to_it(
    pairs: list[tuple[int, int]], home: list[int]
) -> None:
    rows = [(sender, receiver, number) for number, (sender, receiver) in enumerate(pairs)]
    router = Router(np.array(home), 4)
    outbox = Outbox(masked.SHARE, batch_of(rows))
    inboxes = router.route(masked.SHARE, [outbox])
    assert [inbox.quiet for inbox in inboxes] == [not rows] * 5
    for party, inbox in enumerate(inboxes):
        due = [row for row in rows if (home[row[1]] if row[1] >= 0 else 4) == party]
        got = rows_of(inbox.batch) if inbox.batch.messages else []
        assert got == sorted(due, key=lambda row: (row[1], row[0]))


def test_bodies_are_not_shown() -> None:
    shown = repr(batch_of([(0, 1, 12345)]))
    assert shown == "Batch(messages=1)"

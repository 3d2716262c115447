"""Messages as bytes between ranks: what is read is what was sent, wherever the bytes lie."""

from typing import Any

import numpy as np
import pytest

from lumos.errors import ProtocolError
from lumos.exchange.messages import TOPICS, Batch, Door, Topic
from lumos.exchange.transports.gloo import TO_SHARD, _batch, _sending
from lumos.ranks.world import Arrived
from lumos.typing import Ints

SHAPES: list[tuple[Any, tuple[int, ...] | None, str]] = [
    (np.float64, (3,), "all"),
    (np.int64, (), "all"),
    (np.uint8, (5,), "all"),
    (np.float32, (0,), "all"),
    (np.uint8, None, "all"),
    (np.uint8, None, "some"),
    (np.uint8, None, "none"),
]
"""Type and shape of bodies, and which of them are as wide as the widest, if widths differ."""


def topic_of(dtype: Any, shape: tuple[int, ...] | None) -> Topic:
    topic = Topic(name="test/bytes", door=Door.OPEN, dtype=dtype, shape=shape, learns="a test")
    del TOPICS[topic.name]
    return topic


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize(("dtype", "shape", "widths"), SHAPES)
def test_what_is_sent_is_what_is_read(
    dtype: Any, shape: tuple[int, ...] | None, widths: str, count: int, once: bool
) -> None:
    """Bodies of any type and width, one for all of them, of no bytes, at any address."""
    random = np.random.default_rng(count)
    topic, lengths = topic_of(dtype, shape), None
    wide = shape if shape is not None else (0 if widths == "none" else 6,)
    body = random.integers(0, 200, (count, *wide)).astype(dtype)
    if once:
        body = np.broadcast_to(body[:1], body.shape)
    if shape is None:
        lengths = np.full(count, wide[0], np.int64)
        if widths == "some":
            lengths[0] = 2
    ids: Ints = random.integers(0, 2**31 - 1, (2, count))
    sent = _sending(Batch(ids[0], ids[1], body, None, lengths))
    for shift in range(4):  # what other ranks sent lies before it
        received = np.concatenate([np.zeros(shift, np.uint8), sent.body])[shift:]
        read = _batch(topic, Arrived(sent.messages, sent.width, received), TO_SHARD)
        assert (read.sender == ids[0]).all()
        assert (read.receiver == ids[1]).all()
        assert read.body.dtype == dtype
        assert np.array_equal(read.body, body)
        assert (read.lengths is None) == (lengths is None)
        assert lengths is None or np.array_equal(np.asarray(read.lengths), lengths)


def test_bytes_that_are_no_messages_are_refused() -> None:
    topic = topic_of(np.int64, (2,))
    ids = np.arange(3)
    sent = _sending(Batch(ids, ids, np.zeros((3, 2), np.int64)))
    for messages, width, body in (
        (2, sent.width, sent.body),
        (3, sent.width - 4, sent.body),
        (3, sent.width | 1, sent.body),
        (3, sent.width, sent.body[:-1]),
    ):
        with pytest.raises(ProtocolError, match="bytes arrived that are no messages"):
            _batch(topic, Arrived(messages, width, body), TO_SHARD)

"""What the messages of a topic must look like: types, shapes, words, ε, and no padding.

Everything is read from the arrays that travel, nothing from what their sender says about them. No
message of an error carries a body.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.errors import ProtocolError
from lumos.exchange.batch import Batch
from lumos.exchange.tally import nondecreasing
from lumos.exchange.topic import PUBLIC_ID, TOPICS, Door, Topic
from lumos.typing import Bytes, Ints

_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)
_HANDFUL = 8
_ROWS = 1 << 18  # messages compared at a time


def check_form(topic: Topic, batch: Batch, *, arriving: bool = False) -> None:
    """Check that a batch with at least one message has the form that its topic declares.

    Args:
        arriving: on the way in, ε may be missing: it is the sender's account, and need not travel.
    """
    if TOPICS.get(topic.name) is not topic:
        raise ProtocolError(f"topic {topic.name!r} is not the declared topic of that name")
    sender, receiver, body, lengths = batch.sender, batch.receiver, batch.body, batch.lengths
    one_each = (batch.messages,)
    if not (
        type(sender) is type(receiver) is np.ndarray
        and sender.dtype == receiver.dtype == _INT64
        and sender.shape == receiver.shape == one_each
    ):
        raise ProtocolError(f"topic {topic.name!r}: sender and receiver are one int64 id a message")
    if type(body) is not np.ndarray:
        raise ProtocolError(f"topic {topic.name!r}: a message body is not a plain array")
    # A message of any length is a row of bytes, however wide.
    shape = topic.shape if topic.shape is not None else (body.shape[-1],)
    if body.dtype != topic.element or body.shape != one_each + shape:
        raise ProtocolError(
            f"topic {topic.name!r}: a message body is {body.dtype}{list(body.shape[1:])}, "
            f"not {topic.element}{list(topic.shape) if topic.shape is not None else '[any]'}"
        )
    words = topic.vocabulary
    if words and words is not PUBLIC_ID and _largest(body) >= len(words):
        raise ProtocolError(f"topic {topic.name!r}: a word outside its vocabulary")
    if topic.shape is None or lengths is not None:
        _check_lengths(topic, batch)
    if batch.epsilon is not None or (topic.door is Door.RELEASE and not arriving):
        _check_epsilon(topic, batch)


def _largest(words: Bytes) -> int:
    if words.size <= _HANDFUL:  # three times as fast as a call of numpy
        return max(words.ravel().tolist(), default=0)
    return int(np.maximum.reduce(words, axis=None))


def _check_lengths(topic: Topic, batch: Batch) -> None:
    lengths = batch.lengths
    if topic.shape is not None or lengths is None:
        raise ProtocolError(
            f"topic {topic.name!r}: messages of any length state their `lengths`, others do not"
        )
    if (
        type(lengths) is not np.ndarray
        or lengths.dtype != _INT64
        or lengths.shape != (batch.messages,)
        or lengths.min() < 0
        or lengths.max() > batch.body.shape[1]
    ):
        raise ProtocolError(f"topic {topic.name!r}: `lengths` are not those of its messages")


def _check_epsilon(topic: Topic, batch: Batch) -> None:
    epsilon = batch.epsilon
    if (topic.door is Door.RELEASE) != (epsilon is not None):
        raise ProtocolError(f"topic {topic.name!r}: a release, and only a release, states its ε")
    if epsilon is None:
        return
    if (
        type(epsilon) is not np.ndarray
        or epsilon.dtype != _FLOAT64
        or epsilon.shape != (batch.messages,)
    ):
        raise ProtocolError(f"topic {topic.name!r}: `epsilon` is not one float64 per message")
    if not epsilon.min() >= 0:  # nor is NaN
        raise ProtocolError(f"topic {topic.name!r}: ε must be at least 0 for every message")


def check_no_padding(topic: Topic, batch: Batch) -> None:
    """Check that nothing travelled beside the messages."""
    if batch.packed() is not batch:
        raise ProtocolError(f"topic {topic.name!r}: bytes arrived that belong to no message")


def check_common(topic: Topic, rows: Ints, batch: Batch) -> None:
    """Check that each sender tells all its receivers of the round the same, at the same ε.

    Args:
        rows: [messages] positions of the senders.
    """
    if not nondecreasing(rows):
        order = np.argsort(rows, kind="stable")
        rows, batch = rows[order], batch.take(order)
    # Equal neighbours all along the messages of a sender make all of them equal.
    of_one = rows[1:] == rows[:-1]
    for values in (batch.body, batch.lengths, batch.epsilon):
        if values is None or not values.size or values.strides[0] == 0:
            continue  # one value for all messages
        for start in range(0, len(of_one), _ROWS):
            contents = _as_bits(values[start : start + _ROWS + 1])
            differs = contents[1:] != contents[:-1]
            differs = differs if differs.ndim == 1 else differs.any(axis=1)
            if np.count_nonzero(differs & of_one[start : start + _ROWS]):
                raise ProtocolError(
                    f"topic {topic.name!r}: a release that is common to its receivers differs "
                    "between them"
                )


def _as_bits(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[messages] or [messages, bytes]: as numbers, 0.0 and -0.0 would be equal, and no NaN."""
    if values.ndim == 1:
        return np.ascontiguousarray(values).view(f"u{values.itemsize}")
    return np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)

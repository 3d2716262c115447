"""Messages that carry one number below a public limit, little-endian in one byte or two."""

import numpy as np

from lumos.errors import ProtocolError
from lumos.typing import Bytes, Doubles, Ints


def number_width(limit: int) -> int:
    """Bytes of a number below `limit`, which is at most 2^16."""
    return 1 if limit <= 256 else 2


def write_numbers(numbers: Ints, width: int) -> Bytes:
    """[messages, width] the bytes of each number."""
    columns = [(numbers >> (8 * place)) & 0xFF for place in range(width)]
    return np.stack(columns, axis=1).astype(np.uint8)


def read_numbers(messages: Bytes, limit: int) -> Ints:
    """[messages] the number that each message carries.

    Raises:
        ProtocolError: it is not below `limit`.
    """
    numbers = np.zeros(len(messages), np.int64)
    for place in range(messages.shape[1]):
        numbers |= messages[:, place].astype(np.int64) << (8 * place)
    if len(numbers) and numbers.max() >= limit:
        raise ProtocolError("a released symbol is out of range")
    return numbers


def one_hot(messages: Bytes, limit: int) -> Doubles:
    """[messages, limit] 1 in the column that each message names.

    Raises:
        ProtocolError: a message names none.
    """
    numbers = read_numbers(messages, limit)
    rows = np.zeros((len(numbers), limit))
    rows[np.arange(len(numbers)), numbers] = 1
    return rows

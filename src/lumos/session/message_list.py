"""The public list of messages: who sends how many bytes, fixed before the first is sent."""

from typing import NamedTuple

NONCE = 16
"""Bytes of each end's nonce."""
CHECK = 1
"""Bytes of the check behind a message that carries one."""


class Message(NamedTuple):
    """One message of the public list."""

    to_sender: bool
    length: int

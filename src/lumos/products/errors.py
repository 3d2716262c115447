"""What can go wrong in a product of two matched devices.

ProtocolError               a message broke the rules; the session is closed, nothing is revealed
├── WrongLength             a message is longer or shorter than the public settings say
├── BadPoint                a received point or key is not in its group
├── CheckFailed             a message, or a word, is not what the partner sent
├── Replay                  pads under this (step, attempt) may have been used
├── OutOfOrder              a message, or a call, is not the one that is due
├── SessionClosed           the session has ended: by an error, by close(), or by a fork
└── WrongSender             a message came from a device that is not the receiver's partner

No message carries a choice, a number, a share, a key or a point.
"""

from lumos.aggregate.errors import WrongSender
from lumos.crypto.group import BadPoint
from lumos.errors import WrongLength
from lumos.session.errors import CheckFailed, OutOfOrder, Replay, SessionClosed

__all__ = [
    "BadPoint",
    "CheckFailed",
    "OutOfOrder",
    "Replay",
    "SessionClosed",
    "WrongLength",
    "WrongSender",
]

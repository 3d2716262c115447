"""What can go wrong in a session.

ProtocolError               a message broke the rules; the session is closed, nothing is revealed
├── WrongLength             a message is longer or shorter than the public list says; it is shared
│                           with masked sums and lives in `lumos.errors`
├── BadPoint                a received point is not in the group (`lumos.crypto.group`)
├── BadValue                a value, an outcome or padding lies outside its range
├── CheckFailed             the two parties have not seen the same messages
├── Replay                  an index that was answered is asked again with another message
├── OutOfOrder              a message, or a call, is not the one that is due
└── SessionClosed           the session has ended: by an error, by close(), or by a fork

No message carries a value, a digit, a share, a scalar or a point.
"""

from lumos.errors import ProtocolError


class BadValue(ProtocolError):
    """A value, an outcome or padding lies outside its range."""


class CheckFailed(ProtocolError):
    """The two parties have not seen the same messages."""


class Replay(ProtocolError):
    """An index that was answered is asked again with another message."""


class OutOfOrder(ProtocolError):
    """A message, or a call, is not the one that is due."""


class SessionClosed(ProtocolError):
    """The session has ended: by an error, by ``close()``, or by a fork."""

"""What can go wrong in a masked sum.

ProtocolError               a message broke the rules; the round is closed, nothing is revealed
├── WrongLength             a message is longer or shorter than the public settings say; it is
│                           shared with comparisons and lives in `lumos.errors`
├── WrongSender             a message came from a party that has no part in it, or came twice
├── Forged                  a public key, a word or an opened secret is not the sender's
├── Equivocation            the coordinator told two devices different things
├── DrawVoid                the mask graph could not be drawn: contributions were missing
├── ObjectionIgnored        the coordinator wants to open a sum to which a device objected
├── BothSecrets             somebody asked a holder for both secrets of one device
└── AlreadyOpened           somebody asked a holder for a second attempt of a step that it opened

No message carries a number, a share, a key or a mask.
"""

from lumos.errors import ProtocolError


class WrongSender(ProtocolError):
    """A message came from a party that has no part in it, or came twice."""


class Forged(ProtocolError):
    """A public key, a word or an opened secret is not the sender's."""


class Equivocation(ProtocolError):
    """The coordinator told two devices different things."""


class DrawVoid(ProtocolError):
    """The mask graph could not be drawn: contributions were missing in every draw."""


class ObjectionIgnored(ProtocolError):
    """The coordinator wants to open a sum to which a device objected."""


class BothSecrets(ProtocolError):
    """Somebody asked a holder for both secrets of one device."""


class AlreadyOpened(ProtocolError):
    """Somebody asked a holder for a second attempt of a step that it helped to open."""

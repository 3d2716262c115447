"""Two devices compare two numbers and learn one bit (or a sign), and nothing else.

S (``Sender``) holds x, R (``Receiver``) holds y, both of ℓ ≤ 32 bits. The protocol is pure: bytes
in, bytes out. Neither party knows a carrier or the other's object. Both are given the same public
list of specs and then take turns:

    spec = Spec(bits=8, kind="lt", reveal="both")
    sender, receiver = Sender(me=3, peer=8), Receiver(me=8, peer=3)
    sender.begin([(spec, x)])
    receiver.begin([(spec, y)])
    message = sender.step()              # the session's opening, once
    message = receiver.step(message)     # one point per digit
    message = sender.step(message)       # the table
    message = receiver.step(message)     # the outcome
    sender.step(message)
    sender.results, receiver.results     # both [1] if x < y, else [0]

In later batches of the session the receiver sends first. The comparisons of a batch go side by
side: message k of a batch is the concatenation of their messages k. A point has P bytes: 32 in the
group `ed25519`, the default, and 33 in `secp256k1` (`group=SECP256K1` at both ends).

| message | from | bytes |
|---|---|---|
| opening, once per session | S | nonce 16 ‖ A P |
| points (before them, once per session, R's nonce 16) | R | P per digit of at most 4 bits |
| tables, ℓ ≤ 12 | S | ⌈2^ℓ/8⌉ per output bit; then check 1 |
| tables, ℓ > 12, and S's opening of level 1 | S | leaves, triples, bits (``spec.parts``); check 1 |
| openings, ℓ > 12, alternating | R, S | ⌈bits/8⌉ per comparison; check 1 |
| answer: the outcome, or the last share | last to receive | 1 per comparison |

``messages(specs, first=...)`` gives the list for any batch. ``lt`` and ``le`` have one output bit,
``three_way`` has two (lt, eq).

*Binding.* One session serves comparisons of different ℓ and kinds, so these are not in sid: every
pad is H(sid, A, idx, ℓ, kind, reveal, B, v, W), and idx never repeats in a session.
*Check.* CRC-8 of everything both should have seen since the session began: ids, specs, messages.
It finds any single flipped bit, and one differing spec, with certainty, other damage with
probability 255/256. It is computed from public bytes, so it reveals nothing; it is no signature:
authenticity is the carrier's.
*Answer.* One of four words of 8 bits with distance 5, XOR the check.
*Once.* A message that is received again under the same number gets the same reply again; other
bytes under that number close the session, as does every error. A session is never written down.
"""

from lumos.compare.receiver import Receiver
from lumos.compare.sender import Sender
from lumos.compare.spec import Kind, Reveal, Spec, messages
from lumos.crypto.group import BadPoint
from lumos.session.errors import BadValue, CheckFailed, OutOfOrder, Replay, SessionClosed
from lumos.session.message_list import Message

__all__ = [
    "BadPoint",
    "BadValue",
    "CheckFailed",
    "Kind",
    "Message",
    "OutOfOrder",
    "Receiver",
    "Replay",
    "Reveal",
    "Sender",
    "SessionClosed",
    "Spec",
    "messages",
]

"""Two devices learn the level of the dot product of two small vectors, and nothing else.

S (``ScoreSender``) holds s, R (``ScoreReceiver``) holds v, both of ``width`` signed integers of at
most 4 bits. The level is the number of public thresholds that ⟨s, v⟩ has reached. The protocol is
pure: bytes in, bytes out, in the sessions of `lumos.session`:

    spec = LevelSpec(width=24, bits=4, ring_bits=10, thresholds=(20, 60, 120))
    sender, receiver = ScoreSender(me=3, peer=8), ScoreReceiver(me=8, peer=3)
    sender.begin([(spec, s)])
    receiver.begin([(spec, v)])
    message = sender.step()              # the session's opening, once
    message = receiver.step(message)     # one point per coordinate
    message = sender.step(message)       # a table of products per coordinate
    message = receiver.step(message)     # one point per digit of R's share
    message = sender.step(message)       # the table of levels
    message = receiver.step(message)     # the level
    sender.step(message)
    sender.results, receiver.results     # both [0], [1], [2] or [3]

For coordinate i, S masks the table v ↦ s_i·v + r_i mod 2^ring_bits with a fresh r_i, and R reads
the entry of its v_i. What R reads sums to ⟨s, v⟩ + Σ r_i, its share, a uniform number; S's share is
-Σ r_i. A second table has the level of j - Σ r_i for each share j that R could hold.

A point has P bytes: 32 in the group `ed25519`, the default, and 33 in `secp256k1`.

| message | from | bytes (24 coordinates, ring of 10 bits, 4 levels, P = 32) |
|---|---|---|
| opening, once per session | S | nonce 16 ‖ A P |
| points (before them, once per session, R's nonce 16) | R | P per coordinate (768) |
| products | S | ⌈2^bits/8⌉ per coordinate and bit of the ring (480); then check 1 |
| share | R | P per digit of at most 4 bits (96) |
| levels | S | ⌈2^ring_bits/8⌉ per bit of the level (256); then check 1 |
| answer | R | 1 per score |

``messages(specs, first=...)`` gives the list for any batch. Binding, check, repeats and errors are
those of the comparison (`lumos.compare`); the code of a spec is a hash of all its fields.

*Range.* A vector whose squared norm is above 2^(ring_bits-1) - 1 is refused, so by Cauchy-Schwarz
every product lies in the ring and none wraps around.
*Shift.* An end may give ``Shifted(v, shift)``: the other then learns (level + shift) mod levels. A
shift drawn at random makes the answer a randomized response towards the other end. S adds its shift
in the table of levels, R in what it tells, and S takes its own shift off again.
*Answer.* One word of a code of 8 bits XOR the check: distance 5 up to four levels, else 4.
"""

from lumos.score.backend import make_scorer
from lumos.score.ideal import IDEAL_TOPICS, IdealScorer
from lumos.score.level_spec import LevelSpec, messages
from lumos.score.score_receiver import ScoreReceiver
from lumos.score.score_sender import ScoreSender
from lumos.score.score_state import Shifted
from lumos.score.scorer import Scorer
from lumos.score.secure import SecureScorer

__all__ = [
    "IDEAL_TOPICS",
    "IdealScorer",
    "LevelSpec",
    "ScoreReceiver",
    "ScoreSender",
    "Scorer",
    "SecureScorer",
    "Shifted",
    "make_scorer",
    "messages",
]

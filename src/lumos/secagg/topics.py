"""The messages of masked sums: their topics, in the order in which they pass, and their bytes.

SETUP:

| round | from → to | bytes |
|---|---|---|
| draw-commitment | device → coordinator | 32 |
| draw-digest | coordinator → every device | 32: the hash of all commitments |
| draw-contribution | device → coordinator | 16 |
| draw-list | coordinator → every device | 16 n: all contributions |
| keys | device → its k mask neighbours | 48: a public key; a tag of the seed |

These five pass once per run; the first four again, at most `DRAWS` times in all, where a draw is
void. Each sum then passes between the devices and the coordinator alone, 8 messages at a device.
`wrapped` and `left-out` are the stage SHARE_KEYS, `masked` and `lost` COLLECT_MASKED_VECTORS, the
others UNMASK:

| round | from → to | bytes |
|---|---|---|
| wrapped | device → coordinator | 16 k: pair seeds under the pair secret; 16 (k - t) + 16 (a) |
| left-out | coordinator → device | 8 for each neighbour that is left out, 8 for "go on" |
| masked | device → coordinator | the vector, 1 to 8 a number; 16 (j - t) + 16 (b) |
| lost | coordinator → device | 8 for each neighbour that is lost, 8 for "open" |
| alive | device → coordinator | 12 k: for each neighbour in the sum a word that proves it |
| confirmed | coordinator → device | 12 + k/8: the words for it added up, and whose they are |
| reveal | device → coordinator | 16 for each neighbour in the round: one share |
| sum | coordinator → device | the sum, as many a number |

(a) corrections of the shares of the pair secret, and a commitment to it; (b) the same of the self
secret, for j neighbours in the round.

Real devices compare afterwards the sums that they received (`SecureAggregator.compare_told`):

| round | from → to | bytes |
|---|---|---|
| told | device → its k mask neighbours | 32: a digest of all sums |

An attempt (`lumos.secagg.openings`) has two rounds more, between `lost` and `alive`:

| round | from → to | bytes |
|---|---|---|
| objection | device → coordinator | 8: zero or a random number, masked |
| verdict | coordinator → every device | 1 |
"""

from enum import IntEnum

import numpy as np

from lumos.device.shard import COORDINATOR
from lumos.errors import WrongSender
from lumos.exchange.messages import PUBLIC_ID, Door, Inbox, Topic
from lumos.secagg.masks import COMMITMENT, KEY, SEED, WORD
from lumos.secagg.shares import LIMBS


class Stage(IntEnum):
    """The stage in which a device falls silent: it sends nothing there, nor later in the round."""

    WRAPPED = 0
    MASKED = 1
    ALIVE = 2
    REVEAL = 3
    NEVER = 4


ROUNDS = 8
"""Rounds of the exchange in one sum."""
ATTEMPT_ROUNDS = ROUNDS + 2
"""Rounds of the exchange in one attempt, without those in which devices find their objections."""

DRAW_ROUNDS = 4
"""Rounds of the exchange in one draw of the mask graph."""

CONTRIBUTION = 16
"""Bytes that a device contributes to the seed of the mask graph."""
PUBLIC_HASH = 32
"""Bytes of a commitment, of the hash of all of them, and of the seed."""
SEED_TAG = 16
"""Bytes by which mask neighbours compare their seeds."""
SHARE = 2 * LIMBS
"""Bytes of one share of one secret."""

DRAW_COMMITMENT = Topic(
    name="aggregate/draw-commitment",
    door=Door.AGGREGATE,
    shape=(PUBLIC_HASH,),
    coordinator="receives",
    learns="the coordinator gets a hash of random bytes, which hides them for now",
)
DRAW_DIGEST = Topic(
    name="aggregate/draw-digest",
    door=Door.AGGREGATE,
    shape=(PUBLIC_HASH,),
    coordinator="sends",
    learns="everybody gets one hash of what all devices bound themselves to",
)
DRAW_CONTRIBUTION = Topic(
    name="aggregate/draw-contribution",
    door=Door.AGGREGATE,
    shape=(CONTRIBUTION,),
    coordinator="receives",
    learns="the coordinator gets random bytes of a device, for the draw of the mask graph",
)
DRAW_LIST = Topic(
    name="aggregate/draw-list",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="sends",
    learns="everybody learns the random bytes of all devices, which draw the mask graph",
)
KEYS = Topic(
    name="aggregate/keys",
    door=Door.AGGREGATE,
    shape=(KEY + SEED_TAG,),
    learns="a fresh public key of a device, told to its neighbours on the random mask graph",
)
WRAPPED = Topic(
    name="aggregate/wrapped",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="receives",
    learns="the coordinator gets encrypted mask seeds; it can read those of lost devices only",
)
LEFT_OUT = Topic(
    name="aggregate/left-out",
    door=Door.CONTROL,
    dtype=np.int64,
    vocabulary=PUBLIC_ID,
    coordinator="sends",
    learns="a device learns which mask neighbours are not in the round; its own id says: go on",
)
MASKED = Topic(
    name="aggregate/masked",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="receives",
    learns="the coordinator gets masked vectors; only their sum becomes visible",
)
LOST = Topic(
    name="aggregate/lost",
    door=Door.CONTROL,
    dtype=np.int64,
    vocabulary=PUBLIC_ID,
    coordinator="sends",
    learns="a device learns which mask neighbours were lost; its own id says: open the others",
)
ALIVE = Topic(
    name="aggregate/alive",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="receives",
    learns="the coordinator passes on random words: a device has these mask neighbours in the sum",
)
CONFIRMED = Topic(
    name="aggregate/confirmed",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="sends",
    learns="a device learns which mask neighbours have it in the sum",
)
OBJECTION = Topic(
    name="aggregate/objection",
    door=Door.AGGREGATE,
    dtype=np.uint64,
    coordinator="receives",
    learns="the coordinator learns whether any device objects to opening a sum, and not which",
)
VERDICT = Topic(
    name="aggregate/verdict",
    door=Door.CONTROL,
    vocabulary=("open", "called off"),
    coordinator="sends",
    learns="everyone learns whether an attempt at a sum is called off",
)
REVEAL = Topic(
    name="aggregate/reveal",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="receives",
    learns="the coordinator gets one share for each device: it opens one of its two secrets",
)
SUM = Topic(
    name="aggregate/sum",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="sends",
    learns="everybody in the round learns the sum over the devices whose vectors arrived",
)

TOLD = Topic(
    name="aggregate/told",
    door=Door.AGGREGATE,
    shape=(PUBLIC_HASH,),
    learns="mask neighbours learn whether they were told the same sums",
)


def wrapped_bytes(neighbours: int, threshold: int) -> int:
    """Bytes of one `wrapped` message."""
    return SEED * neighbours + COMMITMENT + SHARE * (neighbours - threshold)


def published_bytes(holders: int, threshold: int) -> int:
    """Bytes of one `masked` message behind the vector, with so many holders in the round."""
    return COMMITMENT + SHARE * (holders - threshold)


def confirmed_bytes(neighbours: int) -> int:
    """Bytes of one `confirmed` message."""
    return WORD + -(-neighbours // 8)


def check_from_coordinator(inbox: Inbox) -> None:
    """Raise `WrongSender` unless all messages are the coordinator's."""
    if (inbox.sender != COORDINATOR).any():
        raise WrongSender("a device spoke in place of the coordinator")

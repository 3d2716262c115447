"""The messages of masked sums: their topics, in the order in which they pass, and their bytes.

SETUP:

| round | from → to | bytes |
|---|---|---|
| draw-commitment | device → coordinator | 32 |
| draw-digest | coordinator → every device | 32: the hash of all commitments |
| draw-contribution | device → coordinator | 16 |
| draw-list | coordinator → every device | 16 n: all contributions |
| keys | device → its k mask neighbours | 48: a public key; a tag of the seed |

These five pass once per run; the first four again where a draw is void, which costs a device each
time (`MaskParameters.draws`). Each sum then passes between the devices and the coordinator alone, 8
messages at a device. `wrapped` and `left-out` are the stage SHARE_KEYS, `masked` and `lost`
COLLECT_MASKED_VECTORS, the others UNMASK:

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

A sum with proofs (`lumos.secagg.bounded`) has 8 rounds too, where nobody lies or falls silent. Pair
secrets, `lost` and confirmations are not needed there, and `reveal` has shares of self secrets
alone:

| round | from → to | bytes |
|---|---|---|
| pledge | device → coordinator | 64 k: hashes of what it shares with its neighbours; 32; 64 (c) |
| left-out | coordinator → device | as above, and pairs whose pledges differ |
| masked | device → coordinator | as above |
| challenge | coordinator → device | 64: a nonce, and a digest of all masked vectors |
| proof | device → coordinator | a proof that the summand is short; 64 (c) |
| decision | coordinator → every device | 1: open; again, without some devices; or find who lied |
| reveal, sum | as above | as above; `reveal` 64 more (c); `sum` is 1 byte if evidence follows |
| evidence | coordinator → device | proofs that devices lied about their self masks |
| seeds | device → coordinator | 16 for each of them: the pair seed shared with it |

(c) a signature; the 32 bytes of `pledge` are a digest of the sums that the device knows. The last
two rounds pass only where somebody lied after its proof. To find who lied in a proof, `alive`,
`confirmed` and `reveal` pass, as above, `alive` with a signature; `reveal` has pair seeds there.
"""

from enum import IntEnum

import numpy as np

from lumos.device.shard import COORDINATOR
from lumos.errors import WrongSender
from lumos.exchange.messages import PUBLIC_ID, Door, Inbox, Topic
from lumos.secagg.masks import COMMITMENT, KEY, PLEDGE_BYTES, SEED, WORD
from lumos.secagg.shares import LIMBS
from lumos.secagg.signing import SIGNATURE


class Stage(IntEnum):
    """The stage in which a device falls silent: it sends nothing there, nor later in the round."""

    WRAPPED = 0
    MASKED = 1
    ALIVE = 2
    REVEAL = 3
    NEVER = 4


ROUNDS = 8
"""Rounds of the exchange in one sum."""
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

PLEDGE = Topic(
    name="aggregate/pledge",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="receives",
    learns="the coordinator gets hashes of random numbers that a device shares with neighbours",
)
CHALLENGE = Topic(
    name="aggregate/challenge",
    door=Door.AGGREGATE,
    shape=(2 * PUBLIC_HASH,),
    coordinator="sends",
    learns="everybody in the round gets a nonce and a digest, from which a random matrix follows",
)
PROOF = Topic(
    name="aggregate/proof",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="receives",
    learns="the coordinator learns that a device's summand is short, and nothing else",
)
DECISION = Topic(
    name="aggregate/decision",
    door=Door.CONTROL,
    vocabulary=("open", "again", "blame", "too few devices"),
    coordinator="sends",
    learns="everyone learns whether a sum is opened, or made again without some devices",
)
EVIDENCE = Topic(
    name="aggregate/evidence",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="sends",
    learns="everybody in the round learns the self secret of a device that lied about its mask",
)
SEEDS = Topic(
    name="aggregate/seeds",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="receives",
    learns="the coordinator gets the seeds that devices share with one that lied, and no others",
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


def pledge_bytes(neighbours: int) -> int:
    """Bytes of one `pledge` message."""
    return PLEDGE_BYTES * neighbours + PUBLIC_HASH + SIGNATURE


def confirmed_bytes(neighbours: int) -> int:
    """Bytes of one `confirmed` message."""
    return WORD + -(-neighbours // 8)


def check_from_coordinator(inbox: Inbox) -> None:
    """Raise `WrongSender` unless all messages are the coordinator's."""
    if (inbox.sender != COORDINATOR).any():
        raise WrongSender("a device spoke in place of the coordinator")

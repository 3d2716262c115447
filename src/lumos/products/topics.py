"""What passes between the two devices of a pair, and how long it is.

| round | when | bytes, each way |
|---|---|---|
| opening, points, columns | once per run | 80; 4,112; 128 ⌈F/8⌉ + 16 |
| correction | each attempt of each step | F K word + 16 |
| ready | each attempt, before masking | 16: "I hold my share" |
| present | each attempt, before anything is opened | 16: "I am in the sum with my share" |
"""

from lumos.exchange.topic import Door, Topic
from lumos.products.pair_session import CHECK, OPENING, POINTS_MESSAGE

SETUP_ROUNDS = 3
STEP_ROUNDS = 3
"""Rounds of one attempt beside those of `lumos.aggregate.topics`."""

OPEN_PAIR = Topic(
    name="products/opening",
    door=Door.AGGREGATE,
    shape=(OPENING,),
    learns="fresh public keys, told to the partner",
)
BASE_POINTS = Topic(
    name="products/points",
    door=Door.AGGREGATE,
    shape=(POINTS_MESSAGE,),
    learns="points of oblivious transfers; the partner learns nothing",
)
COLUMNS = Topic(
    name="products/columns",
    door=Door.AGGREGATE,
    shape=None,
    learns="a device's chosen words under one-time masks; the partner learns nothing",
)
CORRECTION = Topic(
    name="products/correction",
    door=Door.AGGREGATE,
    shape=None,
    learns="a device's numbers under one-time masks; the partner gets a random share of a product",
)
READY = Topic(
    name="products/ready",
    door=Door.AGGREGATE,
    shape=(CHECK,),
    learns="the partner learns that the sender holds its share",
)
PRESENT = Topic(
    name="products/present",
    door=Door.AGGREGATE,
    shape=(CHECK,),
    learns="the partner learns that the sender is in the sum with its share",
)

"""The messages of the strict profile, beside those of masked sums."""

from lumos.exchange.topic import Door, Topic

SYMBOL = Topic(
    name="strict/symbol",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same randomized symbol: ε, however many of them collude",
)
RELAY = Topic(
    name="strict/relay",
    door=Door.RELEASE,
    shape=None,
    learns="a neighbour gets one symbol that the sender heard from another neighbour, or made up: "
    "no further ε, but a hint at degrees and edges",
)

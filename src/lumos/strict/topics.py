"""The messages of the strict profile, beside those of masked sums. There is only one."""

from lumos.exchange.topic import Door, Topic

SYMBOL = Topic(
    name="strict/symbol",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same randomized symbol: ε, however many of them collude",
)

"""The messages of the strict profile, beside those of masked sums."""

from lumos.exchange.topic import Door, Topic

SYMBOL = Topic(
    name="strict/symbol",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same randomized symbol: ε, however many of them collude",
)
OPINION = Topic(
    name="strict/opinion",
    door=Door.RELEASE,
    shape=None,
    common=True,
    about_edges=True,
    learns="every neighbour gets the same randomized class, made of what the sender received and "
    "of nothing of its own: ε of each of its edges, however many of them collude",
)
RELAY = Topic(
    name="strict/relay",
    door=Door.RELEASE,
    shape=None,
    learns="a neighbour gets one symbol that the sender heard from another neighbour, or made up: "
    "no further ε, but a hint at degrees and edges",
)
NEIGHBOUR_ANSWER = Topic(
    name="strict/neighbour-answer",
    door=Door.RELEASE,
    shape=None,
    learns="a neighbour gets a few symbols and colours that the sender heard from others, as many "
    "whatever its degree: no further ε, but a hint at degrees and edges",
)
ASK = Topic(
    name="strict/ask",
    door=Door.CONTROL,
    vocabulary=("tell me of you",),
    learns="a device learns who asks: someone who drew it at random, or an end of an edge that is "
    "held back for validation",
)
ANSWER = Topic(
    name="strict/answer",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="whoever asks gets the sender's symbol and colour and a few that it heard, the same for "
    "all: ε, however many collude; a hint at degrees and edges",
)

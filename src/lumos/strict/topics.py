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
    learns="every neighbour gets the same randomized class (for links: colour), made of what "
    "the sender received and of nothing of its own: ε of each of its edges, however many of them "
    "collude",
)
COLOUR = Topic(
    name="strict/colour",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same colour, drawn at random: it depends on no data",
)
PROPOSAL = Topic(
    name="strict/proposal",
    door=Door.CONTROL,
    vocabulary=("be my partner",),
    learns="a neighbour learns that the sender has no partner yet and chose it among its "
    "neighbours: a hint at the sender's degree",
)
REPLY = Topic(
    name="strict/reply",
    door=Door.CONTROL,
    vocabulary=("no", "yes"),
    learns="a device learns whether a neighbour is its partner: a hint at who proposed to it",
)
QUESTION = Topic(
    name="strict/question",
    door=Door.CONTROL,
    vocabulary=("may we compare",),
    learns="a device learns who wants to know the level of their score",
)
CONSENT = Topic(
    name="strict/consent",
    door=Door.CONTROL,
    vocabulary=("no", "yes"),
    learns="the asker learns whether the other has answers left: a hint at how many have asked it",
)

"""Every message of training, with its door and what its receiver learns.

The door `open` protects nothing. What passes there in the `paper` profile is what section VI of the
paper sends, and `lumos.paper.exposure` describes what it gives away (errata A to H).
"""

from lumos.exchange.topic import Door, Topic

CARRY = Topic(
    name="train/carry",
    door=Door.CONTROL,
    vocabulary=("your leaf is in my tree",),
    learns="a device learns which of its neighbours carry their common edge",
)
FEATURES = Topic(
    name="train/features",
    door=Door.RELEASE,
    shape=None,
    learns="one neighbour gets one-bit encoded features: ε each; s = ⌈d/ρ⌉ tells it the range of ρ",
)
CLEAR_FEATURES = Topic(
    name="train/features-in-the-clear",
    door=Door.OPEN,
    shape=None,
    learns="a neighbour gets the sender's features without noise (ε = inf)",
)
LEAF = Topic(
    name="train/leaf",
    door=Door.OPEN,
    shape=None,
    learns="a device gets its leaf's embedding from a neighbour's tree: a function of the "
    "neighbour's raw features",
)
LEAF_GRADIENT = Topic(
    name="train/leaf-gradient",
    door=Door.OPEN,
    shape=None,
    learns="a neighbour gets the gradient of its leaf: it depends on the sender's label or links, "
    "and its factor on the number of leaves",
)
ASK = Topic(
    name="train/ask",
    door=Door.CONTROL,
    vocabulary=("send me your embedding",),
    learns="a device learns who wants its embedding: a neighbour, or someone who drew it at random",
)
EMBEDDING = Topic(
    name="train/embedding",
    door=Door.OPEN,
    shape=None,
    learns="whoever asked gets an embedding computed from raw features, strangers too",
)
EMBEDDING_GRADIENT = Topic(
    name="train/embedding-gradient",
    door=Door.OPEN,
    shape=None,
    learns="the asked device, strangers too, gets the direction of the asker's own embedding",
)

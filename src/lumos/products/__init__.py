"""Products of matched devices, as shares that enter a masked sum.

    sums = paired_sums(shard, endpoint, aggregator)      # aggregator: masked sums, after its setup
    yield from sums.setup(partner, chosen)               # once per run: [hosted], [hosted, words]
    total = yield from sums.sum(vectors, noise, step)    # vectors: int8 [hosted, width]

    coordinator = PairedCoordinator(masked_sums)         # in the coordinator's program
    total = yield from coordinator.sum(words * width)

The total is Σ (b_u ⊗ Z_v + b_v ⊗ Z_u) / 128 over all pairs (u, v), and no device sees the other's
words b or numbers Z. `extension` has the oblivious transfers, `pair_session` the session of a pair
over bytes, `secure` and `ideal` the backends, `paired_sums` the rule for who is in a sum.
"""

from lumos.products.ideal import IdealProducts
from lumos.products.inputs import PairProducts
from lumos.products.pair_session import PairSession
from lumos.products.paired_sums import (
    IdealPairedSums,
    PairedCoordinator,
    PairedSums,
    SecurePairedSums,
    paired_sums,
)
from lumos.products.secure import PairShares, SecureProducts

__all__ = [
    "IdealPairedSums",
    "IdealProducts",
    "PairProducts",
    "PairSession",
    "PairShares",
    "PairedCoordinator",
    "PairedSums",
    "SecurePairedSums",
    "SecureProducts",
    "paired_sums",
]

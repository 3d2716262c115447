"""Masked sums: everybody learns the sum of all devices' vectors, nobody a single vector.

    aggregator = SecureAggregator(shard, endpoint)         # in the program of each shard
    yield from aggregator.setup()                          # once per run
    total = yield from aggregator.sum(vectors)             # vectors: [hosted, width]

    coordinator = SecureCoordinator(devices, public, endpoint)     # in the coordinator's program
    total = yield from coordinator.sum(width)

`IdealAggregator` and `IdealCoordinator` have the same calls, the same sums bit by bit and the same
ledger, without the protection. `secure` has the protocol, `topics` its messages, `parameters` the
security statement, `fixed_point` the range of numbers.

**What is promised.** Semi-honest parties; the coordinator and a fraction `corrupt` of the devices
pool what they see. Except with probability 2^-security_bits over a run, and as far as ChaCha20,
X25519, XSalsa20-Poly1305 and BLAKE2b hold, they learn of the honest devices the sum over those
whose vectors arrived, and who fell silent when. At least `minimum` vectors are in a sum, or none is
opened. A vector that comes after its device was declared lost stays masked for good. A lying
coordinator cannot make honest holders open both secrets of a device, nor, by telling devices
different stories of who was lost, remove all masks from one vector (`secure`); it can spoil a sum,
and choose whom to lose.
**What is not.** Vectors are not checked: a device may send any numbers within the range. That
public keys and messages are their senders' is the carrier's promise. Colluders and the silent must
not be chosen after the run seed, which draws the mask graph, is known.
"""

from lumos.aggregate.attempts import Attempted
from lumos.aggregate.coordinator import SecureCoordinator
from lumos.aggregate.fixed_point import FixedPoint
from lumos.aggregate.ideal import IdealAggregator, IdealCoordinator
from lumos.aggregate.parameters import MaskParameters, mask_parameters
from lumos.aggregate.secure import SecureAggregator
from lumos.aggregate.settings import AggregateSettings
from lumos.aggregate.topics import Stage

__all__ = [
    "AggregateSettings",
    "Attempted",
    "FixedPoint",
    "IdealAggregator",
    "IdealCoordinator",
    "MaskParameters",
    "SecureAggregator",
    "SecureCoordinator",
    "Stage",
    "mask_parameters",
]

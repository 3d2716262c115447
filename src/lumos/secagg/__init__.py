"""Masked sums: everybody learns the sum of all devices' vectors, nobody a single vector.

    aggregator = SecureAggregator(shard, endpoint)         # in the program of each shard
    yield from aggregator.setup()                          # once per run
    total = yield from aggregator.sum_updates(update)      # update(True): [hosted, width]

    coordinator = SecureCoordinator(devices, endpoint)     # in the coordinator's program
    yield from coordinator.setup()
    total = yield from coordinator.sum(width)

With `AggregateSettings(proofs=True)` and a bound, devices prove that their summands are short, and
liars are excluded (`bounded`, `evidence`, `signing`):

    total = yield from aggregator.sum_updates(update, noise, bound=bound)
    total = yield from coordinator.sum(width, bound=bound)

`IdealAggregator` and `IdealCoordinator` have the same calls, the same sums bit by bit and the same
ledger, without the protection; `AGGREGATORS` and `COORDINATORS` have both by name.

**Stages.** SETUP, once per run: the devices draw the mask graph (`mask_graph`) and agree on keys
with their mask neighbours (`masks`). Then in every sum: SHARE_KEYS, each device leaves its wrapped
pair seeds with the coordinator (`shares`); COLLECT_MASKED_VECTORS, it sends its masked vector;
UNMASK, mask neighbours confirm each other and give out shares (`openings`), and the coordinator
sends the sum. `device` and `coordinator` are the two sides, `topics` has the messages of each
stage, `parameters` the security statement and the range of numbers, `noise` the noise in a sum.

**What is guaranteed.** The coordinator and a fraction `corrupt` of the devices pool what they see.
They may choose themselves, with full knowledge of everything before the mask graph is drawn. Except
with probability 2^-security_bits over a run, and as far as ChaCha20, X25519 and BLAKE2b hold, and
the ring's order is uniform to those who do not know its seed (`mask_graph`):

* *If they follow the protocol*, they learn of the honest devices the sum over those whose vectors
  arrived, and who fell silent when; at least `minimum` vectors are in it, or nothing is opened. A
  vector that comes after its device was declared lost stays masked for good.
* *A coordinator that lies*, also in the draw, or somebody who silences devices at will, cannot make
  holders open both secrets of a device, nor remove all masks from one vector (`device`, `shares`,
  `openings`). It can spoil a sum, and choose whom to lose: one sum in a
  round, over a group that goes round the ring of the mask graph, and in which each device has
  k - t + 1 others among its neighbours (`parameters`). `minimum` does not bind it, and where it
  loses more than `dropped` of the devices, the noise in the sum is smaller than was accounted for.

**What is not.** A coalition that is chosen after the draw, for example by seizing the mask
neighbours of one device during the run: t of them are enough. Without proofs vectors are not
checked: a device may send any numbers within the range. That public keys and messages are their
senders' is the transport's guarantee; in a sum no message passes between devices. With simulated
randomness the mask graph follows from the run seed.

**Sizes.** A shard makes arrays of the size of its devices times k, and none of the federation's,
but for the list of the draw: 16 bytes for each device. The coordinator's, which receives from all
devices, have k · n entries. The ideal backend makes such arrays only where somebody falls silent.
"""

from lumos.secagg.bounded import BoundedAggregator, BoundedCoordinator
from lumos.secagg.coordinator import SecureCoordinator
from lumos.secagg.device import SecureAggregator
from lumos.secagg.ideal import IdealAggregator, IdealCoordinator
from lumos.secagg.parameters import AggregateSettings, FixedPoint, MaskParameters, mask_parameters
from lumos.secagg.topics import Stage

AGGREGATORS: dict[str, type[BoundedAggregator] | type[IdealAggregator]] = {
    "secure": BoundedAggregator,
    "ideal": IdealAggregator,
}
"""By the setting `aggregate`: the part of a shard in sums."""
COORDINATORS: dict[str, type[BoundedCoordinator] | type[IdealCoordinator]] = {
    "secure": BoundedCoordinator,
    "ideal": IdealCoordinator,
}
"""The coordinator's part, in the same way."""

__all__ = [
    "AGGREGATORS",
    "COORDINATORS",
    "AggregateSettings",
    "BoundedAggregator",
    "BoundedCoordinator",
    "FixedPoint",
    "IdealAggregator",
    "IdealCoordinator",
    "MaskParameters",
    "SecureAggregator",
    "SecureCoordinator",
    "Stage",
    "mask_parameters",
]

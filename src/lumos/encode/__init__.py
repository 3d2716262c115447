"""What a device releases of its features: the one-bit mechanism, its bins and its messages.

The order of the modules is the order in which features travel: `bounds` scales them by public
bounds, `one_bit` is the mechanism alone (pure functions of ε, d, ρ and the bounds), `bins` spreads
elements over receivers, `release` does both for all devices of a shard, `wire` writes messages, and
`recovered` is what the receivers make of them.
"""

from lumos.encode.bounds import scaled
from lumos.encode.one_bit import EncoderSettings
from lumos.encode.recovered import RecoveredFeatures, recover
from lumos.encode.release import Released, release
from lumos.encode.wire import Messages, joined, parts_for, read, write

__all__ = [
    "EncoderSettings",
    "Messages",
    "RecoveredFeatures",
    "Released",
    "joined",
    "parts_for",
    "read",
    "recover",
    "release",
    "scaled",
    "write",
]

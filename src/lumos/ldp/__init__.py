"""What a device releases: its features by the one-bit mechanism, or one symbol.

The order of the modules is the order in which features travel: `bounds` scales them by public
bounds, `one_bit` is the mechanism alone (pure functions of ε, d, ρ and the bounds), `spread` deals
elements over receivers, `release` does both for all devices of a shard, `wire` writes messages, and
`recovered` holds the unbiased features at the receivers. `multibit_features` is LPGNN's mechanism,
for the baselines. `mechanisms` has those for one symbol of k.
`label_form` writes a label as one such symbol, and `label_draws` draws it once for life, at several
levels of noise.
"""

from lumos.ldp.bounds import scaled
from lumos.ldp.one_bit import EncoderSettings, RecoveredFeatures, Released, recover, release
from lumos.ldp.wire import Messages, joined, parts_for, read, write

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

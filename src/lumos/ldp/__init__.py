"""Local differential privacy: releases of features, or of one label.

The order of the modules is the order in which features travel: `bounds` scales them by public
bounds, `one_bit` is the mechanism, the release of all devices of a shard, and the unbiased features
at the receivers, `wire` writes messages. `multibit` is LPGNN's mechanism, for the baselines, and
the bases of mechanisms of your own (`ENCODERS`).
`mechanisms` has those for one label of k. `labels` writes a label as one such number, and draws it
once for life, at several levels of noise.
"""

from lumos.ldp.bounds import scaled
from lumos.ldp.multibit import FiniteEncoder, SharedEncoder
from lumos.ldp.one_bit import (
    ENCODERS,
    EncoderSettings,
    RecoveredFeatures,
    Released,
    recover,
    release,
)
from lumos.ldp.wire import Messages, joined, parts_for, read, write

__all__ = [
    "ENCODERS",
    "EncoderSettings",
    "FiniteEncoder",
    "Messages",
    "RecoveredFeatures",
    "Released",
    "SharedEncoder",
    "joined",
    "parts_for",
    "read",
    "recover",
    "release",
    "scaled",
    "write",
]

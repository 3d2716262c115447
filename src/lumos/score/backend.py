"""Which backend computes scores."""

from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Endpoint
from lumos.score.ideal import IdealScorer
from lumos.score.scorer import Scorer
from lumos.score.secure import SecureScorer
from lumos.session.workers import Workers


def make_scorer(
    shard: Shard, endpoint: Endpoint, workers: Workers | None, group: Group = ED25519
) -> Scorer:
    """The secure backend with these workers; the ideal one where there are none."""
    if workers is None:
        return IdealScorer(shard, endpoint, group=group)
    return SecureScorer(shard, endpoint, workers, group=group)

"""The coordinator's part in all sums of a run, where it follows the training itself.

Weights and losses are functions of sums that the coordinator opens, so it can compute them: it runs
the program of a shard without devices, in which sums are held and not taken part in. It learns
nothing by that which it does not know already.
"""

import numpy as np
from scipy.sparse import csr_array

from lumos.aggregate import SecureCoordinator
from lumos.aggregate.noise import Noise
from lumos.aggregate.opened_sums import OpenedSums
from lumos.errors import ProtocolError, UsageError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.products import PairedCoordinator
from lumos.strict.noisy_sums import Update
from lumos.training.config import Config
from lumos.typing import Arrays, Doubles, Ints, Small


class FollowedSums:
    """`lumos.strict.noisy_sums.NoisySums`, as the coordinator has them.

    Args:
        total: number of devices.
        endpoint: the coordinator's.
        config: settings.

    Raises:
        UsageError: sums are ideal.
    """

    def __init__(self, total: int, endpoint: Endpoint, config: Config) -> None:
        if config.train.aggregate != "secure":
            raise UsageError("real devices need `aggregate='secure'`")
        self._sums = SecureCoordinator(total, endpoint, config.updates, drops_refused=True)
        self._pairs = PairedCoordinator(self._sums)

    def refused(self) -> list[int]:
        """Senders of messages that were dropped since the last call."""
        refused, self._sums.refused = self._sums.refused, []
        return refused

    def rounded(self, values: Doubles) -> Doubles:
        """Numbers of one device's vector as a sum encodes them."""
        return self._sums.fixed.rounded(values)

    def setup(self) -> Program[None]:
        """Hold the draw of the mask graph."""
        yield from self._sums.setup()

    def sum(self, update: Update, noise: Noise | None, step: int) -> Program[Doubles]:
        """[width] the sum over all devices, with their noise.

        Raises:
            ProtocolError: too few devices are present.
        """
        total = yield from self._sums.sum(update(True).shape[1])
        if total is None:
            raise ProtocolError("a sum was not opened: too few devices were present")
        return total

    def pair(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Sessions of matched devices: the coordinator has no part in them."""
        yield from ()

    def sum_products(
        self, vectors: Small, words: int, noise: Noise | None, step: int
    ) -> Program[Doubles]:
        """[words · K] the sum of products over all pairs, with noise."""
        return (yield from self._pairs.sum(words * vectors.shape[1]))

    def state(self) -> Arrays:
        """What the coordinator needs to go on after a restart."""
        return {**self._sums.state_dict(), "known": np.empty(0, np.uint8)}

    def restore(self, state: Arrays) -> None:
        """Go on from a state instead of `setup`."""
        self._sums.load_state_dict(state)

    def remember_openings(self, opened: OpenedSums) -> None:
        """The coordinator holds no shares."""

    def compare_told(self) -> Program[None]:
        """The coordinator has no part in it."""
        yield from ()

    def begin_attempt(self, number: int) -> None:
        """The coordinator has no masks."""

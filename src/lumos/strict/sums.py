"""Masked sums with noise: the part of the hosted devices, and that of the coordinator.

Devices draw the noise themselves. `lumos.training.sums` has what other profiles share; here come
sums of products, which matched devices compute, and the coordinator of a simulation.
"""

from functools import partial

import numpy as np
from scipy.sparse import csr_array

from lumos.device.randomness import PublicRandomness
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Endpoint, Program
from lumos.secagg import COORDINATORS
from lumos.secagg.noise import Noise, Update
from lumos.strict.stages import Schedule, Stage
from lumos.training.config import Config
from lumos.training.sums import FollowedSums, RunSums
from lumos.twoparty.product_sums import PairedCoordinator, paired_sums
from lumos.typing import Doubles, Ints, Small

__all__ = ["NoisySums", "Update"]


class NoisySums(RunSums):
    """The hosted devices' part in all sums of a run; arguments as those of `RunSums`."""

    def __init__(self, shard: Shard, endpoint: Endpoint, config: Config) -> None:
        super().__init__(shard, endpoint, config)
        self._pairs = paired_sums(shard, endpoint, self._sums)

    def pair(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Open the sessions of matched devices; arguments as in `PairedSums.setup`."""
        yield from self._pairs.setup(partner, chosen)

    def sum_products(
        self, vectors: Small, tokens: int, noise: Noise | None, step: int
    ) -> Program[Doubles]:
        """Return [tokens · K] the sum of products over all pairs, with noise.

        Args:
            vectors: [hosted, K] of the devices.
            tokens: width of the rows that `pair` was given.
            noise: None for an exact sum.
            step: names the randomness of the noise, and the products: none is computed twice.
        """
        shares = self._sums.noise_shares(noise, tokens * vectors.shape[1], step)
        total = yield from self._pairs.sum(vectors, shares, step)
        self._learn(total)
        return total


class FollowedNoisySums(FollowedSums):
    """The coordinator's part in place of `NoisySums`; arguments as those of `FollowedSums`."""

    def __init__(self, total: int, endpoint: Endpoint, config: Config, plan: bytes = b"") -> None:
        super().__init__(total, endpoint, config, plan)
        self._pairs = PairedCoordinator(self._sums)

    def pair(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Do nothing: the coordinator has no part in sessions of devices."""
        yield from ()

    def sum_products(
        self, vectors: Small, tokens: int, noise: Noise | None, step: int
    ) -> Program[Doubles]:
        """Return [tokens · K] the sum of products over all pairs, with noise."""
        return (yield from self._pairs.sum(tokens * vectors.shape[1]))


class StrictCoordinator:
    """The coordinator's program: sums; in an ideal sum it adds the devices' noise for them.

    Args:
        schedule: everything public.
        public: public randomness.
        endpoint: its ledger counts ideal sums.
        features: number of features.
        variant: names the randomness of the noise in ideal sums.
    """

    def __init__(
        self,
        schedule: Schedule,
        public: PublicRandomness,
        endpoint: Endpoint,
        features: int,
        variant: str = "",
    ) -> None:
        self._schedule = schedule
        self._noise = f"ideal noise{variant}"
        self._public = public
        self._features = features
        coordinator = COORDINATORS[schedule.config.train.aggregate]
        self._sums = coordinator(schedule.devices, endpoint, schedule.config.updates)
        self._pairs = PairedCoordinator(self._sums)

    def setup(self) -> Program[None]:
        """Draw the mask graph, and scale features."""
        yield from self._sums.setup()
        for place, stage in enumerate(self._schedule.first_stages):
            yield from self._add_up(stage, 0, self._schedule.first_randomness(place))

    def epochs(self, first: int, last: int) -> Program[None]:
        """Hold one sum per epoch."""
        for number in range(first, last):
            yield from self._add_up(*self._schedule.place(number), number)

    def finish(self) -> Program[None]:
        """Hold the sums after the last epoch."""
        for place, stage in enumerate(self._schedule.last_stages):
            yield from self._add_up(stage, 0, self._schedule.config.train.epochs + place)

    def _add_up(self, stage: Stage, step: int, randomness: int) -> Program[None]:
        """Hold one sum; `randomness` names the randomness of its noise."""
        noise, width = stage.noise(step), stage.width(self._features)
        drawn = None if noise is None else partial(self._drawn, noise.total, width, randomness)
        if stage.paired:
            yield from self._pairs.sum(width, drawn)
        else:
            yield from self._sums.sum(width, drawn, partial(stage.summand_bound, step))

    def _drawn(self, scale: float, width: int, randomness: int) -> Doubles:
        """Draw the noise of all devices, for an ideal sum."""
        generator = self._public.generator(self._noise, randomness)
        if self._schedule.config.train.randomness == "system":
            generator = np.random.default_rng()  # from the operating system
        return scale * generator.standard_normal(width)

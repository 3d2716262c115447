"""The coordinator of the strict profile: it adds up sums that carry noise."""

from collections.abc import Callable

import numpy as np

from lumos.aggregate import IdealCoordinator, SecureCoordinator
from lumos.device.coins import PublicCoins
from lumos.exchange.endpoint import Endpoint, Program
from lumos.products import PairedCoordinator
from lumos.strict.feature_scaling import width_of
from lumos.strict.schedule import Schedule

Widths = Callable[[str, int], int]
"""Width of a sum of a stage, given its number among those of the stage."""


class StrictCoordinator:
    """The coordinator's program: sums; in an ideal sum it adds the devices' noise for them.

    Args:
        schedule: everything public.
        public: public coins.
        endpoint: whose ledger ideal sums are booked in.
        features: d, or the number of words that they make.
        raw_features: d.
        widths: the widths of all sums, for a number of used features.
        arm: names the coins of the noise in ideal sums.
    """

    def __init__(
        self,
        schedule: Schedule,
        public: PublicCoins,
        endpoint: Endpoint,
        features: int,
        raw_features: int,
        widths: Callable[[int], Widths],
        arm: str = "",
    ) -> None:
        self._schedule = schedule
        self._noise = f"ideal noise{arm}"
        self._public = public
        self._features, self._raw_features = features, raw_features
        kind = (
            SecureCoordinator if schedule.config.train.aggregate == "secure" else IdealCoordinator
        )
        self._sums = kind(schedule.devices, endpoint, schedule.config.updates)
        self._pairs = PairedCoordinator(self._sums)
        self._widths = widths(features)

    def setup(self) -> Program[None]:
        """Draw the mask graph, and scale features."""
        yield from self._sums.setup()
        schedule = self._schedule
        for place, stage in enumerate(schedule.first_stages):
            width = width_of(stage, self._raw_features)
            yield from self._add_up(stage, 0, width, schedule.first_coins(place))

    def epochs(self, first: int, last: int) -> Program[None]:
        """One sum per epoch."""
        schedule = self._schedule
        for number in range(first, last):
            yield from self._sum(schedule.stage(number), schedule.step(number), number)

    def finish(self) -> Program[None]:
        """The sums after the last epoch."""
        for place, stage in enumerate(self._schedule.last_stages):
            yield from self._sum(stage, 0, self._schedule.config.train.epochs + place)

    def _sum(self, stage: str, step: int, coins: int) -> Program[None]:
        yield from self._add_up(stage, step, self._widths(stage, step), coins)

    def _add_up(self, stage: str, step: int, width: int, coins: int) -> Program[None]:
        """A sum of `width` numbers; `coins` names those of its noise."""
        noise = self._schedule.noise(stage, step)
        drawn = None
        if isinstance(self._sums, IdealCoordinator) and noise is not None:
            generator = self._public.generator(self._noise, coins)
            if self._schedule.config.train.coins == "system":
                generator = np.random.default_rng()  # from the operating system
            drawn = noise.total * generator.standard_normal(width)
        if stage in self._schedule.paired_stages:
            yield from self._pairs.sum(width, drawn)
        elif isinstance(self._sums, IdealCoordinator):
            yield from self._sums.sum(width, drawn)
        else:
            yield from self._sums.sum(width)

"""The coordinator of the strict profile: it adds up sums that carry noise."""

from functools import partial

import numpy as np

from lumos.aggregate import COORDINATORS
from lumos.device.coins import PublicCoins
from lumos.exchange.endpoint import Endpoint, Program
from lumos.products import PairedCoordinator
from lumos.strict.stages import Schedule, Stage
from lumos.typing import Doubles


class StrictCoordinator:
    """The coordinator's program: sums; in an ideal sum it adds the devices' noise for them.

    Args:
        schedule: everything public.
        public: public coins.
        endpoint: whose ledger ideal sums are booked in.
        features: d.
        arm: names the coins of the noise in ideal sums.
    """

    def __init__(
        self,
        schedule: Schedule,
        public: PublicCoins,
        endpoint: Endpoint,
        features: int,
        arm: str = "",
    ) -> None:
        self._schedule = schedule
        self._noise = f"ideal noise{arm}"
        self._public = public
        self._features = features
        coordinator = COORDINATORS[schedule.config.train.aggregate]
        self._sums = coordinator(schedule.devices, endpoint, schedule.config.updates)
        self._pairs = PairedCoordinator(self._sums)

    def setup(self) -> Program[None]:
        """Draw the mask graph, and scale features."""
        yield from self._sums.setup()
        for place, stage in enumerate(self._schedule.first_stages):
            yield from self._add_up(stage, 0, self._schedule.first_coins(place))

    def epochs(self, first: int, last: int) -> Program[None]:
        """Hold one sum per epoch."""
        for number in range(first, last):
            yield from self._add_up(*self._schedule.place(number), number)

    def finish(self) -> Program[None]:
        """Hold the sums after the last epoch."""
        for place, stage in enumerate(self._schedule.last_stages):
            yield from self._add_up(stage, 0, self._schedule.config.train.epochs + place)

    def _add_up(self, stage: Stage, step: int, coins: int) -> Program[None]:
        """Hold one sum; `coins` names those of its noise."""
        noise, width = stage.noise(step), stage.width(self._features)
        drawn = None if noise is None else partial(self._drawn, noise.total, width, coins)
        sums = self._pairs if stage.paired else self._sums
        yield from sums.sum(width, drawn)

    def _drawn(self, scale: float, width: int, coins: int) -> Doubles:
        """Draw the noise of all devices, for an ideal sum."""
        generator = self._public.generator(self._noise, coins)
        if self._schedule.config.train.coins == "system":
            generator = np.random.default_rng()  # from the operating system
        return scale * generator.standard_normal(width)

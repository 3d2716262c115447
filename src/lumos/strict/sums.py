"""The coordinator of a simulation of a strict run."""

from functools import partial

import numpy as np

from lumos.device.randomness import PublicRandomness
from lumos.exchange.endpoint import Endpoint, Program
from lumos.secagg import COORDINATORS
from lumos.strict.stages import Schedule, Stage
from lumos.typing import Doubles


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
        yield from self._sums.sum(width, drawn, partial(stage.summand_bound, step))

    def _drawn(self, scale: float, width: int, randomness: int) -> Doubles:
        """Draw the noise of all devices, for an ideal sum."""
        generator = self._public.generator(self._noise, randomness)
        if self._schedule.config.train.randomness == "system":
            generator = np.random.default_rng()  # from the operating system
        return scale * generator.standard_normal(width)

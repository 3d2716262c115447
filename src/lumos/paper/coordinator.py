"""The coordinator of the paper's profile: one sum per epoch."""

from lumos.aggregate import COORDINATORS
from lumos.exchange.endpoint import Endpoint, Program
from lumos.paper.tasks import STATISTICS
from lumos.training.config import Config


class PaperCoordinator:
    """The coordinator's program: one sum per epoch.

    Args:
        weights: number of weights of the model.
    """

    def __init__(self, config: Config, total: int, endpoint: Endpoint, weights: int) -> None:
        self._sums = COORDINATORS[config.train.aggregate](total, endpoint, config.updates)
        self._width = weights + len(STATISTICS)

    def setup(self) -> Program[None]:
        """Draw the mask graph."""
        yield from self._sums.setup()

    def epochs(self, first: int, last: int) -> Program[None]:
        """One sum per epoch."""
        for _ in range(first, last):
            yield from self._sums.sum(self._width)

    def finish(self) -> Program[None]:
        """Nothing to do."""
        yield from ()

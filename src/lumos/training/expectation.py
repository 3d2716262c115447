"""A forecast: what a run would gain from neighbours, computed before it, without any data."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from lumos.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Population:
    """What is assumed about the devices of a federation."""

    devices: int
    """Number of devices."""
    classes: int
    """k, of equal size."""
    degree: float
    """Mean number of neighbours."""
    homophily: float
    """Share of edges between devices of one class; the others lead to each other class alike."""
    own_accuracy: float
    """Share of devices whose own features alone give the right class, under the same protection."""

    def __post_init__(self) -> None:
        if self.devices < 8:
            raise UsageError(f"`devices` must be 8 or more, got {self.devices}")
        if self.classes < 2:
            raise UsageError(f"`classes` must be 2 or more, got {self.classes}")
        if not 0 < self.degree < self.devices:
            raise UsageError(
                f"`degree` must be above 0 and below `devices` ({self.devices:,}), "
                f"got {self.degree:g}"
            )
        if not 0 <= self.homophily <= 1:
            raise UsageError(f"`homophily` must be from 0 to 1, got {self.homophily:g}")
        if not 1 / self.classes <= self.own_accuracy < 1:
            raise UsageError(
                f"`own_accuracy` must be from 1/`classes` ({1 / self.classes:.2f}) to below 1, "
                f"got {self.own_accuracy:g}"
            )


class Expected(NamedTuple):
    """Expected shares of devices whose class is predicted rightly."""

    own: float
    """By own features: as assumed, of the simulated devices."""
    neighbours: float
    """By what neighbours send, alone."""
    together: float
    """By both, or by own features where the vote of validation devices prefers them."""
    error: float
    """Standard error of the gain, of the simulation only."""

    @property
    def gain(self) -> float:
        """What neighbours add to own features."""
        return self.together - self.own


class Forecast(NamedTuple):
    """What is expected under two assumptions about errors; a graph is mostly between them."""

    clustered: Expected
    """Neighbours err about the same devices that own features err about."""
    independent: Expected
    """All errors are independent."""
    assumptions: str
    """One sentence."""


class Forecaster(Protocol):
    """Makes a forecast for a profile."""

    def __call__(self, population: Population, **settings: Any) -> Forecast | None:
        """The forecast of `classify` with these settings of the profile; None if it has none."""

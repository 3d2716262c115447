"""The systems that Lumos is compared with, on the same splits and by the same scores.

`systems` has the settings and the registry. `centralized` (with `own` and `gap`), `lpgnn`, `naive`
and `blink` are the systems: what a server receives and what that discloses. `network` is what a
server trains and for what, `measure` does the whole job.
"""

from typing import TYPE_CHECKING, Any

from lumos.baselines.systems import BASELINES, BaselineSettings, System

if TYPE_CHECKING:
    from lumos.baselines.measure import Measured, baseline

__all__ = ["BASELINES", "BaselineSettings", "Measured", "System", "baseline"]


def __getattr__(name: str) -> Any:
    """Load what trains when it is first used: torch takes a second to import."""
    if name not in ("Measured", "baseline"):
        raise AttributeError(f"module 'lumos.baselines' has no attribute {name!r}")
    from lumos.baselines import measure

    return getattr(measure, name)

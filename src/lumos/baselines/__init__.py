"""The systems that Lumos is compared with, on the same splits and by the same scores.

`settings` says which and how. `systems` is the registry, with one file per system: what its server
receives and what that discloses (`noisy_features`, `noisy_graph`, `label_noise` and
`lumos.ldp.multibit` are the mechanisms). `arcs`, `attention` and `server_network` are
what it trains, `goals` what it trains for. `measure` does the whole job.
"""

from typing import TYPE_CHECKING, Any

from lumos.baselines.systems import BASELINES, BaselineSettings, System

if TYPE_CHECKING:
    from lumos.baselines.measure import Measured, baseline

__all__ = ["BASELINES", "BaselineSettings", "Measured", "System", "baseline"]


def __getattr__(name: str) -> Any:
    """What trains is loaded when it is first used: torch takes a second to import."""
    if name not in ("Measured", "baseline"):
        raise AttributeError(f"module 'lumos.baselines' has no attribute {name!r}")
    from lumos.baselines import measure

    return getattr(measure, name)

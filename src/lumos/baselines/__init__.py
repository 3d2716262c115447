"""The systems that Lumos is compared with, on the same splits and by the same scores.

`settings` says which and how; `systems` is what each server receives (`noisy_graph`, `labels` and
`lumos.encode.multi_bit` are the mechanisms); `arcs`, `attention` and `network` are what it trains,
`goals` what it trains for; `job` does the whole of it.
"""

from typing import TYPE_CHECKING, Any

from lumos.baselines.settings import BaselineSettings

if TYPE_CHECKING:
    from lumos.baselines.run import Measured, baseline

__all__ = ["BaselineSettings", "Measured", "baseline"]


def __getattr__(name: str) -> Any:
    """What trains is loaded when it is first used: torch takes a second to import."""
    if name not in ("Measured", "baseline"):
        raise AttributeError(f"module 'lumos.baselines' has no attribute {name!r}")
    from lumos.baselines import run as job

    return getattr(job, name)

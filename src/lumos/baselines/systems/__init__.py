"""The systems that Lumos is compared with: a registry with one file per system.

    centralized   a server holds everything in the clear
    own           every device predicts from its own features
    lpgnn         the server knows the edges; features and labels are noised
    naive         the server holds a noised copy of every ego network

A system of your own is a subclass of `System` and one line, `BASELINES.register("mine", Mine())`.
"""

from lumos.baselines.systems.system import System
from lumos.registry import Registry

__all__ = ["BASELINES", "System"]

BASELINES: Registry[System] = Registry(
    "system",
    {
        "centralized": "lumos.baselines.systems.centralized:CENTRALIZED",
        "own": "lumos.baselines.systems.own:OWN",
        "lpgnn": "lumos.baselines.systems.lpgnn:LPGNN",
        "naive": "lumos.baselines.systems.naive:NAIVE",
    },
)

"""The registry of profiles: the only place, beside their own folders, that knows their names."""

from typing import TYPE_CHECKING, Any

from lumos.registry import Registry

if TYPE_CHECKING:
    from lumos.training.expectation import Forecaster
    from lumos.training.profile import Profile

PAPER, STRICT = "paper", "strict"

PROFILES: "Registry[Profile[Any]]" = Registry(
    "profile",
    {
        PAPER: "lumos.paper.profile:PROFILE",
        STRICT: "lumos.strict.profile:PROFILE",
    },
)

FORECASTERS: "Registry[Forecaster]" = Registry(
    "forecaster", {STRICT: "lumos.strict.forecast:forecast"}
)
"""By profile: what `lumos budget` predicts the gain by."""

"""From the library's words to the command line's: settings in backticks become options.

`update_epsilon` must be above 0   →   --update-epsilon must be above 0
`protect='none'` has no noise      →   --protect none has no noise
`virtual_nodes=False`              →   --no-virtual-nodes
"""

import dataclasses
import re
from functools import cache
from typing import Any

_SETTING = re.compile(r"`([a-z_]+)(?:=('?)([^`']*)\2)?`")
_COMMANDS = (
    "out",
    "resume",
    "export",
    "simulated",
    "keep",
    "id",
    "newcomer",
    "csv",
    "plot",
    "tensorboard",
    "seeds",
    "ranks",
    "max_restarts",
    "rank_timeout",
    "systems",
    "jobs",
    "split",
    "parts",
    "assign",
    "features",
    "profiles",
    "only",
    "device",
    "coordinator",
    "broker",
    "host",
    "request",
    "valid",
    "port",
    "max_payload",
    "max_connections",
    "deadline",
)
"""Options of commands that are no setting of any dataclass."""


def as_options(text: str) -> str:
    """The same text with settings written as options of the command line."""
    return _SETTING.sub(_as_option, text)


def _as_option(match: re.Match[str]) -> str:
    name, _, value = match.groups()
    if name not in _options():
        return match.group(0)
    option = "--" + name.replace("_", "-")
    if value in (None, "True"):
        return option
    return "--no-" + option[2:] if value == "False" else f"{option} {value}"


@cache
def _options() -> frozenset[str]:
    """Names of all settings, and of the options that commands add."""
    from lumos.baselines.settings import BaselineSettings
    from lumos.cli.common import Common
    from lumos.graph import ReadOptions
    from lumos.training.config import COMMON
    from lumos.training.expectation import Population
    from lumos.training.profiles import PROFILES

    groups: list[type[Any]] = [*COMMON.values(), BaselineSettings, Common, ReadOptions, Population]
    groups += [PROFILES[name].settings for name in PROFILES]
    fields = (field.name for group in groups for field in dataclasses.fields(group))
    return frozenset([*fields, *_COMMANDS])
